from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vitreous.cli import app

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))
from zoo import build


def run(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_sites_are_the_same_for_timm_and_hugging_face(tmp_path):
    build("HF DINOv2").save_pretrained(tmp_path)
    timm = run("sites", "timm:vit_small_patch14_dinov2", "--set", "depth=3", "--json")
    hf = run("sites", f"hf:{tmp_path}", "--json")
    assert timm.exit_code == hf.exit_code == 0
    assert json.loads(timm.stdout)["sites"] == json.loads(hf.stdout)["sites"]


def test_sites_shows_the_model_and_checks_its_laws():
    shown = run("sites", "timm:vit_tiny_patch16_224", "--match", "blocks.-1.mlp.*")
    assert "14 x 14" in shown.stdout and "blocks.11.mlp.hidden" in shown.stdout and "blocks.0" not in shown.stdout
    checked = run("sites", "timm:vit_tiny_patch16_224", "--set", "depth=1", "--set", "img_size=64", "--check", "--json")
    assert all(law["holds"] for law in json.loads(checked.stdout)["laws"])


def test_models_lists_families_sources_and_names():
    shown = run("models")
    assert "timm ViT" in shown.stdout and "HF DINOv3" in shown.stdout and "bundled:" in shown.stdout
    facts = json.loads(run("models", "--json").stdout)
    assert {row["source"] for row in facts["sources"]} == {"timm:", "hf:", "torchvision:", "bundled:"}
    names = json.loads(run("models", "timm", "--like", "dinov2", "--json").stdout)
    assert "timm:vit_small_patch14_dinov2" in names and all("dinov2" in name for name in names)


def test_record_and_inspect(tmp_path):
    out = tmp_path / "store"
    command = ("record", "bundled:scenes-text", "scenes:12", "--out", out, "--site", "blocks.-1.mlp.hidden", "--json")
    recorded = run(*command)
    assert recorded.exit_code == 0, recorded.output
    facts = json.loads(recorded.stdout)
    assert facts["complete"] and facts["sites"]["blocks.7.mlp.hidden"]["shape"] == [12, 65, 384]
    assert json.loads((out / "run.json").read_text())["status"] == "done"
    assert run(*command).stdout == recorded.stdout, "again is a no-op"
    shown = run("inspect", out, "--verify")
    assert shown.exit_code == 0 and "every byte is as it was written" in shown.stdout
    shard = next((out / "shards").glob("*.safetensors"))
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    broken = run("inspect", out, "--verify")
    assert broken.exit_code == 1 and shard.name in broken.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sites", "timm:vit_smal_patch14_dinov2"], "nearest:  vit_small_patch14_dinov2"),
        (["sites", "timm:swin_tiny_patch4_window7_224"], "shifted windows"),
        (["sites", "timm:vit_tiny_patch16_224", "--set", "depth"], "a setting is KEY=VALUE"),
        (["models", "tim"], "accepted: timm, hf, torchvision, bundled"),
        (["inspect", "nowhere"], "nowhere"),
        (["train", "spirals"], "nearest:  spiral"),
        (["train", "spiral"], "a run needs a folder"),
        (["train", "spiral", "--out", "x", "--set", "epochs=abc"], "epochs is a count"),
        (["train", "spiral", "--out", "x", "--set", "epochs=2", "--epochs", "3"], "epochs is said twice"),
        (["train", "spiral", "--out", "x", "--set", "momentum=0.9"], "a recipe has no such value"),
        (["train", "spiral", "--out", "x", "--set", "data=here"], "--data and --loss say what these are"),
        (["train", "spiral", "--out", "x", "--loss", "threshold=much"], "threshold is a number"),
        (["record", "bundled:scenes-text", "no/such/folder", "--out", "x"], "no such file or folder"),
        (["record", "bundled:scenes-text", "scenes:2", "--out", "/dev/null/x", "--device", "cpu"], "Not a directory"),
        (["examine", "bundled:scenes-text", "--images", "scenes:16", "--out", "/dev/null"], "File exists"),
        (["record", "bundled:scenes-text", "scene:2", "--out", "x"], "nearest:  scenes"),
        (["record", "bundled:scenes-text", "scenes:many", "--out", "x"], "scenes:N needs a number"),
        (["record", "bundled:scenes-text", "scenes:4²", "--out", "x"], "scenes:N needs a number"),
        (["record", "bundled:scenes-text", "scenes:2", "--out", "x", "--tokens", "few"], "tokens is 'all' or a number"),
        (["disentangle", "bundled:scenes-text", "scenes:2", "--out", "x", "--tokens", "2,5"], "tokens is 'all' or a"),
        (
            ["compare-dictionaries", "bundled:scenes-text", "scenes:2", "--out", "x", "--tokens", "4²"],
            "tokens is 'all'",
        ),
        (["record", "bundled:scenes-text", "scenes:2", "--out", "x", "--site", "blocks.9.mlp.out"], "does not exist"),
        (
            ["record", "bundled:scenes-text", "scenes:2", "--out", "x", "--device", "tpu"],
            "accepted: auto, cpu, cuda, mps",
        ),
    ],
)
def test_what_is_refused_is_a_message_and_status_2(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_texts_that_cannot_be_read_are_refused(tmp_path):
    """A model without its tokenizer, a file in another encoding, and a language model where pictures are looked at."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    build("HF GPT-2").save_pretrained(tmp_path / "model")
    model = f"hf:{tmp_path / 'model'}"
    (tmp_path / "texts.txt").write_bytes("caf\u00e9".encode("latin-1"))
    command = ("record", model, tmp_path / "texts.txt", "--out", tmp_path / "store", "--device", "cpu")
    refused = run(*command)
    assert refused.exit_code == 2 and "has no tokenizer" in refused.stderr
    words = Tokenizer(models.WordLevel({"a": 1, "?": 2}, unk_token="?"))
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(tmp_path / "model")
    refused = run(*command)
    assert refused.exit_code == 2 and "UTF-8" in refused.stderr
    refused = run("examine", model, "--images", "scenes:16", "--out", tmp_path / "run", "--device", "cpu")
    assert refused.exit_code == 2 and "Traceback" not in refused.output, refused.output


def test_values_of_a_recipe_reach_the_run(tmp_path):
    small = ("batch=8192", "warmup=1", 'settings={"img_size": [1, 2], "patch_size": 1, "in_chans": 1, "depth": 3}')
    more = [word for value in ("epochs=1", "seed=7", *small) for word in ("--set", value)]
    done = run("train", "spiral", "--out", tmp_path / "run", *more, "--loss", "every=2", "--device", "cpu", "--json")
    assert done.exit_code == 0, done.output
    recipe = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert (recipe["epochs"], recipe["seed"], recipe["batch"], recipe["structure"]) == (1, 7, 8192, {"every": 2})
    assert json.loads(done.stdout)["epochs"] == 2  # one of warm-up


def test_skipped_pictures_are_named(tmp_path):
    from PIL import Image

    Image.new("RGB", (20, 20)).save(tmp_path / "good.png")
    (tmp_path / "bad.jpg").write_bytes(b"no picture")
    command = ("record", "bundled:scenes-mae", tmp_path, "--out", tmp_path / "store", "--site", "blocks.0.mlp.out")
    refused = run(*command)
    assert refused.exit_code == 2 and "bad.jpg" in refused.stderr
    done = run(*command, "--on-error", "skip")
    assert done.exit_code == 0 and "skipped bad.jpg: not a picture" in done.stderr


def test_version():
    assert run("--version").stdout.startswith("vitreous 0.")
