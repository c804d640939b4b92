"""Do segments without names agree with classes? U. mIoU and U. accuracy, Tables 1 to 4 and 7 of the tokens paper.

Segments have numbers, classes have names; the Hungarian method pairs them one to one before anything is scored. The
paper does not say over what. Here there are two answers with functions and types of their own, because their numbers
are worlds apart and must not stand in one column:

    per_image       pairs anew in every picture: is the picture cut where the classes meet?
    over_dataset    pairs once: does a cluster mean the same in all pictures? Segments have to be joined across pictures
                    first, see `join_segments`.

A pair takes part with what both share; what is left over counts as wrong: pixels of a segment without a class, of a
class without a segment (IoU 0), and pixels that are in no segment (a negative number). Pairs are those that share the
most pixels, so that one pairing gives both numbers; `by="iou"` takes those with the largest sum of IoU instead.
Classes that a picture, or for the data set no picture, has are left out of the mean. Ignored pixels do not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from vitreous.errors import SettingsError
from vitreous.evidence.bootstrap import Estimate, bootstrap, mean_interval

By = Literal["pixels", "iou"]
BY = ("pixels", "iou")
IGNORE = 255


@dataclass(frozen=True, eq=False)
class PerImage:
    """Scores with segments paired anew in every picture.

    `shared`, `truth` and `segment` int64 (sample, class) are pixels: of the pair, of the class, of the segment paired
    with it. `pixels` (sample,) are all that count, `unsegmented` those in no segment, `segments` how many there were.
    Estimates have an interval over pictures.
    """

    shared: np.ndarray
    truth: np.ndarray
    segment: np.ndarray
    pixels: np.ndarray
    unsegmented: np.ndarray
    segments: np.ndarray
    by: By
    matching: Literal["per image"] = "per image"

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def iou(self) -> np.ndarray:
        """(sample, class); NaN where a picture does not have the class."""
        return _iou(self.shared, self.truth, self.segment)

    @property
    def image_miou(self) -> np.ndarray:
        """(sample,); NaN where nothing is labelled."""
        return _mean_of_there(self.iou)

    def miou(self, **settings: Any) -> Estimate:
        """Mean over the classes of a picture, then over pictures."""
        return mean_interval(self.image_miou, **settings)

    def accuracy(self, **settings: Any) -> Estimate:
        """Share of a picture's pixels whose segment is paired with their class, mean over pictures."""
        return mean_interval(_share(self.shared.sum(1), self.pixels), **settings)

    def pooled_miou(self, **settings: Any) -> Estimate:
        """Still paired per picture, but pixels are added up over pictures before the mean over classes."""
        counts = self.shared, self.truth, self.segment
        return bootstrap(lambda at: float(_mean_of_there(_iou(*(c[at].sum(0) for c in counts)))), len(self), **settings)

    def pooled_accuracy(self, **settings: Any) -> Estimate:
        shared = self.shared.sum(1)
        return bootstrap(lambda at: float(_share(shared[at].sum(), self.pixels[at].sum())), len(self), **settings)


@dataclass(frozen=True, eq=False)
class OverDataset:
    """Scores with clusters paired once, over all pictures.

    `confusion` int64 (sample, cluster, class) are pixels; its last cluster holds those in none. `pairs` int (class,) is
    the cluster of each class, -1 for none; `iou` (class,) is NaN where no picture has the class. Intervals are over
    pictures, paired anew in each draw. A draw lacks a third of the pictures, so that pairs suit it better and rare
    classes are missing: intervals are centred on the value.
    """

    confusion: np.ndarray
    pairs: np.ndarray
    iou: np.ndarray
    by: By
    matching: Literal["over the data set"] = "over the data set"

    def __len__(self) -> int:
        return len(self.confusion)

    @property
    def pixels(self) -> np.ndarray:
        return self.confusion.sum((1, 2))

    @property
    def unsegmented(self) -> np.ndarray:
        return self.confusion[:, -1].sum(1)

    def miou(self, **settings: Any) -> Estimate:
        """Mean over the classes that there are."""
        return self._estimate(
            lambda shared, truth, cluster: float(_mean_of_there(_iou(shared, truth, cluster))), settings
        )

    def accuracy(self, **settings: Any) -> Estimate:
        """Share of all pixels whose cluster is paired with their class."""
        return self._estimate(lambda shared, truth, _: float(_share(shared.sum(), truth.sum())), settings)

    def _estimate(
        self, score: Callable[[np.ndarray, np.ndarray, np.ndarray], float], settings: dict[str, Any]
    ) -> Estimate:
        of = bootstrap(
            lambda at: score(*_paired(self.confusion[at].sum(0), self.by)[1:]), len(self), centred=True, **settings
        )
        return replace(of, low=max(of.low, 0.0), high=min(of.high, 1.0))


def per_image(
    segments: Iterable[np.ndarray],
    truths: Iterable[np.ndarray],
    *,
    classes: int | None = None,
    ignore: int | Sequence[int] | None = IGNORE,
    by: By = "pixels",
) -> PerImage:
    """Label maps (row, column) against class maps of the same sizes, paired picture by picture.

    Segment numbers of one picture have nothing to do with those of another. `classes` is how many there are.
    """
    _refuse_by(by)
    tables = []
    for given, truth in zip(segments, truths, strict=True):
        numbers, which = np.unique(_labels(given, "segments"), return_inverse=True)
        inside = int((numbers >= 0).sum())  # negative numbers come first: they are no segments
        compact = which.reshape(np.shape(given)) - (len(numbers) - inside)
        tables.append((_table(compact, truth, inside, ignore), inside))
    _refuse_nothing(tables)
    width = class_count([table for table, _ in tables], classes)
    found = [_paired(widened(table, width), by)[1:] for table, _ in tables]
    shared, truth_pixels, segment_pixels = (np.stack(part) for part in zip(*found, strict=True))
    return PerImage(
        shared,
        truth_pixels,
        segment_pixels,
        truth_pixels.sum(1),
        np.array([table[-1].sum() for table, _ in tables], np.int64),
        np.array([count for _, count in tables], np.int64),
        by,
    )


def over_dataset(
    clusters: Iterable[np.ndarray],
    truths: Iterable[np.ndarray],
    *,
    count: int | None = None,
    classes: int | None = None,
    ignore: int | Sequence[int] | None = IGNORE,
    by: By = "pixels",
) -> OverDataset:
    """Label maps (row, column) whose numbers mean the same in every picture, paired with classes once.

    `count` is the number of clusters; by default one more than the largest number.
    """
    _refuse_by(by)
    given = [_labels(part, "clusters") for part in clusters]
    most = max((int(part.max(initial=-1)) for part in given), default=-1) + 1
    if count is not None and most > count:
        raise SettingsError(
            "a cluster has a number that is not below their count", given=most - 1, accepted=f"< {count}"
        )
    tables = [_table(part, truth, count or most, ignore) for part, truth in zip(given, truths, strict=True)]
    _refuse_nothing(tables)
    width = class_count(tables, classes)
    confusion = np.stack([widened(table, width) for table in tables])
    pairs, *counts = _paired(confusion.sum(0), by)
    return OverDataset(confusion, pairs, _iou(*counts), by)


def pair_segments(
    segments: np.ndarray, truth: np.ndarray, *, ignore: int | Sequence[int] | None = IGNORE, by: By = "pixels"
) -> dict[int, int]:
    """{segment: class} of one picture, as `per_image` pairs them; segments without a class are not in it."""
    _refuse_by(by)
    labels = _labels(segments, "segments")
    pairs = _paired(_table(labels, truth, max(int(labels.max()) + 1, 0), ignore), by)[0]
    return {int(segment): c for c, segment in enumerate(pairs) if segment >= 0}


# -- segments of many pictures made one set of clusters


def segment_means(segments: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Mean feature of each segment, float64 (segment, channel), from a label map and features (row, column, channel).

    The label map may be finer than the features: every pixel takes those of the patch it lies in. Segments are
    numbered from 0; a number that no pixel has gets NaN.
    """
    labels, values = _labels(segments, "segments"), np.asarray(features, np.float64)
    if values.ndim != 3 or not values.size:
        raise SettingsError("features are (row, column, channel)", given=values.shape)
    rows, columns = (np.arange(n) * m // n for n, m in zip(labels.shape, values.shape[:2], strict=True))
    patch = (rows[:, None] * values.shape[1] + columns)[labels >= 0]
    patches, count = values.shape[0] * values.shape[1], int(labels.max(initial=-1)) + 1
    weights = np.bincount(labels[labels >= 0] * patches + patch, minlength=count * patches).reshape(count, patches)
    area = weights.sum(1, keepdims=True)
    return np.where(area > 0, weights @ values.reshape(patches, -1) / np.maximum(area, 1), np.nan)


def join_segments(
    segments: Sequence[np.ndarray], means: Sequence[np.ndarray], count: int, *, seed: int = 0
) -> list[np.ndarray]:
    """Label maps renumbered so that a number means the same in all pictures: k-means of the segments' mean features.

    `means` hold (segment, channel) for each picture; their length does not matter, only their direction. This is what
    `over_dataset` takes.
    """
    from sklearn.cluster import KMeans

    if len(segments) != len(means):
        raise SettingsError("one set of means for each picture", given=(len(segments), len(means)))
    stacked = np.concatenate([np.asarray(part, np.float64) for part in means])
    there = np.isfinite(stacked).all(1)
    if not 1 <= count <= there.sum():
        raise SettingsError("there are not as many segments as clusters", given=count, accepted=f"1 to {there.sum()}")
    kept = stacked[there]
    kept = kept / np.maximum(np.linalg.norm(kept, axis=1, keepdims=True), 1e-300)
    number = np.full(len(stacked), -1)
    number[there] = KMeans(count, n_init=10, random_state=seed).fit_predict(kept)
    ends = np.cumsum([len(part) for part in means])
    parts = np.split(number, ends[:-1])
    joined = []
    for labels, part in zip(segments, parts, strict=True):
        checked = _labels(labels, "segments")
        if checked.max(initial=-1) >= len(part):
            raise SettingsError("a segment has no mean", given=int(checked.max()), accepted=f"below {len(part)}")
        joined.append(np.append(part, -1)[np.maximum(checked, -1)])
    return joined


# -- counting and pairing


def _labels(given: Any, name: str) -> np.ndarray:
    labels = np.asarray(given)
    if labels.ndim != 2 or labels.dtype.kind not in "iub" or not labels.size:
        raise SettingsError(f"{name} are whole numbers (row, column)", given=f"{labels.dtype} {labels.shape}")
    return labels.astype(np.int64)


def _table(segments: np.ndarray, truth: Any, count: int, ignore: int | Sequence[int] | None) -> np.ndarray:
    """Pixels int64 (segment + 1, class): the last row is for those in no segment."""
    classes = _labels(truth, "class maps")
    if classes.shape != segments.shape:
        raise SettingsError(
            "a label map is as large as its class map",
            given=segments.shape,
            accepted=f"{classes.shape}",
            remedy="TokenMaps.upsample or a nearest-neighbour resize brings labels to the picture's own pixels",
        )
    kept = ~np.isin(classes, () if ignore is None else ignore)
    segments, classes = segments[kept], classes[kept]
    if classes.min(initial=0) < 0:
        raise SettingsError("classes are numbered from 0", given=int(classes.min()), remedy="or name it in ignore=")
    width = int(classes.max(initial=-1)) + 1
    rows = np.where(segments < 0, count, segments)
    return np.bincount(rows * width + classes, minlength=(count + 1) * width).reshape(count + 1, width)


def class_count(tables: Sequence[np.ndarray], classes: int | None) -> int:
    """How many classes there are: as many as was said, or as the widest of tables (…, class) has."""
    most = max(table.shape[1] for table in tables)
    if classes is not None and most > classes:
        raise SettingsError(
            "a class map holds a class that does not exist",
            given=most - 1,
            accepted=f"0 to {classes - 1}",
            remedy="name labels that count for nothing in ignore=",
        )
    return most if classes is None else classes


def widened(table: np.ndarray, width: int) -> np.ndarray:
    """(…, class) with classes that nothing has."""
    return np.pad(table, ((0, 0), (0, width - table.shape[1])))


def _paired(table: np.ndarray, by: By) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Segment of each class (-1: none), and pixels (class,): shared by the pair, of the class, of its segment."""
    from scipy.optimize import linear_sum_assignment

    inside, truth = table[:-1], table.sum(0)
    there = np.flatnonzero(truth)
    area = inside.sum(1)
    gain = inside[:, there]
    if by == "iou":
        gain = gain / np.maximum(area[:, None] + truth[there] - gain, 1)
    rows, columns = linear_sum_assignment(gain, maximize=True)
    useful = gain[rows, columns] > 0  # a pair that shares nothing is none
    pairs = np.full(len(truth), -1)
    pairs[there[columns[useful]]] = rows[useful]
    paired = pairs >= 0
    shared, segment = np.zeros_like(truth), np.zeros_like(truth)
    shared[paired], segment[paired] = inside[pairs[paired], paired.nonzero()[0]], area[pairs[paired]]
    return pairs, shared, truth, segment


def _iou(shared: np.ndarray, truth: np.ndarray, segment: np.ndarray) -> np.ndarray:
    return np.where(truth > 0, shared / np.maximum(truth + segment - shared, 1), np.nan)


def _mean_of_there(values: np.ndarray) -> np.ndarray:
    """Mean over the last axis without NaN; NaN where there is nothing else."""
    there = ~np.isnan(values)
    count = there.sum(-1)
    return np.where(count > 0, np.where(there, values, 0).sum(-1) / np.maximum(count, 1), np.nan)


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)


def _refuse_by(by: str) -> None:
    if by not in BY:
        raise SettingsError("pairs are chosen by pixels or by IoU", given=by, accepted=BY)


def _refuse_nothing(tables: Sequence[Any]) -> None:
    if not tables:
        raise SettingsError("no label maps were given")
