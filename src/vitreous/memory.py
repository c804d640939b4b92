"""Work that does not fit into memory is done in smaller parts; what was freed goes back to the system."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from vitreous.engine import say

if TYPE_CHECKING:
    from torch import Tensor

Key = TypeVar("Key", bound=Hashable)
SAID = ("not enough memory", "can't allocate memory", "out of memory")  # by PyTorch's allocators


@dataclass
class Parts:
    """Computes (sample, ...) at once, or, from the first time that memory runs out, at most `most` samples at a time.

    Passes over fewer samples can differ in their last bits, so a line says when it happens.
    """

    most: int | None = None

    def __call__(self, compute: Callable[[Any], dict[Key, Tensor]], x: Any) -> dict[Key, Tensor]:
        import torch

        whole: dict[Key, Tensor] = {}  # filled part by part: joining them at the end would need room for it twice
        first = 0
        while first < len(x):
            part = x[first : first + (self.most or len(x))]
            try:
                found = compute(part)
                if len(part) == len(x):
                    return found
                with torch.no_grad():
                    whole = whole or {key: one.new_empty((len(x), *one.shape[1:])) for key, one in found.items()}
                    for key in list(found):
                        whole[key][first : first + len(part)] = found.pop(key)
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error) or len(part) == 1:
                    raise
            else:
                first += len(part)
                continue
            found = {}
            self.most = fewer(len(part), "samples")
        return whole


def fewer(count: int, what: str) -> int:
    """Half as many at a time, after a line that says so; call it when the error and what it held are gone."""
    import torch

    say(f"out of memory with {count} {what} at a time: going on with {-(-count // 2)}")
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return -(-count // 2)


def give_back() -> None:
    """Freed memory to the system, where the C library can: glibc keeps up to twice the largest piece ever freed."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or any(words in str(error) for words in SAID)
