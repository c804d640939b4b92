"""The files of the site, by the address under which they are asked for: no path of a request reaches the disk."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from vitreous.errors import StoreError
from vitreous.provenance import replace_file

if TYPE_CHECKING:
    from vitreous.examination import Examination

FOLDER, STAMP = ".explorer", "made-from"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".svg": "image/svg+xml",
    ".parquet": "application/vnd.apache.parquet",
    ".npz": "application/octet-stream",
}


def live_script(audit: bool) -> str:
    """What tells the pages that a server is there, and whether it has an audit open."""
    return f'vitreous.put("live", {{"api": "/api", "token": null, "audit": {str(audit).lower()}}});\n'


def write_pages(examination: Examination, write: Callable[[Examination, Path], object]) -> Path:
    """The static site of a run, in a hidden folder of it; written anew when the run or the package has changed.

    Where the run folder cannot be written to, a temporary folder takes its place.
    """
    made_from = _made_from(examination)
    kept = examination.folder / FOLDER / "site"
    stamp = kept.parent / STAMP
    if stamp.is_file() and stamp.read_text(errors="replace") == made_from and (kept / "index.html").is_file():
        return kept
    try:
        kept.parent.mkdir(exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=kept.parent, prefix="draft-"))
    except OSError:
        draft = Path(tempfile.mkdtemp(prefix="vitreous-explore-"))
        write(examination, draft)
        return draft
    try:
        write(examination, draft)
        stamp.unlink(missing_ok=True)
        shutil.rmtree(kept, ignore_errors=True)
        draft.replace(kept)
        replace_file(stamp, made_from.encode())
    except OSError as error:
        raise StoreError(f"the pages cannot be written: {error}", given=str(examination.folder)) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return kept


def _made_from(examination: Examination) -> str:
    """Changes when any file of the run does, or the package that makes pages of it."""
    import vitreous

    digest = hashlib.sha256(vitreous.__version__.encode())
    for top in (examination.folder, Path(vitreous.__file__).parent):
        for path in _files(top):
            about = path.stat()
            digest.update(f"{path.relative_to(top)}|{about.st_size}|{about.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _files(top: Path) -> list[Path]:
    """Plain files below, in order; hidden ones, links, and notes, which pages ask for themselves, are none."""
    found = []
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        paths = [Path(folder) / name for name in sorted(names) if name != "notes.jsonl"]
        found += [path for path in paths if path.is_file() and not path.is_symlink()]
    return found


def addresses(site: Path) -> dict[str, Path]:
    """`/data/index.js` -> the file. What is not in here is not served."""
    found = {f"/{path.relative_to(site).as_posix()}": path for path in _files(site)}
    if "/index.html" in found:
        found["/"] = found["/index.html"]
    return found
