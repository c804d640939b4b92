import type { ComponentChildren, TargetedKeyboardEvent } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

interface GridProps {
  count: number;
  /** least width of a cell; one column when 0 */
  least: number;
  height: (width: number) => number;
  gap?: number;
  label: string;
  render: (i: number) => ComponentChildren;
}

const BEYOND = 600; // pixels drawn above and below what is seen

/** A long list of equal cells of which only those near the window are in the document. Arrow keys go from cell to cell. */
export function Grid({ count, least, height, gap = 0, label, render }: GridProps) {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [seen, setSeen] = useState({ from: 0, to: 0 });
  const columns = least ? Math.max(1, Math.floor((width + gap) / (least + gap))) : 1;
  const cell = (width - gap * (columns - 1)) / columns;
  const step = height(cell) + gap;
  const rows = Math.ceil(count / columns);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const watch = new ResizeObserver(() => setWidth(element.clientWidth));
    watch.observe(element);
    setWidth(element.clientWidth);
    return () => watch.disconnect();
  }, []);

  useEffect(() => {
    const look = () => {
      if (!box.current || !width) return;
      const top = box.current.getBoundingClientRect().top;
      const from = Math.max(0, Math.floor((-top - BEYOND) / step));
      const to = Math.min(rows, Math.ceil((window.innerHeight - top + BEYOND) / step));
      setSeen((was) => (was.from === from && was.to === to ? was : { from, to }));
    };
    look();
    addEventListener("scroll", look, { passive: true });
    addEventListener("resize", look);
    return () => {
      removeEventListener("scroll", look);
      removeEventListener("resize", look);
    };
  }, [width, step, rows]);

  const cells = [];
  for (let i = seen.from * columns; i < Math.min(count, seen.to * columns); i++) {
    const row = Math.floor(i / columns);
    const style = { transform: `translate(${(i % columns) * (cell + gap)}px, ${row * step}px)`, width: `${cell}px`, height: `${step - gap}px` };
    cells.push(
      <div class="cell" role="listitem" key={i} data-i={i} aria-setsize={count} aria-posinset={i + 1} style={style}>
        {render(i)}
      </div>,
    );
  }
  return (
    <div ref={box} class="grid" role="list" aria-label={label} style={{ height: `${Math.max(0, rows * step - gap)}px` }} onKeyDown={(event) => walk(event, columns)}>
      {cells}
    </div>
  );
}

function walk(event: TargetedKeyboardEvent<HTMLDivElement>, columns: number): void {
  const steps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
  const step = steps[event.key];
  const here = (event.target as HTMLElement).closest<HTMLElement>("[data-i]");
  if (step === undefined || !here) return;
  const there = event.currentTarget.querySelector<HTMLElement>(`[data-i="${Number(here.dataset.i) + step}"] a`);
  if (!there) return;
  event.preventDefault();
  there.focus();
}
