"""Products of matrices by the library of the CPU that is faster: the same numbers as `@`."""

from __future__ import annotations

import pytest
import torch

from vitreous.kernels import products
from vitreous.kernels.products import fits_onednn, product

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this PyTorch has no oneDNN")


def pair(rows, inner, columns, dtype=torch.float32):
    generator = torch.Generator().manual_seed(rows)
    a, b = (torch.randn(*shape, generator=generator, dtype=dtype) for shape in ((rows, inner), (inner, columns)))
    return a, b


@needs_onednn
@pytest.mark.parametrize("layout", ["plain", "transposed matrix", "transposed rows", "every other column"])
def test_large_products_agree_with_double_precision(layout, monkeypatch):
    a, b = pair(130, 96, 70)
    monkeypatch.setattr(products, "LARGE", 0)
    a = a.mT.contiguous().mT if layout == "transposed rows" else a
    b = b.mT.contiguous().mT if layout == "transposed matrix" else b
    b = b[:, ::2] if layout == "every other column" else b
    assert fits_onednn(a, b)
    exact = a.double() @ b.double()
    assert (product(a, b) - exact).abs().max() < 2e-6 * exact.abs().max()


@needs_onednn
def test_weights_that_are_trained_elsewhere_may_be_factors(monkeypatch):
    monkeypatch.setattr(products, "LARGE", 0)
    layer = torch.nn.Linear(96, 130)
    a, _ = pair(40, 130, 1)
    with torch.no_grad():
        torch.testing.assert_close(product(a, layer.weight), a @ layer.weight)


def test_only_large_products_of_single_precision_on_a_cpu_go_there():
    a, b = pair(8, 16, 4)
    assert not fits_onednn(a, b) and torch.equal(product(a, b), a @ b)
    large = torch.empty(1024, 1024)
    assert fits_onednn(large, large) == torch.backends.mkldnn.is_available()
    assert not fits_onednn(large.double(), large.double())
    assert not fits_onednn(large.bfloat16(), large.bfloat16())
    assert not fits_onednn(large.to("meta"), large.to("meta"))
