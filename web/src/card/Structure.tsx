import { useState } from "preact/hooks";

import { amount, count, unitName } from "../format";
import { toUnit } from "../route";
import { modelOf } from "../state";
import type { Card, Place } from "../types";

const HIGH = 132;
const STEP = 12;

/** How deep it lies; before the first block is -1. */
function levelOf(place: Place): number {
  return place.block ?? (typeof place.layer === "number" ? place.layer : -1);
}

function name(place: Place): string {
  const token = place.token === null ? "" : `, token ${place.token}`;
  return `${typeof place.layer === "number" ? `layer ${place.layer}` : place.layer}, channel ${place.channel}${token}`;
}

/** A cluster over depth: a column a layer, a dot a member, the anchor ringed. */
function Column({ structure, depth }: { structure: NonNullable<Card["structure"]>; depth: number }) {
  const same = (a: Place | null, b: Place) => a !== null && a.layer === b.layer && a.channel === b.channel && a.token === b.token;
  const mates = structure.mates.filter((mate) => !same(structure.anchor, mate));
  const members = [...(structure.anchor ? [structure.anchor] : []), ...mates];
  const layers = Math.max(depth, 1 + Math.max(0, ...members.map(levelOf)));
  const stacked = new Map<number, Place[]>();
  for (const place of members) stacked.set(levelOf(place), [...(stacked.get(levelOf(place)) ?? []), place]);
  const tallest = Math.max(1, ...[...stacked.values()].map((list) => list.length));
  const across = 640 / layers;
  const step = Math.min(STEP, (HIGH - 16) / tallest);
  return (
    <svg class="layers" viewBox={`0 0 640 ${HIGH + 26}`} role="img" aria-label={`${count(members.length, "member")} over ${layers} layers`}>
      {Array.from({ length: layers }, (_, layer) => {
        const x = across * (layer + 0.5);
        return (
          <g key={layer}>
            <rect class="lane" x={across * layer + 2} y={0} width={across - 4} height={HIGH} rx={6} />
            <text x={x} y={HIGH + 18} text-anchor="middle">
              {layer}
            </text>
            {(stacked.get(layer) ?? []).map((place, i) => (
              <g key={i}>
                {place === structure.anchor && <circle class="ring" cx={x} cy={HIGH - 11 - i * step} r={Math.min(9, step * 0.8)} />}
                <circle class={place === structure.anchor ? "member anchor" : "member"} cx={x} cy={HIGH - 11 - i * step} r={Math.min(4.6, step * 0.42)}>
                  <title>{name(place)}</title>
                </circle>
              </g>
            ))}
          </g>
        );
      })}
    </svg>
  );
}

export function Structure({ card }: { card: Card }) {
  const structure = card.structure;
  const [all, setAll] = useState(false);
  if (!structure || (structure.cluster === null && !structure.mates.length)) return null;
  const mates = all ? structure.mates : structure.mates.slice(0, 8);
  return (
    <div class={`panel structure ${structure.cluster === null ? "lonely" : ""}`}>
      {structure.cluster !== null && <div>
        <Column structure={structure} depth={modelOf(card.model)?.depth ?? 1} />
        <p class="quiet">
          Cluster {structure.cluster}, {count(structure.size, "member")}
          {structure.span && `, blocks ${structure.span[0]} to ${structure.span[1]}`}. A dot is a member, the ring its anchor
          {structure.anchor && ` (${name(structure.anchor)})`}.
          {structure.inefficient && " The same thing is held more than once in a layer."}
        </p>
      </div>}
      <div>
        <h3>{structure.cluster === null ? "The nearest places, none near enough" : "Nearest mates"}</h3>
        <ul class="mates">
          {mates.map((mate, i) => (
            <li key={i}>
              {mate.id ? <a href={toUnit(mate.id)}>{unitName(mate.id)}</a> : <span>channel {mate.channel}</span>}
              <span class="quiet">
                {levelOf(mate) < 0 ? mate.layer : `block ${levelOf(mate)}`}
                {mate.token !== null && ` · token ${mate.token}`}
              </span>
              <span class="num">{amount(mate.distance)}</span>
            </li>
          ))}
        </ul>
        {structure.mates.length > 8 && (
          <button class="button small" onClick={() => setAll(!all)}>
            {all ? "Show fewer" : `Show all ${structure.mates.length}`}
          </button>
        )}
      </div>
    </div>
  );
}
