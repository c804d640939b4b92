"""Interpretability without tradeoffs: disentangling polysemanticity at equal predictive performance (ELUDe, 2026).

A unit that answers to dogs and to violins is driven by different inputs for each. Its strongest instances are clustered
by what each input added, and every input is given to the sub-units whose clusters it drives. Their weights sum back to
the unit's, so the layer computes what it always did.

    paper     here              axes             what it is
    l         row               -                an instance: one position of one image
    D_u       rows              k                the top-k instances of unit u (eq. 1)
    q         q                 instance input   what enters the layer
    c         -                 instance input   contributions W_u * q, of length 1; never formed here
    p         probabilities     instance         how surely an instance belongs to its cluster
    r~        representatives   cluster input    mean of a cluster's c, weighted by p, of length 1 (eq. 2)
    rho       rho               -                margin by which a set of sub-units wins an input (eq. 3)
    w^(u,c)   -                 sub-unit input   shares of the unit's weights (eq. 4), kept as bits

Where we differ: outputs are not recomputed from the sub-units, so they are the same bit for bit rather than up to
rounding. The paper takes k = 400,000 of 2.56 million instances and clusters of k / 400 or more; with less data the same
ratios hold, down to the floors below.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from tqdm.auto import tqdm  # type: ignore[import-untyped]

from vitreous.errors import SettingsError
from vitreous.kernels.density import METHODS, SELECTIONS, contribution_clusters
from vitreous.kernels.split_weights import search_rho
from vitreous.kernels.stream_top import stream_top
from vitreous.lenses.disentangle_finding import Disentanglement as Disentanglement
from vitreous.lenses.disentangle_rows import Rows, Tokens, describe_source, open_rows
from vitreous.lenses.disentangle_work import UnitSplit, Work, assemble, open_work
from vitreous.models.subject import Subject
from vitreous.subunits.layers import chosen_units, find_layer

if TYPE_CHECKING:
    from torch import nn

    from vitreous.images import ImageSet
    from vitreous.store import Store
    from vitreous.texts import TextSet

PAPER_K, PAPER_SHARE, PAPER_RATIO = 400_000, 400_000 / 2_562_334, 400
LEAST_K, LEAST_CLUSTER = 1000, 10
HELD = 1 << 28  # bytes of a running top-k: as many units share a pass over the rows
EXAMPLES = 32  # strongest instances that are kept of a unit and of a sub-unit
SAMPLED_UNITS = 16  # units that are clustered to find the size of clusters for an expansion
EPSILON = 1e-12


@dataclass(frozen=True)
class Options:
    """How one unit is split."""

    top_k: int
    min_cluster_size: int
    selection: str
    min_samples: int | None
    clusterer: str
    seed: int


def disentangle(
    subject: Subject | nn.Module,
    source: ImageSet | TextSet | Store | np.ndarray,
    site: str = "blocks.-1.mlp.out",
    *,
    units: Literal["all"] | int | Sequence[int] = "all",
    top_k: int | None = None,
    tokens_per_image: Tokens = 2,
    min_cluster_size: int | None = None,
    expansion: float | None = None,
    selection: str = "leaf",
    min_samples: int | None = None,
    clusterer: str = "auto",
    seed: int = 0,
    out: str | Path | None = None,
    progress: bool = True,
) -> Disentanglement:
    """Splits units of a linear layer into sub-units that answer to one thing each.

    `site` is `mlp.out`, `attn.out`, `attn.q`, `.k` or `.v` of a block, or the path of a linear layer or convolution.
    The source is pictures or texts for the model, a store that holds what enters the layer, or that as an array. With
    `expansion` the size of clusters is chosen so that about that many sub-units a unit come out. With `out` the finding
    is saved there, and a run that was killed goes on where it was.

    >>> finding = vt.disentangle(subject, images)
    >>> finding.expansion, finding.subunits(31), finding.subunit_top.images[finding.subunits(31)]
    """
    layer = find_layer(subject, site)
    which = chosen_units(units, layer.count)
    asked: dict[str, Any] = {"top_k": top_k, "tokens_per_image": tokens_per_image, "min_cluster_size": min_cluster_size}
    asked |= {"expansion": expansion, "selection": selection, "min_samples": min_samples, "clusterer": clusterer}
    asked |= {"seed": seed}
    _check(asked)
    weight, bias = (part[which] for part in layer.matrix())
    model = {"name": subject.name, "fingerprint": subject.fingerprint} if isinstance(subject, Subject) else None
    made_of = {"model": model, "layer": layer.fingerprint, "data": describe_source(source), "asked": asked}
    with open_work(out, made_of | {"site": layer.site, "units": which.tolist()}) as work:
        if work.finished is not None:
            return work.finished
        rows = open_rows(subject, layer, source, tokens_per_image, seed, work.folder, progress)
        options, reached = _options(asked, rows, weight, bias, progress)
        splits = _split_all(rows, which, weight, bias, options, work, progress)
        settings = {**made_of, **asdict(options), "instances": len(rows), "sampled_expansion": reached}
        finding = assemble(layer, which, weight, bias, splits, settings)
        work.finish(finding)
    return finding


# -- one unit


def split_unit(q: np.ndarray, weight: np.ndarray, bias: np.float32, options: Options) -> UnitSplit:
    """Sections 3.2 and 3.3 for one unit: its top instances q (instance, input), strongest first, to its sub-units."""
    found = contribution_clusters(
        q,
        weight,
        min_cluster_size=options.min_cluster_size,
        min_samples=options.min_samples,
        selection=options.selection,
        method=options.clusterer,
        seed=options.seed,
    )
    whole = found.count < 1  # nothing to tell apart: all instances stand for the unit
    labels = np.zeros(len(q), np.int64) if whole else found.labels
    certain = np.ones(len(q), np.float32) if whole else found.probabilities
    representatives, means = represent(q, weight, labels, certain)
    sizes = np.bincount(labels[labels >= 0], minlength=len(means))
    noise = float((found.labels < 0).mean())
    if found.count < 2:
        members = np.ones((1, len(weight)), bool)
        return UnitSplit(found.count, sizes * (not whole), representatives, members, np.nan, np.nan, noise)
    split = search_rho(weight, float(bias), representatives, means)
    return UnitSplit(found.count, sizes, representatives, split.members, split.rho, split.score, noise)


def represent(
    q: np.ndarray, weight: np.ndarray, labels: np.ndarray, certain: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Eq. 2: representatives float32 (cluster, input), and the mean q of each cluster, float64 (cluster, input).

    A sum of W * q / |W * q| is W times a sum of q / |W * q|: one product of matrices does for all clusters.
    """
    inside = np.flatnonzero(labels >= 0)
    lengths = np.sqrt(np.maximum((q * q) @ (weight * weight), np.finfo(np.float32).tiny))
    count = int(labels.max()) + 1
    mix = np.zeros((2 * count, len(q)), np.float32)
    mix[labels[inside], inside] = certain[inside] / lengths[inside]
    mix[count + labels[inside], inside] = 1
    sums = mix @ q
    r = weight * sums[:count].astype(np.float64)
    sizes = np.bincount(labels[inside], minlength=count)
    return (r / (np.linalg.norm(r, axis=1, keepdims=True) + EPSILON)).astype(np.float32), sums[count:] / sizes[:, None]


# -- all units


def _split_all(
    rows: Rows,
    which: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    options: Options,
    work: Work,
    progress: bool,
) -> list[UnitSplit]:
    """Units one after the other; those that the folder has are read from it."""
    splits = {at: split for at, unit in enumerate(which) if (split := work.read(int(unit))) is not None}
    left = [at for at in range(len(which)) if at not in splits]
    bar = tqdm(total=len(which), initial=len(splits), desc="units", disable=not progress, leave=False)
    for at, ids, values in top_rows(rows, weight, bias, left, options.top_k):
        q = rows.read(ids)
        split = split_unit(q, weight[at], bias[at], options)
        split = split.with_examples(q, values, weight[at], bias[at], rows.images[ids], rows.tokens[ids], EXAMPLES)
        work.write(int(which[at]), split)
        splits[at] = split
        bar.update()
    bar.close()
    return [splits[at] for at in range(len(which))]


def top_rows(
    rows: Rows, weight: np.ndarray, bias: np.ndarray, units: Sequence[int], k: int
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Eq. 1: unit, ids and values of its k strongest rows, strongest first; as many units a pass as memory allows."""
    held = max(1, HELD // (36 * k))
    for first in range(0, len(units), held):
        part = list(units[first : first + held])
        active = (weight[part] @ q.T + bias[part, None] for q in rows.batches())
        found = stream_top(active, len(part), k)
        for at, values, ids in zip(part, found.values, found.ids, strict=True):
            yield at, ids, values


# -- what was asked for


def _check(asked: dict[str, Any]) -> None:
    for name in ("top_k", "min_cluster_size", "min_samples"):
        least = 2 if name == "min_cluster_size" else 1
        if asked[name] is not None and (not isinstance(asked[name], int) or asked[name] < least):
            raise SettingsError(f"{name} out of range", given=asked[name], accepted=f"a whole number from {least} on")
    if asked["clusterer"] not in METHODS:
        raise SettingsError("unknown clusterer", given=asked["clusterer"], accepted=METHODS)
    if asked["selection"] not in SELECTIONS:
        raise SettingsError("unknown selection", given=asked["selection"], accepted=SELECTIONS)
    if asked["expansion"] is not None and not asked["expansion"] > 1:
        raise SettingsError("expansion is more than 1", given=asked["expansion"])
    if asked["expansion"] is not None and asked["min_cluster_size"] is not None:
        raise SettingsError(
            "expansion chooses min_cluster_size, and both are given",
            given={"expansion": asked["expansion"], "min_cluster_size": asked["min_cluster_size"]},
        )
    if not isinstance(asked["seed"], int) or asked["seed"] < 0:
        raise SettingsError("seed is a whole number from 0 on", given=asked["seed"])


def _options(
    asked: dict[str, Any], rows: Rows, weight: np.ndarray, bias: np.ndarray, progress: bool
) -> tuple[Options, float | None]:
    """What was asked for with the rest filled in, and the expansion on a few units if that was to be reached."""
    top_k = asked["top_k"]
    if top_k is None:
        top_k = min(PAPER_K, len(rows), max(LEAST_K, round(PAPER_SHARE * len(rows))))
    if top_k > len(rows):
        raise SettingsError(
            "top_k is more than there are instances",
            given=top_k,
            accepted=f"1 to {len(rows)}",
            remedy="a smaller top_k, more pictures, or more tokens_per_image",
        )
    size = asked["min_cluster_size"] or max(LEAST_CLUSTER, round(top_k / PAPER_RATIO))
    options = Options(top_k, size, asked["selection"], asked["min_samples"], asked["clusterer"], asked["seed"])
    if asked["expansion"] is None:
        return options, None
    return _for_expansion(asked["expansion"], options, rows, weight, bias, progress)


def _for_expansion(
    target: float, options: Options, rows: Rows, weight: np.ndarray, bias: np.ndarray, progress: bool
) -> tuple[Options, float]:
    """The size of clusters, between 2 and a quarter of k, that comes nearest to so many sub-units a unit (E.6).

    Smaller clusters are more clusters, nearly always, so the size is halved in on; a few units stand for all.
    """
    some = np.random.default_rng((options.seed, 2)).permutation(len(weight))[:SAMPLED_UNITS]
    samples = [
        (at, rows.read(ids)) for at, ids, _ in top_rows(rows, weight, bias, sorted(some.tolist()), options.top_k)
    ]
    low, high = 2.0, max(2.0, options.top_k / 4)
    best: tuple[float, Options, float] | None = None
    steps = int(np.ceil(np.log2(max(2, np.log(high / low) / np.log(1.1)))))
    for _ in tqdm(range(steps), "expansion", disable=not progress, leave=False):
        size = max(2, round(float(np.sqrt(low * high))))
        tried = replace(options, min_cluster_size=size)
        counts = [max(1, split_unit(q, weight[at], bias[at], tried).clusters) for at, q in samples]
        reached = float(np.mean(counts))
        if best is None or abs(np.log(reached / target)) < best[0]:
            best = (abs(np.log(reached / target)), tried, reached)
        low, high = (low, size) if reached < target else (size, high)
    assert best is not None
    return best[1], best[2]
