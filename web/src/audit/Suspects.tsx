import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { auditPart, auditPicture, type Audit, type AuditRow, type AuditTiles } from "../api";
import { bytesOf } from "../bytes";
import { amount, percent, siteName } from "../format";
import { Heat } from "../parts/Thumb";

const FIRST = 8; // parts without an alarm that are shown at first

export const keyOf = (row: { site: string; id: number }) => `${row.site}/${row.id}`;

/** True from the moment the element comes near the window. */
function useNear() {
  const place = useRef<HTMLLIElement>(null);
  const [near, set] = useState(false);
  useEffect(() => {
    const watch = new IntersectionObserver((seen) => seen.some((one) => one.isIntersecting) && set(true), { rootMargin: "200px" });
    if (place.current) watch.observe(place.current);
    return () => watch.disconnect();
  }, []);
  return { place, near };
}

function Tile({ tile, of, found }: { tile: AuditTiles["tiles"][number]; of: AuditTiles; found: Audit }) {
  const bytes = useMemo(() => bytesOf(tile.heat), [tile.heat]);
  const said = `${tile.name}, ${found.classes[tile.true]}, the part adds ${amount(tile.adds)}`;
  return (
    <figure class="tile" title={said}>
      <span class="frame">
        <img class="sharp" src={auditPicture(tile.picture)} alt={said} loading="lazy" decoding="async" />
        <Heat bytes={bytes} rows={of.rows} columns={of.columns} />
      </span>
    </figure>
  );
}

function Pictures({ row, found, near }: { row: AuditRow; found: Audit; near: boolean }) {
  const [got, set] = useState<AuditTiles | Error | null>(null);
  useEffect(() => {
    if (!near) return;
    let alive = true;
    auditPart(row).then(
      (tiles) => alive && set(tiles),
      (error: Error) => alive && set(error),
    );
    return () => {
      alive = false;
    };
  }, [near, row.site, row.id]);
  if (got instanceof Error) return <p class="warn">{got.message}</p>;
  return (
    <div class="suspect-tiles" aria-busy={got === null}>
      {got ? got.tiles.map((tile) => <Tile key={tile.picture} tile={tile} of={got} found={found} />) : Array.from({ length: 6 }, (_, i) => <span key={i} class="frame" />)}
    </div>
  );
}

function chance(p: number): string {
  return p < 0.001 ? "below 0.001" : p.toFixed(3);
}

function Facts({ row }: { row: AuditRow }) {
  const facts: [string, string, string][] = [
    ["odds", `× ${amount(Math.exp(row.suspicion))}`, "what it does to the odds of the class off the object, in pictures of the class more than in others"],
    ["luck", chance(row.corrected), "how often exchanged labels give as much, corrected for all tests"],
  ];
  if (row.outside !== null) facts.push(["off the object", percent(row.outside), "share of its map that lies off the object"]);
  if (row.agreement !== null) facts.push(["agreement", percent(row.agreement), "share of the pictures of the class in which it speaks for the class"]);
  if (row.ablation !== null) facts.push(["taken out", `${row.ablation >= 0 ? "−" : "+"}${amount(Math.abs(row.ablation))}`, "log-odds that pictures of the class change by when it is really taken out"]);
  return (
    <dl class="suspect-facts">
      {facts.map(([name, value, title]) => (
        <div key={name} title={title}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Suspect({ row, found, off, turn, most }: { row: AuditRow; found: Audit; off: boolean; turn: () => void; most: number }) {
  const { place, near } = useNear();
  const name = found.classes[row.target] ?? "";
  return (
    <li ref={place} class={`suspect${off ? " off" : ""}`}>
      <label class="check suspect-head">
        <input type="checkbox" checked={off} onChange={turn} />
        <strong>
          {row.kind === "unit" ? "Unit" : "Sub-unit"} {row.name}
          {row.label && ` · ${row.label}`}
        </strong>
        <span class="cut">
          speaks for <b>{name}</b>
        </span>
        {row.alarm ? <em class="alarm">alarm</em> : <em class="quiet">no alarm</em>}
      </label>
      <span class="meter" role="img" aria-label={`suspicion ${amount(row.suspicion)} log-odds`}>
        <span class="fill" style={{ left: 0, width: `${Math.max(0, (100 * row.suspicion) / most)}%` }} />
      </span>
      <Facts row={row} />
      {found.sites.length > 1 && <p class="quiet">{siteName(row.site)}</p>}
      <Pictures row={row} found={found} near={near} />
    </li>
  );
}

export function Suspects({ found, off, turn }: { found: Audit; off: Set<string>; turn: (key: string) => void }) {
  const [all, setAll] = useState(false);
  const alarms = found.rows.filter((row) => row.alarm);
  const rest = found.rows.filter((row) => !row.alarm);
  const shown = [...alarms, ...rest.filter((row, i) => all || off.has(keyOf(row)) || (!alarms.length && i < FIRST))];
  const most = Math.max(1e-9, ...found.rows.map((row) => row.suspicion));
  return (
    <>
      <ul class="suspects" aria-label="Parts, most suspicious first">
        {shown.map((row) => (
          <Suspect key={keyOf(row)} row={row} found={found} off={off.has(keyOf(row))} turn={() => turn(keyOf(row))} most={most} />
        ))}
      </ul>
      {!all && shown.length < found.rows.length && (
        <button class="button small" onClick={() => setAll(true)}>
          Also {found.rows.length - shown.length} without an alarm
        </button>
      )}
    </>
  );
}
