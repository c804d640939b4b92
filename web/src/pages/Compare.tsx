import { useMemo, useState } from "preact/hooks";

import { amount, count, percent } from "../format";
import { Film } from "../live/Film";
import { MapLayer, Stage, useMaps } from "../live/Stage";
import type { PictureId } from "../api";
import { Empty, When } from "../parts/States";
import { UnitCell } from "../parts/UnitCell";
import { to } from "../route";
import { useData } from "../source";
import { live } from "../state";
import type { Index, Model, Units } from "../types";

interface Facts {
  units: number;
  dead: number;
  labelled: number;
  ms: number[];
  control: number[];
  subunits: number;
  best: Map<string, number>;
}

function factsOf(units: Units, model: number): Facts {
  const facts: Facts = { units: 0, dead: 0, labelled: 0, ms: [], control: [], subunits: 0, best: new Map() };
  for (let i = 0; i < units.id.length; i++) {
    if (units.model[i] !== model) continue;
    facts.units += 1;
    facts.dead += units.dead[i] ? 1 : 0;
    facts.subunits += units.subunits[i] ?? 0;
    const [ms, control, label] = [units.ms[i] ?? null, units.control[i] ?? null, units.label[i] ?? null];
    if (ms !== null) facts.ms.push(ms);
    if (control !== null) facts.control.push(control);
    if (label === null) continue;
    facts.labelled += 1;
    const other = facts.best.get(label);
    if (other === undefined || (units.score[i] ?? 0) > (units.score[other] ?? 0)) facts.best.set(label, i);
  }
  return facts;
}

function median(values: number[]): number | null {
  if (!values.length) return null;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor((sorted.length - 1) / 2)] ?? null;
}

/** How the scores of the units spread, with those of the control behind. */
function Spread({ facts, top }: { facts: Facts; top: number }) {
  const bins = 24;
  const tally = (values: number[]) => {
    const out = new Array<number>(bins).fill(0);
    for (const v of values) {
      const k = Math.min(bins - 1, Math.max(0, Math.floor((v / top) * bins)));
      out[k] = (out[k] ?? 0) + 1;
    }
    return out;
  };
  const [own, control] = [tally(facts.ms), tally(facts.control)];
  const most = Math.max(1, ...own, ...control);
  if (!facts.ms.length) return <p class="quiet">No scores in this run.</p>;
  return (
    <svg class="spread-chart" viewBox="0 0 480 128" role="img" aria-label={`Median score ${amount(median(facts.ms))}, control ${amount(median(facts.control))}`}>
      {control.map((n, k) => (
        <rect key={`c${k}`} class="bar" x={k * 20} width={18} y={106 - (100 * n) / most} height={(100 * n) / most} />
      ))}
      {own.map((n, k) => (
        <rect key={k} class="strong" x={k * 20 + 4} width={10} y={106 - (100 * n) / most} height={(100 * n) / most} />
      ))}
      <line class="axis" x1={0} x2={480} y1={106} y2={106} />
      <text x={0} y={124}>0</text>
      <text x={480} y={124} text-anchor="end">{amount(top)}</text>
    </svg>
  );
}

function Side({ model, facts, top }: { model: Model; facts: Facts; top: number }) {
  return (
    <section class={`panel side s${model.series % 7}`}>
      <h2>
        <i class="dot" aria-hidden="true" />
        {model.name}
      </h2>
      <p class="quiet">{model.about}</p>
      <dl class="facts">
        <div><dt>blocks</dt><dd>{model.depth}</dd></div>
        <div><dt>width</dt><dd>{model.width}</dd></div>
        <div><dt>units</dt><dd>{facts.units}</dd></div>
        <div><dt>dead</dt><dd>{percent(facts.units ? facts.dead / facts.units : 0)}</dd></div>
        <div><dt>labelled</dt><dd>{percent(facts.units ? facts.labelled / facts.units : 0)}</dd></div>
        <div><dt>sub-units a unit</dt><dd>{amount(facts.units ? facts.subunits / facts.units : 0)}</dd></div>
      </dl>
      <h3>Scores of its units (MS), control behind</h3>
      <Spread facts={facts} top={top} />
      <p class="quiet">
        Median {amount(median(facts.ms))}, control {amount(median(facts.control))}.
      </p>
    </section>
  );
}

function Shared({ units, a, b, left, right }: { units: Units; a: Facts; b: Facts; left: Model; right: Model }) {
  const both = [...a.best.keys()].filter((label) => b.best.has(label));
  const only = (facts: Facts, other: Facts) => [...facts.best.keys()].filter((label) => !other.best.has(label));
  const sum = (label: string) => (units.score[a.best.get(label) ?? 0] ?? 0) + (units.score[b.best.get(label) ?? 0] ?? 0);
  const [onlyA, onlyB] = [only(a, b), only(b, a)];
  if (!a.best.size && !b.best.size) return <Empty title="No labels to compare"><p>Labels need a model with a text tower; this run has none for these two.</p></Empty>;
  return (
    <section class="part">
      <h2>{both.length ? `${count(both.length, "label")} found in both` : "No label is found in both"}</h2>
      {both.length > 0 && <p class="sentence">For each label the unit of either model that carries it best.</p>}
      <ul class="twins">
        {both.sort((p, q) => sum(q) - sum(p)).slice(0, 24).map((label) => (
          <li key={label}>
            <UnitCell units={units} i={a.best.get(label) ?? 0} />
            <UnitCell units={units} i={b.best.get(label) ?? 0} />
          </li>
        ))}
      </ul>
      <div class="halves">
        {([[left, onlyA], [right, onlyB]] as const).map(([model, labels]) => (
          <div key={model.name} class={`s${model.series % 7}`}>
            <h3>Only in {model.name}</h3>
            <p class="chips">
              {labels.slice(0, 40).map((label) => (
                <a key={label} class="chip" href={to("units", [], { model: model.name, q: label })}>
                  {label}
                </a>
              ))}
              {!labels.length && <span class="quiet">none</span>}
            </p>
          </div>
        ))}
      </div>
    </section>
  );
}

function Half({ model, picture, place, setPlace }: { model: Model; picture: PictureId; place: [number, number] | null; setPlace: (place: [number, number] | null) => void }) {
  const [block, setBlock] = useState(model.depth - 1);
  const got = useMaps(model, picture, Math.min(block, model.depth - 1));
  const token = place && model.prefix.length + Math.floor(place[1] * model.rows) * model.columns + Math.floor(place[0] * model.columns);
  const turn = (t: number | null) => {
    const patch = t === null ? null : t - model.prefix.length;
    setPlace(patch === null || patch < 0 ? null : [((patch % model.columns) + 0.5) / model.columns, (Math.floor(patch / model.columns) + 0.5) / model.rows]);
  };
  return (
    <div class={`s${model.series % 7}`}>
      <h3>
        <i class="dot" aria-hidden="true" />
        {model.name}
      </h3>
      <Stage model={model} picture={picture} token={token} onToken={turn} busy={!got.maps && !got.error}>
        <MapLayer got={got} token={token} />
      </Stage>
      {got.error && <p class="warn">{got.error.message}</p>}
      <label class="slider">
        <span>
          Block <b class="value">{block}</b>
        </span>
        <input type="range" min={0} max={model.depth - 1} value={block} onInput={(event) => setBlock(Number(event.currentTarget.value))} />
      </label>
    </div>
  );
}

/** One picture in both models; the mouse is in the same place in both. */
function LivePair({ index, left, right }: { index: Index; left: Model; right: Model }) {
  const [picture, setPicture] = useState<PictureId>(0);
  const [place, setPlace] = useState<[number, number] | null>(null);
  return (
    <section class="part">
      <h2>The same patch in both</h2>
      <p class="sentence">Move over one picture: both show what their token at that place holds.</p>
      <div class="halves stages">
        {[left, right].map((model, k) => (
          <Half key={`${k} ${model.name}`} model={model} picture={picture} place={place} setPlace={setPlace} />
        ))}
      </div>
      <Film picture={picture} count={index.pictures.count} choose={setPicture} />
    </section>
  );
}

function Both({ index, units, left, right }: { index: Index; units: Units; left: Model; right: Model }) {
  const [a, b] = useMemo(() => [factsOf(units, index.models.indexOf(left)), factsOf(units, index.models.indexOf(right))] as const, [units, left, right]);
  const top = Math.max(1e-6, ...a.ms, ...b.ms, ...a.control, ...b.control);
  return (
    <>
      <div class="halves">
        <Side model={left} facts={a} top={top} />
        <Side model={right} facts={b} top={top} />
      </div>
      {live.value && <LivePair index={index} left={left} right={right} />}
      <Shared units={units} a={a} b={b} left={left} right={right} />
    </>
  );
}

export function Compare({ index, a, b }: { index: Index; a: string | null; b: string | null }) {
  const units = useData<Units>("units");
  const left = index.models.find((m) => m.name === a) ?? index.models[0];
  const right = index.models.find((m) => m.name === b) ?? index.models.find((m) => m !== left);
  if (!left || !right)
    return (
      <Empty title="There is one model in this run">
        <p>
          Examine two: <code>vitreous examine MODEL_A MODEL_B --images FOLDER --out RUN</code>.
        </p>
      </Empty>
    );
  const choice = (side: "a" | "b", now: Model, other: Model) => (
    <label>
      <span>{side === "a" ? "Left" : "Right"}</span>
      <select value={now.name} onChange={(event) => (location.hash = side === "a" ? to("compare", [event.currentTarget.value, other.name]) : to("compare", [other.name, event.currentTarget.value]))}>
        {index.models.map((model) => (
          <option key={model.name}>{model.name}</option>
        ))}
      </select>
    </label>
  );
  return (
    <div class="wrap page">
      <div class="live-head">
        <h1 tabIndex={-1}>Two models side by side</h1>
        {choice("a", left, right)}
        {choice("b", right, left)}
      </div>
      <When loaded={units} what="the index of units">
        {(value) => <Both index={index} units={value} left={left} right={right} />}
      </When>
    </div>
  );
}
