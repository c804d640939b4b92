"""Alignment of models by responses: the losses against the formulas, planted truth, resuming, bad input."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.reference import align as reference

import vitreous as vt
from vitreous.evidence.responses import explained
from vitreous.lenses import align as lens
from vitreous.lenses.align_training import (
    TEMPERATURE,
    AlignNet,
    Seen,
    Weights,
    agreement,
    covariance,
    eigen_constraint,
    losses,
    zero_centre,
)

QUICK = {"width": 12, "epochs": 40, "patience": 40, "lr": 0.01, "progress": False}


def world(images: int = 200, tokens: int = 6, noise: float = 0.1, seed: int = 0):
    """Two models that see the same eight things in channels of their own, and responses to the things."""
    generator = np.random.default_rng(seed)
    things = generator.standard_normal((images, tokens, 8))
    models = {}
    for name, channels in (("one", 16), ("two", 16)):
        models[name] = {
            f"layer {n}": (things @ generator.standard_normal((8, channels)) / 3).astype(np.float32) for n in range(2)
        }
    values = things.mean(1) @ generator.standard_normal((8, 10))
    values += noise * values.std() * generator.standard_normal(values.shape)
    return models, values.astype(np.float32)


def test_the_terms_are_the_formulas():
    generator = torch.Generator().manual_seed(0)
    before, after = torch.randn(3, 12, 7, generator=generator), torch.randn(3, 12, 5, generator=generator)
    expected = np.mean(
        [reference.eigen(b.double().numpy(), a.double().numpy(), 4) for b, a in zip(before, after, strict=True)]
    )
    assert float(eigen_constraint(before, after, 4)) == pytest.approx(expected, rel=1e-5)
    rows = torch.randn(40, 6, generator=generator) + 0.3
    assert float(zero_centre(rows)) == pytest.approx(reference.zero(rows.numpy()), rel=1e-5)
    assert float(covariance(rows)) == pytest.approx(reference.covariance(rows.double().numpy()), rel=1e-4)


def test_agreement_is_the_choice_of_a_patch_among_all_others():
    slots = torch.randn(4, 9, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    order = torch.tensor([2, 0, 3, 1])
    expected = reference.agreement([slots[n].numpy() for n in order], TEMPERATURE)
    assert float(agreement(slots, order)) == pytest.approx(expected, rel=1e-9)
    alike = slots[:1].expand(4, -1, -1)
    assert float(agreement(alike, order)) < expected, "patches that are the same in all slots agree"
    apart = alike + 50 * torch.eye(5, dtype=torch.float64)[:4, None]  # each slot around a place of its own
    assert float(agreement(apart, order)) > float(agreement(alike, order)) + 1


def mixed(models: dict, read) -> tuple[float, float]:
    """Is the patch that lies nearest, in other pictures, of the other model; and is it the same patch that lies nearest
    in the other model?"""
    rows = np.stack([read(models[m]["layer 1"], m, "layer 1").reshape(200 * 6, -1) for m in ("one", "two")])
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    picture = np.repeat(np.arange(200), 6)
    same = picture[:, None] == picture
    here, there = rows[0] @ rows[0].T, rows[0] @ rows[1].T
    other = ((there - 3 * same).max(1) > (here - 3 * same).max(1)).mean()
    return float(other), float((there.argmax(1) == np.arange(len(there))).mean())


def test_models_that_have_to_agree_share_one_space_where_responses_say_little():
    """Two responses are too few to tell eight things: only agreement brings what is alike together."""
    models, values = world(noise=0.5)
    for n, model in enumerate(models.values()):
        model["layer 1"] += np.random.default_rng(n).standard_normal(16).astype(np.float32)  # a mean of its own
    settings = {**QUICK, "lambda_eigen": 0, "epochs": 80, "patience": 80}
    plain = vt.align(models, None, values[:, :2], **settings)
    agreed = vt.align(models, None, values[:, :2], lambda_agree=0.3, **settings)
    assert {"agree"} == set(agreed.log[0]) - set(plain.log[0])
    assert agreed.settings["lambda_agree"] == 0.3 and agreed.log[-1]["agree"] < agreed.log[0]["agree"] - 0.5
    other, itself = mixed(models, agreed.transform)
    before, by_chance = mixed(models, plain.transform)
    assert other > before + 0.2 and itself > by_chance + 0.5, (before, by_chance, other, itself)
    assert agreed.means()["all"] > plain.means()["all"] - 0.1


def test_patches_agree_only_where_there_are_as_many():
    models, values = world()
    models["two"] = {name: part[:, :5] for name, part in models["two"].items()}
    with pytest.raises(vt.SettingsError, match=r"(?s)two layers or more that have as many.*size="):
        vt.align(models, None, values, lambda_agree=0.1, **QUICK)
    vt.align(models, None, values, **{**QUICK, "epochs": 2})
    with pytest.raises(vt.SettingsError, match="two layers or more"):
        vt.align({"one": {"layer 0": models["one"]["layer 0"]}}, None, values, lambda_agree=0.1, **QUICK)


def test_the_whole_loss_is_equation_10():
    """Two slots of different width, all patches of all pictures, from single patches on."""
    generator = np.random.default_rng(3)
    features = [generator.standard_normal((9, 4, channels)) + 0.2 for channels in (5, 7)]
    measured = generator.standard_normal((9, 3))
    net = AlignNet([5, 7], 6, 3, 0).double()
    seen = Seen(*([torch.from_numpy(part) for part in made] for made in ([f.mean(1) for f in features], features)))
    arrays = [w.detach().numpy() for w in net.maps], net.head.detach().numpy(), net.bias.detach().numpy()
    rows = [part.reshape(36, -1) for part in features]
    for scale in ((0.0, 0.0, 0.0), (1.0, 0.01, 0.01), (0.1, 2.0, 3.0)):
        weights = Weights(*scale, nodes=36, eigenvectors=4)
        target, pictures = torch.from_numpy(measured), torch.arange(9)
        found = losses(net, seen, pictures, target, weights, torch.Generator().manual_seed(0))
        expected = reference.total(features, rows, *arrays, measured, scale, 4)
        assert float(found["total"].detach()) == pytest.approx(expected, rel=1e-6)
        more = losses(net, seen, pictures, target, replace(weights, agree=0.5), torch.Generator().manual_seed(0))
        term = reference.agreement([row @ w for row, w in zip(rows, arrays[0], strict=True)], TEMPERATURE)
        assert float(more["total"].detach()) == pytest.approx(expected + 0.5 * term, rel=1e-6)


def test_an_alignment_that_turns_features_does_not_move_the_cut():
    rows = torch.randn(2, 20, 6, generator=torch.Generator().manual_seed(1))
    turn = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(2)))[0]
    assert float(eigen_constraint(rows, 3 * rows @ turn, 3)) < 1e-5


def test_responses_to_new_images_are_predicted_and_patches_of_two_models_come_to_lie_together():
    models, values = world()
    rois = {"early": np.arange(10) < 5, "late": np.arange(10) >= 5}
    alignment = vt.align(models, None, vt.Responses(values, rois), lambda_eigen=0, **QUICK)
    score = alignment.score()
    assert np.nanmean(score["all"]) > 0.85 and set(score) == {"all", "early", "late"}
    assert len(alignment.held_out) == 20 and len(alignment.log) <= 40

    def likeness(rows):
        a, b = (part.reshape(-1, part.shape[-1]) for part in rows)
        return float(np.mean((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)))

    raw = {m: models[m]["layer 1"] for m in models}
    aligned = [alignment.transform(part, m, "layer 1") for m, part in raw.items()]
    assert likeness(aligned) > likeness(raw.values()) + 0.6

    parts = [alignment.in_response_space(models[m][layer], m, layer).mean(1) for m, layer in alignment.slots]
    whole = np.mean(parts, 0) + alignment.bias
    np.testing.assert_allclose(whole[alignment.held_out], alignment.predicted, atol=1e-3)


def test_layers_that_have_to_predict_alone_do_so():
    """Two layers see half of the things each: together they predict, alone each does what it can."""
    models, values = world(noise=0.02)
    halves = {"one": {"layer 0": models["one"]["layer 0"]}, "two": {"layer 0": models["two"]["layer 0"]}}
    halves["two"]["layer 0"] = halves["two"]["layer 0"] + 0.5 * np.random.default_rng(1).standard_normal(
        halves["two"]["layer 0"].shape
    ).astype(np.float32)  # the noisier one is left out where only the sum counts

    def alone(alignment: vt.ChannelAlign, name: str) -> float:
        rows = halves[name]["layer 0"][alignment.held_out].mean(1)
        return float(
            np.mean(explained(alignment.measured, alignment.in_response_space(rows, name, "layer 0") + alignment.bias))
        )

    runs = {how: vt.align(halves, None, values, lambda_eigen=0, predict=how, **QUICK) for how in ("together", "alone")}
    assert alone(runs["alone"], "two") > alone(runs["together"], "two") + 0.1
    assert all(alone(runs["alone"], name) > 0.4 for name in halves)
    assert runs["alone"].settings["predict"] == "alone"
    net = AlignNet([3, 4], 5, 2, 0)
    pooled = [torch.randn(6, 3), torch.randn(6, 4)]
    torch.testing.assert_close(net.alone(pooled).mean(0), net(pooled))
    with pytest.raises(vt.SettingsError, match=r"(?s)unknown way to predict.*together, alone"):
        vt.align(halves, None, values, predict="each")


def test_shuffled_responses_are_not_predicted():
    models, values = world()
    shuffled = values[np.random.default_rng(5).permutation(len(values))]
    assert np.nanmean(vt.align(models, None, shuffled, **QUICK).score()["all"]) < 0.1


def test_the_eigen_constraint_keeps_the_cut():
    models, values = world(noise=1.0)
    free = vt.align(models, None, values[:, :3], lambda_eigen=0.0, **QUICK)
    kept = vt.align(models, None, values[:, :3], lambda_eigen=5.0, **QUICK)

    def moved_by(alignment):
        rows = torch.from_numpy(models["one"]["layer 0"][:16].reshape(1, -1, 16))
        after = torch.from_numpy(alignment.transform(rows.numpy(), "one", "layer 0"))
        return float(eigen_constraint(rows, after, 6))

    assert moved_by(kept) < 0.8 * moved_by(free)
    assert "eigen" in kept.log[-1] and "eigen" not in free.log[-1]


def test_a_killed_training_goes_on_and_ends_with_the_same_maps(tmp_path, monkeypatch, capfd):
    models, values = world(60)
    settings = QUICK | {"epochs": 6}
    whole = vt.align(models, None, values, out=tmp_path / "whole", **settings)
    real, calls = lens._epoch, []

    def dying(*args):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(1)
        return real(*args)

    monkeypatch.setattr(lens, "_epoch", dying)
    with pytest.raises(KeyboardInterrupt):
        vt.align(models, None, values, out=tmp_path / "killed", **settings)
    monkeypatch.setattr(lens, "_epoch", real)
    again = vt.align(models, None, values, out=tmp_path / "killed", **settings)
    assert [line["total"] for line in again.log] == [line["total"] for line in whole.log]
    assert all((a == b).all() for a, b in zip(again.maps, whole.maps, strict=True))
    loaded = vt.ChannelAlign.load(tmp_path / "killed")
    assert loaded.slots == whole.slots and (loaded.head == whole.head).all() and loaded.settings == again.settings
    swapped = {"one": models["two"], "two": models["one"]}
    for given, wanted, changed in ((models, values, {"lr": 0.1}), (models, values[::-1], {}), (swapped, values, {})):
        with pytest.raises(vt.SettingsError, match="other settings, models or responses"):
            vt.align(given, None, wanted, out=tmp_path / "whole", **(settings | changed))
    checkpoint = tmp_path / "whole" / "checkpoint.pt"
    os.truncate(checkpoint, checkpoint.stat().st_size // 2)
    anew = vt.align(models, None, values, out=tmp_path / "whole", **settings)
    assert "cannot be read: training begins anew" in capfd.readouterr().err
    assert all((a == b).all() for a, b in zip(anew.maps, whole.maps, strict=True))
    torch.save({"facts": "of something else"}, checkpoint)
    with pytest.raises(vt.SettingsError, match="other settings, models or responses"):
        vt.align(models, None, values, out=tmp_path / "whole", **settings)
    (tmp_path / "killed" / "alignment.json").write_text("{")
    with pytest.raises(vt.SettingsError, match="not a saved alignment"):
        vt.ChannelAlign.load(tmp_path / "killed")


KILLED = """
import sys, numpy as np
sys.path[:0] = {path!r}
from tests.unit.test_align import QUICK, world
import vitreous as vt
models, values = world(60)
vt.align(models, None, values, out={out!r}, **(QUICK | {{"epochs": 400, "patience": 400}}))
"""


@pytest.mark.slow
def test_a_process_that_is_killed_loses_nothing(tmp_path):
    """kill -9 in the middle of training, twice; the third run ends with the maps of a run that was left alone."""
    models, values = world(60)
    settings = QUICK | {"epochs": 400, "patience": 400}
    whole = vt.align(models, None, values, out=tmp_path / "whole", **settings)
    folder = tmp_path / "killed"
    script = KILLED.format(path=sys.path, out=str(folder))
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", script])
        before = (folder / "checkpoint.pt").stat().st_mtime_ns if folder.exists() else 0
        while not (folder / "checkpoint.pt").exists() or (folder / "checkpoint.pt").stat().st_mtime_ns == before:
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
        process.kill()
        process.wait()
        assert not (folder / "alignment.json").exists()
    again = vt.align(models, None, values, out=folder, **settings)
    assert len(again.log) == len(whole.log)
    assert all((a == b).all() for a, b in zip(again.maps, whole.maps, strict=True))


def test_the_same_seed_gives_the_same_bytes_and_another_does_not():
    models, values = world(40)
    one, again, other = (vt.align(models, None, values, seed=s, **(QUICK | {"epochs": 3})) for s in (1, 1, 2))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(one.maps, again.maps, strict=True))
    assert one.maps[0].tobytes() != other.maps[0].tobytes()


def test_repeats_give_a_ceiling_by_region(tmp_path):
    models, values = world(120, noise=0.0)
    generator = np.random.default_rng(3)
    spread = values.std(0) * np.where(np.arange(10) < 5, 0.2, 2.0)
    repeats = values[:, None] + spread * generator.standard_normal((120, 4, 10))
    rois = {"clean": np.arange(10) < 5, "noisy": np.arange(10) >= 5}
    responses = vt.Responses(repeats.mean(1), rois, repeats)
    alignment = vt.align(models, None, responses, lambda_eigen=0, **QUICK)
    rows = {row["region"]: row for row in alignment.records()}
    assert rows["clean"]["ceiling"] > 0.95 > 0.7 > rows["noisy"]["ceiling"]
    assert rows["clean"]["R2"] > rows["noisy"]["R2"] and rows["clean"]["share"] == pytest.approx(
        rows["clean"]["R2"] / rows["clean"]["ceiling"]
    )
    shares = alignment.score("clean", of_ceiling=True)["clean"]
    np.testing.assert_allclose(shares, alignment.score("clean")["clean"] / alignment.ceiling[:5])
    with pytest.raises(vt.SettingsError, match=r"(?s)no noise ceiling.*repeats"):
        vt.align(models, None, values, **(QUICK | {"epochs": 1})).score(of_ceiling=True)
    hopeless = replace(alignment, ceiling=np.where(np.arange(10) == 2, -0.1, alignment.ceiling))
    assert np.isnan(hopeless.score(of_ceiling=True)["all"]).tolist() == [n == 2 for n in range(10)]
    alignment.save(tmp_path)
    np.testing.assert_array_equal(vt.ChannelAlign.load(tmp_path).ceiling, alignment.ceiling)
    assert "ceiling" not in vt.align(models, None, values, **(QUICK | {"epochs": 1})).records()[0]


@pytest.mark.parametrize("target", ["another model", "texts"])
def test_other_targets_guide_as_well(target):
    """What a third model says of each picture, or the embedding of a word for each: both hold what the models see."""
    models, _ = world(160)
    generator = np.random.default_rng(7)
    if target == "another model":
        embedding = np.tanh(models["one"]["layer 0"].mean(1) @ generator.standard_normal((16, 24)))
        least = 0.7
    else:
        words = generator.standard_normal((2, 24)).astype(np.float32)
        embedding = words[(models["one"]["layer 1"].mean(1)[:, 0] > 0).astype(int)]
        least = 0.25
    alignment = vt.align({"two": models["two"]}, None, embedding, lambda_eigen=0, **QUICK)
    assert alignment.means()["all"] > least, alignment
    shuffled = vt.align({"two": models["two"]}, None, generator.permutation(embedding), lambda_eigen=0, **QUICK)
    assert shuffled.means()["all"] < 0.1


def test_an_alignment_reads_for_a_cut_over_models_of_different_width(tmp_path):
    models, values = world(40)
    models["two"] = {name: part[..., :14] for name, part in models["two"].items()}
    with pytest.raises(vt.SettingsError, match=r"(?s)same channels.*vt.align"):
        vt.ncut(models, 4)
    alignment = vt.align(models, None, values, **(QUICK | {"epochs": 3}))
    spectral = vt.ncut(models, 4, read=alignment.transform)
    assert spectral.of("two", "layer 1").shape == (40, 6, 4)
    with pytest.raises(vt.SettingsError, match="no such region"):
        alignment.channels_of("V1", 3)


def test_channels_of_a_region_are_those_with_the_largest_weights():
    models, values = world(60)
    alignment = vt.align(models, None, vt.Responses(values, {"early": np.arange(10) < 5}), **(QUICK | {"epochs": 3}))
    strength = np.abs(alignment.head[:, :5] / alignment.spread[:5]).mean(1)
    assert set(alignment.channels_of("early", 4)) == set(np.argsort(-strength)[:4])
    with pytest.raises(vt.SettingsError, match="number of channels"):
        alignment.channels_of("early", 13)


def test_bad_input_is_refused_with_what_to_do():
    models, values = world(40)
    for wrong, match in (
        (values[:39], "not as many responses"),
        (np.ones_like(values), "every response is constant"),
        (np.where(np.arange(10) == 3, np.nan, values), r"(?s)not finite.*1 of 10.*leave those columns out, of masks"),
        (values[:, 0], "image, response"),
    ):
        with pytest.raises(vt.SettingsError, match=match):
            vt.align(models, None, wrong, **QUICK)
    with pytest.raises(vt.SettingsError, match="mask of V1 does not fit"):
        vt.Responses(values, {"V1": np.ones(9, bool)})
    with pytest.raises(vt.SettingsError, match="repeats are"):
        vt.Responses(values, repeats=np.zeros((40, 2, 9)))
    for wrong in ({"held_out": 1.0}, {"nodes": 6}, {"lr": 0}, {"width": 0}, {"width": 2.5}, {"batch": "64"}):
        with pytest.raises(vt.SettingsError):
            vt.align(models, None, values, **(QUICK | wrong))
    for wrong, match in (
        ({"patience": 0}, r"(?s)patience is a whole number.*from 1 on"),
        ({"seed": -1}, "seed is a whole number"),
        ({"lambda_eigen": -1}, r"(?s)lambda_eigen is a number.*from 0 on"),
        ({"lambda_cov": float("nan")}, "lambda_cov is a number"),
        ({"device": "abacus"}, r"(?s)no such device.*cpu"),
        ({"rois": [np.ones(10, bool)]}, r"(?s)masks by name.*list"),
        ({"rois": {"all": np.arange(10) < 3}}, "no region is called so"),
        ({"out": __file__}, r"(?s)out is a folder.*choose another name"),
        ({"out": 3}, "out is a folder"),
    ):
        with pytest.raises(vt.SettingsError, match=match):
            vt.align(models, None, values, **(QUICK | wrong))
    broken = {"one": {"layer 0": models["one"]["layer 0"].copy()}}
    broken["one"]["layer 0"][3, 2, 1] = np.inf
    with pytest.raises(vt.SettingsError, match=r"(?s)features are not finite.*one layer 0, picture 3"):
        vt.align(broken, None, values, **QUICK)
    alignment = vt.align(models, None, values, **(QUICK | {"epochs": 1}))
    with pytest.raises(vt.SettingsError, match=r"(?s)no such layer.*one layer 0"):
        alignment.transform(models["one"]["layer 0"], "three", "layer 0")
    with pytest.raises(vt.SettingsError, match="other channels"):
        alignment.transform(np.zeros((2, 3)), "one", "layer 0")
    for unknown in (["V9"], "V9"):
        with pytest.raises(vt.SettingsError, match=r"(?s)no such regions.*'V9'"):
            alignment.score(unknown)
    assert set(alignment.score("all")) == {"all"}


def test_subjects_are_recorded_first(tmp_path):
    images = vt.scenes(12, size=64, seed=0)
    values = np.random.default_rng(0).standard_normal((12, 3))
    settings = {"sites": "blocks.2.attn.out", "rois": {"V1": np.arange(3) < 1}, "width": 8}
    found = vt.align(
        {"text": vt.load("bundled:scenes-text")}, images, values, out=tmp_path, epochs=2, progress=False, **settings
    )
    assert found.slots == (("text", "blocks.2.attn.out"),) and set(found.score()) == {"all", "V1"}
    assert vt.Store.open(tmp_path / "stores" / "text").sites == ("blocks.2.attn.out",)
    stores = {"text": vt.Store.open(tmp_path / "stores" / "text")}
    vt.align(stores, images, values, epochs=1, progress=False, **settings)
    with pytest.raises(vt.SettingsError, match=r"(?s)other pictures than images.*text"):
        vt.align(stores, vt.scenes(12, size=64, seed=1), values, **settings)
    with pytest.raises(vt.SettingsError, match=r"(?s)recorded first.*images and out="):
        vt.align({"text": vt.load("bundled:scenes-text")}, None, values)
    with pytest.raises(vt.SettingsError, match="regions of their own"):
        vt.align({"text": {"a": np.zeros((12, 2, 3))}}, None, vt.Responses(values), settings["rois"])
    with pytest.raises(vt.SettingsError, match=r"(?s)images come before the responses.*ndarray.*or None"):
        vt.align(stores, values, settings["rois"])
    recorded = sorted((tmp_path / "stores").rglob("*"))
    with pytest.raises(vt.SettingsError, match=r"(?s)not as many responses as images.*11 responses, 12 images"):
        vt.align({"mae": vt.load("bundled:scenes-mae")}, images, values[:11], out=tmp_path)
    assert sorted((tmp_path / "stores").rglob("*")) == recorded  # refused before anything is recorded


def test_all_that_decides_is_kept_with_the_result():
    models, values = world(40)
    given = {"batch": 7, "nodes": 30, "eigenvectors": 3, "held_out": 0.2, "lambda_cov": 0.02, "predict": "alone"}
    found = vt.align(models, None, values, **(QUICK | {"epochs": 2, "tokens": "all"} | given))
    asked = {name: value for name, value in (QUICK | given).items() if name not in ("epochs", "progress")}
    assert asked.items() <= found.settings.items() and found.settings["epochs"] == len(found.log) == 2


@pytest.mark.parametrize("order", [("few", "many"), ("many", "few")])
def test_layers_may_have_fewer_patches_than_the_regularisers_see(order):
    generator = np.random.default_rng(0)
    parts = {name: generator.standard_normal((40, n, 7)).astype(np.float32) for name, n in (("few", 2), ("many", 6))}
    models = {name: {"layer 0": parts[name]} for name in order}
    found = vt.align(models, None, generator.standard_normal((40, 3)), **(QUICK | {"epochs": 2}))
    assert {"eigen", "zero", "covariance"} <= set(found.log[-1]) and np.isfinite(found.log[-1]["total"])


@pytest.mark.parametrize("batch", [1, 35])
def test_a_last_batch_of_one_image_is_no_trouble(batch):
    """36 images to train on: the last batch has one, whose patches are fewer than the constraint's eigenvectors."""
    models, values = world(40)
    found = vt.align(models, None, values, **(QUICK | {"epochs": 2, "batch": batch}))
    assert np.isfinite(found.means()["all"]) and all(np.isfinite(line["total"]) for line in found.log)


def test_a_constant_response_harms_nothing():
    models, values = world(60)
    values[:, 2] = 7
    alignment = vt.align(models, None, values, **(QUICK | {"epochs": 5}))
    r2 = alignment.score()["all"]
    assert np.isnan(r2[2]) and np.isfinite(np.delete(r2, 2)).all()


def test_the_algonauts_layout(tmp_path):
    folder = tmp_path / "subj01"
    fmri, masks = folder / "training_split" / "training_fmri", folder / "roi_masks"
    fmri.mkdir(parents=True)
    masks.mkdir()
    left, right = np.random.default_rng(0).standard_normal((2, 10, 6)).astype(np.float32)
    np.save(fmri / "lh_training_fmri.npy", left)
    np.save(fmri / "rh_training_fmri.npy", right[:, :4])
    np.save(masks / "mapping_prf-visualrois.npy", {0: "Unknown", 1: "V1v", 2: "V1d"})
    np.save(masks / "lh.prf-visualrois_challenge_space.npy", np.array([0, 1, 1, 2, 0, 0]))
    np.save(masks / "rh.prf-visualrois_challenge_space.npy", np.array([1, 0, 0, 2]))
    found = vt.algonauts(folder)
    np.testing.assert_array_equal(found.values, np.concatenate([left, right[:, :4]], 1))
    assert np.flatnonzero(found.rois["V1v"]).tolist() == [1, 2, 6] and found.rois["left hemisphere"].sum() == 6
    assert found[:3].values.shape == (3, 10) and "subj01: 10 images x 10, 4 regions" in repr(found)
    assert found.vertices is None
    for side, chosen in (("lh", [3, 7, 8, 9, 20, 163_841]), ("rh", [0, 1, 2, 3])):
        where = np.zeros(163_842)
        where[chosen] = 1
        np.save(masks / f"{side}.all-vertices_fsaverage_space.npy", where)
    placed = vt.algonauts(folder)
    assert placed.vertices[:, 0].tolist() == [0] * 6 + [1] * 4
    assert placed.vertices[:, 1].tolist() == [3, 7, 8, 9, 20, 163_841, 0, 1, 2, 3]
    assert set(placed.rois) == set(found.rois)  # that file names no regions
    np.save(masks / "rh.all-vertices_fsaverage_space.npy", np.zeros(163_842))
    with pytest.raises(vt.SettingsError, match="file of vertices does not fit"):
        vt.algonauts(folder)
    (masks / "rh.all-vertices_fsaverage_space.npy").unlink()
    np.save(masks / "lh.prf-visualrois_challenge_space.npy", np.zeros(5))
    with pytest.raises(vt.SettingsError, match="mask of regions does not fit"):
        vt.algonauts(folder)
    np.save(masks / "lh.prf-visualrois_challenge_space.npy", np.zeros(6))
    (masks / "mapping_prf-visualrois.npy").write_bytes(b"nothing")
    with pytest.raises(vt.SettingsError, match="names of regions cannot be read"):
        vt.algonauts(folder)
    np.save(fmri / "rh_training_fmri.npy", right[0])
    with pytest.raises(vt.SettingsError, match=r"numbers \(image, vertex\)"):
        vt.algonauts(folder)
    with pytest.raises(vt.SettingsError, match="folder of an Algonauts 2023 subject"):
        vt.algonauts(tmp_path)
