"""Grad-CAM++ straight from its equations, patch by patch and channel by channel, with a plain hook of its own."""

from __future__ import annotations

import numpy as np
import torch


def slow_gradcam(A: np.ndarray, g: np.ndarray, grid: tuple[int, int], eps: float = 1e-6) -> np.ndarray:
    """float64 A and g (sample, patch, channel) -> (sample, row, column)."""
    maps = np.zeros(A.shape[:2])
    for s in range(A.shape[0]):
        for k in range(A.shape[2]):
            total = A[s, :, k].sum()
            w = 0.0
            for p in range(A.shape[1]):
                d = g[s, p, k]
                if d > 0:
                    w += d**2 / (2 * d**2 + total * d**3 + eps) * d
            maps[s] += w * A[s, :, k]
    return np.maximum(maps, 0).reshape(len(A), *grid)


def activations_and_gradient(subject, site, x, target):
    """A and g in float64, from a hook on the module and torch's own backward."""
    place = subject.locate(site)
    block = subject.module.get_submodule(place.path)
    kept = []

    def keep(value):
        value = value[0] if isinstance(value, tuple) else value
        value.requires_grad_()
        kept.append(value)

    if place.port == "in":
        handle = block.register_forward_pre_hook(lambda _, args: keep(args))
    else:
        handle = block.register_forward_hook(lambda _, __, out: keep(out))
    with torch.enable_grad():
        logits = subject(x)
        (g,) = torch.autograd.grad(logits[:, target].sum(), kept)
    handle.remove()
    pair = []
    for value in (kept[0].detach(), g):
        value = value.flatten(2).mT if value.ndim == 4 else value[:, len(subject.prefix) :]
        pair.append(value.double().numpy())
    return pair
