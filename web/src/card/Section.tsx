import type { ComponentChildren } from "preact";

import { Proofs } from "../parts/Meter";
import type { Card, Evidence } from "../types";

interface SectionProps {
  name: string;
  title: string;
  sentence?: string | null;
  proofs?: Evidence[];
  series?: number;
  /** stands under the sentence, beside the evidence */
  beside?: ComponentChildren;
  children?: ComponentChildren;
}

/** One claim of the card, and beside it what speaks for it. */
export function Section({ name, title, sentence, proofs = [], series, beside, children }: SectionProps) {
  return (
    <section class="card-section" id={`card-${name}`} aria-labelledby={`card-${name}-title`} tabIndex={-1}>
      <div class={`claim-row ${proofs.length === 0 ? "alone" : proofs.length > 2 ? "below" : ""}`}>
        <div>
          <h2 id={`card-${name}-title`}>{title}</h2>
          {sentence && <p class="sentence">{sentence}</p>}
          {beside}
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
