import { useEffect, useMemo, useState } from "preact/hooks";

import { steer, type PictureId, type Steered } from "../api";
import { bytesOf } from "../bytes";
import { percent, unitName } from "../format";
import { Empty, When } from "../parts/States";
import { Heat, Tiles } from "../parts/Thumb";
import { useData } from "../source";
import { notes } from "../state";
import type { Card, Model, SubUnit, Units } from "../types";

const MOST = 10;
const SHOWN = 8; // classes: those that change most

/** Asks again a moment after the last slider moved; an answer that comes too late is dropped. */
function useSteered(model: Model, picture: PictureId, block: number, factors: Map<string, number>, prefix: boolean) {
  const [got, set] = useState<{ answer: Steered | null; error: Error | null; busy: boolean }>({ answer: null, error: null, busy: false });
  const asked = JSON.stringify([...factors]);
  useEffect(() => {
    const stop = new AbortController();
    const subunits = [...factors].map(([id, factor]) => ({ id, factor }));
    if (!subunits.length) {
      set({ answer: null, error: null, busy: false });
      return;
    }
    const soon = setTimeout(() => {
      set((was) => ({ ...was, busy: true }));
      steer({ model: model.name, picture, block, subunits, prefix }, stop.signal).then(
        (answer) => set({ answer, error: null, busy: false }),
        (error: Error) => error.name !== "AbortError" && set({ answer: null, error, busy: false }),
      );
    }, 120);
    return () => {
      clearTimeout(soon);
      stop.abort();
    };
  }, [model.name, picture, block, asked, prefix]);
  return got;
}

const fine = (share: number) => `${(100 * share).toFixed(1)} %`;

function Classes({ answer }: { answer: Steered }) {
  const { classes, before, after } = answer;
  if (!classes || !before || !after) return <p class="quiet">This model has no classes; the maps show what changes.</p>;
  const order = classes
    .map((name, i) => ({ name, before: before[i] ?? 0, after: after[i] ?? 0 }))
    .sort((a, b) => Math.abs(b.after - b.before) - Math.abs(a.after - a.before) || b.after - a.after)
    .slice(0, SHOWN)
    .sort((a, b) => b.after - a.after);
  return (
    <ul class="classes" aria-label="Class probabilities before and after">
      {order.map((row) => (
        <li key={row.name}>
          <span class="cut">{row.name}</span>
          <span class="pair" role="img" aria-label={`${row.name}: ${percent(row.before)} before, ${percent(row.after)} after`}>
            <i class="was" style={{ width: `${100 * row.before}%` }} />
            <i class="is" style={{ width: `${100 * row.after}%` }} />
          </span>
          <span class="num">
            {fine(row.before)} → <b>{fine(row.after)}</b>
          </span>
        </li>
      ))}
    </ul>
  );
}

function Pair({ answer, model, src }: { answer: Steered; model: Model; src: string }) {
  return (
    <div class="pair-maps">
      {(["heat_before", "heat_after"] as const).map((side) => (
        <figure key={side} class="tile">
          <span class="frame">
            <img class="sharp" src={src} alt={side === "heat_before" ? "Map before" : "Map after"} />
            <Side text={answer[side]} model={model} />
          </span>
          <figcaption>{side === "heat_before" ? "before" : "after"}</figcaption>
        </figure>
      ))}
    </div>
  );
}

function Side({ text, model }: { text: string | null; model: Model }) {
  const bytes = useMemo(() => (text ? bytesOf(text) : null), [text]);
  return bytes ? <Heat bytes={bytes} rows={model.rows} columns={model.columns} /> : null;
}

function Slider({ sub, card, factor, set }: { sub: SubUnit; card: Card; factor: number; set: (v: number) => void }) {
  const label = notes.value.get(sub.id)?.name ?? (typeof sub.label === "string" ? sub.label : sub.label?.text);
  return (
    <li class="steer-sub">
      <Tiles tiles={sub.tiles.slice(0, 3).map((tile) => ({ ...tile, value: null }))} model={card.model} size="s" />
      <label class="slider">
        <span>
          <span class="cut">{label ? `${label} · ${unitName(sub.id)}` : unitName(sub.id)}</span> <b class="value">× {factor.toFixed(1)}</b>
        </span>
        <input type="range" min={0} max={MOST} step={0.1} value={factor} onInput={(event) => set(Number(event.currentTarget.value))} />
      </label>
    </li>
  );
}

function Sliders({ card, model, picture, src }: { card: Card; model: Model; picture: PictureId; src: string }) {
  const [factors, setFactors] = useState<Map<string, number>>(new Map());
  const [prefix, setPrefix] = useState(true);
  const subs = (card.disentangle?.subunits ?? []).filter((sub) => !sub.dead);
  const got = useSteered(model, picture, card.block, factors, prefix);
  if (!subs.length) return <Empty title="This unit has no living sub-units to steer" />;
  const turn = (id: string, factor: number) => setFactors((was) => new Map([...was].filter(([other]) => other !== id).concat(factor === 1 ? [] : [[id, factor]])));
  return (
    <>
      <div class="steer-result" aria-busy={got.busy} aria-live="polite">
        {got.error && <p class="warn">{got.error.message}</p>}
        {got.answer ? (
          <>
            <Classes answer={got.answer} />
            <Pair answer={got.answer} model={model} src={src} />
            <p class="quiet">
              The maps are {got.answer.heat_of === "class" ? "those of the class token" : "of all patches together"}; the output moved by {percent(got.answer.changed)} of its length.{" "}
              <button class="button small" onClick={() => setFactors(new Map())}>
                Back to × 1
              </button>
            </p>
          </>
        ) : (
          !got.error && <p class="quiet">Move a slider: 0 takes the sub-unit out, 1 leaves it as it is, {MOST} makes it ten times as strong.</p>
        )}
      </div>
      <label class="check">
        <input type="checkbox" checked={prefix} onChange={(event) => setPrefix(event.currentTarget.checked)} />
        Also in class tokens and registers
      </label>
      <ul class="steer-subs">
        {subs.map((sub) => (
          <Slider key={sub.id} sub={sub} card={card} factor={factors.get(sub.id) ?? 1} set={(factor) => turn(sub.id, factor)} />
        ))}
      </ul>
    </>
  );
}

export function Steer({ model, picture, src, unit, setUnit }: { model: Model; picture: PictureId; src: string; unit: string | null; setUnit: (id: string) => void }) {
  const units = useData<Units>("units");
  const ids = useMemo(() => {
    if (units.state !== "ready") return [];
    const all = units.value;
    return all.id.map((id, i) => ({ id, i })).filter(({ id, i }) => id.startsWith(`${model.name}/`) && (all.subunits[i] ?? 0) > 0 && !all.dead[i]);
  }, [units, model.name]);
  const chosen = unit && unit.startsWith(`${model.name}/`) ? unit : (ids[0]?.id ?? null);
  const card = useData<Card>(chosen ? `unit/${chosen}` : null);
  if (units.state === "ready" && !ids.length) return <Empty title={`No unit of ${model.name} has been split into sub-units`} />;
  const titled = (id: string, i: number) => {
    const name = notes.value.get(id)?.name ?? (units.state === "ready" ? units.value.label[i] : null);
    return `${id.slice(model.name.length + 1)}${name ? ` · ${name}` : ""}`;
  };
  return (
    <div class="steer">
      <label>
        <span>Unit</span>
        <select value={chosen ?? ""} onChange={(event) => setUnit(event.currentTarget.value)}>
          {ids.map(({ id, i }) => (
            <option key={id} value={id}>
              {titled(id, i)}
            </option>
          ))}
        </select>
      </label>
      {chosen && (
        <When loaded={card} what="the unit">
          {(value) => <Sliders key={chosen} card={value} model={model} picture={picture} src={src} />}
        </When>
      )}
    </div>
  );
}
