"""The words for axes. Every signature and docstring uses these and no others.

    sample    one picture or one text
    token     one position of the residual stream: prefix tokens first, then patches row by row (or words)
    prefix    tokens before the patches: class token, registers
    patch     a token that stands for a square of the picture
    channel   one coordinate of an activation vector
    unit      (layer, token, channel) in structure; one channel of a site elsewhere
    head      one attention head
    block     one transformer (or ConvNeXt) block, counted from 0
    layer     blocks in order, where a method counts them
    site      a named place in a block, such as `blocks.3.mlp.out`
    grid      rows and columns of patches
    pixel     of the original picture, (row, column), origin at the top left

Activations are (sample, token, channel), attention patterns (sample, head, query, key), pictures (row, column, colour)
uint8 or, once preprocessed, (colour, row, column) float32.
"""

from __future__ import annotations

from typing import NamedTuple


class Grid(NamedTuple):
    """Rows and columns of patches."""

    rows: int
    columns: int

    @property
    def patches(self) -> int:
        return self.rows * self.columns


class Size(NamedTuple):
    """Height and width in pixels."""

    height: int
    width: int
