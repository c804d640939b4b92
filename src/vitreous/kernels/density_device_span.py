"""Nearest points and a minimum spanning tree of mutual reachability on a torch device.

The same answers as `density_pairs` and `density_span`: d^2 = 2 (half_a + half_b - a.b), where the coordinates may be a
projection and the norms the true ones, and edges as long as max(core_a, core_b, d). All lengths in here are squared.
No matrix of all pairs is held: a product of a few thousand rows is made again where it is needed, which costs less than
to keep it.

Who climbs to whom does not depend on the order of equally near points, and what a tree of equally long edges looks like
does not matter (`density_tree`): the same points give the same clusters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vitreous.kernels.density_span import SAME, unite

PAIRS = 1 << 27  # products in memory at a time
GROUP = 32  # columns that are looked at together
FAR = torch.iinfo(torch.int64).max


class DeviceCloud(NamedTuple):
    """Points by coordinates float32 (point, dim) and half the squared norms (point,)."""

    coordinates: Tensor
    half: Tensor

    def take(self, rows: Tensor) -> DeviceCloud:
        return DeviceCloud(self.coordinates[rows], self.half[rows])


class Near(NamedTuple):
    """The k nearest points of every row, in no order: ids int64 and squared distances (row, k), the largest (row,)."""

    ids: Tensor
    squares: Tensor
    radius: Tensor


def nearest(rows: DeviceCloud, columns: DeviceCloud, k: int, own: bool = False) -> Near:
    """The k nearest `columns` of every row. `own`: the two are the same points, and none is its own neighbour."""
    count = len(rows.half)
    ids = torch.empty(count, k, dtype=torch.int64, device=rows.half.device)
    squares = rows.half.new_empty(count, k)
    if not k:
        return Near(ids, squares, rows.half.new_zeros(count))
    for piece, nearness in _nearness(rows, columns):
        if own:
            nearness.diagonal(piece.start).fill_(-torch.inf)
        values, ids[piece] = largest(nearness, k)
        squares[piece] = (2 * (rows.half[piece, None] - values)).clamp_min_(0)
    return Near(ids, squares, squares.amax(1))


def largest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row (row, column), in no order, and their columns, (row, k).

    They lie in the k groups of columns with the largest maxima. A selection looks at what it chooses from a dozen times
    over, so that it pays to look at all of it once and then only at these groups.
    """
    rows, columns = values.shape
    groups = columns // GROUP
    if groups <= 2 * k or columns % GROUP:
        return values.topk(k, dim=1, sorted=False)
    grouped = values.view(rows, groups, GROUP)
    best = grouped.amax(2).topk(k, dim=1, sorted=False).indices
    candidates = grouped.gather(1, best[:, :, None].expand(-1, -1, GROUP)).flatten(1)
    top = candidates.topk(k, dim=1, sorted=False)
    return top.values, best.gather(1, top.indices // GROUP) * GROUP + top.indices % GROUP


def spanning_tree(cloud: DeviceCloud, min_samples: int) -> tuple[np.ndarray, np.ndarray, Tensor]:
    """Edges (point - 1, 2) and their squared lengths (point - 1,) in float64 on the host, squared core distances
    (point,) on the device. A point counts as one of its `min_samples`."""
    near = nearest(cloud, cloud, min_samples - 1, own=True)
    core = near.radius
    upward, peak = _climb(near.ids, core)
    points = (upward >= 0).nonzero()[:, 0]
    edges = [torch.stack([points, upward[points]], 1).cpu().numpy()]
    lengths = [core[points].cpu().numpy()]
    component = peak.unique(return_inverse=True)[1]
    while (count := int(component.max()) + 1) > 1:
        more, longer, component = _boruvka(cloud, core, component, count)
        edges.append(more)
        lengths.append(longer)
    joined, squares = np.concatenate(edges), np.concatenate(lengths).astype(np.float64)
    half = cloud.half.cpu().numpy()
    squares[squares < SAME[half.dtype] * half[joined].sum(1)] = 0
    return joined, squares, core


def _nearness(rows: DeviceCloud, columns: DeviceCloud) -> Iterator[tuple[slice, Tensor]]:
    """a.b - half_b of some rows and all columns at a time, in one buffer: the larger the nearer.

    Columns are filled up to whole groups with points that are infinitely far.
    """
    more = -len(columns.half) % GROUP
    far = torch.nn.functional.pad(-columns.half, (0, more), value=-torch.inf)
    across = torch.nn.functional.pad(columns.coordinates, (0, 0, 0, more)).T
    step = max(1, min(len(rows.half), PAIRS // len(far)))
    buffer = rows.half.new_empty(step, len(far))
    for start in range(0, len(rows.half), step):
        piece = slice(start, min(start + step, len(rows.half)))
        yield piece, torch.addmm(far, rows.coordinates[piece], across, out=buffer[: piece.stop - start])


def _climb(ids: Tensor, core: Tensor) -> tuple[Tensor, Tensor]:
    """A denser neighbour of every point, -1 at a peak, and the peak it leads to, (point,).

    No edge of a point is shorter than its core distance, and one to a denser neighbour is just as long: these edges
    belong to a minimum spanning tree, and make no circle.
    """
    here = torch.arange(len(core), device=core.device)
    theirs = core[ids]
    denser = (theirs < core[:, None]) | ((theirs == core[:, None]) & (ids < here[:, None]))
    upward = torch.where(denser, ids, FAR).amin(1) if ids.shape[1] else torch.full_like(here, FAR)
    upward = torch.where(upward == FAR, -1, upward)
    peak = torch.where(upward < 0, here, upward)
    for _ in range(math.ceil(math.log2(max(len(core), 2)))):
        peak = peak[peak]
    return upward, peak


def _boruvka(cloud: DeviceCloud, core: Tensor, component: Tensor, count: int) -> tuple[np.ndarray, np.ndarray, Tensor]:
    """Joins every component by its shortest edge to another: edges, lengths, and the components after it.

    Of equally long edges the one of the smallest points is taken, so that components agree. Products are rounded one
    way from one end and another from the other, so that a circle is possible still: the host leaves out what closes it.
    """
    lengths, ends = _closest_outside(cloud, core, component)
    shortest = torch.full((count,), torch.inf, device=core.device).scatter_reduce(0, component, lengths, "amin")
    here = torch.arange(len(core), device=core.device)
    edge = torch.minimum(here, ends) * len(core) + torch.maximum(here, ends)
    edge = torch.where(lengths == shortest[component], edge, FAR)
    chosen = torch.full((count,), FAR, device=core.device).scatter_reduce(0, component, edge, "amin").cpu().numpy()
    length, names = shortest.cpu().numpy(), component.cpu().numpy()
    order = np.argsort(length, kind="stable")
    ab = np.stack(np.divmod(chosen[order], len(core)), 1)
    taken, name = unite(names[ab[:, 0]], names[ab[:, 1]], count)
    numbers = torch.from_numpy(np.unique(name, return_inverse=True)[1]).to(core.device)
    return ab[taken], length[order][taken], numbers[component]


def _closest_outside(cloud: DeviceCloud, core: Tensor, component: Tensor) -> tuple[Tensor, Tensor]:
    """The shortest edge of every point to another component: its length and its other end, (point,)."""
    lengths, ends = torch.empty_like(core), torch.empty_like(component)
    for piece, nearness in _nearness(cloud, cloud):
        nearness = nearness[:, : len(core)]
        reach = torch.sub(cloud.half[piece, None], nearness, out=nearness).mul_(2)
        torch.maximum(reach, core, out=reach)
        reach.masked_fill_(component[piece, None] == component, torch.inf)
        found = reach.min(1)
        lengths[piece], ends[piece] = torch.maximum(found.values, core[piece]), found.indices
    return lengths, ends
