"""A first look at some models on the same scenes: from recordings to the sections of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vitreous.errors import SettingsError
from vitreous.evidence.planted import KINDS
from vitreous.lenses.structure import structure
from vitreous.views.activity import Activity, activity_section, measure_activity
from vitreous.views.charts import listed
from vitreous.views.gallery import scene_section
from vitreous.views.gaze import Gaze, gaze_section, read_gaze
from vitreous.views.panels import Fact, Group, Member, Overview, Section, Statement, Text, Tile
from vitreous.views.seen import Seen, block_of
from vitreous.views.structure_page import Looked, about_alike, brief_section, look_at
from vitreous.views.units import (
    DETECTS,
    Measured,
    choose_units,
    depth_curve,
    kinds_table,
    measure_units,
    random_unit,
    survival_curve,
    unit_cards,
)

if TYPE_CHECKING:
    from vitreous.images import ImageSet

CARDS = 4  # selective units shown a model
TOKENS = 3  # whose units are compared with each other


@dataclass(frozen=True, eq=False)
class FirstLook:
    """All that was measured; `gazes` leaves out models without attention, `structures` those without equal blocks.

    `shuffled` is a model that has learned nothing: what its units detect, any network of this shape would.
    """

    images: ImageSet
    seed: int
    gazes: tuple[Gaze, ...]
    activities: tuple[Activity, ...]
    measured: tuple[Measured, ...]
    structures: tuple[Looked, ...]
    shuffled: Measured | None = None


def look(seen: Sequence[Seen], images: ImageSet, seed: int, shuffled: Seen | None = None) -> FirstLook:
    """Measures what the sections show."""
    if not seen:
        raise SettingsError("a first look needs at least one model")
    return FirstLook(
        images,
        seed,
        tuple(read_gaze(s, images, seed) for s in seen if s.attention is not None),
        tuple(measure_activity(s) for s in seen),
        tuple(measure_units(s, images, seed) for s in seen),
        find_structure(seen),
        None if shuffled is None else measure_units(shuffled, images, seed),
    )


def find_structure(seen: Sequence[Seen]) -> tuple[Looked, ...]:
    """Clusters of the first tokens' units in the residual stream; of few pictures, in as many bins as there are.

    Models whose blocks differ in shape, or that have only one, are left out: their units cannot be compared.
    """
    findings = {}
    for one in seen:
        shapes = [one.store[site].shape[1:] for site in one.sites("resid.out")]
        if len(shapes) > 1 and len({*shapes}) == 1:
            tokens, bins = range(min(TOKENS, shapes[0][0])), min(100, len(one.store))
            findings[one.name] = structure(one.store, tokens=tokens, bins=bins, keep_transformed=True, progress=False)
    return look_at(findings, {})


def sections(found: FirstLook) -> tuple[Section, ...]:
    parts = [scene_section(found.images)]
    if found.gazes:
        parts.append(gaze_section(list(found.gazes), found.images))
    parts += [activity_section(found.activities), unit_section(found)]
    if found.structures:
        parts.append(brief_section(found.structures))
    parts.append(reading_section(found))
    return tuple(parts)


def unit_section(found: FirstLook) -> Section:
    of = (found.measured, found.shuffled)
    groups = [
        Group("All units at once", (survival_curve(*of), depth_curve(*of)), columns=2),
        Group("", (kinds_table(*of),)),
    ]
    for m in found.measured:
        chosen = choose_units(m, CARDS)
        cards = unit_cards(m, found.images, chosen, random_unit(m, chosen, found.seed))
        text = (
            f"{m.seen.about}. These units had the clearest best concept on one half of the pictures, each another one; "
            "everything on the cards is from the other half."
        )
        groups.append(Group(m.seen.name, cards, text, m.seen.series))
    return Section(
        "units",
        "What single units respond to",
        "A unit is one coordinate inside an MLP. Its map is bright where it is active; the square marks the patch that "
        "was picked, ✓ or ✗ says whether the concept is really there.",
        tuple(groups),
        short="Units",
    )


def reading_section(found: FirstLook) -> Section:
    name = found.measured[0].seen.name
    site = found.measured[0].sites[-1]
    auc = Text(
        "How to read the numbers",
        (
            "AUC is the chance that a random patch with the concept activates the unit more than a random patch "
            "without it: 1 is a perfect detector, 0.5 is guessing.",
            "The best of some fifty concepts always looks good where it was picked. So it is picked on one half of the "
            "pictures and measured on the other. The control repeats all of it with the masks of other pictures, which "
            "keeps where things tend to lie and breaks only the link to what is in the picture.",
            "A high AUC says that a unit tells a concept apart, not that the model uses it, and a unit may stand for "
            "several things at once. Patches count as what owns most of their pixels.",
        ),
    )
    code = Text(
        "Look further yourself",
        ("Everything behind this page lies on disk, in the folder above its own. From its own:",),
        "import vitreous as vt\n\n"
        f'store = vt.Store.open("../{_folder(found)}/{name}")\n'
        f'store["{site}"][0]  # (token, channel) of scene 0\n\n'
        'subject = vt.load("bundled:scenes-text")\n'
        'with vt.capture(subject, "blocks.*.attn.pattern") as rec:\n'
        "    subject(vt.scenes(1)[0].image)",
    )
    return Section(
        "reading",
        "How to read this page",
        "What the numbers mean, what they do not mean, and how to go on.",
        (Group("", (auc, code), columns=2),),
        short="Reading it",
    )


def _folder(found: FirstLook) -> str:
    return found.measured[0].seen.store.path.parent.name


# -- the head of the page


def title(found: FirstLook) -> str:
    count = len(found.measured)
    return f"Inside {_number(count)} vision transformers" if count > 1 else f"Inside {found.measured[0].seen.name}"


def overview(found: FirstLook) -> Overview:
    count, pictures = len(found.measured), len(found.images)
    models = f"{_number(count)} vision transformer{'s' if count > 1 else ''}"
    hero = [picture for picture in found.images[-6:]]
    return Overview(
        f"{models.capitalize()} looked at the same {pictures} scenes. This page shows where they look, how their "
        "activations behave and what single units respond to, each claim with the evidence beside it.",
        f"{pictures} procedural scenes (seed {found.seed}): several textured objects on a textured background, with "
        "exact masks and attributes. Half of them choose what to say about a unit, the other half check it.",
        tuple(Member(m.seen.name, m.seen.about, m.seen.series) for m in found.measured),
        tuple(_key_numbers(found)),
        tuple(statements(found)),
        tuple(Tile(np.asarray(picture.image), f"Scene: {picture.about['caption']}") for picture in hero),
    )


def _key_numbers(found: FirstLook) -> Iterator[Fact]:
    units = sum(len(m.channel) for m in found.measured)
    share = sum(m.detectors() for m in found.measured) / units
    chance = sum(m.by_chance for m in found.measured) / units
    yield Fact("scenes", f"{len(found.images):,}", "with exact masks")
    yield Fact("hidden units measured", f"{units:,}", f"in {_number(len(found.measured))} models")
    yield Fact("of them detect a concept", f"{share:.0%}", f"held-out AUC of {DETECTS} or more")
    yield Fact("with other pictures' masks", f"{chance:.1%}", "what chance and position give")
    if found.shuffled is not None:
        yield Fact("with shuffled weights", f"{found.shuffled.share:.0%}", "what the architecture gives")


def statements(found: FirstLook) -> list[Statement]:
    """Findings in plain words; what they say follows from the numbers."""
    said = [Statement(_about_detectors(found), "units"), Statement(_about_kinds(found), "units")]
    if found.gazes:
        said.append(Statement(_about_gaze(found.gazes), "attention"))
    said.append(Statement(_about_silence(found), "activations"))
    if found.structures:
        said.append(Statement(f"Units that order the pictures alike: {about_alike(found.structures)}", "structure"))
    return said


def _about_detectors(found: FirstLook) -> str:
    parts = listed([f"{m.seen.name} {m.detectors()} of {len(m.channel)}" for m in found.measured])
    if not any(m.detectors() for m in found.measured):
        return f"No unit detects a concept on held-out pictures: {parts}."
    chance = max(m.by_chance for m in found.measured)
    left = "none is left" if chance == 0 else f"at most {chance:.1f} are left"
    text = f"Single units detect what is in a patch, on pictures that had no say in the choice: {parts}."
    return f"{text} With the masks of other pictures {left}."


def _about_kinds(found: FirstLook) -> str:
    """Which kinds of detectors are learned, and which a model of this shape has without learning."""
    best = {kind: max(m.detectors(kind) for m in found.measured) for kind in KINDS}
    free = {kind: found.shuffled.detectors(kind) if found.shuffled else 0 for kind in KINDS}
    learned = [kind for kind in KINDS if best[kind] >= 3 and free[kind] <= best[kind] / 4]
    given = [kind for kind in KINDS if best[kind] >= 3 and free[kind] > best[kind] / 4]
    by_kind = "; ".join(
        f"{kind}: {', '.join(str(m.detectors(kind)) for m in found.measured)}"
        + (f" (weights shuffled: {free[kind]})" if found.shuffled else "")
        for kind in KINDS
        if best[kind]
    )
    order = f" Detectors by kind, in the order {listed([m.seen.name for m in found.measured])}: {by_kind}."
    if not by_kind:
        return "There are no detectors of any kind: neither shapes nor colours nor textures."
    if learned and given:
        return (
            f"Detectors for {listed(learned)} are learned; many for {listed(given)} come without any training.{order}"
        )
    if given:
        return f"Training adds little: shuffled weights have detectors for {listed(given)} too.{order}"
    what = listed(learned or ["single concepts"])
    return f"Detectors for {what} are learned: shuffled weights have few or none.{order}"


def _about_gaze(gazes: Sequence[Gaze]) -> str:
    best = max(gazes, key=lambda g: g.lift[-1] - g.control[-1])
    every = listed([f"{g.seen.name} {g.lift[-1]:.2f} (control {g.control[-1]:.2f})" for g in gazes])
    if best.lift[-1] - best.control[-1] < 0.1:
        return f"In the last block no model favours the objects: attention over area is {every}."
    return f"In the last block {best.seen.name} favours objects the most. Their attention over their area: {every}."


def _about_silence(found: FirstLook) -> str:
    silent, name, site = max((u.silent, a.seen.name, u.site) for a in found.activities for u in a.units)
    if silent == 0:
        return "Every hidden unit that was recorded responds to something: none is silent on all patches."
    return f"At most {silent:.1%} of the hidden units of a block never respond ({name}, block {block_of(site)})."


def _number(count: int) -> str:
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    return words[count] if count < len(words) else str(count)
