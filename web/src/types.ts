/** What the data files of a site hold. The same shapes are written by `vitreous.site`. */

export interface Tile {
  picture: number;
  token: number | null;
  value: number | null;
  /** base64 of one byte a patch, row by row; 255 is the strongest of the row or card */
  heat: string | null;
  caption?: string;
}

export interface Model {
  name: string;
  about: string;
  series: number;
  depth: number;
  width: number;
  rows: number;
  columns: number;
  prefix: string[];
  sites: string[];
  classes: string[] | null;
}

export interface Pictures {
  count: number;
  names: string[];
  files: (string | null)[];
  sheet: { size: number; columns: number; rows: number; files: string[] };
}

export interface Note {
  id: string;
  name: string | null;
  comment: string | null;
  when?: string;
}

export interface LensHead {
  name: string;
  title: string;
  sentence: string;
  there: boolean;
  missing: string | null;
}

export interface Index {
  format: string;
  version: number;
  title: string;
  about: string;
  models: Model[];
  pictures: Pictures;
  overview: {
    lede: string;
    data: string;
    numbers: { label: string; value: string | number; note?: string | null }[];
    statements: { text: string; route?: string | null }[];
    hero: (Tile & { model?: string })[];
  };
  lenses: LensHead[];
  parts: Record<string, boolean>;
  notes: Note[];
  provenance: { run: string; tables: Record<string, Record<string, unknown>> }[];
  python: string;
  downloads?: { label: string; href: string }[];
  single?: boolean;
}

/** One column a property, one entry a unit. */
export interface Units {
  id: string[];
  model: number[];
  site: string[];
  block: number[];
  unit: number[];
  label: (string | null)[];
  score: (number | null)[];
  ms: (number | null)[];
  control: (number | null)[];
  subunits: number[];
  cluster: number[];
  dead: number[];
  top: number[];
  heat: (string | null)[];
  sublabels: ((string | null)[] | null)[];
}

export interface Label {
  text: string;
  score: number;
  chance: number | null;
  others: [string, number][];
}

export interface Place {
  layer: number | string;
  block: number | null;
  token: number | null;
  channel: number;
  distance?: number | null;
  id: string | null;
}

export interface SubUnit {
  id: string;
  size: number;
  inputs: number | null;
  dead: boolean;
  label: Label | string | null;
  ms: number | null;
  control: number | null;
  tiles: Tile[];
  duplicates: string[];
}

export interface Evidence {
  lens: string | null;
  claim: string;
  value: number | null;
  control: number | null;
  low: number | null;
  high: number | null;
  note: string | null;
}

export interface Path {
  model: string;
  layers: string[];
  x: number[];
  y: number[];
  colours: string[];
}

export interface Card {
  id: string;
  model: string;
  site: string;
  block: number;
  unit: number;
  dead: boolean;
  claim: string;
  label: Label | null;
  activation: { edges: number[]; counts: number[]; mean: number; std: number; positive: number } | null;
  rows: { title: string; low: number | null; high: number | null; tiles: Tile[] }[];
  structure: {
    cluster: number | null;
    size: number;
    anchor: Place | null;
    mates: Place[];
    inefficient: boolean;
    span: [number, number] | null;
    sentence: string;
  } | null;
  disentangle: { k: number; rho: number | null; noise: number | null; sentence: string; subunits: SubUnit[] } | null;
  align: {
    sentence: string;
    paths: Path[];
    points: { picture: number; token: number | null; x: number; y: number; colour: string }[];
  } | null;
  tokens: { sentence: string; block: number; tiles: Tile[] } | null;
  similar: { id: string; r: number; label: string | null }[];
  evidence: Evidence[];
  code: string;
  missing: { lens: string; why: string; how: string }[];
}

/** The universal space as it lies in a file: columns in base64, little-endian. */
export interface CloudFile {
  count: number;
  x: string;
  y: string;
  colour: string;
  model: string;
  layer: string;
  picture: string;
  token: string;
  concept: string;
  layers: string[];
  concepts: { name: string; tiles?: Tile[] }[];
  label?: string;
  labels?: string[];
}

export interface LensPage {
  title: string;
  sentence: string;
  html: string;
  toc: { name: string; title: string }[];
}

export interface Live {
  api: string;
  token: string | null;
  /** whether an audit is open there */
  audit?: boolean;
}
