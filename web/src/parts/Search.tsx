import { useEffect, useRef, useState } from "preact/hooks";

import { siteName, unitName } from "../format";
import { to, toUnit } from "../route";
import { find } from "../search";
import { useData } from "../source";
import { index, notes, partsOf } from "../state";
import type { Units } from "../types";
import { Thumb } from "./Thumb";

const SHOWN = 8;

function hits(units: Units, text: string): number[] {
  const models = index.value?.models.map((model) => model.name) ?? [];
  return find(units, models, notes.value, { q: text, model: "", block: "", only: [], sort: "score" });
}

/** Search over labels, names and ids from every page. `/` brings you here. */
export function Search() {
  const [text, setText] = useState("");
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(-1);
  const field = useRef<HTMLInputElement>(null);
  const units = useData<Units>(open ? "units" : null);

  useEffect(() => {
    const jump = (event: KeyboardEvent) => {
      const typing = (event.target as HTMLElement).closest("input, textarea, select, [contenteditable]");
      if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        field.current?.focus();
      }
    };
    addEventListener("keydown", jump);
    return () => removeEventListener("keydown", jump);
  }, []);

  const found = open && text.trim() && units.state === "ready" ? hits(units.value, text) : [];
  const shown = found.slice(0, SHOWN);
  const go = (hash: string) => {
    setOpen(false);
    setText("");
    field.current?.blur();
    location.hash = hash;
  };
  const keys = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setAt(Math.max(-1, Math.min(shown.length - 1, at + (event.key === "ArrowDown" ? 1 : -1))));
    } else if (event.key === "Escape") {
      setOpen(false);
      field.current?.blur();
    }
  };
  const submit = (event: Event) => {
    event.preventDefault();
    const one = units.state === "ready" ? units.value.id[shown[at] ?? -1] : undefined;
    go(one ? toUnit(one) : to("units", [], { q: text }));
  };
  return (
    <form class="search" role="search" onSubmit={submit} onFocusOut={(event) => !event.currentTarget.contains(event.relatedTarget as Node) && setOpen(false)}>
      <input
        ref={field}
        type="search"
        value={text}
        placeholder="Search"
        aria-label="Search units and labels"
        role="combobox"
        list={undefined}
        aria-expanded={shown.length > 0}
        aria-controls="hits"
        aria-activedescendant={at >= 0 ? `hit-${at}` : undefined}
        autocomplete="off"
        onFocus={() => setOpen(true)}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setAt(-1);
          setOpen(true);
        }}
        onKeyDown={keys}
      />
      <kbd aria-hidden="true">/</kbd>
      {open && text.trim() && (
        <div class="hits" id="hits" role="listbox" aria-label="Units found">
          {units.state === "ready" && shown.map((i, k) => <Hit key={i} units={units.value} i={i} k={k} on={k === at} />)}
          <p class="quiet">
            {units.state === "loading" ? "Opening the index …" : found.length === 0 ? "No unit has these words." : `${found.length} found · Enter shows all`}
          </p>
        </div>
      )}
    </form>
  );
}

function Hit({ units, i, k, on }: { units: Units; i: number; k: number; on: boolean }) {
  const id = units.id[i] ?? "";
  const { model, site } = partsOf(id);
  return (
    <a class="hit" id={`hit-${k}`} role="option" aria-selected={on} href={toUnit(id)} tabIndex={-1} onMouseDown={(event) => event.preventDefault()}>
      <span class="frame">
        <Thumb picture={units.top[i] ?? 0} />
      </span>
      <span>
        <strong>{notes.value.get(id)?.name ?? units.label[i] ?? unitName(id)}</strong>
        <span class="quiet">
          {model} · {siteName(site)} · {unitName(id)}
        </span>
      </span>
    </a>
  );
}
