import { useState } from "preact/hooks";

import { activations, type Activation } from "../api";
import { amount } from "../format";
import { Frame, pictureName } from "../parts/Thumb";
import { index, modelOf, say } from "../state";

/** The unit's answer to a picture of the reader's choice. */
export function Answers({ id, model }: { id: string; model: string }) {
  const all = index.value?.pictures.count ?? 0;
  const [got, set] = useState<{ picture: number; answer: Activation } | null>(null);
  const look = (picture: number) =>
    activations(model, picture, id).then(
      (answer) => set({ picture, answer }),
      (error: Error) => say(error.message, { tone: "bad" }),
    );
  return (
    <div class="panel answers">
      <div>
        <h3>On another picture</h3>
        <p class="quiet">Computed now by the model.</p>
        <p class="actions">
          <label>
            <span>Picture</span>
            <input
              type="number"
              min={0}
              max={all - 1}
              value={got?.picture ?? ""}
              placeholder={`0 to ${all - 1}`}
              onChange={(event) => event.currentTarget.value !== "" && look(Math.min(all - 1, Math.max(0, Number(event.currentTarget.value))))}
            />
          </label>
          <button class="button small" onClick={() => look(Math.floor(Math.random() * all))}>
            Any
          </button>
        </p>
      </div>
      {got && (
        <figure class="tile">
          <Frame picture={got.picture} heat={got.answer.heat} model={modelOf(model)} label={`${pictureName(got.picture)} with the unit's answer`} sharp />
          <figcaption>{got.answer.value != null ? amount(got.answer.value) : pictureName(got.picture)}</figcaption>
        </figure>
      )}
    </div>
  );
}
