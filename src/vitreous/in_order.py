"""Work that is handed out in order and comes back in any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")

AHEAD = 2  # items a worker that are on their way, so that it need not wait for the next
HELD = 8  # items a worker that are on their way or done, and wait for one before them


class InOrder(Generic[Item]):
    """Hands items out with their numbers, and gives results back in that order however they come in.

    While one item takes long those after it are worked on, and wait for it; how many is bounded, and so is memory.
    """

    def __init__(self, items: Iterable[Item], workers: int) -> None:
        self.away: dict[int, Item] = {}
        self._source, self._workers = enumerate(items), workers
        self._back: dict[int, tuple[bool, Any]] = {}
        self._next = 0

    def out(self) -> list[tuple[int, Item]]:
        """Items that are to be begun now."""
        room = min(AHEAD * self._workers, HELD * self._workers - len(self._back)) - len(self.away)
        taken = list(islice(self._source, max(0, room)))
        self.away.update(taken)
        return taken

    def back(self, number: int, answer: tuple[bool, Any]) -> Iterator[Any]:
        """With one more result here, those whose turn it is."""
        del self.away[number]
        self._back[number] = answer
        while self._next in self._back:
            self._next += 1
            yield unpack(self._back.pop(self._next - 1))


def unpack(answer: tuple[bool, Any]) -> Any:
    well, value = answer
    if not well:
        raise value
    return value
