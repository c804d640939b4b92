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
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.checks import whole
from vitreous.errors import SettingsError
from vitreous.lenses.structure import MOST_BINS, TRANSFORMS
from vitreous.models.subject import Subject
from vitreous.training import ranks
from vitreous.training.clustering import Terms, find_terms, layer_pairs, window
from vitreous.training.collected import Collected
from vitreous.training.streams import Pick, Watch, find_blocks, fixed_program, inside

REDUCE = ("mean", "sum")
NOT_SEEN = (
    "call the model in training mode, then this with its loss; make this before a compiled model first runs; "
    "checkpoint activations with use_reentrant=False"
)


class StructureLoss(nn.Module):
    """Aligns units that do the same job to the first of them, along the residual stream.

    >>> structure = vt.StructureLoss(model)
    >>> for x, y in batches:
    ...     loss = structure(criterion(model(x), y))
    ...     loss.backward()

    The criterion is the mean over the batch. The model may be compiled, wrapped in DistributedDataParallel, run under
    autocast or with activation checkpointing; `accumulate` says how many calls make up one step of the optimiser, and
    it is the total that is divided by it. Batches may differ in their number of tokens: one that is shorter than a draw
    reaches is left out. Of a module that no family matches, `blocks` names the modules whose outputs
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
        whole(0, seed=seed)
        for name, word, words in (("reduce", reduce, REDUCE), ("transform", transform, TRANSFORMS)):
            if word not in words:
                raise SettingsError(f"unknown {name}", given=word, accepted=words)
        found = find_blocks(model, blocks)
        _refuse_shallow(layers, len(found))
        self.layers, self.tokens, self.every, self.accumulate = layers, tokens, every, accumulate
        self.bins, self.threshold, self.gamma, self.reduce, self.transform = bins, threshold, gamma, reduce, transform
        self.depth = len(found)
        self._generator = torch.Generator().manual_seed(seed)
        self._calls = 0  # since the present draw
        self._collected = Collected()
        self._reach = [0, 0]  # tokens that a batch needs for the draw of the loss, and for the one collected
        self._least = 0  # tokens of the shortest batch since the present draw that is long enough for any; 0: none yet
        self._left_out = 0  # batches since then that were too short
        # by layer (sample, tokens of the loss, then tokens collected, channel); once, where a draw is all tokens
        self._seen: dict[int, Tensor] = {}
        self._latest: Tensor | None = None
        self._log: dict[str, Tensor] = {}
        first, second = zip(*layer_pairs(layers), strict=True)
        self.register_buffer("_first", torch.tensor(first), persistent=False)
        self.register_buffer("_second", torch.tensor(second), persistent=False)
        # of the draw of the loss, and of the one that is collected; the first batch tells how many tokens there are
        for draw in ("loss", "next"):
            self.register_buffer(f"{draw}_layers", torch.zeros(layers, dtype=torch.int64))
            self.register_buffer(f"{draw}_tokens", torch.zeros(tokens, dtype=torch.int64))
        self.register_buffer("active", torch.zeros(0, dtype=torch.bool))
        # whether a draw is written into the same tensors: what a CUDA graph reads at every replay
        self.in_place = False
        self.begun = False
        self._shape: Sequence[int] = ()
        self._loss_layers: list[int] = []
        self._next_layers: list[int] = []
        if (parameter := next(found[0].parameters(), None)) is not None:
            self.to(parameter.device)
        self._handles = [block.register_forward_hook(Watch(block, n, self._see)) for n, block in enumerate(found)]

    # -- the forward pass

    def _see(self, layer: int, stream: Tensor) -> Tensor:
        """Keeps the chosen tokens of a block's output; of every block if the program must not depend on the choice."""
        if not torch.compiler.is_compiling() and self.loss_tokens.device != stream.device:
            self.to(stream.device)
        every = fixed_program(stream) or not self.begun
        if not every and layer not in self._loss_layers and layer not in self._next_layers:
            return stream
        if stream.ndim != 3:
            raise SettingsError("the output of a block is (sample, token, channel)", given=tuple(stream.shape))
        self._shape = stream.shape
        if stream.shape[1] == self.tokens:  # a draw is all of them; a copy, since the next block may write into it
            self._seen[layer] = stream.clone()
            return stream
        places = [inside(tokens, stream, self._reach) for tokens in (self.loss_tokens, self.next_tokens)]
        if every or layer in self._loss_layers:
            stream, self._seen[layer] = Pick.apply(stream, *places)
        else:  # collected alone: no gradient, so the stream goes on as it is
            self._seen[layer] = stream.detach().index_select(1, torch.cat(places))
        return stream

    @torch.compiler.disable
    def _begin(self) -> None:
        """The first batch says how many tokens there are and how wide they are; collecting starts with the next."""
        _refuse_uneven([tuple(kept.shape) for kept in self._seen.values()], self._shape, self.tokens)
        if not self.active.numel():
            shape = (len(layer_pairs(self.layers)), self.tokens, self._shape[2])
            self.active = torch.zeros(shape, dtype=torch.bool, device=self.loss_tokens.device)
            self._draw(*ranks.least(self._shape[1], device=self.active.device))
            # copies: two names for one tensor would be written together
            self.loss_layers, self.loss_tokens = self.next_layers.clone(), self.next_tokens.clone()
        self._loss_layers, self._reach[0] = self._next_layers, self._reach[1]
        self._seen = {}
        self.begun = True

    def _draw(self, length: int) -> None:
        """Section 3.1, among the first `length` tokens. The same on every rank: they share the seed."""
        self._loss_layers, self._next_layers = self._next_layers, window(self.depth, self.layers, self._generator)
        tokens = window(length, self.tokens, self._generator)
        self._reach = [self._reach[1], tokens[-1] + 1]
        self._put("loss_layers", self.next_layers)
        self._put("loss_tokens", self.next_tokens)
        for name, run in (("next_layers", self._next_layers), ("next_tokens", tokens)):
            # counted there: numbers from here would have to wait until the device has nothing else to do
            self._put(name, torch.arange(run[0], run[-1] + 1, device=self.active.device))
        self._calls = self._least = self._left_out = self._collected.rows = 0

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
        _refuse_many(main)
        if not self._seen:
            raise SettingsError("no forward pass has been seen", remedy=NOT_SEEN)
        if not self.begun:
            self._begin()
            return main
        aligned, self._latest = self._chosen()
        if not torch.compiler.is_compiling() and self.active.device != aligned.device:
            self.to(aligned.device)  # a compiled model has been moved
        anchor = aligned.detach().index_select(0, self._first)
        gap = aligned.index_select(0, self._second) - anchor  # (pair, sample, token, channel)
        fits = self.loss_tokens[-1] < self._shape[1]
        # a step gets the mean over its ranks and calls, so a sum over its whole batch counts once for each of them
        scale = ranks.count() * self.accumulate if self.reduce == "sum" else 1 / gap.shape[1]
        aggregated, count, limit = _aggregate(main, gap, self.active, fits, scale)
        self._log |= {"kept": count, "terms": self.active.sum(), "structure": aggregated.detach(), "main": limit}
        return main + self.gamma * aggregated

    def _chosen(self) -> tuple[Tensor, Tensor]:
        """(layer, sample, token, channel) of the draw of the loss, with gradient, and (…) of the draw collected."""
        seen, self._seen = self._seen, {}
        if len(seen) == self.depth and fixed_program(seen[0]):
            whole = torch.stack([seen[n] for n in range(self.depth)])
            aligned = whole[:, :, : self.tokens].index_select(0, self.loss_layers)
            collected = whole.detach()[:, :, -self.tokens :].index_select(0, self.next_layers)
            return aligned.float(), collected.float()
        _refuse_unseen({*self._loss_layers, *self._next_layers} - set(seen))
        aligned = torch.stack([seen[n][:, : self.tokens] for n in self._loss_layers])
        collected = torch.stack([seen[n].detach()[:, -self.tokens :] for n in self._next_layers])
        return aligned.float(), collected.float()

    # -- between steps

    @torch.compiler.disable
    @torch.no_grad()
    def advance(self) -> None:
        """Collects the features of this step; when there are enough, clusters them and draws anew."""
        assert self._latest is not None
        part, length = self._latest.transpose(0, 1), self._shape[1]
        self._calls += 1
        steps = self.every * self.accumulate
        if length >= self.tokens:
            self._least = min(self._least or length, length)
        if length >= self._reach[1]:
            self._collected.add(part, steps)
        else:
            self._left_out += 1
        if self._calls >= steps:
            self._cluster(part)

    def _cluster(self, part: Tensor) -> None:
        features = ranks.gather(self._collected.samples(part))
        length, left_out = ranks.least(self._least or max(self._reach), -self._left_out, device=features.device)
        if left_out and len(features) < self.bins:  # nothing to learn from these; the next draw is from shorter batches
            self._put("active", torch.zeros_like(self.active))
        else:
            terms: Terms = find_terms(features, bins=self.bins, threshold=self.threshold, transform=self.transform)
            self._put("active", terms.active)
            self._log |= {"clusters": terms.clusters, "members": terms.members}
        self._draw(length)

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
        return {
            "calls": self._calls,
            "store": self._collected.kept(),
            "generator": self._generator.get_state(),
            "shape": list(self._shape),
            "layers": [self._loss_layers, self._next_layers],
            "lengths": [*self._reach, self._least, self._left_out],
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._calls, self._collected = state["calls"], Collected(state["store"])
        self._generator.set_state(state["generator"].cpu())
        self._shape = state["shape"]
        self._loss_layers, self._next_layers = state["layers"]
        *self._reach, self._least, self._left_out = state["lengths"]
        self.begun = bool(self._next_layers)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        active = state_dict.get(f"{prefix}active")
        if active is not None and active.shape != self.active.shape:  # how wide it is is known only after a batch
            self.active = torch.zeros_like(active, device=self.active.device)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _refuse_wrong(layers: int, bins: int, threshold: float, gamma: float, counts: dict[str, int]) -> None:
    for name, value in {"layers": layers, "bins": bins, **counts}.items():
        if not isinstance(value, Integral) or isinstance(value, bool):
            raise SettingsError(f"{name} is a whole number", given=value)
    for name, number in {"threshold": threshold, "gamma": gamma}.items():
        if not isinstance(number, Real) or isinstance(number, bool):
            raise SettingsError(f"{name} is a number", given=number)
    if layers < 2:
        raise SettingsError("units are aligned between layers", given=f"layers={layers}", accepted="2 or more")
    for name, value in counts.items():
        if value < 1:
            raise SettingsError(f"{name} is a count", given=value, accepted="1 or more")
    if not 2 <= bins <= MOST_BINS:
        raise SettingsError("bins out of range", given=bins, accepted=f"2 to {MOST_BINS}")
    if not 0 < threshold < float("inf") or not 0 <= gamma < float("inf"):
        raise SettingsError("threshold and gamma are positive", given=f"{threshold=}, {gamma=}")


def _refuse_shallow(layers: int, there: int) -> None:
    if there < layers:
        most = f"2 to {there}" if there > 1 else "a model with two blocks or more"
        raise SettingsError("more layers asked for than the model has", given=layers, accepted=most)


def _refuse_many(main: Tensor) -> None:
    if not isinstance(main, Tensor):
        raise SettingsError("the main loss is a tensor", given=type(main).__name__)
    if main.ndim:
        raise SettingsError(
            "the main loss is one number, the mean over the batch", given=f"a tensor of {tuple(main.shape)}"
        )


def _refuse_unseen(missing: set[int]) -> None:
    if missing:
        raise SettingsError(
            "some blocks of the draw have not run in training mode", given=f"blocks {sorted(missing)}", remedy=NOT_SEEN
        )


def _refuse_uneven(seen: list[tuple[int, ...]], shape: Sequence[int], tokens: int) -> None:
    if shape[1] < tokens:
        raise SettingsError(
            "the output of a block has fewer tokens than a draw",
            given=tuple(shape),
            accepted=f"{tokens} tokens or more",
            remedy="ask for fewer with tokens=",
        )
    if len(set(seen)) > 1:
        raise SettingsError("blocks are aligned only if they are equally wide", given=sorted(set(seen)))


def _aggregate(main: Tensor, gap: Tensor, active: Tensor, fits: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Section 3.5: gaps (pair, sample, token, channel) -> aggregated loss, how many terms it kept, main loss of all.

    What is dropped is dropped before it is squared: the square of infinity has no gradient, not even times zero.
    """
    limit, means, fits = ranks.mean(main.detach().float(), gap.detach().square().mean(1), fits.float())
    kept = active & (means <= limit) & (fits == 1)  # the batch is long enough on every rank
    count = kept.sum()
    summed = torch.where(kept[:, None], gap, 0).square().sum()
    return scale * summed / count.clamp_min(1), count, limit
