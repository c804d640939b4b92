"""A page in the browser that remembers what went wrong on it."""

from __future__ import annotations

from collections.abc import Iterator

from playwright.sync_api import Browser, Page


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
    page = Opened(context.new_page(), base)
    yield page
    context.close()
