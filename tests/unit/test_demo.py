"""The demo from scenes to report: whole, repeatable, and able to go on after an interruption."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer

import vitreous as vt
from vitreous import demo
from vitreous.demo import run_demo, shuffled
from vitreous.errors import SettingsError
from vitreous.examination import parts
from vitreous.models.naming import hidden_blocks, short_names
from vitreous.views.first_look import find_structure
from vitreous.views.panels import Curve, Table
from vitreous.views.seen import Seen
from vitreous.views.units import depth_curve


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
    return small_demo(tmp_path_factory.mktemp("demo") / "out", subjects)


def small_demo(out, subjects, **settings):
    with patch.object(parts, "TSNE_SAMPLE", 64):
        return run_demo(out, subjects=subjects, **({"scenes": 24, "seed": 3, "progress": False} | settings))


def _bytes(site):
    return {p.relative_to(site).as_posix(): p.read_bytes() for p in sorted(site.rglob("*")) if p.is_file()}


def test_it_writes_a_run_a_first_look_and_the_report_of_all_lenses(done):
    out = done.parents[1]
    assert done == out / "report" / "index.html"
    run = vt.open_run(out)
    assert [entry.name for entry in run.models] == ["first", "second"]
    html = (out / "first-look" / "report.html").read_text()
    page = (done.parent / "data" / "lens" / "first-look.js").read_text()
    for part in ("What single units respond to", "weights shuffled", "Which units do the same job"):
        assert part in html and part in page
    assert "Units that order the pictures alike: first: " in html
    assert "vt.Store.open(&#34;../stores/first&#34;)" in html and (out / "stores" / "first").is_dir()
    for lens in ("structure", "disentangle", "align", "tokens"):
        assert (done.parent / "data" / "lens" / f"{lens}.js").is_file()
    record = json.loads((out / "first-look" / "run.json").read_text())
    assert record["status"] == "done" and set(record["notes"]["detectors"]) == {"first", "second"}


def test_interrupted_and_run_again_it_ends_the_same(done, subjects, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    out = tmp_path / "out"
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(demo, "record_shuffled", interrupt)
        small_demo(out, subjects)
    assert json.loads((out / "first-look" / "run.json").read_text())["status"] == "failed"
    assert not (out / "report").exists()
    assert _bytes(small_demo(out, subjects).parent) == _bytes(done.parent)


def test_other_scenes_are_not_mixed_in(done, subjects):
    with pytest.raises(SettingsError, match="something else"):
        small_demo(done.parents[1], subjects, scenes=25)


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
    even = replace(uneven, name="first", store=vt.Store.open(done.parents[1] / "stores" / "first"))
    (found,) = find_structure([uneven, even])
    assert found.name == "first"
    assert found.finding.labels.shape == (3, 3, 32)
    assert found.finding.settings["bins"] == 24  # as many as there are pictures


def test_names_become_folders():
    assert short_names(["bundled:scenes-text", "timm:a/b c", "x", "x", "hf:../.."]) == [
        "scenes-text", "a-b-c", "x-2", "x-3", "model",
    ]  # fmt: skip


def test_models_of_different_depth_are_not_drawn_on_one_axis_of_blocks():
    def measured(name, blocks):
        site = np.arange(len(blocks)).repeat(2)
        found = SimpleNamespace(held_out=np.array([0.99, 0.5] * len(blocks)))
        sites = tuple(f"blocks.{block}.mlp.hidden" for block in blocks)
        return SimpleNamespace(seen=SimpleNamespace(name=name, series=0), sites=sites, site=site, found=found)

    alike = depth_curve([measured("a", (1, 2)), measured("b", (1, 2))], measured("blind", (1, 2)))
    assert isinstance(alike, Curve) and alike.x == (1.0, 2.0) and len(alike.lines) == 3
    table = depth_curve([measured("a", (1, 2)), measured("deep", (1, 3, 5))], None)
    assert isinstance(table, Table) and table.rows[-1] == ("deep", 5, 0.5) and len(table.rows) == 5


def test_too_few_scenes_are_refused(subjects, tmp_path):
    with pytest.raises(SettingsError, match="16 or more scenes"):
        run_demo(tmp_path, scenes=4, subjects=subjects)
    assert not (tmp_path / "run.json").exists()


@pytest.mark.slow
def test_the_bundled_models(tmp_path):
    """What `vitreous demo` does, on fewer scenes."""
    run_demo(tmp_path, scenes=64, device="cpu", progress=False)
    run = json.loads((tmp_path / "first-look" / "run.json").read_text())
    assert "Inside three vision transformers" in (tmp_path / "first-look" / "report.html").read_text()
    assert np.mean(list(run["notes"]["detectors"].values())) > 0


def test_stages_of_different_grids_and_widths_are_looked_at_each_on_its_own_grid(tmp_path):
    """A ConvNeXt: 16 x 16 patches of 8 channels in the first stage, 2 x 2 of 32 in the last."""
    import timm

    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = timm.create_model("convnext_atto", num_classes=0, depths=(1, 1, 2, 1), dims=(8, 16, 24, 32)).eval()
    size = vt.Size(64, 64)
    subject = vt.wrap(module, name="stages", preprocess=vt.Preprocess(size, size))
    run_demo(tmp_path, scenes=64, subjects=[subject], progress=False)
    html = (tmp_path / "first-look" / "report.html").read_text()
    assert "Residual stream of the patches" in html and "Where the detectors are" in html
    assert "64, 96, 128" in html  # hidden units of the three blocks that are shown
    assert "Which units do the same job" not in html  # its units cannot be compared across stages
