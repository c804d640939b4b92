"""A judge behind any OpenAI-compatible chat endpoint: vLLM, llama.cpp, a hosted service.

The key is read from an environment variable when a question is asked. It is held by no object and stands in no message.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from vitreous.errors import JudgeError, SettingsError
from vitreous.judges.answers import AGAIN, Judgement, read_answer
from vitreous.judges.transport import NoResponse, Response, post

DECODING: dict[str, Any] = {"temperature": 0, "max_tokens": 256, "seed": 42}
"""Greedy, as in B.1."""

LONGEST_PAUSE = 60.0
LEAST_PAUSE = 0.05  # after "slow down", which costs no try: patience must come to an end
PASSING = frozenset({408, 409, 425, 429})  # client errors that go away by themselves
LIMITED = 429


class Reply(NamedTuple):
    """What a model said, and what it gave as its reason if it declined."""

    text: str
    refusal: str | None


class _Trouble(NamedTuple):
    """Why a try failed; `after` what the server asks to wait; `limited` if it only wants fewer questions."""

    why: str
    after: float | None = None
    limited: bool = False


@dataclass(frozen=True)
class ChatJudge:
    """A vision-language model that is asked over HTTP.

    `base_url` ends before `/chat/completions`, usually in `/v1`. `key_variable` names the environment variable that
    holds the key; local servers need none. `options` go into every request beside greedy decoding; None takes one out.
    A question is tried `tries` times with growing pauses; being told to slow down (429) costs no try, but all pauses of
    a question together last at most `patience` seconds.

    >>> vt.ChatJudge("http://localhost:8000/v1", "Qwen/Qwen3-VL-30B-A3B-Instruct")
    """

    base_url: str
    model: str
    key_variable: str | None = None
    name: str = ""
    timeout: float = 120.0
    tries: int = 5
    backoff: float = 1.0
    patience: float = 600.0
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingsError("not the address of an endpoint", given=self.base_url, accepted="http(s)://host/v1")
        if parts.username or parts.password or parts.query:
            raise SettingsError(
                f"an address with a key or a query in it: {parts.scheme}://{parts.hostname}",
                remedy="put the key in an environment variable and name it in key_variable=",
            )
        numbers = {"timeout": self.timeout, "tries": self.tries, "backoff": self.backoff, "patience": self.patience}
        if self.timeout <= 0 or self.tries < 1 or self.backoff < 0 or self.patience < 0 or not self.model:
            raise SettingsError("a judge needs a model, a time-out and a try", given={"model": self.model, **numbers})
        object.__setattr__(self, "name", self.name or self.model)

    @property
    def decoding(self) -> dict[str, Any]:
        """What goes into every request beside the model and the messages."""
        return {name: value for name, value in {**DECODING, **self.options}.items() if value is not None}

    @property
    def settings(self) -> dict[str, Any]:
        """What is recorded with a result."""
        return {"name": self.name, "model": self.model, "base_url": self.base_url, "decoding": self.decoding}

    def key(self) -> str | None:
        """The key, or None if this judge needs none. One that is not set is refused before anything is asked."""
        if self.key_variable is None:
            return None
        found = os.environ.get(self.key_variable, "").strip()
        if not found or not found.isascii() or not found.isprintable():
            raise SettingsError(
                f"no usable key for {self.name} in the environment",
                given=self.key_variable,
                remedy=f"export {self.key_variable}=...",
            )
        return found

    def compare(self, prompt: str, grids: Sequence[bytes], pause: Callable[[float], bool]) -> Judgement:
        """Grid A and grid B as PNG -> what the judge says. What cannot be read is asked for once more.

        `pause` sleeps so many seconds and says whether to give up.
        """
        messages = [{"role": "user", "content": _content(prompt, grids)}]
        reply = self._reply(messages, pause)
        found = read_answer(*reply)
        if found.why != "unreadable":
            return found
        messages += [{"role": "assistant", "content": reply.text or "..."}, {"role": "user", "content": AGAIN}]
        return read_answer(*self._reply(messages, pause))

    def _reply(self, messages: list[dict[str, Any]], pause: Callable[[float], bool]) -> Reply:
        body = json.dumps({"model": self.model, "messages": messages, **self.decoding}).encode()
        spread = 0.5 + zlib.crc32(body) / (1 << 33)  # 0.5 to 1: questions that failed together do not return together
        failed, paused = 0, 0.0
        while True:
            trouble = self._once(body)
            if isinstance(trouble, Reply):
                return trouble
            failed += not trouble.limited
            growing = min(self.backoff * 2 ** max(failed - 1, 0) * spread, LONGEST_PAUSE)
            wait = max(growing, trouble.after or 0.0, LEAST_PAUSE if trouble.limited else 0.0)
            if failed >= self.tries or paused + wait > self.patience:
                raise JudgeError(
                    f"{self.name} at {self.base_url} does not answer: {trouble.why}",
                    given=f"{failed} tries, {paused:.0f} seconds of pauses",
                    remedy="see whether the server runs and serves this model",
                )
            paused += wait
            if pause(wait):
                raise JudgeError(f"{self.name}: stopped while waiting for an answer", given=trouble.why)

    def _once(self, body: bytes) -> Reply | _Trouble:
        key = self.key()
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        try:
            answer = post(f"{self.base_url.rstrip('/')}/chat/completions", body, headers, self.timeout)
        except NoResponse as error:
            return _Trouble(str(error))
        said = answer.body.decode("utf-8", "replace").strip()
        said = said.replace(key, "***") if key else said
        if answer.status != 200:
            return self._status(answer, said[:300])
        return _message(said) or _Trouble(f"no chat completion but {said[:300]!r}")

    def _status(self, answer: Response, said: str) -> _Trouble:
        if answer.status >= 500 or answer.status in PASSING:
            return _Trouble(f"status {answer.status}: {said}", answer.after, answer.status == LIMITED)
        variable = self.key_variable or "key_variable="
        remedies = {401: f"check the key in {variable}", 403: f"check the key in {variable}"}
        remedies[404] = "base_url= ends before /chat/completions, usually in /v1; and the server must know the model"
        remedy = remedies.get(answer.status, "options= changes what is sent; None takes an option out")
        raise JudgeError(
            f"{self.name} at {self.base_url} refuses the request: status {answer.status}: {said}", remedy=remedy
        )


def _content(prompt: str, grids: Sequence[bytes]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"type": "text", "text": prompt}]
    for letter, picture in zip("AB", grids, strict=True):
        url = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
        parts += [{"type": "text", "text": f"Grid {letter}:"}, {"type": "image_url", "image_url": {"url": url}}]
    return parts


def _message(said: str) -> Reply | None:
    """What a chat completion says; None if it is none."""
    try:
        message = json.loads(said)["choices"][0]["message"]
        content, refusal = message["content"], message.get("refusal")
        if isinstance(content, list):  # some servers send parts
            content = "".join(part["text"] for part in content if part.get("type") == "text")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    if not isinstance(content, str | None) or not isinstance(refusal, str | None):
        return None
    return Reply(content or "", refusal)
