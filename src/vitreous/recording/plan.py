"""What a recording will be, settled before the first batch: shapes, sizes, drawn tokens, and what it is made of."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vitreous.axes import Size
from vitreous.errors import SettingsError, StoreError
from vitreous.preprocess import Preprocess
from vitreous.provenance import json_bytes
from vitreous.recording.passes import check_count, draw_tokens, keep_tokens, look
from vitreous.store.manifest import ACTIVATION_DTYPES, SAMPLES, TOKENS, Manifest, SiteInfo, tensor_layout
from vitreous.texts import TextSet

if TYPE_CHECKING:
    from vitreous.images import ImageSet
    from vitreous.models.subject import Subject

AUTO_BYTES = 256e6  # activations of one batch, all sites in float32, that an automatic batch size stays below
AUTO_LARGEST = {"cpu": 32}  # batch size; elsewhere 128


@dataclass(frozen=True)
class Plan:
    """The manifest that the store will have, the content of the files beside it, and the tokens that are kept."""

    manifest: Manifest
    files: Mapping[str, bytes]
    draws: Mapping[int, np.ndarray]


@dataclass(frozen=True)
class Order:
    """What was asked of `record`."""

    subject: Subject
    images: ImageSet | TextSet
    sites: tuple[str, ...]
    tokens: Literal["all"] | int
    dtype: str
    seed: int
    shard_mb: float
    batch_size: int | None
    size: Size | None

    def check(self) -> None:
        """Refuses arguments outside of what is accepted, before anything is touched."""
        text = isinstance(self.images, TextSet)
        if text != (self.subject.modality == "text"):
            raise SettingsError(
                f"{self.subject.name} takes {self.subject.modality}",
                given=type(self.images).__name__,
                accepted="a TextSet" if self.subject.modality == "text" else "an ImageSet",
            )
        if text and self.size is not None:
            raise SettingsError("texts have no input size", given=tuple(self.size))
        if self.size is not None:
            self.subject.grid(self.size)  # refuses a size that the model does not take
        if self.subject.hooks:
            raise SettingsError(
                "the model carries hooks, perhaps of an active vt.patch or vt.steer: a store is known by its model, "
                "and hooks would change what is recorded without a trace",
                given=f"hooks on {', '.join(self.subject.hooked[:3])}",
                remedy="record outside of the with, or remove the hooks",
            )
        if not len(self.images):
            raise SettingsError("there is nothing to record: the set is empty", given=self.images.name)
        if self.tokens != "all" and (type(self.tokens) is not int or self.tokens < 1):
            raise SettingsError("unknown tokens", given=self.tokens, accepted="'all', or a whole number from 1 on")
        if self.dtype not in ACTIVATION_DTYPES:
            raise SettingsError("unknown dtype", given=self.dtype, accepted=ACTIVATION_DTYPES)
        if type(self.batch_size) not in (int, type(None)):
            raise SettingsError("batch_size is a whole number, or None", given=self.batch_size)
        if self.seed < 0 or self.shard_mb <= 0 or (self.batch_size is not None and self.batch_size < 1):
            raise SettingsError(
                "seed is at least 0, shard_mb more than 0 and batch_size at least 1",
                given={"seed": self.seed, "shard_mb": self.shard_mb, "batch_size": self.batch_size},
            )

    @cached_property
    def preprocess(self) -> Preprocess | None:
        own = self.subject.preprocess
        return own.at(*self.size) if own is not None and self.size is not None else own

    @property
    def lengths(self) -> np.ndarray | None:
        return self.images.lengths if isinstance(self.images, TextSet) else None

    def batches(self, batch_size: int, start: int) -> Generator[tuple[np.ndarray, np.ndarray]]:
        """Input batches from number `start` on; closing the iterator ends the threads that decode ahead."""
        source: Any = self.images
        batches = source.batches(self.preprocess, batch_size, start)
        with closing(batches):
            yield from batches

    def plan(self, old: Manifest | None, folder: str) -> Plan:
        """Goes on with the store that is there, if it is of the same making; else one sample tells the shapes."""
        infos = self._look() if old is None else dict(old.sites)
        made_of = self._made_of(infos, self._batch_size(infos, old))
        if old is not None:
            refuse_other(old, made_of, folder)
        draws = self._draws(infos)
        files = self._files(draws)
        hashes = {name: {"bytes": len(d), "sha256": hashlib.sha256(d).hexdigest()} for name, d in files.items()}
        if old is not None:
            refuse_other(old, {"prefix": list(self.subject.prefix), "files": hashes}, folder)
            return Plan(old, files, draws)
        return Plan(Manifest(**made_of, sites=infos, prefix=self.subject.prefix, files=hashes), files, draws)

    def _look(self) -> dict[str, SiteInfo]:
        x = next(self.batches(1, 0))[1]
        infos = look(self.subject, self.sites, x, self.preprocess.size if self.preprocess else None)
        if self.tokens == "all":
            return infos
        check_count(infos, self.tokens, self.lengths, self.images.ids)
        return {site: keep_tokens(info, self.tokens) for site, info in infos.items()}

    def _batch_size(self, infos: Mapping[str, SiteInfo], old: Manifest | None) -> int:
        """As asked, as in the store that is there, or the largest power of two whose activations stay within bounds."""
        if self.batch_size is not None:
            return self.batch_size
        if old is not None:
            return int(old.settings["batch_size"])
        whole = [math.prod(info.shape) * (info.tokens or 1) // _kept(info) for info in infos.values()]
        fits = int(min(AUTO_LARGEST.get(self.subject.device.type, 128), AUTO_BYTES // (4 * sum(whole))))
        return 1 << (max(1, fits).bit_length() - 1)

    def _made_of(self, infos: Mapping[str, SiteInfo], batch_size: int) -> dict[str, Any]:
        """Model, data and settings as they will be read back from JSON, to be compared with those of another store."""
        subject, images, preprocess = self.subject, self.images, self.preprocess
        batch_bytes = (
            (4 if self.dtype == "float32" else 2) * batch_size * sum(math.prod(i.shape) for i in infos.values())
        )
        made_of: dict[str, Any] = {
            "model": {"name": subject.name, "fingerprint": subject.fingerprint, "depth": subject.depth},
            "data": {"name": images.name, "fingerprint": images.fingerprint, "samples": len(images)},
            "settings": {
                "sites": self.sites,
                "tokens": self.tokens,
                "dtype": self.dtype,
                "seed": self.seed,
                "batch_size": batch_size,
                "shard_samples": batch_size * max(1, int(self.shard_mb * 1e6 // batch_bytes)),
                "size": None if preprocess is None else preprocess.size,
                "preprocess": None if preprocess is None else asdict(preprocess),
                "compute": str(subject.dtype).removeprefix("torch."),
                "device": subject.device.type,
            },
        }
        return _as_read(made_of)

    def _draws(self, infos: Mapping[str, SiteInfo]) -> dict[int, np.ndarray]:
        """Positions of the tokens to keep, for each number of tokens that a site has."""
        if self.tokens == "all":
            return {}
        numbers = sorted({info.tokens for info in infos.values() if info.tokens is not None})
        lengths = {n: np.full(len(self.images), n) if self.lengths is None else self.lengths for n in numbers}
        return {n: draw_tokens(self.seed, n, self.tokens, lengths[n]) for n in numbers}

    def _files(self, draws: Mapping[int, np.ndarray]) -> dict[str, bytes]:
        columns = {"labels": self.images.labels, "lengths": self.lengths}
        about = {name: None if column is None else column.tolist() for name, column in columns.items()}
        files = {SAMPLES: json_bytes({"ids": self.images.ids, "classes": self.images.classes, **about})}
        if draws:
            head, _, _ = tensor_layout({str(n): drawn.shape for n, drawn in draws.items()}, "int32")
            files[TOKENS] = head + b"".join(drawn.tobytes() for drawn in draws.values())
        return files


def _kept(info: SiteInfo) -> int:
    return 1 if info.tokens is None else info.shape[-2]


def _as_read(value: Any) -> Any:
    return json.loads(json.dumps(value))


def refuse_other(old: Manifest, new: Mapping[str, Any], folder: str) -> None:
    """Raises if a store was made from anything else than what would be recorded now, and says what differs."""
    parts = _as_read(old.as_json())
    before, now = _leaves({part: parts[part] for part in new}), _leaves(new)
    if old.complete:  # nothing is left to compute, so it does not matter where that would be
        before.pop("settings.device", None), now.pop("settings.device", None)
    found = [
        f"{name}: the store has {before.get(name)!r}, now it is {now.get(name)!r}"
        for name in dict.fromkeys([*before, *now])
        if before.get(name) != now.get(name)
    ]
    if found:
        raise StoreError(
            f"the store at {folder} was made from something else:\n    " + "\n    ".join(found),
            remedy="record into another folder, or with what the store was made from",
        )


def _leaves(value: Any, name: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}"""
    if not isinstance(value, dict):
        return {name: value}
    inner = [_leaves(found, f"{name}.{key}" if name else key) for key, found in value.items()]
    return {leaf: found for leaves in inner for leaf, found in leaves.items()}
