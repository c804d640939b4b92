import { useEffect, useState } from "preact/hooks";

import { neighbours, type Neighbour, type PictureId } from "../api";
import { amount } from "../format";
import { Empty, Failed, Loading } from "../parts/States";
import { Frame, pictureName } from "../parts/Thumb";
import { to } from "../route";
import { modelOf, patchOf, tokenName } from "../state";
import type { Model } from "../types";

type Got = { state: "loading" } | { state: "ready"; items: Neighbour[] } | { state: "failed"; error: Error };

export function Neighbours({ model, picture, block, token }: { model: Model; picture: PictureId; block: number; token: number | null }) {
  const [got, set] = useState<Got>({ state: "loading" });
  useEffect(() => {
    if (token === null) return;
    const stop = new AbortController();
    set({ state: "loading" });
    neighbours(model.name, block, picture, token, stop.signal).then(
      ({ items }) => set({ state: "ready", items }),
      (error: Error) => error.name !== "AbortError" && set({ state: "failed", error }),
    );
    return () => stop.abort();
  }, [model.name, picture, block, token]);
  if (token === null)
    return (
      <Empty title="Click a patch">
        <p>The nearest patches over all pictures, layers and models appear here.</p>
      </Empty>
    );
  if (got.state === "loading") return <Loading what="its neighbours" />;
  if (got.state === "failed") return <Failed error={got.error} what="the neighbours" />;
  return (
    <>
      <p class="quiet">Nearest to {tokenName(token, model)}, block {block}, in the universal space.</p>
      <ul class="neighbours">
        {got.items.map((item, i) => {
          const own = modelOf(item.model);
          return (
            <li key={i} class={`s${(own?.series ?? 0) % 7}`}>
              <a href={to("live", [item.picture], { model: item.model })}>
                <Frame picture={item.picture} patch={patchOf(item.token, own)} model={own} label={`${pictureName(item.picture)}, ${tokenName(item.token, own)}`} sharp />
                <span class="quiet cut">
                  <i class="dot" aria-hidden="true" />
                  {item.model}
                </span>
                <span class="quiet num">
                  layer {item.layer} · {amount(item.similarity)}
                </span>
              </a>
            </li>
          );
        })}
      </ul>
    </>
  );
}
