"""What every method is made from: the layer's inputs, recorded once, and its outputs, computed from them.

Outputs are the layer's own, before LayerScale, because its units are what is taken apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.errors import SettingsError
from vitreous.images import ImageSet
from vitreous.progress import tqdm
from vitreous.recording import record
from vitreous.subunits.layers import LinearLayer, inputs_of
from vitreous.texts import TextSet

if TYPE_CHECKING:
    from torch import Tensor

    from vitreous.models.subject import Subject
    from vitreous.store import Store

Data = ImageSet | TextSet
PIECE = 256  # samples in one go


@dataclass(frozen=True, eq=False)
class Training:
    """`q` (..., input) and `y` (..., unit), rows alike; `source` and `tokens` are how `disentangle` is given q."""

    source: Store | np.ndarray
    tokens: int | str
    q: Any
    y: np.ndarray

    @property
    def rows(self) -> int:
        return int(np.prod(self.y.shape[:-1]))


def record_training(
    subject: Subject, layer: LinearLayer, data: Data, tokens: int | str, seed: int, folder: Path, progress: bool
) -> Training:
    """Some tokens of every sample. Of texts all are taken, without padding and what stands at the start of each."""
    name = inputs_of(subject, layer)[0]
    texts = isinstance(data, TextSet)
    store = record(
        subject,
        data,
        name,
        folder,
        tokens="all" if texts else tokens,  # type: ignore[arg-type]
        dtype="float32",
        seed=seed,
        progress=progress,
    )
    if not texts:
        return Training(store, tokens, store[name], outputs(layer, store[name]))
    rows = np.asarray(store[name])[looked_at(data, store[name].shape[1])]
    return Training(rows, "all", rows, outputs(layer, rows))


def outputs(layer: LinearLayer, q: Any) -> np.ndarray:
    """Inputs (..., input) -> float32 (..., unit), on the device of the layer."""
    import torch

    weight, bias = (torch.from_numpy(part).to(layer.whole.device) for part in layer.matrix())
    found = np.empty((*q.shape[:-1], len(weight)), np.float32)
    for start in range(0, len(q), PIECE):
        x = torch.from_numpy(np.ascontiguousarray(q[start : start + PIECE], np.float32)).to(weight)
        found[start : start + PIECE] = torch.nn.functional.linear(x, weight, bias).cpu().numpy()
    return found


def looked_at(data: Data, positions: int) -> np.ndarray:
    """bool (sample, position): no padding, and nothing of how all texts begin.

    The first token of a text is often the same everywhere. A unit that is strongest there has one vector in all texts,
    and would pass for the purest of all.
    """
    if isinstance(data, ImageSet):
        return np.ones((len(data), positions), bool)
    start = same_start(data)
    at = np.arange(positions)
    return (at >= start) & (at < data.lengths[:, None])


def same_start(texts: TextSet) -> int:
    """How many tokens all texts begin with alike; refuses texts that are the same from the first to the last."""
    if len(texts) < 2:
        return 0
    alike = (texts.tokens == texts.tokens[0]).all(0) & (np.arange(texts.tokens.shape[1]) < texts.lengths.min())
    start = len(alike) if alike.all() else int(np.argmin(alike))
    if (texts.lengths <= start).any():
        raise SettingsError(
            "a text is empty but for what every text begins with", given=texts.ids[int(np.argmin(texts.lengths))]
        )
    return start


def some(data: Data, index: np.ndarray) -> Data:
    """The samples at these positions."""
    if isinstance(data, ImageSet):
        return data[index]
    labels = None if data.labels is None else data.labels[index]
    return TextSet.from_ids(
        data.tokens[index], data.lengths[index], ids=[data.ids[k] for k in index], labels=labels, name=data.name
    )


def batches(subject: Subject, data: Data, progress: bool, what: str) -> Any:
    """(positions, model input) of all samples, in order."""
    size = 32 if subject.device.type == "cpu" else 128
    found: Any = data.batches(subject.preprocess, size)  # type: ignore[arg-type]
    count = -(-len(data) // size)
    return tqdm(found, what, count, disable=not progress, delay=1, leave=False), found


def pooled(out: Tensor) -> Tensor:
    """A model's output (sample, channel), or its mean over tokens or places: (sample, token, channel) and such."""
    if out.ndim == 4:  # (sample, channel, row, column)
        return out.flatten(2).mean(-1)
    return out.mean(1) if out.ndim == 3 else out
