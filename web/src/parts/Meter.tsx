import { amount } from "../format";
import type { Evidence } from "../types";

/** A value on a line, the control as a mark on the same line, and how sure we are of the value. */
export function Meter({ value, control, low, high, series }: { value: number; control: number | null; low?: number | null; high?: number | null; series?: number }) {
  const shown = [value, control ?? 0, low ?? 0, high ?? 0];
  const floor = Math.min(0, ...shown);
  const top = Math.max(floor < 0 ? 0.01 : 0, ...shown);
  const ceiling = top <= 1 ? 1 : top * 1.08;
  const at = (v: number) => `${(100 * (v - floor)) / (ceiling - floor)}%`;
  const from = Math.min(0, value);
  const said = `${amount(value)}${control === null ? "" : `, control ${amount(control)}`}`;
  return (
    <span class="meter" role="img" aria-label={said} style={series === undefined ? {} : { "--own": `var(--s${series % 7})` }}>
      <span class="fill" style={{ left: at(from), width: `${(100 * Math.abs(value)) / (ceiling - floor)}%` }} />
      {low != null && high != null && <span class="spread" style={{ left: at(low), width: `${(100 * (high - low)) / (ceiling - floor)}%` }} />}
      {control !== null && <span class="tick" style={{ left: at(control) }} />}
    </span>
  );
}

function Proof({ item, series }: { item: Evidence; series?: number }) {
  const better = item.value !== null && item.control !== null ? item.value - item.control : null;
  return (
    <li class="proof">
      <p class="proof-claim">{item.claim}</p>
      {item.value === null ? (
        <p class="quiet">not measured</p>
      ) : (
        <>
          <p class="proof-numbers">
            <strong>{amount(item.value)}</strong>
            {item.control !== null && (
              <span>
                control {amount(item.control)}
                {better !== null && better <= 0 && <em class="warn"> · no better than the control</em>}
              </span>
            )}
          </p>
          <Meter value={item.value} control={item.control} low={item.low} high={item.high} series={series} />
        </>
      )}
      {item.low != null && item.high != null && (
        <p class="quiet">
          95 % between {amount(item.low)} and {amount(item.high)}
        </p>
      )}
      {item.note && <p class="quiet">{item.note}</p>}
    </li>
  );
}

export function Proofs({ items, series }: { items: Evidence[]; series?: number }) {
  if (!items.length) return null;
  return (
    <ul class="proofs" aria-label="Evidence, with its control">
      {items.map((item, i) => (
        <Proof key={i} item={item} series={series} />
      ))}
    </ul>
  );
}
