"""Object selection: does a token's map cover the object that its patch lies on? Eq. 12 and 15 of the tokens paper.

    paper   here        axes                 what it is
    S̃       maps        token row column     explanation maps, as large as the class map
    τ       thresholds  threshold            M = 1 where S̃ ≥ τ, eq. 12
    G_i     truth == i  row column           the class in the picture
    T_i     tokens      token                tokens whose patch lies on class i
    ITIoU   images      sample threshold     mean over classes of the mean over their tokens of IoU(M_j, G_i), eq. 15

What the paper leaves open: a patch lies on the class that most of its labelled pixels have (of equals the smallest
number), and on none if fewer than half of its pixels are labelled; classes without a token are left out of the mean;
ignored pixels and those where a map is NaN do not exist. τ is compared with the maps as they are given: for the paper's
0.2, maps brought to [0, 1]. The background of VOC is a class like any other unless `leave_out` names it.

A mask that covers the whole picture gets the area of the class. `chance` is this number, to be shown beside the score.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vitreous.errors import SettingsError
from vitreous.evidence.bootstrap import Estimate, mean_interval

TAU = 0.2
TAUS = tuple(round(0.05 * k, 2) for k in range(20))


@dataclass(frozen=True, eq=False)
class InitialTokenIoU:
    """`images` float64 (sample, threshold), NaN where no patch lies on a class; `chance` (sample,) of a full mask.

    `tokens` (sample,) is how many tokens took part.
    """

    thresholds: np.ndarray
    images: np.ndarray
    chance: np.ndarray
    tokens: np.ndarray

    def __len__(self) -> int:
        return len(self.images)

    def at(self, tau: float = TAU, **settings: Any) -> Estimate:
        """The score at one of the thresholds."""
        near = np.flatnonzero(np.isclose(self.thresholds, tau))
        if not len(near):
            raise SettingsError("no score at this threshold", given=tau, accepted=[f"{t:g}" for t in self.thresholds])
        return mean_interval(self.images[:, near[0]], **settings)

    def curve(self, **settings: Any) -> tuple[Estimate, ...]:
        """The score at every threshold (Figure 12)."""
        return tuple(mean_interval(self.images[:, k], **settings) for k in range(len(self.thresholds)))

    @property
    def best(self) -> float:
        """The threshold with the best mean. Chosen on these pictures, so its score is a little too good on them."""
        there = ~np.isnan(self.images).any(1)
        if not there.any():
            raise SettingsError("no picture has a patch on a class", given=len(self))
        return float(self.thresholds[self.images[there].mean(0).argmax()])


def token_classes(truth: np.ndarray, grid: tuple[int, int], *, ignore: int | Sequence[int] | None = 255) -> np.ndarray:
    """int (patch,): the class that each patch of a class map (row, column) lies on, row by row; -1 for none.

    The grid's lines may fall between pixels: a pixel belongs to the patch that its middle lies in.
    """
    labels = _class_map(truth)
    if min(grid) < 1 or any(n < m for n, m in zip(labels.shape, grid, strict=True)):
        raise SettingsError("a patch has one pixel or more", given=tuple(grid), accepted=f"up to {labels.shape}")
    rows, columns = (((np.arange(n) + 0.5) * m / n).astype(int) for n, m in zip(labels.shape, grid, strict=True))
    patch = rows[:, None] * grid[1] + columns
    kept = ~np.isin(labels, () if ignore is None else ignore)
    width = int(labels[kept].max(initial=0)) + 1
    patches = grid[0] * grid[1]
    counts = np.bincount(patch[kept] * width + labels[kept], minlength=patches * width).reshape(patches, width)
    labelled = 2 * counts.sum(1) >= np.bincount(patch.ravel(), minlength=patches)
    return np.where(labelled & (counts.sum(1) > 0), counts.argmax(1), -1)


def image_itiou(
    maps: np.ndarray,
    truth: np.ndarray,
    classes: np.ndarray,
    *,
    thresholds: Sequence[float] = (TAU,),
    ignore: int | Sequence[int] | None = 255,
    leave_out: Sequence[int] = (),
) -> tuple[np.ndarray, float, int]:
    """Eq. 15 for one picture: scores (threshold,), that of masks that cover everything, and how many tokens there were.

    `classes` (token,) are those of `token_classes`; -1 leaves a token out, and so do the classes in `leave_out`.
    """
    S, labels, wanted = np.asarray(maps), _class_map(truth), np.asarray(classes)
    taus = _taus(thresholds)
    if S.ndim != 3 or S.shape[1:] != labels.shape or wanted.shape != S.shape[:1]:
        raise SettingsError(
            "maps are (token, row, column), as large as the class map, with one class a token",
            given=(S.shape, labels.shape, wanted.shape),
        )
    kept = ~np.isin(labels, () if ignore is None else ignore) & ~np.isnan(S).any(0)
    S, labels = S[:, kept], labels[kept]
    tokens = np.flatnonzero((wanted >= 0) & ~np.isin(wanted, np.asarray(leave_out, int)))
    rising = np.sort(taus)
    back = np.argsort(np.argsort(taus, kind="stable"), kind="stable")
    found: dict[int, list[np.ndarray]] = {}
    for j in tokens:
        G = labels == wanted[j]
        found.setdefault(int(wanted[j]), []).append(_ious(S[j], G, rising)[back])
    if not found:
        return np.full(len(taus), np.nan), np.nan, 0
    chance = np.mean([(labels == c).mean() for c in found])
    return np.mean([np.mean(ious, 0) for ious in found.values()], 0), float(chance), len(tokens)


def _ious(S: np.ndarray, G: np.ndarray, rising: np.ndarray) -> np.ndarray:
    """IoU of S ≥ τ with G for rising thresholds, from one count of how many thresholds each pixel reaches."""
    reached = np.searchsorted(rising, S, side="right")
    above, shared = (
        np.bincount(part, minlength=len(rising) + 1)[::-1].cumsum()[::-1][1:] for part in (reached, reached[G])
    )
    either = above + G.sum() - shared
    return np.where(either > 0, shared / np.maximum(either, 1), 0.0)


def itiou(
    pictures: Iterable[tuple[np.ndarray, np.ndarray]],
    grid: tuple[int, int],
    *,
    thresholds: Sequence[float] = TAUS,
    ignore: int | Sequence[int] | None = 255,
    leave_out: Sequence[int] = (),
) -> InitialTokenIoU:
    """ITIoU of pairs (maps, class map), one a picture: maps (token, row, column) of all patches, row by row.

    Pairs are taken one after the other, so a generator keeps one picture's maps in memory.
    """
    scores, chances, counts = [], [], []
    for maps, truth in pictures:
        classes = token_classes(truth, grid, ignore=ignore)
        score, chance, count = image_itiou(
            maps, truth, classes, thresholds=thresholds, ignore=ignore, leave_out=leave_out
        )
        scores.append(score)
        chances.append(chance)
        counts.append(count)
    if not scores:
        raise SettingsError("no maps were given")
    return InitialTokenIoU(_taus(thresholds), np.stack(scores), np.array(chances), np.array(counts))


def _taus(thresholds: Sequence[float]) -> np.ndarray:
    taus = np.asarray(thresholds, np.float64)
    if taus.ndim != 1 or not taus.size or not np.isfinite(taus).all():
        raise SettingsError("thresholds are a list of numbers", given=list(np.ravel(taus)))
    return taus


def _class_map(truth: Any) -> np.ndarray:
    labels = np.asarray(truth)
    if labels.ndim != 2 or labels.dtype.kind not in "iub" or not labels.size:
        raise SettingsError("a class map is whole numbers (row, column)", given=f"{labels.dtype} {labels.shape}")
    return labels.astype(np.int64)
