"""Where the parts of a run folder lie, and how arrays and JSON are kept there: no pickles, the same bytes each time."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vitreous.errors import StoreError
from vitreous.provenance import json_bytes, replace_file

PLAN, ABOUT = "plan.json", "examination.json"
FORMAT, VERSION = "vitreous examination", 1
PICTURES, STORES, STRUCTURE, DISENTANGLE = "pictures", "stores", "structure", "disentangle"
SECOND, ALIGN, TOKENS, LABELS, CLASSES = "disentangle-again", "align", "tokens", "labels", "classes"
PROFILES, SIMILAR, EVIDENCE = "profiles", "similar.npz", "evidence"
AGAIN = "run the same `vitreous examine` (vt.examine) again: it makes what is missing and keeps the rest"

#: What reading a file that is cut short, altered or foreign can raise.
DAMAGE = (zipfile.BadZipFile, OSError, EOFError, ValueError, LookupError, TypeError, RuntimeError)


def write_arrays(path: Path, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """One npz, in one step, with what is no array as JSON under "about"."""
    file = io.BytesIO()
    packed = {"about": np.frombuffer(json_bytes(about), np.uint8), **arrays}
    np.savez(file, allow_pickle=False, **packed)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, file.getvalue())


def read_arrays(path: Path, what: str, again: str = AGAIN) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What `write_arrays` wrote; a file that is damaged, or is something else, is refused by its name."""
    try:
        with zipfile.ZipFile(path) as archive:
            if (broken := archive.testzip()) is not None:
                raise ValueError(f"damaged at {broken}")
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(file["about"].tobytes())
            return about, {name: file[name] for name in file.files if name != "about"}
    except FileNotFoundError:
        raise StoreError(f"no {what} here", given=path.name, remedy=again) from None
    except DAMAGE as error:
        raise StoreError(f"{what} cannot be read: {_said(error)}", given=path.name, remedy=again) from None


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json_bytes(value))


def read_json(path: Path, what: str, again: str = AGAIN) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise StoreError(f"no {what} here", given=path.name, remedy=again) from None
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{what} cannot be read: {_said(error)}", given=path.name, remedy=again) from None


def _said(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
