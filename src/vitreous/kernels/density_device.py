"""Density clusters of one unit's contributions where its inputs lie: the "auto" method of `density`, on a torch device.

The same steps on the same draws as `contribution_clusters`, so that the two differ by rounding only: the subspace of
most energy with the true norms kept beside it, a sample, its spanning tree, and every other instance as if it alone
were added. Nothing as large as the instances' inputs is held, only a few numbers an instance; what goes to the host is
the spanning tree of the sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vitreous.errors import SettingsError
from vitreous.kernels.density_device_span import PAIRS, DeviceCloud, nearest, spanning_tree
from vitreous.kernels.density_reduce import LEARN, ROUNDS, SPARE
from vitreous.kernels.density_rule import DIMS, SAMPLE, SMALL, Rule, checked_rule, drawn_sample
from vitreous.kernels.density_tree import NOISE, Flat, flat_clusters

CHUNK = 1 << 26  # inputs in memory at a time


@dataclass(frozen=True, eq=False)
class Instances:
    """A unit's instances: `take(positions)` gives float32 (position, input) on the device, positions from 0 on."""

    take: Callable[[Tensor], Tensor]
    count: int
    inputs: int
    device: torch.device

    def chunks(self) -> Iterator[tuple[slice, Tensor]]:
        """All instances in order, some at a time."""
        step = max(1, CHUNK // self.inputs)
        for start in range(0, self.count, step):
            piece = slice(start, min(start + step, self.count))
            yield piece, self.take(torch.arange(piece.start, piece.stop, device=self.device))


class DeviceClusters(NamedTuple):
    """`labels` int64 (instance,), -1 noise, numbered by first instance; `probabilities` float32 (instance,), 0 of
    noise; `lengths` (instance,): |weight * q|; `clusters` how many. `method` says what was done."""

    labels: Tensor
    probabilities: Tensor
    lengths: Tensor
    clusters: int
    method: str


def contribution_clusters_on_device(
    q: Instances,
    weight: Tensor,
    *,
    min_cluster_size: int,
    min_samples: int | None = None,
    selection: str = "leaf",
    dims: int = DIMS,
    sample: int = SAMPLE,
    seed: int = 0,
) -> DeviceClusters:
    """Clusters of what one unit's inputs add to it, weight * q normalised; weight float32 (input,) on the same device.

    Instances that add nothing are noise.
    """
    if weight.shape != (q.inputs,) or weight.dtype != torch.float32:
        raise SettingsError(
            "the weight of one unit is float32 (input,)", given=(str(weight.dtype), tuple(weight.shape))
        )
    rule = checked_rule(q.count, min_cluster_size, min_samples, selection, dims, sample)
    whole = q.count <= SMALL or q.inputs <= 2 * dims
    frame = None if whole else _subspace(q, weight, dims, np.random.default_rng(seed))
    cloud, lengths = _cloud(q, weight, frame)
    done = "full" if whole else f"pca {dims}"
    alive = lengths.nonzero()[:, 0]
    if len(alive) < 2 * min_cluster_size:  # one cluster alone is the root, which is no cluster
        nobody = torch.full((q.count,), NOISE, device=q.device)
        return DeviceClusters(nobody, torch.zeros_like(lengths), lengths, 0, done)
    cloud = cloud if len(alive) == q.count else cloud.take(alive)
    owner, probabilities, done = _clusters(cloud, rule, done, seed)
    labels, count = _numbered(owner)
    return DeviceClusters(
        torch.full((q.count,), NOISE, device=q.device).index_copy_(0, alive, labels),
        torch.zeros_like(lengths).index_copy_(0, alive, probabilities),
        lengths,
        count,
        done,
    )


# -- few coordinates for many (`density_reduce`)


def _subspace(q: Instances, weight: Tensor, dims: int, rng: np.random.Generator) -> Tensor:
    """Orthonormal directions of most energy of some contributions, (input, dims)."""
    some = np.sort(rng.choice(q.count, min(q.count, LEARN), replace=False))
    points = q.take(torch.from_numpy(some).to(q.device)) * weight
    lengths = _lengths(points)
    _refuse_non_finite(lengths, some)
    points /= torch.where(lengths > 0, lengths, 1)[:, None]
    trial = torch.from_numpy(rng.standard_normal((q.inputs, dims + SPARE), np.float32)).to(q.device)
    for _ in range(ROUNDS):
        trial = torch.linalg.qr(points.T @ (points @ trial)).Q
    inner = points @ trial
    turn = torch.linalg.eigh(inner.T @ inner).eigenvectors  # least energy first
    return trial @ turn[:, -dims:].flip(1)


def _cloud(q: Instances, weight: Tensor, frame: Tensor | None) -> tuple[DeviceCloud, Tensor]:
    """Contributions of length 1 by their coordinates in `frame`, or all of them, and what their lengths were."""
    coordinates = weight.new_empty(q.count, q.inputs if frame is None else frame.shape[1])
    lengths = weight.new_empty(q.count)
    for piece, rows in q.chunks():
        rows = rows * weight
        lengths[piece] = _lengths(rows)
        if frame is None:
            coordinates[piece] = rows
        else:
            torch.matmul(rows, frame, out=coordinates[piece])
    _refuse_non_finite(lengths)
    coordinates /= torch.where(lengths > 0, lengths, 1)[:, None]
    if frame is None:
        return DeviceCloud(coordinates, coordinates.square().sum(1) / 2), lengths
    return DeviceCloud(coordinates, (lengths > 0) / 2.0), lengths


def _lengths(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows, dim=1)


def _refuse_non_finite(lengths: Tensor, rows: np.ndarray | None = None) -> None:
    if bool(torch.isfinite(lengths).all()):
        return
    bad = int((~torch.isfinite(lengths)).nonzero()[0, 0])
    raise SettingsError(
        f"NaN or infinite value in row {bad if rows is None else rows[bad]}: it has no distance to anything",
        remedy="find where the model overflows, or leave these rows out",
    )


# -- clusters (`density`)


class _Members(NamedTuple):
    """What newcomers need to know of the sample: `core` and `owner` (point,), and (point,) of its cluster the squared
    lengths where it split off and where its last point left."""

    core: Tensor
    owner: Tensor
    birth: Tensor
    death: Tensor


def _clusters(cloud: DeviceCloud, rule: Rule, done: str, seed: int) -> tuple[Tensor, Tensor, str]:
    """The cluster of every point, not yet numbered, its membership, and what was done."""
    device, count = cloud.half.device, len(cloud.half)
    drawn = drawn_sample(count, rule, seed)
    if drawn is None:
        flat, _ = _flat(cloud, rule)
        return torch.from_numpy(flat.owner).to(device), torch.from_numpy(flat.probabilities).to(device), done
    chosen, scaled = torch.from_numpy(drawn[0]).to(device), drawn[1]
    sample = cloud.take(chosen)
    flat, core = _flat(sample, scaled)
    members = _members(flat, core)
    owner, probabilities = torch.empty(count, dtype=torch.int64, device=device), cloud.half.new_empty(count)
    rest = torch.ones(count, dtype=torch.bool, device=device).index_fill_(0, chosen, False).nonzero()[:, 0]
    for block in rest.split(max(1, PAIRS // len(chosen))):
        owner[block], probabilities[block] = _join(cloud.take(block), sample, members, scaled)
    owner[chosen] = members.owner
    probabilities[chosen] = torch.from_numpy(flat.probabilities).to(device)
    return owner, probabilities, f"{done}, {len(chosen)} of {count} points and the rest assigned"


def _flat(cloud: DeviceCloud, rule: Rule) -> tuple[Flat, Tensor]:
    edges, squares, core = spanning_tree(cloud, rule.min_samples)
    return flat_clusters(edges, np.sqrt(squares), rule.min_cluster_size, rule.selection), core


def _members(flat: Flat, core: Tensor) -> _Members:
    """Densities as squared lengths, which are what they were made from: a float32 comes back as the same float32."""
    with np.errstate(divide="ignore"):
        birth, death = (np.append(density, np.inf) ** -2.0 for density in (flat.birth, flat.death))
    birth[0] = 0  # nobody joins the root, nor noise, which reads the last place
    owner = torch.from_numpy(flat.owner).to(core.device)
    of_points = (torch.from_numpy(length[flat.owner].astype(np.float32)).to(core.device) for length in (birth, death))
    return _Members(core, owner, *of_points)


def _join(points: DeviceCloud, sample: DeviceCloud, members: _Members, rule: Rule) -> tuple[Tensor, Tensor]:
    """The cluster that each point would be in if it alone were added to the sample, and its membership.

    It joins a cluster through its shortest edge to a member, if that is shorter than where the cluster split off; of
    edges that are equally long through the one to the nearest point.
    """
    near = nearest(points, sample, max(rule.min_samples - 1, 1))
    own = near.radius if rule.min_samples > 1 else torch.zeros_like(near.radius)
    reach = torch.maximum(torch.maximum(near.squares, own[:, None]), members.core[near.ids])
    reach.masked_fill_(reach >= members.birth[near.ids], torch.inf)
    shortest = reach.amin(1)
    tied = reach == shortest[:, None]
    closest = torch.where(tied, near.squares, torch.inf).amin(1)
    tied &= near.squares == closest[:, None]
    member = torch.where(tied, near.ids, len(sample.half)).amin(1)
    share = torch.where(shortest > 0, (members.death[member] / shortest).sqrt().clamp_max(1), 1.0)
    joined = shortest < torch.inf
    return torch.where(joined, members.owner[member], NOISE), torch.where(joined, share, 0.0)


def _numbered(owner: Tensor) -> tuple[Tensor, int]:
    """Names in order of the first point, and how many there are."""
    names, place = owner.unique(return_inverse=True)
    here = torch.arange(len(owner), device=owner.device)
    first = torch.full_like(names, len(owner)).scatter_reduce(0, place, here, "amin")
    clusters = (names != NOISE).nonzero()[:, 0]
    number = torch.full_like(names, NOISE)
    number[clusters[first[clusters].argsort()]] = torch.arange(len(clusters), device=owner.device)
    return number[place], len(clusters)
