"""Verbs and shapes that people know from elsewhere."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sklearn.utils.estimator_checks import parametrize_with_checks
from typer.testing import CliRunner

import vitreous as vt
from vitreous.cli import app
from vitreous.estimators import DensityClusters, NormalizedCut, UnitClusters


@pytest.fixture(scope="module")
def subject():
    return vt.load("bundled:scenes-text", device="cpu")


@pytest.fixture(scope="module")
def x(subject):
    return subject.inputs([picture.image for picture in vt.scenes(2, size=64, seed=3)])


def test_run_with_cache_gives_output_and_sites(subject, x):
    with torch.no_grad():
        output, cache = vt.run_with_cache(subject, x)
        assert torch.equal(output, subject(x))
    assert set(cache) == set(subject.sites) and len(cache) == len(subject.sites)
    for old in (cache["resid_post", -1], cache["blocks.7.hook_resid_post"], cache["blocks.-1.hook_resid_post"]):
        assert torch.equal(old, cache["blocks.7.resid.out"])
    assert cache["pattern", 0].shape == (2, 4, 65, 65)


def test_run_with_cache_can_be_told_what_to_keep(subject, x):
    with torch.no_grad():
        _, cache = vt.run_with_cache(subject, x, names_filter=lambda name: name.endswith("mlp.out"))
        _, few = vt.run_with_cache(subject, x, "blocks.2.hook_mlp_out")
    assert len(cache) == subject.depth and list(few) == ["blocks.2.mlp.out"]
    with pytest.raises(vt.SiteError, match="holds nothing"):
        cache["resid_post", 0]


def test_run_with_hooks_replaces(subject, x):
    seen = []

    def silence(value, hook):
        seen.append(hook)
        return 0 * value

    with torch.no_grad():
        changed = vt.run_with_hooks(subject, x, fwd_hooks=[("blocks.3.hook_mlp_out", silence)])
        with vt.patch(subject, {"blocks.3.mlp.out": lambda value: 0 * value}):
            assert torch.equal(changed, subject(x))
    assert seen == ["blocks.3.hook_mlp_out"] and not subject.hooks


@parametrize_with_checks([UnitClusters(), DensityClusters(), NormalizedCut()])
def test_scikit_learn_accepts_the_estimators(estimator, check):
    check(estimator)


def test_unit_clusters_keep_the_first_of_each_group():
    a, b = np.random.default_rng(0).normal(size=(2, 200))
    found = UnitClusters().fit(np.stack([a, b, 2 * a, b**3], 1))
    assert found.labels_.tolist() == [0, 1, 0, 1] and found.kept_.tolist() == [0, 1]


# -- models with their sub-units


@pytest.fixture(scope="module")
def finding(subject):
    images = vt.scenes(24, size=64, seed=1)
    return vt.disentangle(subject, images, units=[0, 1], top_k=40, min_cluster_size=8, progress=False)


def test_a_disentangled_model_comes_back(subject, finding, x, tmp_path):
    vt.DisentangledModel(subject, [finding]).save_pretrained(tmp_path / "model")
    back = vt.DisentangledModel.from_pretrained(tmp_path / "model")
    with torch.no_grad(), back.split("blocks.-1.mlp.out").look([0]) as seen:
        assert torch.equal(back(x), subject(x))
    assert seen.values.shape == (2, 65, 1)
    with pytest.raises(vt.ModelError, match="not split"):
        back.split("blocks.0.mlp.out")


def test_the_folder_of_a_hugging_face_model_stays_one(tmp_path):
    import transformers

    torch.manual_seed(0)
    config = transformers.Dinov2Config(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=28)
    module = transformers.Dinov2Model(config).eval()
    subject = vt.wrap(module, preprocess=vt.Preprocess(size=vt.Size(28, 28), resize=28))
    rows = np.random.default_rng(0).normal(size=(60, 128)).astype(np.float32)
    found = vt.disentangle(subject, rows, units=[0, 3], top_k=40, min_cluster_size=5, progress=False)
    vt.DisentangledModel(subject, [found]).save_pretrained(tmp_path)
    x = torch.rand(1, 3, 28, 28)
    with torch.no_grad():
        plain = transformers.AutoModel.from_pretrained(tmp_path).eval()(x).last_hidden_state
        assert torch.equal(plain, module(x).last_hidden_state)
        back = vt.DisentangledModel.from_pretrained(tmp_path)
        assert torch.equal(back.subject.module(x).last_hidden_state, plain)
    assert back.subject.preprocess == subject.preprocess


def test_a_module_of_your_own_is_given_back(finding, subject, tmp_path):
    mine = vt.wrap(subject.module, name="mine", preprocess=subject.preprocess)
    vt.DisentangledModel(mine, [finding]).save_pretrained(tmp_path)
    with pytest.raises(vt.ModelError, match="module=your_module"):
        vt.DisentangledModel.from_pretrained(tmp_path)
    other = vt.load("bundled:scenes-mae", device="cpu").module
    assert vt.DisentangledModel.from_pretrained(tmp_path, module=other).findings[0].site == finding.site
    with pytest.raises(vt.StoreError, match="no disentangled model"):
        vt.DisentangledModel.from_pretrained(tmp_path / "nothing")
    with pytest.raises(vt.ModelError, match=r"the module is not the one that was saved(.*\n)*.*Linear"):
        vt.DisentangledModel.from_pretrained(tmp_path, module=torch.nn.Linear(3, 3))
    (tmp_path / "model.safetensors").write_bytes(b"cut short")
    with pytest.raises(vt.StoreError, match="not weights that we can read"):
        vt.DisentangledModel.from_pretrained(tmp_path, module=other)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(vt.StoreError, match="no weights here"):
        vt.DisentangledModel.from_pretrained(tmp_path, module=other)
    about = json.loads((tmp_path / "vitreous.json").read_bytes())
    del about["findings"]
    (tmp_path / "vitreous.json").write_text(json.dumps(about))
    with pytest.raises(vt.StoreError, match="no disentangled model"):
        vt.DisentangledModel.from_pretrained(tmp_path, module=other)


def test_a_bundled_model_that_was_trained_further_keeps_its_weights(tmp_path, x):
    subject = vt.load("bundled:scenes-mae", device="cpu")
    with torch.no_grad():
        subject.module.get_submodule(subject.blocks[0].second_linear).weight.mul_(0.5)
    images = vt.scenes(24, size=64, seed=1)
    found = vt.disentangle(subject, images, units=[0, 1], top_k=40, min_cluster_size=8, progress=False)
    vt.DisentangledModel(subject, [found]).save_pretrained(tmp_path)
    back = vt.DisentangledModel.from_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.equal(back(x), subject(x))


def test_a_layer_has_one_set_of_sub_units(subject, finding):
    with pytest.raises(vt.SettingsError, match="a layer has one set of sub-units"):
        vt.DisentangledModel(subject, [finding, finding])


# -- the shell


def test_doctor_looks_whether_the_bundled_weights_are_there(monkeypatch):
    from vitreous import doctor
    from vitreous.models import bundled

    assert next(c for c in doctor.examine_machine() if c.what == "bundled models").state == "ok"
    monkeypatch.setattr(bundled, "BUNDLED", {**bundled.BUNDLED, "scenes-lost": "not there"})
    lost = next(check for check in doctor.examine_machine() if check.what == "bundled models")
    assert lost.state == "wrong" and "scenes-lost" in lost.found and "scenes-text" not in lost.found


def test_doctor_knows_that_threads_crawl_where_cores_are_shared(monkeypatch):
    import torch

    from vitreous import doctor

    def row(threads):
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
        return next(check for check in doctor.examine_machine() if check.what == "threads")

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert row(4).found == "PyTorch uses 4; OMP_NUM_THREADS is not set"
    assert "OMP_NUM_THREADS=1" in row(4).remedy and row(4).state == "ok"
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert row(1).found == "PyTorch uses 1; OMP_NUM_THREADS is 1" and not row(1).remedy


def test_doctor_says_what_is_missing_and_how_to_get_it():
    found = CliRunner().invoke(app, ["doctor", "--json"])
    rows = {row["what"]: row for row in json.loads(found.stdout)}
    assert found.exit_code == 0 and rows["torch"]["state"] == "ok" and "cores" in rows["cpu"]["found"]
    assert all(row["remedy"] for row in rows.values() if row["state"] != "ok")
    shown = CliRunner().invoke(app, ["doctor"]).stdout
    assert "scenes-text" in shown
    assert rows["nilearn"]["state"] == "ok" or "'vitreous[brain]'" in shown  # not taken for markup


def test_shells_can_complete():
    asked = {"_VITREOUS_COMPLETE": "complete_bash", "COMP_WORDS": "vitreous doc", "COMP_CWORD": "1"}
    done = CliRunner().invoke(app, [], prog_name="vitreous", env=asked)
    assert done.stdout.split() == ["doctor"]
    shown = CliRunner().invoke(app, ["--help"]).stdout
    assert "--install-completion" in shown and "doctor" in shown
