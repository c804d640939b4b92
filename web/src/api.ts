/** The explorer's server, when there is one. */
import { bytesOf } from "./bytes";
import { sentence } from "./sentence";
import { live } from "./state";
import type { Note } from "./types";

export type PictureId = number | string;

interface Problem {
  error?: { what?: string; given?: string; accepted?: string; remedy?: string };
}

async function ask(path: string, init: RequestInit = {}): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(address(path), init);
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error;
    throw new Error("The explorer does not answer. Is `vitreous explore` still running?");
  }
  if (answer.ok) return answer;
  const problem = (await answer.json().catch(() => ({}))) as Problem;
  const { what, accepted, remedy } = problem.error ?? {};
  const said = [what ?? `The explorer answered ${answer.status}`, accepted && `accepted: ${accepted}`, remedy];
  throw new Error(said.filter((part): part is string => !!part).map(sentence).join(" "));
}

function address(path: string): string {
  const base = live.value?.api ?? "/api";
  const token = live.value?.token;
  if (!token) return base + path;
  return `${base}${path}${path.includes("?") ? "&" : "?"}token=${encodeURIComponent(token)}`;
}

async function get<T>(path: string, params: Record<string, string | number> = {}, signal?: AbortSignal): Promise<T> {
  const query = new URLSearchParams(Object.entries(params).map(([name, value]) => [name, String(value)])).toString();
  return (await (await ask(query ? `${path}?${query}` : path, { signal })).json()) as T;
}

async function send<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const init = { method, signal, headers: { "content-type": "application/json" }, body: body === undefined ? undefined : JSON.stringify(body) };
  const text = await (await ask(path, init)).text();
  return (text ? JSON.parse(text) : null) as T;
}

/** A picture; with a model, cut as that model sees it. */
export function pictureUrl(id: PictureId, model?: string): string {
  return address(`/picture/${encodeURIComponent(id)}${model === undefined ? "" : `?model=${encodeURIComponent(model)}`}`);
}

export interface Upload {
  id: string;
  name?: string;
  width: number;
  height: number;
}

export const state = () => get<{ uploads: Upload[] }>("/state");

export async function upload(file: File): Promise<Upload> {
  return (await (await ask(`/pictures?name=${encodeURIComponent(file.name.slice(0, 200))}`, { method: "POST", headers: { "content-type": file.type || "application/octet-stream" }, body: file })).json()) as Upload;
}

export interface Maps {
  rows: number;
  columns: number;
  prefix: string[];
  tokens: number;
  /** the map of token t at t * rows * columns */
  data: Uint8Array;
  ms: number;
}

const kept = new Map<string, Promise<Maps>>();
const KEPT = 96;

/** The maps of all tokens of a block at once, so that moving the mouse costs no further question. */
export function maps(model: string, picture: PictureId, block: number): Promise<Maps> {
  const key = `${model} ${picture} ${block}`;
  const before = kept.get(key);
  if (before) return before;
  const got = get<Omit<Maps, "data"> & { data: string }>("/maps", { model, picture, block }).then((answer) => ({ ...answer, data: bytesOf(answer.data) }));
  kept.set(key, got);
  got.catch(() => kept.delete(key));
  if (kept.size > KEPT) kept.delete(kept.keys().next().value ?? "");
  return got;
}

export interface Segments {
  rows: number;
  columns: number;
  k: number;
  most: number;
  labels: number[];
}

export const segments = (model: string, picture: PictureId, block: number, k: number, signal?: AbortSignal) => get<Segments>("/segments", { model, picture, block, k }, signal);

export interface Neighbour {
  model: string;
  layer: number | string;
  picture: number;
  token: number;
  similarity: number;
}

export const neighbours = (model: string, layer: number | string, picture: PictureId, token: number, signal?: AbortSignal) =>
  get<{ items: Neighbour[] }>("/neighbours", { model, layer, picture, token, count: 24 }, signal);

export interface Activation {
  rows: number;
  columns: number;
  heat: string;
  value?: number | null;
}

export const activations = (model: string, picture: PictureId, unit: string) => get<Activation>("/activations", { model, picture, unit });

export interface Steered {
  classes: string[] | null;
  before: number[] | null;
  after: number[] | null;
  heat_before: string | null;
  heat_after: string | null;
  heat_of: "class" | "patches";
  changed: number;
}

export interface Steering {
  model: string;
  picture: PictureId;
  block: number;
  subunits: { id: string; factor: number }[];
  prefix: boolean;
}

export const steer = (asked: Steering, signal?: AbortSignal) => send<Steered>("POST", "/steer", asked, signal);

export const readNotes = () => get<{ notes: Note[] } | Note[]>("/notes").then((answer) => (Array.isArray(answer) ? answer : answer.notes));
export const postNote = (note: { id: string; name: string | null; comment: string | null }) => send<{ undo: string }>("POST", "/notes", note);
export const deleteNote = (id: string) => send<{ undo: string }>("DELETE", `/notes?id=${encodeURIComponent(id)}`);
export const undo = (token: string) => send<unknown>("POST", "/notes/undo", { undo: token });

export interface Job {
  state: "waiting" | "running" | "done" | "cancelled" | "failed";
  done: number;
  total: number;
  error?: string | null;
}

export const startJob = (model: string, pictures: PictureId[], blocks: number[]) => send<{ job: string }>("POST", "/jobs", { kind: "maps", model, pictures, blocks });
export const readJob = (job: string) => get<Job>(`/jobs/${encodeURIComponent(job)}`);
export const cancelJob = (job: string) => send<unknown>("DELETE", `/jobs/${encodeURIComponent(job)}`);
export const cloudBytes = async () => new Uint8Array(await (await ask("/cloud")).arrayBuffer());

/** A tested part of a layer; what was not measured is null. */
export interface AuditRow {
  site: string;
  id: number;
  name: string;
  kind: "unit" | "sub-unit";
  target: number;
  label: string | null;
  suspicion: number;
  p: number;
  corrected: number;
  alarm: boolean;
  whole: number;
  of_unit: number | null;
  ablation: number | null;
  selectivity: number | null;
  outside: number | null;
  agreement: number | null;
}

export type AuditPart = Pick<AuditRow, "site" | "id">;

export interface Audit {
  model: string;
  data: string;
  sites: string[];
  pictures: number;
  accuracy: number;
  classes: string[];
  basis: string;
  answer: string;
  means: string;
  limits: string[];
  groups: "given" | "proposed";
  controls: { site: string; name: string; value: number | null; should: string }[];
  off: AuditPart[];
  parts: number;
  alarms: number;
  rows: AuditRow[];
}

export interface AuditTiles {
  rows: number;
  columns: number;
  /** whether it speaks for its class by being strong; if not, bright is where it is weak */
  strong: boolean;
  tiles: { picture: number; name: string; true: number; adds: number; heat: string }[];
}

export interface Decision {
  picture: number;
  name: string;
  true: number;
  group: string;
  before: number;
  after: number;
}

export interface Switched {
  parts: number;
  rows: { what: string; pictures: number; before: number; after: number }[];
  pictures: number;
  changed: number;
  mended: number;
  broken: number;
  shift: number;
  decisions: Decision[];
}

export const audit = () => get<Audit>("/audit");
export const auditPart = ({ site, id }: AuditPart) => get<AuditTiles>("/audit/part", { site, id });
export const auditPicture = (picture: number) => address(`/audit/picture/${picture}`);
export const switchOff = (parts: AuditPart[], signal?: AbortSignal) => send<Switched>("POST", "/audit/switch", { parts }, signal);
export const switchProgress = () => get<{ loaded: boolean; done: number; total: number }>("/audit/progress");
export const patchFile = async (parts: AuditPart[]) =>
  (await ask("/audit/patch", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ parts }) })).blob();
