"""The many small classifiers against one plain solution each, and against leaving examples out for real."""

from __future__ import annotations

import numpy as np
import torch

from vitreous.kernels.dual_ridge import fit_dual_ridge


def plain(X: np.ndarray, y: np.ndarray, penalty: float) -> tuple[np.ndarray, float]:
    """Least squares with a penalty on all weights but the intercept, straight from the normal equations."""
    with_one = np.hstack([X, np.ones((len(X), 1))])
    penalties = penalty * np.eye(X.shape[1] + 1)
    penalties[-1, -1] = 0
    found = np.linalg.solve(with_one.T @ with_one + penalties, with_one.T @ y)
    return found[:-1], found[-1]


def problem(fits: int = 4, n: int = 9, features: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(fits, n, features)) + 2, np.where(np.arange(n) < 4, 1.0, -1.0)


def test_weights_are_those_of_the_normal_equations():
    X, y = problem()
    K = torch.as_tensor(X @ X.transpose(0, 2, 1))
    a, _ = fit_dual_ridge(K, torch.as_tensor(y), 0.3)
    for x, found in zip(X, a.numpy(), strict=True):
        penalty = 0.3 * np.square(x - x.mean(0)).sum(1).mean()
        np.testing.assert_allclose(x.T @ found, plain(x, y, penalty)[0], rtol=1e-8)


def test_predictions_left_out_are_those_of_fits_without_the_example():
    X, y = problem()
    K = torch.as_tensor(X @ X.transpose(0, 2, 1))
    _, left_out = fit_dual_ridge(K, torch.as_tensor(y), 0.3)
    for x, found in zip(X, left_out.numpy(), strict=True):
        penalty = 0.3 * np.square(x - x.mean(0)).sum(1).mean()
        for i in range(len(x)):
            rest = np.arange(len(x)) != i
            w, b = plain(x[rest], y[rest], penalty)
            np.testing.assert_allclose(found[i], x[i] @ w + b, rtol=1e-7)


def test_scale_and_place_do_not_matter():
    X, y = problem()
    a, out = fit_dual_ridge(torch.as_tensor(X @ X.transpose(0, 2, 1)), torch.as_tensor(y), 0.3)
    moved = 100 * X + 7
    b, same = fit_dual_ridge(torch.as_tensor(moved @ moved.transpose(0, 2, 1)), torch.as_tensor(y), 0.3)
    np.testing.assert_allclose(same, out, rtol=1e-5)
    np.testing.assert_allclose(b * 100**2, a, rtol=1e-5)


def test_examples_that_are_all_alike_give_no_direction():
    y = torch.tensor([1.0, 1, -1, -1]).double()
    for value in (0.0, 1.0, 1e8):
        a, _ = fit_dual_ridge(torch.full((1, 4, 4), value).double(), y, 1.0)
        assert a.isfinite().all() and abs(float(a.sum())) <= 1e-9 * float(a.abs().max())
