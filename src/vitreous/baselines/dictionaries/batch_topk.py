"""BatchTopK SAE (Bussmann, Leask and Nanda 2024): the k · rows largest codes of a whole batch.

A row gets as many codes as it needs. A finished dictionary must not depend on who else is in the batch, so it keeps
what lies above a threshold: the smallest code that was kept, on average over batches of the data.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitreous.baselines.dictionaries.topk import TopK

BATCHES = 64  # that the threshold is an average over


class BatchTopK(TopK):
    def codes(self, before: Tensor) -> Tensor:
        positive = before.relu()
        return positive * (positive >= self.smallest(positive))

    def smallest(self, positive: Tensor) -> Tensor:
        """Of the k · rows largest; at least the smallest number above zero, so that silence is never kept."""
        last = positive.detach().flatten().topk(self.start.k * len(positive), sorted=True).values[-1]
        return last.clamp_min(torch.finfo(last.dtype).tiny)

    @torch.no_grad()
    def finished(self) -> dict[str, Tensor]:
        start, found = self.start, []
        for index in torch.randperm(len(start.rows), generator=start.generator).split(start.batch_size)[:BATCHES]:
            before, _ = self(start.rows.take(index, self.b_dec.device) / start.scale_in)
            found.append(self.smallest(before.relu()))
        threshold = torch.stack(found).mean() * start.scale_out
        return super().finished() | {"threshold": threshold.expand(start.units).clone()}
