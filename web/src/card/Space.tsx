import { useState } from "preact/hooks";

import { Box, Frame, pictureName } from "../parts/Thumb";
import { modelOf, patchOf } from "../state";
import type { Card, Path } from "../types";

const SIDE = 300;
const EDGE = 22;

type Point = NonNullable<Card["align"]>["points"][number];

interface Scale {
  x: (v: number) => number;
  y: (v: number) => number;
}

/** One scale for all models: the space is the same for all of them. */
function scaleOf(paths: Path[], points: Point[]): Scale {
  const xs = [...paths.flatMap((path) => path.x), ...points.map((point) => point.x)];
  const ys = [...paths.flatMap((path) => path.y), ...points.map((point) => point.y)];
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const span = Math.max(right - left, high - low, 1e-9);
  const room = SIDE - 2 * EDGE;
  return {
    x: (v) => EDGE + room * (0.5 + (v - (left + right) / 2) / span),
    y: (v) => SIDE - EDGE - room * (0.5 + (v - (low + high) / 2) / span),
  };
}

/** "block 7" for blocks.7.attn.out */
function short(layer: string | undefined): string {
  const match = /^blocks\.(\d+)/.exec(layer ?? "");
  return match ? `block ${match[1]}` : (layer ?? "");
}

function Trace({ path, scale, points, hover }: { path: Path; scale: Scale; points: Point[]; hover: (point: Point | null) => void }) {
  const at = path.x.map((x, i) => [scale.x(x), scale.y(path.y[i] ?? 0)] as const);
  const own = modelOf(path.model);
  const last = at.length - 1;
  return (
    <figure class={`trace s${(own?.series ?? 0) % 7}`}>
      <svg viewBox={`0 0 ${SIDE} ${SIDE}`} role="img" aria-label={`Path of its patches over ${path.layers.length} layers of ${path.model}`}>
        {points.map((point, i) => (
          <circle key={i} class="patch" cx={scale.x(point.x)} cy={scale.y(point.y)} r={4} fill={point.colour} onMouseEnter={() => hover(point)} onMouseLeave={() => hover(null)} />
        ))}
        <polyline class="way" points={at.map((p) => p.join(",")).join(" ")} />
        {at.map(([x, y], i) => (
          <circle key={i} class="stop" cx={x} cy={y} r={i === last ? 8 : 5} fill={path.colours[i] ?? "#888"}>
            <title>{path.layers[i]}</title>
          </circle>
        ))}
        {at[0] && (
          <text x={at[0][0] + 9} y={at[0][1] + 4}>
            {short(path.layers[0])}
          </text>
        )}
        {last > 0 && at[last] && (
          <text x={at[last][0] + 11} y={at[last][1] + 4}>
            {short(path.layers[last])}
          </text>
        )}
      </svg>
      <figcaption>
        <i class="dot" aria-hidden="true" /> {path.model}
      </figcaption>
    </figure>
  );
}

export function Space({ card }: { card: Card }) {
  const [over, setOver] = useState<Point | null>(null);
  const align = card.align;
  if (!align || (!align.paths.length && !align.points.length)) return null;
  const scale = scaleOf(align.paths, align.points);
  const own = modelOf(card.model);
  return (
    <div class="panel space">
      <div class="traces">
        {align.paths.map((path) => (
          <Trace key={path.model} path={path} scale={scale} points={path.model === card.model ? align.points : []} hover={setOver} />
        ))}
      </div>
      <div class="space-side">
        {over ? (
          <Frame picture={over.picture} model={own} label={pictureName(over.picture)} sharp>
            <Box patch={patchOf(over.token, own)} model={own} />
          </Frame>
        ) : (
          <p class="quiet">Large dots are the mean place of its strongest patches, layer by layer; small ones the patches themselves. Rest on one to see it. Like colour, like meaning.</p>
        )}
        <a href="#/map">Open the whole space</a>
      </div>
    </div>
  );
}
