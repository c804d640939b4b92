"""Record and replace activations at named sites. Hooks are gone when the context ends, however it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.attention import See, tap
from vitreous.errors import SiteError
from vitreous.models.site import RESID_MID, Site
from vitreous.models.subject import ForwardStopped, Subject


class Recording(Mapping[str, Tensor]):
    """What the latest forward pass left at the sites: (sample, token, channel), patterns (sample, head, query, key)."""

    def __init__(self, subject: Subject, sites: Sequence[str], stop: bool) -> None:
        self.subject = subject
        self.sites = tuple(sites)
        self._stop = stop
        self._values: dict[str, Tensor] = {}

    def __getitem__(self, site: str) -> Tensor:
        if site not in self._values:
            (name,) = names if len(names := self.subject.resolve(site)) == 1 else (site,)
            if name not in self._values:
                raise SiteError(
                    f"{site!r} holds nothing: it was not asked for, or no forward pass has reached it",
                    given=site,
                    accepted=self.sites,
                )
            return self._values[name]
        return self._values[site]

    def __iter__(self) -> Iterator[str]:
        return iter(name for name in self.sites if name in self._values)

    def __len__(self) -> int:
        return len(self._values)

    def clear(self) -> None:
        self._values.clear()

    def keep(self, name: str, value: Tensor) -> None:
        if name in self._values:
            raise SiteError(f"{name!r} fired twice in one forward pass: a module that is used twice cannot be one site")
        self._values[name] = value
        if self._stop and len(self._values) == len(self.sites):
            raise ForwardStopped


@contextmanager
def capture(subject: Subject, sites: str | Sequence[str], *, stop: bool = False) -> Iterator[Recording]:
    """Records activations of every forward pass inside the context; the model's output stays the same, bit for bit.

    >>> with vt.capture(subject, ["blocks.*.mlp.out", "blocks.-1.attn.pattern"]) as rec:
    ...     subject(x)
    >>> rec["blocks.0.mlp.out"].shape   # (sample, token, channel)

    With `stop=True` the pass ends at the deepest site that is needed, and `subject(x)` returns None. A module path of
    the model is a site too, and gives the tensor as the module gave it.
    """
    names = subject.resolve(sites)
    recording = Recording(subject, names, stop)
    with ExitStack() as stack:
        handle = subject.module.register_forward_pre_hook(lambda *_: recording.clear(), prepend=True)
        stack.callback(handle.remove)
        for name in names:
            if not subject.is_pattern(name):
                site = subject.locate(name)
                stack.callback(_record(subject.module.get_submodule(site.path), site, name, recording).remove)
        patterns = {subject.block_of(name): name for name in names if subject.is_pattern(name)}
        stack.enter_context(tap(subject, {b: _see(recording, n) for b, n in patterns.items() if b is not None}))
        yield recording


def _see(recording: Recording, name: str) -> See:
    def see(A: Tensor) -> None:
        recording.keep(name, A)

    return see


def _record(module: nn.Module, site: Site, name: str, recording: Recording) -> Any:
    if site.port == "in":

        def on_input(_: nn.Module, args: Any, kwargs: Any) -> None:
            recording.keep(name, to_tokens(_first(args, kwargs), site, module))

        return module.register_forward_pre_hook(on_input, with_kwargs=True)

    def on_output(_: nn.Module, __: Any, output: Any) -> None:
        recording.keep(name, to_tokens(output[0] if isinstance(output, tuple) else output, site, module))

    return module.register_forward_hook(on_output)


def _first(args: Any, kwargs: Any) -> Tensor:
    return args[0] if args else kwargs["hidden_states"]


# -- shapes


def _channels_second(site: Site, module: nn.Module) -> bool:
    return site.layout == "NCHW" or (site.layout == "linear" and isinstance(module, nn.Conv2d))


def to_tokens(value: Tensor, site: Site, module: nn.Module) -> Tensor:
    """A module's own tensor -> (sample, token, channel), cut to the site's part of the channels."""
    if value.ndim == 4 and site.layout != "tokens":
        value = value.flatten(2).mT if _channels_second(site, module) else value.flatten(1, 2)
    if site.part is not None:
        k, of = site.part
        value = value.chunk(of, -1)[k]
    return value


def from_tokens(new: Tensor, old: Tensor, site: Site, module: nn.Module) -> Tensor:
    """Puts a (sample, token, channel) value back into the shape of the module's own tensor `old`."""
    if site.part is not None:
        k, of = site.part
        parts = list(old.chunk(of, -1))
        parts[k] = new
        new = torch.cat(parts, -1)
    if old.ndim == 4 and site.layout != "tokens":
        new = new.mT.reshape(old.shape) if _channels_second(site, module) else new.reshape(old.shape)
    if new.shape != old.shape:
        raise SiteError(
            "a replacement must keep the shape of what it replaces",
            given=tuple(new.shape),
            accepted=str(tuple(old.shape)),
        )
    return new


# -- replacing

Replace = Callable[[Tensor], Tensor | None]


@contextmanager
def patch(subject: Subject, replacements: Mapping[str, Replace]) -> Iterator[None]:
    """Replaces activations: each function gets the value at its site and returns another of the same shape.

    >>> with vt.patch(subject, {"blocks.3.mlp.out": lambda x: 0 * x}):
    ...     logits = subject(x)

    A function that returns None or its own argument changes nothing. A patch that is entered before a `capture` is seen
    by it. `resid.mid` is replaced by way of what attention adds, so it is exact up to one rounding.
    """
    functions: dict[str, Replace] = {}
    for asked, function in replacements.items():
        for name in subject.resolve(asked):
            if name in functions:
                raise SiteError(f"two replacements for {name!r}", given=asked)
            functions[name] = function
    with ExitStack() as stack:
        patterns = {n: f for n, f in functions.items() if subject.is_pattern(n)}
        for name, function in functions.items():
            if name not in patterns:
                for handle in _replace(subject, name, function):
                    stack.callback(handle.remove)
        stack.enter_context(tap(subject, {b: f for n, f in patterns.items() if (b := subject.block_of(n)) is not None}))
        yield


def _replace(subject: Subject, name: str, function: Replace) -> list[Any]:
    block = subject.block_of(name)
    site = subject.locate(name)
    if block is not None and name.endswith(RESID_MID) and site.port == "in":
        return _replace_mid(subject, block, function)
    module = subject.module.get_submodule(site.path)

    def changed(old: Tensor) -> Tensor | None:
        seen = to_tokens(old, site, module)
        new = function(seen)
        return None if new is None or new is seen else from_tokens(new, old, site, module)

    if site.port == "in":

        def on_input(_: nn.Module, args: Any, kwargs: Any) -> Any:
            new = changed(_first(args, kwargs))
            if new is None:
                return None
            return ((new, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": new})

        return [module.register_forward_pre_hook(on_input, with_kwargs=True)]
    return [module.register_forward_hook(lambda _, __, output: _swap(output, changed))]


def _swap(output: Any, changed: Callable[[Tensor], Tensor | None]) -> Any:
    if isinstance(output, tuple):
        new = changed(output[0])
        return None if new is None else (new, *output[1:])
    return changed(output)


def _replace_mid(subject: Subject, block: int, function: Replace) -> list[Any]:
    """The skip connection carries resid.mid past every module, so what attention adds is changed instead."""
    entering: list[Tensor] = []
    added = subject.blocks[block].sites["attn.out"]

    def remember(x: Tensor) -> None:
        entering[:] = [x]

    def change(attn_out: Tensor) -> Tensor | None:
        mid = entering[0] + attn_out
        new = function(mid)
        return None if new is None or new is mid else new - entering[0]

    assert added.part is None
    return [
        *_replace(subject, f"blocks.{block}.resid.in", remember),
        *_replace(subject, f"blocks.{block}.attn.out", change),
    ]


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Dropout off for the time being: it would make every recording another one."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True
