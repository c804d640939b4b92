"""Pickles that others published, read without running what could be in them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

DAMAGE = (  # what a damaged pickle makes the reader raise
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    MemoryError,
)


class OnlyArrays(pickle.Unpickler):
    """Unpickles numpy arrays and plain values. Anything else in the file could run code, and is refused."""

    def find_class(self, module: str, name: str) -> Any:
        rebuild = np.empty(0).__reduce__()[0]
        allowed = {
            ("numpy.core.multiarray", "_reconstruct"): rebuild,
            ("numpy._core.multiarray", "_reconstruct"): rebuild,
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
            ("_codecs", "encode"): _encode,
        }
        if (module, name) not in allowed:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a data file")
        return allowed[module, name]


def _encode(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes for old readers."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes in encoding {encoding}")
    return text.encode("latin1")
