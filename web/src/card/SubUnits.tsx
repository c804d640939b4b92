import { useEffect, useState } from "preact/hooks";

import { amount, count, percent, unitName } from "../format";
import { Meter } from "../parts/Meter";
import { Tiles } from "../parts/Thumb";
import { to, toUnit } from "../route";
import { live, modelOf, notes } from "../state";
import type { Card, SubUnit } from "../types";

const AT_ONCE = 12;

function textOf(label: SubUnit["label"]): string | null {
  return label === null ? null : typeof label === "string" ? label : label.text;
}

function Sub({ sub, card, on }: { sub: SubUnit; card: Card; on: boolean }) {
  const given = notes.value.get(sub.id)?.name ?? textOf(sub.label);
  return (
    <article class={`sub ${on ? "here" : ""} ${sub.dead ? "dead" : ""}`} id={`sub-${sub.id}`} tabIndex={-1}>
      <header>
        <h3>
          <a href={toUnit(sub.id)}>{unitName(sub.id)}</a>
        </h3>
        {given && (
          <p class="sub-label" title={given}>
            {given}
          </p>
        )}
      </header>
      {sub.dead ? <p class="quiet">Dead: it answers to nothing here.</p> : <Tiles tiles={sub.tiles.slice(0, 6)} model={card.model} size="s" />}
      {sub.ms !== null && !sub.dead && (
        <div class="sub-ms">
          <span>
            MS <strong>{amount(sub.ms)}</strong>
          </span>
          <span class="quiet">control {amount(sub.control)}</span>
          <Meter value={sub.ms} control={sub.control} series={modelOf(card.model)?.series} />
        </div>
      )}
      <p class="quiet">
        {count(sub.size, "patch", "patches")}
        {sub.inputs !== null && ` · ${percent(sub.inputs)} of its weights are its own`}
        {sub.duplicates.length > 0 && (
          <>
            {" · same as "}
            {sub.duplicates.slice(0, 3).map((id, i) => (
              <span key={id}>
                {i > 0 && ", "}
                <a href={toUnit(id)}>{unitName(id)}</a>
              </span>
            ))}
          </>
        )}
      </p>
    </article>
  );
}

export function SplitFacts({ card }: { card: Card }) {
  const parts = card.disentangle;
  if (!parts) return null;
  return (
    <dl class="facts">
      <div>
        <dt>sub-units, K</dt>
        <dd>{parts.k}</dd>
      </div>
      <div>
        <dt title="How far one group must lead the others to take a weight for itself">margin, ρ</dt>
        <dd>{amount(parts.rho)}</dd>
      </div>
      <div>
        <dt>share of noise</dt>
        <dd>{percent(parts.noise)}</dd>
      </div>
      {live.value && parts.k > 0 && (
        <div class="facts-action">
          <a class="button small" href={to("live", [], { tab: "steer", unit: card.id })}>
            Steer them
          </a>
        </div>
      )}
    </dl>
  );
}

/** Sub-units side by side: if one unit holds several things, here they come apart. */
export function SubUnits({ card, sub }: { card: Card; sub: number | null }) {
  const parts = card.disentangle;
  const [all, setAll] = useState(false);
  const wanted = sub === null ? null : `${card.id}.${sub}`;
  useEffect(() => {
    if (!wanted) return;
    setAll(true);
    requestAnimationFrame(() => document.getElementById(`sub-${wanted}`)?.scrollIntoView({ block: "center" }));
  }, [wanted]);
  if (!parts) return null;
  const shown = all ? parts.subunits : parts.subunits.slice(0, AT_ONCE);
  return (
    <>
      <div class={`subs ${parts.subunits.length === 1 ? "one" : ""}`}>
        {shown.map((part) => (
          <Sub key={part.id} sub={part} card={card} on={part.id === wanted} />
        ))}
      </div>
      {parts.subunits.length > AT_ONCE && (
        <p>
          <button class="button" onClick={() => setAll(!all)}>
            {all ? `Show the first ${AT_ONCE}` : `Show all ${parts.subunits.length} sub-units`}
          </button>
        </p>
      )}
    </>
  );
}
