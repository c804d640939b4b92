"""What a store says about itself: what it was made from, what lies where, and the hash of every file.

Nothing in here is trusted: a manifest may be cut short, edited or made up, and a safetensors header may claim to be
larger than its file. Everything that does not fit is a `StoreError`, and no name leads out of the folder.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vitreous.axes import Grid
from vitreous.errors import StoreError, VitreousError
from vitreous.places import Bucket

FORMAT, VERSION = "vitreous-store", 1
MANIFEST, SAMPLES, TOKENS = "manifest.json", "samples.json", "tokens.safetensors"
#: Name in safetensors and type on disk; numpy has no bfloat16, so it is read as its 16 bits.
DTYPES = {"float16": ("F16", "<f2"), "float32": ("F32", "<f4"), "bfloat16": ("BF16", "<u2"), "int32": ("I32", "<i4")}
ACTIVATION_DTYPES = ("float16", "float32", "bfloat16")
LARGEST_HEADER = 1 << 24
DAMAGED = "restore the file from a copy, or record again into another folder"

_HASH = re.compile(r"[0-9a-f]{64}")
_SCHEMA = {
    "format": str,
    "version": int,
    "model": {"name": str, "fingerprint": str, "depth": int},
    "data": {"name": str, "fingerprint": str, "samples": int},
    "settings": {
        "sites": [str],
        "tokens": (str, int),
        "dtype": str,
        "seed": int,
        "batch_size": int,
        "shard_samples": int,
        "size": ([int], None),
        "preprocess": (dict, None),
        "compute": str,
        "device": str,
    },
    "sites": {str: {"shape": [int], "axes": [str], "tokens": (int, None), "grid": ([int], None)}},
    "prefix": [str],
    "files": {str: {"bytes": int, "sha256": str}},
    "shards": [{"file": str, "first": int, "last": int, "bytes": int, "sha256": str}],
    "complete": bool,
}


@dataclass(frozen=True)
class SiteInfo:
    """One site in a store: shape and axes of one sample.

    `tokens` is how many the model has there, however many were kept (None: the site has no tokens), and `grid` how its
    patches lie (None: it has none).
    """

    shape: tuple[int, ...]
    axes: tuple[str, ...]
    tokens: int | None = None
    grid: Grid | None = None

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> SiteInfo:
        grid = None if raw["grid"] is None else Grid(*raw["grid"])
        return cls(tuple(raw["shape"]), tuple(raw["axes"]), raw["tokens"], grid)


@dataclass(frozen=True)
class Shard:
    """One file with samples `first` to `last`, both included, of every site."""

    file: str
    first: int
    last: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The content of `manifest.json`; docs/stores.md says what each field means."""

    model: Mapping[str, Any]
    data: Mapping[str, Any]
    settings: Mapping[str, Any]
    sites: Mapping[str, SiteInfo]
    prefix: tuple[str, ...]
    files: Mapping[str, Mapping[str, Any]]
    shards: tuple[Shard, ...] = ()

    @property
    def samples(self) -> int:
        return int(self.data["samples"])

    @property
    def dtype(self) -> str:
        return str(self.settings["dtype"])

    @property
    def shard_samples(self) -> int:
        return int(self.settings["shard_samples"])

    @property
    def shard_count(self) -> int:
        return -(-self.samples // self.shard_samples)

    @property
    def complete(self) -> bool:
        return len(self.shards) == self.shard_count

    def span(self, number: int) -> tuple[int, int]:
        """First and last sample of a shard, both included."""
        first = number * self.shard_samples
        return first, min(first + self.shard_samples, self.samples) - 1

    def layout(self, number: int) -> tuple[bytes, dict[str, int], int]:
        """Head, where each site begins, and length of a shard file: all known before a sample is computed."""
        first, last = self.span(number)
        shapes = {site: (last - first + 1, *info.shape) for site, info in self.sites.items()}
        return tensor_layout(shapes, self.dtype)

    def site_bytes(self) -> dict[str, int]:
        """Bytes of activations of each site over all samples."""
        width = np.dtype(DTYPES[self.dtype][1]).itemsize
        return {site: self.samples * math.prod(info.shape) * width for site, info in self.sites.items()}

    def with_shard(self, shard: Shard) -> Manifest:
        others = [s for s in self.shards if s.first != shard.first]
        return replace(self, shards=tuple(sorted([*others, shard], key=lambda s: s.first)))

    def as_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "version": VERSION, **asdict(self), "complete": self.complete}


def shard_name(number: int) -> str:
    return f"shards/{number:05d}.safetensors"


def read_manifest(folder: Path | Bucket) -> Manifest:
    """Reads and checks `manifest.json`; anything wrong with it is a StoreError that names the field."""
    path = f"{folder}/{MANIFEST}"
    try:
        raw = json.loads(folder.read(MANIFEST) if isinstance(folder, Bucket) else (folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise StoreError("no store here: there is no manifest.json", given=str(folder)) from None
    except VitreousError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"damaged manifest: {path} cannot be read: {error}", remedy=DAMAGED) from None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise StoreError("not a vitreous store", given=path, accepted=f'a manifest with "format": "{FORMAT}"')
    if raw.get("version") != VERSION:
        raise StoreError(
            f"{path} has a format version that this vitreous does not read",
            given=raw.get("version"),
            accepted=str(VERSION),
            remedy="use the vitreous version in its run.json",
        )
    _check_types(raw, _SCHEMA, "")
    for site, info in raw["sites"].items():
        if info["grid"] is not None and len(info["grid"]) != 2:
            raise _damaged(f"sites.{site}.grid", info["grid"], "rows and columns")
    manifest = Manifest(
        model=raw["model"],
        data=raw["data"],
        settings=raw["settings"],
        sites={site: SiteInfo.from_json(info) for site, info in raw["sites"].items()},
        prefix=tuple(raw["prefix"]),
        files=raw["files"],
        shards=tuple(Shard(**shard) for shard in raw["shards"]),
    )
    _check_sense(manifest, raw["complete"])
    return manifest


def _damaged(field: str, given: object, accepted: str) -> StoreError:
    return StoreError(f"damaged manifest: {field}", given=given, accepted=accepted, remedy=DAMAGED)


def _check_types(value: Any, wanted: Any, field: str) -> None:
    """Compares a JSON value with the schema: a type, None, [items], {name: ...}, {str: ...} or a tuple of these."""
    if isinstance(wanted, tuple):
        fits = [w for w in wanted if _kind(value) is (w if isinstance(w, type) or w is None else type(w))]
        if not fits:
            raise _damaged(field, value, " or ".join(_spelled(w) for w in wanted))
        _check_types(value, fits[0], field)
    elif isinstance(wanted, type) or wanted is None:
        if _kind(value) is not wanted:
            raise _damaged(field, value, _spelled(wanted))
    elif not isinstance(value, type(wanted)):
        raise _damaged(field or MANIFEST, value, _spelled(wanted))
    elif isinstance(wanted, list):
        for i, item in enumerate(value):
            _check_types(item, wanted[0], f"{field}[{i}]")
    else:
        given: dict[str, Any] = dict(value)
        names: dict[str, Any] = dict.fromkeys(given, wanted[str]) if str in wanted else wanted
        if set(names) != set(given):
            raise _damaged(f"fields of {field or MANIFEST}", sorted(given), ", ".join(sorted(names)))
        for name, inner in names.items():
            _check_types(given[name], inner, f"{field}.{name}" if field else name)


def _kind(value: Any) -> type | None:
    return None if value is None else type(value)


def _spelled(wanted: Any) -> str:
    return "null" if wanted is None else wanted.__name__ if isinstance(wanted, type) else type(wanted).__name__


def _check_sense(manifest: Manifest, complete: bool) -> None:
    """Values of the right type that contradict each other, or name files elsewhere."""
    settings, samples = manifest.settings, manifest.samples
    numbers = {
        "model.depth": manifest.model["depth"],
        "data.samples": samples,
        "settings.batch_size": settings["batch_size"],
        "settings.shard_samples": settings["shard_samples"],
    }
    for field, value in numbers.items():
        if value < 1:
            raise _damaged(field, value, "a whole number from 1 on")
    if settings["dtype"] not in ACTIVATION_DTYPES:
        raise _damaged("settings.dtype", settings["dtype"], ", ".join(ACTIVATION_DTYPES))
    if settings["tokens"] != "all" and (isinstance(settings["tokens"], str) or settings["tokens"] < 1):
        raise _damaged("settings.tokens", settings["tokens"], "'all' or a whole number from 1 on")
    if list(manifest.sites) != settings["sites"] or not manifest.sites:
        raise _damaged("sites", list(manifest.sites), f"those in settings.sites: {settings['sites']}")
    for site, info in manifest.sites.items():
        if len(info.shape) != len(info.axes) or min(info.shape, default=0) < 1:
            raise _damaged(f"sites.{site}.shape", list(info.shape), f"positive lengths for axes {list(info.axes)}")
        if info.grid is not None and min(info.grid) < 1:
            raise _damaged(f"sites.{site}.grid", list(info.grid), "rows and columns from 1 on")
    for name, entry in manifest.files.items():
        if name not in (SAMPLES, TOKENS) or entry["bytes"] < 0 or not _HASH.fullmatch(entry["sha256"]):
            raise _damaged(f"files.{name}", entry, f"bytes and sha256 of {SAMPLES} and {TOKENS}")
    if SAMPLES not in manifest.files or (TOKENS in manifest.files) != (settings["tokens"] != "all"):
        raise _damaged("files", sorted(manifest.files), f"{SAMPLES}, and {TOKENS} where settings.tokens is a number")
    numbers_of = [shard.first // manifest.shard_samples for shard in manifest.shards]
    for i, (number, shard) in enumerate(zip(numbers_of, manifest.shards, strict=True)):
        if not 0 <= number < manifest.shard_count or shard.file != shard_name(number):
            raise _damaged(
                f"shards[{i}].file", shard.file, f"shards/00000.safetensors to {manifest.shard_count - 1:05d}"
            )
        if (shard.first, shard.last) != manifest.span(number):
            raise _damaged(f"shards[{i}]", (shard.first, shard.last), f"first and last {manifest.span(number)}")
        if shard.bytes != manifest.layout(number)[2] or not _HASH.fullmatch(shard.sha256):
            raise _damaged(f"shards[{i}]", shard, f"{manifest.layout(number)[2]} bytes and a sha256")
    if numbers_of != sorted(set(numbers_of)):
        raise _damaged("shards", numbers_of, "each once, in order")
    if complete != manifest.complete:
        raise _damaged("complete", complete, f"{len(manifest.shards)} of {manifest.shard_count} shards are listed")


# -- safetensors files


def tensor_layout(shapes: Mapping[str, tuple[int, ...]], dtype: str) -> tuple[bytes, dict[str, int], int]:
    """Head of a safetensors file, where in the file each tensor begins, and how long the file is."""
    label, kind = DTYPES[dtype]
    header: dict[str, Any] = {}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + math.prod(shape) * np.dtype(kind).itemsize
        header[name] = {"dtype": label, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    head = len(text).to_bytes(8, "little") + text
    return head, {name: len(head) + entry["data_offsets"][0] for name, entry in header.items()}, len(head) + end


def map_tensors(path: Path, shapes: Mapping[str, tuple[int, ...]], dtype: str) -> dict[str, np.ndarray]:
    """Memory-maps a safetensors file that is known to hold these tensors; a file that says otherwise is refused."""
    label, kind = DTYPES[dtype]
    try:
        raw = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be read: {error}", remedy="`verify()` lists every damaged file") from None
    start = 8 + int.from_bytes(raw[:8].tobytes(), "little")
    if not 8 < start <= min(raw.size, LARGEST_HEADER):
        raise _broken(path, f"its head claims {start - 8} bytes of {raw.size}")
    try:
        header = json.loads(raw[8:start].tobytes())
    except (ValueError, RecursionError) as error:
        raise _broken(path, f"its head is not JSON: {error}") from None
    if not isinstance(header, dict) or set(header) - {"__metadata__"} != set(shapes):
        raise _broken(path, "it holds other tensors than the manifest says")
    found = {}
    for name, shape in shapes.items():
        entry, length = header[name], math.prod(shape) * np.dtype(kind).itemsize
        if not isinstance(entry, dict) or entry.get("dtype") != label or entry.get("shape") != list(shape):
            raise _broken(path, f"{name} is not {label} {list(shape)}")
        begin, end = _offsets(entry.get("data_offsets"))
        if not 0 <= begin <= end <= raw.size - start or end - begin != length:
            raise _broken(path, f"{name} does not lie inside of the file")
        found[name] = raw[start + begin : start + end].view(kind).reshape(shape)
    return found


def _offsets(value: Any) -> tuple[int, int]:
    if isinstance(value, list) and len(value) == 2 and all(type(v) is int for v in value):
        return value[0], value[1]
    return -1, -1


def _broken(path: Path, why: str) -> StoreError:
    return StoreError(
        f"{path} is damaged: {why}", remedy="delete it and run the same record(...) again to make it anew"
    )
