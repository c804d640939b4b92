import { amount, count, unitName } from "../format";
import { toUnit } from "../route";
import { index, notes } from "../state";
import type { Units } from "../types";
import { Meter } from "./Meter";
import { Frame } from "./Thumb";

function known(units: Units, i: number) {
  const id = units.id[i] ?? "";
  const model = index.value?.models[units.model[i] ?? 0];
  const given = notes.value.get(id)?.name ?? null;
  return { id, model, given, name: given ?? units.label[i] ?? null, ms: units.ms[i] ?? null, control: units.control[i] ?? null };
}

/** A unit in a few square centimetres: strongest picture, name, score beside its control. */
export function UnitCell({ units, i }: { units: Units; i: number }) {
  const { id, model, given, name, ms, control } = known(units, i);
  const subs = units.subunits[i] ?? 0;
  return (
    <a class={`unit-cell s${(model?.series ?? 0) % 7}`} href={toUnit(id)}>
      <Frame picture={units.top[i] ?? 0} heat={units.heat[i]} model={model} label="">
        {units.dead[i] ? <span class="flag">dead</span> : subs > 1 ? <span class="flag">{count(subs, "sub-unit")}</span> : null}
      </Frame>
      <strong class={name ? "" : "unnamed"} title={name ?? unitName(id)}>
        {name ?? unitName(id)}
        {given && <span class="by-hand"> ✎</span>}
      </strong>
      <span class="where">
        <i class="dot" aria-hidden="true" />
        <span class="cut">{model?.name}</span>
        <span class="num">
          block {units.block[i]}
          {name && ` · ${units.unit[i]}`}
        </span>
      </span>
      {ms !== null ? <Meter value={ms} control={control} series={model?.series} /> : <span class="meter none" aria-hidden="true" />}
    </a>
  );
}

export function UnitRow({ units, i }: { units: Units; i: number }) {
  const { id, model, name, ms, control } = known(units, i);
  return (
    <a class={`unit-row s${(model?.series ?? 0) % 7}`} href={toUnit(id)}>
      <Frame picture={units.top[i] ?? 0} heat={units.heat[i]} model={model} label="" />
      <span class="unit-row-name">
        <strong class={name ? "" : "unnamed"}>{name ?? unitName(id)}</strong>
        <span class="quiet cut">{(units.sublabels[i] ?? []).filter(Boolean).join(" · ")}</span>
      </span>
      <span class="where">
        <i class="dot" aria-hidden="true" />
        <span class="cut">{model?.name}</span>
      </span>
      <span class="num cut">
        block {units.block[i]} · {units.unit[i]}
      </span>
      <span class="unit-row-ms">
        {ms !== null ? <Meter value={ms} control={control} series={model?.series} /> : null}
        <span class="num">{amount(ms)}</span>
      </span>
      <span class="num">{units.dead[i] ? "dead" : count(units.subunits[i] ?? 0, "sub-unit")}</span>
    </a>
  );
}
