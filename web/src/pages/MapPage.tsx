import { useEffect, useMemo, useState } from "preact/hooks";

import { count } from "../format";
import { choices, COLOURS, painted, type ColourBy } from "../map/colours";
import { NONE, pathOf, picturesOf, ways, type Chosen, type Cloud } from "../map/cloud";
import { Plot, type Line } from "../map/Plot";
import { loadCloud } from "../map/load";
import type { Create } from "../map/scatter";
import { Empty, Failed, Loading } from "../parts/States";
import { Box, Frame, Heat, pictureName } from "../parts/Thumb";
import { to } from "../route";
import { load } from "../source";
import { address, live, patchOf, tokenName } from "../state";
import type { Index } from "../types";

const LISTED = 60;
const CHOSEN = "#e0a100";

type Paths = "point" | "groups" | "off";

function useCloud() {
  const [got, set] = useState<{ cloud: Cloud; create: Create } | Error | null>(null);
  useEffect(() => {
    let alive = true;
    Promise.all([loadCloud(live.value !== null), load<Create>("app/map")]).then(
      ([cloud, create]) => alive && set({ cloud, create }),
      (error: Error) => alive && set(error),
    );
    return () => {
      alive = false;
    };
  }, []);
  return got;
}

function gpu(): boolean {
  try {
    return document.createElement("canvas").getContext("webgl") !== null;
  } catch {
    return false;
  }
}

function Tip({ cloud, index, i, x, y }: { cloud: Cloud; index: Index; i: number; x: number; y: number }) {
  const model = index.models[cloud.model[i] ?? 0];
  const token = cloud.token[i] ?? 0;
  const concept = cloud.concepts[cloud.concept[i] ?? NONE]?.name;
  const label = cloud.labels[cloud.label?.[i] ?? NONE];
  return (
    <div class="tip" style={{ left: `${x}px`, top: `${y}px` }}>
      <Frame picture={cloud.picture[i] ?? 0} model={model} label={pictureName(cloud.picture[i] ?? 0)} sharp>
        <Box patch={patchOf(token, model)} model={model} />
      </Frame>
      <p>
        <strong class="cut">{pictureName(cloud.picture[i] ?? 0)}</strong>
        <span>{tokenName(token, model)}</span>
        <span class="cut">
          {model?.name} · {cloud.layers[cloud.layer[i] ?? 0]}
        </span>
        {(concept || label) && <span class="cut">{[concept, label].filter(Boolean).join(" · ")}</span>}
      </p>
    </div>
  );
}

function Chosens({ cloud, index, points }: { cloud: Cloud; index: Index; points: number[] }) {
  const pictures = useMemo(() => picturesOf(cloud, points), [cloud, points]);
  return (
    <>
      <p role="status">
        {count(points.length, "patch", "patches")} in {count(pictures.length, "picture")}
      </p>
      <ul class="chosen">
        {pictures.slice(0, LISTED).map((one) => (
          <li key={one.picture}>
            <a href={to("picture", [one.picture])} title={`${pictureName(one.picture)}: ${count(one.count, "patch", "patches")}`}>
              <Marked index={index} one={one} />
            </a>
          </li>
        ))}
      </ul>
      {pictures.length > LISTED && <p class="quiet">and {count(pictures.length - LISTED, "more picture")}</p>}
    </>
  );
}

function Marked({ index, one }: { index: Index; one: Chosen }) {
  const model = index.models[one.model];
  const bytes = useMemo(() => {
    const grid = new Uint8Array((model?.rows ?? 1) * (model?.columns ?? 1));
    for (const token of one.tokens.keys()) {
      const patch = patchOf(token, model);
      if (patch !== null) grid[patch] = 255;
    }
    return grid;
  }, [one]);
  return (
    <Frame picture={one.picture} model={model} label={pictureName(one.picture)}>
      {model && <Heat bytes={bytes} rows={model.rows} columns={model.columns} />}
    </Frame>
  );
}

interface PanelProps {
  index: Index;
  cloud: Cloud;
  by: ColourBy;
  setBy: (by: ColourBy) => void;
  layer: string;
  setLayer: (layer: string) => void;
  model: string;
  setModel: (model: string) => void;
  paths: Paths;
  setPaths: (paths: Paths) => void;
  legend: { name: string; colour: string }[];
  pick: (group: number) => void;
}

function Choice<T extends string>({ name, value, options, set }: { name: string; value: T; options: [T, string][]; set: (value: T) => void }) {
  return (
    <label>
      <span>{name}</span>
      <select value={value} onChange={(event) => set(event.currentTarget.value as T)}>
        {options.map(([key, title]) => (
          <option key={key} value={key}>
            {title}
          </option>
        ))}
      </select>
    </label>
  );
}

function Panel({ index, cloud, by, setBy, layer, setLayer, model, setModel, paths, setPaths, legend, pick }: PanelProps) {
  const grouped = by === "concept" || by === "label";
  return (
    <>
      <div class="map-choices">
        <Choice name="Colour" value={by} options={choices(cloud, index).map((key) => [key, COLOURS[key]])} set={setBy} />
        <Choice name="Layer" value={layer} options={[["", "All"], ...cloud.layers.map((name, k): [string, string] => [String(k), name])]} set={setLayer} />
        {index.models.length > 1 && <Choice name="Model" value={model} options={[["", "All"], ...index.models.map((m, k): [string, string] => [String(k), m.name])]} set={setModel} />}
        <Choice name="Trajectories" value={paths} options={[["point", "Of one patch"], ["groups", "Of concepts"], ["off", "None"]]} set={setPaths} />
      </div>
      {legend.length > 0 && (
        <ul class="map-legend" aria-label={`Colours: ${COLOURS[by]}`}>
          {legend.map((item, k) => (
            <li key={k}>
              <button onClick={() => pick(k)} title={`Choose all patches of ${item.name}`}>
                <i style={{ background: item.colour }} aria-hidden="true" />
                <span class="cut">{item.name}</span>
              </button>
            </li>
          ))}
        </ul>
      )}
      {!grouped && by === "space" && <p class="quiet">Like colour, like meaning: the colours are the first directions of the space itself.</p>}
    </>
  );
}

function indices(length: number, keep: (i: number) => boolean): number[] {
  const out: number[] = [];
  for (let i = 0; i < length; i++) if (keep(i)) out.push(i);
  return out;
}

function groupOf(cloud: Cloud, by: ColourBy): Uint8Array {
  return by === "layer" ? cloud.layer : by === "model" ? cloud.model : by === "label" && cloud.label ? cloud.label : cloud.concept;
}

function linesOf(cloud: Cloud, paths: Paths, over: number | null, colours: string[]): Line[] {
  if (paths === "point" && over !== null) {
    const points = pathOf(cloud, over);
    return [{ x: points.map((i) => cloud.x[i] ?? 0), y: points.map((i) => cloud.y[i] ?? 0), colour: CHOSEN }];
  }
  if (paths === "groups") return ways(cloud, cloud.concept, cloud.concepts.length).map((way) => ({ x: way.x, y: way.y, colour: colours[way.group] ?? CHOSEN }));
  return [];
}

function Atlas({ index, cloud, create }: { index: Index; cloud: Cloud; create: Create }) {
  const asked = address.value.query.get("picture");
  const [by, setBy] = useState<ColourBy>("space");
  const [layer, setLayer] = useState("");
  const [model, setModel] = useState("");
  const [paths, setPaths] = useState<Paths>("point");
  const [lasso, setLasso] = useState(false);
  const [over, setOver] = useState<{ i: number; x: number; y: number } | null>(null);
  const [chosen, setChosen] = useState<number[]>([]);
  const colours = useMemo(() => painted(cloud, index, by), [cloud, by]);
  const hues = useMemo(() => (paths === "groups" ? painted(cloud, index, "concept").palette : []), [cloud, paths]);
  const shown = useMemo(() => {
    if (!layer && !model) return null;
    return Uint32Array.from(indices(cloud.count, (i) => (!layer || cloud.layer[i] === Number(layer)) && (!model || cloud.model[i] === Number(model))));
  }, [cloud, layer, model]);
  const lines = useMemo(() => linesOf(cloud, paths, over?.i ?? null, hues), [cloud, paths, over?.i, hues]);
  useEffect(() => {
    if (asked !== null) setChosen(indices(cloud.count, (i) => cloud.picture[i] === Number(asked)));
  }, [asked]);
  const pick = (group: number) => {
    const groups = groupOf(cloud, by);
    setChosen(indices(cloud.count, (i) => groups[i] === group));
  };
  const choose = (points: number[]) => {
    setChosen([...points]);
    setLasso(false);
  };
  return (
    <div class="atlas">
      <div class="atlas-plot">
        <Plot
          create={create}
          cloud={cloud}
          painted={colours}
          shown={shown}
          chosen={chosen}
          lasso={lasso}
          lines={lines}
          onOver={(i, x, y) => setOver(i === null ? null : { i, x, y })}
          onChoose={choose}
        />
        <div class="plot-tools">
          <button class="button small" aria-pressed={lasso} onClick={() => setLasso(!lasso)}>
            Lasso
          </button>
          {chosen.length > 0 && (
            <button class="button small" onClick={() => setChosen([])}>
              Let go
            </button>
          )}
          <span class="quiet">{count(shown ? shown.length : cloud.count, "patch", "patches")}</span>
        </div>
        {over && <Tip cloud={cloud} index={index} {...over} />}
      </div>
      <aside class="atlas-side">
        <Panel {...{ index, cloud, by, setBy, layer, setLayer, model, setModel, paths, setPaths, pick }} legend={colours.legend} />
        {chosen.length > 0 ? <Chosens cloud={cloud} index={index} points={chosen} /> : <p class="quiet">Draw a lasso (the button, or Shift and drag) to see which pictures lie there.</p>}
      </aside>
    </div>
  );
}

export function MapPage({ index }: { index: Index }) {
  const there = index.parts.align !== false;
  return (
    <div class="wrap page wide">
      <h1 tabIndex={-1}>Universal space</h1>
      <p class="lede">Every point is a patch of a picture at a layer of a model. Near means alike.</p>
      {there ? <Opened index={index} /> : <Empty title="This run has no universal space"><p>{index.lenses.find((lens) => lens.name === "align")?.missing}</p></Empty>}
    </div>
  );
}

function Opened({ index }: { index: Index }) {
  const got = useCloud();
  if (!gpu())
    return (
      <Empty title="This browser draws no WebGL">
        <p>The map needs it. The page of the lens “align” shows the same space as pictures.</p>
      </Empty>
    );
  if (got === null) return <Loading what="the map" />;
  if (got instanceof Error) return <Failed error={got} what="the map" />;
  if (got.cloud.count === 0) return <Empty title="The space holds no points" />;
  return <Atlas index={index} cloud={got.cloud} create={got.create} />;
}
