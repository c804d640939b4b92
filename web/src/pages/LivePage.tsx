import { useEffect, useState } from "preact/hooks";

import { pictureUrl, type PictureId } from "../api";
import { amount } from "../format";
import { Depth } from "../live/Depth";
import { Film } from "../live/Film";
import { Jobs } from "../live/Jobs";
import { Neighbours } from "../live/Neighbours";
import { SegmentControls, SegmentLayer, useSegments } from "../live/Segments";
import { MapLayer, Stage, useMaps } from "../live/Stage";
import { Steer } from "../live/Steer";
import { Empty, NoPicture } from "../parts/States";
import { pictureName } from "../parts/Thumb";
import { to } from "../route";
import { address, live, tokenName } from "../state";
import type { Index, Model } from "../types";

const TABS = { maps: "Token maps", segments: "Segments", neighbours: "Neighbours", steer: "Steering" } as const;
type Tab = keyof typeof TABS;

interface Place {
  model: Model;
  picture: PictureId;
  tab: Tab;
  unit: string | null;
}

function placeOf(index: Index, asked: string | null): Place | null {
  const { query } = address.value;
  const unit = query.get("unit");
  const wanted = query.get("model") ?? (unit ? unit.split("/").slice(0, -2).join("/") : null);
  const model = index.models.find((m) => m.name === wanted) ?? index.models[0];
  if (!model) return null;
  const tab = query.get("tab") ?? "";
  const number = asked === null ? 0 : Number(asked);
  return { model, picture: Number.isInteger(number) ? number : (asked ?? 0), tab: tab in TABS ? (tab as Tab) : "maps", unit };
}

function go(place: Place, change: Partial<Place>): void {
  const next = { ...place, ...change };
  location.hash = to("live", [next.picture], { model: next.model.name, tab: next.tab === "maps" ? null : next.tab, unit: next.unit });
}

function Prefixes({ model, token, set }: { model: Model; token: number | null; set: (token: number) => void }) {
  if (!model.prefix.length) return null;
  return (
    <div class="chips" role="group" aria-label="Tokens without a place in the picture">
      {model.prefix.map((name, i) => (
        <button key={name} class="chip" aria-pressed={token === i} onMouseEnter={() => set(i)} onFocus={() => set(i)} onClick={() => set(i)}>
          {name}
        </button>
      ))}
    </div>
  );
}

function MapNotes({ model, picture, block, token, ms }: { model: Model; picture: PictureId; block: number; token: number | null; ms: number | null }) {
  return (
    <div>
      <p class="big" aria-live="polite">
        {token === null ? "Point at a patch" : tokenName(token, model)}
      </p>
      <p class="sentence">
        Bright pixels are what this token holds after block {block}. Click to hold a token, click it again to let go; the arrow keys go from token to token.
      </p>
      <p class="quiet">
        {pictureName(picture)} · {model.name}
        {ms !== null && ` · all maps of this block computed in ${amount(ms)} ms`}
      </p>
    </div>
  );
}

function Bench({ index, place }: { index: Index; place: Place }) {
  const { model, picture, tab } = place;
  const [block, setBlock] = useState(model.depth - 1);
  const [over, setOver] = useState<number | null>(null);
  const [held, setHeld] = useState<number | null>(null);
  const [k, setK] = useState(6);
  const at = Math.min(block, model.depth - 1);
  const got = useMaps(model, picture, at);
  const { cut, error: cutError } = useSegments(tab === "segments", model, picture, at, k);
  useEffect(() => setHeld(null), [picture, model.name]);
  const token = tab === "neighbours" ? over : (over ?? held);
  const patch = token === null ? null : token - model.prefix.length;
  const most = Math.min(cut?.most ?? 24, 40);
  const error = tab === "segments" ? cutError : got.error;
  return (
    <div class="bench">
      <div class="bench-left">
        <Stage model={model} picture={picture} token={token} onToken={setOver} onPick={(t) => setHeld(held === t && tab === "maps" ? null : t)} busy={tab === "segments" ? !cut && !cutError : tab === "maps" && !got.maps && !got.error}>
          {tab === "segments" ? <SegmentLayer cut={cut} over={patch !== null && patch >= 0 ? (cut?.labels[patch] ?? null) : null} /> : tab === "maps" && <MapLayer got={got} token={token} />}
        </Stage>
        {tab !== "steer" && (
          <label class="slider">
            <span>
              Block <b class="value">{at}</b>
            </span>
            <input type="range" min={0} max={model.depth - 1} value={at} onInput={(event) => setBlock(Number(event.currentTarget.value))} />
          </label>
        )}
        {tab === "maps" && <Prefixes model={model} token={token} set={setOver} />}
      </div>
      <div class="bench-right" role="tabpanel" aria-label={TABS[tab]}>
        {error && <p class="warn" role="alert">{error.message}</p>}
        {tab === "maps" && <MapNotes model={model} picture={picture} block={at} token={token} ms={got.maps?.ms ?? null} />}
        {tab === "maps" && <Depth model={model} picture={picture} token={token} block={at} ready={got.maps !== null} setBlock={setBlock} />}
        {tab === "maps" && <Jobs model={model} pictures={index.pictures.count} />}
        {tab === "segments" && <SegmentControls cut={cut} k={k} most={most} setK={setK} />}
        {tab === "neighbours" && <Neighbours model={model} picture={picture} block={at} token={held} />}
        {tab === "steer" && <Steer model={model} picture={picture} src={pictureUrl(picture, model.name)} unit={place.unit} setUnit={(unit) => go(place, { unit })} />}
      </div>
    </div>
  );
}

export function LivePage({ index, picture }: { index: Index; picture: string | null }) {
  const place = placeOf(index, picture);
  if (!live.value || !place)
    return (
      <Empty title="This is a report; the live pages need the model">
        <p>
          Start it with <code>vitreous explore RUN</code>.
        </p>
      </Empty>
    );
  const { count } = index.pictures;
  if (typeof place.picture === "number" && !(place.picture >= 0 && place.picture < count)) return <NoPicture picture={place.picture} count={count} />;
  return (
    <div class="wrap page">
      <div class="live-head">
        <h1 tabIndex={-1}>Live</h1>
        {index.models.length > 1 && (
          <label>
            <span>Model</span>
            <select value={place.model.name} onChange={(event) => go(place, { model: index.models.find((m) => m.name === event.currentTarget.value) ?? place.model, unit: null })}>
              {index.models.map((model) => (
                <option key={model.name}>{model.name}</option>
              ))}
            </select>
          </label>
        )}
        <div class="segmented" role="tablist" aria-label="What to do with the picture">
          {(Object.keys(TABS) as Tab[]).map((tab) => (
            <button key={tab} role="tab" aria-selected={place.tab === tab} onClick={() => go(place, { tab })}>
              {TABS[tab]}
            </button>
          ))}
        </div>
      </div>
      <Bench index={index} place={place} />
      <Film picture={place.picture} count={index.pictures.count} choose={(id) => go(place, { picture: id })} />
    </div>
  );
}
