"""Panels as HTML and as PNG."""

from __future__ import annotations

import base64
import io
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image, features

from vitreous import render
from vitreous.errors import SettingsError
from vitreous.views.panels import (
    BARE,
    THIN,
    Box,
    Card,
    Curve,
    Fact,
    Histogram,
    Line,
    Link,
    Maps,
    Matrix,
    Meter,
    Pictures,
    Table,
    Text,
    Tile,
)

EVIL = "<script>alert('x')</script>\" onload=\"x"


def _tile(size=(16, 24), heat=True, caption="a tile"):
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    values = np.linspace(0, 5, size[0] * size[1]).reshape(size) if heat else None
    return Tile(pixels, "noise", caption, values, (Box(4, 8, 12, 16),) if heat else ())


CURVE = Curve("Up", (0.0, 1.0, 2.0), (Line("a", (1.0, 2.0, 3.0), 0, False, (0.5, 1, 2), (2, 3, 4)),), "block", "length")
TWO = Curve(
    "Two", (0.0, 1.0), (Line("real", (1.0, 2.0)), Line("not", (1.0, 1.0), 0, True), Line("b", (1, 3), 1)), "x", "y"
)
BARS = Histogram("Bars", (0.0, 1.0, 2.0), (Line("a", (1.0, 3.0)), Line("b", (2.0, 0.0), 1, True)), "v", "n", log=True)
TABLE = Table("Counts", ("model", "units"), (("one", 3), ("two", 0.123456)))
TEXT = Text("Words", ("first", "second"), "x = 1")
PICTURES = Pictures("Grid", (_tile(), _tile(heat=False)), 2, "two tiles", (0.0, 10.0))
MAPS = Maps(
    "Units", np.random.default_rng(0).random((2, 3, 5, 5)), ("r0", "r1"), ("c0", "c1", "c2"),
    np.array([[0, THIN, BARE], [1, BARE, BARE]]), np.eye(2, 3, dtype=bool), np.eye(2, 3, 2, dtype=bool),
    (Link((0, 0), (1, 1), -2.0), Link((0, 1), (1, 1), 1.0)),
)  # fmt: skip
MATRIX = Matrix("Grey", np.arange(36, dtype=np.uint8).reshape(6, 6) * 7, (0, 3), ("first", "second"))
SIDE_BY_SIDE = Histogram(
    "Beside", (0.0, 1.0, 2.0), (Line("a", (1.0, 9.0)), Line("b", (0.0, 3.0), 1)), "v", "n", "", True, True
)
CARD = Card(
    "Unit 3", "Detects stars.", "shape", 2, Meter("AUC", 0.75, 0.5, 0.5, 1.0, "note"), (Fact("share", "3%", "few"),),
    (BARS,), (PICTURES,), "store[3]",
)  # fmt: skip
EVERY = {"pictures": PICTURES, "curve": CURVE, "histogram": BARS, "table": TABLE, "text": TEXT, "card": CARD}
EVERY |= {"maps": MAPS, "matrix": MATRIX, "bars": SIDE_BY_SIDE}


def _pictures_in(html):
    uris = re.findall(r'src="data:image/(\w+);base64,([^"]+)"', html)
    return [Image.open(io.BytesIO(base64.b64decode(data))) for _, data in uris]


def test_pictures_are_inside_the_page_and_a_veil_only_over_those_with_heat():
    html = render.to_html(PICTURES)
    picture, veil, plain = _pictures_in(html)
    assert picture.size == plain.size == (192, 128)  # enlarged once, in the right proportions
    assert veil.size == (24, 16)
    assert html.count('class="veil"') == 1
    assert html.count('alt="noise"') == 2
    assert html.count('loading="lazy"') == 3
    assert "left:16.67%;top:50.00%;width:33.33%;height:50.00%" in html


def test_large_pictures_are_not_enlarged():
    assert _pictures_in(render.to_html(Pictures("", (_tile((200, 300), False),), 1)))[0].size == (300, 200)


def test_the_scale_of_a_panel_goes_for_all_its_tiles():
    shared = render.heat_of(PICTURES.tiles[0], PICTURES)
    own = render.heat_of(PICTURES.tiles[0], Pictures("", PICTURES.tiles, 2))
    assert (shared.max(), own.max()) == (0.5, 1.0)
    assert "10.00" in render.to_html(PICTURES)


@pytest.mark.skipif(not features.check("webp"), reason="Pillow without WebP")
def test_where_webp_cannot_be_written_png_is(monkeypatch):
    assert "data:image/webp" in render.to_html(PICTURES)
    monkeypatch.setattr(features, "check", lambda _: False)
    html = render.to_html(PICTURES)
    assert "webp" not in html
    np.testing.assert_array_equal(np.asarray(_pictures_in(html)[2]), render.enlarge(PICTURES.tiles[1].image))


def test_charts_are_drawn_with_their_names():
    html = render.to_html(TWO)
    assert html.count("<path class=") == 3
    assert 'aria-label="Two: y over x"' in html
    assert ">real<" in html and ">b<" in html
    assert ">not</li>" not in html and "control</li>" in html  # many controls share one entry of the legend
    assert ">b</li>" in render.to_html(BARS)  # one control keeps its own
    assert 'class="band' in render.to_html(CURVE)


def test_maps_are_one_picture_with_marks_on_it():
    html = render.to_html(MAPS)
    (sheet,) = _pictures_in(html)
    assert sheet.mode == "RGBA"
    assert 0 < np.asarray(sheet)[..., 3].mean() < 255  # nothing between the cells
    assert (html.count("<rect"), html.count('class="thin"'), html.count("<circle")) == (3, 1, 1)
    assert html.count("<line") == 2
    ringed = Maps("", MAPS.values, MAPS.rows, MAPS.columns, MAPS.frames, MAPS.rings, MAPS.crosses)
    assert render.to_html(ringed).count("<circle") == 2
    assert ">r1</text>" in html and ">c2</text>" in html


def test_a_matrix_names_its_parts_on_both_axes():
    html = render.to_html(MATRIX)
    (grey,) = _pictures_in(html)
    assert grey.size == (6, 6)
    assert html.count(">first</text>") == html.count(">second</text>") == 2


def test_bars_stand_beside_each_other_and_begin_at_one_height():
    html = render.to_html(SIDE_BY_SIDE)
    bars = [[part for part in path.split("Z") if part] for path in re.findall(r'class="solid[^"]*" d="([^"]*)"', html)]
    assert [len(part) for part in bars] == [2, 1]  # where there is nothing there is no bar
    corners = [[tuple(map(float, p.split(","))) for p in bar[1:].split("L")] for part in bars for bar in part]
    assert len({bar[0][1] for bar in corners} | {bar[-1][1] for bar in corners}) == 1
    (one, nine, three) = corners
    assert one[0][1] - one[1][1] > 3  # a bar of one is seen
    assert nine[1][1] < three[1][1] < one[1][1]
    assert nine[2][0] <= three[0][0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Maps("", np.zeros((1, 1)), ("r",), ("c",), *[np.zeros((1, 1))] * 3), "maps are"),
        (lambda: Maps("", np.zeros((1, 2, 3, 3)), ("r",), ("c",), *[np.zeros((1, 1))] * 3), "values do not fit"),
        (lambda: Maps("", np.zeros((1, 1, 3, 3)), ("r",), ("c",), *[np.zeros((2, 1))] * 3), "frames do not fit"),
        (
            lambda: Maps(
                "", np.zeros((1, 1, 3, 3)), ("r",), ("c",), *[np.zeros((1, 1))] * 3, (Link((0, 0), (0, 1), 1),)
            ),
            "points to a cell that is not there",
        ),
        (lambda: Matrix("", np.zeros((2, 3), np.uint8), (0,), ("a",)), "square"),
        (lambda: Matrix("", np.zeros((2, 2)), (0,), ("a",)), "uint8"),
        (lambda: Matrix("", np.zeros((2, 2), np.uint8), (1, 0), ("a", "b")), "where its parts begin"),
    ],
)
def test_panels_that_make_no_sense_are_refused(make, message):
    with pytest.raises(SettingsError, match=message):
        make()


def test_a_card_holds_its_claim_its_numbers_and_its_panels():
    html = render.to_html(CARD)
    for part in (
        "Unit 3",
        "Detects stars.",
        "shape",
        "0.75",
        "width:50.0%",
        "left:0.0%",
        "3%",
        "store[3]",
        "Bars",
        "Grid",
    ):
        assert part in html


def test_table_cells_carry_their_column_for_narrow_screens():
    html = render.to_html(TABLE)
    assert '<td data-label="units">3</td>' in html
    assert "0.123<" in html


@pytest.mark.parametrize(
    "panel",
    [
        Text(EVIL, (EVIL,), EVIL),
        Table(EVIL, (EVIL, EVIL), ((EVIL, EVIL),), EVIL),
        Curve(EVIL, (0.0, 1.0), (Line(EVIL, (1.0, 2.0)), Line(EVIL, (1.0, 2.0))), EVIL, EVIL, EVIL),
        Pictures(EVIL, (Tile(np.zeros((8, 8, 3), np.uint8), EVIL, EVIL),), 1, EVIL),
        Maps(EVIL, np.zeros((1, 1, 2, 2)), (EVIL,), (EVIL,), *[np.zeros((1, 1), int)] * 3, caption=EVIL),
        Matrix(EVIL, np.zeros((2, 2), np.uint8), (0,), (EVIL,), EVIL),
        Card(EVIL, EVIL, EVIL, 0, Meter(EVIL, 1, 1, 0, 1, EVIL), (Fact(EVIL, EVIL, EVIL),), code=EVIL),
    ],
    ids=render.kind_of,
)
def test_whatever_is_said_is_escaped(panel):
    html = render.to_html(panel)
    assert "<script" not in html
    assert '" onload="' not in html
    assert "&lt;script&gt;" in html


@pytest.mark.parametrize("panel", EVERY.values(), ids=EVERY)
def test_every_panel_becomes_a_picture(panel):
    image = Image.open(io.BytesIO(render.to_png(panel, width=5, dpi=60)))
    assert image.format == "PNG"
    assert image.width == 300
    assert np.asarray(image).std() > 5  # something is on it


def test_the_same_panel_gives_the_same_png():
    assert render.to_png(CURVE) == render.to_png(CURVE)


def test_dollars_in_a_name_are_not_mathematics():
    panel = Text("costs $1 and $x_{$", ("a $ and \\frac$",))
    assert render.to_png(panel, width=3, dpi=40)


def test_drawing_leaves_no_global_figures():
    script = (
        "import sys; from vitreous.render import to_png; from vitreous.views.panels import Text;"
        "to_png(Text('t', ('p',))); assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
