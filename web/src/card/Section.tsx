import type { ComponentChildren } from "preact";

import { Proofs } from "../parts/Meter";
import type { Card, Evidence } from "../types";

interface SectionProps {
  name: string;
  title: string;
  sentence?: string | null;
  proofs?: Evidence[];
  series?: number;
  children?: ComponentChildren;
}

/** One claim of the card, and beside it what speaks for it. */
export function Section({ name, title, sentence, proofs = [], series, children }: SectionProps) {
  return (
    <section class="card-section" id={`card-${name}`} aria-labelledby={`card-${name}-title`} tabIndex={-1}>
      <div class={`claim-row ${proofs.length ? "" : "alone"}`}>
        <div>
          <h2 id={`card-${name}-title`}>{title}</h2>
          {sentence && <p class="sentence">{sentence}</p>}
        </div>
        <Proofs items={proofs} series={series} />
      </div>
      {children}
    </section>
  );
}

export function Lacking({ card, lens, title }: { card: Card; lens: string; title: string }) {
  const missing = card.missing.find((item) => item.lens === lens);
  if (!missing) return null;
  return (
    <section class="card-section lacking" id={`card-${lens}`} tabIndex={-1}>
      <h2>{title}</h2>
      <p class="sentence">{missing.why}</p>
      {missing.how && (
        <p class="quiet">
          To have it: <code>{missing.how}</code>
        </p>
      )}
    </section>
  );
}
