import { useEffect, useMemo, useState } from "preact/hooks";

import { audit, patchFile, switchOff, type Audit, type AuditPart, type Switched } from "../api";
import { BeforeAfter, Switch } from "../audit/BeforeAfter";
import { Decisions, type Side } from "../audit/Decisions";
import { keyOf, Suspects } from "../audit/Suspects";
import { Working } from "../audit/Working";
import { amount, count, siteName } from "../format";
import { Empty, Failed, Loading } from "../parts/States";
import { live, say } from "../state";

/** Asks again a moment after the last tick; the last answer stays until the next one is there. */
function useSwitched(parts: AuditPart[]) {
  const [got, set] = useState<{ answer: Switched | null; error: Error | null; busy: boolean }>({ answer: null, error: null, busy: true });
  const asked = parts.map(keyOf).sort().join(" ");
  useEffect(() => {
    const stop = new AbortController();
    set((was) => ({ ...was, busy: true }));
    const soon = setTimeout(() => {
      switchOff(parts, stop.signal).then(
        (answer) => set({ answer, error: null, busy: false }),
        (error: Error) => error.name !== "AbortError" && set({ answer: null, error, busy: false }),
      );
    }, 150);
    return () => {
      clearTimeout(soon);
      stop.abort();
    };
  }, [asked]);
  return got;
}

/** Key s flips the switch, but not while somebody types. */
function useKey(flip: () => void): void {
  useEffect(() => {
    const keys = (event: KeyboardEvent) => {
      const typing = (event.target as HTMLElement).closest("input:not([type='checkbox']), textarea, select");
      if (event.key === "s" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) flip();
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
}

async function save(parts: AuditPart[]): Promise<void> {
  try {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await patchFile(parts));
    link.download = "patch.safetensors";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  } catch (error) {
    say((error as Error).message, { tone: "bad" });
  }
}

function verdict(answer: Switched): string {
  if (!answer.parts) return "Tick parts of the list to switch them off.";
  if (!answer.changed) return "No decision changes.";
  return `${answer.changed} of ${count(answer.pictures, "decision")} change: ${answer.mended} ${answer.mended === 1 ? "becomes" : "become"} right, ${answer.broken} wrong.`;
}

function Result({ found, parts }: { found: Audit; parts: AuditPart[] }) {
  const [side, setSide] = useState<Side>("after");
  const got = useSwitched(parts);
  const flip = () => setSide((was) => (was === "after" ? "before" : "after"));
  useKey(flip);
  const { answer } = got;
  return (
    <div class="audit-result">
      <Switch side={side} flip={flip} parts={parts.length} />
      {got.error && (
        <p class="warn" role="alert">
          {got.error.message}
        </p>
      )}
      {!answer && !got.error && <Loading what="the model" />}
      {got.busy && <Working />}
      {answer && (
        <div aria-busy={got.busy} data-parts={answer.parts}>
          <p class="big" aria-live="polite">
            {got.busy ? "The model looks again …" : verdict(answer)}
          </p>
          {answer.broken > answer.mended && <p class="sentence">More become wrong than right: on pictures like these the parts help. Where what they answer to is missing or misleads they may do harm: look at the worst group, and try pictures from elsewhere.</p>}
          <BeforeAfter found={found} answer={answer} side={side} />
          <p class="actions">
            <button class="button small" disabled={!parts.length} onClick={() => void save(parts)}>
              Save this patch
            </button>
            <span class="quiet">
              A file for <code>vt.SwitchOff.load</code>. The model here stays as it is.
            </span>
          </p>
          <h3>Decisions that change</h3>
          <Decisions found={found} answer={answer} side={side} />
        </div>
      )}
    </div>
  );
}

function Trust({ found }: { found: Audit }) {
  return (
    <section class="part">
      <h2>Can the list be trusted?</h2>
      <p class="sentence">{found.means}</p>
      <div class="scroll">
        <table class="controls">
          <thead>
            <tr>
              <th scope="col">control</th>
              <th scope="col" class="num">
                found
              </th>
              <th scope="col">what it should be</th>
            </tr>
          </thead>
          <tbody>
            {found.controls.map((one) => (
              <tr key={`${one.site} ${one.name}`}>
                <th scope="row">
                  {one.name}
                  {found.sites.length > 1 && <span class="quiet"> {siteName(one.site)}</span>}
                </th>
                <td class="num">{one.value === null ? "not measured" : amount(one.value)}</td>
                <td class="quiet">{one.should}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <ul class="limits">
        {found.limits.map((text) => (
          <li key={text}>{text}</li>
        ))}
      </ul>
    </section>
  );
}

function Opened({ found }: { found: Audit }) {
  const start = found.off.length ? found.off.map(keyOf) : [];
  const [off, setOff] = useState<Set<string>>(new Set(start));
  const parts = useMemo(() => found.rows.filter((row) => off.has(keyOf(row))).map(({ site, id }) => ({ site, id })), [found, off]);
  const turn = (key: string) => setOff((was) => new Set(was.has(key) ? [...was].filter((one) => one !== key) : [...was, key]));
  const alarms = found.rows.filter((row) => row.alarm).map(keyOf);
  return (
    <div class="wrap page">
      <p class="eyebrow">
        {found.model} · {found.sites.length > 3 ? count(found.sites.length, "layer") : found.sites.join(", ")} · {count(found.pictures, "picture")} of {found.data}
      </p>
      <h1 tabIndex={-1}>Right for the wrong reason?</h1>
      <p class="lede audit-answer">{found.answer}</p>
      <div class="audit">
        <section aria-label="Suspicious parts">
          <h2>
            {count(found.alarms, "alarm")} in {count(found.parts, "part")}
          </h2>
          <p class="sentence">A part is a concept that the model forms. Bright places are where it answers, in the pictures where it speaks loudest. Ticked parts are switched off.</p>
          <p class="actions">
            <button class="button small" disabled={!alarms.length} onClick={() => setOff(new Set(alarms))}>
              All alarms
            </button>
            {start.length > 0 && start.length !== alarms.length && (
              <button class="button small" onClick={() => setOff(new Set(start))}>
                As the audit chose ({start.length})
              </button>
            )}
            <button class="button small" disabled={!off.size} onClick={() => setOff(new Set())}>
              None
            </button>
          </p>
          <Suspects found={found} off={off} turn={turn} />
        </section>
        <section aria-label="Before and after">
          <Result found={found} parts={parts} />
        </section>
      </div>
      <Trust found={found} />
    </div>
  );
}

export function AuditPage() {
  const [got, set] = useState<Audit | Error | null>(null);
  const there = live.value?.audit ?? false;
  useEffect(() => {
    if (there) audit().then(set, set);
  }, [there]);
  if (!there)
    return (
      <Empty title="No audit is open here">
        <p>
          Make one with <code>vitreous audit MODEL DATA --out OUT</code> and open it with <code>vitreous explore RUN --audit OUT</code>.
        </p>
      </Empty>
    );
  if (got === null) return <Loading what="the audit" />;
  if (got instanceof Error) return <Failed error={got} what="the audit" />;
  return <Opened found={got} />;
}
