"""What the explorer answers, compared with the library that it stands on."""

from __future__ import annotations

import base64
import io
import json
import struct
import time

import numpy as np
import pytest
from explorer_app import client_of
from PIL import Image

import vitreous as vt

MODEL = "scenes-text"


@pytest.fixture(scope="module")
def client(explored, tmp_path_factory):
    import shutil

    run = shutil.copytree(explored.folder, tmp_path_factory.mktemp("api") / "run")
    with client_of(run, tmp_path_factory.mktemp("site") / "site") as client:
        yield client


@pytest.fixture(scope="module")
def subject():
    return vt.load("bundled:scenes-text", device="cpu")


@pytest.fixture(scope="module")
def finding(explored):
    return explored.disentanglement(MODEL, 7)


def unit_id(finding, part=None):
    unit = int(finding.units[int(finding.counts.argmax())])
    return f"{MODEL}/blocks.7.mlp.out/{unit}" + ("" if part is None else f".{part}")


def numbers(text):
    return np.frombuffer(base64.b64decode(text), np.uint8)


def said(answer, status):
    assert answer.status_code == status, answer.text
    return answer.json()["error"]


def png(size=(50, 40), seed=0):
    pixels = np.random.default_rng(seed).integers(0, 255, (*size[::-1], 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def test_state_says_what_there_is(client):
    state = client.get("/api/state").json()
    assert [model["name"] for model in state["models"]] == ["scenes-text", "scenes-mae"]
    assert state["pictures"] == 16 and state["models"][0]["prefix"] == ["class"]
    assert state["parts"]["align"] is None and state["parts"]["disentangle/scenes-text/7"] is None


@pytest.mark.parametrize("block", [0, 7, -1])
def test_maps_are_those_of_the_lens(client, explored, subject, block):
    asked = {"model": MODEL, "picture": 2, "block": block}
    first = client.get("/api/maps", params=asked)
    found = first.json()
    assert (found["rows"], found["columns"], found["tokens"], found["prefix"]) == (8, 8, 65, ["class"])
    maps = vt.token_maps(subject, explored.pictures.image(2), block, progress=False)
    expected = np.round(maps.scaled[0] * 255)
    off = np.abs(numbers(found["data"]).reshape(65, 8, 8) - expected)
    assert off.max() <= 6 and off.mean() < 1  # of 255; half precision where that is faster
    assert client.get("/api/maps", params=asked).content == first.content  # kept


def test_other_blocks_are_computed_ahead(client):
    client.get("/api/maps", params={"model": MODEL, "picture": 9, "block": 3})
    key = ("maps", MODEL, "9", 2, "sum")
    end = time.monotonic() + 60
    while key not in client.room.live.cache and time.monotonic() < end:
        time.sleep(0.02)
    assert key in client.room.live.cache


def test_segments_come_from_the_kept_tree(client, explored, subject):
    segments = vt.segment(vt.token_maps(subject, explored.pictures.image(1), 7, progress=False))
    for k in (1, 2, 5, 64):
        answer = client.get("/api/segments", params={"model": MODEL, "picture": 1, "block": 7, "k": k}).json()
        assert answer["k"] == segments.at(k=k).counts[0] and answer["most"] == 64
        assert answer["labels"] == segments.at(k=k).grid[0].reshape(-1).tolist()
    usual = client.get("/api/segments", params={"model": MODEL, "picture": 1, "block": 7}).json()
    assert usual["k"] == segments.counts[0]


def test_neighbours_are_the_nearest_nodes_of_every_picture_and_model(client, explored):
    spectral, close = explored.spectral, explored.pictures.close
    rows = spectral.eigenvectors / np.linalg.norm(spectral.eigenvectors, axis=1, keepdims=True)
    mine = spectral.of(MODEL, "blocks.5.attn.out", rows)[1, 10]
    expected = {}
    for model, layer in spectral.blocks:
        alike = spectral.of(model, layer, rows) @ mine
        for at, picture in enumerate(close):
            expected[model, picture] = max(expected.get((model, picture), -1), alike[at].max())
    del expected[MODEL, close[1]]
    best = sorted(expected.items(), key=lambda item: -item[1])[:6]
    asked = {"model": MODEL, "layer": 5, "picture": close[1], "token": 11, "count": 6}
    items = client.get("/api/neighbours", params=asked).json()["items"]
    assert [(item["model"], item["picture"]) for item in items] == [key for key, _ in best]
    np.testing.assert_allclose([item["similarity"] for item in items], [value for _, value in best], atol=1e-3)
    for item in items:  # the token that is named is the one that is near
        layer = f"blocks.{item['layer']}.attn.out"
        there = spectral.of(item["model"], layer, rows)[close.index(item["picture"]), item["token"] - 1]
        assert abs(there @ mine - item["similarity"]) < 1e-3


def test_a_picture_of_the_run_that_is_dropped_in_finds_itself(client, explored):
    """Dropped in, it has no number, and is placed anew by its features: its own patch must be the nearest."""
    picture = explored.pictures.close[2]
    file = io.BytesIO()
    explored.pictures.image(picture).save(file, "PNG")
    dropped = client.post("/api/pictures", params={"name": "again.png"}, content=file.getvalue()).json()
    asked = {"model": MODEL, "layer": 5, "picture": dropped["id"], "token": 20, "count": 3}
    first = client.get("/api/neighbours", params=asked).json()["items"][0]
    assert (first["model"], first["picture"], first["token"]) == (MODEL, picture, 20) and first["similarity"] > 0.99


def test_activations_of_units_and_of_their_parts(client, explored, subject, finding):
    with vt.capture(subject, "blocks.7.mlp.hidden") as seen:
        subject(explored.pictures.image(4))
    x = seen["blocks.7.mlp.hidden"][0, 1:].detach().numpy()
    at = int(finding.counts.argmax())
    for part in (None, 0, 1):
        asked = {"model": MODEL, "picture": 4, "unit": unit_id(finding, part)}
        found = client.get("/api/activations", params=asked).json()
        number = int(finding.starts[at]) + (part or 0)
        whole = x @ finding.weight[at] + finding.bias[at]
        expected = whole if part is None else finding.subunit_activations(x, [number])[:, 0]
        assert found["value"] == pytest.approx(float(expected.max()), abs=1e-4)
        heat = np.clip(expected / max(expected.max(), 1e-9), 0, 1) * 255
        np.testing.assert_allclose(numbers(found["heat"]), heat, atol=1.5)


def test_steering_moves_the_classes_as_the_library_does(client, explored, subject, finding):
    numbers_of = finding.subunits(int(finding.units[int(finding.counts.argmax())]))
    wanted = [{"id": unit_id(finding, k), "factor": -30.0} for k in range(min(3, len(numbers_of)))]
    asked = {"model": MODEL, "picture": 0, "block": 7, "subunits": wanted, "prefix": True}
    found = client.post("/api/steer", json=asked).json()
    classes, x = explored.classes(MODEL), subject.inputs(explored.pictures.image(0))
    assert found["classes"] == list(classes.names)
    before = subject(x).detach().numpy()
    chosen = numbers_of[: len(wanted)].tolist()
    with vt.steer(subject, finding, amplify=chosen, alpha=-30.0, prefix=True):
        after = subject(x).detach().numpy()
    np.testing.assert_allclose(found["before"], classes.probabilities(before)[0], atol=1e-4)
    np.testing.assert_allclose(found["after"], classes.probabilities(after)[0], atol=1e-4)
    assert found["changed"] == pytest.approx(np.linalg.norm(after - before) / np.linalg.norm(before), rel=1e-3)
    assert found["changed"] > 0 and len(numbers(found["heat_after"])) == 64
    assert client.get("/api/state").json()["models"][0]["loaded"]


def test_a_factor_of_one_changes_nothing_and_the_map_is_that_of_the_class_token(client, explored, subject, finding):
    wanted = [{"id": unit_id(finding, 0), "factor": 1}]
    asked = {"model": MODEL, "picture": 3, "block": 7, "subunits": wanted, "prefix": True}
    found = client.post("/api/steer", json=asked).json()
    assert found["changed"] == 0 and found["before"] == found["after"]
    np.testing.assert_allclose(numbers(found["heat_before"]), numbers(found["heat_after"]), atol=1)
    maps = vt.token_maps(subject, explored.pictures.image(3), -1, ["class"], progress=False).maps[0, 0]
    np.testing.assert_allclose(numbers(found["heat_before"]), 255 * maps.reshape(-1) / maps.max(), atol=2)


def test_dropped_pictures_live_beside_those_of_the_run(client):
    dropped = client.post("/api/pictures", params={"name": "<img src=x>.png"}, content=png())
    assert dropped.status_code == 201
    about = dropped.json()
    assert (about["width"], about["height"], about["name"]) == (50, 40, "<img src=x>.png")
    assert client.post("/api/pictures", content=png()).json()["id"] == about["id"]  # the same picture, once
    assert Image.open(io.BytesIO(client.get(f"/api/picture/{about['id']}").content)).size == (50, 40)
    assert about["id"] in [upload["id"] for upload in client.get("/api/state").json()["uploads"]]
    assert client.get("/api/maps", params={"model": MODEL, "picture": about["id"], "block": 2}).status_code == 200


def test_notes_are_written_found_and_taken_back(client, finding):
    id = unit_id(finding, 1)
    undo = client.post("/api/notes", json={"id": id, "name": "Striped & <b>bold</b>", "comment": "zebra?"}).json()[
        "undo"
    ]
    (note,) = client.get("/api/notes").json()["notes"]
    assert (note["id"], note["name"], note["comment"]) == (id, "Striped & <b>bold</b>", "zebra?")
    assert [hit["id"] for hit in client.get("/api/search", params={"q": "striped BOLD"}).json()["items"]] == [id]
    assert client.get("/api/search", params={"q": "zebra"}).json()["items"][0]["kind"] == "comment"
    client.post("/api/notes", json={"id": id, "comment": None})  # what is left out stays
    assert client.get("/api/notes").json()["notes"][0]["name"] == "Striped & <b>bold</b>"
    cleared = client.request("DELETE", "/api/notes", params={"id": id}).json()["undo"]
    assert client.get("/api/notes").json()["notes"] == []
    client.post("/api/notes/undo", json={"undo": cleared})
    assert client.get("/api/notes").json()["notes"][0]["comment"] is None
    client.post("/api/notes/undo", json={"undo": undo})
    assert client.get("/api/notes").json()["notes"] == []


def test_words_of_labels_and_pictures_are_found(client, explored, finding):
    names = [name for name in explored.labels(MODEL, 7, subunits=True).names if name]
    items = client.get("/api/search", params={"q": names[0][:4]}).json()["items"]
    assert names[0] in [hit["text"] for hit in items]
    assert client.get("/api/search", params={"q": "  "}).json()["items"] == []
    assert client.get("/api/search", params={"q": "no such word anywhere"}).json()["items"] == []


def test_the_cloud_is_a_head_and_arrays(client, explored):
    data = client.get("/api/cloud").content
    (length,) = struct.unpack("<I", data[:4])
    head = json.loads(data[4 : 4 + length])
    arrays = {}
    for about in head["arrays"]:
        start = 4 + length + about["offset"]
        assert start % 8 == 0
        arrays[about["name"]] = np.frombuffer(data[start : start + about["bytes"]], about["dtype"])
    assert head["count"] == len(explored.places) == len(arrays["x"]) == len(arrays["colour"]) // 3
    assert set(np.unique(arrays["picture"])) == set(explored.pictures.close)


def test_long_work_reports_and_keeps_what_it_made(client):
    job = client.post("/api/jobs", json={"kind": "maps", "model": MODEL, "pictures": [5, 6], "blocks": [0, 1]})
    assert job.status_code == 202
    id = job.json()["job"]
    with client.stream("GET", f"/api/jobs/{id}/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [json.loads(line.removeprefix("data: ")) for line in answer.iter_lines() if line]
    assert events[-1]["state"] == "done" and (events[-1]["done"], events[-1]["total"]) == (4, 4)
    assert client.get(f"/api/jobs/{id}").json()["state"] == "done"
    assert ("maps", MODEL, "6", 1, "sum") in client.room.live.cache


def test_long_work_can_be_stopped(client):
    asked = {"kind": "maps", "model": "scenes-mae", "pictures": list(range(16)), "blocks": list(range(8))}
    id = client.post("/api/jobs", json=asked).json()["job"]
    client.delete(f"/api/jobs/{id}")
    end = time.monotonic() + 60
    while (now := client.get(f"/api/jobs/{id}").json())["state"] == "running" and time.monotonic() < end:
        time.sleep(0.02)
    assert now["state"] == "cancelled" and now["done"] < 128


def test_what_is_not_there_is_said_with_what_is(client, finding):
    maps = {"model": MODEL, "picture": 0, "block": 0}
    assert "scenes-text, scenes-mae" in said(client.get("/api/maps", params=maps | {"model": "x"}), 404)["accepted"]
    assert "0 to 15" in said(client.get("/api/maps", params=maps | {"picture": 16}), 404)["accepted"]
    assert "drop it in again" in said(client.get("/api/maps", params=maps | {"picture": "u" + "0" * 16}), 404)["remedy"]
    assert said(client.get("/api/maps", params=maps | {"block": 8}), 404)["accepted"] == "-8 to 7"
    assert "picture" in said(client.get("/api/maps", params=maps | {"picture": "../../run.json"}), 422)["what"]
    beyond = unit_id(finding) + ".999"
    assert "no such sub-unit" in said(client.post("/api/notes", json={"id": beyond, "name": "x"}), 404)["what"]
    assert "not examined" in said(client.post("/api/notes", json={"id": f"{MODEL}/blocks.7.mlp.out/9999"}), 404)["what"]
    assert "no such change" in said(client.post("/api/notes/undo", json={"undo": "0"}), 400)["what"]
    assert "no such job" in said(client.get("/api/jobs/none"), 404)["what"]
    steer = {"model": MODEL, "picture": 0, "block": 7, "subunits": [{"id": unit_id(finding), "factor": 1e9}]}
    assert "factor" in said(client.post("/api/steer", json=steer), 422)["what"]
    other = {"model": "scenes-mae", "picture": 0, "unit": unit_id(finding)}
    assert "another model" in said(client.get("/api/activations", params=other), 400)["what"]
    outside = next(k for k in range(16) if k not in client.room.examination.pictures.close)
    near = {"model": MODEL, "layer": 5, "picture": outside, "token": 3}
    assert "not in the universal space" in said(client.get("/api/neighbours", params=near), 404)["what"]
    assert "prefix token" in said(client.get("/api/neighbours", params=near | {"token": 0}), 404)["what"]
    assert said(client.get("/nothing.html"), 404)["remedy"] == "the start page is at /"
    assert said(client.put("/api/notes"), 405)
