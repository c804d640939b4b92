import { useMemo } from "preact/hooks";

import { count } from "../format";
import { Grid } from "../parts/Grid";
import { Empty, When } from "../parts/States";
import { UnitCell, UnitRow } from "../parts/UnitCell";
import { to } from "../route";
import { find, ONLY, readAsked, SORTS, type Asked } from "../search";
import { useData } from "../source";
import { address, notes, unitsView } from "../state";
import type { Index, Units } from "../types";

/** The order in which units were last listed, for the card's "next" and "previous". */
export const listed: { ids: string[] } = { ids: [] };

function hashOf(asked: Asked): string {
  const only = asked.only.join(",");
  return to("units", [], { q: asked.q, model: asked.model, block: asked.block, only, sort: asked.sort === "evidence" ? null : asked.sort });
}

function ask(asked: Asked): void {
  history.replaceState(null, "", hashOf(asked));
  address.value = { ...address.value, query: new URLSearchParams(hashOf(asked).split("?")[1] ?? "") };
}

function Filters({ index, units, asked }: { index: Index; units: Units; asked: Asked }) {
  const blocks = useMemo(() => [...new Set(units.block)].sort((a, b) => a - b), [units]);
  const toggle = (name: string) => ask({ ...asked, only: asked.only.includes(name) ? asked.only.filter((n) => n !== name) : [...asked.only, name] });
  return (
    <div class="filters" role="group" aria-label="Filters">
      <label class="grow">
        <span>Words</span>
        <input type="search" value={asked.q} placeholder="label, sub-unit, id" onInput={(event) => ask({ ...asked, q: event.currentTarget.value })} />
      </label>
      {index.models.length > 1 && (
        <label>
          <span>Model</span>
          <select value={asked.model} onChange={(event) => ask({ ...asked, model: event.currentTarget.value })}>
            <option value="">All</option>
            {index.models.map((model) => (
              <option key={model.name} value={model.name}>
                {model.name}
              </option>
            ))}
          </select>
        </label>
      )}
      {blocks.length > 1 && (
        <label>
          <span>Block</span>
          <select value={asked.block} onChange={(event) => ask({ ...asked, block: event.currentTarget.value })}>
            <option value="">All</option>
            {blocks.map((block) => (
              <option key={block} value={String(block)}>
                {block}
              </option>
            ))}
          </select>
        </label>
      )}
      <label>
        <span>Order</span>
        <select value={asked.sort} onChange={(event) => ask({ ...asked, sort: event.currentTarget.value as Asked["sort"] })}>
          {Object.entries(SORTS).map(([name, title]) => (
            <option key={name} value={name}>
              {title}
            </option>
          ))}
        </select>
      </label>
      <div class="chips">
        {Object.entries(ONLY).map(([name, title]) => (
          <button key={name} class="chip" aria-pressed={asked.only.includes(name)} onClick={() => toggle(name)}>
            {title}
          </button>
        ))}
      </div>
    </div>
  );
}

function List({ units, found }: { units: Units; found: number[] }) {
  const grid = unitsView.value === "grid";
  if (!grid)
    return (
      <Grid key="table" count={found.length} least={0} height={(width) => (width < 620 ? 84 : 64)} label="Units" render={(k) => <UnitRow units={units} i={found[k] ?? 0} />} />
    );
  return (
    <Grid key="grid" count={found.length} least={innerWidth < 620 ? 140 : 168} gap={18} height={(width) => width + 78} label="Units" render={(k) => <UnitCell units={units} i={found[k] ?? 0} />} />
  );
}

function Found({ index, units }: { index: Index; units: Units }) {
  const query = address.value.query.toString();
  const asked = useMemo(() => readAsked(new URLSearchParams(query)), [query]);
  const found = useMemo(() => find(units, index.models.map((m) => m.name), notes.value, asked), [units, asked, notes.value]);
  listed.ids = found.map((i) => units.id[i] ?? "");
  if (!units.id.length)
    return (
      <Empty title="No unit has been examined">
        <p>
          Examine some with <code>vitreous examine MODEL --images FOLDER --out RUN</code>.
        </p>
      </Empty>
    );
  return (
    <>
      <Filters index={index} units={units} asked={asked} />
      <div class="listing">
        <p role="status">{found.length === units.id.length ? count(found.length, "unit") : `${found.length.toLocaleString("en")} of ${count(units.id.length, "unit")}`}</p>
        <div class="segmented" role="group" aria-label="View">
          {(["grid", "table"] as const).map((view) => (
            <button key={view} aria-pressed={unitsView.value === view} onClick={() => (unitsView.value = view)}>
              {view === "grid" ? "Pictures" : "Rows"}
            </button>
          ))}
        </div>
      </div>
      {found.length ? (
        <List units={units} found={found} />
      ) : (
        <Empty title="Nothing matches">
          <button class="button" onClick={() => ask({ q: "", model: "", block: "", only: [], sort: asked.sort })}>
            Clear the filters
          </button>
        </Empty>
      )}
    </>
  );
}

export function UnitsPage({ index }: { index: Index }) {
  const units = useData<Units>("units");
  return (
    <div class="wrap page">
      <h1 tabIndex={-1}>Units</h1>
      <When loaded={units} what="the index of units">
        {(value) => <Found index={index} units={value} />}
      </When>
    </div>
  );
}
