"""The k largest rows of every unit where k is large, on a torch device: `stream_top` where the rows lie.

Rows are collected until there are twice k beside the best so far, and then one stable sort says who stays. The best are
held in falling order and newcomers follow in theirs, so that equal values keep the order of their ids.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from vitreous.errors import SettingsError


def stream_top_on_device(pieces: Iterable[Tensor], k: int) -> tuple[Tensor, Tensor]:
    """Pieces (unit, row), rows numbered on from 0, to values and ids (unit, k), largest first, equal ones by id.

    The result does not depend on how the rows were cut into pieces. There must be k rows or more.
    """
    held: list[Tensor] = []  # the best so far, if any, and the rows since
    ids: list[Tensor] = []
    seen = filled = 0
    for piece in pieces:
        _refuse_nan(piece, seen)
        held.append(piece)
        ids.append(torch.arange(seen, seen + piece.shape[1], device=piece.device).expand_as(piece))
        seen, filled = seen + piece.shape[1], filled + piece.shape[1]
        if filled >= 3 * k:
            held, ids, filled = *([part] for part in _best(held, ids, k)), k
    if seen < k:
        raise SettingsError("fewer rows than k", given=k, accepted=f"1 to {seen}")
    return _best(held, ids, k)


def _best(held: list[Tensor], ids: list[Tensor], k: int) -> tuple[Tensor, Tensor]:
    values, order = torch.cat(held, 1).sort(dim=1, descending=True, stable=True)
    return values[:, :k].clone(), torch.cat(ids, 1).gather(1, order[:, :k])


def _refuse_nan(piece: Tensor, seen: int) -> None:
    if bool(torch.isnan(piece).any()):
        unit, row = torch.isnan(piece).nonzero()[0].tolist()
        raise SettingsError(f"NaN in row {seen + row}, unit {unit}: it is neither larger nor smaller than anything")
