"""The audit in the explorer: the numbers of the library, a model that is never left patched, and what is refused."""

from __future__ import annotations

import base64
import io
import shutil
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from explorer_app import client_of
from PIL import Image
from typer.testing import CliRunner

import vitreous as vt
from vitreous.auditing.folder import AuditAbout, open_audit
from vitreous.cli import app

sys.path.insert(0, str(Path(__file__).parent))
from audited_folder import MODEL, QUICK, write_pictures

SITES = ("blocks.7.attn.out", "blocks.7.mlp.out")


@pytest.fixture(scope="module")
def audited(tmp_path_factory) -> Path:
    made = write_pictures(tmp_path_factory.mktemp("audited"))
    asked = [MODEL, made / "pictures", "--masks", made / "masks", "--groups", made / "groups.csv", *QUICK]
    asked += [word for site in SITES for word in ("--site", site)]
    found = CliRunner().invoke(app, ["audit", *map(str, asked), "--out", str(made / "audit")])
    assert found.exit_code == 0, found.output
    return made / "audit"


@pytest.fixture(scope="module")
def client(explored, audited, tmp_path_factory):
    with client_of(explored.folder, tmp_path_factory.mktemp("site") / "site", audit=audited) as client:
        yield client


@pytest.fixture(scope="module")
def found(client):
    answer = client.get("/api/audit")
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture(scope="module")
def sweep(audited):
    return open_audit(audited, AuditAbout.load(audited).subject("cpu"))


def parts(rows):
    return {"parts": [{"site": row["site"], "id": row["id"]} for row in rows]}


def said(answer, status):
    assert answer.status_code == status, answer.text
    return answer.json()["error"]["what"]


def test_the_audit_is_told(client, found, sweep):
    assert found["basis"] == "outside the object" and found["sites"] == list(SITES) and found["groups"] == "given"
    assert found["alarms"] == len(sweep.alarms) > 0 and "speak" in found["answer"] and found["means"]
    assert [(row["site"], row["id"]) for row in found["rows"]][:5] == [(s, row.id) for s, row in sweep.rows[:5]]
    assert {"suspicion", "p", "corrected", "alarm", "whole", "of_unit", "ablation", "selectivity"} < set(
        found["rows"][0]
    )
    assert any(row["ablation"] is None for row in found["rows"])  # not measured is null
    assert {control["name"] for control in found["controls"]} >= {"alarms with shuffled labels"}
    assert client.get("/api/state").json()["parts"]["audit"] is None
    assert '"audit": true' in client.get("/data/live.js").text


def test_switching_off_is_what_the_library_does(client, found, sweep):
    answer = client.post("/api/audit/switch", json={"parts": found["off"]}).json()
    table = sweep.measured(sweep.patch([(one["site"], one["id"]) for one in found["off"]])).effect
    assert [(r["what"], r["pictures"], r["before"], r["after"]) for r in answer["rows"]] == list(table.rows)
    assert (answer["changed"], answer["mended"], answer["broken"]) == (table.changed, table.mended, table.broken)
    assert len(answer["decisions"]) == table.changed
    for one in answer["decisions"]:
        assert one["before"] != one["after"] and one["name"] == sweep.findings[0].ids[one["picture"]]


def test_a_switch_says_how_far_it_is(client, found, sweep, monkeypatch):
    pictures, told = len(sweep.findings[0].ids), []
    opened = client.room.audit
    count = opened._count
    monkeypatch.setattr(opened, "_count", lambda n: (count(n), told.append(client.get("/api/audit/progress").json())))
    answer = client.post("/api/audit/switch", json=parts(found["rows"][5:7]))
    assert answer.status_code == 200
    passes = told[-1]["total"] // pictures  # one more where decisions before were not known yet
    assert passes in (1, 2) and len(told) == passes * -(-pictures // 16)
    assert [one["done"] for one in told] == sorted(one["done"] for one in told) and told[0]["done"] == 16
    assert told[-1] == {"loaded": True, "done": passes * pictures, "total": passes * pictures}


def test_the_model_is_never_left_patched(client, found):
    bare = client.post("/api/audit/switch", json={"parts": []}).json()
    assert bare["changed"] == 0 and all(row["before"] == row["after"] for row in bare["rows"])
    answers = {}

    def ask(count):
        answers[count] = client.post("/api/audit/switch", json=parts(found["rows"][:count])).json()

    threads = [threading.Thread(target=ask, args=(count,)) for count in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answers[k]["parts"] for k in (1, 2, 3, 4)] == [1, 2, 3, 4]
    assert all(
        [row["before"] for row in one["rows"]] == [row["before"] for row in bare["rows"]] for one in answers.values()
    )
    assert client.room.audit.worker._subject.hooks == 0


def test_a_part_shows_where_it_answers(client, found, sweep):
    row = found["rows"][0]
    answer = client.get("/api/audit/part", params={"site": row["site"], "id": row["id"]}).json()
    assert (answer["rows"], answer["columns"], len(answer["tiles"])) == (8, 8, 6)
    heat = np.frombuffer(base64.b64decode(answer["tiles"][0]["heat"]), np.uint8)
    assert heat.size == 64 and heat.max() > 0
    finding = sweep[row["site"]]
    at = [one.id for one in finding.rows].index(row["id"])
    assert answer["tiles"][0]["picture"] == int(np.argmax(finding.effects[:, at]))
    png = client.get(f"/api/audit/picture/{answer['tiles'][0]['picture']}")
    assert Image.open(io.BytesIO(png.content)).size == (64, 64)


def test_the_patch_is_a_file_that_loads(client, found, sweep, tmp_path):
    answer = client.post("/api/audit/patch", json=parts(found["rows"][:3]))
    assert "patch.safetensors" in answer.headers["content-disposition"]
    (tmp_path / "p.safetensors").write_bytes(answer.content)
    patch = vt.SwitchOff.load(tmp_path / "p.safetensors")
    assert sorted(patch.names) == sorted(row["name"] for row in found["rows"][:3])


def test_what_does_not_exist_is_refused(client, found):
    row = found["rows"][0]
    gone = {"site": row["site"], "id": 9_999_999}
    assert "no part with this id" in said(client.post("/api/audit/switch", json={"parts": [gone]}), 400)
    assert "not audited" in said(client.post("/api/audit/switch", json={"parts": [row_of("x", 1)]}), 400)
    assert "twice" in said(client.post("/api/audit/switch", json=parts([row, row])), 400)
    assert "at least one" in said(client.post("/api/audit/patch", json={"parts": []}), 400)
    assert "no part with this id" in said(client.get("/api/audit/part", params=gone), 400)
    assert "no such picture" in said(client.get("/api/audit/picture/100000"), 404)


def row_of(site, number):
    return {"site": site, "id": number}


def test_without_an_audit_there_is_none(explored, tmp_path):
    with client_of(explored.folder, tmp_path / "site") as client:
        assert "no audit is open" in said(client.get("/api/audit"), 404)
        assert "audit" not in client.get("/api/state").json()["parts"]
        assert '"audit": false' in client.get("/data/live.js").text


def test_an_audit_in_the_run_is_found(explored, audited, tmp_path):
    run = shutil.copytree(explored.folder, tmp_path / "run")
    shutil.copytree(audited, run / "audit")
    with client_of(run, tmp_path / "site") as client:
        assert client.get("/api/audit").json()["alarms"] > 0


def test_damage_is_said(explored, audited, tmp_path):
    harmed = shutil.copytree(audited, tmp_path / "harmed")
    file = harmed / SITES[0] / "audit.npz"
    file.write_bytes(file.read_bytes()[:500])
    with client_of(explored.folder, tmp_path / "site", audit=harmed) as client:
        assert "audit cannot be read" in client.get("/api/state").json()["parts"]["audit"]
        assert "audit cannot be read" in said(client.get("/api/audit"), 409)
        assert said(client.post("/api/audit/switch", json={"parts": []}), 409)
    with client_of(explored.folder, tmp_path / "site2", audit=tmp_path / "nowhere") as client:
        assert "no audit here" in said(client.get("/api/audit"), 409)


def test_a_model_with_other_weights_is_refused(explored, audited, tmp_path):
    other = shutil.copytree(audited, tmp_path / "other")
    text = (other / "audit.json").read_text()
    (other / "audit.json").write_text(text.replace(MODEL, "bundled:scenes-mae"))
    with client_of(explored.folder, tmp_path / "site", audit=other) as client:
        rows = client.get("/api/audit").json()["rows"]
        answer = client.post("/api/audit/switch", json=parts(rows[:1]))
        assert "not those that were audited" in said(answer, 409)
    (other / "audit.json").write_text(text.replace(MODEL, "bundled:nothing"))
    with client_of(explored.folder, tmp_path / "site2", audit=other) as client:
        assert client.post("/api/audit/switch", json={"parts": []}).status_code in (400, 409)
