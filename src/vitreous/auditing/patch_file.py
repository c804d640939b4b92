"""A patch as one safetensors file: what it is, as JSON, and its arrays. Anything else is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from vitreous.errors import StoreError
from vitreous.provenance import json_bytes, replace_file

Made = TypeVar("Made")


def to_bytes(kind: str, version: int, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    from safetensors.numpy import save

    said = {"format": kind, "version": version} | dict(about)
    packed = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
    return save(packed, {"about": json_bytes(said).decode()})


def write(path: str | Path, data: bytes) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    replace_file(Path(path), data)


def read(
    path: str | Path,
    kind: str,
    version: int,
    make: Callable[[dict[str, Any], Callable[[str], np.ndarray]], Made],
    refusal: str,
    remedy: str,
) -> Made:
    """`make` is given what was said of the patch, and a function that reads an array by its name."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            about = json.loads((file.metadata() or {})["about"])
            if (about["format"], about["version"]) != (kind, version):
                raise KeyError(kind)
            return make(about, file.get_tensor)
    except FileNotFoundError:
        raise StoreError("no patch here", given=Path(path).name) from None
    except (SafetensorError, OSError, ValueError, LookupError, TypeError):
        raise StoreError(refusal, given=Path(path).name, remedy=remedy) from None
