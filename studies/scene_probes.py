"""Scenes as training data, and what a small ViT knows about them: linear probes, neighbours, retrieval.

Shared by the scripts that train on scenes. Probes are softmax regressions on standardised features, fitted on two
thirds of the held-out scenes and scored on the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.models.captions import LONGEST, CaptionTower
from vitreous.scenery import ATTRIBUTES, render_scene, vocabulary

WIDTH, SIDE, PATCH, GRID = 128, 64, 8, 8
WORDS = vocabulary()
WORD_ID = {word: number for number, word in enumerate(WORDS, start=1)}
PROBED = ("shape", "colour", "texture")
MIDDLE = 5  # the block whose output is probed besides the last


class Data(NamedTuple):
    """Drawn scenes: pictures uint8 (scene, colour, row, column), token ids of captions uint8 (scene, word), word ids of
    what is there uint8 (scene, thing, (size, colour, texture, shape)), labels (scene,) and, of the layer that has most
    of a patch, the attributes uint8 (scene, patch, (shape, colour, texture)), 0 background."""

    images: Tensor
    captions: Tensor
    things: Tensor
    labels: Tensor
    patches: Tensor


def draw(seed: int, indices: range) -> tuple[np.ndarray, ...]:
    """One worker's share of the scenes."""
    count = len(indices)
    images = np.empty((count, 3, SIDE, SIDE), np.uint8)
    captions, things = np.zeros((count, LONGEST), np.uint8), np.zeros((count, 7, 4), np.uint8)
    labels, patches = np.empty(count, np.int64), np.empty((count, GRID * GRID, len(PROBED)), np.uint8)
    for k, index in enumerate(indices):
        scene = render_scene(seed, index, SIDE)
        images[k] = scene.image.transpose(2, 0, 1)
        words = scene.caption.replace(",", "").split()
        captions[k, : len(words)] = [WORD_ID[word] for word in words]
        for row, o in enumerate(scene.objects):
            things[k, row] = [WORD_ID[word] for word in (o.size, o.colour, o.texture, o.shape)]
        ground = (scene.background_colour, scene.background_texture, "background")
        things[k, 6, 1:] = [WORD_ID[word] for word in ground]
        labels[k] = scene.label
        cells = scene.instances.reshape(GRID, PATCH, GRID, PATCH).transpose(0, 2, 1, 3).reshape(GRID * GRID, -1)
        owner = np.stack([(cells == layer).sum(1) for layer in range(len(scene.objects) + 1)]).argmax(0)
        for column, name in enumerate(PROBED):
            values = [0] + [1 + ATTRIBUTES[name].index(thing[name]) for thing in scene.about()["objects"]]
            patches[k, :, column] = np.asarray(values)[owner]
    return images, captions, things, labels, patches


def draw_all(seed: int, count: int, workers: int) -> Data:
    """All scenes of a seed, drawn by a pool of forked processes: to be called before the device is touched."""
    shares = [range(start, min(start + 256, count)) for start in range(0, count, 256)]
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        parts = list(pool.map(partial(draw, seed), shares))
    return Data(*(torch.from_numpy(np.concatenate(part)) for part in zip(*parts, strict=True)))


def mean_and_std(images: Tensor) -> tuple[list[float], list[float]]:
    """Of each colour over the pixels of some 4,096 pictures, evenly spaced, in [0, 1]."""
    sample = images[:: max(1, len(images) // 4096)].float() / 255
    std, mean = torch.std_mean(sample, (0, 2, 3))
    return [round(v, 4) for v in mean.tolist()], [round(v, 4) for v in std.tolist()]


def softmax_probe(x: Tensor, y: Tensor, fit: Tensor, classes: int, penalty: float = 1e-3) -> float:
    """Accuracy on the samples outside of `fit` (sample,) of a softmax regression fitted on those inside."""
    std, mean = torch.std_mean(x[fit], 0)
    x = (x - mean) / (std + 1e-3)
    seen, known = x[fit], y[fit]
    weight = torch.zeros(x.shape[1], classes, device=x.device, requires_grad=True)
    bias = torch.zeros(classes, device=x.device, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=80, history_size=8, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = F.cross_entropy(seen @ weight + bias, known) + penalty * weight.square().sum()
        value.backward()
        return value

    optimiser.step(loss)
    with torch.no_grad():
        return ((x[~fit] @ weight + bias).argmax(1) == y[~fit]).float().mean().item()


def neighbours(x: Tensor, y: Tensor, fit: Tensor, classes: int, k: int = 20) -> float:
    """Accuracy of the vote of the k nearest by cosine."""
    x = F.normalize(x - x[fit].mean(0), dim=-1)
    near = (x[~fit] @ x[fit].T).topk(min(k, int(fit.sum())), dim=1)
    votes = torch.zeros(len(near.indices), classes, device=x.device)
    votes.scatter_add_(1, y[fit][near.indices], near.values.clamp(min=0))
    return (votes.argmax(1) == y[~fit]).float().mean().item()


def probe(whole: Tensor, local: dict[str, Tensor], held: Data) -> dict[str, float]:
    """Scores for the main shape from `whole` (scene, channel), and for shape, colour and texture of the object that has
    the majority of a patch from each of `local` (scene, patch, channel); patches of background are left out."""
    fit = torch.arange(len(whole), device=whole.device) < 2 * len(whole) // 3
    shapes = len(ATTRIBUTES["shape"])
    found = {
        "main shape, linear": softmax_probe(whole, held.labels, fit, shapes, 1e-2),
        "main shape, 20 neighbours": neighbours(whole, held.labels, fit, shapes),
    }
    thing = held.patches[..., 0] > 0
    for place, tokens in local.items():
        for column, name in enumerate(PROBED):
            y = held.patches[..., column][thing].long() - 1
            score = softmax_probe(tokens[thing], y, fit[:, None].expand_as(thing)[thing], len(ATTRIBUTES[name]))
            found[f"patch {name}, {place}"] = score
    return {name: round(score, 4) for name, score in found.items()}


def probe_pixels(held: Data) -> dict[str, float]:
    """The control without a model: the pixels themselves."""
    pixels = held.images.float() / 255
    count = len(pixels)
    cells = pixels.reshape(count, 3, GRID, PATCH, GRID, PATCH).permute(0, 2, 4, 1, 3, 5).reshape(count, GRID * GRID, -1)
    return probe(F.avg_pool2d(pixels, 2).flatten(1), {"pixels": cells}, held)


@torch.no_grad()
def features(vit: nn.Module, normal: Callable[[Tensor], Tensor], images: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Class tokens after the last norm (scene, channel); patch tokens after it and after the middle block."""
    vit.eval()
    middle, last = [], []
    handle = vit.blocks[MIDDLE].register_forward_hook(lambda _module, _given, out: middle.append(out[:, 1:]))
    for batch in images.split(1024):
        last.append(vit.forward_features(normal(batch.float() / 255)))
    handle.remove()
    vit.train()
    tokens = torch.cat(last)
    return tokens[:, 0], {f"block {MIDDLE}": torch.cat(middle), "last": tokens[:, 1:]}


def probe_vit(vit: nn.Module, normal: Callable[[Tensor], Tensor], held: Data) -> dict[str, float]:
    return probe(*features(vit, normal, held.images), held)


def auc(scores: Tensor, true: Tensor) -> float:
    """The chance that a picture for which the text is true scores higher than one for which it is not."""
    ranks = scores.argsort().argsort().double() + 1
    yes, no = true.sum().item(), (~true).sum().item()
    return ((ranks[true].sum().item() - yes * (yes + 1) / 2) / (yes * no)) if yes and no else float("nan")


@torch.no_grad()
def probe_text(
    vit: nn.Module, tower: CaptionTower, normal: Callable[[Tensor], Tensor], held: Data, pool: int = 500
) -> dict[str, float]:
    """Captions found among `pool` and back; how well words and pairs tell pictures that hold such an object."""
    test = Data(*(part[2 * len(held.images) // 3 :] for part in held))
    seen = tower.image(features(vit, normal, test.images)[0])
    similar = seen[:pool] @ tower.text(test.captions[:pool].long()).T
    same = torch.arange(len(similar), device=similar.device)
    found = {
        "caption of picture, recall at 1": (similar.argmax(1) == same).float().mean().item(),
        "picture of caption, recall at 1": (similar.argmax(0) == same).float().mean().item(),
    }
    objects = test.things[:, :6].long()
    pairs = [(colour, shape) for colour in ATTRIBUTES["colour"] for shape in ATTRIBUTES["shape"]]
    for name, texts, columns in (
        ("shape word", [(shape,) for shape in ATTRIBUTES["shape"]], (3,)),
        ("texture word", [(texture,) for texture in ATTRIBUTES["texture"]], (2,)),
        ("colour and shape", pairs, (1, 3)),
    ):
        fits = seen @ tower.text(tower.tokens([" ".join(text) for text in texts]).to(seen.device)).T
        scores = []
        for k, text in enumerate(texts):
            words = torch.tensor([WORD_ID[word] for word in text], device=seen.device)
            scores.append(auc(fits[:, k], (objects[..., columns] == words).all(-1).any(-1)))
        found[f"{name}, area under the curve"] = float(np.nanmean(scores))
    return {name: round(score, 4) for name, score in found.items()}
