"""The parts of an alignment's training: what is read once, the losses of eq. 5 to 10, and one step.

Prediction averages over patches, and averaging commutes with linear maps: the response loss needs one mean vector a
picture and layer. Only the regularisers see single patches, and a few random ones of every picture serve them. So the
features are read once, and training needs neither the model nor the store.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from vitreous.kernels.projector import affinities, normalized, top_projector
from vitreous.lenses.align_nodes import Block, finite
from vitreous.progress import tqdm

READ = 64  # pictures read at a time
TEMPERATURE = 0.3  # of cosines, where patches are told from each other
SMALL = 0.1  # maps begin small: what they learn is shared by all slots, what they begin with is not


@dataclass(frozen=True, eq=False)
class Seen:
    """What is kept of the features, a list with an entry a slot (a layer of a model): `pooled` (picture, channel),
    the mean over patches, and `patches` (picture, kept, channel), some of them."""

    pooled: list[Tensor]
    patches: list[Tensor]

    def to(self, device: torch.device) -> Seen:
        return Seen([p.to(device) for p in self.pooled], [p.to(device) for p in self.patches])


def read_features(blocks: tuple[Block, ...], kept: int, seed: int, progress: bool) -> Seen:
    """The same random patches of a picture at every layer that has as many."""
    pooled, patches = [], []
    for block in tqdm(blocks, desc="features", unit="layer", disable=not progress, delay=1):
        samples, tokens = block.shape
        generator = np.random.default_rng(seed)
        places = generator.random((samples, tokens)).argsort(1)[:, :kept]
        means, some = [], []
        for start in range(0, samples, READ):
            part = finite(block.samples(slice(start, start + READ)), block, range(start, samples))
            means.append(part.mean(1))
            some.append(np.take_along_axis(part, places[start : start + READ, :, None], 1))
        pooled.append(torch.from_numpy(np.concatenate(means)))
        patches.append(torch.from_numpy(np.concatenate(some)))
    return Seen(pooled, patches)


class AlignNet(nn.Module):
    """W_i of every slot (channel, width), the head β (width, response) and its bias ε."""

    def __init__(self, channels: list[int], width: int, responses: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.maps = nn.ParameterList(
            nn.Parameter(torch.randn(d, width, generator=generator) * (SMALL / d**0.5)) for d in channels
        )
        self.head = nn.Parameter(torch.randn(width, responses, generator=generator) / width**0.5)
        self.bias = nn.Parameter(torch.zeros(responses))

    def forward(self, pooled: list[Tensor]) -> Tensor:
        """Eq. 1 and 2 from means over patches: (picture, channel) of every slot -> (picture, response)."""
        aligned = sum(p @ w for p, w in zip(pooled, self.maps, strict=True)) / len(self.maps)
        return aligned @ self.head + self.bias

    def alone(self, pooled: list[Tensor]) -> Tensor:
        """(slot, picture, response): what each slot predicts by itself, through the one head; their mean is eq. 2."""
        return torch.stack([p @ w for p, w in zip(pooled, self.maps, strict=True)]) @ self.head + self.bias


@dataclass(frozen=True)
class Weights:
    """Of eq. 10; `nodes` and `eigenvectors` are the m̃ and c of eq. 5. With `alone` every slot has to predict; `agree`
    is the weight of a term that the paper does not have."""

    eigen: float
    zero: float
    covariance: float
    nodes: int
    eigenvectors: int
    alone: bool = False
    agree: float = 0.0


def eigen_constraint(before: Tensor, after: Tensor, kept: int) -> Tensor:
    """Eq. 5 in the form of eq. 8, (slot, node, channel) twice: how far the cut of each slot's nodes has moved.

    The mean over slots. Pairs that were far apart weigh more (the focal weight exp(-A)).
    """
    with torch.no_grad():
        affinity = affinities(before.double())
        was = top_projector(normalized(affinity), kept)
        focal = (-affinity).exp()
    now = top_projector(normalized(affinities(after.double())), kept)
    return ((was - now) * focal).flatten(1).norm(dim=1).mean().to(after.dtype)


def zero_centre(rows: Tensor) -> Tensor:
    """Eq. 6 as the mean absolute channel mean of (node, channel)."""
    return rows.mean(0).abs().mean()


def covariance(rows: Tensor) -> Tensor:
    """Eq. 7 of (node, channel): squared covariances of different channels, a channel."""
    centred = rows - rows.mean(0)
    matrix = centred.t() @ centred / (len(rows) - 1)
    return (matrix.square().sum() - matrix.diagonal().square().sum()) / rows.shape[1]


def agreement(after: Tensor, order: Tensor) -> Tensor:
    """Not in the paper. (slot, node, channel): is a patch in one slot more like itself in the slot that comes next in
    `order` than like any other patch, of that slot and of its own? The mean cross-entropy of that choice.

    Patches of the own slot are among the others: without them slots agree direction by direction and lie apart.
    """
    rows = nn.functional.normalize(after[order], dim=2)
    there = rows.roll(-1, 0)
    itself = torch.eye(rows.shape[1], dtype=torch.bool, device=rows.device)
    here = (rows @ rows.transpose(1, 2)).masked_fill(itself, -torch.inf)
    choice = torch.cat([rows @ there.transpose(1, 2), here], 2) / TEMPERATURE
    right = torch.arange(rows.shape[1], device=rows.device).expand(len(rows), -1)
    return nn.functional.cross_entropy(choice.flatten(0, 1), right.flatten())


def losses(
    net: AlignNet, seen: Seen, pictures: Tensor, target: Tensor, weights: Weights, generator: torch.Generator
) -> dict[str, Tensor]:
    """The terms of eq. 10 on some pictures, unweighted (`response` is eq. 9), `agree`, and their `total`."""
    predict = net.alone if weights.alone else net
    found = {"response": (predict([p[pictures] for p in seen.pooled]) - target[pictures]).abs().mean()}
    if weights.eigen or weights.zero or weights.covariance or weights.agree:
        kept = min(part.shape[1] for part in seen.patches)  # a layer may have fewer than were asked for
        count = min(weights.nodes, len(pictures) * kept)
        chosen = torch.randperm(len(pictures) * kept, generator=generator)[:count]
        rows = [part[pictures[chosen // kept], chosen % kept] for part in seen.patches]
        after = torch.stack([row @ w for row, w in zip(rows, net.maps, strict=True)])
        if weights.eigen and count > 1:  # a last batch may be small
            found["eigen"] = _by_width(rows, after, min(weights.eigenvectors, count - 1))
        flat = after.flatten(0, 1)
        found |= {"zero": zero_centre(flat)} | ({"covariance": covariance(flat)} if len(flat) > 1 else {})
        if weights.agree and count > 1:
            found["agree"] = agreement(after, torch.randperm(len(after), generator=generator).to(after.device))
    scale = {"response": 1.0, "eigen": weights.eigen, "zero": weights.zero, "covariance": weights.covariance}
    scale["agree"] = weights.agree
    return found | {"total": torch.stack([scale[name] * value for name, value in found.items()]).sum()}


def held_out_error(net: AlignNet, seen: Seen, pictures: Tensor, target: Tensor, weights: Weights) -> float:
    """What the best epoch is best at: responses to pictures that no step was taken on, and agreement if it is asked."""
    with torch.no_grad():
        error = (net([p[pictures] for p in seen.pooled]) - target[pictures]).abs().mean()
        if weights.agree:
            rows = [part[pictures].flatten(0, 1)[: 10 * weights.nodes] for part in seen.patches]
            after = torch.stack([row @ w for row, w in zip(rows, net.maps, strict=True)])
            error = error + weights.agree * agreement(after, torch.arange(len(after), device=after.device))
    return float(error)


def _by_width(rows: list[Tensor], after: Tensor, kept: int) -> Tensor:
    """The eigen-constraint over slots, whose features before alignment may have different widths."""
    parts = []
    for width in sorted({row.shape[1] for row in rows}):
        slots = [n for n, row in enumerate(rows) if row.shape[1] == width]
        before = torch.stack([rows[n] for n in slots])
        parts.append(len(slots) * eigen_constraint(before, after[slots], kept))
    return torch.stack(parts).sum() / len(rows)
