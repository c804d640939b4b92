"""What the disentanglement studies compute and lay out themselves, on small numbers."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import vitreous as vt
from vitreous.dictionary_comparison.watch import Watched
from vitreous.evidence.monosemanticity import monosemanticity

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))


def test_scores_of_linear_units_are_ms_scores():
    from disentangle_ablations import TOP, scores

    rng = np.random.default_rng(0)
    q, weight, bias = rng.normal(size=(60, 5, 8)), rng.normal(size=(6, 8)), rng.normal(size=6)
    bias[2] = -1000  # never above zero
    y = rng.normal(size=(60, 5, 4))
    found = scores(weight, bias, q, y, rng.normal(size=(60, 3)))[0]
    expected = monosemanticity(y, q @ weight.T + bias, top=TOP, progress=False)
    assert len(found) == 6 and expected.scored == 5
    assert np.nanmean(found) == pytest.approx(expected.mean, abs=1e-4)


def test_tokens_that_a_unit_is_strongest_at_are_counted():
    from disentangle_language import shares

    tokens = np.arange(48).reshape(12, 4) + 100
    tokens[:, 1] = 7  # where the first unit is strongest
    tokens[:6, 2], tokens[6:, 2] = 8, 9
    strongest = np.stack([np.linspace(1, 2, 12), np.full(12, -1.0)], 1).astype(np.float32)
    places = np.ones((12, 2), int)
    watched = Watched(None, strongest, places, strongest.min(0), 0.0, np.empty(0))
    found = shares(SimpleNamespace(tokens=tokens), watched, top=10)
    assert found == {"same token": 1.0, "same next": 0.6}  # ten of the twelve, six of them with a 9 behind


def test_runs_with_more_sub_units_lose_those_that_match_worst():
    from disentangle_tables import _best_match

    eye = np.eye(4)
    assert _best_match([eye[:2]], [eye[:2]]) == 1
    assert _best_match([eye[[3, 0, 1]]], [eye[:2]]) == pytest.approx(1 - 1 / 3)


def test_tables_are_put_between_their_markers(tmp_path):
    from disentangle_report import put_tables

    row = {"method": "topk", "units": 8, "expansion": 2.0, "active": 2.0, "r2": 0.5, "accuracy": None, "loss": None}
    row |= {"output_difference": 0.25, "ms": 0.4, "ms_other": None, "scored": 8, "seconds": 3.0}
    part = {"rows": [row], "ranking": {"methods": ["topk"], "rates": [0.75], "intervals": [[0.7, 0.8]]}}
    seeds = {"rows": [row, {**row, "ms": 0.5}], "ranking": None}
    four = {"rows": {"topk": {"stability": [0.5, 0.1], "effective rank": [3.0, 0.0], "coherence": [1.0, 0.0]}}}
    seven = {"rows": {"EOM": {"units": 9, "expansion": 3.0, "noise": 0.5}}}
    seven["rows"]["EOM"] |= {"ms": [0.2, 0.1, 0.3], "ms less base": [-0.01, -0.02, 0.01]}
    seven["rows"]["UMAP"] = {"note": "no umap here"}
    page = tmp_path / "page.md"
    page.write_text("# Words stay\n\n<!-- table: table2-tin -->\nold\n<!-- end -->\n\nand these too\n")
    put_tables(
        {"table2-tin": part, "table2-dino": seeds, "layers-dino": {"block 1": part}, "table4-tin": four}
        | {"table7-tin": seven},
        page,
    )
    text = page.read_text()
    assert text.startswith("# Words stay") and "and these too" in text and "old" not in text
    assert "| TopK SAE | 8 | 2.00 | 2.0 | 0.5000 | 0.25 | 0.400 | 8 | 0.75 [0.70, 0.80] | 3 |" in text
    assert "| TopK SAE | 8 | 2.00 | 2.0 | 0.5000 | 0.25 | 0.450 ± 0.050 | 8 | 3 |" in text
    assert "| block 1 | TopK SAE | 2.00 | 0.5000 |  | 0.400 |  | 0.75 [0.70, 0.80] |" in text
    assert "| TopK SAE | 0.5 ± 0.1 | 3 ± 0 | 1 ± 0 |  |" in text
    assert "| EOM | 9 | 3.00 | 0.50 | 0.200 [0.100, 0.300] |  | -0.010 [-0.020, +0.010] |  |  |  |" in text
    assert "| UMAP | no umap here |" in text
    before = text
    put_tables({"table2-tin": part}, page)
    assert page.read_text() == before


def test_ablations_are_means_over_sub_units_and_their_intervals_over_units():
    from disentangle_ablations import BASE, WHOLE, estimate, summary

    rng = np.random.default_rng(0)
    count = rng.integers(1, 5, 40)
    of = rng.normal(0.5, 0.2, 40)  # each unit has its own level, whatever the draw of tokens
    base = [{"units": 9, "count": count, "ms": count * of, "ms judge": count * 0.1} for _ in range(3)]
    more = [{**row, "ms": row["ms"] + 0.02 * row["count"], "expansion": 2.0} for row in base]
    lot = [{**row, "count": count[:4], "ms": row["ms"][:4], "ms judge": row["ms judge"][:4]} for row in base]
    whole = [{"units": 40, "count": np.ones(40), "ms": of - 0.1, "ms judge": of} for _ in range(3)]
    draws = [{WHOLE: w, BASE: a, "more": b, "few": c} for w, a, b, c in zip(whole, base, more, lot, strict=True)]
    found = summary(draws)
    assert found[BASE]["ms"][0] == pytest.approx((count * of).sum() / count.sum(), abs=1e-3)
    low, high = found[BASE]["ms"][1:]
    assert 0.05 < high - low < 0.3  # three draws of the same units are no more units
    assert found["more"]["ms less base"] == pytest.approx([0.02] * 3, abs=1e-4)  # the same units: levels cancel
    assert found["more"]["expansion"] == 2 and "ms less base" not in found["few"] and "ms less base" not in found[BASE]
    assert estimate(more, "ms", base)[0] == pytest.approx(0.02)
    assert found[BASE]["ms less units"][0] == pytest.approx(found[BASE]["ms"][0] - of.mean() + 0.1, abs=1e-3)
    assert "ms less units" not in found[WHOLE]
    gone = summary([{WHOLE: whole[0], BASE: base[0], "UMAP": {"note": "no umap here"}}])
    assert gone["UMAP"] == {"note": "no umap here"}


def test_two_units_of_each_number_of_sub_units_are_shown():
    from disentangle_pictures import chosen

    finding = SimpleNamespace(counts=np.array([0, 2, 2, 2, 1]), parents=np.repeat([0, 1, 2, 3, 4], [1, 2, 2, 2, 1]))
    parts = SimpleNamespace(scores=np.array([0.5, 0.1, 0.2, 0.9, 0.8, 0.4, np.nan, 0.7]))
    units = SimpleNamespace(scores=np.array([0.5, 0.0, 0.8, 0.1, 0.7]))
    assert chosen(finding, units, parts, 2, "score") == [2, 3]  # the best, and the one in the middle
    assert chosen(finding, units, parts, 2, "gain") == [3, 1]
    for by in ("score", "gain"):
        assert chosen(finding, units, parts, 1, by) == [4, 0] and chosen(finding, units, parts, 3, by) == []


def test_the_umap_ablation_says_so_where_there_is_no_umap(monkeypatch):
    import disentangle_umap

    monkeypatch.setattr(disentangle_umap, "find_spec", lambda _: None)
    assert disentangle_umap.umap_finding(None, None, None, np.arange(2), 5, 2) is None


@pytest.mark.data
def test_cases_are_there_and_their_halves_have_nothing_in_common(data_root):
    from disentangle_inputs import dino_case, story_case, tin_case

    tin, dino, story = tin_case(data_root), dino_case(data_root), story_case(data_root)
    assert (len(tin.train), len(tin.evaluate), len(dino.train), len(dino.evaluate)) == (2500, 500, 959, 300)
    assert np.bincount(dino.train.labels).min() > 50 and len(story.evaluate) == 100
    assert story.train.tokens.shape[1] == 96 and (story.train.tokens[:, 0] == 1).all()
    small = tin_case(data_root, small=True)
    assert (len(small.train), len(small.evaluate)) == (1200, 300)
    for case in (small, dino):
        seen = {np.asarray(picture.image).tobytes() for picture in case.train}
        assert not seen & {np.asarray(picture.image).tobytes() for picture in case.evaluate}
    assert isinstance(tin.judge, vt.Subject) and tin.judge.name != tin.subject.name
