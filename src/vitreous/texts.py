"""Texts as token ids in a fixed order: to a language model what `ImageSet` is to a vision model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vitreous.checks import whole_numbers
from vitreous.errors import SettingsError


@dataclass(frozen=True, eq=False)
class TextSet:
    """Token ids `tokens` (sample, token) int64, padded with zeros on the right; text k has `lengths[k]` of them.

    A causal model never looks to the right, so padding changes nothing for the tokens before it; an encoder masks it.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    ids: tuple[str, ...]
    labels: np.ndarray | None = None
    classes: tuple[str, ...] | None = None
    name: str = "texts"

    @classmethod
    def from_ids(
        cls,
        tokens: np.ndarray | Sequence[Sequence[int]],
        lengths: Sequence[int] | np.ndarray | None = None,
        *,
        ids: Sequence[str] | None = None,
        labels: Sequence[int] | np.ndarray | None = None,
        name: str = "texts",
    ) -> TextSet:
        """From token ids: an array (sample, token) with `lengths`, or a list of lists of different lengths."""
        rows = [np.asarray(row).reshape(-1) for row in tokens]
        lengths = whole_numbers("lengths", [len(row) for row in rows] if lengths is None else lengths)
        names = tuple(map(str, ids)) if ids is not None else tuple(f"{k:06d}" for k in range(len(rows)))
        _check(rows, lengths, names)
        padded = np.zeros((len(rows), int(lengths.max())), np.int64)
        for k, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            padded[k, :length] = row[:length]
        numbers = None if labels is None else whole_numbers("labels", labels)
        if numbers is not None and numbers.shape != (len(rows),):
            raise SettingsError(f"labels must have one entry for each of {len(rows)} texts", given=numbers.shape)
        return cls(padded, lengths, names, numbers, name=name)

    @classmethod
    def from_texts(
        cls, texts: Sequence[str], tokenizer: Callable[[str], Any], length: int | None = None, **about: Any
    ) -> TextSet:
        """From texts: `tokenizer(text)` gives token ids, or a mapping with "input_ids" as Hugging Face's do.

        Texts are cut after `length` tokens; `about` is what `from_ids` takes besides.
        """
        if isinstance(texts, str):
            raise SettingsError("texts is a list of texts", given=texts, accepted=["a list of str"])
        if length is not None and length < 1:
            raise SettingsError("length is at least 1", given=length)
        rows = []
        for text in texts:
            found = tokenizer(text)
            rows.append(list(found["input_ids"] if isinstance(found, Mapping) else found)[:length])
        return cls.from_ids(rows, **about)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"TextSet({self.name!r}: {len(self)} texts of up to {self.tokens.shape[1]} tokens)"

    @cached_property
    def fingerprint(self) -> str:
        """A hash (hex) of ids, tokens, lengths and labels in their order."""
        digest = hashlib.sha256(b"vitreous texts 1\n")
        for array in (self.tokens, self.lengths, self.labels):
            digest.update(b"none" if array is None else f"{array.shape}".encode() + array.astype("<i8").tobytes())
        for name in self.ids:
            digest.update(f"{len(name)}:{name}".encode())
        return digest.hexdigest()

    def batches(self, _preprocess: object, batch_size: int, start: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(positions, token ids (sample, token)) from batch number `start` on, all padded to the same length."""
        if batch_size < 1 or start < 0:
            raise SettingsError("batch_size is at least 1 and start at least 0", given=(batch_size, start))
        for first in range(start * batch_size, len(self), batch_size):
            positions = np.arange(first, min(first + batch_size, len(self)))
            yield positions, self.tokens[positions]


def _check(rows: list[np.ndarray], lengths: np.ndarray, names: tuple[str, ...]) -> None:
    if not rows or lengths.shape != (len(rows),) or len(names) != len(rows):
        raise SettingsError(
            "at least one text, and one length and one id for each", given=(len(rows), lengths.shape, len(names))
        )
    if len(set(names)) != len(names):
        raise SettingsError("two texts have the same id", given=next(n for n in names if names.count(n) > 1))
    for k, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        if length < 1:
            raise SettingsError(f"text {names[k]} has no tokens", remedy="leave empty texts out")
        if length > len(row):
            raise SettingsError(f"text {names[k]} has length {length}", given=int(length), accepted=f"1 to {len(row)}")
        if row.dtype.kind not in "iu" or row[:length].min() < 0:
            raise SettingsError(f"text {names[k]} holds something that is not a token id", given=row.tolist()[:10])
