"""Token maps straight from equations 4 and 5: one backward pass a token, whole matrices, any subject; eq. 6 and 7."""

from __future__ import annotations

import numpy as np
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist
from torch import Tensor

import vitreous as vt


def slow_scalar(z: Tensor, target) -> Tensor:
    """f(z_i) of section 3.2 for one token (channel,)."""
    if isinstance(target, str):
        return {"sum": z.sum(), "energy": (z * z).sum()}[target]
    return (z * target).sum()


def slow_contributions(subject, x: Tensor, block: int, token: int, target) -> list[Tensor]:
    """Eq. 4 for one sample: C(1), C(2), ... up to the block, each (token, token)."""
    index = range(subject.depth)[block]
    with (
        torch.enable_grad(),
        vt.open_attention(subject) as attention,
        vt.capture(subject, f"blocks.{index}.resid.out") as rec,
    ):
        subject(x)
        z = rec[f"blocks.{index}.resid.out"][0, token]
        patterns = [attention[b] for b in range(index + 1)]
        gradients = torch.autograd.grad(slow_scalar(z, target), patterns)
    n = patterns[0].shape[-1]
    identity = torch.eye(n, dtype=z.dtype)
    return [identity + (g.clamp(min=0) * A).mean(1)[0].detach() for g, A in zip(gradients, patterns, strict=True)]


def slow_rows(subject, x: Tensor, block: int = -1, tokens=None, target="sum", order="rollout") -> Tensor:
    """Eq. 5 before anything is cut away or replaced: (sample, token, source token).

    Weights are (channel,), or (token, channel) for one vector a token.
    """
    samples = []
    for sample in x:
        with vt.capture(subject, "blocks.0.resid.out") as rec:
            subject(sample[None])
        n = rec["blocks.0.resid.out"].shape[1]
        rows = []
        for i in range(n) if tokens is None else tokens:
            own = target[i] if isinstance(target, Tensor) and target.ndim == 2 else target
            parts = slow_contributions(subject, sample[None], block, i, own)
            product = torch.eye(n, dtype=parts[0].dtype)
            for C in parts if order == "printed" else reversed(parts):
                product = product @ C
            rows.append(product[i])
        samples.append(torch.stack(rows))
    return torch.stack(samples)


def slow_maps(rows: Tensor, tokens, prefix: int, own: str = "max_of_others") -> Tensor:
    """S of eq. 5: (sample, token, source patch), the entry of a token's own patch replaced by the largest other one."""
    maps = rows[..., prefix:].clone()
    for sample in maps:
        for row, token in zip(sample, tokens, strict=True):
            if own == "max_of_others" and token >= prefix:
                others = [float(v) for k, v in enumerate(row) if k != token - prefix]
                row[token - prefix] = max(others)
    return maps


def slow_segments(maps: np.ndarray, k: int, method: str) -> tuple[np.ndarray, np.ndarray]:
    """Clusters (token,) of maps (token, row, column), and the labels (row, column) of eq. 6 and 7."""
    scaled = np.stack([(m - m.min()) / (m.max() - m.min()) for m in maps.astype(np.float64)])
    clusters = fcluster(linkage(pdist(scaled.reshape(len(maps), -1)), method), k, "maxclust")
    labels = np.zeros(maps.shape[1:], int)
    for y in range(maps.shape[1]):
        for x in range(maps.shape[2]):
            sums = {c: sum(scaled[i, y, x] for i in range(len(maps)) if clusters[i] == c) for c in set(clusters)}
            labels[y, x] = max(sums, key=sums.get)
    return clusters, labels


def slow_loss(z: np.ndarray, noisy: dict[int, np.ndarray], segment_of: dict[int, int], theta: np.ndarray) -> float:
    """Eq. 11 for one picture: z (token, channel), z̃ of each segment, and the segment that each token is in."""
    total = 0.0
    for c, other in noisy.items():
        for i in range(len(z)):
            if segment_of.get(i) == c:
                w = theta[i] / np.sqrt((theta[i] ** 2).sum())
                total += float(w @ (z[i] - other[i])) ** 2
    return total
