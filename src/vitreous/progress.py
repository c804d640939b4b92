"""What is said while work goes on, on the error stream: bars where somebody watches, whole lines in a log.

Every long loop runs through `tqdm` of this module, and every stage is said by `voice`. Nobody else asks where the error
stream leads, so that all commands and functions leave the same kind of trace.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from operator import length_hint
from typing import Any

SHORTEST = 1.0  # seconds; a loop that ends sooner leaves no line in a log
EVERY = 60.0  # seconds between two lines of one loop


def tqdm(
    steps: Iterable[Any] | None = None, desc: str = "", total: int | None = None, *, disable: bool = False, **how: Any
) -> Any:
    """tqdm's bar on a terminal and in a notebook; elsewhere lines that say how far a loop is, and how long it took."""
    if disable or watched():
        from tqdm.auto import tqdm as bar  # type: ignore[import-untyped]

        return bar(steps, desc, total, disable=disable, **how)
    return Lines(() if steps is None else steps, desc, total, how.get("initial", 0))


def watched() -> bool:
    """Whether what is written to the error stream appears before somebody's eyes, and can be written over."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def voice(progress: bool) -> Callable[[str], None]:
    """A way to say one line, or none of them."""
    return say if progress else lambda _: None


def say(line: str) -> None:
    """One line, above the bars that are there."""
    if watched():
        from tqdm.auto import tqdm as bar

        bar.write(line, file=sys.stderr)
    else:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


class Lines:
    """A loop in a log: a line each minute, and one at its end. Loops within loops only speak each minute."""

    running: list[Lines] = []  # noqa: RUF012 - of this process, the outermost first

    def __init__(self, steps: Iterable[Any], desc: str, total: int | None, initial: int) -> None:
        self._steps, self._desc, self._ending = steps, desc, ""
        self._total = total if total is not None else length_hint(steps) or None
        self.n = self._first = initial
        self._began = self._said = time.monotonic()

    def __enter__(self) -> Lines:
        self._began = self._said = time.monotonic()
        self.running.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        outermost = self.running[0] is self
        self.running.remove(self)
        if outermost and time.monotonic() - self._began >= SHORTEST:
            self._say(time.monotonic(), ended=True)

    def __iter__(self) -> Iterator[Any]:
        with self:
            for step in self._steps:
                yield step
                self.update()

    def update(self, count: int = 1) -> None:
        self.n += count
        now = time.monotonic()
        if self.n != self._total and now - self._said >= EVERY:
            self._said = now
            self._say(now, ended=False)

    def set_postfix(self, **values: object) -> None:
        self.set_postfix_str(", ".join(f"{name} {value}" for name, value in values.items()))

    def set_postfix_str(self, text: str) -> None:
        self._ending = f", {text}" if text else ""

    def _say(self, now: float, ended: bool) -> None:
        seconds, done = now - self._began, self.n - self._first
        whole = self._total is None or (ended and self.n == self._total)
        line = f"{self._desc}: {self.n:,}" if whole else f"{self._desc}: {self.n:,} of {self._total:,}"
        line += f" in {duration(seconds)}"
        if not ended and self._total is not None and done > 0:
            line += f", about {duration(seconds / done * max(0, self._total - self.n))} left"
        say(line + self._ending)


def duration(seconds: float) -> str:
    """In the unit in which one would say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
