"""A chat endpoint on this machine that can see colours, and misbehaves when told to."""

from __future__ import annotations

import base64
import io
import json
import threading
import time
from collections import Counter, deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
from PIL import Image


class JudgeServer(ThreadingHTTPServer):
    """`script` says what to do with the next requests: a status, (status, headers), or one of the words below; then
    it answers. `asked` keeps the bodies, `keys` the Authorization headers, `busiest` how many were served at once."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: deque = deque()
        self.always: object = "answer"
        self.dead_models: set[str] = set()
        self.asked: list[dict] = []
        self.keys: list[str | None] = []
        self.released = threading.Event()
        self.lock = threading.Lock()
        self.linger = 0.0
        self.now = self.busiest = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def per_question(self) -> Counter:
        return Counter(json.dumps(body, sort_keys=True) for body in self.asked)

    def handle_error(self, request, client_address) -> None:
        """A client that has gone is no news."""


class Handler(BaseHTTPRequestHandler):
    server: JudgeServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send(200, b"{}")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.asked.append(body)
            server.keys.append(self.headers["Authorization"])
            server.now += 1
            server.busiest = max(server.busiest, server.now)
            act = server.script.popleft() if server.script else server.always
            act = 404 if body["model"] in server.dead_models else act
        time.sleep(server.linger)
        with server.lock:  # before the answer: whoever has it may ask again at once
            server.now -= 1
        self.perform(act, body)

    def perform(self, act, body):
        if isinstance(act, int | tuple):
            status, headers = act if isinstance(act, tuple) else (act, {})
            self.send(status, f"trouble, {self.headers['Authorization']}".encode(), headers)
        elif act == "answer":
            self.say(json.dumps(verdict(body)))
        elif act == "slow":
            self.server.released.wait(20)
        elif act == "drip":
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            while not self.server.released.wait(0.05):
                self.wfile.write(b" ")
        elif act == "reset":
            self.connection.close()
        elif act == "truncated":
            whole = completion(json.dumps(verdict(body)))
            self.send(200, whole[: len(whole) // 2], length=len(whole))
            self.connection.close()
        elif act == "schema":
            self.send(200, b'{"object": "list", "data": []}')
        elif act == "not json":
            self.send(200, b"<html>gateway</html>")
        elif isinstance(act, dict):
            self.send(200, json.dumps({"choices": [{"message": act}]}).encode())
        else:
            self.say(act)

    def say(self, text):
        self.send(200, completion(text))

    def send(self, status, body, headers=None, length=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length or len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


def completion(text: str) -> bytes:
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()


def grids_of(body: dict) -> list[np.ndarray]:
    """The pictures in a request, decoded."""
    urls = [part["image_url"]["url"] for part in body["messages"][0]["content"] if part["type"] == "image_url"]
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))) for url in urls]


def verdict(body: dict) -> dict:
    """The grid whose colours differ less, white gaps left out."""
    spread = [float(grid[(grid < 250).any(2)].std(0).sum()) for grid in grids_of(body)]
    return {
        "grid_a": f"spread {spread[0]:.1f}",
        "grid_b": f"spread {spread[1]:.1f}",
        "answer": "AB"[int(np.argmin(spread))],
    }
