import { useState } from "preact/hooks";

import { auditPicture, type Audit, type Decision, type Switched } from "../api";

const FIRST = 24;
const KINDS = { all: "All", mended: "Right now", broken: "Wrong now", other: "Wrong both times" } as const;
type Kind = keyof typeof KINDS;
export type Side = "before" | "after";

function kindOf(one: Decision): Exclude<Kind, "all"> {
  if (one.after === one.true) return "mended";
  return one.before === one.true ? "broken" : "other";
}

function Changed({ one, found, side }: { one: Decision; found: Audit; side: Side }) {
  const says = found.classes[one[side]] ?? "";
  const right = one[side] === one.true;
  const was = `${one.name}: is ${found.classes[one.true]}; before, the model said ${found.classes[one.before]}, after ${found.classes[one.after]}`;
  return (
    <figure class={`tile decision ${right ? "right" : "wrong"}`} title={was}>
      <span class="frame">
        <img class="sharp" src={auditPicture(one.picture)} alt={was} loading="lazy" decoding="async" />
        <span class="flag">
          {right ? "✓" : "✗"} {says}
        </span>
      </span>
      <figcaption>is {found.classes[one.true]}</figcaption>
    </figure>
  );
}

/** Pictures of which the model now says something else; their verdicts follow the switch. */
export function Decisions({ found, answer, side }: { found: Audit; answer: Switched; side: Side }) {
  const [kind, setKind] = useState<Kind>("all");
  const [all, setAll] = useState(false);
  const counts = { all: answer.decisions.length, mended: 0, broken: 0, other: 0 };
  for (const one of answer.decisions) counts[kindOf(one)] += 1;
  const wanted = answer.decisions.filter((one) => kind === "all" || kindOf(one) === kind);
  const shown = all ? wanted : wanted.slice(0, FIRST);
  if (!answer.decisions.length) return <p class="quiet">{answer.parts ? "No decision changes." : "Nothing is switched off, so nothing changes."}</p>;
  return (
    <>
      <div class="chips" role="group" aria-label="Which decisions">
        {(Object.keys(KINDS) as Kind[])
          .filter((one) => counts[one] > 0)
          .map((one) => (
            <button key={one} class="chip" aria-pressed={kind === one} onClick={() => setKind(one)}>
              {KINDS[one]} {counts[one]}
            </button>
          ))}
      </div>
      <div class="tiles tiles-s decisions">
        {shown.map((one) => (
          <Changed key={one.picture} one={one} found={found} side={side} />
        ))}
      </div>
      {shown.length < wanted.length && (
        <button class="button small" onClick={() => setAll(true)}>
          All {wanted.length}
        </button>
      )}
      {answer.changed > answer.decisions.length && <p class="quiet">The first {answer.decisions.length} of {answer.changed} changed decisions.</p>}
    </>
  );
}
