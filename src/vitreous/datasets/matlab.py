"""MATLAB files. They need a library that vitreous does not depend on, so its absence is an error with a remedy."""

from __future__ import annotations

import io
from pathlib import Path
from types import ModuleType

import numpy as np

from vitreous.errors import ImageError


def read_variable(data: bytes, name: str, variable: str) -> np.ndarray:
    """One variable of a MATLAB file up to version 7 (through SciPy)."""
    loadmat = need("scipy.io", "scipy", name).loadmat
    try:
        found = loadmat(io.BytesIO(data), variable_names=[variable])
    except (ValueError, TypeError, NotImplementedError, EOFError, OSError, LookupError, MemoryError) as error:
        raise ImageError(f"not a MATLAB file that can be read ({error})", given=name) from error
    if variable not in found:
        raise ImageError(f"a MATLAB file without the variable {variable!r}", given=name)
    return np.asarray(found[variable])


def is_hdf5(path: Path) -> bool:
    """MATLAB 7.3 files are HDF5 with a header of 512 bytes in front."""
    with path.open("rb") as file:
        start = file.read(520)
    return b"\x89HDF\r\n\x1a\n" in (start[:8], start[512:520])


def need(module: str, package: str, name: str) -> ModuleType:
    """Imports a library that is not a dependency."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError:
        raise ImageError(
            f"MATLAB files of this kind are read with {package}, which is not installed",
            given=name,
            remedy=f"pip install {package}",
        ) from None
