"""How well could patches be named if the middle of every class were known? Oracle segmentation (AlignedCut, C.4).

    step   here                    axes
    1      vectors                 picture row column vector   eigenvectors of one cut over all pictures
    2      centres                 class vector                mean over the pixels of a class
    3, 5   cosine to the centres   …                           a patch takes the class of the nearest one
    4      thresholds              10 from 0 to 1              below it, the patch is background; the best one counts

A pixel has the vector of the patch it lies in. Nothing is learned, but the truth is used twice, for the centres and for
the threshold: the score says what the vectors hold, not what a segmentation without labels would find. So look at it
beside three numbers: `majority`, every patch named after the class of most of its pixels; `empty`, background
everywhere; and the score of vectors that were shuffled over patches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vitreous.errors import SettingsError
from vitreous.evidence.bootstrap import Estimate, bootstrap
from vitreous.evidence.segments import IGNORE, class_count, widened

THRESHOLDS = 10


@dataclass(frozen=True, eq=False)
class OracleScore:
    """`miou` (threshold,) at every one of `thresholds`; the rest is at the best of them.

    `named` int64 (picture, row, column) is the class that each patch was given, `confusion` int64 (picture, class
    given, true class) counts pixels, `iou` (class,) is not a number for a class that no pixel has.
    """

    thresholds: np.ndarray
    miou: np.ndarray
    named: np.ndarray
    confusion: np.ndarray
    iou: np.ndarray
    centres: np.ndarray
    majority: float
    empty: float

    @property
    def best(self) -> float:
        return float(self.miou.max())

    @property
    def threshold(self) -> float:
        return float(self.thresholds[self.miou.argmax()])

    def estimate(self, **settings: Any) -> Estimate:
        """The best mIoU with an interval over pictures; centres and threshold stay."""
        return bootstrap(lambda at: _mean_iou(self.confusion[at].sum(0)), len(self.confusion), **settings)

    def __str__(self) -> str:
        return f"mIoU {self.best:.3f} at {self.threshold:.2f} (majority {self.majority:.3f}, empty {self.empty:.3f})"


def oracle_segmentation(
    vectors: np.ndarray,
    truths: Sequence[np.ndarray] | np.ndarray,
    *,
    classes: int | None = None,
    background: int = 0,
    ignore: int | Sequence[int] | None = IGNORE,
    thresholds: int | Sequence[float] = THRESHOLDS,
) -> OracleScore:
    """Scores vectors (picture, row, column, vector) against class maps (row, column) of the model's input, pixel by
    pixel. IoU is over all pictures, its mean over the classes that there are.

    >>> spectral = vt.ncut({"text": store}, n_eig=10, sites="blocks.5.attn.out")
    >>> vectors = spectral.of("text", "blocks.5.attn.out").reshape(len(images), 8, 8, 10)
    >>> oracle_segmentation(vectors, vt.input_labels(images, subject.preprocess)).best
    """
    vectors = np.asarray(vectors, np.float64)
    if vectors.ndim != 4 or not vectors.size or not np.isfinite(vectors).all():
        raise SettingsError("vectors are finite numbers (picture, row, column, vector)", given=vectors.shape)
    steps = np.linspace(0, 1, thresholds) if isinstance(thresholds, int) else np.asarray(thresholds, np.float64)
    if steps.ndim != 1 or not len(steps):
        raise SettingsError("at least one threshold is needed", given=thresholds)
    if len(vectors) != len(truths):
        raise SettingsError("one class map for each picture", given=len(truths), accepted=str(len(vectors)))
    pixels = patch_classes(truths, (vectors.shape[1], vectors.shape[2]), classes=classes, ignore=ignore)
    if not 0 <= background < pixels.shape[2]:
        raise SettingsError("no such background class", given=background, accepted=f"0 to {pixels.shape[2] - 1}")
    rows = vectors.reshape(len(vectors), -1, vectors.shape[3])
    centres = _centres(rows, pixels)
    likeness = _cosines(rows, centres)
    nearest, most = likeness.argmax(2), likeness.max(2)
    tables = [_confusion(np.where(most < step, background, nearest), pixels) for step in steps]
    miou = np.array([_mean_iou(table.sum(0)) for table in tables])
    best = int(miou.argmax())
    return OracleScore(
        steps,
        miou,
        np.where(most < steps[best], background, nearest).reshape(vectors.shape[:3]),
        tables[best],
        _iou(tables[best].sum(0)),
        centres,
        _mean_iou(_confusion(pixels.argmax(2), pixels).sum(0)),
        _mean_iou(_confusion(np.full(pixels.shape[:2], background), pixels).sum(0)),
    )


def patch_classes(
    truths: Iterable[np.ndarray],
    grid: tuple[int, int],
    *,
    classes: int | None = None,
    ignore: int | Sequence[int] | None = IGNORE,
) -> np.ndarray:
    """int64 (picture, patch, class): how many pixels of each class lie in each patch of a grid (rows, columns).

    Class maps (row, column) are at least as fine as the grid; ignored pixels are in no class.
    """
    found = [_in_patches(np.asarray(truth), grid, ignore) for truth in truths]
    if not any(table.shape[1] for table in found):
        raise SettingsError("there is no pixel with a class", given=f"{len(found)} class maps")
    width = class_count(found, classes)
    return np.stack([widened(table, width) for table in found])


def _in_patches(truth: np.ndarray, grid: tuple[int, int], ignore: int | Sequence[int] | None) -> np.ndarray:
    if truth.ndim != 2 or truth.dtype.kind not in "iub" or min(truth.shape) < 1:
        raise SettingsError("class maps are whole numbers (row, column)", given=f"{truth.dtype} {truth.shape}")
    if truth.shape[0] < grid[0] or truth.shape[1] < grid[1]:
        raise SettingsError("a class map is at least as fine as the patches", given=truth.shape, accepted=f">= {grid}")
    rows, columns = (np.arange(n) * m // n for n, m in zip(truth.shape, grid, strict=True))
    patch = np.broadcast_to(rows[:, None] * grid[1] + columns, truth.shape)
    kept = ~np.isin(truth, () if ignore is None else ignore)
    labels = truth[kept].astype(np.int64)
    if labels.min(initial=0) < 0:
        raise SettingsError("classes are numbered from 0", given=int(labels.min()), remedy="or name it in ignore=")
    width = int(labels.max(initial=-1)) + 1
    return np.bincount(patch[kept] * width + labels, minlength=grid[0] * grid[1] * width).reshape(
        grid[0] * grid[1], width
    )


def _centres(rows: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """(class, vector): the mean vector of the pixels of each class; not a number for a class without any."""
    with np.errstate(invalid="ignore"):
        return np.einsum("npc,npv->cv", pixels, rows) / pixels.sum((0, 1))[:, None]


def _cosines(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """(picture, patch, class); a class without a centre is like nothing."""
    unit, middle = (x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-300) for x in (rows, centres))
    found = unit @ middle.T
    return np.where(np.isnan(found), -np.inf, found)


def _confusion(named: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """int64 (picture, class given, true class) from (picture, patch) and pixels (picture, patch, class)."""
    given = named[:, :, None] == np.arange(pixels.shape[2])
    return np.einsum("npg,npc->ngc", given.astype(np.int64), pixels)


def _iou(table: np.ndarray) -> np.ndarray:
    """(class,) from pixels (class given, true class)."""
    shared, given, true = table.diagonal(), table.sum(1), table.sum(0)
    return np.where(true > 0, shared / np.maximum(given + true - shared, 1), np.nan)


def _mean_iou(table: np.ndarray) -> float:
    found = _iou(table)
    return float(np.nanmean(found)) if np.isfinite(found).any() else float("nan")
