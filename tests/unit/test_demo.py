"""The demo from scenes to report: whole, repeatable, and able to go on after an interruption."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer

import vitreous as vt
from vitreous import demo
from vitreous.demo import hidden_blocks, run_demo, short_names, shuffled
from vitreous.errors import SettingsError, StoreError
from vitreous.views.first_look import find_structure
from vitreous.views.seen import Seen


def _vit(name, seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = VisionTransformer(img_size=32, patch_size=8, embed_dim=32, depth=3, num_heads=2, num_classes=0)
    size = vt.Size(32, 32)
    return vt.wrap(module.eval(), name=name, preprocess=vt.Preprocess(size, size))


@pytest.fixture(scope="module")
def subjects():
    return [_vit("mine:first", 1), _vit("second", 2)]


@pytest.fixture(scope="module")
def done(subjects, tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "out"
    return run_demo(out, scenes=24, seed=3, subjects=subjects, progress=False)


def _shards(out):
    return {str(p.relative_to(out)): p.stat().st_mtime_ns for p in sorted(out.rglob("shards/*"))}


def test_it_writes_a_report_a_run_and_the_stores(done):
    out = done.parent
    assert done.name == "report.html"
    html = done.read_text()
    for part in (
        "Inside two vision transformers",
        "first",
        "second",
        "What single units respond to",
        "weights shuffled",
        "Which units do the same job",
        "Units that order the pictures alike: first: ",
    ):
        assert part in html
    assert done.stat().st_size < 6e6
    run = json.loads((out / "run.json").read_text())
    assert run["status"] == "done"
    assert run["seeds"] == {"seed": 3}
    assert set(run["notes"]["detectors"]) == {"first", "second"}
    stores = {path.name for path in (out / "stores").iterdir()}
    assert stores == {"first", "first-attention", "first-shuffled", "second", "second-attention"}
    store = vt.Store.open(out / "stores" / "first")
    assert len(store) == 24
    assert {site.rpartition(".")[2] for site in store.sites} == {"out", "hidden"}


def test_run_again_it_keeps_the_stores_and_ends_the_same(done, subjects):
    before, shards = done.read_bytes(), _shards(done.parent)
    assert run_demo(done.parent, scenes=24, seed=3, subjects=subjects, progress=False) == done
    assert done.read_bytes() == before
    assert _shards(done.parent) == shards


def test_interrupted_and_run_again_it_ends_the_same(done, subjects, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(demo, "record_shuffled", interrupt)
        run_demo(tmp_path, scenes=24, seed=3, subjects=subjects, progress=False)
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "failed"
    assert not (tmp_path / "report.html").exists()
    next((tmp_path / "stores" / "second").rglob("shards/*")).unlink()
    path = run_demo(tmp_path, scenes=24, seed=3, subjects=subjects, progress=False)
    assert path.read_bytes() == done.read_bytes()


def test_another_seed_is_another_report(done, subjects, tmp_path):
    path = run_demo(tmp_path, scenes=24, seed=4, subjects=subjects[:1], progress=False)
    assert "Inside first" in path.read_text()
    assert path.read_bytes() != done.read_bytes()


def test_other_scenes_are_not_mixed_into_a_store(done, subjects):
    with pytest.raises(StoreError, match="data"):
        run_demo(done.parent, scenes=25, seed=3, subjects=subjects, progress=False)


def test_progress_is_said_on_the_error_stream_only(subjects, tmp_path, capsys):
    run_demo(tmp_path, scenes=16, subjects=subjects[:1])
    said = capsys.readouterr()
    assert said.out == ""
    assert "drawing 16 scenes" in said.err
    assert "report.html" in said.err


def test_shuffled_weights_are_the_same_numbers_elsewhere(subjects):
    subject = subjects[0]
    before = {name: p.clone() for name, p in subject.module.named_parameters()}
    blind = shuffled(subject, seed=0)
    for name, parameter in blind.module.named_parameters():
        assert torch.equal(parameter.flatten().sort()[0], before[name].flatten().sort()[0])
        assert torch.equal(dict(subject.module.named_parameters())[name], before[name])
    assert not torch.equal(blind.module.blocks[0].mlp.fc1.weight, before["blocks.0.mlp.fc1.weight"])
    assert blind.fingerprint == shuffled(subject, seed=0).fingerprint != shuffled(subject, seed=1).fingerprint


@pytest.mark.parametrize(("depth", "blocks"), [(1, (0,)), (3, (0, 1, 2)), (8, (2, 4, 7)), (12, (3, 6, 11))])
def test_an_early_a_middle_and_the_last_block(depth, blocks):
    assert hidden_blocks(depth) == blocks


def test_units_of_unequal_blocks_are_not_compared(done, tmp_path):
    """A ConvNeXt has other tokens and channels in every stage."""
    import timm

    module = timm.create_model("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 8, 16, 16), num_classes=0)
    size = vt.Size(64, 64)
    stages = vt.wrap(module.eval(), name="stages", preprocess=vt.Preprocess(size, size))
    store = vt.record(stages, vt.scenes(16, size=64), "blocks.*.resid.out", tmp_path, progress=False)
    uneven = Seen("stages", "", 0, store, None, stages.preprocess)
    even = replace(uneven, name="first", store=vt.Store.open(done.parent / "stores" / "first"))
    (found,) = find_structure([uneven, even])
    assert found.name == "first"
    assert found.finding.labels.shape == (3, 3, 32)
    assert found.finding.settings["bins"] == 24  # as many as there are pictures


def test_names_become_folders():
    assert short_names(["bundled:scenes-text", "timm:a/b c", "x", "x", "hf:../.."]) == [
        "scenes-text", "a-b-c", "x-2", "x-3", "model",
    ]  # fmt: skip


def test_too_few_scenes_are_refused(subjects, tmp_path):
    with pytest.raises(SettingsError, match="16 or more scenes"):
        run_demo(tmp_path, scenes=4, subjects=subjects)
    assert not (tmp_path / "run.json").exists()


@pytest.mark.slow
def test_the_bundled_models(tmp_path):
    """What `vitreous demo` does, on fewer scenes."""
    path = run_demo(tmp_path, scenes=64, device="cpu", progress=False)
    run = json.loads((tmp_path / "run.json").read_text())
    assert "Inside three vision transformers" in path.read_text()
    assert np.mean(list(run["notes"]["detectors"].values())) > 0


def test_stages_of_different_grids_and_widths_are_looked_at_each_on_its_own_grid(tmp_path):
    """A ConvNeXt: 16 x 16 patches of 8 channels in the first stage, 2 x 2 of 32 in the last."""
    import timm

    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = timm.create_model("convnext_atto", num_classes=0, depths=(1, 1, 2, 1), dims=(8, 16, 24, 32)).eval()
    size = vt.Size(64, 64)
    subject = vt.wrap(module, name="stages", preprocess=vt.Preprocess(size, size))
    html = run_demo(tmp_path, scenes=64, subjects=[subject], progress=False).read_text()
    assert "Residual stream of the patches" in html and "Where the detectors are" in html
    assert "64, 96, 128" in html  # hidden units of the three blocks that are shown
    assert "Which units do the same job" not in html  # its units cannot be compared across stages
