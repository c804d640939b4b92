import { render } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

import "./style/app.css";
import "virtual:panels.css";
import { refreshNotes } from "./live/notes";
import { About } from "./pages/About";
import { AuditPage } from "./pages/AuditPage";
import { Compare } from "./pages/Compare";
import { Lens } from "./pages/Lens";
import { LivePage } from "./pages/LivePage";
import { MapPage } from "./pages/MapPage";
import { Overview } from "./pages/Overview";
import { PicturePage, PicturesPage } from "./pages/PicturesPage";
import { UnitPage } from "./pages/UnitPage";
import { UnitsPage } from "./pages/UnitsPage";
import { unitName } from "./format";
import { Empty, Failed, Loading } from "./parts/States";
import { Shell } from "./parts/Shell";
import { parse, type Route } from "./route";
import { load, put, useData } from "./source";
import { address, index, live, takeNotes } from "./state";
import type { Index, Live } from "./types";

declare global {
  interface Window {
    vitreous: { put: typeof put };
  }
}

window.vitreous = { put };

const READS = { format: "vitreous site", version: 1 };

function Page({ index, route }: { index: Index; route: Route }) {
  switch (route.page) {
    case "overview":
      return <Overview index={index} />;
    case "lens":
      return <Lens index={index} name={route.name} />;
    case "units":
      return <UnitsPage index={index} />;
    case "unit":
      return <UnitPage id={route.id} sub={route.sub} />;
    case "map":
      return <MapPage index={index} />;
    case "pictures":
      return <PicturesPage index={index} />;
    case "picture":
      return <PicturePage index={index} picture={route.picture} />;
    case "compare":
      return <Compare index={index} a={route.a} b={route.b} />;
    case "about":
      return <About index={index} />;
    case "audit":
      return <AuditPage />;
    case "live":
      return <LivePage index={index} picture={route.picture} />;
    case "unknown":
      return (
        <Empty title="There is no such page">
          <p>
            <a href="#/">Go to the overview</a>
          </p>
        </Empty>
      );
  }
}

function titleOf(route: Route): string {
  const names: Partial<Record<Route["page"], string>> = { units: "Units", map: "Universal space", pictures: "Pictures", compare: "Two models", about: "About", live: "Live", audit: "Audit" };
  if (route.page === "unit") return unitName(route.id);
  if (route.page === "lens") return route.name;
  if (route.page === "picture") return `Picture ${route.picture}`;
  return names[route.page] ?? "Overview";
}

/** What makes a new page: the query does not, nor does another tab or picture of the live page. */
function pageKey(route: Route): string {
  if (route.page === "live" || route.page === "compare") return route.page;
  return route.page === "unit" ? `unit ${route.id}` : JSON.stringify(route);
}

const places = new Map<string, number>();

/** A new page begins at its top and is read from its heading; going back returns to where one was. */
function usePlaces(key: string): void {
  const clicked = useRef(false);
  const first = useRef(true);
  useEffect(() => {
    const click = () => {
      clicked.current = true;
      places.set(location.hash, scrollY);
      setTimeout(() => (clicked.current = false), 400);
    };
    addEventListener("click", click, true);
    return () => removeEventListener("click", click, true);
  }, []);
  useLayoutEffect(() => {
    if (first.current) {
      first.current = false;
      return;
    }
    const back = clicked.current ? 0 : (places.get(location.hash) ?? 0);
    requestAnimationFrame(() => {
      scrollTo(0, back);
      document.querySelector<HTMLElement>("main h1")?.focus({ preventScroll: true });
    });
  }, [key]);
}

function App() {
  const data = useData<Index>("index");
  const { route } = address.value;
  const key = pageKey(route);
  usePlaces(key);
  useEffect(() => {
    const title = data.state === "ready" ? data.value.title : "vitreous";
    document.title = `${titleOf(route)} · ${title}`;
  }, [key, data.state]);
  if (data.state === "loading") return <Loading what="the report" />;
  if (data.state === "failed") return <Failed error={data.error} what="the report" />;
  if (data.value.format !== READS.format || data.value.version !== READS.version)
    return (
      <Empty title="This report is of another kind">
        <p>
          It says “{String(data.value.format)}”, version {String(data.value.version)}; these pages read “{READS.format}”, version {READS.version}. Write it again with <code>vitreous report RUN --out FOLDER</code>.
        </p>
      </Empty>
    );
  index.value ??= data.value;
  return (
    <Shell>
      <Page key={key} index={data.value} route={route} />
    </Shell>
  );
}

async function start(): Promise<void> {
  addEventListener("hashchange", () => (address.value = parse(location.hash)));
  live.value = await load<Live | null>("live").catch(() => null);
  load<Index>("index").then((value) => {
    takeNotes(value.notes ?? []);
    if (live.value) refreshNotes().catch(() => {});
  }, () => {});
  const root = document.getElementById("app");
  if (!root) return;
  root.textContent = "";
  render(<App />, root);
}

if (document.readyState === "loading") addEventListener("DOMContentLoaded", () => void start());
else void start();
