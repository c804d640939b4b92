"""What a layer was given, one row an instance: from a model and pictures, from a store, or from an array.

Rows lie on disk, or in the store they came from; nothing here holds more than a batch of them. An instance is one
position of one sample (section 3.1); with `tokens_per_image` a few positions a sample are drawn, as `vt.record` draws
them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vitreous.errors import SettingsError, StoreError
from vitreous.images import ImageSet
from vitreous.memory import Parts
from vitreous.models.subject import Subject
from vitreous.progress import tqdm
from vitreous.provenance import json_bytes, replace_file
from vitreous.recording.passes import draw_tokens
from vitreous.store import Store
from vitreous.subunits.layers import LinearLayer, inputs_of
from vitreous.texts import TextSet

if TYPE_CHECKING:
    from torch import Tensor, nn

Source = ImageSet | TextSet | Store | np.ndarray
Tokens = int | Literal["all"]
BATCH = {"cpu": 32}  # pictures of one forward pass; elsewhere 128
PIECE = 1 << 24  # numbers read in one go
FILE, READY = "inputs.f32", "inputs.json"


@dataclass(frozen=True, eq=False)
class Rows:
    """`read(ids)` gives float32 (row, input); row i is position `tokens[i]` of sample `images[i]`."""

    read: Callable[[np.ndarray], np.ndarray]
    images: np.ndarray
    tokens: np.ndarray
    inputs: int

    def __len__(self) -> int:
        return len(self.images)

    def batches(self) -> Iterator[np.ndarray]:
        """All rows in order, float32 (row, input)."""
        step = max(1, PIECE // self.inputs)
        for first in range(0, len(self), step):
            yield self.read(np.arange(first, min(first + step, len(self))))


@dataclass(frozen=True, eq=False)
class InFile:
    """Rows in a file of their own; each process maps it for itself."""

    path: Path
    shape: tuple[int, int]

    @cached_property
    def _mapped(self) -> np.ndarray:
        try:
            return np.memmap(self.path, np.float32, "r", shape=self.shape)
        except (OSError, ValueError) as error:
            raise StoreError(
                f"the rows of this run cannot be read here: {error}",
                given=str(self.path),
                remedy="workers on other machines need `out` on a disk that all of them see",
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path.resolve(), "shape": self.shape}

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        return np.asarray(self._mapped[ids])


@dataclass(frozen=True, eq=False)
class InArray:
    """Rows of an array (row, input), or of one (sample, position, input) with sample and position of each row."""

    array: np.ndarray
    places: tuple[np.ndarray, np.ndarray] | None

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        at = ids if self.places is None else tuple(place[ids] for place in self.places)
        return np.asarray(self.array[at], np.float32)


@dataclass(frozen=True, eq=False)
class InStore:
    """Rows of a store, which workers open for themselves."""

    store: Store
    site: str
    images: np.ndarray
    slots: np.ndarray | None

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        samples = self.images[ids]
        array = self.store[self.site]
        rows = np.asarray(array[samples] if self.slots is None else array[samples, self.slots[ids]], np.float32)
        if not np.isfinite(rows).all():
            raise StoreError(
                f"the store holds values that are not finite at {self.site}", remedy="record these samples again"
            )
        return rows


def describe_source(source: Source) -> dict[str, Any]:
    """What the instances come from, by content, as it is kept with a result."""
    if isinstance(source, Store):
        return dict(source.manifest.data)
    if isinstance(source, np.ndarray):
        digest = hashlib.sha256(f"{source.dtype}|{source.shape}".encode())
        digest.update(np.ascontiguousarray(source).data)
        return {"name": "array", "fingerprint": digest.hexdigest(), "samples": len(source)}
    if not isinstance(source, ImageSet | TextSet):
        raise SettingsError(
            "instances come from something else",
            given=type(source).__name__,
            accepted="an ImageSet, a TextSet, a Store, or an array of what enters the layer",
            remedy=f"vt.ImageSet.open({str(source)!r})" if isinstance(source, str | Path) else None,
        )
    return {"name": source.name, "fingerprint": source.fingerprint, "samples": len(source)}


def open_rows(
    owner: Subject | nn.Module,
    layer: LinearLayer,
    source: Source,
    tokens: Tokens,
    seed: int,
    folder: Path,
    progress: bool,
) -> Rows:
    """The rows of a source. Those of pictures are computed and written into `folder`, unless they are there already."""
    if tokens != "all" and (type(tokens) is not int or tokens < 1):
        raise SettingsError("unknown tokens_per_image", given=tokens, accepted="'all', or a whole number from 1 on")
    inputs = layer.whole.shape[1]
    if isinstance(source, np.ndarray):
        return _from_array(source, inputs, tokens, seed)
    if not isinstance(owner, Subject):
        raise SettingsError(
            "a bare module takes its layer's inputs as an array",
            given=type(source).__name__,
            remedy="vt.wrap(module) makes a subject that takes pictures and texts",
        )
    if isinstance(source, Store):
        return _from_store(owner, layer, source, tokens, seed)
    _check_pass(owner, source)
    if not _whole(folder, inputs):
        _write(owner, layer, source, tokens, seed, folder, progress)
    positions = json.loads((folder / READY).read_bytes())["positions"]
    images, kept = _choose(positions, _lengths(source, positions), tokens, seed)
    return Rows(InFile(folder / FILE, (len(images), inputs)), images, kept, inputs)


# -- which positions


def _choose(positions: int, lengths: np.ndarray, tokens: Tokens, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Samples and positions of all instances, samples in order."""
    if tokens == "all" or positions == 1:
        images, kept = np.nonzero(np.arange(positions) < lengths[:, None])
        return images, kept
    if tokens > (fewest := int(lengths.min())):
        raise SettingsError(
            "more tokens a sample asked for than there are",
            given=tokens,
            accepted=f"'all', or a number from 1 to {fewest}",
        )
    drawn = draw_tokens(seed, positions, tokens, lengths)
    return np.repeat(np.arange(len(drawn)), tokens), drawn.reshape(-1).astype(np.int64)


def _lengths(source: ImageSet | TextSet, positions: int) -> np.ndarray:
    return source.lengths if isinstance(source, TextSet) else np.full(len(source), positions)


# -- from arrays and stores


def _from_array(array: np.ndarray, inputs: int, tokens: Tokens, seed: int) -> Rows:
    if array.ndim not in (2, 3) or array.shape[-1] != inputs or array.dtype.kind != "f" or not array.size:
        raise SettingsError(
            "inputs of the layer are floats (instance, input) or (sample, token, input)",
            given=f"{array.dtype} {array.shape}",
            accepted=f"{inputs} inputs",
        )
    step = max(1, PIECE // (array.size // len(array)))
    for first in range(0, len(array), step):
        finite = np.isfinite(array[first : first + step]).reshape(-1, array.size // len(array)).all(1)
        if not finite.all():
            sample = first + int(np.flatnonzero(~finite)[0])
            raise SettingsError("inputs are not finite", given=f"sample {sample}", remedy="leave such samples out")
    if array.ndim == 2:
        images, kept = np.arange(len(array)), np.zeros(len(array), np.int64)
        return Rows(InArray(array, None), images, kept, inputs)
    images, kept = _choose(array.shape[1], np.full(len(array), array.shape[1]), tokens, seed)
    return Rows(InArray(array, (images, kept)), images, kept, inputs)


def _from_store(subject: Subject, layer: LinearLayer, store: Store, tokens: Tokens, seed: int) -> Rows:
    if store.manifest.model["fingerprint"] != subject.fingerprint:
        raise StoreError(
            "the store was recorded from another model", given=store.manifest.model["name"], accepted=subject.name
        )
    names = [name for name in inputs_of(subject, layer) if name in store.sites]
    if not names:
        raise StoreError(
            f"the store does not hold what enters {layer.path}",
            given=store.sites,
            accepted=inputs_of(subject, layer),
            remedy=f'vt.record(..., sites="{inputs_of(subject, layer)[0]}")',
        )
    if not len(store):
        raise StoreError("the store holds no samples", given=store.address)
    array = store[names[0]]
    if array.ndim == 2:
        images, slots = np.arange(len(store)), np.zeros(len(store), np.int64)
        return Rows(InStore(store, names[0], images, None), images, slots, array.shape[-1])
    kept = store.tokens(names[0])
    whole = store.manifest.settings["tokens"] == "all"
    lengths = store.lengths if whole and store.lengths is not None else np.full(len(store), array.shape[1])
    images, slots = _choose(array.shape[1], lengths, "all" if not whole and tokens == array.shape[1] else tokens, seed)
    found = np.asarray(kept[images, slots], np.int64)
    return Rows(InStore(store, names[0], images, slots), images, found, array.shape[-1])


# -- from a model


def _check_pass(subject: Subject, source: ImageSet | TextSet) -> None:
    if (subject.modality == "text") != isinstance(source, TextSet):
        raise SettingsError(f"{subject.name} takes {subject.modality}", given=type(source).__name__)
    if not len(source):
        raise SettingsError("there is nothing to look at: the set is empty", given=source.name)
    if subject.hooks:
        raise SettingsError(
            "the model carries hooks, perhaps of an active vt.patch or vt.steer: they could change what enters it",
            given=f"hooks on {', '.join(subject.hooked[:3])}",
            remedy="disentangle outside of the with; finding.remove(subject) takes out what was applied",
        )


def _whole(folder: Path, inputs: int) -> bool:
    """Whether rows were written to their end, and are as long as they were then."""
    if not (folder / READY).exists() or not (folder / FILE).exists():
        return False
    rows = json.loads((folder / READY).read_bytes())["rows"]
    return (folder / FILE).stat().st_size == rows * inputs * np.dtype(np.float32).itemsize


def _write(
    subject: Subject,
    layer: LinearLayer,
    source: ImageSet | TextSet,
    tokens: Tokens,
    seed: int,
    folder: Path,
    progress: bool,
) -> None:
    """One pass over the data: chosen rows as float32 into a file, then a note that it is whole."""
    from vitreous.hooks import evaluating

    size = BATCH.get(subject.device.type, 128)
    images, parts = np.empty(0, int), Parts()
    batches: Any = source.batches(subject.preprocess, size)  # type: ignore[arg-type]
    with closing(batches), evaluating(subject.module), (folder / FILE).open("wb") as file:
        for where, x in tqdm(batches, "instances", -(-len(source) // size), disable=not progress, leave=False):
            values = parts(partial(_pass, subject, layer), x)["rows"].cpu().numpy()
            if not len(images):
                positions = values.shape[1]
                images, kept = _choose(positions, _lengths(source, positions), tokens, seed)
            if values.shape[1] != positions:
                raise SettingsError("samples differ in their number of positions", given=(positions, values.shape[1]))
            here = slice(*np.searchsorted(images, [where[0], where[-1] + 1]))
            rows = values[images[here] - where[0], kept[here]]
            if not np.isfinite(rows).all():
                sample = images[here][~np.isfinite(rows).all(1)][0]
                raise SettingsError(
                    f"what enters {layer.path} is not finite", given=source.ids[sample], remedy="leave it out"
                )
            file.write(rows.tobytes())
    replace_file(folder / READY, json_bytes({"positions": int(positions), "rows": len(images)}))


def _pass(subject: Subject, layer: LinearLayer, x: np.ndarray) -> dict[str, Tensor]:
    """float32 (sample, position, input)."""
    import torch

    from vitreous.hooks import capture

    name = f"{layer.path}:in"
    with torch.inference_mode(), capture(subject, name, stop=True) as recording:
        subject(torch.from_numpy(x))
        rows = layer.rows(recording[name])
        if len(rows) != len(x):
            raise SettingsError(f"{layer.path} does not see one row of positions a sample", given=tuple(rows.shape))
        return {"rows": rows.float()}
