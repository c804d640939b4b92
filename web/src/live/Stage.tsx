import type { ComponentChildren, TargetedPointerEvent } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { maps, type Maps, type PictureId, pictureUrl } from "../api";
import { paintHeat } from "../heat";
import { pictureName } from "../parts/Thumb";
import { heatMode, tokenName } from "../state";
import type { Model } from "../types";

export interface MapsOf {
  key: string;
  maps: Maps | null;
  error: Error | null;
}

/** The maps of one block; while they come, the last ones stay. */
export function useMaps(model: Model, picture: PictureId, block: number): MapsOf {
  const key = `${model.name} ${picture} ${block}`;
  const [got, set] = useState<MapsOf>({ key: "", maps: null, error: null });
  useEffect(() => {
    let alive = true;
    maps(model.name, picture, block).then(
      (value) => alive && set({ key, maps: value, error: null }),
      (error: Error) => alive && set({ key, maps: null, error }),
    );
    return () => {
      alive = false;
    };
  }, [key]);
  return got.key === key ? got : { key, maps: null, error: null };
}

/** The map of one token over the picture. `data-shown` says which one is on the screen. */
export function MapLayer({ got, token }: { got: MapsOf; token: number | null }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const mode = heatMode.value === "off" ? "veil" : heatMode.value;
  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const all = got.maps;
    if (!all || token === null || token >= all.tokens) {
      element.getContext("2d")?.clearRect(0, 0, element.width, element.height);
      element.dataset.shown = "";
      return;
    }
    const size = all.rows * all.columns;
    paintHeat(element, all.data.subarray(token * size, (token + 1) * size), all.rows, all.columns, mode);
    element.dataset.shown = `${got.key} ${token}`;
  }, [got.key, got.maps, token, mode]);
  return <canvas ref={canvas} class="heat" aria-hidden="true" data-shown="" />;
}

interface StageProps {
  model: Model;
  picture: PictureId;
  /** token under the mouse or the keys */
  token: number | null;
  onToken: (token: number | null) => void;
  onPick?: (token: number) => void;
  busy?: boolean;
  children?: ComponentChildren;
}

function placeOf(event: TargetedPointerEvent<HTMLElement>, model: Model): number {
  const area = event.currentTarget.getBoundingClientRect();
  const column = Math.min(model.columns - 1, Math.max(0, Math.floor(((event.clientX - area.left) / area.width) * model.columns)));
  const row = Math.min(model.rows - 1, Math.max(0, Math.floor(((event.clientY - area.top) / area.height) * model.rows)));
  return model.prefix.length + row * model.columns + column;
}

const STEPS: Record<string, [number, number]> = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

function stepped(token: number | null, key: string, model: Model): number | null {
  const step = STEPS[key];
  if (!step) return null;
  const patch = Math.max(0, (token ?? model.prefix.length) - model.prefix.length);
  const row = Math.min(model.rows - 1, Math.max(0, Math.floor(patch / model.columns) + step[0]));
  const column = Math.min(model.columns - 1, Math.max(0, (patch % model.columns) + step[1]));
  return model.prefix.length + row * model.columns + column;
}

/** A picture whose patches can be pointed at, with the mouse or with the arrow keys. */
export function Stage({ model, picture, token, onToken, onPick, busy, children }: StageProps) {
  const patch = token === null ? null : token - model.prefix.length;
  const [broken, setBroken] = useState(false);
  useEffect(() => setBroken(false), [picture]);
  const keys = (event: KeyboardEvent) => {
    if ((event.key === "Enter" || event.key === " ") && token !== null && onPick) {
      event.preventDefault();
      onPick(token);
      return;
    }
    const next = stepped(token, event.key, model);
    if (next === null) return;
    event.preventDefault();
    event.stopPropagation();
    onToken(next);
  };
  const said = token === null ? "no token chosen" : tokenName(token, model);
  return (
    <div
      class={`stage ${busy ? "busy" : ""}`}
      role="application"
      tabIndex={0}
      aria-label={`${pictureName(picture)} seen by ${model.name}: move over it or use the arrow keys; ${said}`}
      onPointerMove={(event) => onToken(placeOf(event, model))}
      onPointerDown={(event) => {
        onToken(placeOf(event, model));
        onPick?.(placeOf(event, model));
      }}
      onPointerLeave={(event) => event.pointerType === "mouse" && onToken(null)}
      onKeyDown={keys}
    >
      {broken ? <p class="state">This picture could not be shown.</p> : <img src={pictureUrl(picture, model.name)} alt={pictureName(picture)} draggable={false} onError={() => setBroken(true)} />}
      {children}
      {patch !== null && patch >= 0 && (
        <span
          class="box"
          aria-hidden="true"
          style={{
            left: `${(100 * (patch % model.columns)) / model.columns}%`,
            top: `${(100 * Math.floor(patch / model.columns)) / model.rows}%`,
            width: `${100 / model.columns}%`,
            height: `${100 / model.rows}%`,
          }}
        />
      )}
      {busy && (
        <span class="waiting" role="status">
          <span class="spinner" aria-hidden="true" />
          the model is looking
        </span>
      )}
    </div>
  );
}
