"""Results in memory, by key; those not used for longest go when all together are too large."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any


class Cache:
    """`budget` is in bytes. What is larger than all of it is not kept. Threads may share one."""

    def __init__(self, budget: int) -> None:
        self.budget, self.size = budget, 0
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept

    def get(self, key: Hashable) -> Any:
        """The value, or None; it counts as used."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        if size > self.budget:
            return
        with self._lock:
            self.size += size - self._kept.pop(key, (None, 0))[1]
            self._kept[key] = (value, size)
            while self.size > self.budget:
                self.size -= self._kept.popitem(last=False)[1][1]
