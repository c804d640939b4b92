"""The processes that train together under `torchrun`; one is the ordinary case."""

from __future__ import annotations

import torch
import torch.distributed as group
from torch import Tensor


def count() -> int:
    return group.get_world_size() if group.is_available() and group.is_initialized() else 1


def wait() -> None:
    """Until all are here."""
    if count() > 1:
        group.barrier()


def mean(*values: Tensor) -> tuple[Tensor, ...]:
    """The mean over all processes of each value, in one message."""
    if count() == 1:
        return values
    together = torch.cat([value.flatten() for value in values])
    group.all_reduce(together)
    together /= count()
    parts = together.split([value.numel() for value in values])
    return tuple(part.view_as(value) for part, value in zip(parts, values, strict=True))


def least(*values: int, device: torch.device) -> tuple[int, ...]:
    """The smallest that any process has of each number."""
    if count() == 1:
        return values
    together = torch.tensor(values, device=device)
    group.all_reduce(together, op=group.ReduceOp.MIN)
    return tuple(together.tolist())


def gather(samples: Tensor) -> Tensor:
    """(sample, ...) of all processes, in their order; they may have different numbers of samples."""
    if count() == 1:
        return samples
    counts = [torch.zeros(1, dtype=torch.int64, device=samples.device) for _ in range(count())]
    group.all_gather(counts, torch.tensor([len(samples)], device=samples.device))
    most = int(torch.stack(counts).max())
    padded = torch.cat([samples, samples.new_zeros(most - len(samples), *samples.shape[1:])])
    parts = [torch.empty_like(padded) for _ in counts]
    group.all_gather(parts, padded)
    return torch.cat([part[: int(number)] for part, number in zip(parts, counts, strict=True)])
