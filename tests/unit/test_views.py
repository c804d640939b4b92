"""Panels as values; views on planted activations, whose answers are known."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

import vitreous as vt
from vitreous.axes import Grid, Size
from vitreous.errors import SettingsError, SiteError
from vitreous.preprocess import Preprocess
from vitreous.views import activity, gallery, gaze, units
from vitreous.views.charts import Axis, amount, lay_out, log_ticks, short, ticks
from vitreous.views.colours import SERIES, SERIES_DARK, paint_parts, scaled, span, under, veil
from vitreous.views.first_look import look, overview, sections, statements, title
from vitreous.views.panels import Box, Card, Curve, Fact, Histogram, Line, Pictures, Table, Text, Tile, as_json
from vitreous.views.seen import Seen, block_of

GRID = Grid(8, 8)
PREFIX = ("class",)
HIDDEN = ("blocks.1.mlp.hidden", "blocks.3.mlp.hidden")
RED = "red objects"


class Rows(np.ndarray):
    """An array that gives its samples a few at a time, as a store's does."""

    def batches(self, n):
        return (np.asarray(self[start : start + n]) for start in range(0, len(self), n))


class Memory(vt.Store):
    """What the views and the structure lens read of a store, in memory."""

    prefix = PREFIX
    lengths = None
    manifest = SimpleNamespace(model={}, data={})
    sites = path = None

    def __init__(self, arrays, path):
        self.arrays = {name: array.view(Rows) for name, array in arrays.items()}
        self.sites = tuple(arrays)
        self.path = path

    def tokens(self, site):
        return np.broadcast_to(np.arange(self[site].shape[1]), self[site].shape[:2])

    def __len__(self):
        return len(next(iter(self.arrays.values())))

    def __getitem__(self, site):
        return self.arrays[site]

    def grid(self, site):
        assert site in self.arrays
        return GRID


@pytest.fixture(scope="module")
def images():
    return vt.scenes(60, size=64, seed=5)


def _seen(images, path, arrays, attention=None, name="planted", series=1):
    preprocess = Preprocess(Size(64, 64), Size(64, 64))
    store = None if attention is None else Memory(attention, path)
    return Seen(name, "made by hand", series, Memory(arrays, path), store, preprocess)


def _truth(images, path):
    return _seen(images, path, {HIDDEN[0]: np.zeros((len(images), 65, 1))}).truth(images, HIDDEN[0])


@pytest.fixture(scope="module")
def planted(images, tmp_path_factory):
    """Unit 2 of the later site sees red objects, unit 0 of the earlier one never speaks; the rest is noise.

    In block 0 the class token looks everywhere alike, in block 3 with head 1 only at objects.
    """
    path = tmp_path_factory.mktemp("stores") / "planted"
    rng = np.random.default_rng(0)
    truth = _truth(images, path)
    hidden = {site: rng.standard_normal((len(images), 65, 6)).astype(np.float16) for site in HIDDEN}
    hidden[HIDDEN[1]][:, 1:, 2] += 4 * truth.present[..., truth.names.index(RED)]
    hidden[HIDDEN[0]][:, 1:, 0] = -0.1
    residual = {}
    for block in (0, 3):
        stream = np.zeros((len(images), 65, 4), np.float16)
        stream[:, 0, 0], stream[:, 1:, 1] = 3 + block, 1 + block
        stream[::2] *= -1  # as long as before, but no constant
        residual[f"blocks.{block}.resid.out"] = stream
    objects = truth.present[:16, :, truth.names.index(gaze.OBJECTS)].astype(np.float32)
    patterns = {f"blocks.{block}.attn.pattern": np.full((16, 2, 65, 65), 1 / 65, np.float32) for block in (0, 3)}
    patterns["blocks.3.attn.pattern"][:, 1, 0, 1:] = objects / objects.sum(1, keepdims=True)
    return _seen(images, path, {**hidden, **residual}, patterns)


@pytest.fixture(scope="module")
def measured(planted, images):
    return units.measure_units(planted, images, seed=0)


# -- units


def test_the_planted_detector_is_found_on_pictures_that_had_no_say(measured):
    at = int(np.flatnonzero((measured.site == 1) & (measured.channel == 2))[0])
    assert measured.names[measured.found.concept[at]] == RED
    assert measured.found.held_out[at] > 0.95
    assert measured.title(at) == "Block 3, unit 2"
    assert measured.detectors() == measured.detectors("colour") == 1
    assert measured.detectors("shape") == 0
    assert measured.by_chance == 0
    assert measured.share == pytest.approx(1 / 12)


def test_the_clearest_units_are_chosen_each_for_another_concept(measured):
    chosen = units.choose_units(measured, 4)
    assert measured.title(chosen[0]) == "Block 3, unit 2"
    concepts = [int(measured.found.concept[unit]) for unit in chosen]
    assert len(set(concepts)) == len(concepts)
    kinds = [measured.kinds[concept] for concept in concepts]
    assert max(map(kinds.count, kinds)) <= units.A_KIND
    assert units.random_unit(measured, chosen, seed=1) not in chosen


def test_a_card_shows_what_was_held_out_and_the_truth_under_each_picture(measured, images):
    chosen = units.choose_units(measured, 1)
    card, drawn = units.unit_cards(measured, images, chosen, units.random_unit(measured, chosen, 0))
    assert card.claim == f"Detects {RED}."
    assert card.code == 'store["blocks.3.mlp.hidden"][:, 1:, 2]'
    assert card.meter.value > 0.95 > card.meter.control
    assert drawn.tag == "drawn at random, for comparison"
    held_out = {images.ids[k] for k in np.flatnonzero(~measured.choosing)}
    strongest, quantiles = card.panels
    for panel in card.panels:
        shown = [tile.alt.split(",")[0].removeprefix("Scene ") for tile in panel.tiles]
        assert len(set(shown)) == len(shown) == 8
        assert set(shown) <= held_out
    red = measured.truths[0].present[..., measured.names.index(RED)]
    for tile in (*strongest.tiles, *quantiles.tiles):
        scene, patch = tile.alt.removeprefix("Scene ").split(":")[0].split(", patch ")
        true = red[images.ids.index(scene), int(patch)]
        assert tile.caption.endswith("✓" if true else "✗")
        assert tile.alt.endswith("yes" if true else "no")
    assert [tile.caption[-1] for tile in strongest.tiles[:3]] == ["✓"] * 3
    levels = [float(tile.caption.split(" · ")[1].split()[0]) for tile in quantiles.tiles]
    assert levels == sorted(levels, reverse=True)
    assert max(levels) < float(strongest.tiles[-1].caption.split()[0])


def test_the_square_lies_on_the_patch_and_the_map_is_brightest_there(measured, images):
    chosen = units.choose_units(measured, 1)
    card = units.unit_cards(measured, images, chosen, chosen[0])[0]
    tile = card.panels[0].tiles[0]
    (box,) = tile.boxes
    assert (box.x1 - box.x0, box.y1 - box.y0) == (8, 8)
    inside = tile.heat[int(box.y0) : int(box.y1), int(box.x0) : int(box.x1)]
    assert inside.max() == pytest.approx(tile.heat.max())


@pytest.mark.parametrize(
    ("held_out", "control", "claim"),
    [
        (0.97, 0.5, "Detects stars."),
        (units.DETECTS, 0.5, "Detects stars."),
        (0.88, 0.5, "Responds to stars."),
        (0.75, 0.5, "Leans towards stars."),
        (0.6, 0.5, "Stands for nothing we can name. Its best guess, stars, is weak."),
        (0.9, 0.85, "Stands for nothing we can name. Its best guess, stars, is weak."),
    ],
)
def test_a_claim_says_no_more_than_its_numbers(held_out, control, claim):
    assert units.claim_of("stars", held_out, control) == claim


# -- attention and activity


def test_attention_on_objects_beats_the_masks_of_other_pictures(planted, images):
    found = gaze.read_gaze(planted, images, seed=0)
    assert found.blocks == (0, 3)
    assert found.lift[0] == pytest.approx(1, abs=0.02)  # everywhere alike
    assert found.lift[1] > 1.3 > 1.15 > found.control[1]
    assert found.focused(1) == 1
    assert found.spread[0].tolist() == pytest.approx([64, 64], rel=1e-3)
    assert found.query == "the class token"
    np.testing.assert_allclose(found.maps.sum(-1), 1, rtol=1e-4)


def test_attention_maps_stand_beside_their_pictures(planted, images):
    panel = gaze.gaze_panel(gaze.read_gaze(planted, images, 0), images, count=2)
    assert [tile.caption for tile in panel.tiles[:3]] == ["picture", "block 0, head 0", "block 3, head 1"]
    assert [tile.heat is None for tile in panel.tiles] == [True, False, False] * 2
    assert panel.tiles[2].heat.shape == (64, 64)


def test_a_model_without_attention_is_refused_by_name(planted, images):
    blind = Seen("blind", "", 0, planted.store, None, planted.preprocess)
    with pytest.raises(SiteError, match="no attention was recorded of blind"):
        gaze.read_gaze(blind, images, 0)


def test_norms_by_kind_of_token_and_silent_units(planted):
    found = activity.measure_activity(planted)
    assert found.norms["class token"].mean.tolist() == [3, 6]
    assert found.norms["patches"].mean.tolist() == [1, 4]
    assert found.units[0].silent == pytest.approx(1 / 6)
    assert found.units[1].silent == 0
    table = activity.silence_table([found])
    assert table.rows[0][:4] == ("planted", 6, "16.7%", "0.0%")
    assert {curve.title for curve in activity.norm_curves([found])} == {
        "Residual stream of the patches",
        "Residual stream of the class token",
    }


def test_only_blocks_have_numbers():
    assert block_of("blocks.11.mlp.hidden") == 11
    with pytest.raises(SiteError, match="only sites of blocks have a number"):
        block_of("norm")


# -- the whole look


def test_the_sections_say_what_was_planted(planted, images):
    found = look([planted], images, 0)
    parts = sections(found)
    assert [part.name for part in parts] == ["pictures", "attention", "activations", "units", "structure", "reading"]
    texts = [statement.text for statement in statements(found)]
    assert "planted 1 of 12" in texts[0]
    assert "none is left" in texts[0]
    assert "planted favours objects the most" in texts[2]
    assert "At most 16.7% of the hidden units of a block never respond (planted, block 1)" in texts[3]
    assert {s.section for s in overview(found).statements} <= {part.name for part in parts}
    assert title(found) == "Inside planted"
    json.dumps(as_json(parts), allow_nan=False)


def test_learned_kinds_are_told_from_those_that_come_for_free(measured, planted, images):
    found = look([planted], images, 0, shuffled=planted)
    assert found.shuffled.detectors() == 1
    names = [line.name for line in units.survival_curve(found.measured, found.shuffled).lines]
    assert names == ["planted", "planted", "other pictures' masks"]
    assert len(units.kinds_table(found.measured, found.shuffled).rows) == 2
    assert [fact.value for fact in overview(found).numbers] == ["60", "12", "8%", "0.0%", "8%"]


def test_a_look_at_nothing_is_refused(images):
    with pytest.raises(SettingsError, match="at least one model"):
        look([], images, 0)


def test_scenes_stand_beside_their_masks(images):
    panel = gallery.scene_panel(images, count=3)
    assert len(panel.tiles) == 6
    picture, mask = panel.tiles[:2]
    np.testing.assert_array_equal(picture.image, np.asarray(images[0].image))
    background = (mask.image == paint_parts(np.zeros((1, 1), int))[0, 0]).all(-1)
    np.testing.assert_array_equal(background, images[0].instances == 0)


# -- panels


def test_panels_are_json_but_for_their_pixels():
    tile = Tile(np.zeros((4, 6, 3), np.uint8), "black", heat=np.full((4, 6), np.nan), boxes=(Box(0, 0, 1, 2),))
    card = Card("unit", "claim", facts=(Fact("a", "1"),), panels=(Pictures("p", (tile,), 2),))
    plain = json.loads(json.dumps(as_json(card), allow_nan=False))
    assert plain["kind"] == "card"
    inner = plain["panels"][0]["tiles"][0]
    assert inner["image"]["shape"] == [4, 6, 3]
    assert len(inner["heat"]["sha256"]) == 64
    assert inner["boxes"][0] == {"kind": "box", "x0": 0, "y0": 0, "x1": 1, "y1": 2}
    with pytest.raises(SettingsError, match="plain values and arrays"):
        as_json({1, 2})


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Tile(np.zeros((4, 4), np.uint8), ""), r"uint8 \(row, column, colour\)"),
        (lambda: Tile(np.zeros((4, 4, 3), np.uint8), "", heat=np.zeros((2, 2))), "as large as its picture"),
        (lambda: Pictures("", (), 0), "at least one column"),
        (lambda: Curve("", (0, 1), (Line("a", (1.0,)),), "", ""), "one value for each of 2 positions"),
        (lambda: Curve("", (0.0,), (Line("a", (math.nan,)),), "", ""), "cannot be drawn"),
        (lambda: Histogram("", (0, 1), (Line("a", (1.0, 2.0)),), "", ""), "between each two of 2 edges"),
        (lambda: Table("t", ("a", "b"), ((1,),)), "needs 2 cells"),
    ],
)
def test_what_a_panel_refuses(make, text):
    with pytest.raises(SettingsError, match=text):
        make()


# -- charts and colours


def test_ticks_are_round_and_inside():
    assert ticks(0, 7, 7) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert ticks(0.5, 1.0) == [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert ticks(-3, 12, 5) == [0, 5, 10]
    assert log_ticks(0.0005, 2) == [0.001, 0.01, 0.1, 1]
    assert log_ticks(3, 40) == [5, 10, 20]
    assert len(log_ticks(1e-30, 1e30)) < 10
    assert [short(v) for v in (0, 0.5, 12, 1e-5, 3e6)] == ["0", "0.5", "12", "1e-5", "3e6"]
    assert [amount(v) for v in (-0.001, 1.239, -2)] == ["0.00", "1.24", "-2.00"]


def test_an_axis_maps_its_ends_and_clips():
    axis = Axis(0, 10, 100, 0)
    assert [axis.at(v) for v in (0, 5, 10, 99, -1)] == [100, 50, 0, 0, 100]
    log = Axis(1, 100, 0, 10, log=True)
    assert [log.at(v) for v in (1, 10, 100, 0)] == [0, 5, 10, 0]


def test_a_chart_keeps_zero_in_sight_unless_it_has_another_baseline():
    curve = Curve("", (0.0, 1.0), (Line("a", (5.0, 6.0)),), "", "")
    assert lay_out(curve).y_ticks[0][1] == "0"
    lifted = Curve("", (0.0, 1.0), (Line("a", (5.0, 6.0)),), "", "", baseline=5.0)
    chart = lay_out(lifted)
    assert chart.y_ticks[0][1] != "0"
    assert chart.top < chart.baseline <= chart.bottom


@pytest.mark.parametrize("y", [(0.0, 0.0), (3.0, 3.0), (-2.0, -2.0)])
@pytest.mark.parametrize("log", [False, True])
def test_flat_lines_and_single_points_can_be_drawn(y, log):
    chart = lay_out(Curve("", (0.0, 1.0), (Line("a", y, low=y, high=y),), "", "", log=log))
    assert "nan" not in chart.marks[0].path
    alone = lay_out(Curve("", (4.0,), (Line("a", y[:1]),), "", "", log=log))
    assert alone.marks[0].path.endswith("h0")  # a path of a single move draws nothing, not even its round ends
    assert [text for _, text in alone.x_ticks] == ["3", "4", "5"]


def test_there_is_no_number_between_two_blocks():
    line = Line("a", (1.0, 2.0))
    assert [text for _, text in lay_out(Curve("", (4.0, 7.0), (line,), "block", "")).x_ticks] == ["4", "5", "6", "7"]
    shares = lay_out(Curve("", (0.5, 1.0), (line,), "share", ""))
    assert [text for _, text in shares.x_ticks][:2] == ["0.5", "0.6"]


def test_a_histogram_is_filled_only_where_nothing_is_covered():
    one, two = Line("a", (1.0, 2.0)), Line("b", (2.0, 1.0), control=True)
    alone = lay_out(Histogram("", (0.0, 1.0, 2.0), (one, two), "", ""))
    assert [bool(mark.band) for mark in alone.marks] == [True, False]
    many = lay_out(Histogram("", (0.0, 1.0, 2.0), (one, one), "", ""))
    assert [bool(mark.band) for mark in many.marks] == [False, False]


def test_a_veil_hides_the_cold_and_leaves_the_hot():
    heat = np.array([[0.0, 1.0, np.nan]])
    rgba = veil(scaled(heat * 7, *span(heat * 7)))
    assert rgba[0, 1, 3] == 0
    assert 150 < rgba[0, 0, 3] < 255
    assert rgba[0, 2, 3] == 255
    seen = under(np.full((1, 3, 3), 200, np.uint8), rgba)
    assert (seen[0, 1] == 200).all()
    assert (seen[0, 0] < 70).all()
    assert span(np.full((2, 2), np.nan)) == (0, 1)
    assert scaled(np.full((1, 1), 3.0), 3, 3).tolist() == [[0]]


def test_there_is_a_dark_colour_for_each_light_one():
    assert len(SERIES) == len(SERIES_DARK) == len(set(SERIES)) == len(set(SERIES_DARK))


def test_text_is_a_panel_too():
    assert as_json(Text("t", ("p",), "code"))["paragraphs"] == ["p"]
