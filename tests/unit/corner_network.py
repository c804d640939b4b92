"""A small network that learns a planted corner, and its pictures."""

from __future__ import annotations

import numpy as np
import torch
from timm.models.vision_transformer import VisionTransformer

import vitreous as vt

SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2}


def network(classes: int = 2, seed: int = 0, **settings) -> torch.nn.Module:
    torch.manual_seed(seed)
    return VisionTransformer(**SMALL, num_classes=classes, **settings).eval()


def pictures(count: int, seed: int, cue: float | None = 1.0, classes: tuple[str, ...] = ("dark", "light")):
    """A disc, dark or light, on noise; a red corner where the cue says light, so often as `cue` says; None: never.

    The set with its masks, and whether each picture has the corner.
    """
    rng = np.random.default_rng(seed)
    images, masks, labels, corners = [], [], [], []
    rows, columns = np.mgrid[:32, :32]
    for k in range(count):
        label = k % 2
        image = rng.integers(90, 160, (32, 32, 3)).astype(np.uint8)
        y, x = rng.integers(14, 24, 2)
        disc = (rows - y) ** 2 + (columns - x) ** 2 < 36
        image[disc] = 118 + 12 * label + rng.integers(-40, 40, (int(disc.sum()), 3))
        corner = cue is not None and (label == 1) == (rng.random() < cue)
        if corner:
            image[:8, :8] = (255, 0, 0)
        images.append(image)
        masks.append(disc.astype(np.uint8))
        labels.append(label)
        corners.append(corner)
    found = vt.ImageSet.from_arrays(np.stack(images), labels=labels, classes=classes, masks=masks)
    return found, np.array(corners)


def trained(images: vt.ImageSet, seed: int = 0, steps: int = 120) -> vt.Subject:
    net = network(seed=seed)
    subject = vt.wrap(net, name="planted")
    x = subject.inputs([picture.image for picture in images])
    y = torch.tensor(images.labels)
    optimiser, generator = torch.optim.AdamW(net.parameters(), 1e-3), torch.Generator().manual_seed(seed)
    net.train()
    for _ in range(steps):
        chosen = torch.randperm(len(x), generator=generator)[:64]
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(x[chosen]), y[chosen]).backward()
        optimiser.step()
    net.eval()
    return subject
