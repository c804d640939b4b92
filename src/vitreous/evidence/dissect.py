"""Which word fits the pictures that a unit responds to? CLIP-Dissect's soft WPMI (Oikarinen and Weng, ICLR 2023).

    paper           here                 what it is
    P               -                    cosines of pictures and texts in a space that both share
    p(t | x)        -                    softmax over all texts of P times `temperature`
    B_u             `tops`               the unit's pictures, strongest first
    p(x in B_u)     `membership`         how surely a picture belongs to the unit: less, the weaker it is
    log p(t | B_u)  `log_likelihoods`    Σ log(1 + p(x in B_u) (p(t | x) - 1)) over the unit's pictures
    p(t)            prior                the mean of p(t | B) over all units, or over random sets of pictures
    λ               `weight`             how much a text that fits everywhere is held back
    score           -                    log p(t | B_u) - λ log p(t)

Texts come in blocks: neither all pictures with all texts nor all units with all texts are ever held.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vitreous.progress import tqdm

if TYPE_CHECKING:
    from torch import Tensor

TEXTS = 512  # in a block
HELD = 1 << 23  # numbers of (unit, picture, text) at a time


class Best(NamedTuple):
    """`texts` int64 and `scores` float32 (unit, kept), best first; `chance` float64 (unit,) of the first."""

    texts: np.ndarray
    scores: np.ndarray
    chance: np.ndarray


def memberships(top: int, ends: tuple[float, float]) -> np.ndarray:
    """(top,): from the first of `ends` down towards the second, in equal steps."""
    return ends[0] - (ends[0] - ends[1]) * np.arange(top) / top


def log_likelihoods(
    images: np.ndarray,
    texts: np.ndarray,
    tops: np.ndarray,
    *,
    temperature: float,
    membership: tuple[float, float],
    device: str = "cpu",
) -> Iterator[Tensor]:
    """Directions (picture, channel) and (text, channel), pictures of each unit (unit, top) -> blocks (unit, texts)."""
    import torch

    used, place_of = np.unique(tops, return_inverse=True)
    seen = torch.tensor(images[used], dtype=torch.float32, device=device) * temperature
    blocks = torch.tensor(texts, dtype=torch.float32, device=device).split(TEXTS)
    place = torch.tensor(place_of.reshape(tops.shape), device=device)
    p = torch.tensor(memberships(tops.shape[1], membership), dtype=torch.float32, device=device)[:, None]
    total = torch.logsumexp(torch.stack([torch.logsumexp(seen @ block.T, 1) for block in blocks]), 0)
    for block in blocks:
        fits = torch.exp(seen @ block.T - total[:, None])  # p(t | x)
        size = max(1, HELD // (tops.shape[1] * len(block)))
        yield torch.cat([torch.log(1 - p + p * fits[part]).sum(1) for part in place.split(size)])


def soft_wpmi(units: Tensor, prior: Tensor, weight: float) -> Tensor:
    """log p(t | B) (set, text) of what is scored and of what p(t) is taken over -> scores (set, text)."""
    import torch

    return units - weight * (torch.logsumexp(prior, 0) - np.log(len(prior)))


def best_texts(
    images: np.ndarray,
    texts: np.ndarray,
    tops: np.ndarray,
    others: np.ndarray,
    *,
    keep: int,
    weight: float,
    prior: str,
    temperature: float,
    membership: tuple[float, float],
    device: str = "cpu",
    progress: bool = False,
) -> Best:
    """The `keep` texts with the highest scores for each unit of `tops` (unit, top); of equal ones the earlier first.

    `others` (set, top) are random pictures: what a unit without any meaning would respond to. `prior` is "units" or
    "random". The chance of a unit's first text: how far log p(t | B) lies above its mean over random sets, in standard
    deviations, and the share of random sets, the unit counted as one, for which some text lies as far above. Scores
    cannot be compared in this way: with p(t) over the units they end at the logarithm of their number.
    """
    import torch

    units = len(tops)
    kept = [torch.zeros(units, 0, device=device, dtype=kind) for kind in (torch.float32, torch.int64, torch.float32)]
    highest = torch.full((len(others),), -torch.inf, device=device)
    every = np.concatenate([tops, others])
    blocks = log_likelihoods(images, texts, every, temperature=temperature, membership=membership, device=device)
    start = 0
    for block in tqdm(blocks, "words", -(-len(texts) // TEXTS), disable=not progress, delay=1, leave=False):
        scores = soft_wpmi(block[:units], block[:units] if prior == "units" else block[units:], weight)
        above = _above(block, block[units:])
        here = torch.arange(start, start + block.shape[1], device=device).expand(units, -1)
        start += block.shape[1]
        fresh = [torch.cat(both, 1) for both in zip(kept, (scores, here, above[:units]), strict=True)]
        order = fresh[0].sort(stable=True, dim=1, descending=True).indices[:, :keep]
        kept = [part.gather(1, order) for part in fresh]
        highest = torch.maximum(highest, above[units:].amax(1))
    as_far = (highest >= kept[2][:, :1]).sum(1).cpu().numpy()
    return Best(kept[1].cpu().numpy(), kept[0].cpu().numpy(), (1 + as_far) / (1 + len(others)))


def _above(block: Tensor, random: Tensor) -> Tensor:
    """How far each (set, text) lies above the mean over random sets, in standard deviations."""
    spread = random.std(0, correction=0)
    return (block - random.mean(0)) / spread.clamp_min(1e-6)
