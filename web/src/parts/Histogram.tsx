import { amount, percent } from "../format";
import type { Card } from "../types";

const WIDE = 320;
const HIGH = 104;
const LEFT = 4;

/** How often the unit answers how strongly. Heights are logarithmic: most answers lie near nothing. */
export function Histogram({ activation, rows }: { activation: NonNullable<Card["activation"]>; rows: Card["rows"] }) {
  const { edges, counts } = activation;
  const first = edges[0] ?? 0;
  const last = edges[edges.length - 1] ?? 1;
  const most = Math.log1p(Math.max(1, ...counts));
  const x = (v: number) => LEFT + ((v - first) / (last - first || 1)) * (WIDE - 2 * LEFT);
  const top = rows[0];
  const strong = top?.low ?? null;
  return (
    <figure class="histogram">
      <svg viewBox={`0 0 ${WIDE} ${HIGH + 30}`} role="img" aria-label={`Answers from ${amount(first)} to ${amount(last)}, mean ${amount(activation.mean)}`}>
        {counts.map((n, i) => {
          const a = x(edges[i] ?? 0);
          const b = x(edges[i + 1] ?? 0);
          const tall = (Math.log1p(n) / most) * HIGH;
          const own = strong !== null && (edges[i + 1] ?? 0) > strong;
          return (
            <rect key={i} class={own ? "strong" : "bar"} x={a + 0.5} y={HIGH - tall} width={Math.max(0.6, b - a - 1)} height={tall}>
              <title>{`${amount(edges[i])} to ${amount(edges[i + 1])}: ${amount(n)}`}</title>
            </rect>
          );
        })}
        <line class="axis" x1={LEFT} x2={WIDE - LEFT} y1={HIGH} y2={HIGH} />
        {first < 0 && last > 0 && <line class="zero" x1={x(0)} x2={x(0)} y1={0} y2={HIGH} />}
        <path class="mean" d={`M${x(activation.mean)},${HIGH}v7`} />
        <text x={LEFT} y={HIGH + 20}>{amount(first)}</text>
        <text x={WIDE - LEFT} y={HIGH + 20} text-anchor="end">{amount(last)}</text>
        <text x={Math.min(WIDE - 60, Math.max(60, x(activation.mean)))} y={HIGH + 20} text-anchor="middle">
          mean {amount(activation.mean)}
        </text>
      </svg>
      <figcaption>
        Its answers to all patches: {percent(activation.positive)} above zero, spread {amount(activation.std)}. Heights are logarithmic
        {strong !== null && "; the coloured end is the row of strongest pictures"}.
      </figcaption>
    </figure>
  );
}
