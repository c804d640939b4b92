"""Pictures of tokens: what is framed, what is bright, what colour a segment has, and how a tree is cut."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

import vitreous as vt
from vitreous.lenses.tokens_finding import TokenMaps
from vitreous.render import to_html, to_png
from vitreous.views.colours import CLUSTERS
from vitreous.views.token_page import segment_page, text_page, token_page
from vitreous.views.token_text import strengths, text_html, text_picture, text_terminal
from vitreous.views.token_tree import cut_tree, tree_panel
from vitreous.views.tokens import UNNAMED, layer_panel, paint_segments, segment_panel, token_panel, token_tiles


def picture(height: int = 40, width: int = 60) -> vt.ImageSet:
    pixels = np.random.default_rng(0).integers(60, 200, (1, height, width, 3), np.uint8)
    return vt.ImageSet.from_arrays(pixels)


def found(block: int = 2) -> TokenMaps:
    """Maps of a 2 x 2 grid with a class token, over the middle 40 x 40 of a picture of 40 x 60."""
    size = vt.Size(32, 32)
    scores = np.random.default_rng(block).random((1, 5, 5)).astype(np.float32)
    frame = vt.Preprocess(size, 32).frame(vt.Size(40, 60))
    about = {"own": "keep", "target": "sum"}
    return TokenMaps(scores, tuple(range(5)), block, ("class",), vt.Grid(2, 2), size, (frame,), ("a",), about)


# -- maps


def test_the_token_is_framed_and_only_what_the_model_saw_is_shown():
    panel = token_panel(found(), picture()[0], [0, 1, 4], tau=0.3)
    assert panel.columns == 4 and len(panel.tiles) == 8
    assert {tile.image.shape for tile in panel.tiles} == {(40, 40, 3)}
    assert [tile.caption for tile in panel.tiles[1:4]] == ["class", "patch 0, 0", "patch 1, 1"]
    assert panel.tiles[1].boxes == ()
    (last,) = panel.tiles[3].boxes
    assert (last.x0, last.y0, last.x1, last.y1) == pytest.approx((20, 20, 40, 40), abs=0.5)
    assert to_png(panel, width=4, dpi=40).startswith(b"\x89PNG") and "patch 1, 1" in to_html(panel)


def test_a_mask_leaves_the_object_and_dims_the_rest():
    image = np.full((2, 4, 3), 100, np.uint8)
    heat = np.array([[[0, 1, 2, 10], [5, 0, 0, np.nan]]], float)
    _, mask = token_tiles(image, heat, [None], ["t"], tau=0.2)
    assert (mask.image[..., 0] == 100).tolist() == [[False, False, True, True], [True, False, False, False]]
    assert mask.image.min() == 25 and mask.caption == "mask at 0.2"


def test_few_pixels_that_stand_out_do_not_leave_the_others_in_the_dark():
    heat = np.zeros((1, 10, 10))
    heat[0, :5], heat[0, 0, 0] = 1, 1000
    (tile,) = token_tiles(np.zeros((10, 10, 3), np.uint8), heat, [None], ["t"])
    assert tile.heat.max() == 1 and tile.heat[0, 0] == tile.heat[4, 9]


def test_layers_stand_side_by_side():
    panel = layer_panel([found(0), found(1), found(2)], picture()[0], [0, 3])
    assert panel.columns == 3 and len(panel.tiles) == 6
    assert panel.tiles[0].caption == "class, block 0" and panel.tiles[2].caption == "class, block 2"
    assert panel.tiles[5].alt == "map of patch 1, 0 after block 2" and panel.tiles[5].caption == ""


def test_maps_without_a_picture_are_refused():
    from dataclasses import replace

    with pytest.raises(vt.SettingsError, match="have no picture to go with them"):
        token_panel(replace(found(), frames=None), picture()[0], [0])
    with pytest.raises(vt.SettingsError, match="texts have no picture"):
        token_panel(replace(found(), grid=None), picture()[0], [0])
    with pytest.raises(vt.SettingsError, match="a box and a name each"):
        token_tiles(np.zeros((4, 4, 3), np.uint8), np.zeros((1, 4, 5)), [None], ["t"])
    with pytest.raises(vt.SettingsError, match="at least one block"):
        layer_panel([], picture()[0], [0])


# -- segments


def rgb(k: int) -> np.ndarray:
    return np.array([int(CLUSTERS[k][i : i + 2], 16) for i in (1, 3, 5)])


def test_segments_have_their_colour_and_an_outline():
    image = np.full((256, 256, 3), 80, np.uint8)
    labels = np.zeros((256, 256), int)
    labels[:, 128:] = 1
    drawn = paint_segments(image, labels)
    np.testing.assert_allclose(drawn[50, 50], (80 + rgb(0)) / 2, atol=1)
    np.testing.assert_allclose(drawn[50, 200], (80 + rgb(1)) / 2, atol=1)
    assert (drawn[:, 127:129] == 255).all() and not (drawn[50, 126] == 255).all()
    named = paint_segments(image, labels, colours={0: 5})
    np.testing.assert_allclose(named[50, 50], (80 + rgb(5)) / 2, atol=1)
    np.testing.assert_allclose(named[50, 200], (80 + np.array(UNNAMED)) / 2, atol=1)
    assert paint_segments(image[:64, :100], labels[:64, :100]).shape == (256, 400, 3)


def test_a_row_for_every_method():
    image, labels = np.full((256, 256, 3), 80, np.uint8), np.zeros((256, 256), int)
    panel = segment_panel([image] * 2, {"truth": [labels] * 2, "ours": [labels] * 2}, colours={"ours": [{0: 3}, {}]})
    assert panel.columns == 2 and [t.caption for t in panel.tiles] == [
        "picture 0",
        "picture 1",
        *["truth"] * 2,
        *["ours"] * 2,
    ]
    np.testing.assert_allclose(panel.tiles[4].image[9, 9], (80 + rgb(3)) / 2, atol=1)
    with pytest.raises(vt.SettingsError, match="row 'ours' needs one label map for each picture\n  given:    1"):
        segment_panel([image] * 2, {"ours": [labels]})
    with pytest.raises(vt.SettingsError, match="labels are whole numbers, as large as the picture"):
        paint_segments(image, labels[:9])


# -- trees

LINKAGE = np.array([[0, 1, 0.1, 2], [2, 3, 0.2, 2], [4, 5, 1.0, 4]])


def test_a_tree_is_cut_into_as_many_parts_as_asked():
    two, three, four = (cut_tree(LINKAGE, k) for k in (2, 3, 4))
    assert [p.members for p in two.parts] == [(0, 1), (2, 3)] and two.parts[0].parts is None
    assert three.parts[0].parts is None and [p.members for p in three.parts[1].parts] == [(2,), (3,)]
    assert four.parts[0].parts is not None and cut_tree(LINKAGE, 1).parts is None
    assert two.height == 1.0
    with pytest.raises(vt.SettingsError, match="cut into parts that it has"):
        cut_tree(LINKAGE, 5)


def test_parts_of_a_tree_show_their_own_pixels():
    """Columns of a 1 x 4 grid, each counted by its own token, the outer ones alike and the inner ones."""
    size = vt.Size(8, 32)
    images = vt.ImageSet.from_arrays(np.zeros((1, 8, 32, 3), np.uint8))
    rows = np.eye(4, dtype=np.float32)[None] + 0.2 * np.kron(np.eye(2), np.ones((2, 2)))[None].astype(np.float32)
    frame = vt.Preprocess(size, 8).frame(size)
    about = {"own": "keep", "target": "sum"}
    maps = TokenMaps(rows, (0, 1, 2, 3), 0, (), vt.Grid(1, 4), size, (frame,), ("a",), about)
    (tile,) = tree_panel(images[0], vt.segment(maps, k=2), leaves=2).tiles
    across = 480  # a part is 120 pixels high
    root, left = tile.image[60, 22 + (across + 22) // 2 :][:across], tile.image[11 + 120 + 46 + 60, 22:][:across]
    assert (root[10:-10] == 0).all()  # the whole picture, black
    assert (left[10:230] == 0).all() and (left[250:-10] > 150).all()  # its left half, the rest faded
    with pytest.raises(vt.SettingsError, match="segments of another picture"):
        tree_panel(picture()[0], vt.segment(maps, k=2))


# -- words


def test_the_strongest_words_are_the_reddest_and_one_alone_does_not_hide_the_others():
    found = strengths([0, -1, *[1] * 40, 500])
    assert found[0] == found[1] == 0 and found[2] == found[-1] == 1
    assert strengths([1, 2], top=4).tolist() == [0.25, 0.5] and not strengths([0, 0]).any()


def test_html_is_escaped_and_says_the_score():
    page = text_html(["<b>", " & so", "\non"], [1, 0.5, 0], top=1)
    assert "<b>" not in page and "&lt;b&gt;" in page and "&amp; so" in page and "<br>on" in page
    assert 'title="0.5"' in page and page.count("<span") == 3
    assert "0.78" in page and "0.39" in page


def test_the_terminal_gets_the_same_words():
    said = text_terminal(["one", " two"], [0, 1], top=1)
    assert said.plain == "one two"
    console = Console(file=io.StringIO(), color_system="truecolor", force_terminal=True)
    console.print(said)
    assert "48;2;" in console.file.getvalue()
    assert [span.style for span in said.spans] == ["black on #df6e4b"]


def test_words_wrap_and_are_drawn_on_their_ground():
    words = [" word"] * 30
    wide, narrow = (text_picture(words, [1.0] * 30, width=w) for w in (900, 200))
    assert narrow.shape[0] > wide.shape[0] and narrow.shape[1] == 200
    pale = text_picture(words, [0.0] * 30, width=900)
    assert (pale[4, :300] == 255).all() and (wide[4, 5:300, 2] < 200).all()
    assert Image.fromarray(pale).mode == "RGB"
    with pytest.raises(vt.SettingsError, match=r"one score for each word\n  given:    \(1, 2\)"):
        text_html(["a"], [1, 2])
    with pytest.raises(vt.SettingsError, match=r"finite and \(token,\)"):
        text_picture(["a"], [np.nan])


# -- pages


def test_pages_take_maps_of_baselines_too(tiny):
    images = vt.ImageSet.from_arrays(np.random.default_rng(0).integers(0, 256, (1, 32, 32, 3), np.uint8))
    for make, said in ((vt.token_maps, "sum, rollout order"), (vt.attention_rollout, "attention rollout")):
        maps = make(tiny, images, progress=False)
        for page in (token_page([maps], [images[0]], [3, 4]), segment_page(vt.segment(maps, 2), [images[0]])):
            (member,) = page.overview.models
            assert member.about == f"{said}, own entry: max_of_others"


def test_a_text_too_short_for_the_tokens_asked_for_is_shown_without_colour():
    scores = np.ones((2, 1, 4), np.float32)
    about = {"own": "keep", "target": "sum", "order": "rollout", "subject": "net"}
    maps = TokenMaps(scores, (3,), 1, (), None, None, None, ("long", "short"), about, np.array([4, 2]))
    long, short = text_page([maps], [["a", "b", "c", "d"], ["a", "b"]]).sections[0].groups
    assert [tile.caption for tile in long.panels[0].tiles] == ["token 3: d"]
    assert [tile.caption for tile in short.panels[0].tiles] == ["too short for the tokens asked for"]
