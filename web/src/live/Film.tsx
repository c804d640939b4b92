import { useEffect, useRef, useState } from "preact/hooks";

import { pictureUrl, state, upload, type PictureId, type Upload } from "../api";
import { Thumb, pictureName } from "../parts/Thumb";
import { say } from "../state";

const TYPES = "image/png,image/jpeg,image/webp,image/gif,image/bmp";
const SHOWN = 48;

/** Pictures to choose from, and a place to drop one's own. */
export function Film({ picture, count, choose }: { picture: PictureId; count: number; choose: (id: PictureId) => void }) {
  const [own, setOwn] = useState<Upload[]>([]);
  const [busy, setBusy] = useState(false);
  const [over, setOver] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    state().then((now) => setOwn(now.uploads ?? []), () => {});
  }, []);

  const take = async (file: File | null | undefined) => {
    if (!file) return;
    setBusy(true);
    try {
      const got = await upload(file);
      setOwn((was) => [...was.filter((other) => other.id !== got.id), got]);
      choose(got.id);
    } catch (error) {
      say((error as Error).message, { tone: "bad" });
    } finally {
      setBusy(false);
    }
  };

  useEffect(() => {
    const hold = (event: DragEvent) => {
      event.preventDefault();
      setOver(event.type === "dragover");
    };
    const drop = (event: DragEvent) => {
      hold(event);
      void take(event.dataTransfer?.files[0]);
    };
    const paste = (event: ClipboardEvent) => void take(event.clipboardData?.files[0]);
    addEventListener("dragover", hold);
    addEventListener("dragleave", hold);
    addEventListener("drop", drop);
    addEventListener("paste", paste);
    return () => {
      removeEventListener("dragover", hold);
      removeEventListener("dragleave", hold);
      removeEventListener("drop", drop);
      removeEventListener("paste", paste);
    };
  }, []);

  const first = typeof picture === "number" ? Math.max(0, Math.min(count - SHOWN, picture - SHOWN / 2)) : 0;
  return (
    <div class="film" role="group" aria-label="Pictures">
      <button class={`drop ${over ? "over" : ""}`} onClick={() => field.current?.click()} disabled={busy}>
        {busy ? "Reading …" : over ? "Let go" : "Drop, paste or choose a picture"}
      </button>
      <input ref={field} type="file" accept={TYPES} hidden aria-label="A picture of your own" onChange={(event) => take(event.currentTarget.files?.[0])} />
      {own.map((mine) => (
        <button key={mine.id} class="film-cell" aria-pressed={picture === mine.id} title={mine.name ?? mine.id} onClick={() => choose(mine.id)}>
          <img src={pictureUrl(mine.id)} alt={mine.name ?? "your picture"} />
        </button>
      ))}
      {Array.from({ length: Math.min(SHOWN, count) }, (_, i) => first + i).map((k) => (
        <button key={k} class="film-cell" aria-pressed={picture === k} title={pictureName(k)} onClick={() => choose(k)}>
          <Thumb picture={k} />
        </button>
      ))}
    </div>
  );
}
