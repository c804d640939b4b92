"""Verbs that people bring along from TransformerLens, over `capture` and `patch`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from vitreous.hooks import Recording, capture, patch
from vitreous.models.subject import Subject

#: The short names of `cache["resid_post", 3]`.
SHORT = {
    "resid_pre": "resid.in",
    "resid_mid": "resid.mid",
    "resid_post": "resid.out",
    "attn_out": "attn.out",
    "mlp_out": "mlp.out",
    "post": "mlp.hidden",
    "pattern": "attn.pattern",
    "q": "attn.q",
    "k": "attn.k",
    "v": "attn.v",
}


class Cache(Mapping[str, Tensor]):
    """What one pass left: by our site names, by `blocks.3.hook_resid_post`, or by `cache["resid_post", 3]`."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def __getitem__(self, key: str | tuple[str, int]) -> Tensor:
        if isinstance(key, tuple):
            name, block = key
            key = f"blocks.{block}.{SHORT.get(name, name)}"
        return self._recording[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._recording)

    def __len__(self) -> int:
        return len(self._recording)

    def __repr__(self) -> str:
        return f"Cache({len(self)} sites of {self._recording.subject.name})"


def run_with_cache(
    subject: Subject, x: Any, names_filter: str | Sequence[str] | Callable[[str], bool] | None = None
) -> tuple[Any, Cache]:
    """The model's output, and what it left at its sites: all of them, those that are named, or those a function keeps.

    >>> logits, cache = vt.run_with_cache(subject, x, names_filter=lambda name: name.endswith("resid.out"))
    >>> cache["resid_post", -1], cache["blocks.3.hook_resid_post"], cache["blocks.3.resid.out"]
    """
    if callable(names_filter):
        wanted: str | Sequence[str] = [name for name in subject.sites if names_filter(name)]
    else:
        wanted = subject.sites if names_filter is None else names_filter
    with capture(subject, wanted) as recording:
        output = subject(x)
    return output, Cache(recording)


def run_with_hooks(
    subject: Subject, x: Any, fwd_hooks: Sequence[tuple[str, Callable[[Tensor, Any], Tensor | None]]]
) -> Any:
    """The output with activations replaced; a hook gets the value and the name of its site, None changes nothing."""

    def named(function: Callable[[Tensor, Any], Tensor | None], name: str) -> Callable[[Tensor], Tensor | None]:
        return lambda value: function(value, name)

    with patch(subject, {name: named(function, name) for name, function in fwd_hooks}):
        return subject(x)
