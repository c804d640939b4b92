"""Grad-CAM++: generalized visual explanations (Chattopadhay et al. 2018), and Grad-CAM (Selvaraju et al. 2017).

Which patches speak for a class? The score of the class is followed back to the patches after a block: channels that
raise it are added up, weighted by how much they raise it.

    paper     here       axes                   what it is
    A         A          sample patch channel   activations after the block, prefix tokens left out
    Y         score      sample                 the class's logit
    g         g          sample patch channel   ∂Y/∂A
    α         alpha      sample patch channel   g² / (2 g² + g³ Σ_patch A + ε), Eq. 19
    w         w          sample channel         Σ_patch α relu(g), Eq. 6; Grad-CAM: mean of g
    L         maps       sample row column      relu(Σ_channel w A), Eq. 5

Eq. 19 is for activations that are not negative. Those of transformers are of both signs: the denominator may come near
0, and where a concept is a negative activation its negative gradient is thrown away. `plus_plus=False` keeps both signs
and often points better there (docs/interpretability.md). ε = 1e-6 is what the grad-cam package adds; 0 is the equation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.axes import Grid, Size
from vitreous.baselines.logits import batches, check_classifier, classes_of, count_of, logits_of
from vitreous.checks import flag, number, whole_numbers
from vitreous.errors import ModelError, SettingsError
from vitreous.finding import Finding, heat
from vitreous.hooks import evaluating, patch
from vitreous.images import ImageSet
from vitreous.models.subject import Subject

CLASS_TOKEN = (
    "the class is read from prefix tokens alone, so patches after block {0} do not reach it (their gradient is zero): "
    "the maps are taken from what enters block {0}, the last place where patches matter"
)

METHODS = {"Grad-CAM++": True, "Grad-CAM": False}  # by name: whether the weights are those of Eq. 6


@dataclass(frozen=True, eq=False)
class CamFinding(Finding):
    """`maps` float32 (sample, row, column) on the patch grid, 0 or more; `predicted` and `targets` (sample,) classes.

    `site` is where the maps were taken, `notes` say why if that is not what was asked for.
    """

    maps: np.ndarray
    targets: np.ndarray
    predicted: np.ndarray
    site: str
    size: Size
    settings: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.maps)

    def facts(self) -> dict[str, Any]:
        empty = int((self.maps.max((1, 2)) <= 0).sum())
        return {"pictures": len(self), "site": self.site, "maps that are zero": empty}

    def columns_of_rows(self) -> dict[str, Any]:
        """One row a picture: its target, what was predicted, and the patch (row, column) where the map is highest."""
        row, column = np.unravel_index(self.maps.reshape(len(self), -1).argmax(1), self.maps.shape[1:])
        found = {"sample": np.arange(len(self)), "target": self.targets, "predicted": self.predicted}
        return found | {"row": row, "column": column, "highest": self.maps.max((1, 2))}

    def thumbnails(self) -> list[tuple[str, np.ndarray]]:
        return [
            (f"picture {n}, class {t}", heat(m)) for n, (t, m) in enumerate(zip(self.targets, self.maps, strict=True))
        ]

    @property
    def scaled(self) -> np.ndarray:
        """The maps brought to [0, 1], each by its own smallest and largest value; a map that is flat becomes 0."""
        low, high = (edge(self.maps, axis=(1, 2), keepdims=True) for edge in (np.min, np.max))
        return (self.maps - low) / np.where(high > low, high - low, 1)

    def at(self, size: Size | tuple[int, int] | None = None, *, scale: bool = True) -> np.ndarray:
        """float32 (sample, row, column), scaled to [0, 1] unless told otherwise, then resized (bilinear).

        The size is that of the model's input unless another is given.
        """
        maps = torch.as_tensor(self.scaled if scale else self.maps)
        wanted = self.size if size is None else _checked_size(size)
        return F.interpolate(maps[:, None], tuple(wanted), mode="bilinear", align_corners=False)[:, 0].numpy()


def gradcam(
    subject: Subject,
    inputs: ImageSet | Any,
    targets: int | Sequence[int] | np.ndarray | None = None,
    *,
    block: int = -1,
    plus_plus: bool = True,
    eps: float = 1e-6,
    size: Size | tuple[int, int] | None = None,
    batch_size: int = 32,
    progress: bool = True,
) -> CamFinding:
    """Maps of what speaks for a class: for the one that the model predicts, for one number, or for one a sample.

    >>> finding = vt.gradcam(subject, images)
    >>> finding.maps.shape, finding.at().shape    # on the patch grid, and as large as the model's input

    A model that reads its class token alone does not look at the patches after its last block any more: their gradient
    is 0. Then the maps are taken from what enters that block, the last place where patches matter, and `notes` says so.
    """
    flag(plus_plus=plus_plus)
    method = next(name for name, plus in METHODS.items() if plus == plus_plus)
    return gradcams(
        subject,
        inputs,
        targets,
        methods=[method],
        block=block,
        eps=eps,
        size=size,
        batch_size=batch_size,
        progress=progress,
    )[method]


def gradcams(
    subject: Subject,
    inputs: ImageSet | Any,
    targets: int | Sequence[int] | np.ndarray | None = None,
    *,
    methods: Sequence[str] = tuple(METHODS),
    block: int = -1,
    eps: float = 1e-6,
    size: Size | tuple[int, int] | None = None,
    batch_size: int = 32,
    progress: bool = True,
) -> dict[str, CamFinding]:
    """The maps of `gradcam` by both methods from one pass: they need the same gradient.

    >>> found = vt.gradcams(subject, images)
    >>> found["Grad-CAM++"].maps, found["Grad-CAM"].maps
    """
    check_classifier(subject)
    if not methods or (wrong := [name for name in methods if name not in METHODS]):
        raise SettingsError("no such method", given=wrong if methods else "none", accepted=tuple(METHODS))
    number(eps=eps)
    asked_size = None if size is None else _checked_size(size)
    index = subject.block_number(block)
    samples = count_of(inputs)
    site = f"blocks.{index}.resid.out"
    notes: tuple[str, ...] = ()
    cams: dict[str, list[np.ndarray]] = {method: [] for method in methods}
    classes: list[tuple[np.ndarray, np.ndarray]] = []
    with evaluating(subject.module):
        for at, x in batches(subject, inputs, batch_size, progress, " and ".join(methods)):
            A, g, wanted, predicted = _gradient(subject, site, x, targets, samples, at)
            if not classes and not g.any():
                site, notes = f"blocks.{index}.resid.in", (CLASS_TOKEN.format(index),)
                A, g, wanted, predicted = _gradient(subject, site, x, targets, samples, at)
                _refuse_silence(subject, g)
            seen = Size(*x.shape[-2:])
            grid = _grid(subject, seen, index, A.shape[1])
            for method, maps in cams.items():
                maps.append(_cam(A, g, METHODS[method], eps).reshape(len(x), *grid).cpu().numpy())
            classes.append((wanted.cpu().numpy(), predicted.cpu().numpy()))
    asked, best = (np.concatenate(part) for part in zip(*classes, strict=True))
    about = {"subject": subject.name, "block": index, "eps": eps}
    return {
        method: CamFinding(
            np.concatenate(maps),
            asked,
            best,
            site,
            asked_size or seen,
            about | {"plus_plus": METHODS[method]},
            notes,
        )
        for method, maps in cams.items()
    }


def _checked_size(size: Size | tuple[int, int]) -> Size:
    sides = whole_numbers("sides of a map", size)
    if sides.shape != (2,) or sides.min() < 1:
        raise SettingsError("a size is (height, width)", given=size, accepted="two whole numbers from 1 on")
    return Size(*sides.tolist())


def _grid(subject: Subject, seen: Size, block: int, patches: int) -> Grid:
    grid = subject.grid(seen, block)
    if grid is None or grid.patches != patches:
        raise ModelError(
            f"{subject.name} has {patches} tokens after its prefix where a grid was expected",
            given=f"pictures of {seen.height} x {seen.width}",
            accepted=f"{grid}",
        )
    return grid


def _refuse_silence(subject: Subject, g: Tensor) -> None:
    if not g.any():
        raise ModelError(
            f"no class of {subject.name} depends on a patch here: the gradient is zero before and after the block",
            given=subject.family.name,
            remedy="an earlier block; a head that was never trained may be all zero",
        )


def _gradient(
    subject: Subject, site: str, x: Tensor, targets: Any, samples: int, at: slice
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A and ∂Y/∂A of the patches, the classes asked for, and those predicted.

    The pass goes on from a copy that is cut off from what made it, so nothing before the site is differentiated, and a
    gradient of weights is never formed.
    """
    leaves: list[Tensor] = []

    def cut(value: Tensor) -> Tensor:
        leaves[:] = [value.detach().requires_grad_()]
        return leaves[0]

    with torch.enable_grad(), patch(subject, {site: cut}):
        logits = logits_of(subject, x)
        predicted = wanted = logits.argmax(-1)
        if targets is not None:
            asked = classes_of(targets, samples, logits.shape[1])[at]
            wanted = torch.as_tensor(asked, device=logits.device)
        score = logits.gather(1, wanted[:, None]).sum()
        (g,) = torch.autograd.grad(score, leaves, materialize_grads=True, allow_unused=True)
    first = len(subject.prefix)
    return leaves[0].detach()[:, first:].float(), g[:, first:].float(), wanted, predicted


def _cam(A: Tensor, g: Tensor, plus_plus: bool, eps: float) -> Tensor:
    """(sample, patch)."""
    if plus_plus:
        below = 2 * g**2 + g**3 * A.sum(1, keepdim=True) + eps
        alpha = torch.where((g != 0) & (below != 0), g**2 / torch.where(below != 0, below, 1), 0)
        w = (alpha * g.relu()).sum(1)
    else:
        w = g.mean(1)
    return torch.einsum("sc,spc->sp", w, A).relu()
