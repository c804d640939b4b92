import type { Audit, Switched } from "../api";
import type { Side } from "./Decisions";

const share = (v: number) => `${(100 * v).toFixed(1)} %`;

/** The big switch: the model as it is, or with the ticked parts switched off. */
export function Switch({ side, flip, parts }: { side: Side; flip: () => void; parts: number }) {
  return (
    <button class="big-switch" role="switch" aria-checked={side === "after"} aria-label="Suspicious parts switched off" onClick={flip}>
      <span class={side === "before" ? "on" : ""}>
        Before
        <small>the model as it is</small>
      </span>
      <i aria-hidden="true" />
      <span class={side === "after" ? "on" : ""}>
        After
        <small>{parts === 1 ? "1 part off" : `${parts} parts off`}</small>
      </span>
    </button>
  );
}

function Row({ row, side }: { row: Switched["rows"][number]; side: Side }) {
  const change = Math.round(1000 * (row.after - row.before)) / 10;
  return (
    <tr class={row.what === "worst group" ? "worst" : ""}>
      <th scope="row">
        {row.what} <span class="quiet">{row.pictures}</span>
      </th>
      <td class="bars">
        <span class="pair" role="img" aria-label={`${share(row.before)} right before, ${share(row.after)} after`}>
          <i class={`was${side === "before" ? " now" : ""}`} style={{ width: `${100 * row.before}%` }} />
          <i class={`is${side === "after" ? " now" : ""}`} style={{ width: `${100 * row.after}%` }} />
        </span>
      </td>
      <td class="num">
        <b>{share(row[side])}</b>
      </td>
      <td class={`num ${change < 0 ? "warn" : ""}`}>{change === 0 ? "±0" : `${change > 0 ? "+" : "−"}${Math.abs(change)}`}</td>
    </tr>
  );
}

export function BeforeAfter({ found, answer, side }: { found: Audit; answer: Switched; side: Side }) {
  return (
    <>
      <table class="before-after">
        <caption class="away">Right decisions before and after</caption>
        <thead>
          <tr>
            <th scope="col">pictures</th>
            <th scope="col">
              <span class="key was" /> before <span class="key is" /> after
            </th>
            <th scope="col" class="num">
              right {side}
            </th>
            <th scope="col" class="num">
              points
            </th>
          </tr>
        </thead>
        <tbody>
          {answer.rows.map((row) => (
            <Row key={row.what} row={row} side={side} />
          ))}
        </tbody>
      </table>
      <p class="quiet">{found.groups === "given" ? "Groups are those that were given to the audit." : "No groups were given: each class is halved by how much the suspicious parts add, ‘with’ and ‘without’."}</p>
    </>
  );
}
