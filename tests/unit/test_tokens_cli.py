"""`vitreous tokens` and `vitreous segment`, and their pages."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import vitreous as vt
from vitreous.cli import app
from vitreous.views.token_page import spread_tokens

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))
from zoo import build


def call(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.stdout if result.exit_code == 0 else result.output


def test_maps_of_several_blocks(tmp_path):
    words = ["bundled:scenes-text", "scenes:2", "--out", tmp_path, "--block", "0,-1", "--shown", 1]
    code, text = call("tokens", *words, "--tokens", "class,9,-1", "--device", "cpu", "--json")
    facts = json.loads(text)
    assert code == 0 and facts["blocks"] == [0, 7] and facts["tokens"] == 3
    assert facts["files"] == ["maps-block0.npz", "maps-block7.npz", "tokens.png", "report.html"]
    found = vt.TokenMaps.load(tmp_path / "maps-block7.npz")
    assert found.tokens == (0, 9, 64) and found.maps.shape == (2, 3, 8, 8)
    page = (tmp_path / "report.html").read_text()
    assert "What tokens stand for" in page and "patch 1, 0" in page and "block 0" in page
    run = json.loads((tmp_path / "run.json").read_text())
    assert run["settings"]["target"] == "sum" and run["settings"]["block"] == [0, 7]
    model = vt.load("bundled:scenes-text", device="cpu").fingerprint
    assert run["inputs"] == {"model": model, "data": vt.scenes(2, size=64, seed=0).fingerprint}
    assert (tmp_path / "tokens.png").read_bytes()[:4] == b"\x89PNG"


def test_segments(tmp_path):
    words = ["bundled:scenes-text", "scenes:3", "--out", tmp_path, "--k", 3, "--device", "cpu"]
    code, text = call("segment", *words, "--json")
    facts = json.loads(text)
    assert code == 0 and facts["segments"] == [3, 3, 3]
    assert [name for name in facts["files"] if "/" not in name] == [
        "segments.json",
        "segments.npz",
        "segments.png",
        "report.html",
    ]
    assert all((tmp_path / name).is_file() for name in facts["files"])
    page = (tmp_path / "report.html").read_text()
    assert "Segments without training" in page and "A picture taken apart, 6 parts" in page
    code, text = call("segment", *words)
    assert code == 0 and "Segments(3 pictures, 3 to 3 clusters" in text


class Letters:
    def __call__(self, texts, **_):
        return {"input_ids": torch.tensor([[2 + ord(letter) % 48 for letter in text] for text in texts])}

    def decode(self, ids):
        return "".join(chr(97 + token % 26) for token in ids)


@pytest.fixture
def language_model(monkeypatch):
    subject = vt.wrap(build("HF GPT-2"), tokenizer=Letters())
    monkeypatch.setattr(vt, "load", lambda *_, **__: subject)


@pytest.mark.usefixtures("language_model")
def test_words_for_a_summary(tmp_path):
    (tmp_path / "story.txt").write_text("tom had a ball\n")
    words = ["any", tmp_path / "story.txt", "--out", tmp_path / "page", "--summary", "ball"]
    code, text = call("tokens", *words, "--json")
    facts = json.loads(text)
    assert code == 0 and len(facts["scores"]) == 14
    assert facts["files"] == ["context.npz", "context.png", "report.html"]
    with np.load(tmp_path / "page" / "context.npz") as stored:
        assert stored["scores"].tolist() == pytest.approx([each["score"] for each in facts["scores"]])
        assert len(stored["words"]) == 14 and stored["rows"].shape == (4, 14)
    code, text = call("tokens", *words)
    assert code == 0 and "context.png" in text
    assert "What the summary rests on" in (tmp_path / "page" / "report.html").read_text()


@pytest.mark.usefixtures("language_model")
def test_texts_without_a_summary(tmp_path):
    (tmp_path / "two.txt").write_text("one two\nthree\n")
    code, text = call("tokens", "any", tmp_path / "two.txt", "--out", tmp_path / "maps", "--json")
    assert code == 0 and json.loads(text)["files"] == ["maps.npz", "tokens.png", "report.html"]
    assert vt.TokenMaps.load(tmp_path / "maps" / "maps.npz").lengths.tolist() == [7, 5]
    page = (tmp_path / "maps" / "report.html").read_text()
    assert "What tokens stand for" in page and page.count("token 4: ") == 2 and page.count("token 6: ") == 1
    code, text = call("tokens", "any", tmp_path / "no.txt", "--out", tmp_path / "maps", "--summary", "x")
    assert code == 2 and "a context is a text file" in text
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00a")
    for more in ([], ["--summary", "x"]):
        code, text = call("tokens", "any", tmp_path / "bytes.txt", "--out", tmp_path / "none", *more)
        assert code == 2 and "this file is no text in UTF-8" in text


@pytest.mark.usefixtures("language_model")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--block", "0,1"], "scores of words are of one block"),
        (["--tokens", "3"], "--tokens does not go with --summary"),
        (["--own", "keep"], "--own does not go with --summary"),
        (["--dtype", "bfloat16"], "--dtype does not go with --summary"),
        (["--engine", "local:2"], "--engine does not go with --summary"),
    ],
)
def test_what_a_summary_has_no_use_for_is_refused(tmp_path, words, says):
    (tmp_path / "story.txt").write_text("tom had a ball\n")
    code, text = call("tokens", "any", tmp_path / "story.txt", "--out", tmp_path / "page", "--summary", "ball", *words)
    assert code == 2 and says in text and not (tmp_path / "page").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--block", "last"], "blocks are numbers"),
        (["--block", "9"], "no such block"),
        (["--tokens", "register"], "no prefix token of this name"),
        (["--target", "norm"], "unknown target"),
    ],
)
def test_bad_input_ends_with_a_message(tmp_path, words, says):
    code, text = call("tokens", "bundled:scenes-mae", "scenes:1", "--out", tmp_path, *words)
    assert code == 2 and says in text


def test_tokens_to_look_at_are_spread(tiny):
    found = vt.token_maps(tiny, [np.zeros((32, 32, 3), np.uint8)], progress=False)
    assert spread_tokens(found, 5) == [0, *(found.token_at(y, x) for y in (1, 2) for x in (1, 2))]
    assert len(spread_tokens(found, 99)) == 17  # one prefix token, and every patch
    assert sorted(spread_tokens(found.of([7, 9]), 5)) == [7, 9]
