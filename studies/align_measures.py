"""What the alignment studies measure of patches in a shared space, with intervals: a picture is drawn as a whole.

A measure gives (hits, trials), each (picture,), once a seed of the alignment; `share` brings the seeds together.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import vitreous as vt
from align_inputs import LAYERS, NETWORKS, SITES, pictures_of
from tokens_inputs import IGNORE
from vitreous.evidence.bootstrap import bootstrap

SIDE, PATCHES = 8, 64
REPEATS = 500
ASKED, POOL, NEAREST = 2000, 40_000, 10
FIGURE, GROUND = 0.9, 0.1  # share of a patch's pixels on an object, from which on and up to which it counts

Features = dict[str, dict[str, np.ndarray]]  # {network: {layer: (picture, patch, channel)}}


class Counted(NamedTuple):
    hits: np.ndarray
    trials: np.ndarray


def ranged(statistic: Any, pictures: int, seeds: Sequence[float]) -> dict[str, Any]:
    """A number with its 95 % interval over pictures, and what each seed gave."""
    found = bootstrap(statistic, pictures, repeats=REPEATS)
    return {"value": found.value, "low": found.low, "high": found.high, "seeds": [float(value) for value in seeds]}


def share(counted: Sequence[Counted]) -> dict[str, Any]:
    """Hits of trials, mean over seeds."""

    def one(part: Counted, rows: np.ndarray) -> float:
        return float(part.hits[rows].sum() / max(1, part.trials[rows].sum()))

    def statistic(rows: np.ndarray) -> float:
        return float(np.mean([one(part, rows) for part in counted]))

    everything = np.arange(len(counted[0].hits))
    return ranged(statistic, len(everything), [one(part, everything) for part in counted])


def mean_over(rows: Any) -> dict[str, Any]:
    """The mean of numbers (seed, picture)."""
    values = np.asarray(rows, np.float64)
    return ranged(lambda some: float(values[:, some].mean()), values.shape[1], values.mean(1).tolist())


def spoken(found: dict[str, Any] | float, digits: int = 3) -> str:
    """`0.331 [0.294, 0.377]`; a number of one seed without an interval is that alone."""
    if not isinstance(found, dict):
        return f"{found:.{digits}f}"
    return f"{found['value']:.{digits}f} [{found['low']:.{digits}f}, {found['high']:.{digits}f}]"


def figure_share(truths: list[np.ndarray]) -> np.ndarray:
    """(picture, patch): share of a patch's known pixels that lie on an object; not a number where none is known."""
    found = np.full((len(truths), PATCHES), np.nan)
    for n, truth in enumerate(truths):
        rows, columns = (np.arange(size) * SIDE // size for size in truth.shape)
        patch = rows[:, None] * SIDE + columns
        known = truth != IGNORE
        total = np.bincount(patch[known], minlength=PATCHES)
        on = np.bincount(patch[known & (truth > 0)], minlength=PATCHES)
        found[n] = np.where(total > 0, on / np.maximum(total, 1), np.nan)
    return found


def joined(data: Path, work: Path, count: int = 120) -> tuple[Features, np.ndarray, np.ndarray]:
    """Features of `count` pets and `count` voc_animals, their pixels, and figure shares (picture, patch)."""
    sets = [pictures_of(data, name, work) for name in ("pets", "voc_animals")]
    features = {
        m: {site: np.concatenate([np.asarray(s[1][m][site][:count])[:, 1:] for s in sets]) for site in SITES}
        for m in NETWORKS
    }
    pixels = np.concatenate([np.stack([np.asarray(p.image) for p in images])[:count] for images, _, _ in sets])
    return features, pixels, np.concatenate([figure_share(truths[:count]) for _, _, truths in sets])


def mixing(spectral: vt.Spectral, figures: np.ndarray, seed: int = 0) -> dict[str, Counted]:
    """What the nearest nodes of random nodes are, among random ones of other pictures; half of both lie on figures.

    Of the `NEAREST` of all: the share of another network (0.75 if networks did not matter), of another layer (0.83),
    and on the same side of figure and ground (0.5). Of the nearest among each other network's alone: on the same side.
    """
    generator = np.random.default_rng(seed)
    shape = (len(NETWORKS), len(LAYERS), len(figures), PATCHES)
    model, layer, picture, patch = np.unravel_index(np.arange(len(spectral)), shape)
    figure = figures[picture, patch]
    sides = [np.flatnonzero(figure >= FIGURE), np.flatnonzero(figure <= GROUND)]
    asked, pool = (
        np.concatenate([generator.choice(side, min(count // 2, len(side)), replace=False) for side in sides])
        for count in (ASKED, POOL)
    )
    rows = spectral.eigenvectors / np.linalg.norm(spectral.eigenvectors, axis=1, keepdims=True)
    hits = {name: np.zeros(len(figures)) for name in MEASURES}
    trials = {name: np.zeros(len(figures)) for name in MEASURES}

    def count(name: str, some: np.ndarray, found: np.ndarray) -> None:
        np.add.at(hits[name], picture[some], found.sum(1))
        np.add.at(trials[name], picture[some], found.shape[1])

    for some in np.array_split(asked, 10):
        likeness = rows[some] @ rows[pool].T
        likeness[picture[some][:, None] == picture[pool]] = -2
        near = pool[np.argpartition(-likeness, NEAREST, 1)[:, :NEAREST]]
        count("another network", some, model[near] != model[some][:, None])
        count("another layer", some, layer[near] != layer[some][:, None])
        count("same side", some, (figure[near] > 0.5) == (figure[some] > 0.5)[:, None])
        for network in range(len(NETWORKS)):
            away = some[model[some] != network]
            there = likeness[model[some] != network][:, model[pool] == network]
            near = pool[model[pool] == network][np.argpartition(-there, NEAREST, 1)[:, :NEAREST]]
            count("same side, in each other network", away, (figure[near] > 0.5) == (figure[away] > 0.5)[:, None])
    return {name: Counted(hits[name], trials[name]) for name in MEASURES}


MEASURES = ("another network", "another layer", "same side", "same side, in each other network")
CHANCE = {"another network": 0.75, "another layer": 5 / 6, "same side": 0.5, "same side, in each other network": 0.5}


def cosines(features: Features, read: Any = None, networks: Sequence[str] = ("text", "contrast", "mae")) -> np.ndarray:
    """(2, picture): mean cosine of the same patch at the same depth in two networks, and of a patch of any picture."""
    pictures = len(next(iter(features[networks[0]].values())))
    turn = np.random.default_rng(0).permutation(PATCHES * pictures)
    same, other = np.zeros(pictures), np.zeros(pictures)
    for site in SITES:
        rows = {}
        for name in networks:
            part = np.asarray(features[name][site], np.float32)
            part = part if read is None else read(part, name, site)
            flat = part.reshape(-1, part.shape[-1])
            rows[name] = flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-20)
        for n, a in enumerate(networks):
            for b in networks[n + 1 :]:
                same += (rows[a] * rows[b]).sum(1).reshape(pictures, -1).mean(1)
                other += (rows[a] * rows[b][turn]).sum(1).reshape(pictures, -1).mean(1)
    pairs = len(SITES) * len(networks) * (len(networks) - 1) / 2
    return np.stack([same, other]) / pairs
