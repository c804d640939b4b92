/** Heat over a picture: a dark veil where it is cold (the look of the reports), or colours. */

const NIGHT = [10, 14, 30] as const;
const DEEPEST = 0.8;
const [DARK, LIT] = [0.08, 0.8]; // below the first the veil lies in full, above the second it is gone
const FINE = 8; // pixels a patch when drawn

export type HeatMode = "veil" | "colour" | "off";

/** Uniform cubic B-spline weights: smooth, and never beyond the values given. */
function weights(t: number): [number, number, number, number] {
  const s = 1 - t;
  return [(s * s * s) / 6, (3 * t * t * t - 6 * t * t + 4) / 6, (3 * s * s * s - 6 * s * s + 4) / 6, (t * t * t) / 6];
}

function stretch(from: Float32Array, rows: number, columns: number, across: number): Float32Array {
  const out = new Float32Array(rows * across);
  for (let x = 0; x < across; x++) {
    const at = ((x + 0.5) / across) * columns - 0.5;
    const left = Math.floor(at);
    const w = weights(at - left);
    for (let row = 0; row < rows; row++) {
      let sum = 0;
      for (let k = 0; k < 4; k++) {
        const column = Math.min(columns - 1, Math.max(0, left - 1 + k));
        sum += (w[k] ?? 0) * (from[row * columns + column] ?? 0);
      }
      out[row * across + x] = sum;
    }
  }
  return out;
}

function turned(from: Float32Array, rows: number, columns: number): Float32Array {
  const out = new Float32Array(from.length);
  for (let row = 0; row < rows; row++)
    for (let column = 0; column < columns; column++) out[column * rows + row] = from[row * columns + column] ?? 0;
  return out;
}

/** A grid of bytes made smooth: `rows * FINE` by `columns * FINE` values in [0, 1]. The strongest patch stays strongest. */
export function smooth(bytes: Uint8Array, rows: number, columns: number): Float32Array {
  const grid = new Float32Array(rows * columns);
  let peak = 0;
  for (let i = 0; i < grid.length; i++) {
    grid[i] = (bytes[i] ?? 0) / 255;
    peak = Math.max(peak, grid[i] ?? 0);
  }
  const wide = stretch(grid, rows, columns, columns * FINE);
  const tall = stretch(turned(wide, rows, columns * FINE), columns * FINE, rows, rows * FINE);
  const out = turned(tall, columns * FINE, rows * FINE);
  let top = 1e-6;
  for (const v of out) top = Math.max(top, v);
  for (let i = 0; i < out.length; i++) out[i] = ((out[i] ?? 0) / top) * peak;
  return out;
}

/** Dark violet to pale yellow, evenly brighter. */
const RAMP: readonly (readonly [number, number, number])[] = [
  [20, 11, 53],
  [86, 20, 110],
  [165, 40, 103],
  [228, 84, 62],
  [251, 157, 52],
  [252, 245, 180],
];

export function ramp(v: number): [number, number, number] {
  const at = Math.min(0.9999, Math.max(0, v)) * (RAMP.length - 1);
  const i = Math.floor(at);
  const a = RAMP[i] ?? RAMP[0]!;
  const b = RAMP[i + 1] ?? a;
  const mix = (k: 0 | 1 | 2) => Math.round(a[k] + (b[k] - a[k]) * (at - i));
  return [mix(0), mix(1), mix(2)];
}

export function paintHeat(canvas: HTMLCanvasElement, bytes: Uint8Array, rows: number, columns: number, mode: HeatMode): void {
  const width = columns * FINE;
  const height = rows * FINE;
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  const context = canvas.getContext("2d");
  if (!context) return;
  if (mode === "off") {
    context.clearRect(0, 0, width, height);
    return;
  }
  context.putImageData(pixels(smooth(bytes, rows, columns), width, height, mode), 0, 0);
}

/** How far the veil is lifted: never less for more heat, and steep between, so that the eye finds the place. */
export function lifted(v: number): number {
  const t = Math.min(1, Math.max(0, (v - DARK) / (LIT - DARK)));
  return t * t * (3 - 2 * t);
}

function pixels(values: Float32Array, width: number, height: number, mode: HeatMode): ImageData {
  const image = new ImageData(width, height);
  const data = image.data;
  for (let i = 0; i < values.length; i++) {
    const v = values[i] ?? 0;
    if (mode === "colour") {
      const [r, g, b] = ramp(v);
      data.set([r, g, b, Math.round(255 * (0.35 + 0.45 * v))], 4 * i);
    } else {
      data.set([NIGHT[0], NIGHT[1], NIGHT[2], Math.round(255 * DEEPEST * (1 - lifted(v)))], 4 * i);
    }
  }
  return image;
}
