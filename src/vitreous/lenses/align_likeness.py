"""How alike the same patch is at two layers, or in two models, before and after alignment (AlignedCut, Figure 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vitreous.checks import whole
from vitreous.finding import Finding, heat
from vitreous.lenses.align_nodes import Read, finite, open_nodes, unit_length

PICTURES = 50


@dataclass(frozen=True, eq=False)
class SlotCosines(Finding):
    """Mean cosines (slot, slot) over patches: `same`, of one patch at two slots; `other`, of a patch at one slot and
    another patch, of any picture, at the other. Only what `same` has above `other` is about the patch. Not a number
    where channels or patches of two slots are different in number."""

    slots: tuple[tuple[str, str], ...]
    same: np.ndarray
    other: np.ndarray

    def facts(self) -> dict[str, Any]:
        same, other = self.between()
        return {"slots": len(self.slots), "same patch, two models": same, "another patch": other}

    def columns_of_rows(self) -> dict[str, Any]:
        """A row a pair of slots."""
        a, b = (part.ravel() for part in np.indices(self.same.shape))
        names = np.array([" ".join(slot) for slot in self.slots])
        return {"slot": names[a], "other slot": names[b], "same": self.same.ravel(), "other": self.other.ravel()}

    def thumbnails(self) -> list[tuple[str, np.ndarray]]:
        return [("same patch, slots by slots", heat(self.same))]

    def between(self) -> tuple[float, float]:
        """(same, other): means over pairs of slots of different models."""
        models = np.array([model for model, _ in self.slots])
        pairs = (models[:, None] != models[None]) & np.isfinite(self.same)
        if not pairs.any():
            return float("nan"), float("nan")
        return float(self.same[pairs].mean()), float(self.other[pairs].mean())


def slot_cosines(
    sources: Any,
    read: Read | None = None,
    *,
    sites: str = "blocks.*.attn.out",
    pictures: int = PICTURES,
    seed: int = 0,
) -> SlotCosines:
    """Cosines over the first pictures, of features as they are, or as `read` (an alignment's `transform`) gives them.

    >>> before, after = vt.slot_cosines(stores), vt.slot_cosines(stores, alignment.transform)
    >>> before.between(), after.between()
    """
    whole(1, pictures=pictures)
    whole(0, seed=seed)
    blocks = open_nodes(sources, sites=sites, read=read, same_width=False).blocks
    rows = [unit_length(_flat(finite(block.samples(slice(0, pictures)), block, range(pictures)))) for block in blocks]
    slots = tuple((block.model, block.layer) for block in blocks)
    same = np.full((len(rows), len(rows)), np.nan)
    other = same.copy()
    for shape in {part.shape for part in rows}:
        chosen = [k for k, part in enumerate(rows) if part.shape == shape]
        turn = np.random.default_rng(seed).permutation(shape[0])
        flat = np.stack([rows[k].ravel() for k in chosen])
        mixed = np.stack([rows[k][turn].ravel() for k in chosen])
        same[np.ix_(chosen, chosen)] = flat @ flat.T / shape[0]
        other[np.ix_(chosen, chosen)] = flat @ mixed.T / shape[0]
    return SlotCosines(slots, same, (other + other.T) / 2)


def _flat(rows: np.ndarray) -> np.ndarray:
    return rows.reshape(-1, rows.shape[-1])
