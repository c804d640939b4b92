/** The universal space in memory: one entry a patch of a picture at a layer of a model. */
import { bytesOf, floatsOf, shortsOf, wholesOf } from "../bytes";
import type { CloudFile, Tile } from "../types";

export interface Cloud {
  count: number;
  x: Float32Array;
  y: Float32Array;
  colour: Uint8Array;
  model: Uint8Array;
  layer: Uint8Array;
  picture: Uint16Array | Uint32Array;
  token: Uint16Array;
  concept: Uint8Array;
  layers: string[];
  concepts: { name: string; tiles?: Tile[] }[];
  label: Uint8Array | null;
  labels: string[];
}

export const NONE = 255;

const SPREAD = 0.0016; // of half the width, from one patch to the next
const GOLDEN = Math.PI * (3 - Math.sqrt(5));

/** Patches at the very same place are laid around it like the seeds of a sunflower: all can be seen and touched. */
export function seeded(x: Float32Array, y: Float32Array): void {
  const taken = new Map<string, number>();
  for (let i = 0; i < x.length; i++) {
    const key = `${x[i]} ${y[i]}`;
    const k = taken.get(key) ?? 0;
    taken.set(key, k + 1);
    if (!k) continue;
    x[i] = (x[i] ?? 0) + SPREAD * Math.sqrt(k) * Math.cos(k * GOLDEN);
    y[i] = (y[i] ?? 0) + SPREAD * Math.sqrt(k) * Math.sin(k * GOLDEN);
  }
}

/** Both axes on one scale, the middle at 0, the longer side from -1 to 1. */
export function centred(x: Float32Array, y: Float32Array): void {
  const ends = (values: Float32Array) => {
    let [low, high] = [Infinity, -Infinity];
    for (const v of values) {
      if (v < low) low = v;
      if (v > high) high = v;
    }
    return [low, high] as const;
  };
  const [left, right] = ends(x);
  const [bottom, top] = ends(y);
  const half = Math.max(right - left, top - bottom, 1e-9) / 1.9;
  for (let i = 0; i < x.length; i++) {
    x[i] = ((x[i] ?? 0) - (left + right) / 2) / half;
    y[i] = ((y[i] ?? 0) - (bottom + top) / 2) / half;
  }
}

export function cloudOf(file: CloudFile): Cloud {
  const bytes = { x: bytesOf(file.x), y: bytesOf(file.y), picture: bytesOf(file.picture), token: bytesOf(file.token) };
  const cloud: Cloud = {
    count: file.count,
    x: floatsOf(bytes.x),
    y: floatsOf(bytes.y),
    colour: bytesOf(file.colour),
    model: bytesOf(file.model),
    layer: bytesOf(file.layer),
    picture: wholesOf(bytes.picture, file.count),
    token: shortsOf(bytes.token),
    concept: bytesOf(file.concept),
    layers: file.layers,
    concepts: file.concepts,
    label: file.label ? bytesOf(file.label) : null,
    labels: file.labels ?? [],
  };
  centred(cloud.x, cloud.y);
  seeded(cloud.x, cloud.y);
  return cloud;
}

interface Head {
  count: number;
  layers: string[];
  concepts: Cloud["concepts"];
  labels?: string[];
  arrays: { name: string; dtype: string; offset: number; bytes: number }[];
}

/** Four bytes of length, a head in JSON, then the columns. */
export function cloudFrom(bytes: Uint8Array): Cloud {
  const length = new DataView(bytes.buffer, bytes.byteOffset, 4).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length))) as Head;
  const start = 4 + length;
  const column = (name: string): Uint8Array | null => {
    const array = head.arrays.find((entry) => entry.name === name);
    return array ? bytes.subarray(start + array.offset, start + array.offset + array.bytes) : null;
  };
  const must = (name: string) => column(name) ?? new Uint8Array();
  const cloud: Cloud = {
    count: head.count,
    x: floatsOf(must("x")),
    y: floatsOf(must("y")),
    colour: must("colour"),
    model: must("model"),
    layer: must("layer"),
    picture: wholesOf(must("picture"), head.count),
    token: shortsOf(must("token")),
    concept: must("concept"),
    layers: head.layers,
    concepts: head.concepts,
    label: column("label"),
    labels: head.labels ?? [],
  };
  centred(cloud.x, cloud.y);
  seeded(cloud.x, cloud.y);
  return cloud;
}

/** Everything of one patch over the layers of its model, from the first on. */
export function pathOf(cloud: Cloud, i: number): number[] {
  const found: number[] = [];
  const [model, picture, token] = [cloud.model[i], cloud.picture[i], cloud.token[i]];
  for (let k = 0; k < cloud.count; k++)
    if (cloud.picture[k] === picture && cloud.token[k] === token && cloud.model[k] === model) found.push(k);
  return found.sort((a, b) => (cloud.layer[a] ?? 0) - (cloud.layer[b] ?? 0));
}

export interface Way {
  model: number;
  group: number;
  x: number[];
  y: number[];
}

/** The mean place of every group at every layer of every model. */
export function ways(cloud: Cloud, group: Uint8Array, groups: number): Way[] {
  const layers = cloud.layers.length;
  const models = 1 + cloud.model.reduce((a, b) => Math.max(a, b), 0);
  const sums = new Float64Array(models * groups * layers * 3);
  for (let i = 0; i < cloud.count; i++) {
    const g = group[i] ?? NONE;
    if (g >= groups) continue;
    const at = 3 * (((cloud.model[i] ?? 0) * groups + g) * layers + (cloud.layer[i] ?? 0));
    sums[at] = (sums[at] ?? 0) + (cloud.x[i] ?? 0);
    sums[at + 1] = (sums[at + 1] ?? 0) + (cloud.y[i] ?? 0);
    sums[at + 2] = (sums[at + 2] ?? 0) + 1;
  }
  const out: Way[] = [];
  for (let model = 0; model < models; model++)
    for (let g = 0; g < groups; g++) {
      const way: Way = { model, group: g, x: [], y: [] };
      for (let layer = 0; layer < layers; layer++) {
        const at = 3 * ((model * groups + g) * layers + layer);
        const n = sums[at + 2] ?? 0;
        if (!n) continue;
        way.x.push((sums[at] ?? 0) / n);
        way.y.push((sums[at + 1] ?? 0) / n);
      }
      if (way.x.length > 1) out.push(way);
    }
  return out;
}

export interface Chosen {
  picture: number;
  /** how many of its patches, over layers and models */
  count: number;
  tokens: Map<number, number>;
  model: number;
}

/** A lasso's points as pictures, those with most of them first. */
export function picturesOf(cloud: Cloud, points: ArrayLike<number>): Chosen[] {
  const found = new Map<number, Chosen>();
  for (let k = 0; k < points.length; k++) {
    const i = points[k] ?? 0;
    const picture = cloud.picture[i] ?? 0;
    let one = found.get(picture);
    if (!one) found.set(picture, (one = { picture, count: 0, tokens: new Map(), model: cloud.model[i] ?? 0 }));
    one.count += 1;
    const token = cloud.token[i] ?? 0;
    if (cloud.model[i] === one.model) one.tokens.set(token, (one.tokens.get(token) ?? 0) + 1);
  }
  return [...found.values()].sort((a, b) => b.count - a.count || a.picture - b.picture);
}
