"""The evidence behind a card, layer by layer, each number with the control it has to beat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.evidence.bootstrap import mean_interval
from vitreous.evidence.monosemanticity import Monosemanticity, monosemanticity, ms_scores, random_partition
from vitreous.evidence.stability import matched_similarity
from vitreous.evidence.unit_perturbation import spoiled_inputs

if TYPE_CHECKING:
    from vitreous.examination.profiles import Layer, Profile
    from vitreous.images import ImageSet
    from vitreous.lenses.disentangle_finding import Disentanglement
    from vitreous.lenses.tokens_finding import TokenMaps
    from vitreous.models.subject import Subject

SPOILED = 4  # tokens of a unit whose maps are tested
RESAMPLED = 400  # for an interval over these tokens
FEWEST, MOST, SHARE = 8, 100, 16  # pictures that MS-Score judges a unit by: a sixteenth of all


def ms_evidence(layer: Layer, block: int, seed: int, progress: bool) -> dict[str, list[float | None]]:
    """MS-Score of units and sub-units. Controls: random pictures, and parts of the same number with random inputs."""
    prefix, store = layer.prefix, layer.store
    embeddings = np.asarray(store[f"blocks.{block}.mlp.out"][:, prefix:])
    top = min(MOST, max(FEWEST, len(store) // SHARE), len(store))
    settings: dict[str, Any] = {"top": max(2, top), "sources": store[layer.site], "progress": progress}

    def score(weights: np.ndarray, biases: np.ndarray) -> Monosemanticity:
        def answer(batch: np.ndarray) -> np.ndarray:
            return np.asarray(batch, np.float32)[:, prefix:] @ weights.T + biases

        return monosemanticity(embeddings, answer, **settings)

    finding = layer.finding
    units, parts = score(finding.weight, finding.bias), score(*finding.dense)
    rng = np.random.default_rng((seed, 4))
    random_weights, random_biases, parent = random_partition(
        finding.weight, finding.bias, np.maximum(finding.counts, 1), rng
    )
    chance = score(random_weights, random_biases).scores
    by_unit = np.array([_mean(chance[parent == k]) for k in range(len(finding.units))])
    return {
        "ms": _plain(units.scores),
        "ms_control": _plain(_at_random(units, embeddings, rng)),
        "subunit_ms": _plain(parts.scores),
        "subunit_control": _plain(by_unit[finding.parents]),
    }


def _at_random(found: Monosemanticity, embeddings: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The score of as many random patches, one a picture, weighed alike: what the layer gives to any unit."""
    units, top = found.images.shape
    pictures, patches = embeddings.shape[:2]
    places = np.stack([rng.permutation(pictures)[:top] for _ in range(units)]) * patches
    places += rng.integers(0, patches, places.shape)
    return np.where(np.isfinite(found.scores), ms_scores(np.ones(places.shape), places, embeddings), np.nan)


def stability_evidence(finding: Disentanglement, again: Disentanglement) -> dict[str, list[float | None]]:
    """Whether other patches give the same sub-units. Control: every sub-unit taken for the unit as a whole.

    Of few pictures every patch is taken both times: there are no others, and nothing was tried.
    """
    same = map(np.array_equal, (finding.top.images, finding.top.tokens), (again.top.images, again.top.tokens))
    if all(same):
        return {name: [None] * len(finding.units) for name in ("stability", "stability_control")}
    found, control = [], []
    for unit in finding.units.tolist():
        mine = finding.representatives[finding.subunits(unit)]
        other = again.representatives[again.subunits(unit)]
        if len(mine) < 2:
            found.append(np.nan)
            control.append(np.nan)
            continue
        whole = np.repeat(mine.mean(0, keepdims=True), len(other), 0)
        found.append(matched_similarity(mine, other, unmatched="best"))
        control.append(matched_similarity(mine, whole, unmatched="best"))
    return {"stability": _plain(found), "stability_control": _plain(control)}


def perturbation_evidence(
    subject: Subject,
    images: ImageSet,
    layer: Layer,
    maps: TokenMaps,
    looked: Sequence[int],
    found: Profile,
    seed: int,
    progress: bool,
) -> dict[str, list[float | None]]:
    """The share of a unit's activation that is lost when the patches are covered that its tokens' maps name."""
    inside = {picture: k for k, picture in enumerate(looked)}
    units, places = [], []
    seen: dict[tuple[int, int], int] = {}
    for unit, (pictures, patches) in enumerate(zip(found.close_pictures, found.close_patches, strict=True)):
        mine = [(inside[p], q) for p, q in zip(pictures.tolist(), patches.tolist(), strict=True) if p in inside]
        for spot in mine[:SPOILED]:
            units.append(unit)
            places.append(seen.setdefault(spot, len(seen)))
    assert subject.preprocess is not None and maps.grid is not None
    sample, patch = np.array(list(seen), np.int64).T
    eaten = np.stack([subject.preprocess(images[looked[k]].image) for k in np.unique(sample)])
    pictures = eaten[np.unique(sample, return_inverse=True)[1]]
    of_maps = maps.of([len(maps.prefix) + int(p) for p in np.unique(patch)]).maps
    each = of_maps[sample, np.unique(patch, return_inverse=True)[1]]
    where = np.array([looked[k] for k in sample])
    before = layer.units(layer.inputs(where, patch))
    enter = _Enter(subject, layer)
    after = [layer.units(q) for q in spoiled_inputs(enter, pictures, each, patch, seed=seed, progress=progress)]
    lost = np.full((2, len(found.mean), SPOILED), np.nan)
    slot = np.zeros(len(found.mean), int)
    for unit, place in zip(units, places, strict=True):
        strength = before[place, unit]
        if strength > 0:
            lost[:, unit, slot[unit]] = [(strength - side[place, unit]) / strength for side in after]
            slot[unit] += 1
    low, high = np.array([_interval(row, seed) for row in lost[0]]).T
    value, control = (np.array([_mean(row) for row in side]) for side in lost)
    return {"lost": _plain(value), "lost_control": _plain(control), "lost_low": _plain(low), "lost_high": _plain(high)}


class _Enter:
    """Runs the model up to a layer, and gives what enters it at one patch of each picture."""

    def __init__(self, subject: Subject, layer: Layer) -> None:
        self.subject, self.site, self.prefix = subject, layer.site, layer.prefix

    def __call__(self, pictures: np.ndarray, patches: np.ndarray) -> np.ndarray:
        import torch

        from vitreous.hooks import capture, evaluating

        with evaluating(self.subject.module), torch.inference_mode():
            with capture(self.subject, self.site, stop=True) as seen:
                self.subject(torch.from_numpy(pictures))
            return seen[self.site].float().cpu().numpy()[np.arange(len(patches)), patches + self.prefix]


def _interval(row: np.ndarray, seed: int) -> tuple[float, float]:
    """95 % of the mean over tokens; none where there are fewer than two."""
    if np.isfinite(row).sum() < 2:
        return float("nan"), float("nan")
    found = mean_interval(row, repeats=RESAMPLED, seed=seed)
    return found.low, found.high


def _mean(values: np.ndarray) -> float:
    there = values[np.isfinite(values)]
    return float(there.mean()) if len(there) else float("nan")


def _plain(values: Any) -> list[float | None]:
    """As JSON can hold them: six digits, null for none."""
    return [float(f"{v:.6g}") if np.isfinite(v) else None for v in np.asarray(values, np.float64).tolist()]
