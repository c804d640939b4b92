"""Testing with concept activation vectors (Kim et al. 2018), by layer, as section D.1 of the structure paper uses it.

Does a class rely on a concept at a layer? A linear classifier tells the activations of pictures of the concept from
those of other pictures; its direction v is the concept. The score is the share of the class's pictures whose logit
rises when the activation moves along v.

    paper       here          what it is
    C           concepts      groups of pictures, one a concept
    N           -             `examples` pictures of all classes but the one in question, drawn anew for each repeat
    v_C^l       -             weights of the classifier between the two, at layer l
    ∇h_{l,k}    -             gradient of the logit of class k with respect to the activation, all tokens at once
    TCAV_Q      scores        share of the class's pictures with v · ∇h > 0

Layers, concepts, classes and repeats multiply to millions of classifiers. Each has few examples and lies in their span,
so inner products of activations and gradients are computed once, and a fit is a small linear system
(`kernels.dual_ridge`): least squares where captum's default is a hinge loss by stochastic descent. `classifier=` takes
any `captum.concept` classifier instead, one fit at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from math import comb
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from vitreous.baselines.logits import SEVERAL, batches, check_classifier, classes_of, count_of, logits_of
from vitreous.checks import number, whole
from vitreous.errors import ImageError, SettingsError, SiteError
from vitreous.evidence.statistics import p_text, paired_t
from vitreous.finding import Finding, columns
from vitreous.hooks import capture, evaluating, patch
from vitreous.images import ImageSet
from vitreous.kernels.dual_ridge import fit_dual_ridge
from vitreous.models.subject import Subject
from vitreous.progress import tqdm

if TYPE_CHECKING:
    from pathlib import Path

    from captum.concept import Classifier  # type: ignore[import-not-found]

Groups = Mapping[Any, Any]
PAIRED = ("random_sets", "examples", "ridge", "seed")
FEWEST = 2  # pictures of a class or concept
LEAST = {"class": 2, "concept": 1}  # other classes are what a concept is told from


@dataclass(frozen=True, eq=False)
class TcavFinding(Finding):
    """`scores` float32 (layer, concept, class, repeat), each between 0 and 1.

    `accuracy` float32 (layer, concept, class): how often the classifiers are right about a picture that they were not
    shown, mean over repeats; near 0.5 there is no such concept at that layer, whatever the score. NaN with classifiers
    from outside.
    """

    scores: np.ndarray
    accuracy: np.ndarray
    layers: tuple[str, ...]
    concepts: tuple[str, ...]
    classes: tuple[int, ...]
    settings: Mapping[str, Any]

    def facts(self) -> dict[str, Any]:
        counted = {"layers": len(self.layers), "concepts": len(self.concepts), "classes": len(self.classes)}
        return counted | {"random sets": self.scores.shape[-1], "mean score": float(self.scores.mean())}

    def columns_of_rows(self) -> dict[str, Any]:
        """One row a layer, concept and class: mean and deviation of its scores, held-out accuracy."""
        layer, concept, of = np.indices(self.accuracy.shape).reshape(3, -1)
        names = (np.array(self.layers)[layer], np.array(self.concepts)[concept], np.array(self.classes)[of])
        found = dict(zip(("layer", "concept", "class"), names, strict=True))
        spread = {"score": self.scores.mean(-1).ravel(), "deviation": self.scores.std(-1).ravel()}
        return found | spread | {"held-out accuracy": self.accuracy.ravel()}


def tcav(
    subject: Subject,
    images_by_class: Groups | ImageSet,
    concepts: Groups | ImageSet | str | Path,
    *,
    sites: str | Sequence[str] = "blocks.*.resid.out",
    random_sets: int = 300,
    examples: int = 30,
    ridge: float = 0.1,
    seed: int = 0,
    classifier: Callable[[], Classifier] | None = None,
    batch_size: int = 32,
    memory_mb: int = 2048,
    progress: bool = True,
) -> TcavFinding:
    """Scores of every concept for every class at every layer, `random_sets` times with other pictures to compare with.

    `images_by_class` is a set with labels that are the model's class numbers, or pictures by class number; `concepts`
    is a folder of folders, a set with labels, or pictures by name. All pictures of a concept are used each time.

    >>> finding = vt.tcav(subject, vt.dataset("cifar10", ..., "test")[:500], "dtd/images")
    >>> finding.scores.mean((1, 2, 3))                      # by layer
    """
    check_classifier(subject)
    number(above=True, ridge=ridge)
    number(memory_mb=memory_mb)
    if classifier is not None and not callable(classifier):
        raise SettingsError("classifier makes a captum classifier when it is called", given=classifier)
    layers = _layers(subject, sites)
    shown, meant = _groups(images_by_class, "class"), _groups(concepts, "concept")
    draws = _draws([count_of(group) for group in shown.values()], random_sets, examples, seed)
    shape = (len(layers), len(meant), len(shown))
    scores, accuracy = np.empty((*shape, random_sets), np.float32), np.empty(shape, np.float32)
    with evaluating(subject.module), tqdm(total=shape[0] * shape[1], desc="TCAV", disable=not progress, delay=1) as bar:
        for part in _that_fit(subject, layers, shown, meant, memory_mb):
            for read in _read(subject, part, shown, meant, batch_size):
                at = layers.index(read.layer)
                for c in range(len(meant)):
                    fit = _by_inner_products(read, c, ridge) if classifier is None else _by_captum(read, c, classifier)
                    for k in range(len(shown)):
                        scores[at, c, k], accuracy[at, c, k] = fit(draws[k], read.of_class[k])
                    bar.update()
    settings = {"subject": subject.name, "random_sets": random_sets, "examples": examples, "ridge": ridge, "seed": seed}
    settings |= {"classifier": "ridge" if classifier is None else "given"}
    return TcavFinding(scores, accuracy, layers, tuple(map(str, meant)), tuple(shown), settings)


# -- what was given


def _layers(subject: Subject, sites: str | Sequence[str]) -> tuple[str, ...]:
    names = subject.resolve(sites)
    patterns = [name for name in names if subject.is_pattern(name)]
    if patterns:
        raise SiteError("attention probabilities have no concept vectors", given=patterns[0], accepted="activations")
    return names


def _groups(source: Groups | ImageSet | str | Path, what: str) -> dict[Any, Any]:
    """Pictures by class number or by name of a concept."""
    if isinstance(source, Mapping):
        groups = {k: ImageSet.open(v) if isinstance(v, str | PurePath) else v for k, v in source.items()}
    elif not isinstance(source, ImageSet | str | PurePath):
        accepted = "pictures by name, a set with labels, or a folder of folders"
        said = f"pictures by {what} are a dictionary, a set or a folder"
        raise SettingsError(said, given=type(source).__name__, accepted=accepted)
    else:
        images = source if isinstance(source, ImageSet) else ImageSet.open(source, labels="folders")
        if images.labels is None:
            raise ImageError(f"pictures by {what} need labels", given=repr(images), remedy="or give a dictionary")
        names = {
            k: images.classes[k] if images.classes and what == "concept" else int(k) for k in np.unique(images.labels)
        }
        groups = {names[k]: images[images.labels == k] for k in names}
    if len(groups) < LEAST[what]:
        raise SettingsError(f"too few: {what}", given=len(groups), accepted=f"{LEAST[what]} or more")
    for name, group in groups.items():
        if not isinstance(group, SEVERAL) or len(group) < FEWEST:
            given = f"{len(group)} pictures" if isinstance(group, SEVERAL) else type(group).__name__
            raise ImageError(f"{what} {name!r} has too few pictures", given=given, accepted=f"{FEWEST} or more")
    if what == "class" and not all(isinstance(k, int | np.integer) for k in groups):
        raise SettingsError("classes are the model's class numbers", given=list(groups)[:5], accepted="whole numbers")
    return {int(k): v for k, v in groups.items()} if what == "class" else groups


def _draws(counts: Sequence[int], random_sets: int, examples: int, seed: int) -> list[np.ndarray]:
    """For each class (repeat, example): positions among all classes' pictures, none of its own, no set twice."""
    whole(1, random_sets=random_sets)
    whole(2, examples=examples)
    whole(0, seed=seed)
    owner = np.repeat(np.arange(len(counts)), counts)
    drawn = []
    for k in range(len(counts)):
        others = np.flatnonzero(owner != k)
        if comb(len(others), examples) < random_sets:
            raise SettingsError(
                f"{len(others)} pictures of other classes do not give {random_sets} different sets of {examples}",
                given=f"class number {k} of {len(counts)}",
                remedy="more pictures, or fewer sets",
            )
        rng = np.random.default_rng([seed, k])
        sets: dict[bytes, np.ndarray] = {}
        while len(sets) < random_sets:
            one = np.sort(rng.choice(others, examples, replace=False))
            sets[one.tobytes()] = one
        drawn.append(np.stack(list(sets.values())))
    return drawn


# -- activations and gradients


@dataclass(frozen=True, eq=False)
class _Read:
    """One layer: activations of the classes' pictures `P` and each concept's `C`, gradients `G`; (picture, feature)."""

    layer: str
    P: Tensor
    G: Tensor
    C: tuple[Tensor, ...]
    of_class: tuple[slice, ...]

    @cached_property
    def PP(self) -> Tensor:
        return _exact(self.P @ self.P.T)

    @cached_property
    def GP(self) -> Tensor:
        return _exact(self.G @ self.P.T)


def _that_fit(
    subject: Subject, layers: tuple[str, ...], shown: Groups, meant: Groups, memory_mb: int
) -> Iterator[tuple[str, ...]]:
    """Layers in groups whose activations and gradients stay below the limit together."""
    rows = 2 * sum(map(len, shown.values())) + sum(map(len, meant.values()))
    (_, x), *_ = batches(subject, next(iter(shown.values()))[:1], 1, False, "")
    with torch.no_grad(), capture(subject, layers, stop=True) as rec:
        subject(x)
    group: list[str] = []
    used = 0
    for layer in layers:
        size = 4 * rows * rec[layer].numel()
        if group and used + size > memory_mb * 2**20:
            yield tuple(group)
            group, used = [], 0
        group.append(layer)
        used += size
    yield tuple(group)


def _read(subject: Subject, layers: tuple[str, ...], shown: Groups, meant: Groups, batch_size: int) -> Iterator[_Read]:
    C = [_activations(subject, layers, group, batch_size) for group in meant.values()]
    both = [_with_gradients(subject, layers, group, k, batch_size) for k, group in shown.items()]
    ends = np.cumsum([0, *map(len, shown.values())]).tolist()
    of_class = tuple(slice(a, b) for a, b in pairwise(ends))
    for at, layer in enumerate(layers):
        P, G = (torch.cat([one[which][at] for one in both]) for which in (0, 1))
        yield _Read(layer, P, G, tuple(one[at] for one in C), of_class)


def _activations(subject: Subject, layers: Sequence[str], group: Any, batch_size: int) -> list[Tensor]:
    parts = []
    with torch.no_grad(), capture(subject, layers, stop=True) as rec:
        for _, x in batches(subject, group, batch_size, False, ""):
            subject(x)
            parts.append([rec[layer].float().flatten(1) for layer in layers])
    return [torch.cat(rows) for rows in zip(*parts, strict=True)]


def _with_gradients(
    subject: Subject, layers: Sequence[str], group: Any, k: int, batch_size: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Activations, and the gradient of the logit of class k with respect to them; none with respect to weights."""
    seen: dict[str, Tensor] = {}

    def keep(layer: str) -> Callable[[Tensor], Tensor]:
        def see(value: Tensor) -> Tensor:
            seen[layer] = value.clone()  # in the way of the pass, so that the gradient comes back to it
            return seen[layer]

        return see

    parts = []
    with torch.enable_grad(), patch(subject, {layer: keep(layer) for layer in layers}):
        for _, x in batches(subject, group, batch_size, False, ""):
            logits = logits_of(subject, x.detach().requires_grad_())
            classes_of(k, len(x), logits.shape[1])
            wanted = [seen[layer] for layer in layers]
            found = torch.autograd.grad(logits[:, k].sum(), wanted, materialize_grads=True, allow_unused=True)
            parts.append([value.detach().float().flatten(1) for value in (*wanted, *found)])
    rows = [torch.cat(one) for one in zip(*parts, strict=True)]
    return rows[: len(layers)], rows[len(layers) :]


# -- classifiers

Fit = Callable[[np.ndarray, slice], tuple[np.ndarray, float]]


def _by_inner_products(read: _Read, c: int, ridge: float) -> Fit:
    """Fits of one concept: sets (repeat, example) and rows of a class -> scores (repeat,) and accuracy."""
    C, PP, GP = read.C[c], read.PP, read.GP
    CP, CC, GC = (_exact(a @ b.T) for a, b in ((C, read.P), (C, C), (read.G, C)))
    n = len(C)

    def fit(draws: np.ndarray, rows: slice) -> tuple[np.ndarray, float]:
        at = torch.as_tensor(draws, device=PP.device)
        repeats, m = at.shape
        K = PP.new_empty(repeats, n + m, n + m)
        K[:, :n, :n] = CC
        K[:, :n, n:] = CP[:, at].transpose(0, 1)
        K[:, n:, :n] = K[:, :n, n:].mT
        K[:, n:, n:] = PP[at[:, :, None], at[:, None, :]]
        y = torch.cat([K.new_ones(n), -K.new_ones(m)])
        a, left_out = fit_dual_ridge(K, y, ridge)
        along = GC[rows] @ a[:, :n].T + torch.einsum("pre,re->pr", GP[rows][:, at], a[:, n:])
        return (along > 0).double().mean(0).cpu().numpy(), float((left_out * y > 0).double().mean())

    return fit


def _exact(products: Tensor) -> Tensor:
    """float64, on the processor where the device has none."""
    return (products.cpu() if products.device.type == "mps" else products).double()


def _by_captum(read: _Read, c: int, classifier: Callable[[], Classifier]) -> Fit:
    from torch.utils.data import DataLoader, TensorDataset

    def fit(draws: np.ndarray, rows: slice) -> tuple[np.ndarray, float]:
        scores = []
        for one in draws:
            x = torch.cat([read.C[c], read.P[torch.as_tensor(one, device=read.P.device)]])
            y = torch.cat([torch.ones(len(read.C[c])), torch.zeros(len(one))]).long().to(x.device)
            made = classifier()
            made.train_and_eval(DataLoader(TensorDataset(x, y), batch_size=len(x)))
            v = made.weights()[list(made.classes()).index(1)].to(x)
            scores.append(float((read.G[rows] @ v > 0).double().mean()))
        return np.array(scores), float("nan")

    return fit


# -- two models


@dataclass(frozen=True)
class TcavRow:
    """One layer of two models: mean scores, their difference b - a with its paired t-test, and how often b wins (%)."""

    layer: str
    mean: tuple[float, float]
    difference: float
    t: float
    p: float
    wins: float


@dataclass(frozen=True)
class TcavComparison(Finding):
    """Table 10."""

    names: tuple[str, str]
    rows: tuple[TcavRow, ...]

    def facts(self) -> dict[str, Any]:
        return {"a": self.names[0], "b": self.names[1], "layers": len(self.rows)}

    def columns_of_rows(self) -> dict[str, Any]:
        rows = [asdict(row) | {"mean": row.mean[0], "mean of b": row.mean[1]} for row in self.rows]
        return columns(rows)

    def table(self) -> str:
        cells = [("layer", *self.names, "diff", "t", "p", "win %")]
        for row in self.rows:
            a, b = row.mean
            numbers = (f"{a:.5f}", f"{b:.5f}", f"{row.difference:+.5f}", f"{row.t:.2f}", p_text(row.p))
            cells.append((row.layer, *numbers, f"{row.wins:.2f}"))
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join("  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in cells)


def tcav_table(a: TcavFinding, b: TcavFinding, names: tuple[str, str] = ("a", "b")) -> TcavComparison:
    """Layer by layer: a paired t-test over all scores, and the share of (concept, class) pairs with a higher mean in b.

    Pairs are scores of the same concept, class and random set, so both must come from the same pictures and seed. The
    scores of a layer are not independent (repeats share their pictures), which makes p smaller than it should be.
    """
    if len(names) != 2:
        raise SettingsError("two findings need two names", given=names)
    told = [[f.scores.shape, f.concepts, f.classes, *(f.settings[k] for k in PAIRED)] for f in (a, b)]
    if told[0] != told[1]:
        raise SettingsError(
            "findings made in different ways cannot be paired",
            given=[(x, y) for x, y in zip(*told, strict=True) if x != y][:2],
            remedy="the same pictures, concepts, random sets and seed for both",
        )
    rows = []
    for layer, x, y in zip(a.layers, a.scores.astype(np.float64), b.scores.astype(np.float64), strict=True):
        test = paired_t(y.ravel(), x.ravel())
        wins = 100 * float((y.mean(-1) > x.mean(-1)).mean())
        means = float(x.mean()), float(y.mean())
        rows.append(TcavRow(layer, means, means[1] - means[0], test.statistic, test.p, wins))
    return TcavComparison(names, tuple(rows))
