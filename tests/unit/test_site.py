"""The static site: complete, the same bytes twice, safe with any name, and nothing of this machine in it."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq
import pytest
from small_run import WORDS, small_run, small_vit

import vitreous as vt
from vitreous.errors import SettingsError
from vitreous.notes import Journal
from vitreous.site import write
from vitreous.site.cloud import cloud_arrays


def data_of(site, key):
    """The value of a data file, as the page would get it."""
    text = (site / "data" / f"{key}.js").read_text()
    found = re.fullmatch(r'vitreous\.put\("([^"]+)",\s*(.*)\);\n', text, re.S)
    assert found and found[1] == key
    return json.loads(found[2])


def bytes_of(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def site(examined, tmp_path_factory):
    return vt.write_site(examined, tmp_path_factory.mktemp("site"), progress=False).parent


def test_everything_the_pages_ask_for_is_there(site, examined):
    index, units = data_of(site, "index"), data_of(site, "units")
    assert index["format"] == "vitreous site" and data_of(site, "live") is None
    assert [model["name"] for model in index["models"]] == ["first", "second"]
    assert len(units["id"]) == 16
    for name in units["id"]:
        assert data_of(site, f"unit/{name}")["id"] == name
    for file in (*index["pictures"]["files"], *index["pictures"]["sheet"]["files"]):
        assert (site / file).is_file()
    for lens in index["lenses"]:
        assert lens["there"] and data_of(site, f"lens/{lens['name']}")["html"].startswith('<div class="vt-panels">')
    assert all((site / link["href"]).is_file() for link in index["downloads"])
    assert index["overview"]["statements"] and index["overview"]["numbers"]
    assert {row["route"] for row in index["overview"]["statements"]} >= {"#/lens/structure", "#/lens/disentangle"}


def test_the_tables_hold_all_units(site):
    table = pq.read_table(site / "downloads" / "units.parquet").to_pylist()
    rows = json.loads((site / "downloads" / "units.json").read_text())
    assert len(table) == len(rows) == 16
    assert [row["id"] for row in table] == [row["id"] for row in rows]
    assert table[0]["model"] == "first"


def test_the_map_holds_every_patch_of_every_layer(site, examined):
    head, arrays = cloud_arrays(examined)
    assert head["count"] == len(examined.spectral) == len(arrays["x"])
    assert data_of(site, "cloud")["count"] == head["count"]
    assert set(arrays["picture"].tolist()) == set(examined.pictures.close)
    assert arrays["token"].min() == 1  # patches come after the class token


def test_patches_of_the_map_have_names_where_named_units_answer_most(examined):
    head, arrays = cloud_arrays(examined)
    found = {}
    for at in np.flatnonzero(arrays["label"] != 255).tolist():
        spot = tuple(int(arrays[name][at]) for name in ("model", "picture", "token"))
        found.setdefault(spot, set()).add(head["labels"][arrays["label"][at]])
    assert found and all(len(names) == 1 for names in found.values())  # the same word at every layer
    named = {}
    for number, model in enumerate(examined.models):
        for block in model.blocks:
            labels, profile = examined.labels(model.name, block), examined.profile(model.name, block)
            for unit in np.flatnonzero(labels.chance <= 0.05).tolist():
                for picture, place in zip(profile.close_pictures[unit], profile.close_patches[unit], strict=True):
                    spot = (number, int(picture), int(place) + len(model.prefix))
                    named.setdefault(spot, set()).add(labels.names[unit])
    named = {spot: words for spot, words in named.items() if spot[1] >= 0}
    assert set(found) == set(named) and all(found[spot] <= named[spot] for spot in found)


def test_pictures_of_the_map_keep_their_numbers_in_a_large_set(examined):
    many = (*examined.pictures.close[:-1], 70_000)
    _, arrays = cloud_arrays(replace(examined, pictures=replace(examined.pictures, close=many)))
    assert set(arrays["picture"].tolist()) == set(many)


def test_a_large_map_keeps_whole_paths(examined):
    head, arrays = cloud_arrays(examined, most=200)
    assert head["count"] <= 200
    seen = {}
    for model, layer, picture, token in zip(
        *(arrays[k].tolist() for k in ("model", "layer", "picture", "token")), strict=True
    ):
        seen.setdefault((model, picture, token), set()).add(layer)
    assert all(len(layers) == 3 for layers in seen.values())


def test_twice_it_is_the_same_bytes(site, examined, tmp_path):
    vt.write_site(vt.open_run(examined.folder), tmp_path / "again", progress=False)
    assert bytes_of(tmp_path / "again") == bytes_of(site)


def test_nothing_of_this_machine_is_in_it(site, examined):
    for name, data in bytes_of(site).items():
        assert str(examined.folder.parent).encode() not in data, name
        assert b"http://" not in data.replace(b"http://www.w3.org", b"") or name.startswith("app/"), name


def test_names_that_are_code_are_only_words(examined, tmp_path):
    """Names of pictures and words come from outside; none may end the script that it stands in."""
    evil = "</script><script>alert(1)</script><!--.png"
    shutil.copytree(examined.folder, tmp_path / "run")
    about = json.loads((tmp_path / "run" / "examination.json").read_text())
    about["images"]["names"][0] = evil
    about["models"][0]["about"] = evil
    (tmp_path / "run" / "examination.json").write_text(json.dumps(about))
    run = vt.open_run(tmp_path / "run")
    Journal(run.folder).write("first/blocks.1.mlp.out/1", name=evil)
    out = vt.write_site(run, tmp_path / "site", progress=False).parent
    for name, data in bytes_of(out).items():
        if name.startswith("data/"):
            assert b"<" not in data, name
    assert data_of(out, "index")["pictures"]["names"][0] == evil
    assert data_of(out, "index")["notes"][0]["name"] == evil
    page = vt.write_site(run, tmp_path / "single", single_file=True, progress=False).read_text()
    assert "alert(1)</script>" not in page and "<script>alert(1)" not in page
    assert "&lt;/script&gt;" in data_of(out, "lens/tokens")["html"]
    assert WORDS[-1] not in page


def test_a_file_name_that_is_no_text_can_be_written(examined, tmp_path):
    """Python reads its bytes as halves of characters, which neither a page nor a table can hold."""
    shutil.copytree(examined.folder, tmp_path / "run")
    about = json.loads((tmp_path / "run" / "examination.json").read_text())
    about["images"]["names"][0] = "caf\udce9.png"
    (tmp_path / "run" / "examination.json").write_text(json.dumps(about))
    run = vt.open_run(tmp_path / "run")
    site = vt.write_site(run, tmp_path / "site", progress=False).parent
    assert data_of(site, "index")["pictures"]["names"][0] == "caf?.png"
    assert vt.write_site(run, tmp_path / "single", single_file=True, progress=False).is_file()


def test_a_single_file_holds_what_it_needs(examined, tmp_path):
    path = vt.write_site(examined, tmp_path, single_file=True, progress=False)
    assert [p.name for p in tmp_path.iterdir()] == ["index.html"] == [path.name]
    page = path.read_text()
    assert 'src="app' not in page and 'href="app' not in page
    for key in ("index", "units", "live", "lens/structure", "unit/first/blocks.1.mlp.out"):
        assert f'vitreous.put("{key}' in page
    assert '"single":true' in page and "data:image/jpeg;base64," in page


def test_several_runs_stand_side_by_side(examined, tmp_path):
    other = small_run(tmp_path / "other", [small_vit("first", 9)], scenes=20, units=2, blocks=[2])
    out = vt.write_site([examined, other], tmp_path / "site", progress=False).parent
    index, units = data_of(out, "index"), data_of(out, "units")
    assert [model["name"] for model in index["models"]] == ["first", "second", "first-2"]
    assert index["pictures"]["count"] == 24 + 20 == len(index["pictures"]["files"])
    assert len(units["id"]) == 18 and len(set(units["id"])) == 18
    card = data_of(out, f"unit/{units['id'][-1]}")
    assert card["model"] == "first-2" and card["id"].startswith("first-2/")
    assert min(tile["picture"] for row in card["rows"] for tile in row["tiles"]) >= 24
    assert all(one["id"].startswith("first-2/") for one in card["similar"])
    assert (out / index["pictures"]["files"][-1]).is_file()
    assert [one["run"] for one in index["provenance"]] == ["run", "other"]
    twice = vt.write_site([examined, examined], tmp_path / "twice", progress=False).parent
    assert data_of(twice, "index")["pictures"]["count"] == 24


def test_a_run_with_nothing_but_pictures_still_opens(examined, tmp_path):
    shutil.copytree(examined.folder, tmp_path / "run")
    for part in ("structure", "disentangle", "align", "tokens", "labels", "profiles", "evidence", "classes"):
        shutil.rmtree(tmp_path / "run" / part)
    (tmp_path / "run" / "run.json").write_text("[]")
    (tmp_path / "run" / "pictures" / examined.pictures.files[0]).write_bytes(b"no picture")
    out = vt.write_site(vt.open_run(tmp_path / "run"), tmp_path / "site", progress=False).parent
    index = data_of(out, "index")
    assert [lens["there"] for lens in index["lenses"]] == [False] * 4
    assert all("missing" in lens["missing"] for lens in index["lenses"])
    card = data_of(out, f"unit/{data_of(out, 'units')['id'][0]}")
    assert {one["lens"] for one in card["missing"]} >= {"structure", "disentangle", "align", "tokens", "pictures"}
    assert not (out / "data" / "cloud.js").exists()


def test_one_unit_and_forty_parts(examined, tmp_path):
    """One unit alone, split into forty: the planted weights give each input to a sub-unit of its own."""
    from vitreous.cards.deck import Deck
    from vitreous.cards.lenses import disentangle_part

    finding = examined.disentanglement("first", 2)
    inputs = finding.weight.shape[1]
    members = np.arange(40)[:, None] == np.arange(inputs) % 40
    top = finding.subunit_top._replace(**{k: v[[0] * 40] for k, v in finding.subunit_top._asdict().items()})
    forty = replace(
        finding, units=finding.units[:1], weight=finding.weight[:1], bias=finding.bias[:1], counts=np.array([40]),
        rho=finding.rho[:1], scores=finding.scores[:1], noise=finding.noise[:1],
        top=finding.top._replace(**{k: v[:1] for k, v in finding.top._asdict().items()}),
        parents=np.zeros(40, np.int64), sizes=np.arange(40), representatives=np.ones((40, inputs), np.float32),
        codes=np.packbits(members, 1), subunit_top=top,
    )  # fmt: skip
    sheet = replace(Deck(examined).sheet("first", 2), finding=forty, profile=None)
    found = disentangle_part(sheet, int(forty.units[0]))
    assert found["k"] == 40 and len(found["subunits"]) == 40
    assert "40 groups" in found["sentence"]
    assert found["subunits"][39]["id"].endswith(".39")
    run = small_run(tmp_path / "one", [small_vit("first", 1)], units=1, blocks=[2])
    out = vt.write_site(run, tmp_path / "site", progress=False).parent
    assert len(data_of(out, "units")["id"]) == 1
    assert data_of(out, "index")["overview"]["numbers"][0]["note"] == "in 1 model"
    shown = data_of(out, "lens/disentangle")["html"]
    assert "h0" in shown or "How pure they are" not in shown  # one block: a dot a line, and never a panel of nothing


def test_without_the_front_end_it_is_refused(examined, tmp_path):
    with patch.object(write, "SCRIPTS", ("nothing.js",)), pytest.raises(SettingsError, match="front end is not built"):
        vt.write_site(examined, tmp_path / "site", progress=False)
    assert not (tmp_path / "site").exists()


def test_a_file_in_the_way_is_refused(examined, tmp_path):
    (tmp_path / "site").write_text("mine")
    with pytest.raises(SettingsError, match="folder"):
        vt.write_site(examined, tmp_path / "site", progress=False)
