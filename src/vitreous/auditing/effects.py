"""What every part of a layer adds to every class, picture by picture: one pass forward, one back for each class.

    z_c    logit of class c
    o_c    its log-odds: the logit minus the log-sum-exp of the others
    a_i    what part i (a unit or one of its sub-units) gives at a position
    l_i    its level: the mean of a_i over pictures, all classes alike, one for each prefix token and one for patches
    s_ic   sum over positions of (a_i - l_i) d z_c / d a_i: what it adds to the class's logit beyond its level
    e_ic   the same of o_c

Taken out, a part is put at its level. Where the way from the layer to the logits is linear, s is exactly what is then
lost, and so is e of two classes; elsewhere both are so to first order, and an audit runs the model without the parts
that it names.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from vitreous.auditing.heads import BATCH, Head
from vitreous.hooks import evaluating
from vitreous.kernels.fill_holes import fill_holes
from vitreous.progress import tqdm

SAME = 1e-4  # of the largest slope: what rounding makes of equal ones

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vitreous.images import ImageSet
    from vitreous.models.subject import Subject
    from vitreous.subunits.layers import LinearLayer


@dataclass(frozen=True, eq=False)
class Parts:
    """Parts of a layer: the unit that each belongs to (`owner`), its weights, and whether it differs from others."""

    owner: np.ndarray
    weight: np.ndarray
    bias: np.ndarray
    alive: np.ndarray

    def __len__(self) -> int:
        return len(self.owner)

    def some(self, rows: np.ndarray) -> Parts:
        return Parts(self.owner[rows], self.weight[rows], self.bias[rows], self.alive[rows])


@dataclass(frozen=True, eq=False)
class Effects:
    """Of one pass over the pictures. Kinds of positions are the prefix tokens one by one, then all patches.

    `raw` (picture, part, class) sum of a times the logit's gradient; `slopes` (picture, part, class, kind) its sum;
    `means` (picture, part, kind) of a; `peaks` (picture, part) the largest at a patch; `inside` and `outside`
    (picture, part) of its map, the part of a above zero, on patches of the object and off it; `logits`.
    """

    raw: np.ndarray
    slopes: np.ndarray
    means: np.ndarray
    peaks: np.ndarray
    inside: np.ndarray
    outside: np.ndarray
    logits: np.ndarray

    def levels(self, labels: np.ndarray) -> np.ndarray:
        """(part, kind): the mean of the classes' means."""
        return np.mean([self.means[labels == c].mean(0) for c in np.unique(labels)], 0)

    def added(self, levels: np.ndarray) -> np.ndarray:
        """(picture, part, class): s."""
        return self.raw - np.einsum("pk,spck->spc", levels, self.slopes)

    def beyond(self, levels: np.ndarray) -> np.ndarray:
        """(picture, part, class): e."""
        return np.einsum("scd,spd->spc", self._of_odds, self.added(levels))

    @property
    def linear(self) -> bool:
        """Whether the way to the logits is: then they have the same slopes in every picture."""
        return bool(np.ptp(self.slopes, 0).max(initial=0) <= SAME * np.abs(self.slopes).max(initial=0))

    @property
    def _of_odds(self) -> np.ndarray:
        """(picture, class, class): d o_c / d z."""
        count = self.logits.shape[1]
        others = torch.from_numpy(self.logits)[:, None].masked_fill(torch.eye(count, dtype=torch.bool), -torch.inf)
        return np.eye(count, dtype=np.float32) - others.softmax(-1).numpy()

    @property
    def odds(self) -> np.ndarray:
        """(picture, class): log-odds."""
        return log_odds(torch.from_numpy(self.logits)).numpy()

    @property
    def activations(self) -> np.ndarray:
        """(picture, part): at the prefix token that classes read most, or the peak over patches if they read those."""
        weights = np.abs(np.einsum("scd,spdk->spck", self._of_odds, self.slopes)).mean((0, 1, 2))
        kind = int(weights.argmax())
        return self.peaks if kind == len(weights) - 1 else self.means[..., kind]


def measure(
    subject: Subject,
    head: Head,
    layer: LinearLayer,
    parts: Parts,
    images: ImageSet,
    *,
    prefix: int,
    masks: np.ndarray | None = None,
    painted: bool = False,
    progress: bool = False,
) -> Effects:
    """`masks` bool (picture, row, column) of the model's input; `painted` takes the object out of the pictures."""
    assert subject.preprocess is not None
    weight, bias = (torch.from_numpy(p).to(layer.whole.device, torch.float32) for p in (parts.weight, parts.bias))
    owner = torch.from_numpy(parts.owner + layer.first).to(weight.device)
    found: list[tuple[Tensor, ...]] = []
    what = "without the object" if painted else "effects"
    with (
        evaluating(subject.module),
        _cut(layer) as seen,
        tqdm(total=len(images), desc=what, disable=not progress, leave=False) as bar,
    ):
        for at, batch in images.batches(subject.preprocess, BATCH):
            x = subject.inputs(torch.from_numpy(batch))
            mask = None if masks is None else torch.from_numpy(masks[at]).to(x.device)
            if painted and mask is not None:
                x = fill_holes(x, mask)
            with torch.enable_grad():
                logits = head.logits(subject, x)
                slopes = _slopes(logits, seen, layer)
            a = torch.nn.functional.linear(seen.rows.float(), weight, bias)
            share = None if mask is None else patch_share(mask, subject, a.shape[1] - prefix)
            found.append((*_summed(a, slopes, owner, prefix), *_mapped(a[:, prefix:], share), logits))
            bar.update(len(at))
    stacked = (torch.cat(part).detach().cpu().numpy() for part in zip(*found, strict=True))
    return Effects(*stacked)


def log_odds(logits: Tensor) -> Tensor:
    """(sample, class): a class against all others together."""
    apart = torch.eye(logits.shape[1], dtype=torch.bool, device=logits.device)
    others = logits[:, None].masked_fill(apart, -torch.inf).logsumexp(-1)
    return logits - others


@dataclass(eq=False)
class _Seen:
    rows: Tensor
    leaf: Tensor


@contextmanager
def _cut(layer: LinearLayer) -> Iterator[_Seen]:
    """The pass goes on from a copy of what the layer gives: nothing before it is differentiated."""
    seen = _Seen(torch.empty(0), torch.empty(0))

    def hook(_: Any, args: tuple[Any, ...], output: Tensor) -> Tensor:
        seen.rows, seen.leaf = layer.rows(args[0]).detach(), output.detach().requires_grad_()
        return seen.leaf

    handle = layer.module.register_forward_hook(hook)
    try:
        yield seen
    finally:
        handle.remove()


def _slopes(logits: Tensor, seen: _Seen, layer: LinearLayer) -> list[Tensor]:
    """For each class d z_c / d a (sample, position, unit of the layer)."""
    found = []
    for logit in logits.unbind(1):
        (g,) = torch.autograd.grad(logit.sum(), seen.leaf, retain_graph=True, allow_unused=True, materialize_grads=True)
        g = g.flatten(2).mT if layer.channel_axis == 1 else g.reshape(len(g), -1, g.shape[-1])
        found.append(g.float())
    return found


def _summed(a: Tensor, slopes: list[Tensor], owner: Tensor, prefix: int) -> tuple[Tensor, Tensor, Tensor]:
    def kinds(values: Tensor, reduce: Callable[[Tensor], Tensor]) -> Tensor:
        """(sample, position, part) -> (sample, part, kind)."""
        ends = [values[:, k] for k in range(prefix)]
        if values.shape[1] > prefix:
            ends.append(reduce(values[:, prefix:]))
        return torch.stack(ends, -1)

    raw, slope = [], []
    for g in slopes:
        mine = g.index_select(-1, owner)
        raw.append((mine * a).sum(1))
        slope.append(kinds(mine, lambda v: v.sum(1)))
    return torch.stack(raw, -1), torch.stack(slope, 2), kinds(a, lambda v: v.mean(1))


def _mapped(patches: Tensor, share: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The peak over patches, and the map inside and outside the object; without masks these are not numbers."""
    peaks = patches.amax(1)
    if share is None:
        nothing = torch.full_like(peaks, torch.nan)
        return peaks, nothing, nothing
    positive = patches.clamp_min(0)
    inside = torch.einsum("spu,sp->su", positive, share)
    return peaks, inside, positive.sum(1) - inside


def patch_share(mask: Tensor, subject: Subject, patches: int) -> Tensor:
    """(sample, patch): how much of a patch lies on the object."""
    from torch.nn.functional import adaptive_avg_pool2d

    grid = subject.grid((mask.shape[1], mask.shape[2]))
    assert grid is not None
    if grid.patches != patches:  # a layer that keeps another grid, such as a convolution further down
        side = round(patches**0.5)
        shape = (side, patches // side)
    else:
        shape = (grid.rows, grid.columns)
    return adaptive_avg_pool2d(mask[:, None].float(), shape).flatten(1)
