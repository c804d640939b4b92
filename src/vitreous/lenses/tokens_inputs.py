"""Pictures or texts on their way into token maps, with what is needed to carry maps back to original pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitreous.axes import Grid, Size
from vitreous.checks import whole
from vitreous.errors import SettingsError
from vitreous.images import ImageSet
from vitreous.models.subject import Subject, check_subject
from vitreous.preprocess import Frame
from vitreous.texts import TextSet

TEXTS = "a text, several, vt.TextSet, or rows of whole numbers"


@dataclass(frozen=True)
class Inputs:
    """`batch(positions)` gives a model's input and the pictures' frames; texts have lengths instead of a grid."""

    ids: tuple[str, ...]
    batch: Callable[[range], tuple[Tensor, tuple[Frame, ...] | None]]
    size: Size | None = None
    grid: Grid | None = None
    lengths: np.ndarray | None = None

    def spans(self, count: int) -> Iterator[range]:
        """Positions of batches of so many samples; the last may be shorter."""
        return (range(first, min(first + count, len(self.ids))) for first in range(0, len(self.ids), count))

    def batches(self, batch_size: int) -> Iterator[tuple[range, Tensor, tuple[Frame, ...] | None]]:
        whole(1, batch_size=batch_size)
        for at in self.spans(batch_size):
            yield at, *self.batch(at)


def inputs_of(subject: Subject, given: Any, size: int | tuple[int, int] | None = None) -> Inputs:
    """Anything that holds pictures, or a tensor that is a model's input already; for a language model texts or ids."""
    check_subject(subject)
    if subject.modality == "text":
        return _texts(subject, given)
    wanted = None if size is None else size_of(size)
    if isinstance(given, Tensor):
        return _tensor(subject, given, wanted)
    from PIL.Image import Image

    images = ImageSet.open([given] if isinstance(given, Image) else given)
    if not len(images):
        raise SettingsError("no pictures were given", given=images)
    assert subject.preprocess is not None
    steps = subject.preprocess if wanted is None else subject.preprocess.at(*wanted)
    grid = subject.grid(steps.size)

    def batch(at: range) -> tuple[Tensor, tuple[Frame, ...]]:
        pictures = [images[k].image for k in at]
        frames = tuple(steps.frame(Size(picture.height, picture.width)) for picture in pictures)
        return subject.inputs(np.stack([steps(picture) for picture in pictures])), frames

    return Inputs(images.ids, batch, steps.size, grid)


def size_of(given: int | tuple[int, int]) -> Size:
    """One number for both sides, or (height, width)."""
    sides: Any = (given, given) if isinstance(given, Integral) else given
    plain = isinstance(sides, Sequence | np.ndarray) and all(isinstance(n, Integral) for n in sides)
    if not plain or len(sides) != 2 or min(sides) < 1:
        raise SettingsError("a size is a number of pixels, or (height, width)", given=given)
    return Size(*map(int, sides))


def _names(count: int) -> tuple[str, ...]:
    return tuple(f"{k:06d}" for k in range(count))


def _tensor(subject: Subject, given: Tensor, wanted: Size | None) -> Inputs:
    x = subject.inputs(given)
    if not len(x):
        raise SettingsError("no pictures were given", given=tuple(given.shape))
    if wanted is not None:
        raise SettingsError(
            "a tensor is the model's input as it is", given=f"size={tuple(wanted)}", remedy="leave size out"
        )
    size = Size(*x.shape[-2:])
    return Inputs(_names(len(x)), lambda at: (x[at.start : at.stop], None), size, subject.grid(size))


def _texts(subject: Subject, given: Any) -> Inputs:
    texts = given if isinstance(given, TextSet) else TextSet.from_ids(token_ids(subject, given))
    check_positions(subject, int(texts.lengths.max()))
    check_vocabulary(subject, texts.tokens)
    tokens = torch.from_numpy(texts.tokens)
    return Inputs(texts.ids, lambda at: (subject.inputs(tokens[at.start : at.stop]), None), lengths=texts.lengths)


def token_ids(subject: Subject, given: Any) -> list[list[int]]:
    """One text or several, or their token ids."""
    if isinstance(given, str):
        given = [given]
    if isinstance(given, Sequence) and given and isinstance(given[0], str):
        return [subject.inputs(text)[0].tolist() for text in given]
    if not isinstance(given, Iterable):
        raise SettingsError("no texts were given", given=given, accepted=TEXTS)
    return [_row(row) for row in given]


def _row(given: Any) -> list[int]:
    row = np.asarray(given.cpu() if isinstance(given, Tensor) else given)
    if row.ndim != 1 or (row.size and row.dtype.kind not in "iu"):
        raise SettingsError("a text is text, or a row of token ids", given=given, accepted=TEXTS)
    return row.tolist()


def check_positions(subject: Subject, length: int) -> None:
    """Refuses texts that are longer than what the model has positions for."""
    said = _config(subject)
    most = said.get("max_position_embeddings") or said.get("n_positions")
    if most is not None and length > most:
        raise SettingsError(
            f"a text is longer than the positions of {subject.name}",
            given=f"{length} tokens",
            accepted=f"up to {most}",
            remedy="cut it: vt.TextSet.from_texts(texts, tokenizer, length)",
        )


def check_vocabulary(subject: Subject, tokens: np.ndarray) -> None:
    """Refuses ids that the model has no words for, of which torch would say an index alone."""
    words, most = _config(subject).get("vocab_size"), int(tokens.max())
    if words is not None and most >= words:
        raise SettingsError(
            f"a text has ids that {subject.name} has no tokens for",
            given=most,
            accepted=f"0 to {words - 1}",
            remedy="use the tokenizer that belongs to the model",
        )


def _config(subject: Subject) -> dict[str, Any]:
    """What a Hugging Face model says about itself."""
    config: Any = subject.root.config if subject.family.source == "hf" else None
    return {} if config is None else config.to_dict()
