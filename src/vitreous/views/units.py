"""What single units respond to: each claim on a card with its evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vitreous.evidence.planted import KINDS, Concepts, same_names
from vitreous.evidence.selectivity import Selectivity, halves, precision, selectivity
from vitreous.kernels.topk import TopK
from vitreous.views.charts import amount
from vitreous.views.colours import NEUTRAL
from vitreous.views.panels import Box, Card, Cell, Curve, Fact, Histogram, Line, Meter, Pictures, Table, Tile
from vitreous.views.seen import Seen, block_of

if TYPE_CHECKING:
    from vitreous.images import ImageSet

DETECTS = 0.9  # held-out AUC from which we call a unit a detector
QUANTILES = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.25)
STRONGEST = 100  # patches whose share with the concept is shown
A_KIND = 2  # at most so many cards for one kind of concept
BINS = 28
SHUFFLED = "Weights shuffled: the first model with the numbers in each of its weight arrays in random order."


@dataclass(frozen=True, eq=False)
class Measured:
    """All hidden units of one model: `site` (unit,) index into `sites`, `channel` (unit,), and what they select.

    `truths` are the concepts on the grid of each site, with the same names everywhere.
    """

    seen: Seen
    sites: tuple[str, ...]
    truths: tuple[Concepts, ...]
    choosing: np.ndarray
    site: np.ndarray
    channel: np.ndarray
    found: Selectivity

    @property
    def names(self) -> tuple[str, ...]:
        return self.truths[0].names

    @property
    def kinds(self) -> tuple[str, ...]:
        return self.truths[0].kinds

    def title(self, unit: int) -> str:
        return f"Block {block_of(self.sites[self.site[unit]])}, unit {self.channel[unit]}"

    def detectors(self, kind: str | None = None) -> int:
        """Units whose held-out AUC reaches `DETECTS`, for concepts of one kind or of any."""
        there = self.found.held_out >= DETECTS
        if kind is not None:
            there = there & (np.array(self.kinds)[self.found.concept] == kind)
        return int(there.sum())

    @property
    def share(self) -> float:
        """Share of units that are detectors."""
        return self.detectors() / len(self.channel)

    @property
    def by_chance(self) -> float:
        """How many units reach it with the truth of other pictures, mean over repeats."""
        return float((self.found.control >= DETECTS).sum(1).mean())


def measure_units(seen: Seen, images: ImageSet, seed: int) -> Measured:
    """Best concept of every hidden unit, chosen on half of the pictures and measured on the other half."""
    sites = seen.sites("mlp.hidden")
    by_grid = {seen.grid(site): seen.truth(images, site) for site in {seen.grid(site): site for site in sites}.values()}
    truths = same_names([by_grid[seen.grid(site)] for site in sites])
    parts = [
        selectivity(seen.patches(site), truth.present, seed=seed) for site, truth in zip(sites, truths, strict=True)
    ]
    widths = [len(part.concept) for part in parts]
    found = Selectivity(*(np.concatenate([p.__dict__[k] for p in parts], -1) for k in parts[0].__dict__))
    return Measured(
        seen,
        sites,
        truths,
        halves(len(images), seed),
        np.repeat(np.arange(len(sites)), widths),
        np.concatenate([np.arange(width) for width in widths]),
        found,
    )


def choose_units(measured: Measured, count: int) -> list[int]:
    """The most selective units of the choosing half: each for another concept, at most `A_KIND` for one kind."""
    kinds: Counter[str] = Counter()
    seen: set[int] = set()
    chosen: list[int] = []
    for unit in np.argsort(-measured.found.chosen, kind="stable"):
        concept = int(measured.found.concept[unit])
        kind = measured.kinds[concept]
        if concept not in seen and kinds[kind] < A_KIND:
            chosen.append(int(unit))
            seen.add(concept)
            kinds[kind] += 1
        if len(chosen) == count:
            break
    return chosen


def random_unit(measured: Measured, but: Sequence[int], seed: int) -> int:
    """Any unit that is not among those already chosen."""
    rest = np.setdiff1d(np.arange(len(measured.channel)), but)
    return int(np.random.default_rng([seed, 3]).choice(rest))


# -- cards


@dataclass(frozen=True, eq=False)
class _Shown:
    """One unit on the pictures that had no say: `samples` (sample,) are their numbers, `values` (sample, patch)."""

    measured: Measured
    images: ImageSet
    unit: int
    samples: np.ndarray
    values: np.ndarray

    @property
    def concept(self) -> int:
        return int(self.measured.found.concept[self.unit])

    @property
    def phrase(self) -> str:
        return self.measured.names[self.concept]

    @property
    def truth(self) -> np.ndarray:
        present = self.measured.truths[self.measured.site[self.unit]].present
        return present[self.samples][..., self.concept]


def unit_cards(measured: Measured, images: ImageSet, units: Sequence[int], chance: int) -> tuple[Card, ...]:
    """A card for each of the chosen units, and one for the unit drawn by chance."""
    cards = []
    held = np.flatnonzero(~measured.choosing)
    for unit in (*units, chance):
        site, channel = measured.sites[measured.site[unit]], measured.channel[unit]
        values = measured.seen.store[site][:, len(measured.seen.store.prefix) :, int(channel)].astype(np.float32)
        shown = _Shown(measured, images, unit, held, values[held])
        cards.append(_card(shown, drawn=unit == chance))
    return tuple(cards)


def claim_of(phrase: str, held_out: float, control: float) -> str:
    """What may be said of a unit, no more than its numbers allow."""
    if held_out < 0.7 or held_out - control < 0.1:
        return f"Stands for nothing we can name. Its best guess, {phrase}, is weak."
    if held_out >= DETECTS:
        return f"Detects {phrase}."
    return f"Responds to {phrase}." if held_out >= 0.8 else f"Leans towards {phrase}."


def _card(shown: _Shown, drawn: bool) -> Card:
    measured, unit = shown.measured, shown.unit
    held_out, control = float(measured.found.held_out[unit]), measured.found.control[:, unit]
    heat_range = (float(np.quantile(shown.values, 0.5)), float(shown.values.max()))
    note = f"The mark is the control, other pictures' masks: {control.mean():.2f} (at most {control.max():.2f})."
    prefix = f"{len(measured.seen.store.prefix)}:"
    return Card(
        measured.title(unit),
        claim_of(shown.phrase, held_out, float(control.mean())),
        "drawn at random, for comparison" if drawn else measured.kinds[shown.concept],
        measured.seen.series,
        Meter("AUC on held-out pictures", held_out, float(control.mean()), 0.5, 1.0, note),
        tuple(_facts(shown)),
        (_two_histograms(shown),),
        (
            _tile_panel(shown, _strongest(shown), "Strongest patches, one a picture", heat_range),
            _tile_panel(shown, _quantiles(shown), "From strong to weak: quantiles of all patches", heat_range),
        ),
        f'store["{measured.sites[measured.site[unit]]}"][:, {prefix}, {measured.channel[unit]}]',
    )


def _facts(shown: _Shown) -> Iterator[Fact]:
    share = precision(shown.values.ravel(), shown.truth.ravel(), STRONGEST)
    every = f"show {shown.phrase} ({shown.truth.mean():.1%} of all patches do)"
    yield Fact(f"Of its {STRONGEST} strongest patches", f"{share:.0%}", every)
    yield Fact("Active, that is above zero, on", f"{(shown.values > 0).mean():.0%} of patches")


def _two_histograms(shown: _Shown) -> Histogram:
    edges = np.linspace(shown.values.min(), max(shown.values.max(), shown.values.min() + 1e-6), BINS + 1)
    lines = []
    for series, (name, where) in enumerate({"with": shown.truth, "without": ~shown.truth}.items()):
        counts, _ = np.histogram(shown.values[where], edges)
        y = tuple(float(c) for c in counts / max(1, counts.sum()))
        lines.append(
            Line(f"{name} {shown.phrase}", y, shown.measured.seen.series if series == 0 else NEUTRAL, series == 1)
        )
    return Histogram(
        "Activations on held-out patches", tuple(map(float, edges)), tuple(lines), "activation", "share (log)", log=True
    )


def _strongest(shown: _Shown) -> list[tuple[int, str]]:
    """(row, label) of the strongest patches, at most one a picture; rows count over all held-out patches."""
    top = TopK(1, len(QUANTILES), per_group=1)
    samples, patches = shown.values.shape
    top.update(shown.values.reshape(-1, 1), groups=np.repeat(np.arange(samples), patches))
    return [(int(row), "") for row in top.result().ids[0] if row >= 0]


def _quantiles(shown: _Shown) -> list[tuple[int, str]]:
    """A patch at each quantile, as near to it as another picture for each allows."""
    order = np.argsort(shown.values, axis=None, kind="stable")
    used: set[int] = set()
    rows = []
    for q in QUANTILES:
        at = round(q * (len(order) - 1))
        nearest = order[np.argsort(np.abs(np.arange(len(order)) - at), kind="stable")]
        row = next((int(r) for r in nearest if int(r) // shown.values.shape[1] not in used), None)
        if row is not None:
            used.add(row // shown.values.shape[1])
            rows.append((row, f"{q:.0%}"))
    return rows


def _tile_panel(shown: _Shown, rows: list[tuple[int, str]], title: str, heat_range: tuple[float, float]) -> Pictures:
    seen, patches = shown.measured.seen, shown.values.shape[1]
    grid = seen.grid(shown.measured.sites[shown.measured.site[shown.unit]])
    tiles = []
    for row, label in rows:
        sample, patch = divmod(row, patches)
        picture = shown.images[int(shown.samples[sample])]
        value, true = float(shown.values[sample, patch]), bool(shown.truth[sample, patch])
        alt = f"Scene {picture.id}, patch {patch}: activation {value:.2f}; {shown.phrase}: {'yes' if true else 'no'}"
        tiles.append(
            Tile(
                np.asarray(picture.image),
                alt,
                " · ".join(part for part in (label, f"{amount(value)} {'✓' if true else '✗'}") if part),
                seen.to_pixels(shown.values[sample], picture, grid),
                (Box(*seen.frame(picture).patch_box(grid, patch)),),
            )
        )
    return Pictures(title, tuple(tiles), len(QUANTILES), heat_range=heat_range)


# -- all units of all models


def kinds_table(measured: Sequence[Measured], shuffled: Measured | None) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for m in (*measured, *([] if shuffled is None else [shuffled])):
        counts = [m.detectors(kind) for kind in KINDS]
        rows.append((m.seen.name, len(m.channel), *counts, m.detectors(), f"{m.by_chance:.1f}"))
    return Table(
        f"Detectors: units with a held-out AUC of at least {DETECTS}",
        ("model", "units measured", *KINDS, "all kinds", "all kinds, other masks"),
        tuple(rows),
        "By the kind of their best concept. Layout: any object, any background, edges. Other masks: the mean count "
        "when every picture gets the masks of another one." + ("" if shuffled is None else f" {SHUFFLED}"),
    )


def survival_curve(measured: Sequence[Measured], shuffled: Measured | None) -> Curve:
    levels = np.round(np.arange(0.5, 1.0001, 0.02), 2)

    def above(scores: np.ndarray) -> tuple[float, ...]:
        return tuple(float((scores >= level).mean()) for level in levels)

    lines = [Line(m.seen.name, above(m.found.held_out), m.seen.series) for m in measured]
    lines += [] if shuffled is None else [Line(shuffled.seen.name, above(shuffled.found.held_out), NEUTRAL)]
    every = np.concatenate([m.found.control.ravel() for m in measured])
    lines.append(Line("other pictures' masks", above(every), NEUTRAL, control=True))
    return Curve(
        "How many units are how selective",
        tuple(map(float, levels)),
        tuple(lines),
        "held-out AUC of at least",
        "share of units",
        "Every hidden unit that was measured counts, not only those shown below. Dotted: the control, all models "
        "together, with other pictures' masks." + ("" if shuffled is None else f" {SHUFFLED}"),
    )


def depth_curve(measured: Sequence[Measured], shuffled: Measured | None) -> Curve | Table:
    """Models with other blocks than the first have no place on its axis: then it is a table."""
    title, caption = "Where the detectors are", f"Detectors have a held-out AUC of at least {DETECTS}."
    every = [*measured, *([] if shuffled is None else [shuffled])]
    if len({m.sites for m in every}) > 1:
        rows = tuple((m.seen.name, block_of(m.sites[k]), v) for m in every for k, v in enumerate(_by_block(m)))
        return Table(title, ("model", "block", "share of units that are detectors"), rows, caption)
    lines = [Line(m.seen.name, _by_block(m), m.seen.series) for m in measured]
    lines += [] if shuffled is None else [Line(shuffled.seen.name, _by_block(shuffled), NEUTRAL)]
    return Curve(
        title,
        tuple(float(block_of(site)) for site in measured[0].sites),
        tuple(lines),
        "hidden units of block",
        "share of units that are detectors",
        caption,
    )


def _by_block(m: Measured) -> tuple[float, ...]:
    return tuple(float((m.found.held_out[m.site == at] >= DETECTS).mean()) for at in range(len(m.sites)))
