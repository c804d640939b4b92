"""What the steering study measures with: words and the classes they mean, a text head, and what has moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from backbone_inputs import minilm
from vitreous.models.weights import read_state

#: A word, and the classes of Tiny ImageNet that it means.
CONCEPTS: dict[str, tuple[int, ...]] = {
    "dog": tuple(range(24, 30)),
    "cat": tuple(range(30, 35)),
    "insect": tuple(range(36, 46)),
    "bird": (11, 20, 21, 22),
    "car": (70, 94, 116, 153),
    "bus": (81, 103, 121, 133, 145, 166),
    "bridge": (154, 157, 170),
    "bottle": (73, 130, 135, 172),
    "furniture": (89, 97, 98, 142),
    "clothing": (60, 62, 74, 77, 85, 105, 112, 119, 120, 134, 149, 150, 158, 169),
    "fruit": (186, 187, 188, 189),
    "coast": (195, 196, 197, 198),
}


class TextHead:
    """tin-vit-text's own way from the class token to its 200 classes."""

    def __init__(self, data: Path) -> None:
        state = {k: v.float() for k, v in read_state(data / "weights" / "tin-vit-text.safetensors").items()}
        self.weight, self.bias, self.texts = (state[f"text_{k}"] for k in ("proj.weight", "proj.bias", "classes"))
        self.scale = state["logit_scale"].exp()

    def embed(self, class_tokens: torch.Tensor) -> torch.Tensor:
        return F.normalize(class_tokens @ self.weight.T + self.bias, dim=-1)

    def __call__(self, class_tokens: torch.Tensor) -> torch.Tensor:
        """(picture, channel) -> probabilities (picture, class)."""
        return (self.scale * self.embed(class_tokens) @ self.texts.T).softmax(-1)


def text_embedding(folder: Path) -> Callable[[list[str]], torch.Tensor]:
    """MiniLM's sentence vectors, the space that the class texts lie in; each text is read once."""
    encoder, known = minilm(folder), {}

    def embed(texts: list[str]) -> torch.Tensor:
        new = [text for text in texts if text not in known]
        if new:
            given = encoder.tokenizer([f"a photo of a {text}" for text in new], padding=True, return_tensors="pt")
            there = given["attention_mask"][..., None].float()
            with torch.no_grad():
                hidden = encoder.module(**given).last_hidden_state
            known.update(zip(new, (hidden * there).sum(1) / there.sum(1), strict=True))
        return torch.stack([known[text] for text in texts])

    return embed


def two_halves(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first five pictures of every class, and the others."""
    order = np.argsort(labels, kind="stable").reshape(200, -1)
    return np.sort(order[:, :5].reshape(-1)), np.sort(order[:, 5:].reshape(-1))


@dataclass(frozen=True)
class Moved:
    """Of one concept: shares of its pictures that are called so, and of others; and of others that stay what they were.

    `odds` is the mean change of the concept's log odds on its own pictures.
    """

    hit: float
    drawn: float
    kept: float
    odds: float


def moved(before: torch.Tensor, after: torch.Tensor, classes: tuple[int, ...], truth: np.ndarray) -> Moved:
    """`before` and `after` are probabilities (picture, class), `truth` (picture,) the right ones."""
    mine, on = torch.tensor(classes), torch.from_numpy(np.isin(truth, classes))
    called, same = torch.isin(after.argmax(1), mine), after.argmax(1) == before.argmax(1)
    was, now = (torch.logit(p[on][:, mine].sum(1).clamp(1e-6, 1 - 1e-6)) for p in (before, after))
    shares = (float(part.float().mean()) for part in (called[on], called[~on], same[~on]))
    return Moved(*shares, float((now - was).mean()))


def mean_of(moves: list[Moved]) -> Moved:
    return Moved(*np.mean([astuple(m) for m in moves], 0).tolist())


def at_change(rows: list[list[Moved]], start: list[Moved], what: str, changed: float) -> np.ndarray:
    """(concept,): `hit` or `drawn` where this share of other pictures has changed.

    `rows` is [strength][concept]. The cost of a strength is its mean over concepts, so that all are steered alike.
    """
    cost = np.array([0.0, *(1 - np.mean([m.kept for m in row]) for row in rows)])
    gain = np.array([[m.__dict__[what] for m in row] for row in [start, *rows]])
    order = np.argsort(cost, kind="stable")
    return np.array([np.interp(changed, cost[order], column[order]) for column in gain.T])
