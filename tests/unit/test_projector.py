"""The projector's gradient against finite differences, and where eigenvalues repeat."""

from __future__ import annotations

import pytest
import torch

from vitreous.kernels.projector import affinities, normalized, top_projector


def symmetric(values, seed=0):
    turn, _ = torch.linalg.qr(
        torch.randn(len(values), len(values), generator=torch.Generator().manual_seed(seed)).double()
    )
    return turn @ torch.diag(torch.tensor(values, dtype=torch.float64)) @ turn.T


def test_it_projects():
    projector = top_projector(symmetric([1, 2, 3, 4, 5.0]), 2)
    torch.testing.assert_close(projector @ projector, projector)
    assert float(projector.trace()) == pytest.approx(2)


def numeric(matrix, kept, weights, step=1e-6):
    """Finite differences over symmetric changes."""
    found = torch.zeros_like(matrix)
    for i in range(len(matrix)):
        for j in range(len(matrix)):
            change = torch.zeros_like(matrix)
            change[i, j] += step / 2
            change[j, i] += step / 2
            up, down = (top_projector(matrix + s * change, kept) for s in (1, -1))
            found[i, j] = ((up - down) * weights).sum() / (2 * step)
    return found


@pytest.mark.parametrize("values", [[1, 2, 3, 4, 5, 6.0], [1, 1, 1, 4, 4, 4.0], [0, 0, 1, 5, 5, 5.0]])
def test_the_gradient_is_that_of_finite_differences_also_where_eigenvalues_repeat(values):
    matrix = symmetric(values).requires_grad_()
    weights = torch.randn(6, 6, generator=torch.Generator().manual_seed(1)).double()
    (top_projector(matrix, 3) * weights).sum().backward()
    torch.testing.assert_close(matrix.grad, numeric(matrix.detach(), 3, weights), atol=1e-6, rtol=1e-5)


def test_a_cut_through_a_repeated_eigenvalue_has_a_finite_gradient():
    matrix = symmetric([1, 2, 3, 3, 3, 4.0]).requires_grad_()
    (top_projector(matrix, 3) * torch.rand(6, 6).double()).sum().backward()
    assert torch.isfinite(matrix.grad).all()


def test_batches_are_done_one_by_one():
    rows = torch.randn(3, 8, 5, generator=torch.Generator().manual_seed(0)).double()
    together = top_projector(normalized(affinities(rows)), 2)
    for n in range(3):
        torch.testing.assert_close(together[n], top_projector(normalized(affinities(rows[n])), 2))
    with pytest.raises(ValueError, match="8 eigenvectors of 8"):
        top_projector(normalized(affinities(rows)), 8)
