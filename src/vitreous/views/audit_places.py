"""Kinds of places beside the object, for the page of an audit: which they are, and what the model does without them."""

from __future__ import annotations

import numpy as np

from vitreous.auditing.places import PlaceRow, PlacesFinding
from vitreous.views.audit_cards import large
from vitreous.views.audit_page import effect_table, share
from vitreous.views.panels import Card, Cell, Fact, Group, Panel, Pictures, Section, Statement, Table, Text, Tile

PLACES = "places.safetensors"
PICTURES = 6  # of a class
VEILED = 0.4  # how bright other places are, so that one sees what they belong to


def said_of_places(found: PlacesFinding) -> Statement:
    """The whole of it in one sentence."""
    if not found.overall.alarm:
        why = "the model as a whole does not tell the classes with the object painted over, so that they were not asked"
        return Statement(f"Places beside the object: no alarm; {why}.", "places")
    if not found.alarm:
        chance = f"chance {found.together.p:.4f}"
        why = (
            f"the model loses nothing without those that tell a class ({chance}): the cue was read before {found.site}"
        )
        return Statement(f"Places beside the object: no alarm; {why}, or is in no place in particular.", "places")
    return Statement(
        f"Places beside the object speak for a class: without them {found.left:.2f} of {found.overall.suspicion:.2f} "
        f"log-odds are left of what the model tells with the object painted over (chance {found.together.p:.4f}).",
        "places",
    )


def places_section(found: PlacesFinding) -> Section:
    """A card a class with pictures of it, then what switching these places off does."""
    cards: tuple[Panel, ...] = tuple(_card(found, row, maps) for row, maps in zip(found.rows, found.maps, strict=True))
    groups = [Group("", cards or (_nothing(found),))]
    if found.effect is not None:
        code = (
            f'import vitreous as vt\n\nwith vt.PlacesOff.load("{PLACES}").on(subject):\n    logits = subject(pictures)'
        )
        words = (
            f"{PLACES}, beside this page, finds such places in any picture and puts the mean of their position in "
            "their stead; tokens of other places keep their bits, and no weight is overwritten. If the model has "
            "little else to decide by, it will be right less often on pictures like these."
        )
        groups.append(
            Group("", (effect_table(found.effect), Text("How to switch them off", (words,), code)), columns=2)
        )
    sentence = (
        f"Where the model looks, not what it is made of: at {found.site} pictures were compared place by place. A "
        "place is marked if places like it, in other pictures and beside the object, go with one class."
    )
    return Section("places", "Places beside the object", sentence, tuple(groups), "Places")


def _nothing(found: PlacesFinding) -> Table:
    rows: tuple[tuple[Cell, ...], ...] = (("the model as a whole", f"{found.overall.p:.4f}"),)
    return Table("No kind of place tells a class", ("what", "chance"), rows)


def _card(found: PlacesFinding, row: PlaceRow, maps: np.ndarray) -> Card:
    name = found.classes[row.target]
    claim = (
        f"Of the places beside the object {row.fires:.1%} are of this kind in pictures of '{name}', and "
        f"{row.elsewhere:.1%} in others; on the object {row.inside:.1%}."
    )
    facts = (
        Fact("suspicion", f"{row.suspicion:+.2f}", f"log-odds of '{name}' that are lost without them"),
        Fact("chance", f"{row.corrected:.4f}", "that exchanged labels give as much, corrected for all classes"),
        Fact("learned from", f"{row.learned}", "places of other pictures"),
        Fact("found", share(row.fires), f"of the places beside the object, in pictures of '{name}'"),
    )
    tag = "alarm" if row.alarm else "no alarm"
    code = f"places.switch_off([{row.target}]).before_after(subject, images, head=places.head)"
    return Card(f"Places that tell '{name}'", claim, tag, facts=facts, panels=(_pictures(found, row, maps),), code=code)


def _pictures(found: PlacesFinding, row: PlaceRow, maps: np.ndarray) -> Pictures:
    """Pictures of the class in which most places are found."""
    preprocess = found.subject.preprocess
    assert preprocess is not None
    hits = maps > 0
    mine = np.flatnonzero(found.labels == row.target)
    some = mine[np.argsort(-hits[mine].sum(1), kind="stable")][:PICTURES]
    grid = found.subject.grid((preprocess.size.height, preprocess.size.width))
    tiles = []
    for k in some.tolist():
        pixels = preprocess.to_uint8(np.asarray(preprocess(found.images[k].image)))
        shape = (grid.rows, grid.columns) if grid is not None and grid.patches == hits.shape[1] else (1, -1)
        heat = large(np.where(hits[k], 1, VEILED).reshape(shape).astype(np.float32), pixels.shape[:2])
        tiles.append(Tile(pixels, f"{found.ids[k]}, {int(hits[k].sum())} places found", f"{hits[k].sum()} found", heat))
    caption = "Bright: places of this kind, in audited pictures that they were not learned from."
    return Pictures("Where they are", tuple(tiles), PICTURES, caption, heat_range=(0.0, 1.0))
