"""MATLAB files. Those of version 7.3 need h5py, which is no dependency, so its absence is an error with a remedy."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from vitreous.errors import ImageError


def read_variable(data: bytes, name: str, variable: str) -> np.ndarray:
    """One variable of a MATLAB file up to version 7 (through SciPy)."""
    from scipy.io import loadmat

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


def open_hdf5(path: Path) -> Any:
    """The file as h5py gives it."""
    try:
        import h5py
    except ImportError:
        raise ImageError(
            "MATLAB files of this kind are read with h5py, which is not installed",
            given=str(path),
            remedy="pip install h5py",
        ) from None
    return h5py.File(path, "r")
