"""Pictures and tables of structure findings: the values they hold, not only that they are there."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import vitreous as vt
from vitreous.errors import SettingsError
from vitreous.render import to_html, to_png
from vitreous.views.colours import CLUSTERS, MARK, SIGNS
from vitreous.views.panels import BARE, THIN
from vitreous.views.sheets import contour, lay_plate, lay_sheet
from vitreous.views.structure import as_maps, bins_of, choose, transformation_maps, unit_maps
from vitreous.views.structure_network import network_maps, returns
from vitreous.views.structure_tables import (
    comparison_tables,
    difference_matrix,
    layer_curves,
    layer_table,
    size_histogram,
    summary_table,
    threshold_curve,
    unrelated_difference,
)


def planted(samples=400, seed=0):
    """(sample, 5 layers, 2 tokens, 4 channels): unit (0, 1) is carried through all layers, (1, 2) has a gap at layer 2,
    and (0, 3) of layer 0 doubles the first."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, 5, 2, 4)).astype(np.float32)
    for layer in range(1, 5):
        x[:, layer, 0, 1] = np.exp(x[:, 0, 0, 1]) + layer
    x[:, 0, 0, 3] = 2 * x[:, 0, 0, 1]
    for layer in (1, 3, 4):
        x[:, layer, 1, 2] = x[:, 0, 1, 2]
    return x


X = planted()
FINDING = vt.structure(X, keep_transformed=True, progress=False)
LOOSE = replace(FINDING, transformed=None)  # has to be given its activations
CARRIED, GAPPED = 0, 1


def test_what_was_planted():
    assert FINDING.sizes.tolist() == [6, 4]
    assert FINDING.inefficient.tolist() == [False, True]


# -- Figure 1


def test_a_cell_holds_the_grouped_ranks_of_its_unit():
    panel = unit_maps(LOOSE, X, units=[(0, 1), (1, 0)], blocks=[0, 3])
    ranks = vt.grouped_ranks(X.reshape(400, -1)).reshape(X.shape)
    assert panel.values.shape == (2, 2, 20, 20)
    np.testing.assert_array_equal(panel.values[1, 0].ravel(), ranks[:, 3, 0, 1])
    np.testing.assert_array_equal(panel.values[0, 1].ravel(), ranks[:, 0, 1, 0])
    assert panel.rows == ("layer 0", "layer 3")
    assert panel.columns == ("t0 · 1", "t1 · 0")
    assert (panel.low, panel.high) == (0, 99)


@pytest.mark.parametrize("source", [X, bins_of(FINDING), None], ids=["activations", "grouped ranks", "kept"])
def test_every_kind_of_source_gives_the_same_maps(source):
    panel = unit_maps(FINDING if source is None else LOOSE, source, sort=True)
    np.testing.assert_array_equal(panel.values, unit_maps(LOOSE, X, sort=True).values)


def test_frames_tell_clusters_apart_and_crosses_mark_one():
    panel = unit_maps(LOOSE, X, units=[(0, 1), (0, 3), (1, 2), (1, 3)])
    assert panel.frames[:, 0].tolist() == [0] * 5
    assert panel.frames[:, 1].tolist() == [0, BARE, BARE, BARE, BARE]
    assert panel.frames[:, 2].tolist() == [1, 1, BARE, 1, 1]
    assert (panel.frames[:, 3] == BARE).all()
    np.testing.assert_array_equal(panel.crosses, panel.frames == 0)
    assert "a cluster of 6 units from layer 0 to layer 4." in panel.caption
    other = unit_maps(LOOSE, X, units=[(0, 1), (1, 2)], cluster=GAPPED)
    assert other.crosses.any(0).tolist() == [False, True]
    assert "with a gap" in other.caption


def test_of_more_clusters_than_colours_the_largest_are_coloured():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 3, 1, 25)).astype(np.float32)
    x[:, 1] = x[:, 0]
    x[:, 2, :, :10] = x[:, 0, :, :10]
    finding = vt.structure(x, progress=False)
    panel = unit_maps(finding, x, units=[(0, c) for c in range(25)])
    coloured = panel.frames[0] >= 0
    assert coloured.sum() == len(CLUSTERS) == 20
    assert coloured[:10].all()
    assert (panel.frames[0][~coloured] == THIN).all()
    assert sorted(panel.frames[0][coloured]) == list(range(20))


def test_units_are_chosen_from_the_largest_clusters_that_span_layers():
    choice = choose(FINDING)
    assert choice.cluster == CARRIED
    assert choice.units[:3].tolist() == [[0, 1], [0, 3], [1, 2]]
    assert len(np.unique(choice.units, axis=0)) == len(choice.units) == 6
    assert choice.blocks == (0, 1, 2, 3, 4)
    assert len(choose(FINDING, rows=3).blocks) == 3
    within = X.copy()
    within[:, :, 1, 3] = np.random.default_rng(2).normal(size=(400, 5))
    for channel in (0, 2, 3):  # a larger cluster, but of one layer
        within[:, 2, :, channel] = within[:, 2, :1, 0]
    chosen = choose(vt.structure(within, progress=False))
    assert chosen.units[0].tolist() == [0, 1]


def test_without_clusters_there_is_still_something_to_see():
    x = np.random.default_rng(0).normal(size=(150, 2, 1, 3)).astype(np.float32)
    panel = unit_maps(vt.structure(x, progress=False), x, sort=True)
    assert (panel.frames == BARE).all()
    assert not panel.crosses.any()
    assert panel.columns == ("unit 0", "unit 1", "unit 2")
    assert "no clusters" in panel.caption
    first = panel.values[0].reshape(3, -1)[:, :150]
    assert (np.diff(first, axis=1) >= 0).all()  # sorted by the first map


def test_sorted_maps_fade_where_the_order_is_kept():
    panel = unit_maps(LOOSE, X, units=[(0, 1), (0, 3), (1, 2)], sort=True)
    flat = panel.values.reshape(5, 3, -1)
    even = (np.diff(flat, axis=-1) >= 0).all(-1)
    np.testing.assert_array_equal(even, panel.frames != BARE)
    assert "sorted by the anchor" in panel.caption


def test_a_plane_is_drawn_from_its_lower_left_corner():
    y, x = np.divmod(np.arange(12), 4)
    np.testing.assert_array_equal(as_maps(y, (3, 4)), [[2] * 4, [1] * 4, [0] * 4])
    np.testing.assert_array_equal(as_maps(x, (3, 4))[0], [0, 1, 2, 3])
    assert "Each map is the plane of the 400 inputs" in unit_maps(LOOSE, X, grid=(20, 20)).caption


def test_what_is_no_square_is_filled_up_and_says_so():
    maps = as_maps(np.arange(10.0))
    assert maps.shape == (4, 4)
    np.testing.assert_array_equal(maps.ravel()[:10], np.arange(10))
    assert np.isnan(maps.ravel()[10:]).all()
    x = planted(395)
    panel = unit_maps(vt.structure(x, progress=False), x)
    assert "all 395 samples, row by row in a square of 20 x 20 whose last 5 places stay empty" in panel.caption


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"units": [(2, 0)]}, "no such token"),
        ({"units": [(0, 4)]}, "no such channel"),
        ({"units": []}, "no units to show"),
        ({"blocks": [5]}, "no such layer"),
        ({"cluster": 2}, "no such cluster"),
        ({"grid": (20, 19)}, "one place for every sample"),
        ({"grid": (20, 20), "sort": True}, "keep their places"),
        ({"source": X[:300]}, "not the activations of this finding"),
        ({"source": None}, "does not hold grouped ranks"),
    ],
)
def test_what_cannot_be_shown_is_refused(arguments, message):
    with pytest.raises(SettingsError, match=message):
        unit_maps(LOOSE, **{"source": X, **arguments})


# -- Figure 2


def test_the_example_of_the_paper():
    raw = [0.81, 0.87, -0.32, 0.09, -0.22, -0.85, -0.50, -0.48, 0.99, -0.62, 0.80, -0.19, -0.36, 0.65, -0.09, -0.51]
    panel = transformation_maps(np.array(raw), bins=4)
    rank = [13, 14, 6, 10, 7, 0, 3, 4, 15, 1, 12, 8, 5, 11, 9, 2]
    grouped = [3, 3, 1, 2, 1, 0, 0, 1, 3, 0, 3, 2, 1, 2, 2, 0]
    np.testing.assert_allclose(panel.values[0, 1].ravel() * 15, rank, atol=1e-5)
    np.testing.assert_allclose(panel.values[0, 2].ravel() * 3, grouped, atol=1e-5)
    assert panel.values[0, 0].min() == 0 and panel.values[0, 0].max() == 1


# -- Figure 3


def test_the_matrix_is_the_distances_from_0_to_255():
    whole = vt.structure(X, distances=True, progress=False)
    wanted = np.round(255 * whole.distances / whole.distances.max())
    for panel in (difference_matrix(whole), difference_matrix(LOOSE, X), difference_matrix(FINDING)):
        np.testing.assert_array_equal(panel.values, wanted)
        assert panel.starts == (0, 8, 16, 24, 32)
        assert panel.names == ("0", "1", "2", "3", "4")
    means = difference_matrix(FINDING).values.reshape(5, -1).mean(1)
    np.testing.assert_allclose(means, FINDING.differences, atol=0.5)


def test_of_many_units_neighbours_share_a_pixel():
    whole = vt.structure(X, distances=True, progress=False)
    scaled = 255 * whole.distances / whole.distances.max()
    blocks = scaled.reshape(20, 2, 20, 2)
    for finding, source in ((whole, None), (LOOSE, X), (FINDING, None)):
        np.testing.assert_array_equal(
            difference_matrix(finding, source, pixels=20).values, np.round(blocks.mean((1, 3)))
        )
        sampled = difference_matrix(finding, source, pixels=22, shrink="sample")
        np.testing.assert_array_equal(sampled.values, np.round(blocks[:, 0, :, 0]))
    assert "about 2.0 neighbours a pixel" in difference_matrix(whole, pixels=20).caption
    assert "20 of 40 units" in sampled.caption
    uneven = difference_matrix(whole, pixels=15).values  # three pixels for eight units
    np.testing.assert_array_equal(uneven[0, 1], np.round(scaled[:2, 2:5].mean()))


def test_the_first_unit_is_at_the_lower_left():
    plate = lay_plate(difference_matrix(FINDING))
    np.testing.assert_array_equal(plate.pixels[-1, :, 0], difference_matrix(FINDING).values[0])
    assert plate.labels[0][0] < plate.labels[-1][0]  # from the origin outwards
    assert plate.ticks[0] == 0 and plate.ticks[-1] == plate.side


def test_a_matrix_that_cannot_be_made_is_refused():
    with pytest.raises(SettingsError, match="every layer needs a pixel"):
        difference_matrix(FINDING, pixels=4)
    raw = vt.structure(X, transform="raw", progress=False)
    with pytest.raises(SettingsError, match="keep_transformed=True"):
        difference_matrix(raw, X)
    kept = vt.structure(X, transform="raw", keep_transformed=True, progress=False)
    np.testing.assert_allclose(difference_matrix(kept).values.reshape(5, -1).mean(1), kept.differences, atol=0.5)


# -- Figure 5, Table 1


def test_sizes_stand_side_by_side():
    large = replace(FINDING, labels=np.zeros((5, 2, 40), int), settings=FINDING.settings)
    panel = size_histogram({"a": FINDING, "b": large})
    assert panel.edges == tuple(range(0, 201, 10))
    assert panel.lines[0].y == (2, *[0] * 19)
    assert panel.lines[1].y == (*[0] * 19, 1)
    assert panel.beside and panel.log
    assert "1 of b" in panel.caption
    html = to_html(panel)
    assert html.count('class="solid') == 2
    assert html.count("Z") == 2  # one bar each


def test_the_tables_hold_the_numbers_of_the_paper():
    table = layer_table({"a": FINDING, "b": FINDING})
    assert table.columns == ("layer", "difference, a", "difference, b", "count, a", "count, b")
    assert table.rows[0] == ("layer 0", *[f"{FINDING.differences[0]:.2f}"] * 2, 7, 7)
    assert [row[0] for row in table.rows] == [
        "layer 0", "layer 1", "layer 2", "layer 3", "layer 4", "inefficient clusters", "largest cluster",
    ]  # fmt: skip
    assert table.rows[-2][-2:] == (1, 1)
    assert table.rows[-1][-2:] == (6, 6)
    summary = dict(zip(summary_table({"a": FINDING}).columns, summary_table({"a": FINDING}).rows[0], strict=True))
    assert summary["units in clusters"] == "10 (25.0%)"
    assert summary["mean size"] == f"{40 / 32:.3f}"
    assert summary["dead / nearly dead"] == "0 / 0"


def test_a_shallower_model_has_blank_cells_and_curves_of_its_own():
    shallow = vt.structure(X[:, :3], progress=False)
    rows = layer_table({"deep": FINDING, "shallow": shallow}).rows
    assert rows[2][2] != "" and rows[3][2] == rows[3][4] == ""
    with pytest.raises(SettingsError, match="one depth"):
        layer_curves({"deep": FINDING, "shallow": shallow})
    with pytest.raises(SettingsError, match="at least one finding"):
        layer_table({})


def test_curves_are_over_layers():
    difference, groups = layer_curves({"a": FINDING}, {"a": 150.0})
    assert difference.lines[0].y == tuple(FINDING.differences)
    assert difference.baseline == 150
    assert groups.lines[0].y == (7 / 8, 1, 1, 1, 1)


def test_units_with_nothing_in_common_differ_by_what_chance_gives():
    x = np.random.default_rng(3).normal(size=(2000, 2, 1, 60)).astype(np.float32)
    finding = vt.structure(x, progress=False)
    chance = unrelated_difference(finding)
    apart = finding.differences * 120 / 119  # without the units themselves
    np.testing.assert_allclose(apart, chance, rtol=0.005)
    by_rank = vt.structure(x, transform="rank", progress=False)
    np.testing.assert_allclose(by_rank.differences * 120 / 119, unrelated_difference(by_rank), rtol=0.005)
    assert unrelated_difference(vt.structure(x, transform="raw", progress=False)) is None


def test_the_threshold_curve_passes_through_the_finding():
    x = X.copy()
    x[:, 0, 0, 0] = x[:, 1, 0, 0] = 0.5  # dead: alike in every way, and yet never joined
    finding = vt.structure(x, progress=False)
    curve = threshold_curve({"a": finding}, {"a": x}, (0.5, 1.0, 60.0))
    assert curve.lines[0].y[1] == (finding.labels >= 0).mean()
    assert curve.lines[0].y[2] == 38 / 40
    assert threshold_curve({"a": FINDING}, None, (1.0,)).lines[0].y == (0.25,)


def test_units_that_were_left_out_are_in_no_cluster_of_the_threshold_curve():
    x = X.copy()
    x[:, :2, 0, 0] = 0
    x[0, :2, 0, 0] = 1  # nearly dead, and alike
    finding = vt.structure(x, keep_nearly_dead=False, progress=False)
    assert (vt.structure(x, progress=False).labels >= 0).sum() == (finding.labels >= 0).sum() + 2
    assert threshold_curve({"a": finding}, {"a": x}, (1.0,)).lines[0].y == ((finding.labels >= 0).mean(),)


def test_the_tests_of_a_comparison_become_tables():
    other = vt.structure(planted(seed=9), keep_transformed=True, progress=False)
    found = vt.compare(FINDING, other, names=("one", "two"), progress=False)
    sizes, layers = comparison_tables(found)
    assert [row[0] for row in sizes.rows] == ["Kolmogorov-Smirnov", "Mann-Whitney U"]
    assert layers.columns[:4] == ("layer", "one", "two", "difference")
    assert layers.rows[2][1] == f"{FINDING.differences[2]:.2f}"
    assert len(comparison_tables(vt.compare(LOOSE, other, progress=False))) == 1


# -- Figure 7


def network(layers=4, channels=3, samples=144):
    """Unit 2 is the same in layers 0 and 2, unit 0 in layers 1 to 3."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(samples, layers, 1, channels)).astype(np.float32)
    x[:, 2, 0, 2] = x[:, 0, 0, 2]
    x[:, 2, 0, 0] = x[:, 3, 0, 0] = x[:, 1, 0, 0]
    return x, rng.normal(size=(layers - 1, channels, channels))


def test_units_that_come_back_are_found():
    x, _ = network()
    found = returns(vt.structure(x, progress=False))
    assert [(r.channel, r.before, r.after) for r in found] == [(2, 0, 2)]
    assert [(r.token, r.channel, r.before, r.after) for r in returns(FINDING)] == [(1, 2, 1, 3)]


def test_the_network_shows_them_in_rings_and_the_largest_weights_as_lines():
    x, weights = network()
    finding = vt.structure(x, progress=False)
    panel = network_maps(finding, x, weights, grid=(12, 12), links=2)
    assert panel.values.shape == (3, 4, 12, 12)
    assert panel.rows == ("unit 0", "unit 1", "unit 2")
    assert np.argwhere(panel.rings).tolist() == [[2, 0], [2, 2]]
    assert panel.frames[0].tolist() == [BARE, 0, 0, 0]
    assert panel.frames[2].tolist() == [1, BARE, 1, BARE]
    assert len(panel.links) == 6
    first = panel.links[0]
    to, start = np.unravel_index(np.abs(weights[0]).argmax(), (3, 3))
    assert (first.start, first.end, first.weight) == ((start, 0), (to, 1), weights[0, to, start])
    np.testing.assert_array_equal(
        panel.values[1, 3], as_maps(vt.grouped_ranks(x.reshape(144, -1)).reshape(x.shape)[:, 3, 0, 1], (12, 12))
    )
    assert network_maps(finding, x, weights, units=[2]).rows == ("unit 2",)
    with pytest.raises(SettingsError, match="weights"):
        network_maps(finding, x, weights[1:])
    with pytest.raises(SettingsError, match="one token"):
        network_maps(FINDING, X, weights)


def test_units_that_come_back_are_shown_first():
    x, weights = network(channels=9)
    panel = network_maps(vt.structure(x, progress=False), x, weights)
    assert {"unit 0", "unit 2"} <= set(panel.rows)
    assert len(panel.rows) == 6


# -- as drawn


def pixels(panel, width=8, dpi=100):
    return np.asarray(Image.open(io.BytesIO(to_png(panel, width, dpi))).convert("RGB")).reshape(-1, 3)


def near(found, colour):
    wanted = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    return int((np.abs(found.astype(int) - wanted).max(1) < 12).sum())


def test_frames_crosses_rings_and_links_are_on_the_picture():
    found = pixels(unit_maps(LOOSE, X, units=[(0, 1), (1, 2)]))
    assert near(found, CLUSTERS[0]) > 500 and near(found, CLUSTERS[1]) > 500
    assert near(found, MARK) > 500
    assert near(pixels(unit_maps(LOOSE, X, units=[(1, 0), (1, 1)])), MARK) == 0
    x, weights = network()
    drawn = pixels(network_maps(vt.structure(x, progress=False), x, weights, links=3))
    assert min(near(drawn, colour) for colour in (*SIGNS, MARK)) > 100


def test_the_page_draws_the_same_marks():
    panel = unit_maps(LOOSE, X, units=[(0, 1), (1, 2), (1, 3)])
    html = to_html(panel)
    assert html.count("<rect") == (panel.frames != BARE).sum() == 9
    assert html.count(f'stroke="{MARK}"') == panel.crosses.sum() == 5
    assert html.count("<circle") == 0
    x, weights = network()
    html = to_html(network_maps(vt.structure(x, progress=False), x, weights, links=3))
    assert html.count("<circle") == 2
    assert html.count("<line") == 9


def test_contours_have_steps_and_leave_out_what_is_not_there():
    ramp = np.tile(np.arange(10.0), (10, 1))
    drawn = contour(ramp, 40, 0, 9)
    assert len(np.unique(drawn[:, :, :3].reshape(-1, 3), axis=0)) == 12
    assert (np.diff(drawn[0, :, :3].astype(int).sum(1)) >= 0).all()  # low is dark
    ramp[5:] = np.nan
    assert (contour(ramp, 40, 0, 9)[20:, :, 3] == 0).all()
    assert (contour(ramp, 40, 0, 9)[:20, :, 3] == 255).all()


def test_cells_do_not_overlap_and_links_run_between_them():
    x, weights = network(channels=5)
    sheet = lay_sheet(network_maps(vt.structure(x, progress=False), x, weights))
    xs, ys = sorted({p.x for p in sheet.places}), sorted({p.y for p in sheet.places})
    assert min(np.diff(xs)) > sheet.cell and min(np.diff(ys)) > sheet.cell
    assert max(xs) + sheet.cell <= sheet.width and max(ys) + sheet.cell <= sheet.height
    for stroke in sheet.strokes:
        left = max(place for place in xs if place < stroke.x0)
        assert left + sheet.cell < stroke.x0 < stroke.x1 < xs[xs.index(left) + 1]
    assert max(s.width for s in sheet.strokes) == pytest.approx(3.0)
