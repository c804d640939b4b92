"""A page in the browser that remembers what went wrong on it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

from playwright.sync_api import Browser, Page, expect


def served(*words: object) -> Iterator[str]:
    """The link of `vitreous explore` with these words, as long as somebody holds on to it."""
    start = [sys.executable, "-c", "from vitreous.cli import app; app()", "explore"]
    command = [*start, *map(str, words), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        said = []
        for line in server.stdout or ():
            said.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+/", line):
                yield found[0]
                break
        else:
            raise AssertionError("".join(said))
        server.terminate()


class Opened:
    """A site, opened."""

    def __init__(self, page: Page, base: str) -> None:
        self.page, self.base = page, base
        self.wrong: list[str] = []
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)

    def go(self, hash: str) -> Page:
        self.page.goto(f"{self.base}{hash}")
        self.page.wait_for_selector("main h1, .state h2")
        return self.page


def opened(browser: Browser, base: str, *, offline: bool = True, **options) -> Iterator[Opened]:
    context = browser.new_context(
        viewport=options.pop("viewport", {"width": 1280, "height": 900}), offline=offline, **options
    )
    context.set_default_timeout(15_000)
    expect.set_options(timeout=60_000)  # five seconds are too few on busy cores, and the first question loads the model
    page = Opened(context.new_page(), base)
    yield page
    context.close()
