"""Findings to the JSON that pages are sent: heat as base64 of bytes, row by row."""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from vitreous.axes import Grid
    from vitreous.lenses.tokens_finding import TokenMaps
    from vitreous.lenses.tokens_segments import Segments


def sized(answer: bytes) -> tuple[bytes, int]:
    return answer, len(answer)


def as_json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def text_of(values: np.ndarray) -> str:
    """uint8 of any shape -> base64."""
    return base64.b64encode(np.ascontiguousarray(values, np.uint8).tobytes()).decode()


def eight_bits(values: np.ndarray, high: float | None = None) -> np.ndarray:
    """Values from 0 to their largest, or to `high`, as uint8 from 0 to 255; what is below 0 is 0."""
    top = float(values.max(initial=0) if high is None else high)
    if not 0 < top < np.inf:
        return np.zeros(values.shape, np.uint8)
    return (np.clip(values / top, 0, 1) * 255).round().astype(np.uint8)


def maps_answer(maps: TokenMaps, block: int, began: float) -> bytes:
    assert maps.grid is not None
    data = (maps.scaled[0] * 255).round().astype(np.uint8)
    return as_json(
        {
            "rows": maps.grid.rows,
            "columns": maps.grid.columns,
            "prefix": list(maps.prefix),
            "block": block,
            "tokens": len(data),
            "data": text_of(data),
            "notes": list(maps.notes),
            "ms": round(1000 * (time.perf_counter() - began), 1),
        }
    )


def segments_answer(segments: Segments, k: int | None) -> bytes:
    """Without k, the tree is cut at its usual share of the height."""
    most = segments.clusters.shape[1]
    found = segments if k is None else segments.at(k=min(k, most))
    rows, columns = found.grid.shape[1:]
    labels = found.grid[0].reshape(-1).tolist()
    return as_json({"rows": rows, "columns": columns, "k": int(found.counts[0]), "most": most, "labels": labels})


def heat_answer(values: np.ndarray, grid: Grid) -> bytes:
    value = float(values.max()) if np.isfinite(values).all() else None
    return as_json({"rows": grid.rows, "columns": grid.columns, "heat": text_of(eight_bits(values)), "value": value})
