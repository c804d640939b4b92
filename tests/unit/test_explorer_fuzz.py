"""Anything may be asked and any file of a run may be damaged: no traceback, no hang, nothing lost."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import schemathesis
from explorer_app import client_of
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from vitreous.errors import VitreousError
from vitreous.examination import open_run
from vitreous.explorer.app import BODIES
from vitreous.explorer.routes_audit import audit
from vitreous.explorer.routes_look import look
from vitreous.explorer.routes_notes import notes
from vitreous.explorer.routes_work import work
from vitreous.explorer.safety import Rules
from vitreous.notes import Journal

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
UNIT = "scenes-text/blocks.7.mlp.out"


@pytest.fixture(scope="module")
def fuzzed(explored, tmp_path_factory):
    run = shutil.copytree(explored.folder, tmp_path_factory.mktemp("fuzzed") / "run")
    rules = Rules(frozenset({"testserver"}), bodies=BODIES)
    with client_of(run, tmp_path_factory.mktemp("site") / "site", rules) as client:
        yield client


@pytest.fixture(scope="module")
def described(fuzzed):
    return schemathesis.openapi.from_asgi("/api/openapi.json", fuzzed.app)


OPERATIONS = [
    (m, f"/api{r.path}") for router in (look, notes, work, audit) for r in router.routes for m in sorted(r.methods)
]


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_any_request_is_answered_as_described(described, method, path, mode):
    operation = described[path][method]

    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True)
    @given(operation.as_strategy(generation_mode=mode))
    def answered(case):
        case.call_and_validate(checks=CHECKS)

    try:
        answered()
    except Unsatisfiable:
        assert not operation.query and not operation.body and mode.is_negative  # nothing that could be wrong


def asked(explored):
    """One request for every kind of part of a run."""
    close = explored.pictures.close[0]
    unit = f"{UNIT}/{int(explored.disentanglement('scenes-text', 7).units[0])}"
    steering = {"model": "scenes-text", "picture": 0, "block": 7, "subunits": [{"id": unit, "factor": 2}]}
    return [
        ("GET", "/api/state", None),
        ("GET", f"/api/picture/{close}", None),
        ("GET", f"/api/neighbours?model=scenes-text&layer=5&picture={close}&token=3", None),
        ("GET", f"/api/activations?model=scenes-text&picture=0&unit={unit}", None),
        ("POST", "/api/steer", steering),
        ("GET", "/api/search?q=red", None),
        ("GET", "/api/cloud", None),
        ("GET", "/api/notes", None),
    ]


def foreign_npz(path):
    with path.open("wb") as file:
        np.savez(file, eigenvectors=np.array([{"no": "pickles"}], object), about=np.zeros(3))


DAMAGE = {
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "short": lambda path: path.write_bytes(path.read_bytes()[:-7]),
    "flipped": lambda path: path.write_bytes(flipped(path.read_bytes())),
    "foreign": lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"x" * 100),
    "huge head": lambda path: path.write_bytes((2**62).to_bytes(8, "little") + b"{" * 50),
    "deep": lambda path: path.write_bytes(b"[" * 100_000),
    "other json": lambda path: path.write_bytes(b'{"format": "vitreous", "version": null, "about": [1e999]}'),
    "pickled": foreign_npz,
    "gone": lambda path: path.unlink(),
}


def flipped(data):
    """Some bytes all over the file, turned around."""
    rng = np.random.default_rng(len(data))
    changed = np.frombuffer(data, np.uint8).copy()
    changed[rng.integers(0, len(changed), 1 + len(changed) // 50)] ^= 0xFF
    return changed.tobytes()


PARTS = (
    "align/eigenvectors.npy",
    "align/spectral.json",
    "align/placer.npz",
    "align/map.npz",
    "disentangle/scenes-text/7/disentanglement.json",
    "disentangle/scenes-text/7/disentanglement.safetensors",
    "labels/scenes-text/7/subunits.npz",
    "classes/scenes-text.npz",
    "notes.jsonl",
)


@pytest.mark.parametrize("part", [*PARTS, "pictures"])
def test_a_damaged_part_is_said_by_name_and_harms_no_other(part, explored, own_run, tmp_path):
    """Every kind of damage to one part, with all requests: answers, or refusals that name what is wrong."""
    unit = f"{UNIT}/{int(explored.disentanglement('scenes-text', 7).units[0])}"
    Journal(own_run).write(unit, name="before the damage")
    close = explored.pictures.close[0]
    path = own_run / part if part != "pictures" else explored.pictures.path(close)
    path = own_run / path.relative_to(explored.folder) if part == "pictures" else path
    whole = path.read_bytes()
    for number, (kind, harm) in enumerate(DAMAGE.items()):
        path.write_bytes(whole)
        harm(path)
        with client_of(own_run, tmp_path / f"site{number}") as client:
            for method, address, body in asked(explored):
                answer = client.request(method, address, json=body)
                assert answer.status_code != 500, (kind, address, answer.text)
                if answer.status_code != 200:
                    assert answer.json()["error"]["what"], (kind, address)
            maps = client.get("/api/maps", params={"model": "scenes-mae", "picture": 1, "block": 0})
            assert maps.status_code == 200  # what does not need the part works
    path.write_bytes(whole)
    assert Journal(own_run).read().current[unit].name == "before the damage"


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_run_is_refused_and_nothing_is_written(kind, own_run):
    path = own_run / "examination.json"
    DAMAGE[kind](path)
    before = {p: p.stat().st_mtime_ns for p in own_run.rglob("*")}
    with pytest.raises(VitreousError):
        open_run(own_run)
    assert {p: p.stat().st_mtime_ns for p in own_run.rglob("*")} == before


def test_names_that_lead_out_of_the_run_are_refused(own_run):
    path = own_run / "examination.json"
    whole = json.loads(path.read_text())
    for change in ("../../etc/passwd", "/etc/passwd", "..", "a/b"):
        for where in (("models", 0, "name"), ("images", "files", 0)):
            about = json.loads(json.dumps(whole))
            inside = about
            for step in where[:-1]:
                inside = inside[step]
            inside[where[-1]] = change
            path.write_text(json.dumps(about))
            with pytest.raises(VitreousError):
                open_run(own_run)
