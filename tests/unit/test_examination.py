"""An examination: whole, the same bytes each time, able to go on, and not taken down by one bad part."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from shown import leaves_as_a_table, shows_itself
from small_run import WORDS, small_run, small_vit

import vitreous as vt
from vitreous.errors import SettingsError, StoreError
from vitreous.evidence.monosemanticity import monosemanticity
from vitreous.examination import outlook, work
from vitreous.examination.classes import Classes
from vitreous.examination.plan import make_plan
from vitreous.examination.profiles import ROWS, Layer
from vitreous.examination.proof import _at_random, stability_evidence


def files_of(folder):
    """Every file but those that hold times."""
    kept = (p for p in sorted(folder.rglob("*")) if p.is_file() and p.name != "run.json")
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in kept}


@pytest.fixture
def copied(examined, tmp_path):
    shutil.copytree(examined.folder, tmp_path / "run")
    return tmp_path / "run"


def test_a_run_is_a_finding(examined, tmp_path):
    leaves_as_a_table(examined, tmp_path)
    shows_itself(examined)


def test_every_part_is_there_and_fits(examined):
    assert examined.absent == {}
    assert [entry.name for entry in examined.models] == ["first", "second"]
    assert len(examined.pictures) == 24 and len(examined.pictures.close) == 8
    assert len(examined.unit_ids) == 16
    for entry in examined.models:
        assert examined.structure(entry.name).labels.shape == (3, 2, 32)
        assert examined.store(entry.name).prefix == entry.prefix == ("class",)
        assert len(examined.classes(entry.name).names) > 1
        for block in entry.blocks:
            finding, profile = examined.disentanglement(entry.name, block), examined.profile(entry.name, block)
            assert len(finding.units) == 4 == len(profile.mean)
            assert len(examined.labels(entry.name, block)) == 4
            assert len(examined.labels(entry.name, block, subunits=True)) == len(finding)
            assert len(examined.token_maps(entry.name, block)) == 8
            evidence = examined.evidence(entry.name, block)
            assert {len(evidence[key]) for key in ("ms", "ms_control", "stability", "lost", "lost_control")} == {4}
            assert len(evidence["subunit_ms"]) == len(finding)
    assert len(examined.places) == len(examined.colours) == len(examined.spectral) == 2 * 3 * 8 * 16
    assert json.loads((examined.folder / "run.json").read_text())["status"] == "done"


def test_sub_units_that_are_found_again_are_stable_and_the_unit_as_a_whole_is_not(examined):
    findings = [examined.disentanglement(entry.name, block) for entry in examined.models for block in entry.blocks]
    several = 0
    for finding in findings:
        others = finding.top._replace(tokens=finding.top.tokens + 1)
        elsewhere = replace(finding, top=others)  # the same parts, found on other patches
        found = stability_evidence(finding, elsewhere)
        for unit, same, control in zip(finding.units, found["stability"], found["stability_control"], strict=True):
            if len(finding.subunits(int(unit))) < 2:
                assert same is control is None
                continue
            several += 1
            assert same == pytest.approx(1, abs=1e-5) and control < 0.99
    assert several


def test_the_control_of_what_looks_alike_is_as_many_patches_by_lot():
    """One unit answers to the first patch, where all pictures are the same; another to nothing in particular."""
    rng = np.random.default_rng(0)
    embeddings = rng.normal(size=(60, 9, 16))
    embeddings[:, 0] = 3.0
    answers = rng.random((60, 9, 2))
    answers[:, 0, 0] += 9
    found = monosemanticity(embeddings, lambda batch: batch, sources=answers, top=20, progress=False)
    control = _at_random(found, embeddings, np.random.default_rng(1))
    assert found.scores[0] > 0.99 and (control < 0.3).all() and abs(found.scores[1] - control[1]) < 0.1


def test_profiles_are_what_the_model_computes(examined):
    """Maxima, strongest places and maps against the model's own mlp.out."""
    subject = small_vit("first", 1)
    images = vt.scenes(24, size=32, seed=3)
    with vt.capture(subject, "blocks.2.mlp.out") as seen:
        subject([picture.image for picture in images])
    units = examined.disentanglement("first", 2).units
    true = seen["blocks.2.mlp.out"].detach().numpy()[:, 1:, units]  # picture, patch, unit
    profile = examined.profile("first", 2)
    np.testing.assert_allclose(profile.maxima, true.max(1), atol=5e-3)
    best = profile.pictures[:, 0, 0]
    assert (np.abs(true.max(1)[best, np.arange(4)] - true.max((0, 1))) < 5e-3).all()
    np.testing.assert_allclose(profile.mean, true.mean((0, 1)), atol=2e-3)
    np.testing.assert_allclose(profile.std, true.std((0, 1)), atol=2e-3)
    np.testing.assert_allclose(profile.positive, (true > 0).mean((0, 1)), atol=0.02)
    assert (profile.counts.sum(1) == 24 * 16).all()
    heat = profile.heat[0, 0, 0].astype(float) / 255
    mean, most = true[..., 0].mean(), true[..., 0].max()
    wanted = np.clip((true[best[0], :, 0] - mean) / (most - mean), 0, 1)
    np.testing.assert_allclose(heat, wanted, atol=0.02)


def test_rows_go_down_and_hold_each_picture_once(examined):
    profile = examined.profile("first", 2)
    for unit in range(4):
        shown = [p for p in profile.pictures[unit].ravel().tolist() if p >= 0]
        assert len(set(shown)) == len(shown)
        values = [row[np.isfinite(row)] for row in profile.values[unit]]
        assert all((np.diff(row) <= 0).all() for row in values)
        tops = [row.max() for row in values if len(row)]
        assert tops == sorted(tops, reverse=True)
    assert len(ROWS) == profile.pictures.shape[1]


def test_similar_units_are_those_that_correlate(examined):
    units, r = examined.similar
    layers = [
        Layer.of(examined.store(m), examined.disentanglement(m, b), b) for m in ("first", "second") for b in (1, 2)
    ]
    pictures, patches = (part.ravel() for part in np.mgrid[:24, :16])
    a = np.concatenate([layer.units(layer.inputs(pictures, patches)) for layer in layers], 1)
    true = np.corrcoef(a.T)
    np.fill_diagonal(true, -np.inf)
    assert (units[:, 0] == true.argmax(1)).all()
    np.testing.assert_allclose(r[:, 0], true.max(1), atol=1e-4)


def test_covering_what_a_map_names_is_measured_against_random_patches(examined):
    found = examined.evidence("first", 2)
    columns = (found[key] for key in ("lost", "lost_control", "lost_low", "lost_high"))
    there = [row for row in zip(*columns, strict=True) if None not in row]
    assert there
    assert all(low <= value <= high for value, _, low, high in there)


@pytest.mark.parametrize("after", [4, 8])
def test_killed_and_run_again_it_ends_the_same(examined, tmp_path, monkeypatch, after):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(work, "PARTS", (*work.PARTS[:after], ("killed", killed)))
        small_run(tmp_path / "run")
    with pytest.raises(StoreError, match="not finished"):
        vt.open_run(tmp_path / "run")
    assert files_of(small_run(tmp_path / "run").folder) == files_of(examined.folder)


def test_a_log_gets_a_line_for_each_part(examined, tmp_path, capsys):
    copied = tmp_path / "run"
    shutil.copytree(examined.folder, copied)
    capsys.readouterr()
    small_run(copied, progress=True)
    said = capsys.readouterr().err.splitlines()
    parts = [f"{number} of {len(work.PARTS)}: {title}" for number, (title, _) in enumerate(work.PARTS, 1)]
    assert [line for line in said if line in parts] == parts


PARTS_OF_A_RUN = {
    "structure/first.npz": lambda run: run.structure("first"),
    "structure/first-near.npz": lambda run: run.near("first"),
    "disentangle/first/2/disentanglement.safetensors": lambda run: run.disentanglement("first", 2),
    "disentangle/first/2/disentanglement.json": lambda run: run.disentanglement("first", 2),
    "profiles/first/2.npz": lambda run: run.profile("first", 2),
    "tokens/first/2.npz": lambda run: run.token_maps("first", 2),
    "labels/first/2/units.npz": lambda run: run.labels("first", 2),
    "classes/first.npz": lambda run: run.classes("first"),
    "align/map.npz": lambda run: run.places,
    "align/eigenvectors.npy": lambda run: run.spectral,
    "align/spectral.json": lambda run: run.spectral,
    "similar.npz": lambda run: run.similar,
    "evidence/first/2.json": lambda run: run.evidence("first", 2),
    "stores/first/manifest.json": lambda run: run.store("first"),
}


@pytest.mark.parametrize("name", PARTS_OF_A_RUN)
@pytest.mark.parametrize("harm", ["gone", "cut", "noise"])
def test_a_damaged_part_is_refused_by_name_and_the_others_stay(copied, name, harm):
    path = copied / name
    data = path.read_bytes()
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(data[: len(data) // 2] if harm == "cut" else b"\x80nothing of ours" * 9)
    run = vt.open_run(copied)
    assert len(run.to_pandas()) and "Examination" in run._repr_html_()
    with pytest.raises(StoreError, match=name.split("/")[0].removesuffix(".npz")) as refused:
        PARTS_OF_A_RUN[name](run)
    assert str(copied) not in str(refused.value)
    fine = [other for other in PARTS_OF_A_RUN if other.rsplit("/", 1)[0] != name.rsplit("/", 1)[0]]
    for other in fine:
        PARTS_OF_A_RUN[other](run)


def test_a_damaged_part_is_made_again(examined, copied):
    for name in PARTS_OF_A_RUN:
        if not name.startswith("stores"):
            (copied / name).write_bytes(b"damaged")
    assert files_of(small_run(copied).folder) == files_of(examined.folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda about: about.pop("models"),
        lambda about: about["images"].update(files=["../../etc/passwd"] * 24),
        lambda about: about["images"].update(files=["a.png"]),
        lambda about: about["models"][0].update(name="../other"),
        lambda about: about.update(version=99),
        lambda about: about["models"][0].update(grid="4x4"),
    ],
)
def test_a_made_up_description_is_refused(copied, change):
    about = json.loads((copied / "examination.json").read_text())
    change(about)
    (copied / "examination.json").write_text(json.dumps(about))
    with pytest.raises(StoreError, match="damaged"):
        vt.open_run(copied)


def test_another_examination_is_not_mixed_in(copied):
    with pytest.raises(SettingsError, match="something else"):
        small_run(copied, seed=4)
    with pytest.raises(StoreError, match="no examination"):
        vt.open_run(copied / "pictures")


def test_models_of_other_widths_stay_out_of_the_common_space(tmp_path):
    subjects = [small_vit("first", 1), small_vit("second", 2), small_vit("wide", 3, width=48)]
    run = small_run(tmp_path / "run", subjects, units=2, blocks=[2])
    assert {model for model, _ in run.spectral.blocks} == {"first", "second"}
    assert run.absent == {}


def test_models_of_any_width_lie_in_the_space_of_responses_and_of_no_others(tmp_path):
    values = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
    subjects = [small_vit("first", 1), small_vit("wide", 3, width=48)]

    def made(answers):
        return small_run(tmp_path / "run", subjects, units=2, blocks=[2], responses=vt.Responses(answers))

    run = made(values)
    assert {model for model, _ in run.spectral.blocks} == {"first", "wide"} and run.absent == {}
    before, left = run.places.tobytes(), run.folder / "align" / "checkpoint.pt"
    assert not left.exists()
    left.write_bytes(b"of a run that was killed just before its end")
    assert made(values).places.tobytes() == before and not left.exists()
    with pytest.raises(SettingsError, match=r"(?s)examination of something else.*other settings"):
        made(values + 1)


def test_without_words_or_attention_the_rest_is_made(tmp_path):
    import timm

    module = timm.create_model("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 8, 16, 16), num_classes=0)
    size = vt.Size(64, 64)
    stages = vt.wrap(module.eval(), name="stages", preprocess=vt.Preprocess(size, size))
    images = vt.scenes(24, size=64, seed=3)
    run = vt.examine(stages, images, tmp_path / "run", blocks=[1], units=2, close=8, progress=False)
    assert set(run.absent) == {"structure/stages", "align", "tokens/stages", "labels/stages/1"}
    assert len(run.profile("stages", 1).mean) == 2
    with pytest.raises(StoreError, match="not part of this run"):
        run.token_maps("stages", 1)


def test_the_model_is_loaded_again_and_another_is_refused(tmp_path):
    images = vt.scenes(24, size=64, seed=3)
    asked = {"blocks": [7], "units": 2, "close": 4, "progress": False, "device": "cpu"}
    run = vt.examine("bundled:scenes-text", images, tmp_path / "run", **asked)
    assert run.subject("scenes-text").fingerprint == run.model("scenes-text").fingerprint
    classes = run.classes("scenes-text")
    assert classes.kind == "words" and "red" in classes.names
    about = json.loads((run.folder / "examination.json").read_text())
    about["models"][0]["source"] = "bundled:scenes-mae"
    (run.folder / "examination.json").write_text(json.dumps(about))
    with pytest.raises(StoreError, match="other weights"):
        vt.open_run(run.folder).subject("scenes-text")


def test_classes_by_words_are_those_of_the_tower(tmp_path):
    from vitreous.examination.classes import find_classes
    from vitreous.models.bundled import load_words

    subject, tower = vt.load("bundled:scenes-text", device="cpu"), load_words()
    images = vt.scenes(8, size=64, seed=5)
    classes = find_classes(subject, images, lambda: None, 0)
    output = subject([picture.image for picture in images]).detach()
    wanted = tower(output, list(classes.names)).sigmoid().detach().numpy()
    np.testing.assert_allclose(classes.probabilities(output.numpy()), wanted, atol=1e-4)
    classes.save(tmp_path / "classes.npz")
    np.testing.assert_array_equal(Classes.load(tmp_path / "classes.npz").weight, classes.weight)


def test_a_probe_finds_what_is_planted():
    rng = np.random.default_rng(0)
    from vitreous.examination.classes import _probe

    labels = rng.integers(0, 3, 90)
    x = rng.normal(size=(90, 5)) + 4 * np.eye(5)[labels]
    images = vt.ImageSet.from_arrays(np.zeros((90, 4, 4, 3), np.uint8), labels=labels, classes=("a", "b", "c"))
    found = _probe(x, images, 0)
    assert found.accuracy > 0.9 > found.chance
    assert (found.probabilities(x).argmax(1) == labels).mean() > 0.95


def test_words_that_are_code_stay_words(examined):
    assert examined.labels("first", 2).vocabulary == WORDS


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"blocks": [9]}, "no such block"),
        ({"close": 1}, "close is a whole number"),
        ({"scenes": 8}, "16 or more"),
        ({"units": 0}, "units is a whole number"),
        ({"eigenvectors": 1}, "eigenvectors is a whole number"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, settings, match):
    with pytest.raises(SettingsError, match=match):
        small_run(tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_it_says_beforehand_how_long_it_will_take(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(outlook, "seconds_a_picture", lambda *_: 0.5)
    small_run(tmp_path / "run", [small_vit("first", 1)], progress=True)
    said = " ".join(capsys.readouterr().err.split())
    assert "8 units of 2 blocks on 24 pictures, 8 of them closely: about 3 min on this machine" in said
    # 8 pictures, 17 tokens, 0.9 passes of half a second each, to two thirds of the depth and to all of it
    assert "(token maps 2 min" in said
    small_run(tmp_path / "run", [small_vit("first", 1)], progress=True)
    assert "about" not in capsys.readouterr().err  # all is there already


def test_spans_are_said_in_the_unit_that_people_use():
    found = outlook.spoken({"token maps": 7200.0, "recording": 1200.0, "evidence": 3.0})
    assert found == "about 2.3 h on this machine (token maps 2.0 h, recording 20 min)"
    assert outlook.spoken({"recording": 3.0}) == "about 5 s on this machine (recording 5 s)"


def test_a_forward_pass_is_timed_and_nothing_is_left_on_the_model(tmp_path):
    plan = make_plan(
        [small_vit()], vt.scenes(16, size=32, seed=3), tmp_path, weights=None, settings=None, blocks=[0], units=2,
        close=4, eigenvectors=4, towers=None, responses=None, seed=0, device="cpu", progress=False,
    )  # fmt: skip
    before = plan.models[0].subject.fingerprint
    found = outlook.outlook(plan)
    assert found["recording"] > 0 and list(found.values()) == sorted(found.values(), reverse=True)
    assert plan.models[0].subject.fingerprint == before
    assert not any(part._forward_hooks for part in plan.models[0].subject.module.modules())
