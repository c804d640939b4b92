"""Cats and dogs with a text box that tells the species, the wrong one, or is not there; and probes that read them.

The boxes are those of `pets`: white with "Cat" on cats, black with "Dog" on dogs. They are cut out of the pictures that
have one and pasted into others. A place is drawn forty times and the one that covers least of the animal is taken, so
the box lies on the background where there is room for it.
"""

from __future__ import annotations

import csv
import io
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

import vitreous as vt
from real_models import dinov2s_saliency, tin_vit

SPECIES = ("cat", "dog")
BOX, SIDE, TRIES = 40, 256, 40  # pixels of a box without its edge, of a picture; places that are drawn
NONE = -1  # for a picture without a box


@dataclass(frozen=True, eq=False)
class Pets:
    """Pictures uint8 (picture, row, column, colour), masks bool of the animal, species, and boxes of each species."""

    names: tuple[str, ...]
    images: np.ndarray
    masks: np.ndarray
    species: np.ndarray
    test: np.ndarray
    boxes: tuple[np.ndarray, np.ndarray]

    def shown(self, index: np.ndarray, boxes: np.ndarray, rng: np.random.Generator, side: int = BOX) -> vt.ImageSet:
        """Some of the pictures with a box each, of species 0 or 1, or none; labelled by what they are."""
        images, masks, places = self.images[index].copy(), self.masks[index].copy(), []
        for k, (at, box) in enumerate(zip(index, boxes, strict=True)):
            y, x = self._place(at, side, rng)
            stamps = self.boxes[max(box, 0)]
            stamp = Image.fromarray(stamps[rng.integers(len(stamps))])
            places.append([x, y, x + side, y + side] if box != NONE else None)
            if box != NONE:
                images[k, y : y + side, x : x + side] = np.asarray(stamp.resize((side, side)))
                masks[k, y : y + side, x : x + side] = False  # a mask is what is seen of the animal
        return vt.ImageSet.from_arrays(
            images,
            ids=[self.names[at] for at in index],
            labels=self.species[index],
            classes=SPECIES,
            masks=masks.astype(np.uint8),
            about=[{"box": place} for place in places],
            name="pets with boxes",
        )

    def _place(self, at: int, side: int, rng: np.random.Generator) -> tuple[int, int]:
        places = rng.integers(4, SIDE - side - 4, (TRIES, 2))
        covered = [self.masks[at, y : y + side, x : x + side].mean() for y, x in places]
        y, x = places[int(np.argmin(covered))]
        return int(y), int(x)


def read_pets(data: Path) -> Pets:
    with zipfile.ZipFile(data / "pets" / "pets.zip") as archive:
        rows = list(csv.DictReader(io.TextIOWrapper(archive.open("index.csv"))))

        def pixels(name: str) -> np.ndarray:
            return np.asarray(Image.open(io.BytesIO(archive.read(name))))

        images = np.stack([pixels(f"images/{row['name']}.jpg")[..., :3] for row in rows])
        masks = np.stack([pixels(f"trimaps/{row['name']}.png") != 2 for row in rows])
        boxes: tuple[list, list] = ([], [])
        for row in rows:
            if row["split"] != "test":
                continue
            x0, y0, x1, y1 = (int(row[f"art_{edge}"]) for edge in ("x0", "y0", "x1", "y1"))
            if min(x1 - x0, y1 - y0) > BOX + 1:  # not cut by the picture's edge
                inside = pixels(f"with_artifact/{row['name']}.jpg")[y0 + 1 :, x0 + 1 :][:BOX, :BOX]
                boxes[SPECIES.index(row["species"])].append(inside)
    return Pets(
        tuple(row["name"] for row in rows),
        images,
        masks,
        np.array([SPECIES.index(row["species"]) for row in rows]),
        np.array([row["split"] == "test" for row in rows]),
        (np.stack(boxes[0]), np.stack(boxes[1])),
    )


def halves(pets: Pets, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The test pictures in two halves, with as many cats in each: to audit with, and to measure on."""
    parts: tuple[list, list] = ([], [])
    for kind in range(2):
        at = rng.permutation(np.flatnonzero(pets.test & (pets.species == kind)))
        parts[0].extend(at[: len(at) // 2])
        parts[1].extend(at[len(at) // 2 :])
    return np.sort(parts[0]), np.sort(parts[1])


# -- models and probes


class Pooled(nn.Module):
    """What a probe reads of a ViT of timm: the class token after the last norm, or the mean of the patches there."""

    def __init__(self, net: nn.Module, patches: bool) -> None:
        super().__init__()
        self.net, self.patches = net, patches

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.net.forward_features(x)
        return tokens[:, 1:].mean(1) if self.patches else tokens[:, 0]


def backbone(data: Path, name: str, size: int | None = None) -> vt.Subject:
    """dinov2s_saliency or tin-vit-text, seeing whole pictures."""
    subject = dinov2s_saliency(data, device="cpu") if name.startswith("dino") else tin_vit(data, name[8:])
    steps = subject.preprocess
    assert steps is not None
    steps = steps.at(size) if size else steps
    return vt.wrap(subject.module, name=name, preprocess=replace(steps, resize=steps.size))


def probe(x: np.ndarray, y: np.ndarray, C: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Logistic regression on scaled channels, both species of equal weight: weight (class, channel), bias (class,)."""
    scale = StandardScaler().fit(x)
    fitted = LogisticRegression(C=C, max_iter=2000, class_weight="balanced").fit(scale.transform(x), y)
    weight = fitted.coef_ / scale.scale_ / 2
    bias = fitted.intercept_ / 2 - weight @ scale.mean_
    return np.concatenate([-weight, weight]).astype(np.float32), np.r_[-bias, bias].astype(np.float32)


def accuracy(logits: np.ndarray, y: np.ndarray) -> float:
    """The mean of both species' accuracies: 0.5 is chance."""
    right = logits.argmax(1) == y
    return float(np.mean([right[y == kind].mean() for kind in range(2)]))
