"""What enters and leaves a linear layer in a forward pass, before and after somebody has changed what leaves it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.subunits.layers import LinearLayer

Codes = Callable[[], Tensor]
"""Activations (sample, position, unit) of the latest pass."""

Swap = Callable[[Tensor, Tensor], tuple[Tensor, Tensor | None]]
"""From inputs (sample, position, input) and outputs (sample, position, channel) of a layer to the codes and to what
takes the outputs' place; None leaves them."""


class Tapped:
    """The latest pass: inputs `q`, outputs `before` and `after` the change, (sample, position, ...) each."""

    q: Tensor
    before: Tensor
    after: Tensor


def rows_of(layer: LinearLayer, output: Tensor) -> Tensor:
    """What a layer gives -> (sample, position, unit), the layer's part of it."""
    whole = output.flatten(2).mT if layer.channel_axis == 1 else output.reshape(len(output), -1, output.shape[-1])
    return whole[..., layer.first : layer.first + layer.count]


def put_rows(layer: LinearLayer, output: Tensor, rows: Tensor) -> Tensor:
    """The output with (sample, position, unit) in place of the layer's part of it."""
    axis, end = layer.channel_axis, layer.first + layer.count
    if axis == 1:
        rows = rows.mT.reshape(len(rows), -1, *output.shape[2:])
    else:
        rows = rows.reshape(*output.shape[:-1], -1)
    behind = output.narrow(axis, end, output.shape[axis] - end)
    return torch.cat([output.narrow(axis, 0, layer.first), rows.to(output), behind], axis)


@contextmanager
def tapped(layer: LinearLayer, inside: AbstractContextManager[Codes]) -> Iterator[tuple[Tapped, Codes]]:
    """Watches the layer while `inside` does to it what it does. Hooks run in the order in which they were put in."""
    seen = Tapped()

    def first(_: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        seen.q, seen.before = layer.rows(args[0]), rows_of(layer, output)

    def last(_: nn.Module, __: tuple[Any, ...], output: Tensor) -> None:
        seen.after = rows_of(layer, output)

    handle = layer.module.register_forward_hook(first)
    try:
        with inside as codes:
            end = layer.module.register_forward_hook(last)
            try:
                yield seen, codes
            finally:
                end.remove()
    finally:
        handle.remove()


@contextmanager
def swapped(layer: LinearLayer, swap: Swap) -> Iterator[Codes]:
    """Puts what `swap` makes in the place of the layer's output."""
    found: list[Tensor] = []

    def change(_: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor | None:
        codes, new = swap(layer.rows(args[0]), rows_of(layer, output))
        found[:] = [codes]
        return None if new is None else put_rows(layer, output, new)

    handle = layer.module.register_forward_hook(change)
    try:
        yield lambda: found[0]
    finally:
        handle.remove()
