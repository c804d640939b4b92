"""Does a unit answer to the pixels that its token's map names? They are spoiled, and as many random ones beside them.

A unit is strong at a token. The token's map says which patches it was made of. If those are covered and the unit falls,
while it stays when as many random patches are covered, the map shows what the unit answers to. The token's own patch is
never covered: that it matters needs no map.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vitreous.errors import SettingsError
from vitreous.evidence.perturbation import SIDES, chosen_patches, pixels_of
from vitreous.progress import tqdm

#: Pictures (picture, colour, row, column) and the token of interest of each (picture,), in; (picture, input) out.
Enter = Callable[[np.ndarray, np.ndarray], np.ndarray]
KEPT = ("positive", "random")


def spoiled_inputs(
    enter: Enter,
    pictures: np.ndarray,
    maps: np.ndarray,
    patches: np.ndarray,
    *,
    area: float = 0.25,
    fill: float = 0.0,
    seed: int = 0,
    batch_size: int = 64,
    progress: bool = True,
) -> np.ndarray:
    """float32 (side, place, input): what enters a layer at a place once a share `area` of the patches is covered.

    One place is a picture of `pictures` (place, colour, row, column), the map of one token on it, `maps` (place, row,
    column), and that token's patch. Sides are in the order of `KEPT`: the patches of largest value, random ones.
    """
    if not (len(pictures) == len(maps) == len(patches)) or maps.ndim != 3 or not len(maps):
        raise SettingsError(
            "one picture, one map and one patch a place", given=(len(pictures), maps.shape, len(patches))
        )
    if not 0 < area <= 0.5:
        raise SettingsError("a share of the patches, at most half", given=area)
    of = maps.shape[1] * maps.shape[2]
    many = max(1, min(round(area * of), (of - 1) // 2))
    rng = np.random.default_rng(seed)
    chosen = chosen_patches(maps[:, None].astype(np.float64), np.asarray(patches)[:, None], many, rng)[:, :, 0]
    found = []
    work = [(side, first) for side in KEPT for first in range(0, len(maps), batch_size)]
    for side, first in tqdm(work, "spoiled pictures", disable=not progress, delay=1, leave=False):
        part = slice(first, first + batch_size)
        made = np.array(pictures[part])
        for k, covered in enumerate(chosen[SIDES.index(side), part]):
            made[k][:, pixels_of(covered.reshape(maps.shape[1:]), made.shape[2:])] = fill
        found.append(np.asarray(enter(made, patches[part]), np.float32))
    return np.concatenate(found).reshape(len(KEPT), len(maps), -1)
