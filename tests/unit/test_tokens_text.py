"""Scores of a context's words for a summary (eq. 13)."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from shown import leaves_as_a_table, shows_itself

import vitreous as vt
from vitreous.errors import ModelError, SettingsError

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))
sys.path.insert(0, str(Path(__file__).parents[1] / "reference"))
from zoo import build

from tokens import slow_rows

CONTEXT, SUMMARY = [3, 9, 4, 11, 30, 2], [8, 17, 41]


class Letters:
    """A tokenizer: one letter, one token, and 1 before every text."""

    def __call__(self, texts, **_):
        return {"input_ids": torch.tensor([[1, *(2 + ord(letter) % 48 for letter in text)] for text in texts])}

    def decode(self, ids):
        return "".join(f"<{token}>" for token in ids)


@pytest.mark.parametrize("variant", ["HF Llama", "HF GPT-2", "HF Qwen 3, qk-norm"])
@pytest.mark.parametrize("block", [1, -1])
def test_scores_are_the_mean_of_the_summarys_rows(variant, block):
    subject = vt.wrap(build(variant))
    found = vt.context_scores(subject, CONTEXT, SUMMARY, block, separator=[7], progress=False)
    rows = slow_rows(subject, torch.tensor([[*CONTEXT, 7, *SUMMARY]]), block, [7, 8, 9])[0, :, :6]
    np.testing.assert_allclose(found.rows, rows.numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.scores, rows.mean(0).numpy(), rtol=1e-4, atol=1e-6)
    assert found.words == tuple(map(str, CONTEXT)) and found.summary == tuple(map(str, SUMMARY))
    assert (found.scores >= 0).all() and len(found) == 6


def test_texts_are_joined_and_opened_once(tmp_path):
    subject = vt.wrap(build("HF Llama"), tokenizer=Letters())
    subject.module.config.bos_token_id = 1
    found = vt.context_scores(subject, "abc", "de", progress=False)
    leaves_as_a_table(found, tmp_path)
    shows_itself(found)
    ids = [1, *(2 + ord(letter) % 48 for letter in "abc\nde")]
    expected = vt.context_scores(subject, ids[:4], ids[5:], separator=ids[4:5], progress=False)
    np.testing.assert_array_equal(found.scores, expected.scores)
    assert found.words == tuple(f"<{token}>" for token in ids[:4]) and len(found.summary) == 2


def test_the_top_share():
    subject = vt.wrap(build("HF GPT-2"))
    found = vt.context_scores(subject, np.array(CONTEXT), torch.tensor(SUMMARY), separator=[], progress=False)
    same = vt.context_scores(subject, CONTEXT, SUMMARY, separator=[], progress=False)
    np.testing.assert_array_equal(found.scores, same.scores)
    assert found.top(0.5).tolist() == sorted(np.argsort(-found.scores)[:3].tolist())
    assert len(found.top(0.01)) == 1 and len(found.top(1)) == 6
    for share in (0, "0.5"):
        with pytest.raises(SettingsError, match="share is above 0"):
            found.top(share)


def test_what_is_refused():
    causal = vt.wrap(build("HF GPT-2"))
    with pytest.raises(SettingsError, match="at least one token each"):
        vt.context_scores(causal, CONTEXT, [])
    with pytest.raises(SettingsError, match="longer than the positions"):
        vt.context_scores(causal, [1] * 60, [2] * 5)
    with pytest.raises(SettingsError, match="has no tokenizer"):
        vt.context_scores(causal, "abc", "d")
    with pytest.raises(ModelError, match="is not causal: its tokens look ahead"):
        vt.context_scores(vt.wrap(build("HF BERT")), CONTEXT, SUMMARY, separator=[])
    for context, block, says in (([0.5, 1], -1, "rows of whole numbers"), (None, -1, "rows of whole"),
                                 (CONTEXT, [0, 1], "no such block")):  # fmt: skip
        with pytest.raises(SettingsError, match=says):
            vt.context_scores(causal, context, SUMMARY, block)
    with pytest.raises(ModelError, match="it has no context to read"):
        vt.context_scores(vt.wrap(build("timm ViT")), CONTEXT, SUMMARY)


@pytest.mark.data
def test_a_story_and_its_summary(data_root):
    """What the summary is about counts more than what it leaves out."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
    from real_models import stories15m

    context = (
        "Once upon a time, there was a boy named Tim. Tim had a big red ball. One day, the ball rolled into the river. "
        "Tim was very sad. A little dog jumped into the water and brought the ball back."
    )
    found = vt.context_scores(stories15m(data_root), context, "The dog helped Tim get his ball.", progress=False)
    score = {word.strip(): value for value, word in sorted(zip(found.scores, found.words, strict=True))}
    assert min(score[word] for word in ("dog", "ball", "Tim")) > 2 * np.median(found.scores)
    assert score["dog"] > score["big"] and score["ball"] > score["day"]
