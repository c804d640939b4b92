"""Colours of series and masks, and how a heat map lies over a picture."""

from __future__ import annotations

import numpy as np

#: Colours of models and lines on light and on dark ground, each to be read as text there; the last is for controls.
SERIES = ("#0b62a8", "#b0460a", "#08735a", "#7b3fa0", "#8a5a00", "#b02a5b", "#5a646d")
SERIES_DARK = ("#6cb8f5", "#f5a06a", "#52d1ab", "#cf9df0", "#e0b650", "#f58fb0", "#aab4bc")
NEUTRAL = len(SERIES) - 1

#: Colours of the parts of a mask; 0 is the background.
PARTS = (
    (226, 228, 224),
    (31, 119, 180),
    (255, 127, 14),
    (44, 160, 44),
    (214, 39, 40),
    (148, 103, 189),
    (140, 86, 75),
    (227, 119, 194),
    (188, 189, 34),
)

#: Frames of clusters: twenty hues, neighbours in the list far apart on the wheel and unlike in brightness.
CLUSTERS = (
    "#e83964",
    "#68c541",
    "#2858cd",
    "#ff735e",
    "#00802e",
    "#786cfe",
    "#b22d00",
    "#00ab7c",
    "#be8aff",
    "#d66000",
    "#00cec9",
    "#8e32a7",
    "#e29c00",
    "#007a9e",
    "#ce45b5",
    "#7b6200",
    "#0098e7",
    "#ff70b3",
    "#789500",
    "#02b2ff",
)
MARK = "#e0101b"  # crosses and rings
SIGNS = ("#c2410c", "#1d6fb8")  # of negative and positive weights

#: Filled contours from low to high. Calm colours: what is marked on them has to stand out.
CONTOUR = ((26, 36, 58), (62, 92, 122), (134, 160, 172), (214, 219, 208), (252, 248, 232))

NIGHT = (10, 14, 30)  # what lies over the cold parts of a heat map
DEEPEST = 0.84  # and how much of the picture it hides at most


def scaled(heat: np.ndarray, low: float, high: float) -> np.ndarray:
    """A map brought to [0, 1]; NaN stays NaN."""
    return np.clip((heat - low) / max(high - low, 1e-30), 0, 1)


def span(heat: np.ndarray) -> tuple[float, float]:
    """Smallest and largest value that is there; (0, 1) if there is none."""
    there = heat[np.isfinite(heat)]
    return (float(there.min()), float(there.max())) if there.size else (0.0, 1.0)


def veil(heat: np.ndarray) -> np.ndarray:
    """RGBA uint8 (row, column, 4) that darkens a picture where the map in [0, 1] is low and leaves it bright elsewhere.

    The pictures have every colour already: another one on top could not be told apart. NaN is hidden in full.
    """
    cold = DEEPEST * (1 - np.nan_to_num(heat, nan=0.0)) ** 1.7
    out = np.empty((*heat.shape, 4), np.uint8)
    out[..., :3] = NIGHT
    out[..., 3] = np.where(np.isnan(heat), 255, np.round(255 * cold))
    return out


def under(image: np.ndarray, rgba: np.ndarray) -> np.ndarray:
    """A picture uint8 (row, column, colour) seen through a veil."""
    alpha = rgba[..., 3:].astype(np.float32) / 255
    return np.round(image * (1 - alpha) + rgba[..., :3] * alpha).astype(np.uint8)


def paint_parts(parts: np.ndarray) -> np.ndarray:
    """Whole numbers (row, column) -> a colour each, uint8 (row, column, colour); 0 is the background."""
    palette = np.asarray(PARTS, np.uint8)
    return palette[np.where(parts == 0, 0, 1 + (parts - 1) % (len(palette) - 1))]


def contour_colours(levels: int) -> np.ndarray:
    """uint8 (level, colour), from low to high."""
    stops = np.linspace(0, 1, len(CONTOUR))
    at = np.linspace(0, 1, levels)
    return np.stack([np.round(np.interp(at, stops, channel)) for channel in zip(*CONTOUR, strict=True)], 1).astype(
        np.uint8
    )
