"""What we know of a published architecture: paths, and nothing that a module could tell itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from vitreous.axes import Grid, Size
from vitreous.models.site import Site

if TYPE_CHECKING:
    from torch import Tensor, nn


def strided_grid(root: nn.Module, size: Size, block: str) -> Grid:
    """Rows and columns after every strided convolution that comes before the block: patch cutting and downsampling."""
    from torch import nn

    rows, columns = size
    for path, module in root.named_modules():
        if path == block:
            break
        if isinstance(module, nn.Conv2d) and max(module.stride) > 1:
            (kh, kw), (sh, sw), (dh, dw) = module.kernel_size, module.stride, module.dilation
            ph, pw = (0, 0) if isinstance(module.padding, str) else module.padding
            rows = math.floor((rows + 2 * ph - dh * (kh - 1) - 1) / sh) + 1
            columns = math.floor((columns + 2 * pw - dw * (kw - 1) - 1) / sw) + 1
    return Grid(int(rows), int(columns))


def image_only(root: nn.Module, x: Tensor) -> dict[str, Any]:  # noqa: ARG001
    return {"pixel_values": x}


@dataclass(frozen=True)
class Family:
    """One row of the table.

    Paths are relative to the root: the outermost module of one of the `roots` classes, wherever a larger model keeps
    it. A site may be a tuple of alternatives; the first that exists in a block is taken. `mlp`, `norms` and `attn` are
    modules within a block; `width` is a parameter as wide as the residual stream. `normed_stream` says that the stream
    itself goes through the norms, after attention and after the MLP were added. `during` are values of the root's
    configuration that hold while a subject is called, and only then.
    """

    name: str
    source: Literal["timm", "hf", "torchvision", "own"]
    roots: tuple[str, ...]
    blocks: str
    block_classes: tuple[str, ...]
    sites: Mapping[str, Site | tuple[Site, ...]]
    width: str
    mlp: tuple[str, ...]
    norms: tuple[str, ...]
    normed_stream: bool = False
    attn: str | None = None
    heads: tuple[str, ...] = ()
    norm: str | None = None
    head: tuple[str, ...] = ()
    prefix: tuple[tuple[str, str], ...] = ()
    modality: Literal["image", "text"] = "image"
    image_size: str | None = None
    prepare: Callable[[nn.Module, Tensor], dict[str, Any]] | None = None
    during: Mapping[str, Any] = field(default_factory=dict)
    grid: Callable[[nn.Module, Size, str], Grid] = strided_grid
    examples: tuple[str, ...] = field(default=(), compare=False)

    @property
    def attention(self) -> bool:
        return bool(self.heads)
