import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";

import { bytesOf } from "../bytes";
import { amount } from "../format";
import { paintHeat } from "../heat";
import { to } from "../route";
import { heatMode, index, modelOf, patchOf } from "../state";
import type { Model, Pictures, Tile } from "../types";

export function pictureName(picture: number | string): string {
  const name = typeof picture === "number" ? index.value?.pictures.names[picture] : undefined;
  return name ?? `picture ${picture}`;
}

/** Where a thumbnail lies: sheets are full but for the last, which ends with its last row. */
export function cellOf(pictures: Pictures, picture: number) {
  const { columns, rows, files } = pictures.sheet;
  const sheet = Math.floor(picture / (columns * rows));
  const place = picture % (columns * rows);
  const held = Math.min(columns * rows, pictures.count - sheet * columns * rows);
  const height = Math.max(1, Math.ceil(held / columns));
  return { sheet, file: files[sheet], column: place % columns, row: Math.floor(place / columns), columns, rows: height };
}

function spriteStyle(picture: number): Record<string, string> {
  const pictures = index.value?.pictures;
  if (!pictures) return {};
  const cell = cellOf(pictures, picture);
  if (!cell.file) return {};
  const share = (at: number, of: number) => (of > 1 ? `${(100 * at) / (of - 1)}%` : "0");
  return {
    backgroundImage: `url("${cell.file}")`,
    backgroundSize: `${100 * cell.columns}% ${100 * cell.rows}%`,
    backgroundPosition: `${share(cell.column, cell.columns)} ${share(cell.row, cell.rows)}`,
  };
}

export function Thumb({ picture, label }: { picture: number; label?: string }) {
  return <span class="thumb" role="img" aria-label={label ?? pictureName(picture)} style={spriteStyle(picture)} />;
}

export function Heat({ bytes, rows, columns }: { bytes: Uint8Array; rows: number; columns: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const mode = heatMode.value;
  useEffect(() => {
    if (canvas.current) paintHeat(canvas.current, bytes, rows, columns, mode);
  }, [bytes, rows, columns, mode]);
  return <canvas ref={canvas} class="heat" aria-hidden="true" />;
}

/** The frame of one patch. */
export function Box({ patch, model }: { patch: number | null; model: Model | undefined }) {
  if (patch === null || !model) return null;
  const style = {
    left: `${(100 * (patch % model.columns)) / model.columns}%`,
    top: `${(100 * Math.floor(patch / model.columns)) / model.rows}%`,
    width: `${100 / model.columns}%`,
    height: `${100 / model.rows}%`,
  };
  return <span class="box" aria-hidden="true" style={style} />;
}

interface FrameProps {
  picture: number;
  heat?: string | null;
  patch?: number | null;
  model: Model | undefined;
  label: string;
  /** the picture itself over its thumbnail, for large frames */
  sharp?: boolean;
  children?: ComponentChildren;
}

export function Frame({ picture, heat, patch = null, model, label, sharp = false, children }: FrameProps) {
  const bytes = useMemo(() => (heat ? bytesOf(heat) : null), [heat]);
  const file = sharp ? index.value?.pictures.files[picture] : null;
  return (
    <span class="frame">
      <Thumb picture={picture} label={label} />
      {file && <img class="sharp" src={file} alt="" loading="lazy" decoding="async" />}
      {bytes && model && <Heat bytes={bytes} rows={model.rows} columns={model.columns} />}
      <Box patch={patch} model={model} />
      {children}
    </span>
  );
}

/** A picture with its heat and a value under it; leads to the picture's page. */
export function TileView({ tile, model, frame = false, sharp = true }: { tile: Tile; model: string; frame?: boolean; sharp?: boolean }) {
  const own = modelOf(model);
  const name = pictureName(tile.picture);
  const said = tile.value === null ? name : `${name}, answer ${amount(tile.value)}`;
  const patch = frame ? patchOf(tile.token, own) : null;
  return (
    <figure class="tile">
      <a href={to("picture", [tile.picture])} title={said}>
        <Frame picture={tile.picture} heat={tile.heat} patch={patch} model={own} label={said} sharp={sharp} />
      </a>
      {(tile.caption || tile.value !== null) && <figcaption>{tile.caption || amount(tile.value)}</figcaption>}
    </figure>
  );
}

export function Tiles({ tiles, model, frame, size = "m" }: { tiles: Tile[]; model: string; frame?: boolean; size?: "s" | "m" | "l" }) {
  return (
    <div class={`tiles tiles-${size}`} style={{ "--columns": tiles.length <= 8 ? Math.max(4, tiles.length) : 6 }}>
      {tiles.map((tile, i) => (
        <TileView key={i} tile={tile} model={model} frame={frame} />
      ))}
    </div>
  );
}
