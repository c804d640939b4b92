"""A residual network as a picture: units by layer, where they come back, and the weights between them (Figure 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vitreous.errors import SettingsError
from vitreous.lenses.structure import StructureFinding
from vitreous.views.panels import Link, Maps
from vitreous.views.structure import about_maps, as_maps, fitting, frame_colours, known, ranked, shown_bins

UNITS = 6  # shown where nobody chose
LINKS = 8  # weights drawn between two layers


@dataclass(frozen=True)
class Return:
    """A unit (token, channel) that belongs to a cluster at layers `before` and `after`, and not in between."""

    cluster: int
    token: int
    channel: int
    before: int
    after: int


def returns(finding: StructureFinding) -> tuple[Return, ...]:
    """Section D.4: where a unit comes back to what it was after layers that differ."""
    found = []
    for cluster, members in enumerate(finding.clusters):
        carriers = members[np.lexsort((members[:, 0], members[:, 2], members[:, 1]))]
        for (layer, token, channel), (later, *other) in zip(carriers[:-1].tolist(), carriers[1:].tolist(), strict=True):
            if [token, channel] == other and later > layer + 1:
                found.append(Return(cluster, token, channel, layer, later))
    return tuple(found)


def network_maps(
    finding: StructureFinding,
    source: np.ndarray,
    weights: np.ndarray,
    *,
    units: Sequence[int] | None = None,
    grid: tuple[int, int] | None = None,
    links: int = LINKS,
    title: str = "Units of a residual network",
) -> Maps:
    """Figure 7: one column a layer, one row a unit, rings where a unit comes back to a cluster it had left.

    `weights` (layer - 1, to, from) lie between neighbouring layers of one token; the `links` largest between shown
    units are drawn. Units are chosen by how often they return, then by how many layers their clusters hold.
    """
    layers, tokens, channels = finding.labels.shape
    if tokens != 1 or weights.shape != (layers - 1, channels, channels):
        raise SettingsError(
            "one token, and weights (layer - 1, to, from)",
            given=f"{tokens} tokens, weights {weights.shape}",
            accepted=f"(layer - 1, to, from) {(layers - 1, channels, channels)}",
        )
    back = returns(finding)
    often = np.bincount([r.channel for r in back], minlength=channels)
    if units is None:
        shown = np.sort(np.lexsort((-(finding.labels[:, 0] >= 0).sum(0), -often))[:UNITS])
    else:
        shown = np.array([known(u, channels, "channel") for u in units])
    rings = np.zeros((layers, channels), bool)
    for r in back:
        rings[[r.before, r.after], r.channel] = True
    labels = finding.labels[:, 0, shown].T
    bins = ranked(finding, fitting(finding, source)[:, :, 0, shown])
    return Maps(
        title,
        as_maps(bins, grid).swapaxes(0, 1),
        tuple(f"unit {u}" for u in shown),
        tuple(str(layer) for layer in range(layers)),
        frame_colours(finding, labels)[0],
        np.zeros(labels.shape, bool),
        rings[:, shown].T,
        _links(weights, shown, links),
        high=shown_bins(finding) - 1,
        caption=_about_network(back, shown, len(bins), grid),
    )


def _links(weights: np.ndarray, shown: np.ndarray, count: int) -> tuple[Link, ...]:
    """The largest weights between shown units, layer by layer."""
    found = []
    for layer, matrix in enumerate(weights[:, shown][:, :, shown]):
        for flat in np.argsort(-np.abs(matrix), axis=None, kind="stable")[:count]:
            to, start = divmod(int(flat), len(shown))
            found.append(Link((start, layer), (to, layer + 1), float(matrix[to, start])))
    return tuple(found)


def _about_network(back: Sequence[Return], shown: np.ndarray, samples: int, grid: tuple[int, int] | None) -> str:
    here = sum(r.channel in shown for r in back)
    what = f"Rings: {here} times a unit comes back to a cluster that it had left" if here else "No unit comes back"
    return (
        f"One column a layer, one row a unit. Frames in one colour are one cluster. {what}. Lines: the largest weights "
        f"between the units shown, thick where large, blue positive, orange negative. "
        f"{about_maps(samples, grid, False)}"
    )
