"""The command as people use it: a real server on this machine, several who ask at once, ends that lose nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from vitreous.notes import read_notes

COMMAND = [sys.executable, "-c", "from vitreous.cli import app; app()", "explore"]


@contextmanager
def exploring(run, *options):
    """A running explorer and the link it printed."""
    command = [*COMMAND, str(run), "--port", "0", "--device", "cpu", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stdout:
                if found := re.match(r"explore: (http://\S+)", line):
                    break
            else:
                pytest.fail(process.stderr.read())
            process.link = found[1]
            yield process
        finally:
            process.kill()


def get(link, path="", **headers):
    with urllib.request.urlopen(urllib.request.Request(link + path, headers=headers), timeout=120) as answer:
        return answer.read()


def post(link, path, value):
    request = urllib.request.Request(link + path, json.dumps(value).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read())


def test_a_run_is_served_to_several_and_ends_at_the_first_interrupt(own_run, explored):
    """Ends cleanly although somebody listens to a job: no traceback, and not as an error."""
    id = f"scenes-text/blocks.7.mlp.out/{int(explored.disentanglement('scenes-text', 7).units[0])}"
    with exploring(own_run) as server:
        link = server.link
        assert b"app/app.js" in get(link) and b"vitreous.put" in get(link, "data/index.js")
        assert (
            get(link, "data/live.js").decode().strip()
            == 'vitreous.put("live", {"api": "/api", "token": null, "audit": false});'
        )
        paths = [f"api/maps?model={m}&picture={k}&block=1" for m in ("scenes-text", "scenes-mae") for k in (0, 1, 0)]
        with ThreadPoolExecutor(6) as tabs:
            found = list(tabs.map(lambda path: json.loads(get(link, path)), paths))
        assert found[0]["data"] == found[2]["data"] != found[1]["data"] != found[4]["data"]
        with pytest.raises(urllib.error.HTTPError, match="421"):
            get(link, Host="evil.example")
        post(link, "api/notes", {"id": id, "name": "kept"})
        asked = {"kind": "maps", "model": "scenes-text", "pictures": list(range(16)), "blocks": list(range(8))}
        job = post(link, "api/jobs", asked)["job"]
        with urllib.request.urlopen(f"{link}api/jobs/{job}/events", timeout=60) as events:
            assert events.readline().startswith(b"data: ")
            server.send_signal(signal.SIGINT)
            assert server.wait(30) == 0
        assert "Traceback" not in server.stderr.read()
    assert read_notes(own_run).current[id].name == "kept"


@pytest.mark.skipif(os.name == "nt", reason="kill -9")
def test_notes_survive_a_kill_and_a_new_start(own_run, explored):
    units = explored.disentanglement("scenes-text", 7).units.tolist()
    ids = [f"scenes-text/blocks.7.mlp.out/{unit}" for unit in units]
    with exploring(own_run) as server:
        for k, id in enumerate(ids):
            post(server.link, "api/notes", {"id": id, "name": f"name {k}"})
        server.send_signal(signal.SIGKILL)
        server.wait(10)
    with (own_run / "notes.jsonl").open("ab") as file:
        file.write(b'{"number": "torn')
    with exploring(own_run) as server:
        found = json.loads(get(server.link, "api/notes"))
        assert [note["name"] for note in found["notes"]] == [f"name {k}" for k in range(len(ids))]
        assert found["damaged"] == 1
        undo = post(server.link, "api/notes", {"id": ids[0], "name": "again"})["undo"]
        post(server.link, "api/notes/undo", {"undo": undo})
    assert read_notes(own_run).current[ids[0]].name == "name 0"


def refused(*arguments):
    done = subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    return done.stderr


def test_what_cannot_be_explored_is_said(own_run, tmp_path):
    assert "no examination here" in refused(tmp_path / "nothing") and "vitreous examine" in refused(tmp_path)
    with exploring(own_run) as server:
        port = server.link.rsplit(":", 1)[1].strip("/")
        assert "is in use" in (said := refused(own_run, "--port", port)) and "--port 0" in said
    assert "no address of this machine" in refused(own_run, "--host", "192.0.2.1")
    (own_run / "examination.json").write_text("{")
    assert "examination.json" in refused(own_run)


def test_weights_that_are_gone_take_nothing_else_down(own_run):
    about = json.loads((own_run / "examination.json").read_text())
    about["models"][0]["weights"] = "gone.safetensors"
    about["models"][1]["fingerprint"] = "0" * 64
    (own_run / "examination.json").write_text(json.dumps(about))
    with exploring(own_run) as server:
        assert get(server.link)
        for model, words in (("scenes-text", "weights"), ("scenes-mae", "other weights")):
            with pytest.raises(urllib.error.HTTPError) as error:
                get(server.link, f"api/maps?model={model}&picture=0")
            with error.value:
                told = json.loads(error.value.read())["error"]
            assert error.value.code in (400, 409) and words in told["what"], told
