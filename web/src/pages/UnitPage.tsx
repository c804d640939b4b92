import { useEffect } from "preact/hooks";

import { Head } from "../card/Head";
import { Lacking, Section } from "../card/Section";
import { Space } from "../card/Space";
import { Structure } from "../card/Structure";
import { SplitFacts, SubUnits } from "../card/SubUnits";
import { Answers } from "../live/Answers";
import { amount, unitName } from "../format";
import { Code } from "../parts/Copy";
import { Empty, Failed, Loading } from "../parts/States";
import { Tiles } from "../parts/Thumb";
import { toUnit } from "../route";
import { useData } from "../source";
import { live, modelOf, notes, partsOf } from "../state";
import type { Card, Units } from "../types";
import { listed } from "./UnitsPage";

function order(units: Units | null): string[] {
  return listed.ids.length ? listed.ids : (units?.id ?? []);
}

function Steps({ id }: { id: string }) {
  const units = useData<Units>("units");
  const ids = order(units.state === "ready" ? units.value : null);
  const at = ids.indexOf(id);
  const before = at > 0 ? ids[at - 1] : undefined;
  const after = at >= 0 ? ids[at + 1] : undefined;
  useEffect(() => {
    const keys = (event: KeyboardEvent) => {
      if ((event.target as HTMLElement).closest("input, textarea, select, [role=application]") || event.altKey || event.metaKey || event.ctrlKey) return;
      const there = event.key === "ArrowLeft" ? before : event.key === "ArrowRight" ? after : undefined;
      if (there) location.hash = toUnit(there);
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, [before, after]);
  return (
    <nav class="crumbs" aria-label="Where you are">
      <a href="#/units">Units</a>
      <span class="crumb-steps">
        {at >= 0 && (
          <span class="quiet">
            {at + 1} of {ids.length}
          </span>
        )}
        {before && <a rel="prev" href={toUnit(before)}>Previous</a>}
        {after && <a rel="next" href={toUnit(after)}>Next</a>}
      </span>
    </nav>
  );
}

function contents(card: Card): [string, string][] {
  const there = (lens: string, has: unknown) => Boolean(has) || card.missing.some((item) => item.lens === lens);
  const all: [string, string, boolean][] = [
    ["pictures", "Pictures", card.rows.length > 0],
    ["disentangle", "Sub-units", there("disentangle", card.disentangle)],
    ["structure", "Structure", there("structure", card.structure)],
    ["align", "Universal space", there("align", card.align)],
    ["tokens", "Tokens", there("tokens", card.tokens)],
    ["similar", "Similar", card.similar.length > 0],
    ["evidence", "Evidence", card.evidence.length > 0],
    ["python", "Python", true],
  ];
  return all.filter(([, , has]) => has).map(([name, title]) => [name, title]);
}

function Contents({ card }: { card: Card }) {
  const go = (name: string) => {
    const there = document.getElementById(`card-${name}`);
    there?.scrollIntoView({ behavior: "smooth" });
    there?.focus({ preventScroll: true });
  };
  return (
    <nav class="toc sticky" aria-label="On this card">
      <ul>
        {contents(card).map(([name, title]) => (
          <li key={name}>
            <button onClick={() => go(name)}>{title}</button>
          </li>
        ))}
      </ul>
    </nav>
  );
}

function Rows({ card }: { card: Card }) {
  return (
    <>
      {card.rows.map((row, i) => (
        <div key={row.title} class="quantile">
          <h3>
            {row.title}
            {row.low !== null && row.high !== null && (
              <span class="quiet num">
                {" "}
                {amount(row.low)} to {amount(row.high)}
              </span>
            )}
          </h3>
          {row.tiles.length ? <Tiles tiles={row.tiles} model={card.model} size={i === 0 ? "l" : "s"} /> : <p class="quiet">No picture lies in this range.</p>}
        </div>
      ))}
    </>
  );
}

function Similar({ card }: { card: Card }) {
  return (
    <ul class="similar">
      {card.similar.map((other) => {
        const { model, site } = partsOf(other.id);
        return (
          <li key={other.id} class={`s${(modelOf(model)?.series ?? 6) % 7}`}>
            <a href={toUnit(other.id)}>
              <strong class="cut">{notes.value.get(other.id)?.name ?? other.label ?? unitName(other.id)}</strong>
              <span class="quiet cut">
                <i class="dot" aria-hidden="true" />
                {model} · {site} · {partsOf(other.id).unit}
              </span>
            </a>
            <span class="num">r {amount(other.r)}</span>
          </li>
        );
      })}
    </ul>
  );
}

function Body({ card, sub }: { card: Card; sub: number | null }) {
  const series = modelOf(card.model)?.series;
  const of = (lens: string) => card.evidence.filter((item) => item.lens === lens);
  const lenses = ["disentangle", "structure", "align", "tokens"];
  const general = card.evidence.filter((item) => !item.lens || !lenses.includes(item.lens));
  return (
    <>
      {card.rows.length > 0 && (
        <Section name="pictures" title="What it answers to" sentence="Each patch is as bright as the unit's answer there. The lower rows show what it answers to less, so that the top does not tell the whole story." proofs={general} series={series}>
          <Rows card={card} />
          {live.value && <Answers id={card.id} model={card.model} />}
        </Section>
      )}
      {card.disentangle ? (
        <Section name="disentangle" title="Its sub-units" sentence={card.disentangle.sentence} proofs={of("disentangle")} series={series} beside={<SplitFacts card={card} />}>
          <SubUnits card={card} sub={sub} />
        </Section>
      ) : (
        <Lacking card={card} lens="disentangle" title="Its sub-units" />
      )}
      {card.structure ? (
        <Section name="structure" title="Its cluster over the layers" sentence={card.structure.sentence} proofs={of("structure")} series={series}>
          <Structure card={card} />
        </Section>
      ) : (
        <Lacking card={card} lens="structure" title="Its cluster over the layers" />
      )}
      {card.align ? (
        <Section name="align" title="Where it lies in the universal space" sentence={card.align.sentence} proofs={of("align")} series={series}>
          <Space card={card} />
        </Section>
      ) : (
        <Lacking card={card} lens="align" title="Where it lies in the universal space" />
      )}
      {card.tokens ? (
        <Section name="tokens" title="The pixels behind its strongest tokens" sentence={card.tokens.sentence} proofs={of("tokens")} series={series}>
          <Tiles tiles={card.tokens.tiles} model={card.model} frame size="m" />
        </Section>
      ) : (
        <Lacking card={card} lens="tokens" title="The pixels behind its strongest tokens" />
      )}
      {card.similar.length > 0 && (
        <Section name="similar" title="Units that answer alike" sentence="Over all patches of all pictures; r is the correlation of the answers.">
          <Similar card={card} />
        </Section>
      )}
      {card.evidence.length > 0 && (
        <Section name="evidence" title="All the evidence" sentence="Each claim of this card with the number behind it and what the same measure gives for a control." >
          <Table card={card} />
        </Section>
      )}
      <Section name="python" title="The same in Python">
        <Code code={card.code} />
      </Section>
    </>
  );
}

function Table({ card }: { card: Card }) {
  return (
    <div class="panel scroll">
      <table class="evidence">
        <thead>
          <tr>
            <th scope="col">Claim</th>
            <th scope="col">Lens</th>
            <th scope="col">Value</th>
            <th scope="col">Control</th>
            <th scope="col">95 %</th>
          </tr>
        </thead>
        <tbody>
          {card.evidence.map((item, i) => (
            <tr key={i}>
              <th scope="row">
                {item.claim}
                {item.note && <span class="quiet">{item.note}</span>}
              </th>
              <td data-label="Lens">{item.lens ?? "–"}</td>
              <td data-label="Value">{amount(item.value)}</td>
              <td data-label="Control">{amount(item.control)}</td>
              <td data-label="95 %">{item.low === null || item.high === null ? "–" : `${amount(item.low)} to ${amount(item.high)}`}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function UnitPage({ id, sub }: { id: string; sub: number | null }) {
  const card = useData<Card>(`unit/${id}`);
  const units = useData<Units>("units");
  if (card.state === "loading") return <Loading what="the card" />;
  if (card.state === "failed") {
    const known = units.state !== "ready" || units.value.id.includes(id);
    if (known) return <Failed error={card.error} what={`the card of ${id}`} />;
    return (
      <Empty title="This report has no such unit">
        <p class="long">
          <code>{id}</code> is not among the {units.value.id.length.toLocaleString("en")} units of this report. <a href="#/units">Search them</a>
        </p>
      </Empty>
    );
  }
  return (
    <article class="wrap page card" key={id}>
      <Steps id={id} />
      <Head card={card.value} key={id} />
      <Contents card={card.value} />
      <Body card={card.value} sub={sub} />
    </article>
  );
}
