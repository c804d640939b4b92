"""Do maps point at the object? Point Game and Energy PG with masks (section 4.3 and Table 9 of the structure paper).

    paper   here    axes                what it is
    P_n     cams    sample row column   maps, 0 or more
    S_n     masks   sample row column   1 on the object
    G_n     -       sample row column   1 at the largest value of the map, 0 elsewhere
    ε       eps     -                   keeps an empty map from dividing by zero

Where the formulas leave it open: of equal largest values the first counts, row by row, so a flat map points at the top
left corner; an empty mask is never hit and gives 0 in both; a map of zeros has Energy PG 0. The mean area of the masks
is what a map that knows nothing would get by chance, so it is worth reporting beside them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vitreous.errors import SettingsError
from vitreous.evidence.statistics import p_text, paired_t


def point_game(cams: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """⟨G_n, S_n⟩: (sample,), 1 where the largest value of a map lies on the object, 0 elsewhere."""
    P, S = _checked(cams, masks)
    return np.take_along_axis(S, P.argmax(1)[:, None], 1)[:, 0].astype(np.float64)


def energy_point_game(cams: np.ndarray, masks: np.ndarray, eps: float = 1e-8) -> np.ndarray:
    """⟨P_n, S_n⟩ / (⟨P_n, 1⟩ + ε): (sample,), the share of a map that lies on the object."""
    P, S = _checked(cams, masks)
    if P.size and P.min() < 0:
        raise SettingsError("a share needs maps without negative values", given=float(P.min()))
    if not eps > 0:
        raise SettingsError("eps is above 0", given=eps)
    return (P * S).sum(1) / (P.sum(1) + eps)


def _checked(cams: np.ndarray, masks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float64 maps and bool masks, both (sample, pixel)."""
    cams, masks = np.asarray(cams), np.asarray(masks)
    if cams.ndim != 3 or cams.dtype.kind not in "fiu" or 0 in cams.shape[1:]:
        raise SettingsError("maps are numbers (sample, row, column)", given=f"{cams.dtype} {cams.shape}")
    if masks.shape != cams.shape:
        raise SettingsError(
            "masks are as many and as large as the maps",
            given=masks.shape,
            accepted=f"{cams.shape}",
            remedy="bring the maps to the masks' size, or the masks to the model's input",
        )
    if masks.dtype.kind not in "biuf" or not np.isin(masks, (0, 1)).all():
        raise SettingsError("masks hold 1 on the object and 0 elsewhere", given=masks.dtype)
    if not np.isfinite(cams).all():
        bad = int(np.flatnonzero(~np.isfinite(cams).all((1, 2)))[0])
        raise SettingsError("maps hold NaN or infinity", given=f"map {bad}")
    return cams.reshape(len(cams), -1).astype(np.float64), masks.reshape(len(cams), -1).astype(bool)


# -- two models


@dataclass(frozen=True)
class Row:
    """One metric of two models: mean and standard deviation over samples, and the paired t-test of a - b."""

    metric: str
    mean: tuple[float, float]
    deviation: tuple[float, float]
    t: float
    p: float


@dataclass(frozen=True)
class PointingComparison:
    """Table 9; `chance` is the mean area of the masks."""

    names: tuple[str, str]
    rows: tuple[Row, ...]
    samples: int
    chance: float

    def table(self) -> str:
        head = ("metric", *self.names, "t", "p")
        lines = [
            (
                row.metric,
                *(f"{m:.3f} ± {s:.3f}" for m, s in zip(row.mean, row.deviation, strict=True)),
                f"{row.t:.3f}",
                p_text(row.p),
            )
            for row in self.rows
        ]
        widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
        padded = ([cell.ljust(w) for cell, w in zip(line, widths, strict=True)] for line in (head, *lines))
        text = ["  ".join(cells).rstrip() for cells in padded]
        return "\n".join([*text, f"{self.samples} samples; the masks cover {self.chance:.3f} of a picture on average"])


def compare_pointing(
    cams_a: np.ndarray, cams_b: np.ndarray, masks: np.ndarray, names: tuple[str, str] = ("a", "b")
) -> PointingComparison:
    """Table 9: both metrics of two models on the same samples, with paired t-tests."""
    if len(names) != 2:
        raise SettingsError("two models need two names", given=names)
    rows = []
    for metric, measure in (("Point Game", point_game), ("Energy PG", energy_point_game)):
        a, b = measure(cams_a, masks), measure(cams_b, masks)
        test = paired_t(a, b)
        means, deviations = ((f(a), f(b)) for f in (lambda v: float(v.mean()), lambda v: float(v.std(ddof=1))))
        rows.append(Row(metric, means, deviations, test.statistic, test.p))
    return PointingComparison(names, tuple(rows), len(masks), float(np.mean(masks)))
