/** The space from a data file, or as plain bytes from the explorer: the same columns either way. */
import { cloudBytes } from "../api";
import { load } from "../source";
import type { CloudFile } from "../types";
import { cloudFrom, cloudOf, type Cloud } from "./cloud";

let kept: Promise<Cloud> | null = null;

export function loadCloud(served: boolean): Promise<Cloud> {
  const file = () => load<CloudFile>("cloud").then(cloudOf);
  kept ??= served ? cloudBytes().then(cloudFrom).catch(file) : file();
  kept.catch(() => (kept = null));
  return kept;
}
