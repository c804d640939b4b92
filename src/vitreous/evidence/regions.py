"""Are pictures cut where people cut them? Covering and boundary F-measure with several annotations a picture.

The measures of BSDS500 (Arbeláez, Maire, Fowlkes and Malik 2011), for segments that have no class.

Covering of people's regions by ours: Σ_R |R| max_R' IoU(R, R') / Σ_R |R| over the regions R of one annotation and ours
R', averaged over the annotations. 1 means that every region of every annotation is one of ours.

Boundaries. A pixel lies on a boundary if its right or its lower neighbour is in another region; nothing is thinned.
Boundary pixels of two label maps are matched one to one, at most `tolerance` of the diagonal apart, as many as
possible: an exact largest matching, by maximum flow. Recall counts matched pixels of every annotation; for precision,
one of ours is right if any annotation matches it (of several largest matchings always the same one is taken, and
precision may depend on it a little; recall does not). This matching is ours: the benchmark's own program looks for a
matching of least cost with outliers, which it approximates, and thins boundaries before. The two were not compared:
keep their numbers apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vitreous.errors import SettingsError
from vitreous.evidence.bootstrap import Estimate, bootstrap, mean_interval

TOLERANCE = 0.0075


def covering(segments: np.ndarray, annotations: Sequence[np.ndarray]) -> float:
    """How well the regions of annotations (row, column) are covered by ours: mean over annotations, 0 to 1."""
    ours = _regions(segments)
    return float(np.mean([_covered(ours, part) for part in _checked(ours, annotations)]))


def _covered(ours: np.ndarray, theirs: np.ndarray) -> float:
    mine, yours = int(ours.max()) + 1, int(theirs.max()) + 1
    shared = np.bincount((theirs * mine + ours).ravel(), minlength=mine * yours).reshape(yours, mine)
    area = shared.sum(1)
    iou = shared / np.maximum(area[:, None] + shared.sum(0) - shared, 1)
    return float((area * iou.max(1)).sum() / area.sum())


@dataclass(frozen=True)
class Matches:
    """Boundary pixels of one picture: of ours and those of them that are right, of all annotations and those found."""

    right: int
    ours: int
    found: int
    theirs: int


def boundaries(segments: np.ndarray) -> np.ndarray:
    """bool (row, column): pixels whose right or lower neighbour is in another region."""
    labels = _regions(segments)
    edge = np.zeros(labels.shape, bool)
    edge[:, :-1] |= labels[:, :-1] != labels[:, 1:]
    edge[:-1] |= labels[:-1] != labels[1:]
    return edge


def match_boundaries(
    segments: np.ndarray, annotations: Sequence[np.ndarray], *, tolerance: float = TOLERANCE
) -> Matches:
    """One picture's boundaries against those of each annotation; `tolerance` is a share of the picture's diagonal."""
    if not tolerance >= 0:
        raise SettingsError("a tolerance is 0 or more", given=tolerance)
    ours = _regions(segments)
    mine = np.argwhere(boundaries(ours))
    reach = tolerance * float(np.hypot(*ours.shape))
    right = np.zeros(len(mine), bool)
    found = theirs = 0
    for part in _checked(ours, annotations):
        yours = np.argwhere(boundaries(part))
        partner = _largest_matching(mine, yours, reach)
        right |= partner >= 0
        found, theirs = found + int((partner >= 0).sum()), theirs + len(yours)
    return Matches(int(right.sum()), len(mine), found, theirs)


def _largest_matching(ours: np.ndarray, theirs: np.ndarray, reach: float) -> np.ndarray:
    """int (point,): the partner of each of ours in a largest matching of points at most `reach` apart; -1 for none.

    As a flow from all of ours to all of theirs: scipy's own bipartite matching takes minutes on some of these graphs.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_flow
    from scipy.spatial import cKDTree

    partner = np.full(len(ours), -1)
    if not len(ours) or not len(theirs):
        return partner
    near = cKDTree(ours).sparse_distance_matrix(cKDTree(theirs), reach, output_type="ndarray")
    first, end = 1 + len(ours), 1 + len(ours) + len(theirs)
    start = np.concatenate([np.zeros(len(ours), int), 1 + near["i"], np.arange(first, end)])
    goal = np.concatenate([np.arange(1, first), first + near["j"], np.full(len(theirs), end)])
    graph = csr_matrix((np.ones(len(start), np.int32), (start, goal)), (end + 1, end + 1))
    flow = maximum_flow(graph, 0, end).flow.tocoo()
    used = (flow.data > 0) & (flow.row >= 1) & (flow.row < first)
    partner[flow.row[used] - 1] = flow.col[used] - first
    return partner


# -- many pictures


@dataclass(frozen=True, eq=False)
class Regions:
    """`covering` float64 (sample,); `matches` int64 (sample, 4): right, ours, found, theirs."""

    covering: np.ndarray
    matches: np.ndarray
    tolerance: float

    def __len__(self) -> int:
        return len(self.covering)

    @property
    def image_f(self) -> np.ndarray:
        """F of every picture (sample,); 0 where nothing matches, 1 where neither side has a boundary."""
        return np.array([_f(row)[2] for row in self.matches])

    def mean_covering(self, **settings: Any) -> Estimate:
        return mean_interval(self.covering, **settings)

    def mean_f(self, **settings: Any) -> Estimate:
        """Mean over pictures of each one's own F."""
        return mean_interval(self.image_f, **settings)

    def precision(self, **settings: Any) -> Estimate:
        return self._pooled(0, settings)

    def recall(self, **settings: Any) -> Estimate:
        return self._pooled(1, settings)

    def f(self, **settings: Any) -> Estimate:
        """F of boundary pixels added up over pictures, as the benchmark has it."""
        return self._pooled(2, settings)

    def _pooled(self, which: int, settings: dict[str, Any]) -> Estimate:
        return bootstrap(lambda at: _f(self.matches[at].sum(0))[which], len(self), **settings)


def score_regions(
    segments: Iterable[np.ndarray], annotations: Iterable[Sequence[np.ndarray]], *, tolerance: float = TOLERANCE
) -> Regions:
    """Label maps (row, column) against the annotations of each picture, one or more of the same size."""
    covered, matched = [], []
    for ours, people in zip(segments, annotations, strict=True):
        covered.append(covering(ours, people))
        found = match_boundaries(ours, people, tolerance=tolerance)
        matched.append((found.right, found.ours, found.found, found.theirs))
    if not covered:
        raise SettingsError("no label maps were given")
    return Regions(np.array(covered), np.array(matched, np.int64), tolerance)


@dataclass(frozen=True)
class Scales:
    """Scores at several scales (numbers of segments, thresholds): one scale for all pictures, or the best of each.

    `best` is the position of the scale with the best mean, `ods` that mean, `ois` the mean over each picture's best:
    an upper bound that no one can choose without knowing the truth.
    """

    best: int
    ods: Estimate
    ois: Estimate


def over_scales(scores: np.ndarray, **settings: Any) -> Scales:
    """(sample, scale), one score for each picture at each scale."""
    values = np.asarray(scores, np.float64)
    if values.ndim != 2 or not values.size or not np.isfinite(values).all():
        raise SettingsError("scores are finite and (sample, scale)", given=values.shape)
    best = int(values.mean(0).argmax())
    return Scales(best, mean_interval(values[:, best], **settings), mean_interval(values.max(1), **settings))


def _f(counts: Sequence[int] | np.ndarray) -> tuple[float, float, float]:
    """Precision, recall and F of right, ours, found, theirs. No boundary on either side is a perfect score."""
    right, ours, found, theirs = (int(v) for v in counts)
    if not ours and not theirs:
        return 1.0, 1.0, 1.0
    precision, recall = right / ours if ours else 0.0, found / theirs if theirs else 0.0
    both = precision + recall
    return precision, recall, 2 * precision * recall / both if both else 0.0


def _regions(given: Any) -> np.ndarray:
    """Whole numbers from 0 without holes; any whole number names a region, negative ones too."""
    labels = np.asarray(given)
    if labels.ndim != 2 or labels.dtype.kind not in "iub" or not labels.size:
        raise SettingsError("regions are whole numbers (row, column)", given=f"{labels.dtype} {labels.shape}")
    least = int(labels.min())
    if int(labels.max()) - least < labels.size:  # counting names takes a tenth of the time of sorting pixels
        names = labels.astype(np.int64) - least
        return (np.cumsum(np.bincount(names.ravel()) > 0) - 1)[names]
    return np.unique(labels, return_inverse=True)[1].reshape(labels.shape)


def _checked(ours: np.ndarray, annotations: Sequence[np.ndarray]) -> list[np.ndarray]:
    theirs = [_regions(part) for part in annotations]
    if not theirs:
        raise SettingsError("a picture needs one annotation or more", given=0)
    for part in theirs:
        if part.shape != ours.shape:
            raise SettingsError("annotations are as large as the label map", given=part.shape, accepted=f"{ours.shape}")
    return theirs
