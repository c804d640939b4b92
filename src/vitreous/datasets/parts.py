"""Steps that the loaders share: finding the folder, reading lists, checking that all files are there, label maps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vitreous.errors import ImageError
from vitreous.images.decode import decode_mask
from vitreous.images.sources import Side, existing, natural

IGNORE = 255  # the mask id for "do not count" in every loader that has to choose one
WRONG = -1  # in a table: an id that must not occur


def locate(root: Path, inside: Sequence[str], markers: Sequence[str]) -> Path:
    """`root` or a folder inside of it that holds one of `markers`, so that both ways to point at a data set work."""
    base = existing(root, "data set folder")
    for folder in (base, *(base / name for name in inside)):
        if any((folder / marker).exists() for marker in markers):
            return folder
    raise ImageError(
        f"not the published layout: no {' or '.join(markers)} in here",
        given=str(base),
        accepted=sorted(entry.name for entry in base.iterdir()) if base.is_dir() else "a folder",
        remedy="vitreous.datasets.LAYOUTS says what each folder must hold",
    )


def read_list(folder: Path, name: str) -> list[str]:
    """The lines of a list file, without empty ones; a missing file shows the lists that exist."""
    path = folder / f"{name}.txt"
    if not path.is_file():
        there = sorted((p.stem for p in folder.glob("*.txt")), key=natural)
        raise ImageError(f"no list for this split in {folder}", given=name, accepted=there)
    lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    found = [line for line in lines if line]
    if not found:
        raise ImageError("an empty list", given=str(path))
    return found


def require(root: Path, names: Iterable[str], what: str) -> tuple[str, ...]:
    """The names as they are, after a look that every file is there."""
    wanted = tuple(names)
    if missing := [name for name, found in zip(wanted, optional(root, wanted), strict=True) if found is None]:
        raise ImageError(
            f"{len(missing)} of {len(wanted)} {what} are missing in {root}",
            given=missing[:5],
            remedy="unpack the archive again, or choose another split",
        )
    return wanted


def optional(root: Path, names: Sequence[str]) -> tuple[str | None, ...]:
    """The names of files that exist, None for the others. Lists each folder once instead of asking for each file."""
    listed: dict[str, set[str]] = {}
    for folder in {name.rpartition("/")[0] for name in names}:
        path = root / folder
        listed[folder] = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
    return tuple(name if name.rpartition("/")[2] in listed[name.rpartition("/")[0]] else None for name in names)


def table(pairs: Mapping[int, int], ignored: Iterable[int] = (IGNORE,)) -> np.ndarray:
    """Mask id on disk -> mask id that is handed out, for all 256; ids that nobody named are wrong."""
    out = np.full(256, WRONG, np.int16)
    for old in ignored:
        out[old] = IGNORE
    for old, new in pairs.items():
        out[old] = new
    return out


def translate(labels: np.ndarray, ids: np.ndarray, name: str) -> np.ndarray:
    """Applies a table; an id that the data set does not have is an error and not a new class."""
    out = np.append(ids, WRONG)[np.where((labels >= 0) & (labels < 256), labels, 256)]
    if (out == WRONG).any():
        strange = sorted(set(np.unique(labels[out == WRONG]).tolist()))
        raise ImageError(
            f"ids that this data set does not have: {strange[:10]}",
            given=name,
            remedy="these are masks of another data set or encoding",
        )
    return out.astype(np.uint8)


def read_mask(data: bytes, name: str, ids: np.ndarray) -> np.ndarray:
    return translate(decode_mask(data, name), ids, name)


def mask_side(names: Sequence[str | None], ids: np.ndarray, how: str) -> Side:
    """Masks in files whose ids go through a table."""
    return Side(tuple(names), partial(read_mask, ids=ids), how)


def optional_sides(**sides: Side) -> dict[str, Any]:
    """Leaves out sides that no picture has."""
    return {part: side for part, side in sides.items() if any(name is not None for name in side.names)}


def numbers(values: Sequence[Any], order: Sequence[Any]) -> np.ndarray:
    """Labels: the position of each value in `order`."""
    at = {value: k for k, value in enumerate(order)}
    return np.array([at[value] for value in values], np.int64)
