import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";

import { to } from "../route";
import { address, heatMode, HEATS, index, live, theme, THEMES, toast } from "../state";
import { Search } from "./Search";

function Item({ href, on, children }: { href: string; on: boolean; children: ComponentChildren }) {
  return (
    <li>
      <a href={href} aria-current={on ? "page" : undefined}>
        {children}
      </a>
    </li>
  );
}

/** Pages beside those of the four lenses are reached from the overview; the bar has no room for all. */
const LENSES = ["structure", "disentangle", "align", "tokens"];

function Navigation() {
  const { route } = address.value;
  const models = index.value?.models ?? [];
  return (
    <ul class="nav">
      <Item href="#/" on={route.page === "overview"}>
        Overview
      </Item>
      <Item href="#/units" on={route.page === "units" || route.page === "unit"}>
        Units
      </Item>
      {index.value?.lenses.filter((lens) => LENSES.includes(lens.name)).map((lens) => (
        <Item key={lens.name} href={to("lens", [lens.name])} on={route.page === "lens" && route.name === lens.name}>
          {lens.title}
        </Item>
      ))}
      <Item href="#/map" on={route.page === "map"}>
        Map
      </Item>
      <Item href="#/pictures" on={route.page === "pictures" || route.page === "picture"}>
        Pictures
      </Item>
      {models.length > 1 && (
        <Item href="#/compare" on={route.page === "compare"}>
          Compare
        </Item>
      )}
      {live.value && (
        <Item href="#/live" on={route.page === "live"}>
          <span class="lamp" aria-hidden="true" />
          Live
        </Item>
      )}
      {live.value?.audit && (
        <Item href="#/audit" on={route.page === "audit"}>
          Audit
        </Item>
      )}
      <Item href="#/about" on={route.page === "about"}>
        About
      </Item>
    </ul>
  );
}

const THEME_NAMES = { system: "as your system", light: "light", dark: "dark" } as const;
const HEAT_NAMES = { veil: "a veil over the rest", colour: "colours", off: "off" } as const;

function next<T>(list: readonly T[], now: T): T {
  return list[(list.indexOf(now) + 1) % list.length] as T;
}

function Wish({ name, said, turn, children }: { name: string; said: string; turn: () => void; children: ComponentChildren }) {
  return (
    <button class="wish" data-wish={name} title={said} aria-label={said} onClick={turn}>
      <svg viewBox="0 0 16 16" width="18" height="18" aria-hidden="true">
        {children}
      </svg>
    </button>
  );
}

function Wishes() {
  return (
    <div class="wishes">
      <Wish name="heat" said={`Heat over pictures: ${HEAT_NAMES[heatMode.value]} (key h)`} turn={() => (heatMode.value = next(HEATS, heatMode.value))}>
        <circle cx="8" cy="8" r="6.2" fill="none" stroke="currentColor" stroke-width="1.4" />
        {heatMode.value !== "off" && <circle cx="8" cy="8" r="3" fill={heatMode.value === "colour" ? "#e4543e" : "currentColor"} />}
      </Wish>
      <Wish name="theme" said={`Light or dark: ${THEME_NAMES[theme.value]}`} turn={() => (theme.value = next(THEMES, theme.value))}>
        <circle cx="8" cy="8" r="6.2" fill={theme.value === "dark" ? "currentColor" : "none"} stroke="currentColor" stroke-width="1.4" />
        {theme.value === "system" && <path d="M8 1.8a6.2 6.2 0 0 1 0 12.4z" fill="currentColor" />}
      </Wish>
    </div>
  );
}

function Toast() {
  const message = toast.value;
  return (
    <div class="toasts" role="status" aria-live="polite">
      {message && (
        <div class={`toast ${message.tone}`}>
          <span>{message.text}</span>
          {message.action && (
            <button
              class="button small"
              onClick={() => {
                message.action?.run();
                toast.value = null;
              }}
            >
              {message.action.label}
            </button>
          )}
        </div>
      )}
    </div>
  );
}

export function Shell({ children }: { children: ComponentChildren }) {
  const [open, setOpen] = useState(false);
  const where = address.value;
  useEffect(() => setOpen(false), [where]);
  useEffect(() => {
    const keys = (event: KeyboardEvent) => {
      const typing = (event.target as HTMLElement).closest("input, textarea, select, [contenteditable]");
      if (event.key === "h" && !typing && !event.ctrlKey && !event.metaKey) heatMode.value = next(HEATS, heatMode.value);
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById("main")?.focus();
        }}
      >
        Skip to the page
      </a>
      <header class="top">
        <div class="wrap top-row">
          <a class="mark" href="#/" aria-label="vitreous: overview">
            <span class="gem" aria-hidden="true" />
            vitreous
          </a>
          <button class="menu button" aria-expanded={open} aria-controls="nav" onClick={() => setOpen(!open)}>
            Menu
          </button>
          <nav id="nav" class={open ? "open" : ""} aria-label="Pages">
            <Navigation />
          </nav>
          <Search />
          <Wishes />
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        {children}
      </main>
      <Toast />
    </>
  );
}
