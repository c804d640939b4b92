/**
 * Data comes in script tags, each of which calls `vitreous.put(key, value)`: a page opened from the file system may load
 * scripts but may not fetch. What is already there (a single-file report holds everything) is never asked for again.
 */
import { useEffect, useState } from "preact/hooks";

interface Waiting {
  promise: Promise<unknown>;
  settle: (value: unknown) => void;
}

const kept = new Map<string, unknown>();
const waiting = new Map<string, Waiting>();

export class Absent extends Error {
  constructor(readonly key: string) {
    super(`data/${key}.js could not be read`);
  }
}

export function put(key: string, value: unknown): void {
  kept.set(key, value);
  waiting.get(key)?.settle(value);
  waiting.delete(key);
}

export function scriptOf(key: string): string {
  const path = key.split("/").map(encodeURIComponent).join("/");
  return key.startsWith("app/") ? `${path}.js` : `data/${path}.js`;
}

export function load<T>(key: string): Promise<T> {
  if (kept.has(key)) return Promise.resolve(kept.get(key) as T);
  const before = waiting.get(key);
  if (before) return before.promise as Promise<T>;
  let settle: (value: unknown) => void = () => {};
  const promise = new Promise<unknown>((resolve, reject) => {
    settle = resolve;
    const script = document.createElement("script");
    script.src = scriptOf(key);
    const refuse = () => {
      if (!waiting.delete(key)) return;
      reject(new Absent(key));
    };
    script.onerror = refuse;
    script.onload = () => {
      script.remove();
      refuse(); // a file that ran to its end without a put is damaged
    };
    document.head.append(script);
  });
  waiting.set(key, { promise, settle });
  return promise as Promise<T>;
}

export function peek<T>(key: string): T | undefined {
  return kept.get(key) as T | undefined;
}

export type Loaded<T> = { state: "loading" } | { state: "ready"; value: T } | { state: "failed"; error: Error };

export function useData<T>(key: string | null): Loaded<T> {
  const [loaded, set] = useState<{ key: string | null; got: Loaded<T> }>({ key: null, got: { state: "loading" } });
  useEffect(() => {
    if (key === null) return;
    let alive = true;
    load<T>(key).then(
      (value) => alive && set({ key, got: { state: "ready", value } }),
      (error: Error) => alive && set({ key, got: { state: "failed", error } }),
    );
    return () => {
      alive = false;
    };
  }, [key]);
  if (key !== null && kept.has(key)) return { state: "ready", value: kept.get(key) as T };
  return loaded.key === key ? loaded.got : { state: "loading" };
}
