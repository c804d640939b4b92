"""One model in training: its optimiser, its loss, one step, and the state that a checkpoint keeps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.errors import SettingsError
from vitreous.training import ranks
from vitreous.training.batches import Batch
from vitreous.training.recipes import Recipe
from vitreous.training.structure_loss import StructureLoss

WARM = 3  # steps before a program is recorded, in which libraries choose their kernels


class Trainee:
    """A model, how it is trained, and one step of it.

    On CUDA the whole step, from the forward pass to the optimiser, is compiled and recorded once in a CUDA graph: for
    small networks, launching kernels one by one takes longer than running them.
    """

    def __init__(
        self, recipe: Recipe, classes: int, device: torch.device, *, structure: bool, compiled: bool | None = None
    ) -> None:
        self.recipe, self.device = recipe, device
        self.model = build(recipe, classes).to(device).train()
        self.structure = _loss(self.model, recipe) if structure else None
        self.wrapped: nn.Module = _distributed(self.model, device)
        self.fast = device.type == "cuda" and self.wrapped is self.model if compiled is None else compiled
        self.optimiser = _optimiser(self.model, recipe, device)
        half = recipe.amp == "float16" and device.type == "cuda"
        self.scaler = torch.amp.GradScaler(device.type, enabled=half)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=recipe.smoothing)
        self._loss: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = self._forward
        self._graph: Any = None
        self._inputs: Batch | None = None
        self._main = torch.zeros((), device=device)

    def step(self, x: Tensor, y: Tensor, lr: float) -> Tensor:
        """One update; gives the main loss, which stays on the device and is overwritten by the next step."""
        for group in self.optimiser.param_groups:
            group["lr"].fill_(lr) if isinstance(group["lr"], Tensor) else group.update(lr=lr)
        if self.fast:
            if self._graph is None:
                self._record(x, y)
            assert self._inputs is not None
            for kept, new in zip(self._inputs, (x, y), strict=True):
                kept.copy_(new)
            self._graph.replay()
        else:
            self._update(x, y)
        if self.structure is not None:
            self.structure.advance()
        return self._main

    def _forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        with self._autocast():
            main = self.criterion(self.wrapped(x), y)
        return (main if self.structure is None else self.structure.total(main)), main.detach()

    def _update(self, x: Tensor, y: Tensor) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        total, self._main = self._loss(x, y)
        self.scaler.scale(total).backward()
        self.scaler.step(self.optimiser)
        self.scaler.update()

    def _autocast(self) -> Any:
        if self.recipe.amp == "none" or self.device.type != "cuda":
            return nullcontext()
        return torch.autocast("cuda", dtype={"float16": torch.float16, "bfloat16": torch.bfloat16}[self.recipe.amp])

    def begin(self, x: Tensor, y: Tensor) -> None:
        """Lets the structure loss see a batch, which tells it how many tokens there are. Nothing is updated."""
        if self.structure is not None and not self.structure.begun:
            with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
                self._forward(x, y)

    def _record(self, x: Tensor, y: Tensor) -> None:
        """Compiles and records a step. What the warm-up changes is put back."""
        before = self.state()
        self._inputs = (x.clone(), y.clone())
        self._loss = torch.compile(self._forward)
        if self.structure is not None:
            self.structure.in_place = True
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside), torch.random.fork_rng(devices=[self.device]):
            for _ in range(WARM):
                self._update(*self._inputs)
        torch.cuda.current_stream().wait_stream(aside)
        self.optimiser.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()  # a graph has memory of its own
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._update(*self._inputs)
        self.load(before)

    # -- what a checkpoint keeps

    def state(self) -> dict[str, Any]:
        """Copies, on the processor."""
        state = {
            "model": self.model.state_dict(),
            "optimiser": [self.optimiser.state[p] for p in self.model.parameters()],
            "scaler": self.scaler.state_dict(),
            "structure": None if self.structure is None else self.structure.state_dict(),
        }
        return _copied(state)

    def load(self, state: dict[str, Any]) -> None:
        """Into the very tensors that are there: a recorded step goes on with them."""
        self.model.load_state_dict(state["model"])
        for parameter, kept in zip(self.model.parameters(), state["optimiser"], strict=True):
            here = self.optimiser.state[parameter]
            if not kept:  # nothing had been updated yet
                for value in here.values():
                    value.zero_()
            for name, value in kept.items():
                here[name] = here[name].copy_(value) if name in here else _placed(name, value, parameter)
        if state["scaler"]:  # empty where half precision was not used: a run may move between devices
            self.scaler.load_state_dict(state["scaler"])
        if self.structure is not None:
            self.structure.load_state_dict(state["structure"])

    @torch.no_grad()
    def accuracy(self, batches: Any) -> float:
        """Share of correct answers, in percent."""
        self.model.eval()
        right, count = torch.zeros((), device=self.device), 0
        for x, y in batches:
            with self._autocast():
                right += (self.model(x).argmax(1) == y).sum()
            count += len(y)
        self.model.train()
        return 100 * float(right) / count


def build(recipe: Recipe, classes: int) -> nn.Module:
    """The network with weights from the recipe's seed."""
    import timm

    try:
        with torch.random.fork_rng():
            torch.manual_seed(recipe.seed)
            return timm.create_model(recipe.model, num_classes=classes, **recipe.settings)
    except (RuntimeError, TypeError, ValueError, AssertionError) as error:
        raise SettingsError(
            f"timm cannot build this model: {error}",
            given=f"{recipe.model} with {dict(recipe.settings)}",
            remedy="model= a name of `vitreous models timm`, settings= what its constructor takes",
        ) from error


def _loss(model: nn.Module, recipe: Recipe) -> StructureLoss:
    known = set(signature(StructureLoss).parameters) - {"model", "seed"}
    if wrong := sorted(set(recipe.structure) - known):
        raise SettingsError("the structure loss has no such setting", given=wrong, accepted=sorted(known))
    return StructureLoss(model, seed=recipe.seed, **recipe.structure)


def _optimiser(model: nn.Module, recipe: Recipe, device: torch.device) -> torch.optim.Optimizer:
    """AdamW with timm's rule which parameters decay: biases, norms and positions do not."""
    from timm.optim import create_optimizer_v2

    cuda = {"fused": True, "capturable": True} if device.type == "cuda" else {}
    optimiser = create_optimizer_v2(
        model, opt="adamw", lr=recipe.lr, weight_decay=recipe.weight_decay, betas=recipe.betas, **cuda
    )
    for group in optimiser.param_groups:  # a recorded step reads its rate from a tensor
        group["lr"] = torch.zeros((), device=device) if cuda else 0.0
    return optimiser


def _distributed(model: nn.Module, device: torch.device) -> nn.Module:
    if ranks.count() == 1:
        return model
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list | tuple) else value


def _placed(name: str, value: Tensor, parameter: Tensor) -> Tensor:
    """Where the optimiser wants it: counts of steps stay on the processor unless the step is recorded."""
    on_device = name != "step" or parameter.is_cuda
    return value.to(parameter.device) if on_device else value.clone()
