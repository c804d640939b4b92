import { useEffect, useRef } from "preact/hooks";

import { Empty, When } from "../parts/States";
import { useData } from "../source";
import type { Index, LensPage } from "../types";

function jump(name: string): void {
  const there = document.getElementById(name);
  there?.scrollIntoView({ behavior: "smooth" });
  there?.setAttribute("tabindex", "-1");
  there?.focus({ preventScroll: true });
}

/** Panels that Python has drawn, escaped there. Links inside a page must not change the address, which is ours. */
function Panels({ page }: { page: LensPage }) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const follow = (event: MouseEvent) => {
      const href = (event.target as HTMLElement).closest("a")?.getAttribute("href");
      if (href?.startsWith("#") && !href.startsWith("#/")) {
        event.preventDefault();
        jump(href.slice(1));
      }
    };
    element.addEventListener("click", follow);
    return () => element.removeEventListener("click", follow);
  }, []);
  return <div ref={box} class="vt-panels" dangerouslySetInnerHTML={{ __html: page.html }} />;
}

function Contents({ page }: { page: LensPage }) {
  if (page.toc.length < 2) return null;
  return (
    <nav class="toc" aria-label="On this page">
      <ul>
        {page.toc.map((entry) => (
          <li key={entry.name}>
            <button onClick={() => jump(entry.name)}>{entry.title}</button>
          </li>
        ))}
      </ul>
    </nav>
  );
}

export function Lens({ index, name }: { index: Index; name: string }) {
  const head = index.lenses.find((lens) => lens.name === name);
  const page = useData<LensPage>(head?.there ? `lens/${name}` : null);
  if (!head) return <Empty title={`There is no lens called “${name}”`} />;
  return (
    <div class="wrap page">
      <p class="eyebrow">Lens</p>
      <h1 tabIndex={-1}>{head.title}</h1>
      <p class="lede">{head.sentence}</p>
      {head.there ? (
        <When loaded={page} what={`the page of ${head.title.toLowerCase()}`}>
          {(value) => (
            <>
              <Contents page={value} />
              <Panels key={name} page={value} />
            </>
          )}
        </When>
      ) : (
        <Empty title="This run does not hold it">
          <p>{head.missing}</p>
        </Empty>
      )}
    </div>
  );
}
