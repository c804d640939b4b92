/** What the colour of a point stands for. */
import { segmentColour } from "../live/Segments";
import { ramp } from "../heat";
import type { Index } from "../types";
import { NONE, type Cloud } from "./cloud";

export const COLOURS = { space: "Universal", concept: "Concept", label: "Label", layer: "Layer", model: "Model" } as const;
export type ColourBy = keyof typeof COLOURS;

export interface Painted {
  /** of each point, an entry of the palette */
  entry: Uint16Array;
  palette: string[];
  legend: { name: string; colour: string }[];
}

const GREY = "#8a949c";
const SERIES = ["#2f86d0", "#d9682a", "#159a78", "#a061c8", "#b98516", "#d5547f", "#7d878f"];

function hex([r, g, b]: readonly [number, number, number]): string {
  return `#${[r, g, b].map((v) => Math.round(v).toString(16).padStart(2, "0")).join("")}`;
}

/** A million own colours are too many for a palette: the nearest of at most 32768. */
function spaced(cloud: Cloud): Painted {
  const places = new Int32Array(32768).fill(-1);
  const palette: string[] = [];
  const entry = new Uint16Array(cloud.count);
  for (let i = 0; i < cloud.count; i++) {
    const [r, g, b] = [(cloud.colour[3 * i] ?? 0) >> 3, (cloud.colour[3 * i + 1] ?? 0) >> 3, (cloud.colour[3 * i + 2] ?? 0) >> 3];
    const key = (r << 10) | (g << 5) | b;
    if ((places[key] ?? -1) < 0) {
      places[key] = palette.length;
      palette.push(hex([r * 8.22, g * 8.22, b * 8.22]));
    }
    entry[i] = places[key] ?? 0;
  }
  return { entry, palette, legend: [] };
}

function grouped(group: Uint8Array, names: string[], colour: (k: number) => string): Painted {
  const entry = new Uint16Array(group.length);
  for (let i = 0; i < group.length; i++) {
    const g = group[i] ?? NONE;
    entry[i] = g < names.length ? g : names.length;
  }
  const legend = names.map((name, k) => ({ name, colour: colour(k) }));
  return { entry, palette: [...legend.map((item) => item.colour), GREY], legend };
}

export function painted(cloud: Cloud, index: Index, by: ColourBy): Painted {
  const hue = (k: number) => hex(segmentColour(k));
  switch (by) {
    case "space":
      return spaced(cloud);
    case "concept":
      return grouped(cloud.concept, cloud.concepts.map((c) => c.name), hue);
    case "label":
      return grouped(cloud.label ?? new Uint8Array(cloud.count).fill(NONE), cloud.labels, hue);
    case "layer":
      return grouped(cloud.layer, cloud.layers, (k) => hex(ramp(0.12 + (0.8 * k) / Math.max(1, cloud.layers.length - 1))));
    case "model":
      return grouped(cloud.model, index.models.map((m) => m.name), (k) => SERIES[(index.models[k]?.series ?? k) % 7] ?? GREY);
  }
}

/** Only what can be told apart here. */
export function choices(cloud: Cloud, index: Index): ColourBy[] {
  const has: Record<ColourBy, boolean> = {
    space: true,
    concept: cloud.concepts.length > 0,
    label: cloud.label !== null && cloud.labels.length > 0,
    layer: cloud.layers.length > 1,
    model: index.models.length > 1,
  };
  return (Object.keys(COLOURS) as ColourBy[]).filter((name) => has[name]);
}
