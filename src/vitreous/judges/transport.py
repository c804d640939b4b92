"""One request to a server that may be slow, busy, broken or gone: an answer in time, or the reason why not."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request, build_opener

LARGEST = 8 << 20  # bytes of an answer
PIECE = 1 << 16


class Response(NamedTuple):
    """`after` is how many seconds the server asks to wait, None if it does not say."""

    status: int
    body: bytes
    after: float | None


class NoResponse(Exception):  # noqa: N818 - it is what happened
    """Nothing usable came back; the text says why."""


class _Stay(HTTPRedirectHandler):
    """A redirect would take the key to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


def post(url: str, body: bytes, headers: Mapping[str, str], timeout: float) -> Response:
    """`timeout` is for the whole exchange, also if the server sends a byte now and then."""
    ends = time.monotonic() + timeout
    try:
        with _open(_opener(url), Request(url, body, dict(headers), method="POST"), timeout) as answer:
            return Response(answer.status, _read(answer, ends), _after(answer.headers.get("Retry-After")))
    except (OSError, HTTPException) as error:  # also time-outs, resets, and names that do not resolve
        raise NoResponse(_reason(error, timeout)) from None


def _open(opener: OpenerDirector, request: Request, timeout: float) -> Any:
    try:
        return opener.open(request, timeout=timeout)
    except HTTPError as error:
        return error  # an answer like any other, with its status


def _opener(url: str) -> OpenerDirector:
    """Proxies as the environment says, but none to this very machine."""
    local = urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
    return build_opener(ProxyHandler({} if local else None), _Stay)


def _read(answer: Any, ends: float) -> bytes:
    parts, size = [], 0
    while part := answer.read1(PIECE):
        parts.append(part)
        size += len(part)
        if size > LARGEST:
            raise HTTPException(f"an answer of more than {LARGEST >> 20} MiB")
        if time.monotonic() > ends:
            raise TimeoutError
    return b"".join(parts)


def _reason(error: Exception, timeout: float) -> str:
    inner = error.__dict__.get("reason", error)  # what URLError wraps
    if isinstance(inner, TimeoutError):
        return f"no answer within {timeout:g} seconds"
    return f"{type(inner).__name__}: {inner}" if isinstance(inner, Exception) else str(inner)


def _after(said: str | None) -> float | None:
    """Retry-After: seconds, or a date."""
    if said is None:
        return None
    try:
        return max(0.0, float(said))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(said).timestamp() - time.time())
    except ValueError:
        return None
