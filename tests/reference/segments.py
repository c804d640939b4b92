"""U. mIoU and U. accuracy pixel by pixel, with every possible pairing tried."""

from __future__ import annotations

from itertools import permutations

import numpy as np


def slow_pairing(segments: list[int], classes: list[int], by: str) -> dict[int, int]:
    """{class: segment} of the pairing with the most shared pixels (or the largest sum of IoU), one to one."""
    there, numbers = sorted(set(classes)), sorted({s for s in segments if s >= 0})
    slots = numbers + [None] * len(there)  # a class may stay without a segment
    best, chosen = -1.0, {}
    for order in permutations(slots, len(there)):
        pairs = {c: s for c, s in zip(there, order, strict=True) if s is not None}
        total = 0.0
        for c, s in pairs.items():
            shared = sum(a == s and b == c for a, b in zip(segments, classes, strict=True))
            either = sum(a == s or b == c for a, b in zip(segments, classes, strict=True))
            total += shared if by == "pixels" else shared / either
        if total > best + 1e-12:
            best, chosen = total, pairs
    return chosen


def slow_scores(segments: list[int], classes: list[int], by: str) -> tuple[float, float]:
    """(mIoU, accuracy) of one list of pixels."""
    pairs = slow_pairing(segments, classes, by)
    ious, right = [], 0
    for c in sorted(set(classes)):
        s = pairs.get(c)
        shared = sum(a == s and b == c for a, b in zip(segments, classes, strict=True)) if s is not None else 0
        either = sum((s is not None and a == s) or b == c for a, b in zip(segments, classes, strict=True))
        ious.append(shared / either)
        right += shared
    return sum(ious) / len(ious), right / len(classes)


def _kept(segments: np.ndarray, truth: np.ndarray, ignore: int) -> tuple[list[int], list[int]]:
    pairs = [(int(a), int(b)) for a, b in zip(segments.ravel(), truth.ravel(), strict=True) if b != ignore]
    return [a for a, _ in pairs], [b for _, b in pairs]


def slow_per_image(segments, truths, ignore: int = 255, by: str = "pixels") -> tuple[float, float]:
    scores = [slow_scores(*_kept(s, t, ignore), by) for s, t in zip(segments, truths, strict=True)]
    return sum(m for m, _ in scores) / len(scores), sum(a for _, a in scores) / len(scores)


def slow_over_dataset(clusters, truths, ignore: int = 255, by: str = "pixels") -> tuple[float, float]:
    parts = [_kept(s, t, ignore) for s, t in zip(clusters, truths, strict=True)]
    return slow_scores([a for part, _ in parts for a in part], [b for _, part in parts for b in part], by)


def slow_segment_means(segments: np.ndarray, features: np.ndarray) -> np.ndarray:
    height, width = segments.shape
    rows, columns, channels = features.shape
    out = np.full((segments.max() + 1, channels), np.nan)
    for s in range(len(out)):
        found = [
            features[y * rows // height, x * columns // width]
            for y in range(height)
            for x in range(width)
            if segments[y, x] == s
        ]
        if found:
            out[s] = np.mean(found, axis=0)
    return out
