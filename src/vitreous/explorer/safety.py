"""Who may ask, and how much: checked before anything else looks at a request.

Host             a name that is ours, so that no other site's name can be made to lead here (DNS rebinding)
token            when the server can be reached from elsewhere; in the link, then in a cookie
origin           pages of other sites may not ask, not even with somebody's cookie
size             of the body, counted as it comes
answers          headers that forbid other sites' scripts, framing and guessing of types
"""

from __future__ import annotations

import ipaddress
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.exceptions import HTTPException

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
LARGEST_BODY = 256 * 1024
POLICY = "; ".join(
    (
        "default-src 'self'",
        "img-src 'self' data: blob:",
        "style-src 'self' 'unsafe-inline'",
        "script-src 'self'",
        "worker-src 'self' blob:",
        "connect-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
PAGES = ("/", "/index.html")  # the map's library compiles its drawing commands when it starts, in the page
PAGE_POLICY = POLICY.replace("script-src 'self'", "script-src 'self' 'unsafe-eval'")
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@dataclass(frozen=True)
class Rules:
    """`hosts` are names by which we may be called; with `any_address`, also every plain IP address."""

    hosts: frozenset[str] = LOOPBACK
    any_address: bool = False
    token: str | None = None
    cookie: str = "vitreous"
    bodies: dict[str, int] = field(default_factory=dict)  # path -> bytes, where more is allowed

    @classmethod
    def local(cls, bodies: dict[str, int]) -> Rules:
        return cls(bodies=bodies)

    @classmethod
    def open_to(cls, names: Iterable[str], port: int, bodies: dict[str, int]) -> Rules:
        """Reachable from elsewhere: any address, these names, and a token that nobody can guess."""
        hosts = LOOPBACK | {name.lower() for name in names if name}
        return cls(hosts, True, secrets.token_urlsafe(24), f"vitreous-{port}", bodies)


class Guard:
    """Stands before an ASGI application."""

    def __init__(self, app: Any, rules: Rules) -> None:
        self.app, self.rules = app, rules

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # there are no web sockets here
        headers = _headers(scope)
        if (refusal := self._refusal(scope, headers)) is not None:
            await _refuse(send, scope["method"], *refusal)
            return
        limit = self.rules.bodies.get(scope["path"], LARGEST_BODY)
        if _length(headers) > limit:
            await _refuse(send, scope["method"], 413, "the request is too large", f"up to {limit:,} bytes")
            return
        await self.app(scope, _counted(receive, limit), self._marked(scope, send))

    def _refusal(self, scope: Any, headers: dict[str, str]) -> tuple[int, str, str] | None:
        if not self._ours(headers.get("host", "")):
            return 421, "this name does not lead to this explorer", "the address that was printed when it started"
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        foreign = origin is not None and urlsplit(origin).netloc.lower() != headers["host"].lower()
        navigates = headers.get("sec-fetch-mode") == "navigate" and scope["method"] == "GET"
        if (foreign or site in ("cross-site", "same-site")) and not navigates:
            return 403, "other sites may not ask the explorer", "its own pages"
        if self.rules.token is not None and not self._knows_token(scope, headers):
            return 403, "the link needs its token", "the whole link that was printed when the explorer started"
        return None

    def _ours(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        if name in self.rules.hosts:
            return True
        return self.rules.any_address and _is_address(name)

    def _knows_token(self, scope: Any, headers: dict[str, str]) -> bool:
        assert self.rules.token is not None
        given = [*_asked_token(scope), _cookie(headers, self.rules.cookie)]
        return any(secrets.compare_digest(text.encode(), self.rules.token.encode()) for text in given if text)

    def _marked(self, scope: Any, send: Any) -> Any:
        """Adds our headers; a cookie to those who came with the token in the link."""
        extra = dict(HEADERS)
        if scope["path"] in PAGES:
            extra["content-security-policy"] = PAGE_POLICY
        extra["cache-control"] = "no-store" if scope["path"].startswith("/api/") else "no-cache"
        if self.rules.token is not None and _asked_token(scope):
            extra["set-cookie"] = f"{self.rules.cookie}={self.rules.token}; Path=/; HttpOnly; SameSite=Strict"

        async def marked(message: Any) -> None:
            if message["type"] == "http.response.start":
                kept = [pair for pair in message.get("headers", ()) if pair[0].lower() not in (b"server",)]
                message["headers"] = [*kept, *((k.encode(), v.encode()) for k, v in extra.items())]
            await send(message)

        return marked


class TooLargeError(HTTPException):
    """A body that is larger than is allowed, whatever length it announced."""

    def __init__(self) -> None:
        super().__init__(413, "the request is too large")


def _counted(receive: Any, limit: int) -> Any:
    """Receives no more than is allowed, whatever the length that was announced."""
    seen = 0

    async def counted() -> Any:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > limit:
            raise TooLargeError
        return message

    return counted


def _headers(scope: Any) -> dict[str, str]:
    """Lower-case names; of a name that comes twice the first."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
    return found


def _length(headers: dict[str, str]) -> int:
    said = headers.get("content-length", "0")
    return int(said) if said.isdecimal() and len(said) < 19 else 0


def _asked_token(scope: Any) -> list[str]:
    try:
        asked = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=100)
    except ValueError:  # more fields than any link of ours has
        return []
    return asked.get("token", [])[:1]


def _cookie(headers: dict[str, str], name: str) -> str | None:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return None
    return found.value if found is not None else None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def _refuse(send: Any, method: str, status: int, what: str, accepted: str) -> None:
    body = json.dumps({"error": {"what": what, "accepted": accepted}}).encode()
    headers = HEADERS | {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    sent = [(k.encode(), v.encode()) for k, v in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})
