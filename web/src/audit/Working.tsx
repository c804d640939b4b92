import { useEffect, useState } from "preact/hooks";

import { switchProgress } from "../api";

const EVERY = 250;

/** How far the model is with the audited pictures; nothing while that is not known. */
export function Working() {
  const [at, set] = useState<{ loaded: boolean; done: number; total: number } | null>(null);
  useEffect(() => {
    let alive = true;
    const look = () => switchProgress().then((now) => alive && set(now), () => undefined); // the switch itself says what went wrong
    const timer = setInterval(look, EVERY);
    return () => {
      alive = false;
      clearInterval(timer);
    };
  }, []);
  if (!at) return null;
  if (!at.loaded) return <p class="quiet working">The model is being loaded; this happens once.</p>;
  return (
    <p class="quiet working">
      <progress max={at.total || 1} value={at.done} aria-label="Pictures that the model has decided again" />{" "}
      <span class="num">
        {at.done} of {at.total} pictures
      </span>
    </p>
  );
}
