import { Code } from "../parts/Copy";
import { toUnit } from "../route";
import { notes } from "../state";
import type { Index } from "../types";

function shown(value: unknown): string {
  if (value === null || value === undefined) return "–";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function Table({ title, rows }: { title: string; rows: Record<string, unknown> }) {
  return (
    <section class="settings">
      <h3>{title}</h3>
      <dl>
        {Object.entries(rows).map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{shown(value)}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

export function About({ index }: { index: Index }) {
  const written = [...notes.value.values()];
  return (
    <div class="wrap page">
      <h1 tabIndex={-1}>About this report</h1>
      <p class="lede">{index.about}</p>
      {index.downloads && index.downloads.length > 0 && (
        <p class="actions">
          {index.downloads.map((file) => (
            <a key={file.href} class="button" href={file.href} download>
              {file.label}
            </a>
          ))}
        </p>
      )}
      {index.provenance.map((run) => (
        <section class="part" key={run.run}>
          <h2 class="long">{run.run}</h2>
          <div class="settings-grid">
            {Object.entries(run.tables).map(([title, rows]) => (
              <Table key={title} title={title} rows={rows} />
            ))}
          </div>
        </section>
      ))}
      <section class="part">
        <h2>Names and comments given by people</h2>
        {written.length === 0 ? (
          <p class="sentence">None yet. In the explorer (<code>vitreous explore RUN</code>) each card can be renamed and commented.</p>
        ) : (
          <ul class="notes">
            {written.map((note) => (
              <li key={note.id}>
                <a href={toUnit(note.id)}>{note.id}</a> {note.name && <strong>{note.name}</strong>} {note.comment} <span class="quiet">{note.when}</span>
              </li>
            ))}
          </ul>
        )}
      </section>
      <section class="part">
        <h2>Open it in Python</h2>
        <Code code={index.python} />
      </section>
      <section class="part">
        <h2>Keys</h2>
        <ul class="keys">
          <li><kbd>/</kbd> search</li>
          <li><kbd>h</kbd> heat as a veil, as colour, off</li>
          <li><kbd>←</kbd> <kbd>→</kbd> on a card: previous and next unit; in lists and on live pictures: from one to the next</li>
        </ul>
      </section>
    </div>
  );
}
