"""Table 7 of the disentanglement paper: one setting of the clustering changed at a time, with intervals.

Units are drawn by lot. Each setting splits all of them from three draws of tokens, and sub-units are scored on pictures
that were held out. A mean is over sub-units, as in the paper; its interval, and those of the differences from the
same units whole and under the base setting, come from drawing units again with all that belongs to them, over all draws
of tokens.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm  # type: ignore[import-untyped]

import vitreous as vt
from disentangle_inputs import Case
from disentangle_report import rounded
from disentangle_umap import umap_finding
from vitreous.dictionary_comparison.activations import Training, record_training
from vitreous.dictionary_comparison.rows import strongest_samples
from vitreous.dictionary_comparison.watch import Watched
from vitreous.evidence.bootstrap import bootstrap
from vitreous.evidence.monosemanticity import ms_scores, random_partition
from vitreous.provenance import json_bytes, replace_file
from vitreous.subunits.layers import LinearLayer, find_layer

LAST = "blocks.-1.mlp.out"
TOP = 10
SEEDS = (42, 123, 999)  # of the draws of tokens, as in the paper
FEW = 4  # units of the ablation that is slow
BASE, WHOLE = "ELUDe (leaf)", "units, not split"
AGAINST = {"units": WHOLE, "base": BASE}
Results = dict[str, Any]


def ablations(case: Case, work: Path, tokens: int, units: int) -> Results:
    """Every setting on all draws of tokens, and what they come to."""
    began = time.time()
    bench = _Bench(case, find_layer(case.subject, LAST), work, tokens, units)
    for seed in tqdm(SEEDS, f"{case.name}: draws"):
        bench.measure(seed)
    said = {"units": units, "seeds": list(SEEDS), "data": case.said, "tokens": tokens, "judge": case.judged_by}
    rows = summary([bench.rows(seed).found for seed in SEEDS])
    return {"settings": said | bench.sizes() | {"seconds": round(time.time() - began)}, "rows": rows}


class _Bench:
    """What all rows share: the units, the held-out activations, the sizes that the first draw asked for."""

    def __init__(self, case: Case, layer: LinearLayer, work: Path, tokens: int, units: int) -> None:
        self.case, self.layer, self.work, self.tokens = case, layer, work, tokens
        self.chosen = np.random.default_rng(0).permutation(layer.count)[:units]
        held = record_training(case.subject, layer, case.evaluate, "all", 0, work / "held", True)
        self.q, self.y, self.judged = np.asarray(held.q), held.y, case.embeddings()

    def rows(self, seed: int) -> Kept:
        return Kept(self.work / f"rows-{seed}-{len(self.chosen)}.json")

    def training(self, seed: int) -> Training:
        folder = self.work / f"tokens-{seed}"
        return record_training(self.case.subject, self.layer, self.case.train, self.tokens, seed, folder, True)

    def sizes(self) -> dict[str, int]:
        """`top_k` and `min_cluster_size` of the base setting: those that give four sub-units a unit, first draw."""
        kept = Kept(self.work / f"sizes-{len(self.chosen)}.json")
        kept.put("base", lambda: self._sizes(self.training(SEEDS[0])))
        return kept.found["base"]

    def _sizes(self, training: Training) -> dict[str, int]:
        found = self._split(training, self.chosen, expansion=4)
        return {name: found.settings[name] for name in ("top_k", "min_cluster_size")}

    def _split(self, training: Training, units: np.ndarray, **asked: Any) -> vt.Disentanglement:
        given = {"units": np.sort(units).tolist(), "tokens_per_image": self.tokens, "progress": False}
        return vt.disentangle(self.case.subject, training.source, LAST, **given, **asked)

    def measure(self, seed: int) -> None:
        """All rows of one draw of tokens; those that are there are not made again."""
        rows, training, base = self.rows(seed), self.training(seed), self.sizes()
        weight, bias = self.layer.matrix()
        whole = np.sort(self.chosen)
        rows.put(WHOLE, lambda: self.of_units(weight[whole], bias[whole], whole))
        for name, change in tqdm(changes(**base).items(), f"seed {seed}", leave=False):
            asked = base | change
            rows.put(name, lambda asked=asked: self.of_finding(self._split(training, self.chosen, **asked)))
        rows.put("random partition", lambda: self.of_lot(self._split(training, self.chosen, **base), seed))
        few = np.sort(self.chosen[:FEW])  # UMAP takes a minute a unit
        rows.put(f"{BASE}, {FEW} of the units", lambda: self.of_finding(self._split(training, few, **base)))
        rows.put(
            f"UMAP to 5 dimensions, the same {FEW} units",
            lambda: self.of_finding(
                umap_finding(training.source, self.case.subject, self.layer, few, *base.values())  # type: ignore[arg-type]
            ),
        )

    def of_finding(self, finding: vt.Disentanglement | None) -> Results:
        if finding is None:
            return {"note": "no umap here"}
        alive = np.flatnonzero(~finding.dead)
        parents = finding.units[finding.parents[alive]]
        found = self.of_units(*finding.weights_of(alive), parents, finding.units)
        return found | {"expansion": finding.expansion, "noise": float(finding.noise.mean())}

    def of_lot(self, finding: vt.Disentanglement, seed: int) -> Results:
        """Units split as often as by the finding, inputs given to parts by lot."""
        parts = np.maximum(finding.counts, 1)
        drawn = random_partition(finding.weight, finding.bias, parts, np.random.default_rng(seed))
        return self.of_units(drawn[0].astype(np.float32), drawn[1], finding.units[drawn[2]], finding.units)

    def of_units(
        self, weight: np.ndarray, bias: np.ndarray, parents: np.ndarray, units: np.ndarray | None = None
    ) -> Results:
        """Sums over the scored sub-units of each unit, in the order of unit numbers."""
        own, other = scores(weight, bias, self.q, self.y, self.judged)
        at = np.searchsorted(parents if units is None else units, parents)
        many, scored = len(parents if units is None else units), np.isfinite(own)
        sums = {"count": scored, "ms": np.where(scored, own, 0), "ms judge": np.where(scored, other, 0)}
        return {"units": len(weight)} | {k: np.bincount(at, v, many).tolist() for k, v in sums.items()}


def changes(top_k: int, min_cluster_size: int) -> dict[str, dict[str, Any]]:
    """Rows of the table: what each changes of the base setting."""
    k, size = top_k, min_cluster_size
    return {
        BASE: {},
        "EOM": {"selection": "eom"},
        "exact HDBSCAN": {"clusterer": "exact"},
        f"min cluster size {max(2, size // 2)}": {"min_cluster_size": max(2, size // 2)},
        f"min cluster size {2 * size}": {"min_cluster_size": 2 * size},
        f"min cluster size {4 * size}": {"min_cluster_size": 4 * size},
        "min samples 1": {"min_samples": 1},
        "min samples 5": {"min_samples": 5},
        "min samples 50": {"min_samples": 50},
        f"top-k {k // 2}": {"top_k": k // 2},
    }


class Kept:
    """Rows that are on disk as soon as they are made; those that are there are not made again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: Results = json.loads(path.read_bytes()) if path.exists() else {}

    def put(self, name: str, make: Callable[[], Results]) -> None:
        if name not in self.found:
            self.found[name] = make()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, json_bytes(self.found))


def scores(
    weight: np.ndarray, bias: np.ndarray, q: np.ndarray, y: np.ndarray, judged: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """MS-Scores (unit,) of linear units on q (sample, token, input), in the layer's space and in the judge's.

    NaN for units that are nowhere above zero.
    """
    parts = [q[k : k + 50] @ weight.T + bias for k in range(0, len(q), 50)]
    strongest = np.concatenate([part.max(1) for part in parts])
    places = np.concatenate([part.argmax(1) for part in parts])
    low = np.min([part.min((0, 1)) for part in parts], 0)
    best = strongest_samples(Watched(None, strongest, places, low, 0.0, np.empty(0)), TOP)  # type: ignore[arg-type]
    at = np.take_along_axis(places.T, best.samples, 1)
    own = ms_scores(best.weights, best.samples * q.shape[1] + at, y)
    flat = best.samples if judged.ndim == 2 else best.samples * judged.shape[1] + at
    other = ms_scores(best.weights, flat, judged)
    return np.where(best.active, own, np.nan), np.where(best.active, other, np.nan)


# -- over draws of tokens


def summary(draws: list[Results]) -> Results:
    """Means over all sub-units of all draws, with intervals from drawing units anew."""
    found: Results = {}
    for name in draws[0]:
        rows = [draw[name] for draw in draws]
        if any("note" in row for row in rows):
            found[name] = {"note": next(row["note"] for row in rows if "note" in row)}
            continue
        others = {f"less {what}": _same_units(name, rows, other, draws) for what, other in AGAINST.items()}
        found[name] = {"units": float(np.mean([row["units"] for row in rows]))}
        found[name] |= {
            key: float(np.mean([row[key] for row in rows])) for key in ("expansion", "noise") if key in rows[0]
        }
        for key in ("ms", "ms judge"):
            found[name][key] = estimate(rows, key)
            found[name] |= {f"{key} {of}": estimate(rows, key, less) for of, less in others.items() if less}
    return {name: rounded(row) for name, row in found.items()}


def _same_units(name: str, rows: list[Results], other: str, draws: list[Results]) -> list[Results] | None:
    """Rows to compare with; none where that is the row itself, or one of other units."""
    there = [draw[other] for draw in draws]
    return there if name != other and len(rows[0]["count"]) == len(there[0]["count"]) else None


def estimate(rows: list[Results], key: str, less: list[Results] | None = None) -> list[float]:
    """[mean, low, high] over sub-units; of the difference from other rows of the same units, if they are given."""
    mine, theirs = _totals(rows, key), None if less is None else _totals(less, key)

    def mean(drawn: np.ndarray) -> float:
        value = mine[0, drawn].sum() / mine[1, drawn].sum()
        return float(value if theirs is None else value - theirs[0, drawn].sum() / theirs[1, drawn].sum())

    found = bootstrap(mean, mine.shape[1])
    return [found.value, found.low, found.high]


def _totals(rows: list[Results], key: str) -> np.ndarray:
    """(2, unit): scores of each unit's sub-units added up over draws, and how many they are."""
    return np.array([np.sum([row[key] for row in rows], 0), np.sum([row["count"] for row in rows], 0)])
