"""The whole story from the shell: split, name, steer, judge, and a page to look at; and what is refused on the way."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from typer.testing import CliRunner

import vitreous as vt
from vitreous.cli import app
from vitreous.subunits.pooled import strongest_in_pictures
from vitreous.towers import open_towers
from vitreous.views.patches import patch_box
from vitreous.views.subunits import SplitPictures

sys.path.insert(0, str(Path(__file__).parent))
from judge_server import JudgeServer

MODEL, DATA = "bundled:scenes-text", "scenes:80"
WORDS = ("ring", "star", "heart", "arrow", "red", "teal", "yellow", "striped", "dotted")


def run(*words: str) -> str:
    found = CliRunner().invoke(app, [str(word) for word in words])
    assert found.exit_code == 0, found.output
    return found.stdout


def refused(*words: str) -> str:
    found = CliRunner().invoke(app, [str(word) for word in words])
    assert found.exit_code == 2, found.output
    return found.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Units 2, 9 and 10 split, with a page, and a vocabulary."""
    out = tmp_path_factory.mktemp("story")
    asked = ["--units", "2,9,10", "--tokens", "20", "--min-cluster-size", "20", "--out", out / "split"]
    facts = json.loads(run("disentangle", MODEL, DATA, *asked, "--page", out / "page", "--json"))
    assert facts["sub-units"] > 3
    (out / "words.txt").write_text("\n".join(WORDS))
    return out


@pytest.fixture(scope="module")
def labels(folder) -> Path:
    out = folder / "labels.npz"
    given = ["--subunits", folder / "split", "--vocabulary", folder / "words.txt", "--out", out]
    said = json.loads(
        run("label", MODEL, DATA, *given, "--towers", "bundled", "--top", "15", "--chance", "1", "--json")
    )
    assert {row["label"] for row in said["sure"]} <= set(WORDS)
    return out


def test_a_page_shows_units_and_subunits(folder):
    page = (folder / "page" / "report.html").read_text()
    finding = vt.Disentanglement.load(folder / "split")
    for unit in finding.units:
        assert f"Unit {unit}" in page
        for at in range(len(finding.subunits(unit)) if len(finding.subunits(unit)) < 12 else 0):
            assert f"unit {unit}, sub-unit {at}" in page


@pytest.mark.parametrize(("site", "ahead"), [("patch_embed.proj", 0), ("blocks.0.mlp.out", 1)])
def test_frames_stand_where_a_layer_looks(site, ahead):
    """The class token stands before the patches in blocks alone."""
    subject, images = vt.load(MODEL, device="cpu"), vt.scenes(12, size=64, seed=3)
    asked = {"units": [0, 1], "top_k": 200, "min_cluster_size": 20, "tokens_per_image": 20, "progress": False}
    split = pictures_of(vt.disentangle(subject, images, site, **asked), subject, images)
    places = split.strongest.unit_places[:, 0]
    best = int(np.argmax(split.strongest.units[:, 0]))
    tile = split.unit_tiles(0)[0]
    where = patch_box(int(places[best]) - ahead, subject.grid(), tile.image.shape)
    assert tile.boxes == ((where,) if places[best] >= ahead else ())


def test_frames_are_as_large_as_the_patches_of_a_stage_and_there_are_none_in_a_head():
    module = timm.create_model("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 8, 16, 16), num_classes=4).eval()
    subject = vt.wrap(module, preprocess=vt.Preprocess(size=vt.Size(64, 64), resize=64))
    images = vt.scenes(12, size=64, seed=3)
    asked = {"units": [0, 1], "top_k": 12, "min_cluster_size": 4, "tokens_per_image": "all", "progress": False}
    for site, side in (("blocks.0.mlp.out", 4), ("blocks.-1.mlp.out", 32), ("head.fc", None)):
        split = pictures_of(vt.disentangle(subject, images, site, **asked), subject, images)
        boxes = [box for tile in split.unit_tiles(0) for box in tile.boxes]
        assert {box.x1 - box.x0 for box in boxes} == (set() if side is None else {side})


def pictures_of(finding, subject, images) -> SplitPictures:
    seen = strongest_in_pictures(finding, subject, images, progress=False)
    return SplitPictures(finding, subject, images, seen, None, 0.95)


def test_labels_are_one_for_each_subunit(folder, labels):
    found = vt.Labels.load(labels)
    assert len(found) == len(vt.Disentanglement.load(folder / "split")) and found.vocabulary == WORDS


def test_embeddings_of_any_pair_of_towers_will_do(folder, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "pair.npz", pictures=rng.normal(size=(80, 6)), words=rng.normal(size=(len(WORDS), 6)))
    given = ["--subunits", folder / "split", "--vocabulary", folder / "words.txt", "--out", tmp_path / "l.npz"]
    run("label", MODEL, DATA, *given, "--embeddings", tmp_path / "pair.npz", "--top", "15")
    assert vt.Labels.load(tmp_path / "l.npz").settings["channels"] == 6
    (tmp_path / "no.npz").write_text("x")
    assert "no embeddings in this file" in refused("label", MODEL, DATA, *given, "--embeddings", tmp_path / "no.npz")
    assert "from one place" in refused("label", MODEL, DATA, *given)
    assert "no such towers" in refused("label", MODEL, DATA, *given, "--towers", "clip")


def test_towers_of_hugging_face_are_read_from_a_folder(tmp_path):
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor, CLIPTokenizer

    letters = [chr(k) for k in range(97, 123)]
    tokens = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{letter}</w>" for letter in letters)]
    (tmp_path / "vocab.json").write_text(json.dumps({token: k for k, token in enumerate(tokens)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {**small, "vocab_size": len(tokens), "bos_token_id": 0, "eos_token_id": 1, "max_position_embeddings": 20}
    seen = {**small, "image_size": 32, "patch_size": 16}
    CLIPModel(CLIPConfig(text_config=text, vision_config=seen, projection_dim=8)).save_pretrained(tmp_path / "clip")
    tokenizer = CLIPTokenizer(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt"))
    size = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    CLIPProcessor(CLIPImageProcessor(**size), tokenizer).save_pretrained(tmp_path / "clip")
    towers = open_towers(f"hf:{tmp_path / 'clip'}", "cpu")
    pictures = [picture.image for picture in vt.scenes(3, size=64, seed=0)]
    with torch.no_grad():
        assert towers.image(pictures).shape == (3, 8) and towers.text(["ring", "a star"]).shape == (2, 8)
        assert towers.fit(towers.image(pictures), ["ring"]).shape == (3, 1)
    with pytest.raises(vt.ModelError, match="no model and processor here"):
        open_towers(f"hf:{tmp_path / 'nothing'}", "cpu")


def test_a_word_has_one_vector_whatever_stands_beside_it(tmp_path):
    """SigLIP has no mask for padding: it reads the last place, wherever a longer text in the batch puts it."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, SiglipConfig, SiglipImageProcessor, SiglipModel, SiglipProcessor

    words = Tokenizer(models.WordLevel({"</s>": 0, "ring": 1, "big": 2, "star": 3}, unk_token="</s>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = {"pad_token": "</s>", "eos_token": "</s>", "model_input_names": ["input_ids"]}
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {**small, "vocab_size": 4, "max_position_embeddings": 8, "projection_size": 16}
    text |= dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0)
    seen = {**small, "image_size": 32, "patch_size": 16}
    SiglipModel(SiglipConfig(text_config=text, vision_config=seen)).save_pretrained(tmp_path)
    processor = SiglipImageProcessor(size={"height": 32, "width": 32})
    SiglipProcessor(processor, PreTrainedTokenizerFast(tokenizer_object=words, **ends)).save_pretrained(tmp_path)
    towers = open_towers(f"hf:{tmp_path}", "cpu")
    with torch.no_grad():
        alone, beside = towers.text(["ring"]), towers.text(["ring", "big big star"])
    torch.testing.assert_close(alone[0], beside[0])


def test_steering_draws_before_and_after(folder, labels, tmp_path):
    word = next(name for name in vt.Labels.load(labels).names if name)
    reads = ["--towers", "bundled", "--vocabulary", folder / "words.txt"]
    given = ["--subunits", folder / "split", *reads, "--out", tmp_path / "steered.png", "--prefix", "--json"]
    by_label = ["--suppress", word, "--labels", labels, "--gamma", "-20"]
    said = json.loads(run("steer", MODEL, DATA, *given, *by_label))
    assert said["subunits"] >= 1 and said["largest_change"] > 0 and said["pictures"] == 4
    assert (tmp_path / "steered.png").read_bytes()[1:4] == b"PNG"
    assert json.loads(run("steer", MODEL, DATA, *given, "--amplify", "0", "--patches", "5"))["subunits"] == 1
    near = json.loads(run("steer", MODEL, DATA, *given, "--labels", labels, "--suppress", "green", "--nearest"))
    assert near["subunits"] > 1  # no label, but labels are near it
    assert "nothing to steer" in refused("steer", MODEL, DATA, *given)
    assert "no such sub-unit" in refused("steer", MODEL, DATA, *given, "--amplify", "9999")
    bare = ["--subunits", folder / "split", "--out", tmp_path / "no.png", "--amplify", "0"]
    assert "has no classes to say" in refused("steer", MODEL, DATA, *bare)


def test_the_coherence_judge_ranks_units_and_subunits(folder):
    given = ["--subunits", folder / "split", "--pairs", "10"]
    said = run("judge", MODEL, DATA, *given, "--embedding", "bundled:scenes-contrast")
    assert "coherence judge" in said and "LLM Rank" not in said
    assert all(name in said for name in ("units", "sub-units", "any pictures"))
    assert "one kind of judge" in refused("judge", MODEL, DATA, *given)
    judged = ["--pairs", "5", "--embedding", "bundled:scenes-contrast"]
    shutil.copytree(folder / "split", folder / "again" / "split")
    both = run("judge", MODEL, DATA, *given[:2], "--subunits", folder / "again" / "split", *judged)
    assert all(f"sub-units of {one / 'split'}" in both for one in (folder, folder / "again"))  # not one of two
    assert "named twice" in refused("judge", MODEL, DATA, *given[:2], *given[:2], *judged)
    assert "MODEL@ADDRESS" in refused("judge", MODEL, DATA, *given, "--endpoint", "http://localhost:1/v1")


def test_llm_rank_asks_an_endpoint_and_keeps_what_it_said(folder, tmp_path):
    with JudgeServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        given = ["--subunits", folder / "split", "--pairs", "2", "--journal", tmp_path / "answers.jsonl"]
        said = run("judge", MODEL, DATA, *given, "--endpoint", f"seer@{server.url}")
        asked = len(server.asked)
        assert "LLM Rank" in said and asked == 3 * 2 * 2  # pairs of methods, of units, and both orders
        assert run("judge", MODEL, DATA, *given, "--endpoint", f"seer@{server.url}") == said
        assert len(server.asked) == asked
        server.released.set()
        server.shutdown()
        thread.join()


def test_another_model_is_refused(folder, tmp_path):
    given = ["--subunits", folder / "split", "--embedding", "bundled:scenes-mae"]
    assert "are not those that were split" in refused("judge", "bundled:scenes-contrast", DATA, *given)
    assert "no disentanglement here" in refused("judge", MODEL, DATA, "--subunits", tmp_path, *given[2:])
