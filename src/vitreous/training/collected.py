"""F of Algorithm 1: the features of the present draw, as far as they have been collected."""

from __future__ import annotations

from torch import Tensor


class Collected:
    """Samples (sample, layer, token, channel) of several steps in one block of memory, which is used again."""

    def __init__(self, samples: Tensor | None = None) -> None:
        self.rows = 0 if samples is None else len(samples)
        self._room = samples

    def add(self, part: Tensor, steps: int) -> None:
        """Samples of one step of about `steps`."""
        rows = self.rows + len(part)
        if self._room is None or rows > len(self._room) or self._room.device != part.device:
            grown = part.new_empty(max(rows, len(part) * steps), *part.shape[1:])
            if self._room is not None:
                grown[: self.rows] = self._room[: self.rows]
            self._room = grown
        self._room[self.rows : rows] = part
        self.rows = rows

    def samples(self, like: Tensor) -> Tensor:
        """All of them; none, as wide as `like` (sample, layer, token, channel), if there are none."""
        return like[:0] if self._room is None else self._room[: self.rows]

    def kept(self) -> Tensor | None:
        """For a checkpoint."""
        return None if self._room is None else self._room[: self.rows].clone()
