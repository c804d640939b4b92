import { useEffect, useRef, useState } from "preact/hooks";

import { segments, type PictureId, type Segments as Cut } from "../api";
import { count } from "../format";
import type { Model } from "../types";

/** Hues far apart for neighbours in the list. */
export function segmentColour(k: number): [number, number, number] {
  const hue = (k * 137.508) % 360;
  const light = 0.52 + 0.14 * ((k % 3) - 1);
  const a = 0.62 * Math.min(light, 1 - light);
  const channel = (n: number) => {
    const at = (n + hue / 30) % 12;
    return Math.round(255 * (light - a * Math.max(-1, Math.min(at - 3, 9 - at, 1))));
  };
  return [channel(0), channel(8), channel(4)];
}

export function useSegments(on: boolean, model: Model, picture: PictureId, block: number, k: number): { cut: Cut | null; error: Error | null } {
  const [got, set] = useState<{ cut: Cut | null; error: Error | null }>({ cut: null, error: null });
  useEffect(() => {
    if (!on) return;
    const stop = new AbortController();
    segments(model.name, picture, block, k, stop.signal).then(
      (cut) => set({ cut, error: null }),
      (error: Error) => error.name !== "AbortError" && set({ cut: null, error }),
    );
    return () => stop.abort();
  }, [on, model.name, picture, block, k]);
  return got;
}

export function SegmentLayer({ cut, over }: { cut: Cut | null; over: number | null }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const element = canvas.current;
    if (!element || !cut) return;
    element.width = cut.columns;
    element.height = cut.rows;
    const image = new ImageData(cut.columns, cut.rows);
    cut.labels.forEach((label, i) => {
      const [r, g, b] = segmentColour(label);
      image.data.set([r, g, b, over === null ? 150 : over === label ? 60 : 200], 4 * i);
    });
    element.getContext("2d")?.putImageData(image, 0, 0);
    element.dataset.shown = String(new Set(cut.labels).size);
  }, [cut, over]);
  return <canvas ref={canvas} class="heat flat" aria-hidden="true" />;
}

export function SegmentControls({ cut, k, most, setK }: { cut: Cut | null; k: number; most: number; setK: (k: number) => void }) {
  const sizes = new Map<number, number>();
  for (const label of cut?.labels ?? []) sizes.set(label, (sizes.get(label) ?? 0) + 1);
  const all = cut?.labels.length ?? 1;
  return (
    <div>
      <label class="slider">
        <span>
          Number of segments <b class="value">{k}</b>
        </span>
        <input type="range" min={1} max={most} value={k} onInput={(event) => setK(Number(event.currentTarget.value))} />
      </label>
      <p class="quiet">Cut from the kept tree: tokens whose maps lie on the same pixels belong together.</p>
      <ul class="segment-list" aria-label="Segments by size">
        {[...sizes.entries()]
          .sort((a, b) => b[1] - a[1])
          .slice(0, 16)
          .map(([label, size]) => (
            <li key={label}>
              <i style={{ background: `rgb(${segmentColour(label).join(" ")})` }} aria-hidden="true" />
              <span class="bar" style={{ width: `${(70 * size) / all}%` }} />
              <span class="num">{count(size, "patch", "patches")}</span>
            </li>
          ))}
      </ul>
    </div>
  );
}
