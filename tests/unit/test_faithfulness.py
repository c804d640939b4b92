"""R², largest difference, accuracy through heads and probes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitreous as vt
from vitreous.evidence.faithfulness import accuracy, faithfulness, fit_ridge_probe, head_accuracy


def data(rows: int = 200, channels: int = 6, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(rows, channels)) * np.arange(1, channels + 1) + 10 * np.arange(channels)).astype(
        np.float32
    )


def test_the_same_bits_score_exactly_one():
    x = data()
    found = faithfulness([(x, x.copy())])
    assert (found.r2, found.max_difference, found.mse, found.rows) == (1.0, 0.0, 0.0, 200)


def test_it_is_the_formula_in_any_number_of_batches():
    x = data()
    x_hat = x + np.random.default_rng(1).normal(size=x.shape).astype(np.float32)
    error, wide = ((x - x_hat).astype(np.float64) ** 2).sum(), x.astype(np.float64)
    expected = 1 - error / ((wide - wide.mean(0)) ** 2).sum()
    for size in (1, 7, 200):
        parts = [(x[i : i + size], torch.tensor(x_hat[i : i + size])) for i in range(0, 200, size)]
        found = faithfulness(parts)
        assert found.r2 == pytest.approx(expected, rel=1e-6)
        assert found.max_difference == pytest.approx(np.abs(x - x_hat).max(), rel=1e-6)
        assert found.mse == pytest.approx(error / x.size, rel=1e-6)
        one_mean = faithfulness(parts, centre="all").r2
        assert one_mean == pytest.approx(1 - error / ((wide - wide.mean()) ** 2).sum(), rel=1e-6)
        assert one_mean > found.r2


def test_predicting_the_mean_scores_zero_and_worse_is_negative():
    x = data() + 1e4  # the mean is far from 0: sums of squares must not lose their digits
    mean = np.broadcast_to(x.mean(0, dtype=np.float64), x.shape)
    assert faithfulness([(x, mean)]).r2 == pytest.approx(0, abs=1e-9)
    assert faithfulness([(x, np.zeros_like(x))]).r2 < -100


def test_tokens_are_rows_and_constant_layers_are_defined():
    x = data(60).reshape(10, 6, 6)
    assert faithfulness([(x, x)]).rows == 60
    ones = np.ones((4, 2), np.float32)
    assert faithfulness([(ones, ones)]).r2 == 1
    assert faithfulness([(ones, 0 * ones)]).r2 == -np.inf


def test_accuracy_of_numbers_logits_and_heads():
    labels = np.array([0, 1, 2, 1])
    logits = np.eye(3)[labels]
    assert accuracy(labels, labels) == accuracy(torch.tensor(logits), labels) == 1
    assert accuracy(logits, [0, 1, 2, 2]) == 0.75
    head = torch.nn.Linear(3, 3)
    with torch.no_grad():
        head.weight.copy_(torch.eye(3))
        head.bias.zero_()
    assert head_accuracy(head, torch.tensor(logits).float().split(3), labels) == 1


def test_a_probe_finds_classes_that_are_there_and_only_those():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 400) * 10
    centres = rng.normal(size=(4, 12)) * 3
    x = centres[labels // 10] + rng.normal(size=(400, 12))
    probe = fit_ridge_probe(x[:200], labels[:200])
    assert accuracy(probe.predict(x[200:]), labels[200:]) > 0.95
    again = fit_ridge_probe(torch.tensor(x[:200]), labels[:200])
    np.testing.assert_array_equal(probe.weight, again.weight)
    noise = rng.normal(size=(400, 12))
    assert accuracy(fit_ridge_probe(noise[:200], labels[:200]).predict(noise[200:]), labels[200:]) < 0.45


def test_a_probe_does_not_care_for_scale():
    x, labels = data(100), np.arange(100) % 3
    small = fit_ridge_probe(x, labels).predict(x)
    np.testing.assert_array_equal(small, fit_ridge_probe(1e-3 * x, labels).predict(1e-3 * x))


def test_a_probe_is_ridge_regression():
    from sklearn.linear_model import Ridge

    x, labels = data(80).astype(np.float64), np.arange(80) % 3
    probe = fit_ridge_probe(x, labels, ridge=0.1)
    penalty = 0.1 * x.var(0).mean() * len(x)
    theirs = Ridge(alpha=penalty).fit(x, np.eye(3)[labels])
    np.testing.assert_allclose(probe.weight, theirs.coef_.T, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(probe.bias, theirs.intercept_, rtol=1e-6, atol=1e-9)


def test_bad_input_is_refused():
    x = data()
    broken = x.copy()
    broken[3, 2] = np.nan
    with pytest.raises(vt.SettingsError, match="no such centre"):
        faithfulness([(x, x)], centre="token")
    with pytest.raises(vt.SettingsError, match="nothing to compare"):
        faithfulness([])
    with pytest.raises(vt.SettingsError, match="shape of the originals"):
        faithfulness([(x, x[:, :3])])
    with pytest.raises(vt.SettingsError, match="shape of the originals"):
        faithfulness([(x, x), (x[:, :3], x[:, :3])])
    with pytest.raises(vt.SettingsError, match="are finite"):
        faithfulness([(x, broken)])
    with pytest.raises(vt.SettingsError, match=r"are \(..., channel\)"):
        faithfulness([(x[0], x[0])])
    with pytest.raises(vt.SettingsError, match="one prediction and one label"):
        accuracy([0, 1], [0])
    with pytest.raises(vt.SettingsError, match="at least two classes"):
        fit_ridge_probe(x, np.zeros(200, int))
    with pytest.raises(vt.SettingsError, match="features are finite"):
        fit_ridge_probe(broken, np.arange(200) % 2)
    with pytest.raises(vt.SettingsError, match="ridge is above 0"):
        fit_ridge_probe(x, np.arange(200) % 2, ridge=0)
    with pytest.raises(vt.SettingsError, match="one label each"):
        fit_ridge_probe(x, np.arange(3))
    with pytest.raises(vt.SettingsError, match="a probe takes features"):
        fit_ridge_probe(x, np.arange(200) % 2).predict(x[:, :2])
