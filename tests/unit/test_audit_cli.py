"""`vitreous audit`: from a folder of pictures and one of masks to findings, a patch and a page; and what is refused."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import vitreous as vt
from vitreous.auditing.folder import AuditAbout, open_audit, read_audit
from vitreous.cli import app

sys.path.insert(0, str(Path(__file__).parent))
from audited_folder import MODEL, QUICK, write_pictures

SITES = ("blocks.7.attn.out", "blocks.7.mlp.out")


def run(*words) -> str:
    found = CliRunner().invoke(app, ["audit", *map(str, words)])
    assert found.exit_code == 0, found.output
    return found.stdout


def refused(*words) -> str:
    found = CliRunner().invoke(app, ["audit", *map(str, words)])
    assert found.exit_code == 2 and "Traceback" not in found.output, found.output
    return found.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("audited"))


@pytest.fixture(scope="module")
def one(made) -> dict:
    asked = ["--masks", made / "masks", "--groups", made / "groups.csv", "--out", made / "one", *QUICK, "--json"]
    return json.loads(run(MODEL, made / "pictures", *asked))


def test_one_layer_with_masks_and_groups(made, one):
    assert one["basis"] == "outside the object" and one["alarms"] > 0 and "speak for" in one["answer"]
    rows = {row[0]: row for row in one["before_after"]["rows"]}
    assert {"all pictures", "class light", "light, left", "worst group"} <= set(rows)
    files = {path.name for path in (made / "one").iterdir()}
    assert {"audit.npz", "audit.json", "patch.safetensors", "report.html", "run.json"} <= files
    patch = vt.SwitchOff.load(made / "one" / "patch.safetensors")
    assert len(patch) == len(one["off"]) == one["alarms"]
    assert "painted over" in (made / "one" / "report.html").read_text()


def test_the_whole_models_test_is_said(made, one):
    assert one["overall"]["alarm"] and one["overall"]["target"] == 1
    assert "the model as a whole still gives" in (made / "one" / "report.html").read_text()
    assert one["places"] is None and not (made / "one" / "places.safetensors").exists()


def test_places_beside_the_object_and_their_patch(made):
    given = [MODEL, made / "pictures", "--places", *QUICK, "--out", made / "places"]
    asked = ["--head", "probe", "--train", made / "pictures", "--masks", made / "masks"]
    found = json.loads(run(*given, *asked, "--json"))["places"]
    assert found["site"] == "blocks.3.resid.out" and found["overall"]["alarm"]
    patch = made / "places" / "places.safetensors"
    assert patch.exists() == found["alarm"] and ("before_after" in found) == found["alarm"]
    assert "places at blocks.3.resid.out" in run(*given, *asked)
    page = (made / "places" / "report.html").read_text()
    assert "Places beside the object" in page and ("PlacesOff.load" in page) == found["alarm"]
    assert "found with masks" in refused(*given)


def test_the_folder_opens_again_with_model_and_pictures(made, one):
    about = AuditAbout.load(made / "one")
    sweep = open_audit(made / "one", about.subject("cpu"))
    assert sweep.findings[0].ids == read_audit(made / "one").findings[0].ids
    patch = sweep.measured(sweep.patch(about.off))
    assert [list(row) for row in patch.effect.rows] == one["before_after"]["rows"]


def test_other_pictures_are_no_audited_ones(made, one, tmp_path):
    moved = shutil.copytree(made / "pictures", tmp_path / "pictures")
    shutil.copytree(made / "one", tmp_path / "out")
    about = json.loads((tmp_path / "out" / "audit.json").read_text())
    (tmp_path / "out" / "audit.json").write_text(json.dumps(about | {"data": str(moved)}))
    subject = AuditAbout.load(tmp_path / "out").subject("cpu")
    open_audit(tmp_path / "out", subject)
    name = read_audit(tmp_path / "out").findings[0].ids[0]
    Image.new("RGB", (64, 64)).save(moved / name)
    with pytest.raises(vt.StoreError, match="not those that were audited"):
        open_audit(tmp_path / "out", subject)
    (moved / name).unlink()
    with pytest.raises(vt.StoreError, match="are gone"):
        open_audit(tmp_path / "out", subject)
    for damage in ("{", "[]", '{"format": "x"}', json.dumps(about | {"sites": ["../x"]})):
        (tmp_path / "out" / "audit.json").write_text(damage)
        with pytest.raises(vt.StoreError):
            read_audit(tmp_path / "out")


def test_several_layers_give_one_patch(made):
    sites = ["--site", "blocks.-1.attn.out", "--site", "blocks.-1.mlp.out"]
    out = made / "several"
    said = run(MODEL, made / "pictures", *sites, "--masks", made / "masks", "--out", out, *QUICK)
    assert "parts switched off" in said and "decisions changed" in said and "blocks.7." in said
    about = AuditAbout.load(out)
    assert about.sites == SITES and {site for site, _ in about.off} <= set(SITES)
    assert all((out / site / "audit.npz").is_file() for site in SITES)
    assert len(vt.SwitchOff.load(out / "patch.safetensors")) == len(about.off)
    assert [one.site for one in open_audit(out, about.subject("cpu")).findings] == list(SITES)
    page = (out / "report.html").read_text()  # one for both layers
    assert f"report: {out / 'report.html'}" in said and not list(out.glob("blocks.*/report.html"))
    assert all(site in page for site in SITES) and "2 layers were audited and share the alpha of 0.05" in page
    assert "Alarms by layer" in page and "sweep[&#34;blocks.7." in page


def test_parts_are_chosen_by_their_ids(made, one):
    number = one["rows"][1]["id"]
    asked = ["--masks", made / "masks", *QUICK, "--off", number, "--json", "--out", made / "off"]
    assert json.loads(run(MODEL, made / "pictures", *asked))["off"] == [["blocks.7.mlp.out", number]]
    assert "by their ids" in refused(MODEL, made / "pictures", *asked, "--off", "x")
    assert "no part with this id" in refused(MODEL, made / "pictures", *asked, "--off", "99999")


def test_parts_are_told_their_mates(made, tmp_path):
    features = np.random.default_rng(0).normal(size=(120, 8, 1, 128)).astype(np.float32)
    features[:, 2] = features[:, 7]
    vt.structure(features, progress=False).save(tmp_path / "finding.npz")
    asked = ["--masks", made / "masks", *QUICK, "--structure", tmp_path, "--json", "--out", tmp_path / "out"]
    rows = json.loads(run(MODEL, made / "pictures", *asked))["rows"]
    assert rows[0]["mates"] == [f"layer 2.{rows[0]['part']}"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["--labels", "nowhere"], "nowhere"),
        (["--structure", "nowhere"], "nowhere"),
        (["--site", "blocks.99.mlp.out"], "blocks.99.mlp.out"),
        (["--head", "third"], "unknown head"),
        (["--alpha", "nan"], "alpha lies between 0 and 1"),
        (["--tested", "0"], "tested is a whole number"),
        (["--correction", "hope"], "no such correction"),
        (["--masks", "nowhere"], "no such masks"),
        (["--masks", "boxes"], "has no boxes"),
        (["--groups", "nowhere.csv"], "not all pictures tell this"),
        (["--targets", "a"], "targets are"),
        (["--subunits", "nowhere", "--units"], "one of them"),
        (["--train", "nowhere"], "nowhere"),
    ],
)
def test_wrong_options_are_refused_by_name(made, tmp_path, asked, message):
    assert message in refused(MODEL, made / "pictures", "--out", tmp_path, *QUICK, *asked)


def test_masks_that_do_not_fit_are_refused(made, tmp_path):
    bad = shutil.copytree(made / "masks", tmp_path / "masks")
    given = [MODEL, made / "pictures", "--out", tmp_path / "out", *QUICK, "--masks"]
    for path in bad.rglob("*.png"):
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(path)
    assert "of another size" in refused(*given, bad)
    next(bad.rglob("*.png")).unlink()
    assert "has no mask" in refused(*given, bad)
    next(bad.rglob("*.png")).write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    assert "no masks in this folder" in refused(*given, tmp_path / "empty")


def test_groups_that_do_not_fit_are_refused(made, tmp_path):
    given = [MODEL, made / "pictures", "--out", tmp_path / "out", *QUICK, "--groups", tmp_path / "g.csv"]
    (tmp_path / "g.csv").write_text("dark/0.png,left\n")
    assert "79 pictures have no group" in refused(*given)
    (tmp_path / "g.csv").write_text("dark/0.png;left\n")
    assert "a line is 'picture,group'" in refused(*given)


def test_pictures_that_say_nothing_are_refused(made, tmp_path):
    def said(folder) -> str:
        return refused(MODEL, folder, "--out", tmp_path / "out", *QUICK)

    (tmp_path / "empty").mkdir()
    assert "no pictures" in said(tmp_path / "empty")
    assert "labelled" in said(made / "pictures" / "dark")
    shutil.copytree(made / "pictures" / "dark", tmp_path / "alone" / "dark")
    assert "one folder a class, two or more" in said(tmp_path / "alone")
    few = shutil.copytree(made / "pictures", tmp_path / "few")
    for path in sorted((few / "light").iterdir())[2:]:
        path.unlink()
    assert "a class needs" in said(few)
