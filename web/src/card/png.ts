/** A card as one picture: names, the strongest pictures with their heat, and the sub-units. */
import { bytesOf } from "../bytes";
import { amount, siteName, unitName } from "../format";
import { paintHeat } from "../heat";
import { cellOf } from "../parts/Thumb";
import { load } from "../source";
import { index, modelOf } from "../state";
import type { Card, Model, Tile } from "../types";

const WIDE = 1200;
const EDGE = 40;
const SIDE = 128;
const GAP = 12;

/** From the file system a canvas may not keep pictures of files, so there the sheets come as text. */
async function sheetOf(sheet: number, file: string): Promise<HTMLImageElement> {
  const source = location.protocol === "file:" && !file.startsWith("data:") ? await load<string>(`sprite/${sheet}`) : file;
  const image = new Image();
  image.src = source;
  await image.decode();
  return image;
}

async function sheetsOf(tiles: Tile[]): Promise<Map<number, HTMLImageElement>> {
  const pictures = index.value?.pictures;
  const sheets = new Map<number, HTMLImageElement>();
  if (!pictures) return sheets;
  for (const tile of tiles) {
    const { sheet, file } = cellOf(pictures, tile.picture);
    if (file && !sheets.has(sheet)) sheets.set(sheet, await sheetOf(sheet, file));
  }
  return sheets;
}

function drawTile(context: CanvasRenderingContext2D, tile: Tile, sheets: Map<number, HTMLImageElement>, model: Model, x: number, y: number): void {
  const pictures = index.value?.pictures;
  if (!pictures) return;
  const { sheet, column, row } = cellOf(pictures, tile.picture);
  const size = pictures.sheet.size;
  const image = sheets.get(sheet);
  if (image) context.drawImage(image, column * size, row * size, size, size, x, y, SIDE, SIDE);
  if (tile.heat) {
    const veil = document.createElement("canvas");
    paintHeat(veil, bytesOf(tile.heat), model.rows, model.columns, "veil");
    context.drawImage(veil, x, y, SIDE, SIDE);
  }
  context.fillStyle = "#4d5963";
  context.font = "15px system-ui, sans-serif";
  context.fillText(tile.value === null ? "" : amount(tile.value), x, y + SIDE + 18);
}

function wrapped(context: CanvasRenderingContext2D, text: string, x: number, y: number, step: number): number {
  let line = "";
  for (const word of text.split(/\s+/)) {
    const longer = line ? `${line} ${word}` : word;
    if (line && context.measureText(longer).width > WIDE - 2 * EDGE) {
      context.fillText(line, x, y);
      y += step;
      line = word;
    } else line = longer;
  }
  context.fillText(line, x, y);
  return y + step;
}

interface Strip {
  title: string;
  tiles: Tile[];
}

function stripsOf(card: Card): Strip[] {
  const held = Math.floor((WIDE - 2 * EDGE + GAP) / (SIDE + GAP));
  const rows = card.rows.map((row) => ({ title: row.title, tiles: row.tiles.slice(0, held) }));
  const subs = (card.disentangle?.subunits ?? [])
    .filter((sub) => !sub.dead)
    .slice(0, 12)
    .map((sub) => ({ title: `${unitName(sub.id)}${sub.ms === null ? "" : ` · MS ${amount(sub.ms)}, control ${amount(sub.control)}`}`, tiles: sub.tiles.slice(0, held) }));
  return [...rows, ...subs].filter((strip) => strip.tiles.length);
}

export async function cardPicture(card: Card, title: string): Promise<Blob> {
  const model = modelOf(card.model);
  if (!model) throw new Error(`The report does not know the model ${card.model}.`);
  const strips = stripsOf(card);
  const sheets = await sheetsOf(strips.flatMap((strip) => strip.tiles));
  const canvas = document.createElement("canvas");
  canvas.width = WIDE;
  canvas.height = 230 + strips.length * (SIDE + 66);
  const context = canvas.getContext("2d");
  if (!context) throw new Error("This browser gives no canvas to draw on.");
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = "#0b6a6f";
  context.font = "600 17px system-ui, sans-serif";
  context.fillText(`${card.model} · ${siteName(card.site)} · unit ${card.unit}`, EDGE, 52, WIDE - 2 * EDGE);
  context.fillStyle = "#16202a";
  context.font = "700 40px system-ui, sans-serif";
  context.fillText(title, EDGE, 102, WIDE - 2 * EDGE);
  context.font = "19px system-ui, sans-serif";
  let y = wrapped(context, card.claim, EDGE, 142, 26) + 14;
  for (const strip of strips) {
    context.fillStyle = "#16202a";
    context.font = "600 17px system-ui, sans-serif";
    context.fillText(strip.title, EDGE, y + 14, WIDE - 2 * EDGE);
    strip.tiles.forEach((tile, i) => drawTile(context, tile, sheets, model, EDGE + i * (SIDE + GAP), y + 26));
    y += SIDE + 66;
  }
  return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The picture could not be drawn.")))));
}
