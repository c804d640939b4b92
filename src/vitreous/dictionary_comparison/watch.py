"""One pass over the evaluation samples with a method in the model: all that its row is made of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vitreous.dictionary_comparison.activations import Data, batches, looked_at
from vitreous.dictionary_comparison.methods import Method
from vitreous.dictionary_comparison.reading import Reader
from vitreous.dictionary_comparison.tapped import swapped, tapped
from vitreous.errors import SettingsError
from vitreous.evidence.faithfulness import Faithfulness, faithfulness
from vitreous.hooks import evaluating
from vitreous.subunits.layers import LinearLayer

if TYPE_CHECKING:
    from torch import Tensor

    from vitreous.models.subject import Subject


@dataclass(eq=False)
class Watched:
    """`strongest` float32 (sample, unit), the largest activation in each sample, and `places`, its position.

    `low` (unit,) is the smallest anywhere; `active` units above zero a row; `kept` (sample, ...) what the reader keeps.
    """

    found: Faithfulness
    strongest: np.ndarray
    places: np.ndarray
    low: np.ndarray
    active: float
    kept: np.ndarray


@dataclass(frozen=True, eq=False)
class Reference:
    """The model as it is: the layer's outputs `y` (sample, position, unit), on disk, and what the reader keeps."""

    y: np.ndarray
    kept: np.ndarray


@dataclass(frozen=True, eq=False)
class Room:
    """Where methods are watched: the model, its layer, the samples, and who reads what comes out."""

    subject: Subject
    layer: LinearLayer
    data: Data
    reader: Reader
    progress: bool

    def passes(self, what: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(positions, what the reader keeps) batch by batch, the model having been run on it."""
        bar, source = batches(self.subject, self.data, self.progress, what)
        with closing(source), evaluating(self.subject.module):
            for where, x in bar:
                with torch.inference_mode():
                    given = torch.from_numpy(x)
                    yield where, self.reader.keep(self.subject(given), given)

    def reference(self, folder: Path) -> Reference:
        """The model as it is, computed once and kept in the folder."""
        y_file, kept_file = folder / "layer.npy", folder / "outputs.npy"
        if not kept_file.exists():
            y: Any = None
            kept = []
            with tapped(self.layer, swapped(self.layer, lambda _, y: (y, None))) as (seen, _):
                for where, part in self.passes("the model as it is"):
                    if y is None:
                        shape = (len(self.data), *seen.before.shape[1:])
                        y = np.lib.format.open_memmap(y_file, "w+", np.float32, shape)
                    y[where] = seen.before.float().cpu().numpy()
                    kept.append(part)
            y.flush()
            draft = folder / "draft.npy"
            np.save(draft, np.concatenate(kept))
            draft.replace(kept_file)  # last: it says that both are whole
        return Reference(np.load(y_file, mmap_mode="r"), np.load(kept_file))

    def watch(self, method: Method) -> Watched:
        gathered = _Gathered()
        with tapped(self.layer, method.enter()) as (seen, codes):

            def pairs() -> Iterator[tuple[Tensor, Tensor]]:
                for where, kept in self.passes(method.name):
                    valid = torch.from_numpy(looked_at(self.data, seen.before.shape[1])[where])
                    gathered.take(codes().float().cpu(), valid, kept)
                    yield seen.before.float().cpu()[valid], seen.after.float().cpu()[valid]

            found = faithfulness(pairs())
        return gathered.result(found)


class _Gathered:
    """What is kept of every batch."""

    def __init__(self) -> None:
        self.strongest: list[np.ndarray] = []
        self.places: list[np.ndarray] = []
        self.kept: list[np.ndarray] = []
        self.low: np.ndarray | None = None
        self.above, self.rows = 0, 0

    def take(self, z: Tensor, valid: Tensor, kept: np.ndarray) -> None:
        """Codes z (sample, position, unit); positions that are not valid (sample, position) count for nothing."""
        if not torch.isfinite(z).all():
            raise SettingsError("codes are not finite", remedy="a smaller learning rate, or fewer steps")
        self.above, self.rows = self.above + int((z > 0)[valid].sum()), self.rows + int(valid.sum())
        low = z[valid].amin(0).numpy()
        self.low = low if self.low is None else np.minimum(self.low, low)
        strongest, places = z.masked_fill(~valid[..., None], -torch.inf).max(1)
        self.strongest.append(strongest.numpy())
        self.places.append(places.numpy().astype(np.int32))
        self.kept.append(kept)

    def result(self, found: Faithfulness) -> Watched:
        assert self.low is not None
        strongest, places = np.concatenate(self.strongest), np.concatenate(self.places)
        return Watched(found, strongest, places, self.low, self.above / self.rows, np.concatenate(self.kept))
