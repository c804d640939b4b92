"""Activations as rows (row, channel), whatever they came as: a tensor, an array, or a site of a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitreous.errors import SettingsError
from vitreous.store.lazy import SiteArray

IN_MEMORY = 8 << 30  # bytes; a larger site is read from disk batch by batch
CHUNK = 8192  # rows looked at in one go


class Rows:
    """Rows in the precision that they came in; `take` and `chunks` give float32."""

    def __init__(self, source: Any, what: str = "activations") -> None:
        if isinstance(source, SiteArray) and source.nbytes <= IN_MEMORY:
            source = np.asarray(source)
        if not isinstance(source, SiteArray | Tensor | np.ndarray):
            raise SettingsError(f"{what} are an array, a tensor or a site of a store", given=type(source).__name__)
        shape = tuple(source.shape)
        if len(shape) not in (2, 3):
            raise SettingsError(f"{what} are (row, channel) or (sample, token, channel)", given=shape)
        self.what, self.shape = what, shape
        self._site = source if isinstance(source, SiteArray) else None
        self._tensor = None if self._site is not None else _tensor(source, what).reshape(-1, shape[-1])

    def __len__(self) -> int:
        return int(np.prod(self.shape[:-1]))

    @property
    def channels(self) -> int:
        return self.shape[-1]

    @property
    def device(self) -> torch.device:
        return torch.device("cpu") if self._tensor is None else self._tensor.device

    def take(self, index: Tensor, device: torch.device) -> Tensor:
        """Rows by number."""
        if self._tensor is not None:
            return self._tensor[index.to(self._tensor.device)].to(device, torch.float32)
        assert self._site is not None
        picked = np.unravel_index(index.numpy(), self.shape[:-1])
        return torch.from_numpy(self._site[picked].astype(np.float32)).to(device)

    def chunks(self, device: torch.device, size: int = CHUNK) -> Iterator[Tensor]:
        """All rows in order."""
        for start in range(0, len(self), size):
            yield self.take(torch.arange(start, min(start + size, len(self))), device)

    def moments(self) -> tuple[Tensor, float]:
        """Mean (channel,) and the root mean square distance of a number from it; refuses what is not finite."""
        total, squares = torch.zeros(self.channels, dtype=torch.float64), 0.0
        shift: Tensor | None = None
        for number, chunk in enumerate(self.chunks(self.device)):
            if not torch.isfinite(chunk).all():
                row = number * CHUNK + int((~torch.isfinite(chunk).all(1)).nonzero()[0])
                raise SettingsError(
                    f"{self.what} are not finite in row {row}",
                    given="NaN or infinity",
                    remedy="find where the model overflows, or leave these rows out",
                )
            shift = chunk.double().mean(0) if shift is None else shift
            off = chunk.double() - shift
            total, squares = total + off.sum(0).cpu(), squares + float(off.square().sum())
        if shift is None:
            raise SettingsError(f"{self.what} have no rows", given=self.shape)
        mean = total / len(self)
        variance = squares / (len(self) * self.channels) - float(mean.square().mean())
        if not variance > 0:
            raise SettingsError(f"{self.what} are the same in every row: there is nothing to learn", given=self.shape)
        return (shift.cpu() + mean).float(), variance**0.5


def _tensor(source: Any, what: str) -> Tensor:
    if not isinstance(source, Tensor):
        array = np.asarray(source)
        source = torch.from_numpy(array if array.flags.writeable else array.copy())
    if not source.is_floating_point():
        raise SettingsError(f"{what} are floating point numbers", given=str(source.dtype))
    return source.detach()
