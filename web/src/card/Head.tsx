import { useState } from "preact/hooks";

import { dropNote, undoNote, writeNote } from "../live/notes";
import { amount, siteName, unitName } from "../format";
import { copy, save } from "../parts/Copy";
import { Histogram } from "../parts/Histogram";
import { to } from "../route";
import { index, live, modelOf, notes, say } from "../state";
import type { Card, Note } from "../types";
import { cardPicture } from "./png";

function Editor({ id, note, close }: { id: string; note: Note | undefined; close: () => void }) {
  const [name, setName] = useState(note?.name ?? "");
  const [comment, setComment] = useState(note?.comment ?? "");
  const done = (text: string, undo: string) => {
    say(text, { action: { label: "Undo", run: () => void undoNote(undo) } });
    close();
  };
  const refuse = (error: Error) => say(error.message, { tone: "bad" });
  const keep = (event: Event) => {
    event.preventDefault();
    writeNote(id, name.trim(), comment.trim()).then((undo) => done("Kept in the run folder", undo), refuse);
  };
  return (
    <form class="editor panel" onSubmit={keep} onKeyDown={(event) => event.key === "Escape" && close()}>
      <label>
        <span>Name</span>
        <input value={name} maxLength={200} autofocus onInput={(event) => setName(event.currentTarget.value)} placeholder="What you would call it" />
      </label>
      <label>
        <span>Comment</span>
        <textarea rows={2} maxLength={4000} value={comment} onInput={(event) => setComment(event.currentTarget.value)} />
      </label>
      <p class="actions">
        <button class="button strong" type="submit" disabled={!name.trim() && !comment.trim()}>
          Keep
        </button>
        <button class="button" type="button" onClick={close}>
          Leave it
        </button>
        {note && (
          <button class="button" type="button" onClick={() => dropNote(id).then((undo) => done("Name and comment removed", undo), refuse)}>
            Remove
          </button>
        )}
      </p>
    </form>
  );
}

function Scores({ card }: { card: Card }) {
  const label = card.label;
  if (!label) return null;
  return (
    <p class="label-score">
      <strong>{amount(label.score)}</strong> label score
      {label.chance !== null && <> · chance {amount(label.chance)}</>}
      {label.others.length > 0 && (
        <span class="others">
          next best{" "}
          {label.others.slice(0, 4).map(([text, score], i) => (
            <span key={i} class="chip still">
              {text} <b>{amount(score)}</b>
            </span>
          ))}
        </span>
      )}
    </p>
  );
}

function Actions({ card, title }: { card: Card; title: string }) {
  const stem = card.id.replace(/[^\w.-]+/g, "_");
  const png = () => cardPicture(card, title).then((blob) => save(`${stem}.png`, blob)).catch((error: Error) => say(error.message, { tone: "bad" }));
  const parquet = index.value?.downloads?.find((file) => file.href.endsWith(".parquet"));
  return (
    <p class="actions card-actions">
      <button class="button small" onClick={() => copy(card.code, "Python")}>Copy Python</button>
      <button class="button small" onClick={() => copy(location.href, "Link")}>Copy link</button>
      <button class="button small" onClick={() => save(`${stem}.json`, new Blob([JSON.stringify(card, null, 1)], { type: "application/json" }))}>JSON</button>
      <button class="button small" onClick={png}>PNG</button>
      {parquet && (
        <a class="button small" href={parquet.href} download>
          Parquet <span class="quiet">(all units)</span>
        </a>
      )}
    </p>
  );
}

export function Head({ card }: { card: Card }) {
  const [editing, setEditing] = useState(false);
  const model = modelOf(card.model);
  const note = notes.value.get(card.id);
  const title = note?.name || card.label?.text || unitName(card.id);
  const named = title !== unitName(card.id);
  return (
    <header class={`card-head s${(model?.series ?? 0) % 7}`}>
      <div>
        <p class="eyebrow card-where">
          <i class="dot" aria-hidden="true" />
          <a href={to("units", [], { model: card.model })}>{card.model}</a>
          <span>{siteName(card.site)}</span>
          <span>unit {card.unit}</span>
          {card.dead && <span class="flag-inline">dead</span>}
        </p>
        <h1 tabIndex={-1} class={title.length > 40 ? "long" : ""}>
          {named ? <q>{title}</q> : title}
        </h1>
        {note?.name && card.label && <p class="quiet">Named by hand; the label found was “{card.label.text}”.</p>}
        <Scores card={card} />
        <p class="claim">{card.claim}</p>
        {note?.comment && <blockquote class="comment">{note.comment}</blockquote>}
        {editing ? (
          <Editor id={card.id} note={note} close={() => setEditing(false)} />
        ) : (
          live.value && (
            <p>
              <button class="button small" onClick={() => setEditing(true)}>
                {note ? "Change name or comment" : "Rename or comment"}
              </button>
            </p>
          )
        )}
        <Actions card={card} title={title} />
      </div>
      {card.activation && <Histogram activation={card.activation} rows={card.rows} />}
    </header>
  );
}
