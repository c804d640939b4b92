"""The structure loss (sections 3.1 to 3.5 of the structure paper) as one line in any training loop.

    paper           here        what it is
    S_layer         layers      neighbouring blocks in a draw
    S_token         tokens      neighbouring tokens in a draw
    B_cluster       -           every · accumulate · batch samples are collected before they are clustered
    β, τ/B, γ       bins, threshold, gamma
    f               -           features of the draw that was clustered last: the loss is on these
    F               -           features of the present draw, collected for the next clustering
    ℓ̄_{c,i}         -           mean over the batch of (f_i - stopgrad(f_anchor))², one for every aligned unit

Section 3.5 filters by the mean ℓ̄ but prints the sum ℓ in the numerator. `reduce="mean"` averages the ℓ̄ that are kept,
`reduce="sum"` the ℓ.

Shapes do not depend on what is found: a term is a place (pair of layers, token, channel) that is switched on or off,
and indices are tensors. So the loss can be compiled, and recorded in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.errors import SettingsError
from vitreous.lenses.structure import MOST_BINS, TRANSFORMS
from vitreous.models.subject import Subject
from vitreous.subjects import wrap
from vitreous.training import ranks
from vitreous.training.clustering import Terms, find_terms, layer_pairs, window

REDUCE = ("mean", "sum")


class StructureLoss(nn.Module):
    """Aligns units that do the same job to the first of them, along the residual stream.

    >>> structure = vt.StructureLoss(model)
    >>> for x, y in batches:
    ...     loss = structure(criterion(model(x), y))
    ...     loss.backward()

    The model may be compiled, wrapped in DistributedDataParallel, run under autocast; `accumulate` says how many calls
    make up one step of the optimiser. Of a module that no family matches, `blocks` names the modules whose outputs
    (sample, token, channel) are the residual stream. Its `state_dict` goes into the checkpoint beside the model's. What
    it does is in `log()`. `remove()` takes its hooks away.
    """

    loss_layers: Tensor
    loss_tokens: Tensor
    next_layers: Tensor
    next_tokens: Tensor
    active: Tensor
    _first: Tensor
    _second: Tensor

    def __init__(
        self,
        model: nn.Module | Subject,
        layers: int = 3,
        tokens: int = 3,
        every: int = 20,
        bins: int = 100,
        threshold: float = 1.0,
        gamma: float = 0.1,
        reduce: str = "mean",
        *,
        transform: str = "grouped_rank",
        accumulate: int = 1,
        blocks: Sequence[str] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        _refuse_wrong(layers, bins, threshold, gamma, {"tokens": tokens, "every": every, "accumulate": accumulate})
        for name, word, words in (("reduce", reduce, REDUCE), ("transform", transform, TRANSFORMS)):
            if word not in words:
                raise SettingsError(f"unknown {name}", given=word, accepted=words)
        found = _blocks(model, blocks)
        if len(found) < layers:
            raise SettingsError("more layers asked for than the model has", given=layers, accepted=f"2 to {len(found)}")
        self.layers, self.tokens, self.every, self.accumulate = layers, tokens, every, accumulate
        self.bins, self.threshold, self.gamma, self.reduce, self.transform = bins, threshold, gamma, reduce, transform
        self.depth = len(found)
        self._generator = torch.Generator().manual_seed(seed)
        self._calls = 0  # since the present draw
        self._rows = 0  # samples collected since then
        self._store: Tensor | None = None  # (sample, layer, token, channel): F, as far as it has been collected
        self._seen: dict[int, tuple[Tensor, Tensor]] = {}
        self._latest: Tensor | None = None
        self._log: dict[str, Tensor] = {}
        first, second = zip(*layer_pairs(layers), strict=True)
        self.register_buffer("_first", torch.tensor(first), persistent=False)
        self.register_buffer("_second", torch.tensor(second), persistent=False)
        # of the draw that the loss is on, and of the one that is collected; the first batch tells how many tokens there
        # are to draw from
        for draw in ("loss", "next"):
            self.register_buffer(f"{draw}_layers", torch.zeros(layers, dtype=torch.int64))
            self.register_buffer(f"{draw}_tokens", torch.zeros(tokens, dtype=torch.int64))
        self.register_buffer("active", torch.zeros(0, dtype=torch.bool))
        self.in_place = (
            False  # whether a draw is written into the same tensors: what a CUDA graph reads at every replay
        )
        self.begun = False
        self._shape: Sequence[int] = ()
        self._loss_layers: list[int] = []
        self._next_layers: list[int] = []
        self.to(next(found[0].parameters()).device)
        self._handles = [block.register_forward_hook(self._hook(n)) for n, block in enumerate(found)]

    # -- the forward pass

    def _hook(self, layer: int) -> Any:
        def see(module: nn.Module, _inputs: Any, output: Any) -> Any:
            if not (module.training and torch.is_grad_enabled()):
                return None
            if isinstance(output, Tensor):
                return self._see(layer, output)
            return (self._see(layer, output[0]), *output[1:])

        return see

    def _see(self, layer: int, stream: Tensor) -> Tensor:
        """Keeps the chosen tokens of a block's output; of every block if the program must not depend on the choice."""
        if not torch.compiler.is_compiling() and self.loss_tokens.device != stream.device:
            self.to(stream.device)
        if _fixed_program(stream) or not self.begun or layer in self._loss_layers or layer in self._next_layers:
            self._shape = stream.shape
            if stream.shape[1] == self.tokens:  # a draw is all of them
                self._seen[layer] = (stream, stream.detach())
            else:
                stream, kept = _Pick.apply(stream, self.loss_tokens)
                self._seen[layer] = (kept, stream.detach().index_select(1, self.next_tokens))
        return stream

    def _begin(self) -> None:
        """The first batch says how many tokens there are and how wide they are; collecting starts with the next."""
        if len(self._shape) != 3 or self._shape[1] < self.tokens:
            raise SettingsError(
                "the output of a block is (sample, token, channel) with no fewer tokens than a draw",
                given=tuple(self._shape),
                accepted=f"{self.tokens} tokens or more",
                remedy="ask for fewer with tokens=",
            )
        if not self.active.numel():
            shape = (len(layer_pairs(self.layers)), self.tokens, self._shape[2])
            self.active = torch.zeros(shape, dtype=torch.bool, device=self.loss_tokens.device)
            self._draw()
            self.loss_layers, self.loss_tokens = self.next_layers.clone(), self.next_tokens.clone()  # no aliases
        self._loss_layers = self._next_layers
        self._seen.clear()
        self.begun = True

    def _draw(self) -> None:
        """Section 3.1. The same on every rank: they share the seed."""
        self._loss_layers, self._next_layers = self._next_layers, window(self.depth, self.layers, self._generator)
        tokens = window(self._shape[1], self.tokens, self._generator)
        self._put("loss_layers", self.next_layers)
        self._put("loss_tokens", self.next_tokens)
        self._put("next_layers", torch.tensor(self._next_layers, device=self.active.device))
        self._put("next_tokens", torch.tensor(tokens, device=self.active.device))

    def _put(self, name: str, value: Tensor) -> None:
        """Anew, since the backward pass may still need the old one; in place where a CUDA graph reads it."""
        if self.in_place:
            self.get_buffer(name).copy_(value)
        else:
            self.register_buffer(name, value)

    # -- the loss

    def forward(self, main: Tensor) -> Tensor:
        """Mean main loss of the batch that has just gone through the model -> total loss."""
        begun = self.begun
        total = self.total(main)
        if begun:
            self.advance()
        return total

    def total(self, main: Tensor) -> Tensor:
        """The loss alone, without counting the step: this part has the same program at every step.

        Whoever records it in a CUDA graph sets `in_place` and calls `advance` after each replay.
        """
        if not self._seen:
            raise SettingsError(
                "no forward pass has been seen", remedy="call the model in training mode first, then this with its loss"
            )
        if not self.begun:
            self._begin()
            return main
        aligned, collected = self._chosen()
        self._latest = collected
        anchor = aligned.detach().index_select(0, self._first)
        terms = (aligned.index_select(0, self._second) - anchor).square().mean(1)  # (pair, token, channel)
        limit, means = ranks.mean(main.detach().float(), terms.detach())
        kept = self.active & (means <= limit)
        count = kept.sum()
        scale = aligned.shape[1] * ranks.count() if self.reduce == "sum" else 1
        aggregated = scale * torch.where(kept, terms, 0).sum() / count.clamp_min(1)
        self._log |= {"kept": count, "terms": self.active.sum(), "structure": aggregated.detach(), "main": limit}
        return main + self.gamma * aggregated

    def _chosen(self) -> tuple[Tensor, Tensor]:
        """(layer, sample, token, channel) of the draw of the loss, with gradient, and (…) of the draw collected."""
        seen, self._seen = self._seen, {}
        if len(seen) == self.depth:
            aligned = torch.stack([seen[n][0] for n in range(self.depth)]).index_select(0, self.loss_layers)
            collected = torch.stack([seen[n][1] for n in range(self.depth)]).index_select(0, self.next_layers)
        else:
            aligned = torch.stack([seen[n][0] for n in self._loss_layers])
            collected = torch.stack([seen[n][1] for n in self._next_layers])
        return aligned.float(), collected.float()

    # -- between steps

    @torch.compiler.disable
    @torch.no_grad()
    def advance(self) -> None:
        """Collects the features of this step; when there are enough, clusters them and draws anew."""
        assert self._latest is not None
        part = self._latest.transpose(0, 1)
        self._calls += 1
        steps = self.every * self.accumulate
        room = 0 if self._store is None else len(self._store)
        if self._rows + len(part) > room:
            grown = part.new_empty(max(self._rows + len(part), len(part) * steps), *part.shape[1:])
            if self._store is not None:
                grown[: self._rows] = self._store[: self._rows]  # also from another device, after a checkpoint
            self._store = grown
        assert self._store is not None
        self._store[self._rows : self._rows + len(part)] = part
        self._rows += len(part)
        if self._calls == steps:
            self._cluster()

    def _cluster(self) -> None:
        assert self._store is not None
        features = ranks.gather(self._store[: self._rows])
        terms: Terms = find_terms(features, bins=self.bins, threshold=self.threshold, transform=self.transform)
        self._put("active", terms.active)
        self._draw()
        self._calls = self._rows = 0
        self._log |= {"clusters": terms.clusters, "members": terms.members}

    def log(self) -> dict[str, float]:
        """The latest `clusters` and their `members`, `terms`, `kept` and `dropped` among them, and both losses.

        Reading it waits for the device; nothing else here does, but for the clustering.
        """
        values = {name: float(value) for name, value in self._log.items()}
        if "terms" in values:
            values["dropped"] = values["terms"] - values["kept"]
        return values

    def remove(self) -> None:
        """Takes the hooks away: the model is as it was."""
        for handle in self._handles:
            handle.remove()

    # -- checkpoints

    def get_extra_state(self) -> dict[str, Any]:
        store = None if self._store is None else self._store[: self._rows].clone()
        return {
            "calls": self._calls,
            "store": store,
            "generator": self._generator.get_state(),
            "shape": list(self._shape),
            "layers": [self._loss_layers, self._next_layers],
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._calls, self._store = state["calls"], state["store"]
        self._rows = 0 if self._store is None else len(self._store)
        self._generator.set_state(state["generator"].cpu())
        self._shape = state["shape"]
        self._loss_layers, self._next_layers = state["layers"]
        self.begun = bool(self._next_layers)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        active = state_dict.get(f"{prefix}active")
        if active is not None and active.shape != self.active.shape:  # how wide it is is known only after a batch
            self.active = torch.zeros_like(active, device=self.active.device)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _refuse_wrong(layers: int, bins: int, threshold: float, gamma: float, counts: dict[str, int]) -> None:
    if layers < 2:
        raise SettingsError("units are aligned between layers", given=f"layers={layers}", accepted="2 or more")
    for name, value in counts.items():
        if value < 1:
            raise SettingsError(f"{name} is a count", given=value, accepted="1 or more")
    if not 2 <= bins <= MOST_BINS:
        raise SettingsError("bins out of range", given=bins, accepted=f"2 to {MOST_BINS}")
    if not threshold > 0 or not gamma >= 0:
        raise SettingsError("threshold and gamma are positive", given=f"{threshold=}, {gamma=}")


def _blocks(model: nn.Module | Subject, blocks: Sequence[str] | None) -> list[nn.Module]:
    if isinstance(model, Subject):
        return [model.module.get_submodule(block.sites["resid.out"].path) for block in model.blocks]
    from torch._dynamo import OptimizedModule
    from torch.nn.parallel import DistributedDataParallel

    while isinstance(model, OptimizedModule | DistributedDataParallel):
        model = model._orig_mod if isinstance(model, OptimizedModule) else model.module
    if blocks is None:
        return _blocks(wrap(model), None)
    modules = dict(model.named_modules())
    if missing := [path for path in blocks if path not in modules]:
        raise SettingsError("no such module", given=missing, accepted=tuple(modules)[1:])
    return [modules[path] for path in blocks]


class _Pick(torch.autograd.Function):
    """A stream (sample, token, channel) as it is, and some of its tokens.

    Backward, their gradient is added to the few places it belongs to; left to itself, autograd would fill and add a
    gradient of the whole stream for every block.
    """

    @staticmethod
    def forward(ctx: Any, stream: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(places)
        return stream.view_as(stream), stream.index_select(1, places)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        whole, some = gradients
        (places,) = ctx.saved_tensors
        return whole.index_add(1, places, some.to(whole.dtype)), None


def _fixed_program(stream: Tensor) -> bool:
    """Whether what runs now is being recorded and will run again with other choices."""
    return torch.compiler.is_compiling() or _capturing(stream)


def _capturing(tensor: Tensor) -> bool:
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()
