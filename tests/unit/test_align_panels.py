"""Numbers of an alignment as panels, and the cosines behind one of them."""

from __future__ import annotations

import numpy as np
import pytest

import vitreous as vt
from vitreous.evidence.oracle import oracle_segmentation
from vitreous.lenses.align_segmentation import SHUFFLED, LayerScores, RegionMeans
from vitreous.views.align_panels import (
    cosine_heats,
    region_bars,
    region_curves,
    score_bars,
    segmentation_curves,
)


@pytest.fixture(scope="module")
def rows():
    generator = np.random.default_rng(0)
    shared = generator.standard_normal((30, 4, 6))
    models = {
        "one": {"blocks.0.attn.out": shared + 0.1 * generator.standard_normal(shared.shape)},
        "two": {"blocks.0.attn.out": shared, "blocks.1.attn.out": -shared, "odd": generator.random((30, 4, 5))},
    }
    return {m: {n: part.astype(np.float32) for n, part in layers.items()} for m, layers in models.items()}


def test_cosines_are_means_over_the_same_patch(rows):
    found = vt.slot_cosines(rows, pictures=10)
    flat = [part[:10].reshape(-1, part.shape[-1]) for layers in rows.values() for part in layers.values()]
    for i, j in ((0, 1), (1, 2), (0, 0)):
        pairs = zip(flat[i], flat[j], strict=True)
        expected = np.mean([a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in pairs])
        assert found.same[i, j] == pytest.approx(expected, abs=1e-5)
    assert np.isnan(found.same[0, 3]) and found.same[3, 3] == pytest.approx(1, abs=1e-5)
    assert abs(found.other[0, 1]) < 0.3 and found.same[0, 1] > 0.95
    same, other = found.between()
    assert same == pytest.approx((found.same[0, 1] + found.same[0, 2]) / 2) and abs(other) < 0.3
    np.testing.assert_allclose(found.other, found.other.T)
    halved = vt.slot_cosines(rows, lambda part, *_: part[..., :5], pictures=10)
    assert np.isfinite(halved.same).all()
    assert np.isnan(vt.slot_cosines({"one": rows["one"]}).between()[0])
    with pytest.raises(vt.SettingsError, match="pictures is a whole number"):
        vt.slot_cosines(rows, pictures=0)
    broken = rows["two"]["odd"].copy()
    broken[2, 1, 0] = np.nan
    with pytest.raises(vt.SettingsError, match=r"(?s)not finite.*two odd, picture 2"):
        vt.slot_cosines({"two": {"odd": broken}})


def test_both_tables_of_cosines_have_one_scale(rows):
    before = vt.slot_cosines(rows, pictures=10)
    after = vt.slot_cosines(rows, lambda part, *_: part[..., :5], pictures=10)
    panels = cosine_heats(before, after)
    assert panels[0].low == panels[1].low == -panels[0].high and panels[0].row_parts == (("one", 1), ("two", 3))
    assert panels[0].rows == ("0", "0", "1", "odd") and "Between different models" in panels[0].caption
    alone = vt.slot_cosines({"one": rows["one"]})
    assert "cannot be compared" in cosine_heats(alone, alone)[0].caption


def test_segmentation_is_a_line_a_reading_with_the_control_dashed():
    truth = np.repeat(np.eye(4, dtype=int)[None], 3, 0)
    good = np.where(truth[..., None] == 1, [1.0, 0.0], [0.0, 1.0])
    bad = np.random.default_rng(0).standard_normal((3, 4, 4, 2))
    scores = {
        (name, "m", layer): oracle_segmentation(rows, truth)
        for name, rows in (("before", bad), ("after", good), (SHUFFLED, bad))
        for layer in ("blocks.0.attn.out", "blocks.1.attn.out")
    }
    panel = segmentation_curves(LayerScores(scores, {}), "m")
    assert [line.name for line in panel.lines] == ["before", "after", SHUFFLED]
    assert (
        panel.x == (0.0, 1.0)
        and panel.lines[1].y == (1.0, 1.0)
        and panel.lines[2].control
        and "reach 1.00" in panel.caption
    )


def test_regions_are_bars_and_curves():
    slots = (("m", "blocks.0.attn.out"), ("m", "blocks.1.attn.out"), ("n", "blocks.0.attn.out"))
    mean = np.arange(12, dtype=float).reshape(3, 2, 2)
    means = RegionMeans(slots, ("ground", "figure"), mean, np.array([1.0, 2.0]), {"V1": np.array([True, False])})
    bars = region_bars(means, "m", "blocks.1.attn.out")
    assert bars.names == ("V1",) and [bar.values for bar in bars.bars] == [(4.0,), (6.0,)]
    curve = region_curves(means, "V1")
    assert curve.lines[0].y == (2.0, 2.0) and curve.lines[1].y == (2.0, 2.0) and curve.baseline == 0
    for wrong in (lambda: region_bars(means, "m", "x"), lambda: region_curves(means, "V9")):
        with pytest.raises(vt.SettingsError, match="no such"):
            wrong()
    whole = RegionMeans(slots, ("ground", "figure"), mean, np.array([1.0, 2.0]), {})
    assert set(whole.by_roi()) == {"all"}


def test_a_score_that_is_very_bad_does_not_hide_the_others():
    measured = np.random.default_rng(0).standard_normal((9, 2))
    predicted = np.stack([measured[:, 0], 50 * measured[::-1, 1]], 1)
    rois = {"good": np.array([True, False]), "bad": np.array([False, True])}
    parts = {"held_out": np.arange(9), "measured": measured, "predicted": predicted, "spread": np.ones(2)}
    found = vt.ChannelAlign((), (), np.ones((3, 2)), np.zeros(2), rois=rois, log=(), settings={}, **parts)
    panel = score_bars(found)
    assert panel.names[1:] == ("good (1)", "bad (1)") and panel.bars[0].values[1:] == (1.0, -0.25)
    assert "Bars end at" in panel.caption and not panel.mark_label
