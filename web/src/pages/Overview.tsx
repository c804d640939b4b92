import { unitName } from "../format";
import { Code } from "../parts/Copy";
import { Frame, TileView } from "../parts/Thumb";
import { UnitCell } from "../parts/UnitCell";
import { to, toUnit } from "../route";
import { find } from "../search";
import { useData } from "../source";
import { notes } from "../state";
import type { Index, Units } from "../types";

const BEST = 12;
const HERO = 9;

function clearest(index: Index, units: Units): number[] {
  const asked = { q: "", model: "", block: "", only: ["alive"], sort: "evidence" as const };
  return find(units, index.models.map((m) => m.name), notes.value, asked);
}

/** The clearest units light up what they answer to; until they are read, the pictures that the report chose. */
function HeroTiles({ index }: { index: Index }) {
  const units = useData<Units>("units");
  const best = units.state === "ready" ? clearest(index, units.value).slice(0, HERO) : [];
  if (units.state === "ready" && best.length === HERO)
    return (
      <div class="hero">
        {best.map((i) => {
          const name = units.value.label[i] ?? unitName(units.value.id[i] ?? "");
          return (
            <a key={i} href={toUnit(units.value.id[i] ?? "")} title={name}>
              <Frame picture={units.value.top[i] ?? 0} heat={units.value.heat[i]} model={index.models[units.value.model[i] ?? 0]} label={`Strongest picture of ${name}`} sharp />
            </a>
          );
        })}
      </div>
    );
  if (!index.overview.hero.length) return null;
  return (
    <div class="hero">
      {index.overview.hero.slice(0, HERO).map((tile, i) => (
        <TileView key={i} tile={{ ...tile, value: null, caption: undefined }} model={tile.model ?? index.models[0]?.name ?? ""} />
      ))}
    </div>
  );
}

function Hero({ index }: { index: Index }) {
  const { overview } = index;
  return (
    <section class="opening">
      <div class="wrap opening-row">
        <div>
          <p class="eyebrow">{index.models.map((m) => m.name).join(" · ")}</p>
          <h1 tabIndex={-1}>{index.title.replaceAll("-", "\u2011")}</h1>
          <p class="lede">{overview.lede}</p>
          <p class="actions">
            <a class="button strong" href="#/units">
              Look at the units
            </a>
            <a class="button" href="#/map">
              Open the map
            </a>
          </p>
        </div>
        <HeroTiles index={index} />
      </div>
    </section>
  );
}

function Best({ index }: { index: Index }) {
  const units = useData<Units>("units");
  if (units.state !== "ready" || !units.value.id.length) return null;
  const best = clearest(index, units.value).slice(0, BEST);
  return (
    <section class="part">
      <div class="part-head">
        <h2>Units with the clearest meaning</h2>
        <a href="#/units">All {units.value.id.length.toLocaleString("en")} units</a>
      </div>
      <p class="sentence">Each with its strongest picture; what it answers to is bright. The bar is how alike the pictures it answers to are, the mark what chance gives.</p>
      <div class="strip">
        {best.map((i) => (
          <UnitCell key={i} units={units.value} i={i} />
        ))}
      </div>
    </section>
  );
}

function Lenses({ index }: { index: Index }) {
  return (
    <section class="part">
      <h2>Look closer</h2>
      <div class="lens-cards">
        {index.lenses.map((lens) => (
          <a key={lens.name} class={`lens-card ${lens.there ? "" : "absent"}`} href={to("lens", [lens.name])}>
            <h3>{lens.title}</h3>
            <p>{lens.there ? lens.sentence : (lens.missing ?? "Not in this run.")}</p>
            <span class="quiet">{lens.there ? "Look through it" : "Not in this run"}</span>
          </a>
        ))}
      </div>
    </section>
  );
}

export function Overview({ index }: { index: Index }) {
  const { overview } = index;
  return (
    <>
      <Hero index={index} />
      <div class="wrap">
        <dl class="numbers">
          {overview.numbers.map((number) => (
            <div key={number.label}>
              <dt>{number.label}</dt>
              <dd>{number.value}</dd>
              {number.note && <dd class="note">{number.note}</dd>}
            </div>
          ))}
        </dl>
        <div class="findings">
          <section>
            <h2>What was found</h2>
            <ol class="statements">
              {overview.statements.map((statement, i) => (
                <li key={i}>
                  {statement.text} {statement.route && <a href={statement.route}>Look</a>}
                </li>
              ))}
            </ol>
          </section>
          <aside>
            <h3>Models</h3>
            <ul class="models">
              {index.models.map((model) => (
                <li key={model.name} class={`s${model.series % 7}`}>
                  <strong>
                    <i class="dot" aria-hidden="true" />
                    {model.name}
                  </strong>
                  <span>
                    {model.about}; {model.rows} × {model.columns} patches.
                  </span>
                </li>
              ))}
            </ul>
            <h3>Pictures</h3>
            <p>
              {overview.data} <a href="#/pictures">See them all</a>
            </p>
          </aside>
        </div>
        <Best index={index} />
        <Lenses index={index} />
        <section class="part">
          <h2>The same in Python</h2>
          <Code code={index.python} />
        </section>
      </div>
    </>
  );
}
