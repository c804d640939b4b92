"""Do maps name the patches that matter? Patches are spoiled by their map, and what changes is measured.

Eq. 14 of the tokens paper asks it of tokens: spoil the patches that a token's map calls relevant (positive) or
irrelevant (negative), as many in both, never the token's own patch, and see how far the token moves. A map that knows
something moves it far when positive and little when negative. `random` patches, as many, are the control that the paper
does not have: they tell a map that finds what matters from one that only finds what does not.

    paper     here        axes                       what it is
    x         pictures    sample colour row column   the model's input
    S         maps        sample token row column    maps on the patch grid, of the tokens that were drawn
    z - z̃     distances   kind side sample token     ‖z - z̃‖ of a token; `cosines` 1 - cos(z, z̃)
    k         -           token                      tokens drawn from each picture, 10 in the paper

Masked patches become `fill`, noise has a standard deviation of 0.3, both in the units of the pictures that are given;
the paper does not say whether its zeros are black or, as in a normalised input, the mean colour, nor how many patches
it spoils. Noise is drawn once a picture, so positive and negative patches get the same. Of patches with equal values,
which maps with many zeros have, the seed decides.

Insertion and deletion ask the same step by step, of any score: patches are taken away, or put back, most relevant
first, and the area under the curve is one number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from vitreous.errors import SettingsError
from vitreous.evidence.bootstrap import Estimate, mean_interval
from vitreous.progress import tqdm

#: Pictures (picture, colour, row, column) in, tokens (picture, token, channel) out: prefix tokens first, then patches.
Represent = Callable[[np.ndarray], Any]
#: Pictures and which map each of them belongs to (picture,), in; one number each out.
Score = Callable[[np.ndarray, np.ndarray], Any]
KINDS = ("mask", "noise")
SIDES = ("negative", "positive", "random")
METRICS = ("euclidean", "cosine")


@dataclass(frozen=True, eq=False)
class PerturbationTest:
    """How far tokens moved: `distances` and `cosines` float64 (kind, side, sample, token), kinds and sides in order.

    `patches` were spoiled of the grid's `of`. Estimates average over the tokens of a picture, then over pictures, with
    an interval over pictures.
    """

    distances: np.ndarray
    cosines: np.ndarray
    kinds: tuple[str, ...]
    sides: tuple[str, ...]
    tokens: np.ndarray
    patches: int
    of: int
    settings: dict[str, Any]

    def mean(self, kind: str, side: str, metric: str = "euclidean", **settings: Any) -> Estimate:
        """Eq. 14."""
        return mean_interval(self._of(kind, side, metric), **settings)

    def gap(self, kind: str, less: str = "negative", metric: str = "euclidean", **settings: Any) -> Estimate:
        """Positive less negative (or less random), picture by picture: above 0 if the map knows something."""
        return mean_interval(self._of(kind, "positive", metric) - self._of(kind, less, metric), **settings)

    def _of(self, kind: str, side: str, metric: str) -> np.ndarray:
        for name, given, known in (("kind", kind, self.kinds), ("side", side, self.sides), ("metric", metric, METRICS)):
            if given not in known:
                raise SettingsError(f"no such {name}", given=given, accepted=known)
        values = self.distances if metric == "euclidean" else self.cosines
        return values[self.kinds.index(kind), self.sides.index(side)].mean(1)


def draw_tokens(samples: int, patches: int, count: int = 10, *, prefix: int = 0, seed: int = 0) -> np.ndarray:
    """int (sample, token): numbers of `count` different patch tokens of each picture, rising."""
    if not 1 <= count <= patches:
        raise SettingsError("tokens are drawn without putting them back", given=count, accepted=f"1 to {patches}")
    rng = np.random.default_rng(seed)
    return prefix + np.stack([np.sort(rng.choice(patches, count, replace=False)) for _ in range(samples)])


def perturbation_test(
    represent: Represent,
    pictures: np.ndarray,
    maps: np.ndarray,
    tokens: np.ndarray,
    *,
    prefix: int = 0,
    area: float = 0.25,
    kinds: Sequence[Literal["mask", "noise"]] = ("mask", "noise"),
    sides: Sequence[Literal["negative", "positive", "random"]] = ("negative", "positive", "random"),
    fill: float = 0.0,
    deviation: float = 0.3,
    seed: int = 0,
    batch_size: int = 64,
    progress: bool = True,
) -> PerturbationTest:
    """Eq. 14 for positive, negative and random patches; `area` is the share of patches that is spoiled, at most half.

    `tokens` (sample, token) are numbers of tokens as `represent` returns them, `maps` their maps. A token below
    `prefix` has no patch of its own to be kept.
    """
    S, x = _checked(maps, pictures), np.asarray(pictures)
    of = S.shape[2] * S.shape[3]
    numbers = _tokens(tokens, S, prefix + of)
    for name, some, known in (("kind", kinds, KINDS), ("side", sides, SIDES)):
        if unknown := [one for one in some if one not in known]:
            raise SettingsError(f"unknown {name} of perturbation", given=unknown[0], accepted=known)
    if not 0 < area <= 0.5:
        raise SettingsError("above half, positive and negative patches are the same ones", given=area)
    if of < 3:
        raise SettingsError("beside a token's own patch there have to be two others", given=S.shape[2:])
    patches = max(1, min(round(area * of), (of - 1) // 2))
    rng = np.random.default_rng(seed)
    spoiled = chosen_patches(S, numbers - prefix, patches, rng)[[SIDES.index(side) for side in sides]]
    noise_seed = int(rng.integers(2**32))
    found = np.empty((2, len(kinds), len(sides), *numbers.shape))
    original = _represented(represent, x, numbers, batch_size, prefix + of)

    def spoil(work: np.ndarray) -> np.ndarray:
        made = x[work[:, 2]].copy()
        for k, (kind, side, sample, token) in enumerate(work):
            where = pixels_of(spoiled[side, sample, token].reshape(S.shape[2:]), x.shape[2:])
            if kinds[kind] == "mask":
                made[k][:, where] = fill
            else:
                noise = np.random.default_rng((noise_seed, sample)).normal(0, deviation, x.shape[1:])
                made[k][:, where] += noise[:, where].astype(x.dtype)
        return made

    for work in _work((len(kinds), len(sides), *numbers.shape), batch_size, progress):
        kind, side, sample, token = work.T
        z = np.asarray(represent(spoil(work)))[np.arange(len(work)), numbers[sample, token]].astype(np.float64)
        before = original[sample, token]
        found[0, kind, side, sample, token] = np.linalg.norm(z - before, axis=1)
        found[1, kind, side, sample, token] = 1 - _cosine(z, before)
    settings = {"area": area, "fill": fill, "deviation": deviation, "seed": seed, "prefix": prefix}
    return PerturbationTest(found[0], found[1], tuple(kinds), tuple(sides), numbers, patches, of, settings)


def _tokens(given: Any, S: np.ndarray, count: int) -> np.ndarray:
    numbers = np.asarray(given)
    if numbers.shape != S.shape[:2] or numbers.dtype.kind not in "iu":
        raise SettingsError("one map for each token", given=(numbers.shape, S.shape), accepted="(sample, token)")
    if wrong := [int(k) for k in (numbers.min(), numbers.max()) if not 0 <= k < count]:
        raise SettingsError("no such token", given=wrong[0], accepted=f"0 to {count - 1}")
    return numbers


def chosen_patches(S: np.ndarray, own: np.ndarray, patches: int, rng: np.random.Generator) -> np.ndarray:
    """bool (side, sample, token, patch) in the order of `SIDES`; never a token's own patch."""
    samples, tokens = S.shape[:2]
    values = S.reshape(samples, tokens, -1)
    chosen = np.zeros((len(SIDES), *values.shape), bool)
    for k in range(samples):
        for j in range(tokens):
            shuffled = rng.permutation(values.shape[2])
            shuffled = shuffled[shuffled != own[k, j]]
            rising = shuffled[np.argsort(values[k, j, shuffled], kind="stable")]
            for side, part in enumerate((rising[:patches], rising[-patches:], rng.permutation(shuffled)[:patches])):
                chosen[side, k, j, part] = True
    return chosen


def _represented(represent: Represent, x: np.ndarray, numbers: np.ndarray, batch_size: int, least: int) -> np.ndarray:
    """float64 (sample, token, channel) of the tokens that were drawn."""
    found = []
    for first in range(0, len(x), batch_size):
        z = np.asarray(represent(x[first : first + batch_size]))
        if z.ndim != 3 or z.shape[1] < least:
            raise SettingsError("tokens are (picture, token, channel), prefix tokens first", given=z.shape)
        found.append(np.take_along_axis(z, numbers[first : first + batch_size, :, None], 1).astype(np.float64))
    return np.concatenate(found)


# -- insertion and deletion


@dataclass(frozen=True, eq=False)
class RemovalCurves:
    """`values` float64 (map, step): the score after a `shares[step]` of the patches was taken away, or put back."""

    shares: np.ndarray
    values: np.ndarray

    @property
    def areas(self) -> np.ndarray:
        """Area under each curve (map,), by trapezoids; the shares run from 0 to 1."""
        return ((self.values[:, 1:] + self.values[:, :-1]) / 2 * np.diff(self.shares)).sum(1)

    def area(self, **settings: Any) -> Estimate:
        return mean_interval(self.areas, **settings)


def deletion(score: Score, pictures: np.ndarray, maps: np.ndarray, **settings: Any) -> RemovalCurves:
    """Patches are taken away, most relevant first: the faster the score falls, the better the map (small area)."""
    return removal_curves(score, pictures, maps, insert=False, **settings)


def insertion(score: Score, pictures: np.ndarray, maps: np.ndarray, **settings: Any) -> RemovalCurves:
    """Patches are put into an empty picture, most relevant first: a good map brings the score back fast."""
    return removal_curves(score, pictures, maps, insert=True, **settings)


def removal_curves(
    score: Score,
    pictures: np.ndarray,
    maps: np.ndarray,
    *,
    insert: bool,
    which: np.ndarray | None = None,
    keep: np.ndarray | None = None,
    steps: int | None = None,
    fill: float | np.ndarray = 0.0,
    seed: int = 0,
    batch_size: int = 64,
    progress: bool = True,
) -> RemovalCurves:
    """Scores along the order of maps (map, row, column); map k belongs to picture `which[k]`, by default to picture k.

    `keep` (map,) are patches that are always there, such as a token's own, -1 for none. `steps` is the number of steps
    of about equal size, by default one a patch. `fill` is a value or pictures to take the patches from (blurred ones).
    """
    values, x = np.asarray(maps), np.asarray(pictures)
    at = np.arange(len(values)) if which is None else np.asarray(which)
    S = _checked(values[:, None], x, at)[:, 0]
    empty = np.broadcast_to(np.asarray(fill, x.dtype), x.shape)
    rng = np.random.default_rng(seed)
    of = S.shape[1] * S.shape[2]
    if steps is not None and not 1 <= steps <= of:
        raise SettingsError("between one step and one for each patch", given=steps, accepted=f"1 to {of}")
    own = np.full(len(S), -1) if keep is None else np.asarray(keep)
    if own.shape != S.shape[:1] or own.dtype.kind not in "iu" or own.min() < -1 or own.max() >= of:
        raise SettingsError("one patch to keep for each map", given=own.tolist(), accepted=f"-1 (none) to {of - 1}")
    orders = [_falling(one.ravel(), mine, rng) for one, mine in zip(S, own, strict=True)]
    shares = np.linspace(0, 1, (steps or of) + 1)
    found = np.empty((len(S), len(shares)))
    for work in _work(found.shape, batch_size, progress):
        made = np.empty((len(work), *x.shape[1:]), x.dtype)
        for k, (j, step) in enumerate(work):
            touched = np.zeros(of, bool)
            touched[orders[j][: round(shares[step] * len(orders[j]))]] = True
            there = touched if insert else ~touched
            if own[j] >= 0:
                there[own[j]] = True
            where = pixels_of(there.reshape(S.shape[1:]), x.shape[2:])
            made[k] = np.where(where, x[at[j]], empty[at[j]])
        found[work[:, 0], work[:, 1]] = np.asarray(score(made, work[:, 0]), np.float64)
    return RemovalCurves(shares, found)


def _falling(values: np.ndarray, own: int, rng: np.random.Generator) -> np.ndarray:
    shuffled = rng.permutation(len(values))
    shuffled = shuffled[shuffled != own]
    return shuffled[np.argsort(-values[shuffled], kind="stable")]


# -- parts of both


def _work(shape: tuple[int, ...], batch_size: int, progress: bool) -> Iterator[np.ndarray]:
    """All positions (position, axis), a batch at a time."""
    if batch_size < 1:
        raise SettingsError("batch_size is at least 1", given=batch_size)
    count = int(np.prod(shape))
    with tqdm(total=count, desc="spoiled pictures", delay=1, disable=not progress) as bar:
        for first in range(0, count, batch_size):
            flat = np.arange(first, min(first + batch_size, count))
            yield np.stack(np.unravel_index(flat, shape), 1)
            bar.update(len(flat))


def pixels_of(patches: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """bool (row, column) of pixels from one of patches."""
    return patches.repeat(size[0] // patches.shape[0], 0).repeat(size[1] // patches.shape[1], 1)


def _cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.where(lengths > 0, (a * b).sum(1) / np.where(lengths > 0, lengths, 1), 0)


def _checked(maps: np.ndarray, pictures: np.ndarray, which: np.ndarray | None = None) -> np.ndarray:
    S, x = np.asarray(maps, np.float64), np.asarray(pictures)
    if x.ndim != 4 or x.dtype.kind != "f":
        raise SettingsError(
            "pictures are the model's input, float (sample, colour, row, column)", given=f"{x.dtype} {x.shape}"
        )
    there = len(S) == len(x) if which is None else len(which) == len(S) and bool((which < len(x)).all())
    if S.ndim != 4 or not S.size or not np.isfinite(S).all() or not there:
        raise SettingsError(
            "maps are finite, on the patch grid, and belong to a picture each", given=(S.shape, x.shape)
        )
    if any(n % m for n, m in zip(x.shape[2:], S.shape[2:], strict=True)):
        raise SettingsError("pictures hold whole patches", given=(x.shape[2:], S.shape[2:]))
    return S
