"""How the structure loss looks into a model: at which blocks, and what it takes of their outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.errors import ModelError, SettingsError
from vitreous.models.subject import Subject
from vitreous.subjects import wrap


def find_blocks(model: nn.Module | Subject, blocks: Sequence[str] | None) -> list[nn.Module]:
    """The modules whose outputs are the residual stream, in the order of the stream."""
    if isinstance(model, Subject):
        return [model.module.get_submodule(block.sites["resid.out"].path) for block in model.blocks]
    from torch._dynamo import OptimizedModule
    from torch.nn.parallel import DataParallel, DistributedDataParallel

    if isinstance(model, DataParallel):
        raise SettingsError(
            "the copies that DataParallel makes at every step cannot be watched",
            given="torch.nn.DataParallel",
            remedy="DistributedDataParallel, one process a device: `torchrun`",
        )
    while isinstance(model, OptimizedModule | DistributedDataParallel):
        model = model._orig_mod if isinstance(model, OptimizedModule) else model.module
    if not isinstance(model, nn.Module):
        raise SettingsError(
            "the model is a torch module or a subject", given=type(model).__name__, remedy="vt.load(...) opens one"
        )
    if blocks is None:
        try:
            return find_blocks(wrap(model), None)
        except ModelError as error:  # a loss needs no more of a model than its blocks
            what = error.parts["what"].split(";")[0]
            remedy = 'name its blocks: StructureLoss(model, blocks=["layers.0", "layers.1", ...])'
            raise ModelError(what, given=type(model).__name__, remedy=remedy) from None
    if not isinstance(blocks, list | tuple) or not all(isinstance(path, str) for path in blocks):
        raise SettingsError("blocks are paths of modules", given=blocks, accepted='such as ["blocks.0", "blocks.1"]')
    modules = dict(model.named_modules())
    if missing := [path for path in blocks if path not in modules]:
        raise SettingsError("no such module", given=missing, accepted=tuple(modules)[1:])
    return [modules[path] for path in blocks]


class Watch:
    """A forward hook that shows one block's output to `see(layer, stream)` and passes on what that gives.

    Copies of a model carry its hooks along: averaged weights, replicas, a module saved whole. Such a hook sees that the
    module is not the one it was made for, or is a `Blind` one, and does nothing. Nor does it when activation
    checkpointing runs a block again during the backward pass.
    """

    def __init__(self, block: nn.Module, layer: int, see: Callable[[int, Tensor], Tensor]) -> None:
        self.block, self.layer, self.see = block, layer, see

    def __call__(self, module: nn.Module, _inputs: Any, output: Any) -> Any:
        if module is not self.block or not module.training or not torch.is_grad_enabled() or _in_backward():
            return None
        if isinstance(output, Tensor):
            return self.see(self.layer, output)
        if isinstance(output, tuple) and isinstance(output[0], Tensor):
            return (self.see(self.layer, output[0]), *output[1:])
        raise SettingsError(
            "the output of a block is a tensor, or a tuple that begins with one", given=type(output).__name__
        )

    def __reduce__(self) -> tuple[type[Blind], tuple[()]]:
        return Blind, ()


class Blind:
    """What is left of a `Watch` in a copy."""

    def __call__(self, *_: Any) -> None:
        return None


class Pick(torch.autograd.Function):
    """A stream (sample, token, channel) as it is, and some of its tokens: neighbours at `places`, and `more`.

    Backward, the gradient of the former is added to the few places it belongs to; that of `more` is dropped. Left to
    itself, autograd would fill and add a gradient of the whole stream for every block. A compiler gets the sum as one
    expression for every place, which it puts into the kernel that makes the gradient anyway; an addition by index would
    be a copy of the whole and a kernel of its own. The stream is copied, since the next block may write into it and
    autograd lets nobody write into a view that a function gives; a compiler removes the copy.

    `places` is kept as it is, not as a saved tensor: activation checkpointing counts those, and runs the block again
    when the next draw may have been made.
    """

    @staticmethod
    def forward(ctx: Any, stream: Tensor, places: Tensor, more: Tensor) -> tuple[Tensor, Tensor]:
        ctx.places = places
        return stream.clone(), stream.index_select(1, torch.cat([places, more]))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        whole, some = gradients
        width = len(ctx.places)
        some = some[:, :width].to(whole.dtype)
        if not torch.compiler.is_compiling():
            return whole.index_add(1, ctx.places, some), None, None
        nth = torch.arange(whole.shape[1], device=whole.device) - ctx.places[0]
        here = ((nth >= 0) & (nth < width))[None, :, None]
        return whole + torch.where(here, some.index_select(1, nth.clamp(0, width - 1)), 0), None, None


def inside(tokens: Tensor, stream: Tensor, reach: Sequence[int]) -> Tensor:
    """Tokens of a draw that are in the stream: of a batch that is too short, whatever there is; nobody uses it."""
    if fixed_program(stream) or stream.shape[1] < max(reach):
        return tokens.to(stream.device).clamp_max(stream.shape[1] - 1)
    return tokens


def fixed_program(tensor: Tensor) -> bool:
    """Whether what runs now is being recorded and will run again with other choices."""
    return torch.compiler.is_compiling() or (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def _in_backward() -> bool:
    """As `torch.utils.checkpoint` asks it."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1
