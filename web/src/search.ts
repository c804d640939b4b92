/** Finding units in the index: words, filters, order. */
import type { Note, Units } from "./types";

export const SORTS = {
  evidence: "Clearest meaning first",
  score: "Best label first",
  subunits: "Most sub-units first",
  cluster: "Largest cluster first",
  order: "By place in the model",
} as const;
export type Sort = keyof typeof SORTS;

export interface Asked {
  q: string;
  model: string;
  block: string;
  only: string[];
  sort: Sort;
}

export const ONLY = {
  labelled: "With a label",
  split: "More than one sub-unit",
  clustered: "In a cluster",
  noted: "Renamed or commented",
  alive: "Not dead",
} as const;

const texts = new WeakMap<Units, string[]>();

function hay(units: Units): string[] {
  let kept = texts.get(units);
  if (!kept) {
    kept = units.id.map((id, i) => [id, units.label[i] ?? "", ...(units.sublabels[i] ?? [])].join(" ").toLowerCase());
    texts.set(units, kept);
  }
  return kept;
}

/** A query as it stands in an address. */
export function readAsked(query: URLSearchParams): Asked {
  const sort = query.get("sort") ?? "";
  return {
    q: query.get("q") ?? "",
    model: query.get("model") ?? "",
    block: query.get("block") ?? "",
    only: (query.get("only") ?? "").split(",").filter((name) => name in ONLY),
    sort: sort in SORTS ? (sort as Sort) : "evidence",
  };
}

function wanted(units: Units, i: number, only: string[], notes: Map<string, Note>): boolean {
  return only.every((name) => {
    if (name === "labelled") return units.label[i] !== null;
    if (name === "split") return (units.subunits[i] ?? 0) > 1;
    if (name === "clustered") return (units.cluster[i] ?? 0) > 1;
    if (name === "noted") return notes.has(units.id[i] ?? "");
    return !units.dead[i];
  });
}

export function find(units: Units, models: string[], notes: Map<string, Note>, asked: Asked): number[] {
  const words = asked.q.toLowerCase().split(/\s+/).filter(Boolean);
  const text = hay(units);
  const model = models.indexOf(asked.model);
  const found: number[] = [];
  for (let i = 0; i < units.id.length; i++) {
    if (asked.model && units.model[i] !== model) continue;
    if (asked.block && String(units.block[i]) !== asked.block) continue;
    if (!wanted(units, i, asked.only, notes)) continue;
    if (words.length) {
      const note = notes.get(units.id[i] ?? "");
      const all = note ? `${text[i]} ${note.name ?? ""} ${note.comment ?? ""}`.toLowerCase() : (text[i] ?? "");
      if (!words.every((word) => all.includes(word))) continue;
    }
    found.push(i);
  }
  return sorted(units, found, asked.sort);
}

function sorted(units: Units, found: number[], sort: Sort): number[] {
  if (sort === "order") return found;
  const gain = (i: number) => {
    const ms = units.ms[i] ?? null;
    return ms === null ? -Infinity : ms - (units.control[i] ?? 0);
  };
  const keys: Record<Exclude<Sort, "order">, (i: number) => number> = {
    evidence: gain,
    score: (i) => units.score[i] ?? -Infinity,
    subunits: (i) => units.subunits[i] ?? 0,
    cluster: (i) => units.cluster[i] ?? 0,
  };
  const key = keys[sort];
  const values = new Map(found.map((i) => [i, units.dead[i] ? -Infinity : key(i)]));
  const of = (i: number) => values.get(i) ?? -Infinity;
  return found.sort((a, b) => (of(a) === of(b) ? a - b : of(b) > of(a) ? 1 : -1));
}
