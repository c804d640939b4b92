"""Tables of colours, bars and paths: what they refuse, where their marks lie, that both ways to draw them work."""

from __future__ import annotations

import numpy as np
import pytest

import vitreous as vt
from vitreous.render import to_html, to_png
from vitreous.views.drawing import Stroke, arrow_head
from vitreous.views.plane import Bar, Bars, Heat, Path, Paths
from vitreous.views.plane_layout import CLOUD, cell_colour, cloud, lay_bars, lay_heat, lay_paths

HEAT = Heat(
    "likeness",
    np.array([[1.0, -0.5], [np.nan, 0.0]]),
    ("0", "1"),
    ("0", "1"),
    -1.0,
    1.0,
    "layer",
    row_parts=(("a", 2),),
)
BARS = Bars(
    "by <region>", ("V1", "V4"), (Bar("figure", (0.5, -0.25)), Bar("ground", (np.nan, 0.1), 1, (0.4, 0.4))), "R²"
)
PATHS = Paths(
    "ways",
    np.random.default_rng(0).random((50, 2)),
    np.full((50, 3), 9, np.uint8),
    (Path("A", np.array([[0, 0], [1, 1.0]])),),
    ((0.5, 0.5, 0.2, "B0"),),
)


@pytest.mark.parametrize("panel", [HEAT, BARS, PATHS], ids=["heat", "bars", "paths"])
def test_it_is_drawn_as_html_and_png(panel):
    assert to_png(panel, width=4)[:4] == b"\x89PNG"
    html = str(to_html(panel))
    assert "<svg" in html and "<script" not in html and "<region>" not in html


def test_cells_part_at_zero_and_nothing_is_grey():
    drawing = lay_heat(HEAT)
    cells = drawing.rects[:4]
    assert len({cell.fill for cell in cells}) == 4 and cells[2].fill == "#b8bdbb"
    assert cell_colour(0.0, -1, 1)[0] == "#f7f7f7" and cell_colour(9.0, -1, 1) == cell_colour(1.0, -1, 1)
    assert cells[1].title == "a 0, 1: -0.50" and cells[2].title.endswith("none")
    assert cell_colour(0.0, 0, 1)[1] == "#000000" and cell_colour(1.0, 0, 1)[1] == "#ffffff"


def test_bars_begin_at_zero_and_end_at_their_values():
    drawing = lay_bars(BARS)
    bars = [rect for rect in drawing.rects if rect.title]
    assert [rect.title for rect in bars] == ["figure, V1: 0.5", "figure, V4: -0.25", "ground, V4: 0.1"]
    zero = bars[0].x
    assert bars[1].x + bars[1].width == pytest.approx(zero) and bars[0].width == pytest.approx(
        2 * bars[1].width, rel=0.01
    )
    marks = [stroke for stroke in drawing.strokes if stroke.title]
    assert len(marks) == 2 and marks[0].series == 1


def test_a_path_keeps_its_shape_and_both_axes_have_one_scale():
    drawing = lay_paths(PATHS)
    (a, b), (c, d) = drawing.strokes[0].points
    assert c - a == pytest.approx(b - d, abs=0.2) and 0 <= min(a, d) and max(c, b) <= CLOUD
    ring = next(knob for knob in drawing.knobs if knob.hollow)
    assert ring.radius == pytest.approx(0.2 * (c - a), rel=0.02)
    assert arrow_head(Stroke(((0.0, 0.0), (0.0, 0.0)))) == ()
    tip, left, right = arrow_head(Stroke(((0.0, 0.0), (10.0, 0.0))), 4)
    assert tip == (10.0, 0.0) and left[0] == right[0] == 6.0


def test_a_cloud_shows_every_colour():
    shades = np.array([[255, 0, 0], [0, 0, 255]], np.uint8)
    picture = cloud(np.array([[10.0, 10.0], [400.0, 400.0]]), shades)
    seen = {tuple(pixel) for pixel in picture[picture[..., 3] > 0][:, :3].tolist()}
    assert seen == {(255, 0, 0), (0, 0, 255)} and (picture[..., 3] == 0).mean() > 0.99


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Heat("", np.ones((2, 3)), ("a", "b"), ("c",), 0, 1), "a value for each row and column"),
        (lambda: Heat("", np.ones((1, 1)), ("a",), ("c",), 1, 1), "low to high"),
        (lambda: Heat("", np.ones((1, 1)), ("a",), ("c",), 0, 1, row_parts=(("x", 2),)), "parts hold all"),
        (lambda: Bars("", ("a",), (Bar("x", (1.0, 2.0)),), ""), "one value for each"),
        (lambda: Paths("", np.ones((3, 3)), np.ones((3, 3), np.uint8)), r"\(point, 2\)"),
        (lambda: Paths("", np.ones((3, 2)), np.ones((3, 3))), "every point has a colour"),
        (
            lambda: Paths("", np.ones((3, 2)), np.ones((3, 3), np.uint8), (Path("A", np.ones((1, 2))),)),
            "two points or more",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(make, match):
    with pytest.raises(vt.SettingsError, match=match):
        make()
