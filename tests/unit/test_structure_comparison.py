from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import vitreous as vt
from vitreous.errors import SettingsError
from vitreous.evidence import statistics
from vitreous.lenses.structure import TRANSFORMS

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference import structure as twin


def activations(seed: int, copied: int = 0, samples: int = 150, mixed: float = 0.0) -> np.ndarray:
    """(sample, layer, token, channel): the first channels copied from layer to layer, all with a share in common."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, 3, 2, 8)).astype(np.float32) + mixed * rng.normal(size=(samples, 1, 1, 1))
    x[:, 1:, :, :copied] = x[:, :1, :, :copied]
    return x


def kept(x: np.ndarray, **settings) -> vt.StructureFinding:
    return vt.structure(x, keep_transformed=True, **settings)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_layers_agree_with_the_whole_matrices(transform, monkeypatch):
    monkeypatch.setattr("vitreous.lenses.structure_comparison.BLOCK", 7)  # blocks that do not divide a layer
    x, y = activations(0, mixed=0.5), activations(1, copied=3)
    rows = vt.compare(kept(x, transform=transform), kept(y, transform=transform)).layers
    naive = zip(*(twin.layer_differences(z.reshape(150, -1), transform, 100, 3) for z in (x, y)), strict=True)
    for row, (a, b) in zip(rows, naive, strict=True):
        assert len(a) == 16 * 48
        assert (row.a, row.b) == (pytest.approx(a.mean(), rel=1e-10), pytest.approx(b.mean(), rel=1e-10))
        expected = stats.ttest_rel(a, b)
        assert row.t.statistic == pytest.approx(expected.statistic, rel=1e-9)
        assert row.t.p == pytest.approx(expected.pvalue, rel=1e-6)
        # fewer than 5,000 pairs: all of them are in the permutation test
        assert row.permutation.statistic == pytest.approx((a - b).mean(), rel=1e-9)
        chance = 2 * stats.norm.sf(abs((a - b).mean()) / (np.sqrt(np.square(a - b).sum()) / len(a)))
        assert row.permutation.p == pytest.approx(chance, abs=0.02)
    assert [row.layer for row in rows] == ["layer 0", "layer 1", "layer 2"]


def test_kept_features_and_whole_matrices_give_the_same():
    x, y = activations(0), activations(1, copied=3)
    streamed = vt.compare(kept(x), kept(y))
    whole = vt.compare(vt.structure(x, distances=True), kept(y))
    assert streamed == whole


def test_the_permutation_test_draws_5000_pairs_of_each_layer(monkeypatch):
    seen = []

    def spy(a, b, **settings):
        seen.append((a, b))
        return statistics.permutation(a, b, **settings)

    monkeypatch.setattr("vitreous.lenses.structure_comparison.permutation", spy)
    monkeypatch.setattr("vitreous.lenses.structure_comparison.PAIRS", 300)
    x, y = activations(0, mixed=0.5), activations(1, copied=3)
    compared = vt.compare(kept(x), kept(y))
    grey = [twin.layer_differences(z.reshape(150, -1), "grouped_rank", 100, 3) for z in (x, y)]
    for (a, b), of_a, of_b in zip(seen, *grey, strict=True):
        assert len(a) == len(b) == 300
        pairs = {(round(p, 9), round(q, 9)) for p, q in zip(of_a, of_b, strict=True)}
        assert {(round(p, 9), round(q, 9)) for p, q in zip(a, b, strict=True)} <= pairs, "pairs of this layer, matched"
    assert vt.compare(kept(x), kept(y)) == compared, "a seed, not chance"
    assert vt.compare(kept(x), kept(y), seed=1).layers[0].permutation != compared.layers[0].permutation
    assert vt.compare(kept(x), kept(y), seed=1).layers[0].t == compared.layers[0].t


def test_sizes_count_units_on_their_own():
    x, y = activations(0), activations(1, copied=5)
    y[:, 1, 1, 7] = 3  # dead: in no group
    compared = vt.compare(vt.structure(x), vt.structure(y), names=("plain", "tidy"))
    sizes = [1] * 48, [3] * 10 + [1] * (48 - 30 - 1)
    gap, rank = compared.sizes
    assert compared.groups == (48, 27) and compared.mean_sizes == (1.0, 47 / 27)
    assert gap.name == "Kolmogorov-Smirnov" and rank.name == "Mann-Whitney U"
    assert (gap.test.statistic, gap.test.p) == tuple(stats.ks_2samp(*sizes))[:2]
    assert (rank.test.statistic, rank.test.p) == tuple(stats.mannwhitneyu(*sizes))
    assert gap.reading == "distributions differ" and rank.reading == "tidy larger"


def test_a_finding_does_not_differ_from_itself():
    found = kept(activations(1, copied=3))
    compared = vt.compare(found, found)
    assert [row.test.p for row in compared.sizes] == [1.0, 1.0]
    assert [row.reading for row in compared.sizes] == ["no difference seen", "neither larger"]
    assert all(row.t == statistics.Test(0.0, 1.0) and row.permutation.p == 1.0 for row in compared.layers)
    assert compared.notes == ()


def test_the_table():
    x, y = activations(0, samples=2000), activations(1, copied=5, samples=2000, mixed=3)
    text = vt.compare(kept(x), kept(y, threshold=0.5), names=("plain", "tidy")).table()
    lines = text.splitlines()
    assert lines[0] == "sizes: plain 48 groups of 1.000 units, tidy 28 groups of 1.714 units"
    assert lines[2].split() == ["test", "statistic", "p"]
    assert lines[4].startswith("Mann-Whitney U") and lines[4].endswith("tidy larger")
    assert lines[6].split() == ["layer", "plain", "tidy", "diff", "perm.", "diff", "perm.", "p", "t", "t-test", "p"]
    assert lines[7].startswith("layer 0") and " < 1e-4 " in lines[7]
    assert len({len(line) for line in lines[6:10]}) == 1, "columns stand under each other"
    assert lines[-1] == "threshold: 1.0 in plain, 0.5 in tidy"


def test_p_values_below_all_measure():
    """One layer of copies against independent units, thousands of pairs: p is below what can be told from nothing."""
    x = np.random.default_rng(0).normal(size=(200, 2, 1, 60)).astype(np.float32)
    y = x.copy()
    y[:, 1] = y[:, :1, 0, :1] + 1e-3 * y[:, 1]
    compared = vt.compare(kept(x), kept(y))
    assert compared.layers[1].t.p < 1e-300 < compared.layers[0].t.p
    assert compared.table().splitlines()[-1].endswith("< 1e-300")


def test_other_shapes_have_their_sizes_compared_only():
    x, y = activations(0), activations(1, copied=5)[:, :2]
    compared = vt.compare(kept(x), kept(y), names=("deep", "flat"))
    assert len(compared.sizes) == 2 and compared.layers == ()
    note = "units go together by (layer, token, channel), but deep has (3, 2, 8), flat (2, 2, 8)"
    assert compared.notes == (f"layers not compared: {note}",)
    assert compared.table().splitlines()[-1] == compared.notes[0]


def test_findings_without_features_have_their_sizes_compared_only():
    x, y = activations(0), activations(1)
    assert vt.compare(vt.structure(x), vt.structure(y)).notes == (
        "layers not compared: a and b came without structure(..., keep_transformed=True)",
    )
    assert vt.compare(kept(x), vt.structure(y)).notes == (
        "layers not compared: b came without structure(..., keep_transformed=True)",
    )


def test_a_saved_finding_is_compared_like_a_fresh_one(tmp_path):
    a, b = kept(activations(0)), kept(activations(1, copied=2))
    a.save(tmp_path / "a.npz")
    assert vt.compare(vt.StructureFinding.load(tmp_path / "a.npz"), b) == vt.compare(a, b)


def test_other_layers_and_tokens_than_the_other_model_has_are_named():
    x = activations(0)
    first, later = kept(x, layers=[0, 1], tokens=[0]), kept(x, layers=[1, 2], tokens=[1])
    assert vt.compare(first, later).notes == (
        "tokens: 0 in a, 1 in b",
        "layers: layer 0, layer 1 in a, layer 1, layer 2 in b",
    )
    assert vt.compare(first, first).notes == ()


def test_one_name_for_two_is_refused():
    found = vt.structure(activations(0))
    for names in (("vit", "vit"), ("vit",), (1, 2), None, "ab"):
        with pytest.raises(SettingsError, match="two findings need two different names"):
            vt.compare(found, found, names=names)
    with pytest.raises(SettingsError, match="seed is a whole number"):
        vt.compare(found, found, seed="0")


def test_what_is_no_finding_is_refused():
    with pytest.raises(SettingsError, match=r"(?s)two findings are compared.*str.*StructureFinding.load"):
        vt.compare(vt.structure(activations(0)), "mae.npz")
