/** Numbers and names for people. */
import { partsOf } from "./state";

const whole = new Intl.NumberFormat("en");

export function amount(v: number | null | undefined): string {
  if (v === null || v === undefined || !Number.isFinite(v)) return "–";
  const size = Math.abs(v);
  if (size >= 1000) return whole.format(Math.round(v));
  if (Number.isInteger(v)) return String(v);
  if (size >= 100) return v.toFixed(0);
  if (size >= 10) return v.toFixed(1);
  if (size >= 0.01) return v.toFixed(2);
  return v.toPrecision(2);
}

export function percent(v: number | null | undefined): string {
  if (v === null || v === undefined || !Number.isFinite(v)) return "–";
  const p = 100 * v;
  return `${p !== 0 && Math.abs(p) < 1 ? p.toPrecision(1) : p.toFixed(0)} %`;
}

export function count(n: number, one: string, many = `${one}s`): string {
  return `${whole.format(n)} ${n === 1 ? one : many}`;
}

/** "Unit 17", or "Sub-unit 17.2". */
export function unitName(id: string): string {
  const { unit } = partsOf(id);
  return `${unit.includes(".") ? "Sub-unit" : "Unit"} ${unit}`;
}

/** "block 7 · mlp.out" */
export function siteName(site: string): string {
  const match = /^blocks\.(\d+)\.(.+)$/.exec(site);
  return match ? `block ${match[1]} · ${match[2]}` : site;
}
