"""Before and after: what a model says of pictures, which patches were steered, and what by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vitreous.errors import SettingsError
from vitreous.views.panels import Card, Cell, Fact, Pictures, Table, Tile
from vitreous.views.patches import enlarged

if TYPE_CHECKING:
    from vitreous.axes import Grid
    from vitreous.steering import Steering

SHOWN = 4  # different labels of a concept that are written out


def steering_card(
    steering: Steering,
    pictures: Sequence[np.ndarray],
    grid: Grid | tuple[int, int],
    before: np.ndarray,
    after: np.ndarray,
    classes: Sequence[str],
    *,
    names: Sequence[str] = (),
    top: int = 3,
) -> Card:
    """The latest pass of a steering: `pictures` uint8 (row, column, colour) as the model saw them.

    `before` and `after` (picture, class) are any scores, without and with steering; the `top` classes of both are
    shown. Heat is how much each patch was changed, all sub-units together.
    """
    counts = {len(pictures), len(before), len(after), len(steering.patch_map)}
    if len(counts) != 1 or before.shape != after.shape or before.shape[-1] != len(classes):
        given = f"{len(pictures)} pictures, scores {before.shape} and {after.shape}, {len(classes)} classes"
        raise SettingsError("one picture and one row of scores, before and after, for each steered sample", given=given)
    names = tuple(names) or tuple(f"picture {k}" for k in range(len(pictures)))
    moved = int((before.argmax(1) != after.argmax(1)).sum())
    return Card(
        f"Steered: {steering.site}",
        f"{_said(steering)}. The first class changes for {moved} of {len(pictures)} pictures.",
        facts=_facts(steering),
        panels=(
            patch_panel(steering, pictures, grid, before, after, classes, names, top),
            class_table(before, after, classes, names, top),
            concept_table(steering),
        ),
    )


def patch_panel(
    steering: Steering,
    pictures: Sequence[np.ndarray],
    grid: Grid | tuple[int, int],
    before: np.ndarray,
    after: np.ndarray,
    classes: Sequence[str],
    names: Sequence[str],
    top: int = 3,
) -> Pictures:
    """Each picture, and beside it the patches that were changed, with the strongest classes before and after."""
    changed = steering.patch_map
    if changed.shape[1] != grid[0] * grid[1]:
        raise SettingsError("the grid has another number of patches", given=tuple(grid), accepted=f"{changed.shape[1]}")
    tiles = []
    for k, picture in enumerate(pictures):
        was, now = ("\n".join(f"{classes[c]} {s[k, c]:.2f}" for c in _best(s[k], top)) for s in (before, after))
        heat = enlarged(changed[k].reshape(grid), picture.shape[:2])
        tiles.append(Tile(picture, names[k], f"before: {was}"))
        tiles.append(Tile(picture, f"{names[k]}, patches that were changed", f"after: {now}", heat))
    scale = (0.0, float(changed.max()) or 1.0)
    columns = 4 if len(pictures) > 1 else 2
    caption = "Bright patches were changed most; all pictures share the scale."
    return Pictures("Pictures, and what was changed in them", tuple(tiles), columns, caption, scale)


def class_table(
    before: np.ndarray, after: np.ndarray, classes: Sequence[str], names: Sequence[str], top: int = 3
) -> Table:
    """The strongest classes of each picture, without and with steering, strongest first."""
    rows: list[tuple[Cell, ...]] = []
    for k, name in enumerate(names):
        old, new = _best(before[k], top), _best(after[k], top)
        for place, (was, now) in enumerate(zip(old, new, strict=True)):
            said = (classes[was], f"{before[k, was]:.2f}", classes[now], f"{after[k, now]:.2f}")
            rows.append((name if place == 0 else "", *said))
    return Table("What the model says", ("picture", "before", "score", "after", "score "), tuple(rows))


def concept_table(steering: Steering) -> Table:
    """What each concept was taken to mean, and the sub-units that were said by number."""
    rows: list[tuple[Cell, ...]] = []
    for match in steering.matches:
        labels = list(dict.fromkeys(match.labels))
        said = ", ".join(labels[:SHOWN]) + (f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else "")
        near = f"{match.similarity.max():.2f} to {match.similarity.min():.2f}"
        rows.append((match.concept, f"x {match.factor:g}", len(match.subunits), said, near))
    named = np.concatenate([np.empty(0, int), *(match.subunits for match in steering.matches)])
    plain = ~np.isin(steering.subunits, named)
    for factor in np.unique(steering.factors[plain]):
        rows.append(("by number", f"x {factor:g}", int((steering.factors[plain] == factor).sum()), "", ""))
    return Table("What is steered", ("concept", "factor", "sub-units", "their labels", "cosine"), tuple(rows))


def _best(scores: np.ndarray, top: int) -> np.ndarray:
    return np.argsort(-scores, kind="stable")[:top]


def _said(steering: Steering) -> str:
    parts = [f"{match.concept} x {match.factor:g}" for match in steering.matches]
    return ", ".join(parts) or f"{len(steering.subunits)} sub-units, by number"


def _facts(steering: Steering) -> tuple[Fact, ...]:
    where = "all" if steering.patches == "all" else f"the {steering.patches} strongest"
    tokens = " and prefix tokens" if steering.steers_prefix and steering.prefix else ""
    return (
        Fact("sub-units", str(len(steering.subunits)), f"of {len(np.unique(steering.units))} units"),
        Fact("patches", f"{where}{tokens}", "of each sub-unit"),
    )
