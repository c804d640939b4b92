"""Dictionaries: what single kinds promise, the sweep, files of others, bad input. What all promise: conformance/."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import vitreous as vt
from vitreous.baselines.dictionaries import KINDS, DictionaryConfig, quality, rows, sweep
from vitreous.baselines.dictionaries.archetypal import Archetypal, centres
from vitreous.baselines.dictionaries.codes import keep_largest, pursue
from vitreous.baselines.dictionaries.jumprelu import _Count, _Jump
from vitreous.baselines.dictionaries.learning import _begin, _rate
from vitreous.baselines.dictionaries.rows import Rows
from vitreous.baselines.dictionaries.selection import selection_scores
from vitreous.baselines.dictionaries.trainee import Pass, reanimation

QUICK = {"expansion": 2, "epochs": 2, "batch_size": 50, "progress": False}


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def begin(kind: str, x: torch.Tensor, units: int = 12, k: int = 2, **options):
    settings = {"seed": 0, "batch_size": 50, "options": {**KINDS[kind].options, **options}}
    rows_ = Rows(x)
    return _begin(KINDS[kind], rows_, rows_, units, k, settings)


# -- single kinds


def test_pursuit_takes_the_best_atom_and_then_the_best_for_what_is_left():
    atoms = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0.6, 0.8, 0]])
    x = torch.tensor([[3.0, 4, 0], [2, 0.5, 0], [-1, 0, 0]])
    z = pursue(x, atoms, 2)
    torch.testing.assert_close(z[0], torch.tensor([0.0, 0, 5]))
    torch.testing.assert_close(z[1], torch.tensor([2.0, 0.5, 0]))
    assert z[2].abs().sum() == 0  # nothing fits: no code is negative
    by_hand = _pursuit_by_hand(noise(5, 6).double(), torch.nn.functional.normalize(noise(9, 6, seed=1).double()), 4)
    torch.testing.assert_close(*by_hand)


def _pursuit_by_hand(x, atoms, k):
    z = torch.zeros(len(x), len(atoms), dtype=x.dtype)
    for i, row in enumerate(x):
        rest = row.clone()
        for _ in range(k):
            fits = [float(rest @ atom) for atom in atoms]
            best = int(np.argmax(fits))
            if fits[best] > 0:
                z[i, best] += fits[best]
                rest = rest - fits[best] * atoms[best]
    return pursue(x, atoms, k), z


def test_keep_largest_keeps_nothing_below_zero():
    before = torch.tensor([[3.0, -1, 2, 1], [-1, -2, -3, 0.5]])
    torch.testing.assert_close(keep_largest(before, 2), torch.tensor([[3.0, 0, 2, 0], [0, 0, 0, 0.5]]))


def test_jump_gradients_are_those_of_the_paper():
    x = torch.tensor([[0.2, 0.52, 0.9], [0.48, 0.6, 0.1]])
    threshold = torch.full((3,), 0.5, requires_grad=True)
    upward = torch.tensor([[1.0, 2, 3], [4, 5, 6]])
    (_Jump.apply(x, threshold, 0.1) * upward).sum().backward()
    near = (x - 0.5).abs() < 0.05  # half of the bandwidth
    assert near.sum() == 2
    torch.testing.assert_close(threshold.grad, -(0.5 / 0.1) * (upward * near).sum(0))
    threshold.grad = None
    (_Count.apply(x, threshold, 0.1) * upward).sum().backward()
    torch.testing.assert_close(threshold.grad, -(1 / 0.1) * (upward * near).sum(0))


def test_jumps_estimate_the_gradient_of_the_expected_count():
    """With many rows the pseudo-gradient is the slope of the share of rows above the threshold."""
    x = torch.rand(200_000, 1, generator=torch.Generator().manual_seed(0))
    threshold = torch.tensor([0.4], requires_grad=True)
    _Count.apply(x, threshold, 0.1).mean().backward()
    assert float(threshold.grad) == pytest.approx(-1, abs=0.02)  # uniform: one unit of share a unit of threshold


def test_nested_dictionaries_share_the_error():
    x = noise(100, 8)
    trainee = begin("matryoshka", x, units=16, shares=(0.25, 0.5, 1.0))
    z, y = noise(10, 16, seed=1).relu(), noise(10, 8, seed=2)
    parts = [(z[:, :n] @ trainee.atoms[:n] + trainee.b_dec - y).square().mean() for n in (4, 8, 16)]
    torch.testing.assert_close(trainee.error(Pass(z, z, y)), sum(parts) / 3)


def test_early_units_of_a_matryoshka_do_more_alone():
    x = noise(600, 12) @ torch.diag(torch.linspace(2, 0.2, 12))
    alone = {}
    for kind in ("matryoshka", "batch_topk"):
        d = vt.train_dictionary(
            x, kind, expansion=2, k=4, epochs=30, batch_size=100, learning_rate=1e-2, progress=False
        )
        z = d.encode(x)
        z[:, 6:] = 0
        alone[kind] = float((d.decode(z) - x).square().mean())
    assert alone["matryoshka"] < 0.9 * alone["batch_topk"]


def test_archetypes_stay_near_mixtures_of_data():
    x = noise(300, 6)
    trainee = begin("archetypal", x, candidates=40, delta=0.5)
    assert isinstance(trainee, Archetypal)
    with torch.no_grad():
        trainee.A.add_(noise(12, 40, seed=1))
        trainee.relaxation.add_(noise(12, 6, seed=2))
        trainee.A[3] = -1  # nothing left after the projection: an equal mixture
    trainee.constrain()
    assert (trainee.A >= 0).all()
    torch.testing.assert_close(trainee.A.sum(1), torch.ones(12))
    assert (trainee.relaxation.norm(dim=1) <= 0.5 + 1e-6).all()
    torch.testing.assert_close(trainee.A[3], torch.full((40,), 1 / 40))


def test_candidates_are_centres_of_the_data():
    means = torch.tensor([[10.0, 0], [0, 10], [-10, -10]])
    x = means.repeat_interleave(50, 0) + 0.1 * noise(150, 2)
    found = centres(x, 12, torch.Generator().manual_seed(0))
    assert torch.cdist(means, found).min(1).values.max() < 0.2
    assert torch.equal(centres(x, 150, torch.Generator().manual_seed(0)).sort(0).values, x.sort(0).values)


def test_reanimation_is_the_mean_of_silent_units():
    before = torch.tensor([[-1.0, 2, -3], [-2, 4, -5]])
    z = before.relu()
    assert float(reanimation(Pass(before, z, before))) == pytest.approx((-1 - 3 - 2 - 5) / 4)
    assert float(reanimation(Pass(before, z + 1, before))) == 0


def test_dead_units_are_woken():
    g = torch.Generator().manual_seed(0)
    means = 3 * torch.randn(6, 10, generator=g)
    x = means[torch.randint(6, (1000,), generator=g)] + 0.3 * torch.randn(1000, 10, generator=g)
    settings = {"k": 2, "expansion": 6, "epochs": 20, "batch_size": 100, "learning_rate": 1e-2, "progress": False}
    left, woken = (quality(vt.train_dictionary(x, dead_weight=w, **settings), x).dead for w in (0, 1e-3))
    assert left > 10 and woken < left / 2


def test_units_that_were_silent_for_long_predict_what_is_left():
    trainee = begin("topk", noise(100, 4), units=6, k=1, auxiliary=0.5, patience=15)
    before, y = noise(10, 6, seed=1), noise(10, 4, seed=2)
    before[:, :3] += 5  # one of the first three is always the largest
    now = Pass(before, trainee.codes(before), y)
    assert not trainee.auxiliary(now).any()  # silent for 10 rows only
    guess = keep_largest(before[:, 3:], 2) @ trainee.atoms[3:]  # half as many as channels may speak
    left = y - now.z @ trainee.atoms - trainee.b_dec
    torch.testing.assert_close(trainee.auxiliary(now).detach(), 0.5 * (guess - left).square().mean().detach())
    trainee.zero_grad()
    trainee.auxiliary(now).backward()
    assert (trainee.W_dec.grad[:3] == 0).all() and (trainee.W_dec.grad[3:] != 0).any()


def test_the_threshold_of_a_batch_dictionary_gives_rows_different_numbers_of_codes():
    x = noise(500, 8) * torch.linspace(0.3, 3, 500)[:, None]
    d = vt.train_dictionary(x, "batch_topk", k=3, **QUICK)
    active = (d.encode(x) > 0).sum(1)
    assert active[:100].float().mean() < active[-100:].float().mean()
    assert (d.weights["threshold"] == d.weights["threshold"][0]).all()


def test_the_paper_s_sparsity_is_the_default():
    x = noise(100, 16)
    assert vt.train_dictionary(x, "topk", expansion=4, epochs=1, batch_size=50, progress=False).config.k == 20
    tenth = vt.train_dictionary(x, "archetypal", expansion=4, epochs=1, batch_size=50, progress=False)
    assert tenth.config.k == 6
    assert vt.train_dictionary(x, "vanilla", **QUICK).config.training["penalty"] == 5e-3


def test_the_learning_rate_rises_and_falls():
    rates = [_rate(step, 100) for step in range(100)]
    assert rates[0] == 0.2 and max(rates) == rates[4] == 1 and rates[-1] < 0.01
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert _rate(0, 1) == 1


# -- where activations come from


def test_a_store_site_trains_as_its_array_does_also_when_it_stays_on_disk(tmp_path, monkeypatch):
    subject = vt.load("bundled:scenes-text")
    store = vt.record(subject, vt.scenes(6, size=64, seed=1), "blocks.-1.mlp.out", out=tmp_path / "s", progress=False)
    site = store["blocks.-1.mlp.out"]
    settings = {**QUICK, "epochs": 1, "k": 4, "expansion": 1}
    whole = vt.train_dictionary(np.asarray(site), **settings)
    assert torch.equal(vt.train_dictionary(site, **settings).atoms, whole.atoms)
    monkeypatch.setattr(rows, "IN_MEMORY", 0)
    assert torch.equal(vt.train_dictionary(site, **settings).atoms, whole.atoms)
    x = np.asarray(site)
    with vt.patch(subject, {"blocks.-1.mlp.out": whole.reconstruct}), vt.capture(subject, "blocks.-1.mlp.out") as seen:
        subject([picture.image for picture in vt.scenes(6, size=64, seed=1)])
    torch.testing.assert_close(seen["blocks.-1.mlp.out"], whole.reconstruct(x), rtol=1e-3, atol=1e-3)


def test_quality_counts():
    weights = {"W_enc": torch.eye(2, 3), "b_enc": torch.zeros(3), "W_dec": torch.eye(3, 2), "b_dec": torch.zeros(2)}
    d = vt.Dictionary(DictionaryConfig("vanilla", 2, 2, 3, None, True), weights)
    x = torch.tensor([[1.0, 0], [2, 3], [0, 0]])
    found = quality(d, x)
    assert (found.mse, found.r2, found.l0, found.dead) == (0, 1, 1, 1)
    worse = quality(d, torch.tensor([[-1.0, 0], [2, 3], [0, 0]]))
    assert worse.mse == pytest.approx(1 / 6)


# -- the sweep of E.1


def test_the_selection_rule_is_equation_nine():
    mse, l0 = [1.0, 3.0, 2.0], [0.4, 0.2, 0.2]
    expected = [0.5 * (1 - 0) + 0.5 * (1 - 1), 0.5 * (1 - 1) + 0.5 * (1 - 0), 0.5 * (1 - 0.5) + 0.5 * (1 - 0)]
    np.testing.assert_allclose(selection_scores(mse, l0), expected)
    np.testing.assert_allclose(selection_scores([1, 2], [3, 3]), [1, 0.5])


def test_a_sweep_tries_the_grid_and_keeps_the_best():
    x = noise(200, 6)
    found = sweep(x, "topk", k=2, **QUICK)
    assert len(found.tried) == 9 and len({tuple(t.values()) for t in found.tried}) == 9
    assert found.scores[found.best] == found.scores.max()
    one = vt.train_dictionary(x, "topk", k=2, **QUICK, **found.tried[found.best])
    assert torch.equal(one.atoms, found.dictionary.atoms)
    assert found.qualities[found.best] == quality(one, x)


def test_a_sweep_of_penalties_has_27_candidates_and_can_be_judged_on_other_data():
    x = noise(100, 4)
    found = sweep(x, "vanilla", judged_on=noise(60, 4, seed=1), **{**QUICK, "epochs": 1})
    assert len(found.tried) == 27 and {t["penalty"] for t in found.tried} == {1e-3, 5e-3, 2e-2}
    assert found.qualities[0] == quality(
        vt.train_dictionary(x, "vanilla", **{**QUICK, "epochs": 1}, **found.tried[0]), noise(60, 4, seed=1)
    )
    small = sweep(x, "transcoder", targets=2 * x, learning_rates=[1e-3], dead_weights=[0], penalties=[0.1], **QUICK)
    assert small.best == 0 and small.scores[0] == 1


def test_bad_sweeps_are_refused():
    with pytest.raises(vt.SettingsError, match="asked for by k, not by penalty"):
        sweep(noise(100, 4), "topk", penalties=[0.1], **QUICK)
    with pytest.raises(vt.SettingsError, match="at least one candidate"):
        sweep(noise(100, 4), "topk", learning_rates=[], **QUICK)


# -- files


def foreign(folder, **fields):
    """A folder as SAELens writes it."""
    cfg = {"architecture": "topk", "d_in": 4, "d_sae": 6, "k": 2, "dtype": "float32", "device": "cpu"}
    cfg |= {"apply_b_dec_to_input": True, "normalize_activations": "none", "reshape_activations": "none"}
    cfg |= {"metadata": {"sae_lens_version": "6"}, **fields}
    folder.mkdir()
    (folder / "cfg.json").write_text(json.dumps(cfg))
    weights = {"W_enc": noise(4, 6), "b_enc": noise(6), "W_dec": noise(6, 4), "b_dec": noise(4)}
    save_file(weights, folder / "sae_weights.safetensors")
    return weights


def test_dictionaries_of_others_are_read(tmp_path):
    w = foreign(tmp_path / "a")
    d = vt.Dictionary.load(tmp_path / "a")
    x = noise(5, 4, seed=3)
    expected = keep_largest((x - w["b_dec"]) @ w["W_enc"] + w["b_enc"], 2) @ w["W_dec"] + w["b_dec"]
    torch.testing.assert_close(d.reconstruct(x), expected)
    assert d.config.kind == "topk" and d.config.training == {}
    w = foreign(tmp_path / "b", architecture="standard", apply_b_dec_to_input=False)
    found = vt.Dictionary.load(tmp_path / "b").encode(x)
    torch.testing.assert_close(found, (x @ w["W_enc"] + w["b_enc"]).relu())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"architecture": "gated"}, "architecture 'gated' is none of"),
        ({"normalize_activations": "layer_norm"}, "in a way that is not supported"),
        ({"rescale_acts_by_decoder_norm": True}, "in a way that is not supported"),
        ({"d_sae": 7}, "weights do not fit"),
        ({"architecture": "jumprelu"}, "weights do not fit"),
        ({"k": 9}, "k is between 1 and the number of units"),
    ],
)
def test_dictionaries_that_we_cannot_run_are_refused(tmp_path, fields, message):
    foreign(tmp_path / "a", **fields)
    with pytest.raises(vt.StoreError, match=message):
        vt.Dictionary.load(tmp_path / "a")


def test_wrong_files_are_refused(tmp_path):
    with pytest.raises(vt.StoreError, match=r"no dictionary here.*cfg.json[\s\S]*accepted: a folder with cfg.json"):
        vt.Dictionary.load(tmp_path)
    foreign(tmp_path / "a")
    (tmp_path / "a" / "sae_weights.safetensors").write_bytes(b"no such thing")
    with pytest.raises(vt.StoreError, match="not a dictionary that we can read"):
        vt.Dictionary.load(tmp_path / "a")
    (tmp_path / "a" / "cfg.json").write_text("[]")
    with pytest.raises(vt.StoreError, match="not a dictionary that we can read"):
        vt.Dictionary.load(tmp_path / "a")
    (tmp_path / "a" / "cfg.json").write_text("{")
    with pytest.raises(vt.StoreError, match="not a dictionary that we can read"):
        vt.Dictionary.load(tmp_path / "a")
    with pytest.raises(vt.StoreError, match="no dictionary here"):
        vt.Dictionary.load(tmp_path / "a" / "cfg.json")
    weights = foreign(tmp_path / "b")
    save_file(weights | {"b_dec": torch.full((4,), torch.nan)}, tmp_path / "b" / "sae_weights.safetensors")
    with pytest.raises(vt.StoreError, match="are not finite"):
        vt.Dictionary.load(tmp_path / "b")


# -- bad input


def test_activations_that_are_not_finite_are_refused_with_their_row():
    x = noise(100, 4)
    x[37, 2] = torch.nan
    with pytest.raises(vt.SettingsError, match="activations are not finite in row 37"):
        vt.train_dictionary(x, k=2, **QUICK)
    with pytest.raises(vt.SettingsError, match="targets are not finite in row 37"):
        vt.train_dictionary(noise(100, 4), "transcoder", targets=x, **QUICK)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "top_k"}, r"no dictionary of kind 'top_k'[\s\S]*nearest:  topk"),
        ({"batch_size": 101}, "100 rows do not fill one batch of 101"),
        ({"expansion": 0.5}, "expansion is 1 or more"),
        ({"k": 9}, "k is between 1 and the number of units, 8"),
        ({"k": 0}, r"k is a whole number[\s\S]*from 1 on"),
        ({"k": 2.5}, "k is a whole number"),
        ({"k": True}, "k is a whole number"),
        ({"epochs": 0}, r"epochs is a whole number[\s\S]*from 1 on"),
        ({"epochs": 1.5}, "epochs is a whole number"),
        ({"batch_size": "64"}, "batch_size is a whole number"),
        ({"expansion": float("inf")}, "expansion is a number"),
        ({"expansion": "2"}, "expansion is a number"),
        ({"seed": None}, "seed is a whole number"),
        ({"learning_rate": 0}, r"learning_rate is a number[\s\S]*above 0"),
        ({"learning_rate": "fast"}, "learning_rate is a number"),
        ({"dead_weight": -1}, r"dead_weight is a number[\s\S]*from 0 on"),
        ({"device": "gpu"}, "no such device"),
        ({"auxiliary": -1}, "auxiliary is a number"),
        ({"patience": 1.5}, "patience is a whole number"),
        ({"penalty": 0.1}, "asked for by k, not by penalty"),
        ({"kind": "vanilla", "k": 2}, "asked for by penalty, not by k"),
        ({"kind": "vanilla", "k": None, "penalty": -1}, "penalty is a number"),
        ({"kind": "vanilla", "k": None, "penalty": "much"}, "penalty is a number"),
        ({"kind": "archetypal", "delta": float("nan")}, "delta is a number"),
        ({"bandwidth": 0.1}, "has no option 'bandwidth'"),
        ({"kind": "jumprelu", "k": None, "bandwidth": 0}, "bandwidth and threshold are above 0"),
        ({"kind": "matryoshka", "shares": (0.5, 0.25)}, "shares grow from above 0 to 1"),
        ({"kind": "archetypal", "candidates": 0}, "candidates are 1 or more"),
        ({"kind": "transcoder", "k": None}, "a transcoder, and nothing else, has targets"),
        ({"targets": noise(100, 4)}, "a transcoder, and nothing else, has targets"),
        ({"kind": "transcoder", "k": None, "targets": noise(99, 4)}, "have the same rows"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(vt.SettingsError, match=message):
        vt.train_dictionary(noise(100, 4), **{**QUICK, "k": 2, **settings})


def test_numbers_of_numpy_are_numbers(tmp_path):
    """They were refused at the very end, when the dictionary was made."""
    x = noise(100, 4)
    asked = {"k": 2, "epochs": 1, "batch_size": 20, "expansion": 2, "seed": 3, "learning_rate": 0.5}
    given = {name: np.float64(value) if name == "learning_rate" else np.int64(value) for name, value in asked.items()}
    plain, found = (vt.train_dictionary(x, progress=False, **one) for one in (asked, given))
    assert found.config == plain.config and type(found.config.k) is int
    found.save(tmp_path)
    for name, weight in plain.weights.items():
        assert torch.equal(vt.Dictionary.load(tmp_path).weights[name], weight)


def test_activations_that_are_no_rows_are_refused():
    with pytest.raises(vt.SettingsError, match=r"an array, a tensor or a site of a store[\s\S]*list"):
        vt.train_dictionary(noise(100, 4).tolist(), k=2, **QUICK)
    with pytest.raises(vt.SettingsError, match=r"are \(row, channel\)"):
        vt.train_dictionary(noise(100), k=2, **QUICK)
    with pytest.raises(vt.SettingsError, match="floating point"):
        vt.train_dictionary(np.ones((100, 4), int), k=2, **QUICK)
    with pytest.raises(vt.SettingsError, match="nothing to learn"):
        vt.train_dictionary(torch.ones(100, 4), k=2, **QUICK)
    with pytest.raises(vt.SettingsError, match="do not fill one batch"):
        vt.train_dictionary(torch.ones(0, 4), k=2, **QUICK)


def test_training_that_runs_away_is_said_and_not_returned():
    x = noise(100, 4)
    with pytest.raises(vt.SettingsError, match=r"training ended in NaN[\s\S]*lower the learning rate"):
        vt.train_dictionary(x, "vanilla", penalty=1e38, learning_rate=1e30, **QUICK)


def test_codes_and_inputs_of_another_width_are_refused():
    d = vt.train_dictionary(noise(100, 4), k=2, **QUICK)
    with pytest.raises(vt.SettingsError, match=r"takes \(..., input\)[\s\S]*accepted: \(..., 4\)"):
        d.encode(noise(3, 5))
    with pytest.raises(vt.SettingsError, match=r"takes \(..., unit\)[\s\S]*accepted: \(..., 8\)"):
        d.decode(noise(3, 5))
    with pytest.raises(vt.SettingsError, match="the same rows"):
        quality(d, noise(10, 4), noise(9, 4))
