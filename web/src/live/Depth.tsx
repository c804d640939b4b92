import { useEffect, useMemo, useState } from "preact/hooks";

import { maps, pictureUrl, type Maps, type PictureId } from "../api";
import { Heat } from "../parts/Thumb";
import type { Model } from "../types";

const SLOW = 1500; // ms a block: then the other blocks wait until they are asked for

/** The maps of all blocks, one after the other, once the one looked at is there. */
function useDepth(model: Model, picture: PictureId, ready: boolean): Map<number, Maps> {
  const key = `${model.name} ${picture}`;
  const [got, set] = useState<{ key: string; all: Map<number, Maps> }>({ key, all: new Map() });
  useEffect(() => {
    if (!ready) return;
    let alive = true;
    const gather = async () => {
      const all = new Map<number, Maps>();
      for (let block = model.depth - 1; block >= 0 && alive; block--) {
        const one = await maps(model.name, picture, block);
        if (!alive) return;
        all.set(block, one);
        set({ key, all: new Map(all) });
        if (one.ms > SLOW) return;
      }
    };
    gather().catch(() => {});
    return () => {
      alive = false;
    };
  }, [key, ready]);
  return got.key === key ? got.all : new Map();
}

function Small({ all, token }: { all: Maps; token: number }) {
  const size = all.rows * all.columns;
  const bytes = useMemo(() => all.data.subarray(token * size, (token + 1) * size), [all, token]);
  return <Heat bytes={bytes} rows={all.rows} columns={all.columns} />;
}

interface DepthProps {
  model: Model;
  picture: PictureId;
  token: number | null;
  block: number;
  ready: boolean;
  setBlock: (block: number) => void;
}

/** One token through the depth of the model. */
export function Depth({ model, picture, token, block, ready, setBlock }: DepthProps) {
  const all = useDepth(model, picture, ready);
  const src = pictureUrl(picture, model.name);
  return (
    <div class="depth">
      <h3>The same token, block by block</h3>
      <ol>
        {Array.from({ length: model.depth }, (_, b) => {
          const there = all.get(b);
          return (
            <li key={b}>
              <button aria-pressed={b === block} aria-label={`Block ${b}`} onClick={() => setBlock(b)}>
                <span class="frame">
                  <img class="sharp" src={src} alt="" />
                  {there && token !== null && <Small all={there} token={token} />}
                </span>
                {b}
              </button>
            </li>
          );
        })}
      </ol>
    </div>
  );
}
