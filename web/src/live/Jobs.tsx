import { useEffect, useState } from "preact/hooks";

import { cancelJob, readJob, startJob, type Job } from "../api";
import { count } from "../format";
import { say } from "../state";
import type { Model } from "../types";

const EVERY = 300;

/** Maps of every picture ahead of time: long work, with its progress, that can be stopped. */
export function Jobs({ model, pictures }: { model: Model; pictures: number }) {
  const [id, setId] = useState<string | null>(null);
  const [job, setJob] = useState<Job | null>(null);
  useEffect(() => {
    if (!id) return;
    let timer = 0;
    const look = async () => {
      try {
        const now = await readJob(id);
        setJob(now);
        if (now.state === "running" || now.state === "waiting") timer = window.setTimeout(look, EVERY);
        else setId(null);
      } catch (error) {
        say((error as Error).message, { tone: "bad" });
        setId(null);
      }
    };
    void look();
    return () => clearTimeout(timer);
  }, [id]);
  const refuse = (error: Error) => say(error.message, { tone: "bad" });
  const start = () => {
    setJob(null);
    const all = Array.from({ length: pictures }, (_, k) => k);
    startJob(model.name, all, Array.from({ length: model.depth }, (_, b) => b)).then(({ job: started }) => setId(started), refuse);
  };
  return (
    <div class="job">
      {id ? (
        <>
          <progress max={job?.total || 1} value={job?.done ?? 0} aria-label="Maps computed" />
          <span class="num quiet">
            {job?.done ?? 0} of {job?.total ?? "…"}
          </span>
          <button class="button small" onClick={() => cancelJob(id).catch(refuse)}>
            Stop
          </button>
        </>
      ) : (
        <>
          <button class="button small" onClick={start}>
            Compute the maps of all {count(pictures, "picture")}
          </button>
          {job && <span class="quiet">{job.state === "done" ? "All maps were computed; those that memory has room for are kept." : job.state === "cancelled" ? `Stopped after ${job.done}.` : `Failed: ${job.error ?? "see the terminal"}`}</span>}
        </>
      )}
    </div>
  );
}
