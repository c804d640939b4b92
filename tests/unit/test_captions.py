"""The text tower of scenes-text: words in, unit vectors out, nothing that it never learned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from vitreous.errors import ModelError, SettingsError
from vitreous.models.captions import LONGEST, CaptionTower, load_captions
from vitreous.scenery import render_scene, vocabulary


@pytest.fixture(scope="module")
def tower() -> CaptionTower:
    torch.manual_seed(0)
    return CaptionTower(vocabulary()).eval()


def test_it_is_small(tower: CaptionTower) -> None:
    assert sum(p.numel() for p in tower.parameters()) < 150_000


def test_texts_become_unit_vectors_whatever_stands_beside_them(tower: CaptionTower) -> None:
    texts = ["red star", render_scene(0, 4).caption, "Striped", "a small blue dotted ring"]
    with torch.no_grad():
        together = tower.text(tower.tokens(texts))
        alone = torch.cat([tower.text(tower.tokens([text])) for text in texts])
    torch.testing.assert_close(together.norm(dim=1), torch.ones(4))
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)


def test_the_order_of_words_counts(tower: CaptionTower) -> None:
    with torch.no_grad():
        one, two = tower.text(tower.tokens(["red star blue ring", "blue star red ring"]))
    assert (one - two).abs().max() > 1e-4


def test_pictures_and_texts_meet(tower: CaptionTower) -> None:
    with torch.no_grad():
        logits = tower(torch.randn(5, 128), ["red", "green woven background"])
    assert logits.shape == (5, 2)


def test_every_caption_fits(tower: CaptionTower) -> None:
    longest = max((render_scene(0, index, 32, (8, 8)).caption for index in range(3)), key=len)
    assert len(longest.split()) > LONGEST, "eight objects are more than the tower was made for"
    captions = [render_scene(0, index, 32).caption for index in range(100)]
    assert tower.tokens(captions).shape[1] <= LONGEST


def test_unknown_words_and_wrong_lengths_are_refused(tower: CaptionTower) -> None:
    with pytest.raises(SettingsError, match=r"does not know a word\n  given:    'stars'\n(.|\n)*nearest:  star"):
        tower.tokens(["red stars"])
    with pytest.raises(
        SettingsError, match="length that the tower cannot take\n  given:    0\n  accepted: 1 to 40 words"
    ):
        tower.tokens([""])


def test_a_saved_tower_comes_back(tower: CaptionTower, tmp_path: Path) -> None:
    config = {"text": {"words": list(tower.words), "settings": tower.settings}}
    tensors = {f"text.{key}": value.half() for key, value in tower.state_dict().items()}
    path = tmp_path / "scenes-text.safetensors"
    save_file(tensors, path, {"config": json.dumps(config)})
    again = load_captions(path)
    assert not again.training
    with torch.no_grad():
        tokens = tower.tokens(["large red striped star"])
        torch.testing.assert_close(again.text(tokens), tower.text(tokens), atol=2e-3, rtol=0)


def test_a_file_without_text_tower_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "scenes-mae.safetensors"
    save_file({"vit.norm.weight": torch.ones(3)}, path, {"config": "{}"})
    with pytest.raises(ModelError, match=r"no text tower in this weight file\n  given:    'scenes-mae.safetensors'"):
        load_captions(path)
