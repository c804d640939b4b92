"""What is true of every patch of a scene, from its exact instance map: the planted truth that findings are held to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vitreous.axes import Grid
from vitreous.errors import SettingsError

KINDS = ("shape", "colour", "texture", "layout")
EDGE = 0.75  # a patch of which nothing owns more than this share lies on an edge


@dataclass(frozen=True, eq=False)
class Concepts:
    """`present` bool (sample, patch, concept): whether the concept is true of the patch.

    `names` are phrases such as "red objects"; `kinds`, one of `KINDS` each, say what sort of thing it is.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    present: np.ndarray

    def __post_init__(self) -> None:
        if self.present.ndim != 3 or self.present.shape[2] != len(self.names) or len(self.names) != len(self.kinds):
            raise SettingsError(
                "concepts are bool (sample, patch, concept) with one name and one kind each",
                given=(self.present.shape, len(self.names), len(self.kinds)),
            )


def patch_owners(instances: np.ndarray, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """The instance (row, column) that owns most of each patch, and its share of the patch: (patch,) each.

    Of two that own the same share the nearer one counts, which has the larger number.
    """
    rows, columns = np.array_split(np.arange(instances.shape[0]), grid.rows), np.arange(instances.shape[1])
    patch = np.empty(instances.shape, np.int64)
    column = np.concatenate([np.full(len(c), i) for i, c in enumerate(np.array_split(columns, grid.columns))])
    for number, part in enumerate(rows):
        patch[part] = number * grid.columns + column
    layers = int(instances.max()) + 1
    counts = np.bincount(patch.ravel() * layers + instances.ravel(), minlength=grid.patches * layers)
    counts = counts.reshape(grid.patches, layers)
    owner = layers - 1 - counts[:, ::-1].argmax(1)
    return owner, counts.max(1) / counts.sum(1)


def scene_concepts(maps: Sequence[np.ndarray], about: Sequence[Mapping[str, Any]], grid: Grid) -> Concepts:
    """Concepts of scenes from their instance maps (row, column), as the model saw them, and what `about` says of them.

    An object's shape, colour and texture are true of the patches it owns. The colour and texture of backgrounds are
    left out: they are true of whole pictures, and a model with shuffled weights tells such pictures apart as well as
    a trained one. The names are those that occur, in the order of the alphabet.
    """
    if len(maps) != len(about):
        raise SettingsError("every scene has one map and one description", given=(len(maps), len(about)))
    found: list[list[set[tuple[str, str]]]] = []
    for instances, scene in zip(maps, about, strict=True):
        owners, shares = patch_owners(instances, grid)
        of_layer = [{("layout", "backgrounds of any kind")}, *map(_of_object, scene["objects"])]
        edge = {("layout", "edges between two things")}
        found.append([of_layer[o] | (edge if s <= EDGE else set()) for o, s in zip(owners, shares, strict=True)])
    listed = _listed(concept for scene in found for patch in scene for concept in patch)
    column = {concept: i for i, concept in enumerate(listed)}
    present = np.zeros((len(found), grid.patches, len(listed)), bool)
    for sample, scene_patches in enumerate(found):
        for patch, concepts in enumerate(scene_patches):
            present[sample, patch, [column[concept] for concept in concepts]] = True
    return Concepts(tuple(name for _, name in listed), tuple(kind for kind, _ in listed), present)


def same_names(truths: Sequence[Concepts]) -> tuple[Concepts, ...]:
    """The same truths with the same names each: on a coarse grid a small thing may own no patch, and is never true."""
    listed = _listed((kind, name) for truth in truths for kind, name in zip(truth.kinds, truth.names, strict=True))
    names, kinds = tuple(name for _, name in listed), tuple(kind for kind, _ in listed)
    found = []
    for truth in truths:
        present = np.zeros((*truth.present.shape[:2], len(names)), bool)
        present[..., [names.index(name) for name in truth.names]] = truth.present
        found.append(Concepts(names, kinds, present))
    return tuple(found)


def _listed(concepts: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return sorted(set(concepts), key=lambda concept: (KINDS.index(concept[0]), concept[1]))


def _of_object(thing: Mapping[str, Any]) -> set[tuple[str, str]]:
    shape = thing["shape"]
    plural = {"leaf": "leaves", "cross": "crosses"}.get(shape, f"{shape}s")
    return {
        ("shape", plural),
        ("colour", f"{thing['colour']} objects"),
        ("texture", f"{thing['texture']} objects"),
        ("layout", "objects of any kind"),
    }
