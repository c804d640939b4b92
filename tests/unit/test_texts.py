"""Token ids in a fixed order."""

from __future__ import annotations

from collections import UserDict

import numpy as np
import pytest

from vitreous.errors import SettingsError
from vitreous.texts import TextSet


def letters(text: str) -> list[int]:
    return [ord(c) - 96 for c in text]


def test_texts_are_padded_on_the_right_and_cut_at_the_length():
    texts = TextSet.from_texts(["abc", "z", "abcdef"], letters, 4, labels=[1, 0, 1], ids=["x", "y", "z"])
    assert texts.tokens.tolist() == [[1, 2, 3, 0], [26, 0, 0, 0], [1, 2, 3, 4]]
    assert texts.tokens.dtype == np.int64
    assert texts.lengths.tolist() == [3, 1, 4]
    assert (texts.ids, texts.labels.tolist(), len(texts)) == (("x", "y", "z"), [1, 0, 1], 3)
    assert repr(texts) == "TextSet('texts': 3 texts of up to 4 tokens)"


def test_a_tokenizer_may_answer_with_a_mapping_as_hugging_face_does():
    texts = TextSet.from_texts(["ab"], lambda t: UserDict(input_ids=letters(t), attention_mask=[1, 1]))
    assert texts.tokens.tolist() == [[1, 2]]


def test_ids_of_one_array_take_their_lengths_and_what_lies_beyond_is_forgotten():
    texts = TextSet.from_ids(np.array([[5, 6, -100, 9], [1, 2, 3, -100]]), [2, 3])
    assert texts.tokens.tolist() == [[5, 6, 0], [1, 2, 3]]
    same = TextSet.from_ids([[5, 6], [1, 2, 3]])
    assert texts.fingerprint == same.fingerprint


def test_batches_begin_at_fixed_samples_and_are_equally_long():
    texts = TextSet.from_ids([[1], [2, 3], [4], [5], [6]])
    found = [(at.tolist(), x.tolist()) for at, x in texts.batches(None, 2)]
    assert found == [([0, 1], [[1, 0], [2, 3]]), ([2, 3], [[4, 0], [5, 0]]), ([4], [[6, 0]])]
    assert [at.tolist() for at, _ in texts.batches(None, 2, start=1)] == [[2, 3], [4]]
    assert list(texts.batches(None, 2, start=3)) == []
    with pytest.raises(SettingsError, match="batch_size is at least 1"):
        next(texts.batches(None, 0))


@pytest.mark.parametrize(
    "other",
    [
        TextSet.from_ids([[1, 2], [3, 5]]),
        TextSet.from_ids([[1, 2], [3]]),
        TextSet.from_ids([[1, 2], [3, 0]]),
        TextSet.from_ids([[3, 4], [1, 2]]),
        TextSet.from_ids([[1, 2], [3, 4]], labels=[0, 0]),
        TextSet.from_ids([[1, 2], [3, 4]], ids=["a", "b"]),
    ],
)
def test_the_fingerprint_tells_sets_apart(other):
    assert other.fingerprint != TextSet.from_ids([[1, 2], [3, 4]]).fingerprint
    assert TextSet.from_ids([[1, 2], [3, 4]]).fingerprint == TextSet.from_ids(np.array([[1, 2], [3, 4]])).fingerprint


def test_padding_is_not_mistaken_for_a_token():
    assert TextSet.from_ids([[1, 0], [1]]).fingerprint != TextSet.from_ids([[1], [1, 0]]).fingerprint


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: TextSet.from_ids([]), "at least one text"),
        (lambda: TextSet.from_ids([[1], []]), "text 000001 has no tokens"),
        (lambda: TextSet.from_ids([[1, 2]], [3]), "text 000000 has length 3"),
        (lambda: TextSet.from_ids([[1, 2]], [1, 1]), "one length and one id for each"),
        (lambda: TextSet.from_ids([[1, -2]]), "not a token id"),
        (lambda: TextSet.from_ids([[1.5]]), "not a token id"),
        (lambda: TextSet.from_ids([[1], [2]], ids=["a", "a"]), "two texts have the same id"),
        (lambda: TextSet.from_ids([[1]], labels=[1, 2]), "one entry for each of 1 texts"),
        (lambda: TextSet.from_ids([[1]], labels=[0.5]), "labels are whole numbers"),
        (lambda: TextSet.from_ids([[1, 2]], [1.5]), "lengths are whole numbers"),
        (lambda: TextSet.from_texts("abc", letters), "texts is a list of texts"),
        (lambda: TextSet.from_texts(["abc"], letters, 0), "length is at least 1"),
    ],
)
def test_what_is_no_text_is_refused_by_name(make, text):
    with pytest.raises(SettingsError, match=text):
        make()
