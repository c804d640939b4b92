/** What the whole page shares: the index, the live server if there is one, the address, and the reader's wishes. */
import { computed, effect, signal } from "@preact/signals";

import type { HeatMode } from "./heat";
import { parse, type Address } from "./route";
import type { Index, Live, Model, Note } from "./types";

export const index = signal<Index | null>(null);
export const live = signal<Live | null>(null);
export const address = signal<Address>(parse(location.hash));
export const notes = signal<Map<string, Note>>(new Map());

/** Storage may be closed to pages from the file system; then wishes last as long as the page. */
function remembered<T extends string>(name: string, start: T, choices: readonly T[]) {
  let first = start;
  try {
    const was = localStorage.getItem(`vitreous.${name}`) as T | null;
    if (was !== null && choices.includes(was)) first = was;
  } catch {
    /* closed */
  }
  const wish = signal<T>(first);
  effect(() => {
    try {
      localStorage.setItem(`vitreous.${name}`, wish.value);
    } catch {
      /* closed */
    }
  });
  return wish;
}

export const THEMES = ["system", "light", "dark"] as const;
export const theme = remembered<(typeof THEMES)[number]>("theme", "system", THEMES);
export const HEATS: readonly HeatMode[] = ["veil", "colour", "off"];
export const heatMode = remembered<HeatMode>("heat", "veil", HEATS);
export const unitsView = remembered<"grid" | "table">("units", "grid", ["grid", "table"]);

effect(() => {
  if (theme.value === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
});

const byName = computed(() => new Map(index.value?.models.map((model) => [model.name, model]) ?? []));

export function modelOf(name: string): Model | undefined {
  return byName.value.get(name);
}

export function takeNotes(list: Note[]): void {
  notes.value = new Map(list.filter((note) => note.name || note.comment).map((note) => [note.id, note]));
}

/** `MODEL/SITE/UNIT` in its parts; a model's name may hold slashes. */
export function partsOf(id: string): { model: string; site: string; unit: string } {
  const parts = id.split("/");
  return { unit: parts.pop() ?? "", site: parts.pop() ?? "", model: parts.join("/") };
}

/** The place of a token in the grid of patches; null for class tokens and registers, which come first. */
export function patchOf(token: number | null, model: Model | undefined): number | null {
  if (token === null || !model) return null;
  const patch = token - model.prefix.length;
  return patch >= 0 && patch < model.rows * model.columns ? patch : null;
}

export function tokenName(token: number, model: Model | undefined): string {
  const patch = patchOf(token, model);
  if (patch === null || !model) return model?.prefix[token] ?? `token ${token}`;
  return `row ${Math.floor(patch / model.columns) + 1}, column ${(patch % model.columns) + 1}`;
}

export interface Message {
  text: string;
  tone: "plain" | "bad";
  action?: { label: string; run: () => void };
}

export const toast = signal<Message | null>(null);
let fading = 0;

export function say(text: string, options: Partial<Message> = {}): void {
  toast.value = { text, tone: "plain", ...options };
  clearTimeout(fading);
  fading = window.setTimeout(() => (toast.value = null), options.action ? 12_000 : 4_000);
}
