"""One suspicious part: the pictures where it speaks loudest, where in them it answers, and its numbers in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vitreous.auditing.finding import AuditFinding, AuditRow
from vitreous.auditing.ranking import BETWEEN
from vitreous.errors import SettingsError
from vitreous.views.audit_page import called, share, speaks
from vitreous.views.panels import Card, Fact, Panel, Pictures, Tile

if TYPE_CHECKING:
    from torch import Tensor

    from vitreous.auditing.sweep import AuditSweep

PICTURES = 6  # of a part


def part_cards(sweep: AuditSweep, rows: Sequence[tuple[str, AuditRow]]) -> tuple[Card, ...]:
    """Cards of some rows, with pictures; where there are masks also with the object painted over."""
    if any(finding.subject is None or finding.images is None for finding in sweep.findings):
        raise SettingsError(
            "the page shows pictures, and this finding has none",
            remedy="AuditFinding.load(folder, subject=subject, images=images)",
        )
    several = len(sweep.findings) > 1
    return tuple(_card(sweep[site], row, several) for site, row in rows)


def together_card(sweep: AuditSweep, classes: int = 3) -> Card:
    """All alarms at once: the pictures in which they add most to a class, for the first classes that have alarms."""
    from torch import from_numpy

    from vitreous.kernels.fill_holes import fill_holes

    first = sweep.findings[0]
    subject, images = first.subject, first.images
    assert subject is not None and images is not None and subject.preprocess is not None
    panels = []
    for target in dict.fromkeys(row.target for _, row in sweep.alarms):
        added, name = sweep.together(target), first.classes[target]
        some = np.argsort(-added, kind="stable")[:PICTURES]
        x = from_numpy(np.stack([np.asarray(subject.preprocess(images[k].image)) for k in some.tolist()]))
        shown = x if first.masks is None else fill_holes(x, from_numpy(first.masks[some]))
        tiles = []
        for k, picture in zip(some.tolist(), shown.numpy(), strict=True):
            said = f"{first.classes[int(first.labels[k])]}, {added[k]:+.2f}"
            tiles.append(Tile(subject.preprocess.to_uint8(picture), f"{first.ids[k]}, {said} together", said))
        painted = "" if first.masks is None else "The object is painted over. "
        caption = f"{painted}Under each picture its true class and what all alarms add: what do these share?"
        panels.append(Pictures(f"Where all alarms add most to '{name}'", tuple(tiles), PICTURES, caption))
    claim = f"What {len(sweep.alarms)} parts that raised an alarm add together. One part alone may be less clear."
    code = "sweep.together(0).argsort()[::-1]"
    return Card("All alarms together", claim, "alarm", panels=tuple(panels[:classes]), code=code)


def _card(finding: AuditFinding, row: AuditRow, several: bool) -> Card:
    panels = _panels(finding, finding.rows.index(row), finding.masks)
    title = f"Part {called(finding.site if several else None, row)}" + ("" if row.label is None else f": {row.label}")
    kind = f"sub-unit {row.part} of unit {row.unit}" if row.part is not None else f"unit {row.unit}, not divided"
    mates = f" The same concept in other layers: {', '.join(row.mates[:6])}." if row.mates else ""
    sentence = speaks(finding, row)
    claim = f"{kind[0].upper()}{kind[1:]}, {sentence}.{mates}"
    tag = "alarm" if row.alarm else "no alarm"
    one = f'sweep["{finding.site}"]' if several else "finding"
    code = f"{one}.switch_off([{row.id}]).effect"
    return Card(title, claim, tag, facts=tuple(_facts(finding, row)), panels=panels, code=code)


def _facts(finding: AuditFinding, row: AuditRow) -> list[Fact]:
    name = finding.classes[row.target]
    where = "between groups" if finding.basis == BETWEEN else f"for '{name}'"
    facts = [
        Fact("suspicion", f"{row.suspicion:+.2f}", f"log-odds {where}: odds × {np.exp(row.suspicion):.2f}"),
        Fact("chance", _chance(row.corrected), "that exchanged labels give as much, corrected for all tests"),
        Fact("agreement", share(row.agreement), f"of the pictures of '{name}' in which it speaks for '{name}'"),
    ]
    if np.isfinite(row.outside):
        facts.append(Fact("off the object", share(row.outside), f"of its map, in pictures of '{name}'"))
    facts.append(Fact("selectivity", f"{row.selectivity:.2f}", f"how well it tells '{name}'; 0.5 is not at all"))
    if np.isfinite(row.ablation):
        facts.append(Fact("taken out", f"{-row.ablation:+.3f}", f"log-odds that pictures of '{name}' really change by"))
    if row.part is not None:
        facts.append(Fact("undivided unit", f"{row.of_unit:+.2f}", "the suspicion of the unit it is a part of"))
    random = finding.controls.get("random sub-units, largest")
    if row.part is not None and random is not None and np.isfinite(random):
        facts.append(Fact("random sub-units", f"{random:+.2f}", "the most that units divided by lot give"))
    return facts


def _chance(value: float) -> str:
    return "below 0.001" if value < 0.001 else f"{value:.3f}"


def _panels(finding: AuditFinding, at: int, masks: np.ndarray | None, count: int = PICTURES) -> tuple[Panel, ...]:
    from torch import from_numpy

    from vitreous.kernels.fill_holes import fill_holes

    subject, images = finding.subject, finding.images
    assert subject is not None and images is not None and subject.preprocess is not None
    name = finding.classes[finding.rows[at].target]
    some = np.argsort(-finding.effects[:, at], kind="stable")[:count]
    x = from_numpy(np.stack([np.asarray(subject.preprocess(images[k].image)) for k in some.tolist()]))
    sign = direction(finding, at)
    most = "strongest" if sign > 0 else "weakest, which is how it speaks for the class"
    panels = [
        Pictures(
            f"Where it speaks loudest for '{name}'",
            _tiles(finding, at, some, x, sign),
            count,
            f"Under each picture its true class and what the part adds to '{name}'. Bright: where it is {most}.",
        )
    ]
    if masks is not None:
        painted = fill_holes(x, from_numpy(masks[some]))
        panels.append(
            Pictures("The same with the object painted over", _tiles(finding, at, some, painted, sign, False), count)
        )
    return tuple(panels)


def _tiles(
    finding: AuditFinding, at: int, some: np.ndarray, x: Tensor, sign: int, captions: bool = True
) -> tuple[Tile, ...]:
    assert finding.subject is not None and finding.subject.preprocess is not None
    heats = part_maps(finding, at, x) * sign
    tiles = []
    for number, picture, heat in zip(some.tolist(), x.numpy(), heats, strict=True):
        true = finding.classes[int(finding.labels[number])]
        added = float(finding.effects[number, at])
        alt = f"{finding.ids[number]}, {true}, the part adds {added:+.2f}" + (
            "" if captions else ", object painted over"
        )
        pixels = finding.subject.preprocess.to_uint8(picture)
        tiles.append(Tile(pixels, alt, f"{true}, {added:+.2f}" if captions else "", large(heat, pixels.shape[:2])))
    return tuple(tiles)


def direction(finding: AuditFinding, at: int) -> int:
    """1 if a part speaks for its class by being strong, -1 if by being weak."""
    a, e = finding.activations[:, at], finding.effects[:, at]
    return 1 if float(((a - a.mean()) * (e - e.mean())).sum()) >= 0 else -1


def part_maps(finding: AuditFinding, at: int, x: Tensor) -> np.ndarray:
    """float32 (sample, row, column): what a part gives at each patch of these inputs, beyond its level."""
    import torch

    from vitreous.hooks import capture, evaluating
    from vitreous.subunits.layers import find_layer

    subject = finding.subject
    assert subject is not None
    layer = find_layer(subject, finding.site)
    entering = f"{layer.path}:in"
    with torch.inference_mode(), evaluating(subject.module), capture(subject, entering, stop=True) as seen:
        subject(subject.inputs(x))
        rows = layer.rows(seen[entering]).float().cpu().numpy()
    a = rows[:, int(finding.layer["prefix"]) :] @ finding.parts.weight[at] + finding.parts.bias[at]
    a = a - float(finding.levels[at, -1])
    grid = subject.grid((x.shape[2], x.shape[3]))
    if grid is not None and grid.patches == a.shape[1]:
        return a.reshape(len(a), grid.rows, grid.columns)
    side = round(a.shape[1] ** 0.5)
    return a[:, : side * (a.shape[1] // side)].reshape(len(a), side, -1)


def large(heat: np.ndarray, shape: tuple[int, int]) -> np.ndarray | None:
    """A map (row, column) of patches as large as the picture; None where all patches are alike."""
    from torch import from_numpy
    from torch.nn.functional import interpolate

    if float(np.ptp(heat)) == 0:
        return None
    return interpolate(from_numpy(np.ascontiguousarray(heat))[None, None].float(), shape, mode="nearest")[0, 0].numpy()
