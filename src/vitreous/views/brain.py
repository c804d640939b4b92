"""Responses on the surface of a brain: fsaverage5, which nilearn brings along; nothing is fetched."""

from __future__ import annotations

from typing import Any

import numpy as np

from vitreous.errors import SettingsError
from vitreous.views.panels import Pictures, Tile

FSAVERAGE5 = 10_242  # vertices of a hemisphere; they are the first of fsaverage's
SIDES = ("left", "right")
VIEWS = ("lateral", "ventral", "posterior")
PIXELS = 320
EDGE = 12  # pixels kept around a brain


def brain_pictures(
    values: np.ndarray,
    vertices: np.ndarray,
    *,
    title: str = "On the surface of the brain",
    views: tuple[str, ...] = VIEWS,
    most: float | None = None,
    caption: str = "",
) -> Pictures:
    """One number a response (response,) on both hemispheres, inflated: red above 0, blue below, grey where nothing was
    measured. `vertices` are those of `vt.Responses`, as `vt.algonauts` reads them; colours end at ± `most`.

    >>> brain_pictures(alignment.score()["all"], responses.vertices, title="R²")
    """
    values, vertices = np.asarray(values, np.float64), np.asarray(vertices)
    if values.ndim != 1 or vertices.shape != (len(values), 2):
        raise SettingsError(
            "every response has a value and a vertex",
            given=f"{values.shape} and {vertices.shape}",
            accepted="(response,) and (response, 2): hemisphere, vertex",
        )
    if vertices.dtype.kind not in "iu" or (vertices < 0).any() or (vertices[:, 0] > 1).any():
        given = f"{vertices.dtype} {vertices.shape}"
        raise SettingsError("vertices are a hemisphere (0 or 1) and a vertex of fsaverage", given=given)
    draw = _nilearn()
    on_surface = surface_values(values, vertices)
    there = np.abs(on_surface[np.isfinite(on_surface)])
    if most is None:
        most = float(there.max(initial=0)) or 1.0  # nothing measured, or nothing but 0
    if not most > 0:
        raise SettingsError("colours end above 0", given=most)
    tiles = [
        Tile(_cut_out(draw(on_surface[h], side, view, most)), f"{side} hemisphere, {view}", f"{side}, {view}")
        for h, side in enumerate(SIDES)
        for view in views
    ]
    said = f"Red up to {most:.3g}, blue down to {-most:.3g}; {there.size:,} vertices of fsaverage5 were measured."
    return Pictures(title, tuple(tiles), len(views), f"{caption} {said}".strip())


def surface_values(values: np.ndarray, vertices: np.ndarray) -> np.ndarray:
    """float64 (hemisphere, vertex) on fsaverage5 from (response,); NaN where there is none. Several on one vertex are
    averaged. fsaverage5 is the coarse mesh that fsaverage refines: its vertices are the first ones of the fine mesh."""
    here = (vertices[:, 1] < FSAVERAGE5) & np.isfinite(values)
    flat = vertices[here, 0] * FSAVERAGE5 + vertices[here, 1]
    counts = np.bincount(flat, minlength=2 * FSAVERAGE5)
    sums = np.bincount(flat, values[here], minlength=2 * FSAVERAGE5)
    with np.errstate(invalid="ignore"):
        return (sums / counts).reshape(2, FSAVERAGE5)


def _nilearn() -> Any:
    """A function that draws one hemisphere from one side: uint8 (row, column, colour)."""
    try:
        from nilearn import datasets, plotting  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise SettingsError(
            "brain pictures need nilearn",
            remedy='pip install "vitreous[brain]"; without it, views.align_panels.region_bars draws bars by region',
        ) from error
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    mesh = datasets.fetch_surf_fsaverage("fsaverage5")  # a table of files inside the package

    def draw(values: np.ndarray, side: str, view: str, most: float) -> np.ndarray:
        figure = Figure(figsize=(PIXELS / 80, PIXELS / 80), dpi=80)
        canvas = FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1), projection="3d")
        plotting.plot_surf_stat_map(
            mesh[f"infl_{side}"],
            values,
            hemi=side,
            view=view,
            bg_map=mesh[f"sulc_{side}"],
            bg_on_data=False,
            colorbar=False,
            cmap="RdBu_r",
            vmin=-most,
            vmax=most,
            engine="matplotlib",
            axes=axes,
            figure=figure,
        )
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()

    return draw


def _cut_out(picture: np.ndarray) -> np.ndarray:
    """Without most of the white around it, square."""
    there = np.asarray((picture < 250).any(2))
    rows, columns = np.flatnonzero(there.any(1)), np.flatnonzero(there.any(0))
    if not len(rows):
        return picture
    side = max(rows[-1] - rows[0], columns[-1] - columns[0]) + 2 * EDGE
    out = np.full((side, side, 3), 255, np.uint8)
    part = picture[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    y, x = (side - part.shape[0]) // 2, (side - part.shape[1]) // 2
    out[y : y + part.shape[0], x : x + part.shape[1]] = part
    return out
