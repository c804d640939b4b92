import { useMemo } from "preact/hooks";

import { count } from "../format";
import { Grid } from "../parts/Grid";
import { Empty, NoPicture, When } from "../parts/States";
import { Frame, pictureName, Thumb } from "../parts/Thumb";
import { UnitCell } from "../parts/UnitCell";
import { to } from "../route";
import { find } from "../search";
import { useData } from "../source";
import { live, notes } from "../state";
import type { Index, Units } from "../types";

export function PicturesPage({ index }: { index: Index }) {
  const { count: all } = index.pictures;
  return (
    <div class="wrap page">
      <h1 tabIndex={-1}>Pictures</h1>
      <p class="lede">
        {count(all, "picture")}. {index.overview.data}
      </p>
      {all === 0 && <Empty title="This run holds no pictures" />}
      <Grid
        count={all}
        least={104}
        gap={8}
        height={(width) => width}
        label="Pictures"
        render={(k) => (
          <a class="picture-cell" href={to("picture", [k])} title={pictureName(k)}>
            <span class="frame">
              <Thumb picture={k} />
            </span>
          </a>
        )}
      />
    </div>
  );
}

function Answering({ index, units, picture }: { index: Index; units: Units; picture: number }) {
  const found = useMemo(() => {
    const best = find(units, index.models.map((m) => m.name), notes.value, { q: "", model: "", block: "", only: ["alive"], sort: "evidence" });
    return best.filter((i) => units.top[i] === picture);
  }, [units, picture]);
  return (
    <section class="part">
      <h2>Units that answer most strongly here</h2>
      {found.length === 0 ? (
        <p class="sentence">No examined unit has its strongest answer on this picture.</p>
      ) : (
        <>
          <p class="sentence">{count(found.length, "unit has", "units have")} the strongest answer of all on this picture; the clearest first.</p>
          <div class="strip">
            {found.slice(0, 48).map((i) => (
              <UnitCell key={i} units={units} i={i} />
            ))}
          </div>
        </>
      )}
    </section>
  );
}

export function PicturePage({ index, picture }: { index: Index; picture: number }) {
  const units = useData<Units>("units");
  const all = index.pictures.count;
  if (picture < 0 || picture >= all) return <NoPicture picture={picture} count={all} />;
  return (
    <div class="wrap page">
      <nav class="crumbs" aria-label="Where you are">
        <a href="#/pictures">Pictures</a>
        <span class="crumb-steps">
          {picture > 0 && <a href={to("picture", [picture - 1])} rel="prev">Previous</a>}
          {picture + 1 < all && <a href={to("picture", [picture + 1])} rel="next">Next</a>}
        </span>
      </nav>
      <div class="picture-head">
        <Frame picture={picture} model={undefined} label={pictureName(picture)} sharp />
        <div>
          <h1 tabIndex={-1}>{pictureName(picture)}</h1>
          <p class="lede">Picture {picture} of this run.</p>
          <p class="actions">
            {live.value && (
              <a class="button strong" href={to("live", [picture])}>
                See its tokens live
              </a>
            )}
            {index.parts.align !== false && (
              <a class="button" href={to("map", [], { picture: String(picture) })}>
                Its patches on the map
              </a>
            )}
          </p>
        </div>
      </div>
      <When loaded={units} what="the index of units">
        {(value) => <Answering index={index} units={value} picture={picture} />}
      </When>
    </div>
  );
}
