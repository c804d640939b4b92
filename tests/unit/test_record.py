"""What `record` writes, what it refuses, and that nothing of a model, a folder or a sample gets lost on the way."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import types
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import timm
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import vitreous.recording.loop
import vitreous.recording.plan
import vitreous.recording.writing
from vitreous.axes import Grid, Size
from vitreous.errors import SettingsError, SiteError, StoreError
from vitreous.hooks import capture, patch
from vitreous.images import ImageSet
from vitreous.preprocess import Preprocess
from vitreous.recording import passes, record
from vitreous.recording.passes import draw_tokens
from vitreous.store import Store
from vitreous.subjects import load, wrap
from vitreous.texts import TextSet


def make_subject(seed: int = 0, **kwargs):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = timm.models.vision_transformer.VisionTransformer(
            img_size=32, patch_size=8, embed_dim=64, depth=3, num_heads=4, num_classes=7, **kwargs
        )
    return wrap(module, name="tiny")


def make_images(count: int = 21, seed: int = 0, **kwargs) -> ImageSet:
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3), np.uint8)
    return ImageSet.from_arrays(pixels, **({"labels": np.arange(count) % 7} | kwargs))


@pytest.fixture(scope="module")
def subject():
    return make_subject()


@pytest.fixture(scope="module")
def images():
    return make_images()


def batchwise(subject, images, site: str, batch_size: int) -> np.ndarray:
    """The straight way: preprocess, run, keep."""
    subject.module.eval()
    found = []
    for _, x in images.batches(subject.preprocess, batch_size):
        with torch.inference_mode(), capture(subject, site) as rec:
            subject(torch.from_numpy(x))
        found.append(rec[site].numpy())
    return np.concatenate(found)


def files(folder: Path) -> dict[str, str]:
    """Hash of every file in a store, apart from the one that says when and where it was made."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "run.json"]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


# -- what is written


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_a_store_holds_what_a_plain_loop_gives(subject, images, tmp_path, dtype):
    sites = ("blocks.0.resid.in", "blocks.1.attn.pattern", "blocks.2.mlp.out", "head")
    store = record(subject, images, sites, tmp_path / "s", dtype=dtype, batch_size=4, shard_mb=0.05, progress=False)
    assert store.sites == sites
    assert store.manifest.shard_count > 2
    for site in sites:
        wanted = torch.from_numpy(batchwise(subject, images, site, 4)).to(getattr(torch, dtype))
        got = store[site]
        assert got.dtype == (np.float16 if dtype == "float16" else np.float32)
        np.testing.assert_array_equal(np.asarray(got), wanted.to(torch.float32).numpy().astype(got.dtype))
    assert store.ids == images.ids
    np.testing.assert_array_equal(store.labels, images.labels)
    assert store.prefix == ("class",)
    assert (store.grid(), store.grid("head"), store.lengths) == (Grid(4, 4), None, None)
    assert store.verify() == []


def test_axes_and_shapes_are_named(subject, images, tmp_path):
    sites = ["blocks.0.attn.pattern", "blocks.0.resid.out", "head"]
    store = record(subject, images, sites, tmp_path / "s", batch_size=8, progress=False)
    found = {site: (info.shape, info.axes, info.tokens) for site, info in store.manifest.sites.items()}
    assert found == {
        "blocks.0.attn.pattern": ((4, 17, 17), ("head", "query", "key"), 17),
        "blocks.0.resid.out": ((17, 64), ("token", "channel"), 17),
        "head": ((7,), ("channel",), None),
    }


def test_a_site_that_is_not_of_tokens_and_channels_is_refused(subject, images, tmp_path):
    with pytest.raises(SiteError, match=r"'blocks.0.attn.q_norm' cannot be stored: its shape is \(1, 4, 17, 16\)"):
        record(subject, images, "blocks.0.attn.q_norm", tmp_path / "s", progress=False)
    assert not (tmp_path / "s").exists(), "a refusal leaves nothing behind"


def test_a_shard_holds_whole_batches_and_the_number_of_samples_divides_nothing(subject, tmp_path):
    for count in (1, 3, 4, 5, 8, 9):
        images = make_images(count)
        store = record(
            subject, images, "blocks.0.mlp.out", tmp_path / str(count), batch_size=4, shard_mb=0.001, progress=False
        )
        assert store.manifest.shard_samples == 4
        assert [(s.first, s.last) for s in store.manifest.shards] == [
            (first, min(first + 4, count) - 1) for first in range(0, count, 4)
        ]
        np.testing.assert_array_equal(
            store["blocks.0.mlp.out"][:], batchwise(subject, images, "blocks.0.mlp.out", 4).astype(np.float16)
        )


def test_the_other_input_size_is_used_and_written_down(images, tmp_path):
    subject = make_subject(dynamic_img_size=True)
    store = record(subject, images, "blocks.0.resid.out", tmp_path / "s", size=(16, 48), batch_size=8, progress=False)
    assert store["blocks.0.resid.out"].shape == (21, 1 + 2 * 6, 64)
    assert store.grid() == Grid(2, 6)
    assert store.manifest.settings["size"] == [16, 48]
    assert store.manifest.settings["preprocess"]["size"] == [16, 48]


def test_a_size_that_the_model_does_not_take_is_refused_before_anything_is_touched(subject, images, tmp_path):
    with pytest.raises(SettingsError, match=r"one size\n.*16(.|\n)*dynamic_img_size=True"):
        record(subject, images, "blocks.0.resid.out", tmp_path / "s", size=16, progress=False)
    assert not (tmp_path / "s").exists()


def test_the_manifest_names_no_time_and_no_machine_and_run_json_does(subject, images, tmp_path):
    record(subject, images, "blocks.0.mlp.out", tmp_path / "a", batch_size=8, progress=False)
    record(subject, images, "blocks.0.mlp.out", tmp_path / "elsewhere" / "b", batch_size=8, progress=False)
    assert files(tmp_path / "a") == files(tmp_path / "elsewhere" / "b")
    run = json.loads((tmp_path / "a" / "run.json").read_text())
    assert (run["command"], run["status"], run["device"]) == ("record", "done", "cpu")
    assert run["inputs"] == {"model": subject.fingerprint, "data": images.fingerprint}
    assert run["versions"]["torch"] == torch.__version__.partition("+")[0]
    assert run["notes"] == {"samples": 21, "computed_shards": 1}


def test_dropout_is_off_while_recording_and_on_again_after(images, tmp_path):
    subject = make_subject(proj_drop_rate=0.5)
    subject.module.train()
    subject.module.blocks[1].eval()
    before = [m.training for m in subject.module.modules()]
    for name in "ab":
        record(subject, images, "blocks.2.resid.out", tmp_path / name, batch_size=8, progress=False)
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert [m.training for m in subject.module.modules()] == before


def test_the_automatic_batch_size_stays_within_memory_and_comes_back_from_the_store(
    subject, images, tmp_path, monkeypatch
):
    sample = 4 * 17 * 64
    monkeypatch.setattr(vitreous.recording.plan, "AUTO_BYTES", 11 * sample)
    store = record(subject, images, "blocks.0.mlp.out", tmp_path / "s", progress=False)
    assert store.manifest.settings["batch_size"] == 8
    drawn = record(subject, images, "blocks.0.mlp.out", tmp_path / "t", tokens=2, progress=False)
    assert drawn.manifest.settings["batch_size"] == 8, "the model computes all tokens, however many are kept"
    monkeypatch.setattr(vitreous.recording.plan, "AUTO_BYTES", 1e9)
    again = record(subject, images, "blocks.0.mlp.out", tmp_path / "s", progress=False)
    assert again.manifest == store.manifest


def test_size_and_time_are_said_before_the_second_batch(subject, images, tmp_path, capsys, monkeypatch):
    said = []
    original = vitreous.recording.loop.ShardWriter.put

    def put(self, first, arrays):
        said.append(capsys.readouterr().err)
        original(self, first, arrays)

    monkeypatch.setattr(vitreous.recording.loop.ShardWriter, "put", put)
    record(subject, images, ["blocks.*.mlp.out", "head"], tmp_path / "s", batch_size=8)
    assert "recording 4 sites of tiny on arrays: 21 samples, 137 kB as float16 in 1 shard" in said[0]
    assert "45.7 kB each: blocks.0.mlp.out, blocks.1.mlp.out, blocks.2.mlp.out" in said[0]
    assert "294 B: head" in said[0]
    assert "the first 8 took" in said[0]


def test_a_quiet_recording_says_nothing(subject, images, tmp_path, capfd):
    record(subject, images, "head", tmp_path / "s", progress=False)
    assert capfd.readouterr() == ("", "")


# -- tokens


def test_drawn_tokens_are_the_same_at_every_site_and_stored(subject, images, tmp_path):
    sites = ["blocks.0.resid.out", "blocks.2.attn.pattern", "head"]
    whole = record(subject, images, sites, tmp_path / "all", batch_size=4, progress=False)
    store = record(subject, images, sites, tmp_path / "some", tokens=5, seed=7, batch_size=4, progress=False)
    kept = store.tokens("blocks.0.resid.out")
    assert kept.shape == (21, 5) and kept.min() >= 0 and kept.max() < 17
    assert all(len(set(row)) == 5 and list(row) == sorted(row) for row in kept.tolist())
    assert len({tuple(row) for row in kept.tolist()}) > 15, "every sample has its own"
    np.testing.assert_array_equal(kept, store.tokens("blocks.2.attn.pattern"))
    rows = np.arange(21)[:, None]
    np.testing.assert_array_equal(store[sites[0]][:], whole[sites[0]][rows, kept])
    np.testing.assert_array_equal(store[sites[1]][:], whole[sites[1]][rows, :, kept].swapaxes(1, 2))
    np.testing.assert_array_equal(store["head"][:], whole["head"][:])
    np.testing.assert_array_equal(whole.tokens(sites[0]), np.tile(np.arange(17), (21, 1)))
    with pytest.raises(SiteError, match="'head' has no tokens"):
        store.tokens("head")


def test_drawing_depends_on_seed_and_sample_only(subject, images, tmp_path):
    settings = {"tokens": 3, "progress": False}
    small = record(subject, images, "blocks.0.mlp.out", tmp_path / "a", batch_size=2, shard_mb=0.001, **settings)
    large = record(subject, images, "blocks.0.mlp.out", tmp_path / "b", batch_size=16, **settings)
    other = record(subject, images, "blocks.0.mlp.out", tmp_path / "c", batch_size=16, seed=1, **settings)
    fewer = record(subject, images[:9], "blocks.0.mlp.out", tmp_path / "d", batch_size=16, **settings)
    site = "blocks.0.mlp.out"
    np.testing.assert_array_equal(small.tokens(site), large.tokens(site))
    np.testing.assert_array_equal(fewer.tokens(site), large.tokens(site)[:9])
    assert (other.tokens(site) != large.tokens(site)).any()


def test_every_token_is_drawn_equally_often():
    drawn = draw_tokens(0, 10, 3, np.full(3000, 10))
    counts = np.bincount(drawn.ravel(), minlength=10)
    assert abs(counts - 900).max() < 5 * np.sqrt(900 * 0.7)


def test_all_tokens_and_one_more(subject, images, tmp_path):
    store = record(subject, images, "blocks.0.mlp.out", tmp_path / "s", tokens=17, batch_size=8, progress=False)
    np.testing.assert_array_equal(store.tokens("blocks.0.mlp.out"), np.tile(np.arange(17), (21, 1)))
    with pytest.raises(SettingsError, match=r"more tokens asked for than 'blocks.0.mlp.out' has") as error:
        record(subject, images, "blocks.0.mlp.out", tmp_path / "t", tokens=18, progress=False)
    assert "from 1 to 17" in str(error.value)
    with pytest.raises(SettingsError, match="none of these sites has tokens"):
        record(subject, images, "head", tmp_path / "t", tokens=1, progress=False)


# -- text


@pytest.fixture(scope="module")
def language():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4
        )
        return wrap(LlamaForCausalLM(config), name="words")


@pytest.fixture(scope="module")
def texts():
    rng = np.random.default_rng(0)
    return TextSet.from_ids([rng.integers(1, 50, n) for n in (3, 9, 4, 6, 9)], labels=[0, 1, 0, 1, 0])


def test_texts_are_recorded_and_padding_is_zero(language, texts, tmp_path):
    sites = ("blocks.0.attn.pattern", "blocks.1.resid.out")
    store = record(language, texts, sites, tmp_path / "s", dtype="float32", batch_size=2, progress=False)
    assert store.lengths.tolist() == [3, 9, 4, 6, 9]
    assert store.grid() is None and store.manifest.settings["preprocess"] is None
    for k, length in enumerate(store.lengths):
        with torch.inference_mode(), capture(language, sites) as rec:
            language(torch.from_numpy(texts.tokens[k : k + 1, :length]))
        hidden, pattern = store[sites[1]][k], store[sites[0]][k]
        np.testing.assert_allclose(hidden[:length], rec[sites[1]][0].numpy(), atol=1e-5)
        np.testing.assert_allclose(pattern[:, :length, :length], rec[sites[0]][0].numpy(), atol=1e-5)
        assert not hidden[length:].any() and not pattern[:, length:].any() and not pattern[:, :, length:].any()


def test_drawn_tokens_of_a_text_are_never_padding(language, texts, tmp_path):
    store = record(language, texts, "blocks.0.mlp.out", tmp_path / "s", tokens=3, batch_size=2, progress=False)
    assert (store.tokens("blocks.0.mlp.out") < store.lengths[:, None]).all()
    assert (np.abs(store["blocks.0.mlp.out"][:]).max(-1) > 0).all()
    with pytest.raises(SettingsError, match="more tokens asked for than text '000000' has"):
        record(language, texts, "blocks.0.mlp.out", tmp_path / "t", tokens=4, progress=False)


def test_text_for_pictures_and_pictures_for_text_are_refused(subject, images, language, texts, tmp_path):
    with pytest.raises(SettingsError, match="words takes text"):
        record(language, images, "blocks.0.mlp.out", tmp_path / "s", progress=False)
    with pytest.raises(SettingsError, match="tiny takes image"):
        record(subject, texts, "blocks.0.mlp.out", tmp_path / "s", progress=False)
    with pytest.raises(SettingsError, match="texts have no input size"):
        record(language, texts, "blocks.0.mlp.out", tmp_path / "s", size=32, progress=False)


# -- numbers that do not fit


@contextmanager
def bent(subject, change):
    """Lets block 1 add something else, as a part of the model: hooks would be refused."""

    class Bend(torch.nn.Module):
        def forward(self, x):
            return change(x)

    block = subject.module.blocks[1]
    straight, block.drop_path2 = block.drop_path2, Bend()
    yield
    block.drop_path2 = straight


def test_a_model_that_carries_hooks_is_refused(subject, images, tmp_path):
    with patch(subject, {"blocks.1.mlp.out": lambda x: 0 * x}), pytest.raises(SettingsError, match="carries hooks"):
        record(subject, images, "blocks.1.mlp.out", tmp_path / "s", progress=False)
    assert not (tmp_path / "s").exists()


def test_what_overflows_float16_is_refused_with_site_value_and_remedy(subject, images, tmp_path):
    with bent(subject, lambda x: torch.full_like(x, 7e4)):
        with pytest.raises(StoreError, match=r"'blocks.1.mlp.out' does not fit into float16") as error:
            record(subject, images, "blocks.*.mlp.out", tmp_path / "s", batch_size=8, progress=False)
        assert "largest value is 70000" in str(error.value) and 'dtype="bfloat16"' in str(error.value)
        store = record(subject, images, "blocks.1.mlp.out", tmp_path / "b", dtype="bfloat16", progress=False)
    assert float(store["blocks.1.mlp.out"][0, 0, 0]) == pytest.approx(7e4, rel=0.01)


def spoiled(value: float):
    """Puts `value` into one place of one sample, wherever that sample is in its batch."""

    def change(x):
        x = x.clone()
        x[x.shape[0] - 1, 2, 3] = value
        return x

    return change


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_what_is_not_finite_is_refused_with_site_and_sample(subject, images, tmp_path, value, dtype):
    settings = {"dtype": dtype, "batch_size": 8, "progress": False}
    with bent(subject, spoiled(value)):
        with pytest.raises(StoreError, match=r"not finite at 'blocks.1.mlp.out' for sample '000007'") as error:
            record(subject, images, ["blocks.0.mlp.out", "blocks.1.mlp.out"], tmp_path / "s", **settings)
        assert f"given:    {value!r}" in str(error.value)
        store = record(subject, images, "blocks.1.mlp.out", tmp_path / "k", on_nonfinite="keep", **settings)
    np.testing.assert_array_equal(store["blocks.1.mlp.out"][7, 2, 3], value)
    assert np.isfinite(store["blocks.1.mlp.out"][:7]).all()


class Aside:
    """In the place of a CUDA stream: what is put on it is done when somebody waits for its end, and not before."""

    left: ClassVar[list] = []

    def __init__(self, *_) -> None: ...

    def wait_stream(self, _) -> None: ...

    def record_event(self):
        mine, Aside.left = Aside.left, []
        return types.SimpleNamespace(synchronize=lambda: [copy() for copy in mine])


def on_its_way(value):
    host = torch.empty_like(value)
    Aside.left.append(torch.inference_mode()(lambda: host.copy_(value)))
    return host


@pytest.fixture
def flying(monkeypatch) -> None:
    """Recording as from a GPU, on cores."""
    monkeypatch.setattr(passes.Pass, "ahead", 1)
    monkeypatch.setattr(passes, "_page_locked", on_its_way)
    for name, found in {"Stream": Aside, "current_stream": Aside, "stream": lambda _: nullcontext()}.items():
        monkeypatch.setattr(torch.cuda, name, found)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_batches_that_travel_while_the_next_is_computed_are_the_same_bytes(subject, images, tmp_path, dtype, request):
    settings = {"dtype": dtype, "tokens": 5, "batch_size": 4, "shard_mb": 0.01, "progress": False}
    sites = ["blocks.0.mlp.out", "blocks.1.attn.pattern", "head"]
    record(subject, images, sites, tmp_path / "waits", **settings)
    request.getfixturevalue("flying")
    record(subject, images, sites, tmp_path / "flies", **settings)
    assert files(tmp_path / "flies") == files(tmp_path / "waits")


def test_what_is_not_finite_is_named_although_it_has_landed_later(subject, images, tmp_path, flying):
    settings = {"batch_size": 4, "shard_mb": 0.001, "progress": False, "sites": "blocks.1.mlp.out"}
    with bent(subject, spoiled(float("nan"))), pytest.raises(StoreError, match=r"not finite.*for sample '000003'"):
        record(subject, images, **settings, out=tmp_path / "s")
    assert not list((tmp_path / "s" / "shards").glob("*.safetensors")), "nothing of a batch that is not sound is kept"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_a_gpu_gives_the_same_bytes_whether_it_is_waited_for_or_not(images, tmp_path, monkeypatch):
    subject = load("timm:vit_tiny_patch16_224", weights="random", device="cuda")
    settings = {"batch_size": 4, "progress": False, "size": 224}
    record(subject, images, "blocks.*.resid.out", tmp_path / "flies", **settings)
    monkeypatch.setattr(passes.Pass, "ahead", 0)
    record(subject, images, "blocks.*.resid.out", tmp_path / "waits", **settings)
    assert files(tmp_path / "flies") == files(tmp_path / "waits")


def test_keeping_what_is_not_finite_does_not_excuse_an_overflow(subject, images, tmp_path):
    def both(x):
        x = x.clone()
        x[0, 0, 0], x[0, 0, 1] = float("nan"), -1e6
        return x

    with bent(subject, both), pytest.raises(StoreError, match=r"largest value is 1e\+06"):
        record(subject, images, "blocks.1.mlp.out", tmp_path / "s", on_nonfinite="keep", progress=False)


# -- going on, and refusing to


def cut_after(monkeypatch, shards: int) -> None:
    """Lets the recording die right after this many shards."""
    original = vitreous.recording.writing.ShardWriter._seal

    def seal(self, number, draft):
        if number >= shards:
            draft.close()
            raise RuntimeError("lights out")
        return original(self, number, draft)

    monkeypatch.setattr(vitreous.recording.writing.ShardWriter, "_seal", seal)


def half_recorded(subject, images, folder: Path, monkeypatch, **settings) -> None:
    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="lights out"):
        cut_after(patched, 2)
        record(subject, images, **settings, out=folder)


SMALL = {"sites": "blocks.0.mlp.out", "batch_size": 2, "shard_mb": 0.01, "progress": False}


def test_going_on_computes_only_what_is_missing(subject, images, tmp_path, monkeypatch):
    record(subject, images, **SMALL, out=tmp_path / "whole")
    half_recorded(subject, images, tmp_path / "s", monkeypatch, **SMALL)
    assert json.loads((tmp_path / "s" / "run.json").read_text())["status"] == "failed"
    untouched = {name: (tmp_path / "s" / name).stat().st_mtime_ns for name in files(tmp_path / "s") if "/0000" in name}
    seen = []
    original = vitreous.recording.loop.Pass.__call__
    monkeypatch.setattr(
        vitreous.recording.loop.Pass,
        "__call__",
        lambda self, at, x: (seen.extend(at.tolist()), original(self, at, x))[1],
    )
    record(subject, images, **SMALL, out=tmp_path / "s")
    assert seen == list(range(8, 21)), "two shards of four samples were there"
    assert files(tmp_path / "s") == files(tmp_path / "whole")
    assert untouched and all(
        (tmp_path / "s" / name).stat().st_mtime_ns == then for name, then in untouched.items() if name[-13] in "01"
    )


def test_a_finished_store_is_opened_without_running_the_model(subject, images, tmp_path, monkeypatch):
    record(subject, images, **SMALL, out=tmp_path / "s")
    before = files(tmp_path / "s"), (tmp_path / "s" / "run.json").read_bytes()
    monkeypatch.setattr(type(subject), "__call__", lambda *_: pytest.fail("the model was run"))
    record(subject, images, **SMALL, out=tmp_path / "s")
    assert before == (files(tmp_path / "s"), (tmp_path / "s" / "run.json").read_bytes())


def test_deleted_and_truncated_files_are_made_again(subject, images, tmp_path):
    settings = SMALL | {"tokens": 9}
    record(subject, images, **settings, out=tmp_path / "s")
    before = files(tmp_path / "s")
    shards = sorted((tmp_path / "s" / "shards").iterdir())
    assert len(shards) == 3
    shards[0].unlink()
    shards[2].write_bytes(shards[2].read_bytes()[:-1])
    (tmp_path / "s" / "samples.json").unlink()
    (tmp_path / "s" / "tokens.safetensors").write_bytes(b"nonsense")
    record(subject, images, **settings, out=tmp_path / "s")
    assert files(tmp_path / "s") == before


CHANGES = {
    "model.fingerprint": lambda _, i: (make_subject(1), i, {}),
    "model.name": lambda s, i: (replace(s, name="other"), i, {}),
    "data.fingerprint": lambda s, _: (s, make_images(seed=1), {}),
    "data.samples": lambda s, i: (s, i[:20], {}),
    "data.name": lambda s, i: (s, replace(i, name="other"), {}),
    "settings.sites": lambda s, i: (s, i, {"sites": ["blocks.0.mlp.out", "blocks.1.mlp.out"]}),
    "settings.tokens": lambda s, i: (s, i, {"tokens": 5}),
    "settings.dtype": lambda s, i: (s, i, {"dtype": "bfloat16"}),
    "settings.seed": lambda s, i: (s, i, {"seed": 3}),
    "settings.batch_size": lambda s, i: (s, i, {"batch_size": 4}),
    "settings.shard_samples": lambda s, i: (s, i, {"shard_mb": 0.02}),
    "settings.preprocess.interpolation": lambda s, i: (
        replace(s, preprocess=replace(s.preprocess, interpolation="nearest")),
        i,
        {},
    ),
    "settings.preprocess.mean": lambda s, i: (replace(s, preprocess=replace(s.preprocess, mean=(0, 0, 0.5))), i, {}),
    "settings.size": lambda s, i: (replace(s, preprocess=Preprocess(Size(24, 32), 40)), i, {}),
    "settings.compute": lambda _, i: (wrap(make_subject().module.half(), name="tiny"), i, {}),
    "files.samples.json.sha256": lambda s, i: (s, replace(i, classes=tuple("abcdefg")), {}),
}


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("field", CHANGES)
def test_a_store_of_another_making_is_never_mixed_in(subject, images, tmp_path, monkeypatch, field, finished):
    if finished:
        record(subject, images, **SMALL, out=tmp_path / "s")
    else:
        half_recorded(subject, images, tmp_path / "s", monkeypatch, **SMALL)
    before = files(tmp_path / "s")
    other, pictures, settings = CHANGES[field](subject, images)
    with pytest.raises(StoreError, match="was made from something else") as error:
        record(other, pictures, **(SMALL | settings), out=tmp_path / "s")
    lines = [line.strip() for line in str(error.value).splitlines()]
    (line,) = (line for line in lines if line.startswith(f"{field}: "))
    assert "the store has " in line and ", now it is " in line
    related = {
        "model.fingerprint": {"model.fingerprint"},
        "settings.dtype": {"settings.dtype"},
        "settings.seed": {"settings.seed"},
        "settings.preprocess.mean": {"settings.preprocess.mean"},
    }.get(field)
    named = {line.partition(":")[0] for line in lines if ": the store has " in line}
    assert related is None or named == related, "what is the same is not named"
    assert files(tmp_path / "s") == before, "a refusal changes nothing"


def test_the_refusal_has_both_values(subject, images, tmp_path):
    record(subject, images, **SMALL, out=tmp_path / "s")
    with pytest.raises(StoreError) as error:
        record(subject, images, **(SMALL | {"dtype": "float32", "seed": 4}), out=tmp_path / "s")
    text = str(error.value)
    assert "settings.dtype: the store has 'float16', now it is 'float32'" in text
    assert "settings.seed: the store has 0, now it is 4" in text
    assert "record into another folder" in text


def test_the_device_matters_only_while_something_is_left_to_compute(subject, images, tmp_path, monkeypatch):
    half_recorded(subject, images, tmp_path / "half", monkeypatch, **SMALL)
    record(subject, images, **SMALL, out=tmp_path / "whole")
    monkeypatch.setattr(type(subject), "device", types.SimpleNamespace(type="elsewhere"))
    with pytest.raises(StoreError, match=r"settings.device: the store has 'cpu', now it is 'elsewhere'"):
        record(subject, images, **SMALL, out=tmp_path / "half")
    before = files(tmp_path / "whole")
    assert len(record(subject, images, **SMALL, out=tmp_path / "whole")) == 21
    assert files(tmp_path / "whole") == before


def test_without_resume_nothing_is_touched(subject, images, tmp_path, monkeypatch):
    half_recorded(subject, images, tmp_path / "s", monkeypatch, **SMALL)
    before = files(tmp_path / "s")
    with pytest.raises(StoreError, match="already holds a store and resume=False"):
        record(subject, images, **SMALL, out=tmp_path / "s", resume=False)
    assert files(tmp_path / "s") == before
    record(subject, images, **SMALL, out=tmp_path / "new", resume=False)


def test_a_foreign_folder_is_refused_and_left_alone(subject, images, tmp_path):
    (tmp_path / "holiday.jpg").write_bytes(b"precious")
    with pytest.raises(StoreError, match="is not empty and not a store") as error:
        record(subject, images, **SMALL, out=tmp_path)
    assert "holiday.jpg" in str(error.value)
    assert [p.name for p in tmp_path.iterdir()] == ["holiday.jpg"]
    with pytest.raises(StoreError, match="this is a file"):
        record(subject, images, **SMALL, out=tmp_path / "holiday.jpg")


def test_a_damaged_manifest_is_refused_and_left_alone(subject, images, tmp_path):
    record(subject, images, **SMALL, out=tmp_path / "s")
    manifest = tmp_path / "s" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:100])
    before = files(tmp_path / "s")
    with pytest.raises(StoreError, match="damaged manifest"):
        record(subject, images, **SMALL, out=tmp_path / "s")
    assert files(tmp_path / "s") == before


# -- the disk


def test_a_disk_that_is_too_small_is_refused_up_front(subject, images, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=50_000))
    with pytest.raises(StoreError, match="the disk is too small: 144 kB are needed") as error:
        record(subject, images, "blocks.*.mlp.out", tmp_path / "s", progress=False)
    text = str(error.value)
    assert "50 kB free" in text
    assert "fewer sites" in text and "tokens=" in text and "dtype" in text
    assert not (tmp_path / "s").exists()
    record(subject, images, "blocks.0.mlp.out", tmp_path / "s", tokens=5, progress=False)


def test_only_what_is_missing_needs_room(subject, images, tmp_path, monkeypatch):
    half_recorded(subject, images, tmp_path / "s", monkeypatch, **SMALL)
    left = sum(s.bytes for s in Store.open(tmp_path / "s", allow_partial=True).manifest.shards)
    need = int(1.05 * (21 * 17 * 64 * 2 - left)) + 1000
    monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=need))
    assert len(record(subject, images, **SMALL, out=tmp_path / "s")) == 21


def test_a_disk_that_fills_up_meanwhile_is_named_and_can_be_gone_on_with(subject, images, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(vitreous.recording.writing, "file_hash", full)
        with pytest.raises(StoreError, match="the disk filled up while recording"):
            record(subject, images, **SMALL, out=tmp_path / "s")
    record(subject, images, **SMALL, out=tmp_path / "s")
    record(subject, images, **SMALL, out=tmp_path / "t")
    assert files(tmp_path / "s") == files(tmp_path / "t")


# -- two at once


def test_a_second_recording_into_the_same_folder_is_refused(subject, images, tmp_path, monkeypatch):
    """The refusal comes while the first is at work, and does not disturb it."""
    refused = []
    original = vitreous.recording.loop.Pass.__call__

    def call(self, positions, x):
        if not refused:
            with pytest.raises(StoreError, match=rf"another process \({os.getpid()}\) is recording") as error:
                record(subject, images, **SMALL, out=tmp_path / "s")
            refused.append(error)
        return original(self, positions, x)

    monkeypatch.setattr(vitreous.recording.loop.Pass, "__call__", call)
    record(subject, images, **SMALL, out=tmp_path / "s")
    assert refused
    assert not (tmp_path / "s" / ".lock").exists()


def test_a_lock_left_by_a_dead_process_does_not_hold(subject, images, tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / ".lock").write_text("999999")
    record(subject, images, **SMALL, out=tmp_path / "s")
    assert not (tmp_path / "s" / ".lock").exists()


def test_without_flock_an_undeletable_lock_holds(subject, images, tmp_path, monkeypatch):
    """The way of Windows: a file that somebody has open cannot be deleted."""
    monkeypatch.setattr(vitreous.recording.writing, "fcntl", None)
    record(subject, images, **SMALL, out=tmp_path / "s")
    assert not (tmp_path / "s" / ".lock").exists()

    def refuse(self, missing_ok=False):
        raise PermissionError(self)

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(StoreError, match="another process is recording"):
        record(subject, images, **SMALL, out=tmp_path / "s")


# -- arguments


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"tokens": 0}, "unknown tokens"),
        ({"tokens": "some"}, "unknown tokens"),
        ({"tokens": True}, "unknown tokens"),
        ({"dtype": "float64"}, "unknown dtype"),
        ({"seed": -1}, "seed is at least 0"),
        ({"shard_mb": 0}, "shard_mb more than 0"),
        ({"batch_size": 0}, "batch_size at least 1"),
        ({"on_nonfinite": "ignore"}, "unknown on_nonfinite"),
    ],
)
def test_arguments_outside_of_what_is_accepted_are_refused(subject, images, tmp_path, settings, text):
    with pytest.raises(SettingsError, match=text):
        record(subject, images, "head", tmp_path / "s", **({"progress": False} | settings))
    assert not (tmp_path / "s").exists()


def test_nothing_to_record_is_refused(subject, images, tmp_path):
    with pytest.raises(SettingsError, match="the set is empty"):
        record(subject, images[:0], "head", tmp_path / "s", progress=False)
    with pytest.raises(SiteError, match=r"no site 'blocks.0.nonsense'"):
        record(subject, images, "blocks.0.nonsense", tmp_path / "s", progress=False)


def test_a_model_whose_shapes_change_under_way_is_refused(subject, images, tmp_path, monkeypatch):
    original = ImageSet.batches

    def shrinking(self, preprocess, batch_size, start=0):
        for positions, x in original(self, preprocess, batch_size, start):
            yield positions, x if batch_size == 1 else x[:1]

    monkeypatch.setattr(ImageSet, "batches", shrinking)
    with pytest.raises(StoreError, match=r"'blocks.0.mlp.out' changed its shape"):
        record(subject, images, "blocks.0.mlp.out", tmp_path / "s", batch_size=4, progress=False)


# -- real data


@pytest.mark.data
def test_real_weights_on_real_pictures(data_root, tmp_path):
    subject = load(
        "timm:vit_small_patch14_dinov2",
        weights=data_root / "weights" / "dinov2s_saliency_fp16.safetensors",
        device="cpu",
        dynamic_img_size=True,
    )
    images = ImageSet.from_zip(data_root / "imagenet_sample" / "images.zip")[:5]
    sites = ("blocks.5.attn.pattern", "blocks.11.resid.out")
    store = record(subject, images, sites, tmp_path / "s", size=224, batch_size=2, shard_mb=1, progress=False)
    assert store.grid() == Grid(16, 16) and store[sites[1]].shape == (5, 257, 384)
    assert store.manifest.shard_count == 3 and store.verify() == []
    native = replace(subject, preprocess=subject.preprocess.at(224))
    for site in sites:
        np.testing.assert_array_equal(store[site][:], batchwise(native, images, site, 2).astype(np.float16))


@pytest.mark.parametrize("batch_size", ["3", 2.0])
def test_a_batch_size_that_is_no_whole_number_is_refused(subject, images, tmp_path, batch_size):
    with pytest.raises(SettingsError, match="batch_size is a whole number"):
        record(subject, images, "blocks.0.mlp.out", tmp_path / "s", batch_size=batch_size)
