"""Are two runs the same dictionary, and how spread are its atoms? Section B.3 of the disentanglement paper.

A dictionary is atoms (atom, channel). Where atoms belong to units, as sub-units do, it is a list of such blocks, one a
unit in the same order in every run; blocks are compared unit by unit. Atoms that are all zeros are dead and left out.

    stability        mean cosine of atoms that the Hungarian method pairs, mean over pairs of runs
    effective rank   exp of the entropy of the singular values, scaled to add up to 1: between 1 and the full rank
    coherence        the largest |cosine| of two different atoms

The paper computes coherence with a function that returns the largest |cosine| and says that higher means easier to tell
apart. It is the other way round: at 1 two atoms are the same up to sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np

from vitreous.errors import SettingsError

Atoms = Any  # an array or tensor (atom, channel)
BLOCK = 1024  # atoms compared with all others in one go


@dataclass(frozen=True)
class Stability:
    """`pairs`: similarity of every two runs, in the order (0, 1), (0, 2), ..., (1, 2), ..."""

    pairs: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.pairs))

    @property
    def std(self) -> float:
        return float(np.std(self.pairs))


def stability(runs: Sequence[Atoms | Sequence[Atoms]]) -> Stability:
    """Cross-run similarity of two or more dictionaries of the same method."""
    if len(runs) < 2:
        raise SettingsError("stability is between runs: two or more", given=len(runs))
    blocks = [_blocks(run) for run in runs]
    return Stability(tuple(_block_similarity(a, b) for a, b in combinations(blocks, 2)))


def matched_similarity(a: Atoms, b: Atoms, *, unmatched: Literal["first", "best"] = "first") -> float:
    """Mean cosine of Hungarian pairs, less |k_a - k_b| / max(k_a, k_b) where the numbers of atoms differ.

    `unmatched="first"`, as the paper has it, cuts the longer one to the first min(k_a, k_b) atoms; `"best"` leaves out
    those that match worst. Between -2 and 1; two empty dictionaries are the same.
    """
    from scipy.optimize import linear_sum_assignment

    if unmatched not in ("first", "best"):
        raise SettingsError("no such rule for unmatched atoms", given=unmatched, accepted=("first", "best"))
    u, v = _directions(a), _directions(b)
    if u.shape[1] != v.shape[1]:
        raise SettingsError("dictionaries have the same channels", given=(u.shape, v.shape))
    few, many = sorted((len(u), len(v)))
    if few == 0:
        return 1.0 if many == 0 else -1.0
    penalty = (many - few) / many
    cosines = u[:few] @ v[:few].T if unmatched == "first" else u @ v.T
    return float(cosines[linear_sum_assignment(cosines, maximize=True)].mean()) - penalty


def effective_rank(atoms: Atoms) -> float:
    """exp(H(p)) with p the singular values divided by their sum (Roy and Vetterli 2007)."""
    values = np.linalg.svd(_alive(atoms, 1), compute_uv=False)
    p = values / values.sum()
    p = p[p > 0]
    return float(np.exp(-(p * np.log(p)).sum()))


def coherence(atoms: Atoms) -> float:
    """The largest |cosine| of two different atoms, without a matrix of all pairs."""
    u = _directions(_alive(atoms, 2))
    largest = 0.0
    for start in range(0, len(u), BLOCK):
        cosines = np.abs(u[start : start + BLOCK] @ u[start:].T)
        np.fill_diagonal(cosines, 0)
        largest = max(largest, float(cosines.max()))
    return min(largest, 1.0)


def _block_similarity(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    if len(a) != len(b):
        raise SettingsError("runs have the same units", given=(len(a), len(b)))
    return float(np.mean([matched_similarity(x, y) for x, y in zip(a, b, strict=True)]))


def _blocks(run: Atoms | Sequence[Atoms]) -> list[np.ndarray]:
    blocks = list(run) if isinstance(run, list | tuple) else [run]
    if not blocks:
        raise SettingsError("a run has at least one block of atoms", given=0)
    return [_array(block) for block in blocks]


def _array(atoms: Atoms) -> np.ndarray:
    if not isinstance(atoms, np.ndarray):
        atoms = atoms.detach().float().cpu().numpy()
    array = np.asarray(atoms, np.float64)
    if array.ndim != 2 or not np.isfinite(array).all():
        finite = bool(np.isfinite(array).all())
        raise SettingsError("atoms are finite and (atom, channel)", given={"shape": array.shape, "finite": finite})
    return array


def _alive(atoms: Atoms, least: int) -> np.ndarray:
    array = _array(atoms)
    array = array[np.abs(array).max(1, initial=0) > 0]
    if len(array) < least:
        raise SettingsError(f"this takes {least} or more atoms that are not zero", given=len(array))
    return array


def _directions(atoms: Atoms) -> np.ndarray:
    array = _alive(atoms, 0)
    array = array / np.abs(array).max(1, keepdims=True)  # so that no square under- or overflows
    return array / np.linalg.norm(array, axis=1, keepdims=True)
