"""An S3 server on loopback in a process of its own, and a door in front of it that can be made to fail."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class ObjectServer:
    """moto's server, with one bucket."""

    def __init__(self) -> None:
        self.port = free_port()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
        for _ in range(200):
            try:
                asked = HTTPConnection("127.0.0.1", self.port, timeout=5)
                asked.request("PUT", "/bucket", headers={"Host": "s3.amazonaws.com", "Content-Length": "0"})
                if asked.getresponse().status < 300:
                    return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("moto's server did not start")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class Door:
    """Hands requests on to the server. `fails(method, path, number)` says which are answered with an error instead:
    "500", "cut" (the connection closes), or "half" (an answer that stops half-way)."""

    def __init__(self, port: int) -> None:
        self.fails: Callable[[str, str, int], str | None] = lambda *_: None
        self.count = 0
        door = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:
                    self.close_connection = True

            def answer(self) -> None:
                body = self._body()
                door.count += 1
                fault = door.fails(self.command, self.path, door.count)
                if fault == "cut":
                    self.close_connection = True
                    self.connection.close()
                    return
                if fault == "500":
                    self._give(503, [("Content-Type", "application/xml")], b"<Error><Code>SlowDown</Code></Error>")
                    return
                inner = HTTPConnection("127.0.0.1", port, timeout=30)
                headers = {k: v for k, v in self.headers.items() if k.lower() not in ("expect", "transfer-encoding")}
                inner.request(self.command, self.path, body, {**headers, "Content-Length": str(len(body))})
                found = inner.getresponse()
                data = found.read()
                self._give(found.status, found.getheaders(), data, half=fault == "half")

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer

            def _body(self) -> bytes:
                if self.headers.get("Expect", "").lower() == "100-continue":
                    self.send_response_only(100)
                    self.end_headers()
                if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
                    parts = []
                    while size := int(self.rfile.readline().split(b";")[0], 16):
                        parts.append(self.rfile.read(size))
                        self.rfile.readline()
                    self.rfile.readline()
                    return b"".join(parts)
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))

            def _give(self, status: int, headers: list, data: bytes, half: bool = False) -> None:
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                length = dict((k.lower(), v) for k, v in headers).get("content-length", "0")
                self.send_header("Content-Length", length if self.command == "HEAD" else str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data[: len(data) // 2] if half else data)
                if half:
                    self.close_connection = True
                    self.connection.close()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
