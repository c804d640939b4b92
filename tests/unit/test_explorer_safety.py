"""Safe by default: names, tokens, origins, sizes, paths, pictures that are bombs; and headers on every answer."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from explorer_app import HOST, client_of, small_site
from PIL import Image

from vitreous.errors import SettingsError
from vitreous.explorer.app import BODIES
from vitreous.explorer.pages import addresses, write_pages
from vitreous.explorer.safety import HEADERS, LARGEST_BODY, Rules
from vitreous.explorer.server import is_loopback, open_door


@pytest.fixture(scope="module")
def client(explored, tmp_path_factory):
    with client_of(explored.folder, tmp_path_factory.mktemp("site") / "site") as client:
        yield client


@pytest.mark.parametrize("host", ["localhost", "localhost:9", "127.0.0.1:8765", "[::1]:8765", "LOCALHOST"])
def test_our_own_names_are_answered(client, host):
    assert client.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "", "[", "@"],
)
def test_no_other_name_leads_here(client, host):
    for path in ("/", "/api/state", "/data/live.js"):
        answer = client.get(path, headers={"host": host})
        assert answer.status_code == 421 and "this name" in answer.json()["error"]["what"]


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "method": "POST"},
    ],
)
def test_pages_of_other_sites_may_not_ask(client, headers):
    method = headers.pop("method", None)
    for verb, path in ((method or "GET", "/api/state"), ("POST", "/api/notes"), ("DELETE", "/api/notes")):
        answer = client.request(verb, path, headers=headers)
        assert answer.status_code == 403 and "other sites" in answer.json()["error"]["what"]


def test_our_pages_and_links_from_elsewhere_work(client):
    same = {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}
    assert client.get("/api/state", headers=same).status_code == 200
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200


def test_every_answer_has_the_headers(client):
    for path in ("/api/state", "/api/maps", "/nothing", "/data/live.js", "/api/picture/0", "/data/index.js"):
        answer = client.get(path)
        assert HEADERS.items() <= dict(answer.headers).items()
        assert "server" not in answer.headers
    refused = client.get("/", headers={"host": "x"})
    assert HEADERS.items() <= dict(refused.headers).items()
    assert "script-src 'self';" in HEADERS["content-security-policy"]


def test_the_page_runs_no_script_but_ours(client):
    headers = dict(client.get("/").headers)
    policy = headers.pop("content-security-policy")
    assert dict(part.split(" ", 1) for part in policy.split("; "))["script-src"] == "'self' 'unsafe-eval'"
    assert "frame-ancestors 'none'" in policy and "default-src 'self'" in policy
    rest = {name: value for name, value in HEADERS.items() if name != "content-security-policy"}
    assert rest.items() <= headers.items()


def test_beyond_this_machine_nothing_is_answered_without_the_token(explored, tmp_path):
    rules = Rules.open_to(["mine"], 8765, BODIES)
    with client_of(explored.folder, tmp_path / "site", rules) as client:
        for path in (
            "/",
            "/api/state",
            "/data/index.js",
            "/api/openapi.json",
            "/api/picture/0",
            "/?token=x",
            "/?token=",
            "/?" + "a=1&" * 101,
        ):
            answer = client.get(path)
            assert answer.status_code == 403 and "token" in answer.json()["error"]["what"], path
            assert rules.token not in answer.text
        assert client.get("/", headers={"cookie": f"{rules.cookie}={'x' * 32}"}).status_code == 403
        entered = client.get("/", params={"token": rules.token})
        cookie = entered.headers["set-cookie"]
        assert entered.status_code == 200 and "HttpOnly" in cookie and "SameSite=Strict" in cookie
        assert client.get("/api/state").status_code == 200  # by the cookie
        assert "set-cookie" not in client.get("/api/state").headers
        for host in ("10.1.2.3:8765", "mine", "[fe80::1]"):
            assert client.get("/", headers={"host": host}).status_code == 200
        assert client.get("/", headers={"host": "evil.example"}).status_code == 421


def test_tokens_differ_and_are_long():
    tokens = {Rules.open_to([], 1, {}).token for _ in range(20)}
    assert len(tokens) == 20 and min(map(len, tokens)) >= 32


def test_loopback_is_the_default_and_needs_no_token():
    door = open_door("127.0.0.1", 0, {})
    try:
        assert door.rules.token is None and door.link.startswith("http://127.0.0.1:") and "token" not in door.link
    finally:
        door.listening.close()
    assert is_loopback("localhost") and is_loopback("::1") and is_loopback("127.9.9.9")
    assert not any(map(is_loopback, ("0.0.0.0", "::", "example.org", "10.0.0.1")))


def test_another_address_needs_a_token_in_the_link():
    door = open_door("0.0.0.0", 0, {})
    try:
        assert door.rules.token and door.link.endswith(f"/?token={door.rules.token}")
    finally:
        door.listening.close()


def test_addresses_that_cannot_be_had_are_said():
    door = open_door("127.0.0.1", 0, {})
    port = door.listening.getsockname()[1]
    try:
        with pytest.raises(SettingsError, match=rf"(?s)port {port} is in use.*--port 0"):
            open_door("127.0.0.1", port, {})
    finally:
        door.listening.close()
    with pytest.raises(SettingsError, match="no address of this machine"):
        open_door("192.0.2.1", 0, {})
    with pytest.raises(SettingsError, match="no such port"):
        open_door("127.0.0.1", 70000, {})


@pytest.mark.parametrize(
    "path",
    [
        "/../run.json",
        "/..%2f..%2frun.json",
        "/%2e%2e/run.json",
        "/data/../../run.json",
        "//etc/passwd",
        "/etc/passwd",
        "/data/%00index.js",
        "/.explorer/made-from",
        "/data",
        "/C:%5cwindows",
        "/secret.txt",
        "/api/picture/..%2f..%2frun.json",
        "/api/picture/%2fetc%2fpasswd",
        "/api/jobs/..%2f..",
    ],
)
def test_no_path_of_a_request_reaches_the_disk(client, path):
    answer = client.get(path)
    assert answer.status_code in (404, 422) and "error" in answer.json()


def test_only_plain_files_of_the_site_are_served(tmp_path):
    site = small_site(tmp_path / "site")
    (tmp_path / "secret.txt").write_text("secret")
    (site / "secret.txt").symlink_to(tmp_path / "secret.txt")
    (site / "linked").symlink_to(tmp_path, target_is_directory=True)
    (site / ".hidden").mkdir()
    (site / ".hidden" / "x.js").write_text("")
    assert sorted(addresses(site)) == ["/", "/data/index.js", "/index.html"]


def test_large_requests_are_refused_whatever_they_say_of_themselves(client):
    large = b"x" * (LARGEST_BODY + 1)
    answer = client.post("/api/notes", content=large)
    assert answer.status_code == 413 and "too large" in answer.json()["error"]["what"]
    assert client.post("/api/notes", content=(large[:1000] for _ in range(400))).status_code == 413  # no length given
    assert client.post("/api/pictures", content=b"x" * (BODIES["/api/pictures"] + 1)).status_code == 413


def png_that_says(width, height, rows=b""):
    """The head of a PNG of this size, with almost nothing behind it."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def bomb():
    """A small file of 100 million pixels."""
    file = io.BytesIO()
    Image.new("1", (10_000, 10_000)).save(file, "PNG")
    assert len(file.getvalue()) < 100_000
    return file.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GIF89a",
        b"not a picture",
        b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n",
        png_that_says(2**31 - 1, 2**31 - 1),
        png_that_says(40_001, 1000),
        png_that_says(100, 100, b"\0" * 10),
        bomb(),
    ],
    ids=["empty", "head", "text", "svg", "postscript", "huge", "over", "short", "bomb"],
)
def test_what_is_no_picture_or_too_large_a_one_is_refused(client, data):
    answer = client.post("/api/pictures", content=data)
    assert answer.status_code == 415 and answer.json()["error"]["what"]
    assert "on_error" not in answer.text  # what a folder of pictures is opened with helps nobody in a browser


def test_long_thin_and_nameless_pictures(client):
    def dropped(size, name=""):
        file = io.BytesIO()
        Image.fromarray(np.zeros((size[1], size[0], 3), np.uint8)).save(file, "PNG")
        return client.post("/api/pictures", params={"name": name}, content=file.getvalue())

    assert dropped((3000, 10)).status_code == 415
    kept = dropped((2000, 1000), "a\x00b\n" + "x" * 300).json()
    assert (
        (kept["width"], kept["height"]) == (1024, 512) and kept["name"].startswith("abx") and len(kept["name"]) <= 120
    )
    assert dropped((1, 1)).status_code == 201


def test_pages_are_written_once_and_again_when_the_run_changes(own_run):
    from vitreous.examination import open_run

    examination, written = open_run(own_run), []

    def write(_, folder):
        written.append(folder)
        (folder / "index.html").write_text(f"{len(written)}")

    site = write_pages(examination, write)
    assert write_pages(examination, write) == site and len(written) == 1
    (own_run / "notes.jsonl").write_text("{}\n")
    write_pages(examination, write)
    assert len(written) == 1  # notes are asked for by the pages
    (own_run / "evidence" / "more.json").write_text("{}")
    assert (write_pages(examination, write) / "index.html").read_text() == "2"


def test_pages_of_a_run_that_cannot_be_written_to(own_run):
    from vitreous.examination import open_run

    (own_run / ".explorer").write_text("in the way")
    site = write_pages(open_run(own_run), lambda _, folder: (folder / "index.html").write_text("x"))
    assert own_run not in site.parents and (site / "index.html").is_file()
