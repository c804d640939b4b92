import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { theme } from "../state";
import type { Cloud } from "./cloud";
import type { Painted } from "./colours";
import type { Create, Scatter } from "./scatter";

export interface Line {
  x: number[];
  y: number[];
  colour: string;
}

interface PlotProps {
  create: Create;
  cloud: Cloud;
  painted: Painted;
  shown: Uint32Array | null;
  chosen: number[];
  lasso: boolean;
  lines: Line[];
  onOver: (point: number | null, x: number, y: number) => void;
  onChoose: (points: number[]) => void;
}

function ground(): string {
  return getComputedStyle(document.documentElement).getPropertyValue("--paper").trim() || "#ffffff";
}

/** Where the space lies on the canvas now, from two points far apart. */
function sightOf(scatter: Scatter, cloud: Cloud): ((x: number, y: number) => [number, number]) | null {
  let [left, right, low, high] = [0, 0, 0, 0];
  for (let i = 1; i < cloud.count; i++) {
    if ((cloud.x[i] ?? 0) < (cloud.x[left] ?? 0)) left = i;
    if ((cloud.x[i] ?? 0) > (cloud.x[right] ?? 0)) right = i;
    if ((cloud.y[i] ?? 0) < (cloud.y[low] ?? 0)) low = i;
    if ((cloud.y[i] ?? 0) > (cloud.y[high] ?? 0)) high = i;
  }
  return (x, y) => {
    const [a, b, c, d] = [left, right, low, high].map((i) => scatter.getScreenPosition(i) ?? [0, 0]) as [number, number][];
    const wide = (cloud.x[right] ?? 0) - (cloud.x[left] ?? 0) || 1;
    const tall = (cloud.y[high] ?? 0) - (cloud.y[low] ?? 0) || 1;
    return [
      (a?.[0] ?? 0) + ((x - (cloud.x[left] ?? 0)) / wide) * ((b?.[0] ?? 0) - (a?.[0] ?? 0)),
      (c?.[1] ?? 0) + ((y - (cloud.y[low] ?? 0)) / tall) * ((d?.[1] ?? 0) - (c?.[1] ?? 0)),
    ];
  };
}

export function Plot(props: PlotProps) {
  const { create, cloud, painted, shown, chosen, lasso, lines } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const scatter = useRef<Scatter | null>(null);
  const calls = useRef(props);
  calls.current = props;
  const [drawn, setDrawn] = useState(0);
  const [, look] = useState(0);
  const sight = useRef<ReturnType<typeof sightOf>>(null);

  useEffect(() => {
    const [element, around] = [canvas.current, box.current];
    if (!element || !around) return;
    const plot = create({
      canvas: element,
      width: around.clientWidth,
      height: around.clientHeight,
      backgroundColor: ground(),
      pointSize: cloud.count < 20_000 ? 6 : cloud.count < 200_000 ? 4 : 2.5,
      opacityBy: "density",
      colorBy: "valueA",
      lassoColor: [0.04, 0.5, 0.52, 1],
      lassoOnLongPress: true,
      pointSizeSelected: 2,
      pointOutlineWidth: 1,
    });
    scatter.current = plot;
    sight.current = sightOf(plot, cloud);
    plot.subscribe("pointOver", (i) => {
      const [x, y] = plot.getScreenPosition(i as number) ?? [0, 0];
      calls.current.onOver(i as number, x, y);
    });
    plot.subscribe("pointOut", () => calls.current.onOver(null, 0, 0));
    plot.subscribe("select", (event) => calls.current.onChoose((event as { points: number[] }).points));
    plot.subscribe("deselect", () => calls.current.onChoose([]));
    plot.subscribe("view", () => look((n) => n + 1));
    const watch = new ResizeObserver(() => {
      plot.set({ width: around.clientWidth, height: around.clientHeight });
      look((n) => n + 1);
    });
    watch.observe(around);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const turn = () => plot.set({ backgroundColor: ground() });
    dark.addEventListener("change", turn);
    return () => {
      watch.disconnect();
      dark.removeEventListener("change", turn);
      plot.destroy();
      scatter.current = null;
    };
  }, [cloud]);

  useEffect(() => {
    const plot = scatter.current;
    if (!plot) return;
    plot.set({ pointColor: painted.palette.length > 1 ? painted.palette : [...painted.palette, ...painted.palette] });
    const kept = plot.get("spatialIndex") as ArrayBuffer | undefined;
    const options = { zDataType: "categorical" as const, ...(kept && drawn ? { spatialIndex: kept } : {}) };
    void plot.draw({ x: cloud.x, y: cloud.y, valueA: painted.entry }, options).then(() => setDrawn((n) => n + 1));
  }, [cloud, painted]);

  useEffect(() => {
    scatter.current?.set({ backgroundColor: ground() });
  }, [theme.value]);
  // before the next paint: a stroke that begins once the button is pressed must not find the map still moving
  useLayoutEffect(() => {
    scatter.current?.set({ mouseMode: lasso ? "lasso" : "panZoom" });
  }, [lasso]);
  useEffect(() => {
    if (!drawn) return;
    if (shown) void scatter.current?.filter(shown);
    else void scatter.current?.unfilter();
  }, [shown, drawn]);
  useEffect(() => {
    if (drawn && chosen.length) scatter.current?.select(chosen, { preventEvent: true });
    else if (drawn) scatter.current?.deselect({ preventEvent: true });
  }, [chosen, drawn]);

  const at = drawn && lines.length ? sight.current : null;
  return (
    <div ref={box} class="plot" data-drawn={drawn > 0 ? "yes" : "no"}>
      <canvas ref={canvas} aria-label="Map of the universal space: drag to move, wheel to zoom, Shift and drag to draw a lasso" tabIndex={0} />
      {at && (
        <svg class="plot-lines" aria-hidden="true">
          {lines.map((line, k) => {
            const points = line.x.map((x, i) => at(x, line.y[i] ?? 0));
            const end = points[points.length - 1];
            return (
              <g key={k}>
                <polyline class="halo" points={points.map((p) => p.join(",")).join(" ")} />
                <polyline points={points.map((p) => p.join(",")).join(" ")} stroke={line.colour} />
                {end && <circle cx={end[0]} cy={end[1]} r={4.5} fill={line.colour} />}
              </g>
            );
          })}
        </svg>
      )}
    </div>
  );
}
