"""Grouped ranks and their near components on a torch device: the route of training, where the features already lie.

The same answers as `ranks.py` and `near_pairs.py`. What is near is seen from one product of whole numbers: for
differences d of bins, |d| <= d² <= (bins - 1) |d|, so the squared distance says of most pairs that they are joined, or
that they cannot be. Only pairs in between are added up, and only while they are not yet in one component.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

PAIRS = 16_384  # pairs that are added up before the components are looked at again
UNITS = 64  # a product of whole numbers wants sides that eight divides, and not too small ones


def rank_bins(features: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    """(sample, unit) -> uint8 (unit, sample), and bool (unit,): whether a unit is finite and not constant.

    Ranks are ordinal, ties by sample; a bin is floor(rank * bins / samples).
    """
    samples, units = features.shape
    # turned over in the same pass in which -0 becomes 0: equal numbers, equal bits
    columns = torch.add(features.t(), 0, out=features.new_empty(units, samples))
    values, order = columns.sort(dim=1, stable=True)  # what is not a number comes last
    least, most = values[:, 0], values[:, -1]
    binned = (torch.arange(samples, device=features.device) * bins // samples).to(torch.uint8)
    rows = torch.empty_like(columns, dtype=torch.uint8).scatter_(1, order, binned.expand_as(order))
    return rows, torch.isfinite(least) & torch.isfinite(most) & (least != most)


def near_components(rows: Tensor, limit: float, bins: int, usable: Tensor, *, fused: bool | None = None) -> Tensor:
    """uint8 (unit, sample) below `bins` -> int64 (unit,): the smallest unit of each unit's component.

    Units that are not `usable` (unit,) stay alone. `fused` does the rest in one kernel, so that the host never waits;
    it is the default where the rows lie on a GPU and Triton can compile for it.
    """
    squared = squared_distances(rows, bins)
    allowed = usable[:, None] & usable[None, :]
    if rows.is_cuda and find_spec("triton") is not None if fused is None else fused:
        from vitreous.kernels.triton_pairs import join

        return join(rows, squared.masked_fill_(~allowed, 2**31 - 1), limit, bins)
    near = (squared < limit) & allowed
    root = components(near, torch.arange(len(rows), device=rows.device))
    open_ = torch.triu(squared < (bins - 1) * limit, 1) & allowed & (root[:, None] != root[None, :])
    pairs = open_.nonzero()
    if len(pairs) > PAIRS:  # the nearest first: they join components and settle the others
        pairs = pairs[squared[pairs[:, 0], pairs[:, 1]].argsort()]
    while len(pairs):
        some, pairs = pairs[:PAIRS], pairs[PAIRS:]
        joined = some[distances(rows, some) < limit]
        near[joined[:, 0], joined[:, 1]] = True
        near[joined[:, 1], joined[:, 0]] = True
        root = components(near, root)
        pairs = pairs[root[pairs[:, 0]] != root[pairs[:, 1]]]
    return root


def float_components(columns: Tensor, limit: float, usable: Tensor, block: int = 256) -> Tensor:
    """(unit, sample) of any numbers -> int64 (unit,). Fills the matrix of distances, a block of rows at a time."""
    near = torch.cat([torch.cdist(rows[None], columns[None], p=1)[0] < limit for rows in columns.split(block)])
    near &= usable[:, None] & usable[None, :]
    return components(near, torch.arange(len(columns), device=columns.device))


def most_samples(bins: int) -> int:
    """Whose squared distance fits 32 bits."""
    return (2**31 - 1) // (bins - 1) ** 2


def squared_distances(rows: Tensor, bins: int) -> Tensor:
    """uint8 (unit, sample) -> int32 (unit, unit), exact."""
    units, samples = rows.shape
    if samples > (most := most_samples(bins)):
        raise ValueError(f"{samples} samples of {bins} bins do not fit 32 bits: at most {most}")
    shape = -(-units // UNITS) * UNITS, -(-samples // 8) * 8
    padded = rows.new_empty(shape) if shape == rows.shape else rows.new_zeros(shape)
    torch.sub(rows, bins // 2, out=padded[:units, :samples])  # wraps around, and is right again when read with a sign
    signed = padded.view(torch.int8)
    products = torch._int_mm(signed, signed.t())[:units, :units]
    lengths = products.diagonal()
    return (lengths[:, None] + lengths[None, :]).sub_(products, alpha=2)


def components(near: Tensor, root: Tensor) -> Tensor:
    """bool (unit, unit), symmetric -> int64 (unit,): smallest unit of each component. `root`: what is known so far."""
    far = torch.full_like(root, len(root))
    while True:
        before = root
        for _ in range(3):  # a look at the result waits for the device, so not after every step
            least = torch.minimum(root, torch.where(near, root[None, :], far[None, :]).amin(1))
            # what a unit learns, its component's name learns too; then names follow names
            root = root.scatter_reduce(0, root, least, "amin")
            root = torch.minimum(root[root], least)
            root = root[root]
        if torch.equal(before, root):
            return root


def distances(rows: Tensor, pairs: Tensor) -> Tensor:
    """L1 distances of pairs (pair, 2) of rows."""
    parts = [
        (rows[some[:, 0]].to(torch.int16) - rows[some[:, 1]].to(torch.int16)).abs().sum(1) for some in pairs.split(1024)
    ]
    return torch.cat(parts) if parts else pairs.new_zeros(0)
