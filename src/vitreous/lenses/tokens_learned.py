"""The learned scalar of ULTra (section 4.1): weights w that hardly change when what lies outside a segment does.

    paper     here      axes                  what it is
    x̃(c)      noisy     sample colour row ·   the picture with noise on every patch that is not of segment c, eq. 9
    δ         delta     -                     deviation of the noise, in the model's own (normalised) input
    z, z̃      -         sample token channel  the stream after the block, of the picture and of the noisy one
    Θ         theta     token channel         w = θ / |θ|
    L_sc      losses    -                     Σ over segments c and tokens of c of (w · (z - z̃(c)))², eq. 11

Every patch is of one segment, so each token is compared once a picture. The paper starts nowhere in particular: here θ
starts at ones, where ⟨z, w⟩ is the sum. It gives each token its own w (eq. 10), but counts as many parameters as there
are channels (section 5.2): `shared=True` learns one w for all tokens. Only w is learned; the model is not touched.

The loss alone is least along directions in which no token ever varies: the fewer steps, the nearer to the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from vitreous.checks import number, whole
from vitreous.errors import SettingsError
from vitreous.finding import Finding
from vitreous.hooks import capture, evaluating
from vitreous.lenses.tokens import token_maps
from vitreous.lenses.tokens_inputs import inputs_of
from vitreous.lenses.tokens_segments import check_clusters, check_threshold, segment
from vitreous.models.subject import Subject
from vitreous.progress import tqdm


@dataclass(frozen=True, eq=False)
class LearnedWeights(Finding):
    """`weights` float32 (token, channel), each of length 1; `losses` (epoch,), the mean of eq. 11 a picture."""

    weights: np.ndarray
    losses: np.ndarray
    settings: Mapping[str, Any]

    def facts(self) -> dict[str, Any]:
        losses = {f"loss of epoch {k}": float(self.losses[k]) for k in (0, len(self.losses) - 1)}
        return {"tokens": len(self.weights), "channels": self.weights.shape[1]} | losses

    def columns_of_rows(self) -> dict[str, Any]:
        """A row a token and channel."""
        token, channel = (part.ravel() for part in np.indices(self.weights.shape))
        return {"token": token, "channel": channel, "weight": self.weights.ravel()}


@dataclass(frozen=True)
class SelfConsistency:
    """How w is learned; `fit` learns it. The paper's settings, where it states them, are the defaults.

    The first segmentation is that of the sum, into `k` clusters or cut at `threshold`, from maps followed back in
    `dtype`. `redraw` draws new noise in each epoch; without it each picture has one noise for all.

    >>> learned = vt.SelfConsistency(samples=64).fit(subject, images)
    >>> maps = vt.token_maps(subject, images, target=learned.weights)
    """

    block: int = -1
    k: int | None = None
    threshold: float = 0.4
    delta: float = 0.3
    samples: int = 256
    epochs: int = 10
    batch_size: int = 32
    lr: float = 0.01
    shared: bool = False
    redraw: bool = True
    seed: int = 0
    dtype: Literal["float32", "bfloat16", "float64"] | None = None

    def __post_init__(self) -> None:
        whole(1, samples=self.samples, epochs=self.epochs, batch_size=self.batch_size)
        whole(0, seed=self.seed)
        number(above=True, delta=self.delta, lr=self.lr)
        check_threshold(self.threshold)

    def fit(
        self, subject: Subject, images: Any, *, size: int | tuple[int, int] | None = None, progress: bool = True
    ) -> LearnedWeights:
        given = inputs_of(subject, images, size)
        if given.grid is None:
            raise SettingsError("texts have no segments to learn from", given=subject.name)
        if self.k is not None:
            check_clusters(self.k, given.grid.patches)
        generator = torch.Generator().manual_seed(self.seed)
        chosen = torch.randperm(len(given.ids), generator=generator)[: self.samples].tolist()
        x = torch.cat([given.batch(range(k, k + 1))[0] for k in chosen])
        maps = token_maps(subject, x, self.block, dtype=self.dtype, progress=progress)
        grids = torch.from_numpy(segment(maps, self.k, self.threshold).grid)
        tokens = len(subject.prefix) + given.grid.patches
        theta = torch.ones(1 if self.shared else tokens, subject.width, device=x.device, requires_grad=True)
        losses = self._learn(subject, x, grids.to(x.device), theta, generator, progress)
        w = torch.nn.functional.normalize(theta.detach(), dim=-1).expand(tokens, -1)
        settings = {**asdict(self), "subject": subject.name, "pictures": len(chosen)}
        return LearnedWeights(w.cpu().numpy().copy(), np.array(losses), settings)

    def _learn(
        self, subject: Subject, x: Tensor, grids: Tensor, theta: Tensor, generator: torch.Generator, progress: bool
    ) -> list[float]:
        optimizer = torch.optim.Adam([theta], lr=self.lr)
        losses: list[float] = []
        kept: dict[int, Tensor] = {}
        with evaluating(subject.module), tqdm(total=self.epochs, desc="weights", delay=1, disable=not progress) as bar:
            for _ in range(self.epochs):
                total = 0.0
                for part in torch.randperm(len(x), generator=generator).split(self.batch_size):
                    for k in part.tolist():
                        if self.redraw or k not in kept:
                            kept[k] = _differences(subject, x[k], grids[k], self.block, self.delta, generator)
                    loss = _loss(torch.stack([kept[k] for k in part.tolist()]), theta)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    total += float(loss.detach()) * len(part)
                losses.append(total / len(x))
                bar.update()
        return losses


def _loss(differences: Tensor, theta: Tensor) -> Tensor:
    """Eq. 11, the mean of pictures: differences are (sample, token, channel), 0 for prefix tokens."""
    w = torch.nn.functional.normalize(theta, dim=-1)  # what eq. 10 asks of w
    return (differences * w).sum(-1).square().sum(1).mean()


@torch.no_grad()
def _differences(
    subject: Subject, x: Tensor, grid: Tensor, block: int, delta: float, generator: torch.Generator
) -> Tensor:
    """z - z̃(c) of one picture, for each patch token with the segment c that it is in: (token, channel)."""
    names = grid.unique()
    noise = torch.randn(len(names), *x.shape, generator=generator).to(x)
    outside = grid != names[:, None, None]  # segment, row, column
    masks = _enlarged(outside, x)
    (site,) = subject.resolve(f"blocks.{block}.resid.out")
    noisy = x + delta * noise * masks[:, None]  # eq. 9
    with capture(subject, site, stop=True) as rec:
        subject(torch.cat([x[None], noisy]))
        z = rec[site]
    first = z.shape[1] - grid.numel()
    found = torch.zeros_like(z[0])
    for k, name in enumerate(names):
        inside = first + (grid == name).flatten().nonzero()[:, 0]
        found[inside] = z[0, inside] - z[1 + k, inside]
    return found


def _enlarged(masks: Tensor, x: Tensor) -> Tensor:
    """bool (segment, row, column) on the patch grid -> the model's input, patch by patch."""
    size = x.shape[-2:]
    return torch.nn.functional.interpolate(masks[:, None].to(x), size, mode="nearest")[:, 0]
