"""From a picture to what a model eats, and maps over the model's input carried back to the picture's own pixels.

The steps are the ones that timm, torchvision and Hugging Face publish for image classifiers: resize (the shorter side,
or both sides exactly), crop the centre, scale to [0, 1], subtract the mean and divide by the standard deviation. They
run on Pillow images, whose resampling is the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from vitreous.axes import Grid, Size
from vitreous.errors import ImageError, SettingsError

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")


@dataclass(frozen=True)
class Frame:
    """Where the model's input lies in one original picture: resized to `resized`, then cut at (`top`, `left`)."""

    original: Size
    resized: Size
    top: int
    left: int
    size: Size

    def to_pixels(self, values: np.ndarray, mode: Literal["nearest", "bilinear", "bicubic"] = "bilinear") -> np.ndarray:
        """Carries maps (..., row, column) over the model's input to the original pixels (..., height, width).

        Pixels that the crop cut away are NaN: the model never saw them.
        """
        import torch
        import torch.nn.functional as F

        y = (np.arange(self.original.height) + 0.5) * self.resized.height / self.original.height - self.top
        x = (np.arange(self.original.width) + 0.5) * self.resized.width / self.original.width - self.left
        seen = ((y >= 0) & (y <= self.size.height))[:, None] & ((x >= 0) & (x <= self.size.width))[None, :]
        at = np.stack(np.meshgrid(x / self.size.width, y / self.size.height), -1) * 2 - 1
        before, grid = np.shape(values)[:-2], np.shape(values)[-2:]
        maps = torch.as_tensor(np.asarray(values, np.float32)).reshape(math.prod(before), 1, *grid)
        where = torch.as_tensor(at, dtype=torch.float32).expand(len(maps), -1, -1, -1)
        out = F.grid_sample(maps, where, mode=mode, padding_mode="border", align_corners=False).numpy()
        return np.where(seen, out.reshape(*before, *self.original), np.float32(np.nan))

    def to_input(self, mask: np.ndarray) -> np.ndarray:
        """Carries a label map (height, width) of the original picture to the model's input, without mixing labels."""
        if mask.shape != self.original:
            raise ImageError(
                "a mask that is not as large as its picture", given=mask.shape, accepted=f"{self.original}"
            )
        y = (np.arange(self.size.height) + self.top + 0.5) * self.original.height / self.resized.height
        x = (np.arange(self.size.width) + self.left + 0.5) * self.original.width / self.resized.width
        rows = np.clip(np.floor(y).astype(int), 0, self.original.height - 1)
        columns = np.clip(np.floor(x).astype(int), 0, self.original.width - 1)
        return mask[rows[:, None], columns[None, :]]

    def patch_box(self, grid: Grid, patch: int) -> tuple[float, float, float, float]:
        """The patch as (x0, y0, x1, y1) in original pixels."""
        if not 0 <= patch < grid.patches:
            raise SettingsError("no such patch", given=patch, accepted=f"0 to {grid.patches - 1}; no prefix tokens")
        row, column = divmod(patch, grid.columns)
        fy, fx = self.original.height / self.resized.height, self.original.width / self.resized.width
        h, w = self.size.height / grid.rows, self.size.width / grid.columns
        x0, y0 = (column * w + self.left) * fx, (row * h + self.top) * fy
        return x0, y0, x0 + w * fx, y0 + h * fy


@dataclass(frozen=True)
class Preprocess:
    """What a model does to a picture before it looks.

    `resize` is an int (the shorter side gets this length) or a `Size` (both sides, aspect not kept). `source` says
    where the numbers come from, so that an assumption never passes for knowledge. `rounding` is for a crop whose middle
    falls between two pixels: torchvision and timm round half to even, Hugging Face rounds down.
    """

    size: Size
    resize: int | Size
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    interpolation: str = "bicubic"
    source: str = "given"
    rounding: Literal["even", "down"] = "even"

    def __post_init__(self) -> None:
        for name in ("mean", "std"):  # lists, where they were read from JSON
            object.__setattr__(self, name, tuple(self.__dict__[name]))
        object.__setattr__(self, "size", Size(*self.size))
        object.__setattr__(
            self, "resize", Size(*self.resize) if isinstance(self.resize, Sequence) else int(self.resize)
        )
        if self.interpolation not in INTERPOLATIONS:
            raise SettingsError("unknown interpolation", given=self.interpolation, accepted=INTERPOLATIONS)
        shorter = self.resize if isinstance(self.resize, int) else min(self.resize)
        if shorter < 1 or min(self.size) < 1:
            raise SettingsError("sizes must be positive", given=(self.size, self.resize))
        if len(self.mean) != 3 or len(self.std) != 3 or not all(v > 0 for v in self.std):
            raise SettingsError("mean and std have three values, std above 0", given=(self.mean, self.std))
        if self.rounding not in ("even", "down"):
            raise SettingsError("unknown rounding", given=self.rounding, accepted=("even", "down"))

    def at(self, height: int, width: int | None = None) -> Preprocess:
        """The same steps for another input size; the share that the crop cuts away stays the same."""
        size = Size(height, width or height)
        if isinstance(self.resize, int):
            resize: int | Size = max(min(size), round(self.resize * min(size) / min(self.size)))
        else:
            sides = zip(size, self.resize, self.size, strict=True)
            resize = Size(*(max(new, round(to * new / old)) for new, to, old in sides))
        return replace(self, size=size, resize=resize)

    def frame(self, original: Size) -> Frame:
        """Where the model's input lies in a picture of this size."""
        if isinstance(self.resize, int):
            h, w = original
            shorter, longer = min(h, w), max(h, w)
            length = int(self.resize * longer / shorter)
            resized = Size(self.resize, length) if h <= w else Size(length, self.resize)
        else:
            resized = self.resize
        if resized.height < self.size.height or resized.width < self.size.width:
            raise ImageError(
                "the crop is larger than the resized picture",
                given=f"picture {tuple(original)}, resized {tuple(resized)}, crop {tuple(self.size)}",
                remedy="use a Preprocess whose resize is at least its size",
            )
        middle = round if self.rounding == "even" else math.floor
        top = middle((resized.height - self.size.height) / 2)
        left = middle((resized.width - self.size.width) / 2)
        return Frame(Size(*original), resized, top, left, self.size)

    def __call__(self, image: Image) -> np.ndarray:
        """An RGB picture -> float32 (colour, row, column), ready for the model."""
        from PIL import Image as pil

        if image.mode != "RGB":
            raise ImageError("only RGB pictures are preprocessed", given=image.mode, remedy="open it with vt.ImageSet")
        frame = self.frame(Size(image.height, image.width))
        if frame.resized != frame.original:
            image = image.resize(
                (frame.resized.width, frame.resized.height), pil.Resampling[self.interpolation.upper()]
            )
        h, w = frame.size
        pixels = np.asarray(image, np.uint8)[frame.top : frame.top + h, frame.left : frame.left + w]
        scaled = np.ascontiguousarray(pixels.transpose(2, 0, 1)).astype(np.float32) / np.float32(255)
        mean, std = (np.asarray(v, np.float32)[:, None, None] for v in (self.mean, self.std))
        return (scaled - mean) / std

    def to_uint8(self, x: np.ndarray) -> np.ndarray:
        """Undoes the normalisation: (colour, row, column) float -> (row, column, colour) uint8, for looking at."""
        mean, std = (np.asarray(v, np.float32)[:, None, None] for v in (self.mean, self.std))
        return (np.clip(x * std + mean, 0, 1) * 255).round().astype(np.uint8).transpose(1, 2, 0)
