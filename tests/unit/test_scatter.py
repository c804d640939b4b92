"""Scatters: every name beside its dot, none on top of another; drawn as HTML and as PNG."""

from __future__ import annotations

import io
from itertools import combinations

import numpy as np
import pytest
from PIL import Image

from vitreous import render
from vitreous.errors import SettingsError
from vitreous.views.panels import Dot, Scatter, as_json
from vitreous.views.scatter import FAR, HEIGHT, LETTER, LINE, WIDTH, lay_scatter

#: As crowded as such a plane gets: nine dots in a heap, two far away.
CROWD = (
    *(Dot(f"method {k}", 0.7 + 0.03 * (k % 3), 0.5 + 0.004 * k, size=8, series=k) for k in range(9)),
    Dot("alone", 0.0, 0.71, series=2, control=True),
    Dot("other", 1.0, 0.45, x_spread=0.02, y_spread=0.01),
)
PLANE = Scatter("Plane", CROWD, "across", "up", "a caption")


def box_of(spot) -> tuple[float, float, float, float]:
    width = LETTER * len(spot.name)
    left = spot.label_x - {"left": 0, "center": width / 2, "right": width}[spot.align]
    return left, spot.label_y - LINE / 2, left + width, spot.label_y + LINE / 2


def test_names_are_not_on_top_of_each_other_and_inside():
    plot = lay_scatter(PLANE)
    assert [spot.name for spot in plot.spots] == [dot.name for dot in CROWD]
    boxes = [box_of(spot) for spot in plot.spots]
    for a, b in combinations(boxes, 2):
        assert min(a[2], b[2]) <= max(a[0], b[0]) or min(a[3], b[3]) <= max(a[1], b[1])
    assert all(box[0] >= 0 and box[2] <= WIDTH and box[1] >= 0 and box[3] <= HEIGHT for box in boxes)
    for spot in plot.spots:
        away = np.hypot(spot.label_x - spot.x, spot.label_y - spot.y) - spot.radius
        assert bool(spot.leader) == (away > FAR)


def test_dots_lie_where_their_values_are():
    plot = lay_scatter(PLANE)
    by = {spot.name: spot for spot in plot.spots}
    assert by["alone"].x < by["method 0"].x < by["other"].x  # right is more
    assert by["alone"].y < by["method 0"].y < by["other"].y  # up is more
    assert by["method 0"].radius > by["alone"].radius and by["alone"].control
    across, up = by["other"].bars
    assert across[0] < by["other"].x < across[2] and up[1] > by["other"].y > up[3]
    assert all(plot.left <= x <= plot.right for x, _ in plot.x_ticks) and len(plot.y_ticks) >= 3


@pytest.mark.parametrize("dots", [(), (Dot("one", 0.0, 0.0),), (Dot("a", 1.0, 2.0), Dot("b", 1.0, 2.0))])
def test_no_dot_one_dot_and_dots_in_one_place_are_drawn(dots):
    panel = Scatter("Few", dots, "x", "y")
    assert len(lay_scatter(panel).spots) == len(dots)
    assert Image.open(io.BytesIO(render.to_png(panel))).width == 960


def test_it_is_html_and_png_and_json():
    evil = Scatter("<b>", (Dot("<script>", 0.1, 0.2),), "$x$", "y")
    html = str(render.to_html(evil))
    assert "<script>" not in html and "&lt;script&gt;" in html and "<circle" in html
    pixels = np.asarray(Image.open(io.BytesIO(render.to_png(PLANE))))
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 50
    assert render.to_png(PLANE) == render.to_png(PLANE)
    assert as_json(PLANE)["dots"][9] == {
        "kind": "dot", "name": "alone", "x": 0.0, "y": 0.71, "size": 1.0, "series": 2, "control": True,
        "x_spread": 0.0, "y_spread": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize("dot", [Dot("a", float("nan"), 0), Dot("a", 0, float("inf")), Dot("a", 0, 0, size=0)])
def test_what_cannot_be_drawn_is_refused(dot):
    with pytest.raises(SettingsError, match="dot 'a' cannot be drawn"):
        Scatter("Bad", (dot,), "x", "y")
