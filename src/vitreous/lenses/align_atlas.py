"""A cut made ready to be looked at: where every node lies, its colour, its neighbours, its way through layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vitreous.errors import SettingsError
from vitreous.finding import Finding, heat
from vitreous.lenses.align_colors import Groups, colors, farthest_points, group_nodes, spectral_tsne, transitions
from vitreous.lenses.align_cut import Spectral, read_array
from vitreous.lenses.align_nodes import unit_length
from vitreous.mirrors import kept_at, read_from

PLANE, SPACE, SHADES, IDS = "plane.npy", "space.npy", "shades.npy", "ids.json"
MERGES, OWNER = "merges.npy", "owner.npy"
DENSE, NEIGHBOURS = 2000, 30  # nodes among which dense places are looked for, and how many make a place dense
POOL = 20_000  # nodes among which the most alike is looked for
PIECE = 262_144  # nodes compared with a clicked one at a time


class Place(NamedTuple):
    """What a node is: a patch of a picture (both by number) at a layer of a model."""

    model: str
    layer: str
    picture: int
    patch: int


@dataclass(frozen=True, eq=False)
class Atlas(Finding):
    """`plane` float32 (node, 2) and `space` (node, 3) are coordinates by t-SNE, `shades` uint8 (node, 3) colours that
    mean the same everywhere; `groups(k)` gives int64 (node,) for any number of groups; `ids` are the pictures' names.
    Loaded from a folder the arrays are read only where they are looked at."""

    spectral: Spectral
    plane: np.ndarray
    space: np.ndarray
    shades: np.ndarray
    groups: Groups
    ids: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.spectral)

    def __repr__(self) -> str:
        models = dict.fromkeys(model for model, _ in self.spectral.blocks)
        return f"Atlas({len(self):,} nodes, {len(self.spectral.blocks)} layers of {', '.join(models)})"

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(model for model, _ in self.spectral.blocks))

    def layers(self, model: str) -> tuple[str, ...]:
        return tuple(layer for name, layer in self.spectral.blocks if name == model)

    def facts(self) -> dict[str, Any]:
        return {**self.spectral.facts(), "pictures": len(self.ids) or None}

    def columns_of_rows(self) -> dict[str, Any]:
        """A row a node: what it is, where it lies in the plane, and its colour."""
        shades = np.asarray(self.shades)
        colours = [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in shades]
        x, y = np.asarray(self.plane).T
        return self.spectral.places() | {"x": x, "y": y, "colour": colours}

    def thumbnails(self) -> list[tuple[str, np.ndarray]]:
        """The colours of the first picture, layer by layer."""
        found = []
        for slot in self.slots:
            if slot in self.spectral.grids:
                colours = self.spectral.of(*slot, np.asarray(self.shades))[0]
                found.append((" ".join(slot), colours.reshape(*self.spectral.grids[slot], 3)))
        return found

    def node(self, place: Sequence[Any]) -> int:
        """(model, layer, picture, patch) -> its number."""
        model, layer, picture, patch = place
        first, _, pictures, patches = self.spectral.block(model, layer)
        if not (0 <= picture < pictures and 0 <= patch < patches):
            raise SettingsError(
                "no such patch", given=tuple(place), accepted=f"{pictures} pictures of {patches} patches"
            )
        return int(first + picture * patches + patch)

    @property
    def slots(self) -> tuple[tuple[str, str], ...]:
        """(model, layer) of every slot, in the order of the nodes."""
        return tuple(self.spectral.blocks)

    def places(self, nodes: np.ndarray | None = None) -> np.ndarray:
        """int64 (node, 3): slot, picture, patch, of all nodes or of some."""
        wanted = np.arange(len(self)) if nodes is None else np.asarray(nodes, np.int64)
        if len(wanted) and not (0 <= wanted.min() and wanted.max() < len(self)):
            raise SettingsError("no such node", given=int(wanted.max()), accepted=f"0 to {len(self) - 1}")
        blocks = np.array([(first, patches) for first, _, _, patches in self.spectral.blocks.values()])
        slot = np.searchsorted(blocks[:, 0], wanted, side="right") - 1
        picture, patch = np.divmod(wanted - blocks[slot, 0], blocks[slot, 1])
        return np.stack([slot, picture, patch], 1)

    def place(self, node: int) -> Place:
        slot, picture, patch = self.places(np.array([node]))[0]
        model, layer = self.slots[slot]
        return Place(model, layer, int(picture), int(patch))

    def likeness(self, node: int, model: str | None = None, layer: str | None = None) -> np.ndarray:
        """float32 cosines of eigenvectors to those of one node: (node,) of all, or (picture, patch) of one layer."""
        self.place(node)
        chosen = unit_length(np.asarray(self.spectral.eigenvectors[node])[None])[0]
        if model is not None and layer is not None:
            return unit_length(np.asarray(self.spectral.of(model, layer))) @ chosen
        vectors = self.spectral.eigenvectors
        parts = [unit_length(np.asarray(vectors[k : k + PIECE])) @ chosen for k in range(0, len(vectors), PIECE)]
        return np.concatenate(parts)

    def nearest(self, node: int, count: int = 12, *, model: str | None = None) -> list[tuple[Place, float]]:
        """The nodes most like one node, best first, each picture and model once, without its own picture.

        Neighbouring patches and layers are alike for no interesting reason; what other pictures hold is.
        """
        own, found, seen = self.place(node), [], set()
        values = self.likeness(node)
        for start in range(0, len(values), 64 * count):
            end = start + 64 * count
            for k in _largest(values, end)[start:]:
                place = self.place(int(k))
                key = place.model, place.picture
                if place.picture == own.picture or key in seen or model not in (None, place.model):
                    continue
                seen.add(key)
                found.append((place, float(values[k])))
                if len(found) == count:
                    return found
        return found

    def path(self, model: str, picture: int, patch: int, *, dims: int = 2) -> np.ndarray:
        """float32 (layer, dims): where one patch lies at each layer of a model."""
        if model not in self.models:
            raise SettingsError("no such model", given=model, accepted=self.models)
        placed = self.plane if dims == 2 else self.space
        return np.stack([placed[self.node((model, layer, picture, patch))] for layer in self.layers(model)])

    @kept_at("folder")
    def save(self, folder: str | Path) -> Path:
        """Arrays as `.npy`, so that a viewer can map them, and two small JSON files."""
        import json

        folder = self.spectral.save(folder)
        arrays = {PLANE: self.plane, SPACE: self.space, SHADES: self.shades}
        for name, values in (arrays | {MERGES: self.groups.merges, OWNER: self.groups.owner}).items():
            np.save(folder / name, values)
        (folder / IDS).write_text(json.dumps(self.ids) + "\n")
        return folder

    @classmethod
    @read_from("folder")
    def load(cls, folder: str | Path) -> Atlas:
        import json

        folder = Path(folder)
        spectral = Spectral.load(folder)
        plane, space, shades, owner = (read_array(folder / name) for name in (PLANE, SPACE, SHADES, OWNER))
        if {len(plane), len(space), len(shades), len(owner)} != {len(spectral)}:
            raise SettingsError("the parts of this atlas do not belong together", given=str(folder))
        try:
            ids = tuple(json.loads((folder / IDS).read_text()))
        except (OSError, ValueError) as error:
            raise SettingsError("not a saved atlas, or a damaged one", given=str(folder / IDS)) from error
        return cls(spectral, plane, space, shades, Groups(read_array(folder / MERGES), owner), ids)


def atlas(spectral: Spectral, *, ids: Sequence[str] = (), n_sample: int = 4000, seed: int = 0) -> Atlas:
    """Coordinates and colours of a cut, ready to be looked at, saved and clicked on.

    >>> found = vt.atlas(vt.ncut(stores, read=alignment.transform), ids=images.ids)
    >>> found.save("cut"); vt.Atlas.load("cut").nearest(found.node(("text", "blocks.5.attn.out", 0, 27)))
    """
    pictures = {block[2] for block in spectral.blocks.values()}
    if ids and pictures != {len(ids)}:
        raise SettingsError("one id for each picture", given=len(ids), accepted=", ".join(map(str, sorted(pictures))))
    plane, space = (spectral_tsne(spectral, dims, n_sample=n_sample, seed=seed) for dims in (2, 3))
    groups = group_nodes(spectral, n_sample=n_sample, seed=seed)
    return Atlas(spectral, plane, space, colors(space), groups, tuple(ids))


def model_mixing(found: Atlas, sample: int = 400, seed: int = 0) -> dict[str, float]:
    """By model: of a sample of its nodes, the share whose most alike node in another picture is of another model."""
    generator = np.random.default_rng(seed)
    parts = [np.sort(generator.choice(len(found), min(n, len(found)), replace=False)) for n in (sample, POOL)]
    rows, others = (unit_length(np.asarray(found.spectral.eigenvectors[part])) for part in parts)
    own, pool = (found.places(part) for part in parts)
    models = np.array([found.models.index(model) for model, _ in found.slots])
    cosine = np.where(own[:, None, 1] == pool[None, :, 1], -np.inf, rows @ others.T)
    crossed = models[pool[cosine.argmax(1), 0]] != models[own[:, 0]]
    mine = {model: models[own[:, 0]] == k for k, model in enumerate(found.models)}
    return {model: float(crossed[part].mean()) if part.any() else float("nan") for model, part in mine.items()}


def slot_share(found: Atlas) -> float:
    """The share of the variance of coordinates in space that lies between slots: 1 if layers and models never meet."""
    whole = np.asarray(found.space, np.float64)
    within = sum(
        ((part - part.mean(0)) ** 2).sum()
        for part in (found.spectral.of(*slot, whole).reshape(-1, whole.shape[1]) for slot in found.slots)
    )
    total = ((whole - whole.mean(0)) ** 2).sum()
    return float(1 - within / total) if total > 0 else 0.0


@dataclass(frozen=True, eq=False)
class LayerTransitions(Finding):
    """`before` and `after` (concept, 2) are centres of circles of `radius` among the patches of two layers in the
    plane; `matrices` by name of a mask are (concept, concept), the share of a circle's patches that is in another."""

    model: str
    layers: tuple[str, str]
    before: np.ndarray
    after: np.ndarray
    radius: float
    matrices: dict[str, np.ndarray]

    def facts(self) -> dict[str, Any]:
        return {"model": self.model, "from": self.layers[0], "to": self.layers[1], "radius": self.radius}

    def columns_of_rows(self) -> dict[str, Any]:
        """One row a mask and two concepts: the share of the first's patches that is in the second."""
        start, end = np.indices((len(self.before), len(self.after))).reshape(2, -1)
        names = list(self.matrices)
        return {
            "mask": np.repeat(names, len(start)),
            "from concept": np.tile(start, len(names)),
            "to concept": np.tile(end, len(names)),
            "share": np.concatenate([self.matrices[name].ravel() for name in names]),
        }

    def thumbnails(self) -> list[tuple[str, np.ndarray]]:
        return [(name, heat(matrix)) for name, matrix in self.matrices.items()]


def layer_transitions(
    found: Atlas,
    model: str,
    layers: tuple[str, str],
    *,
    count: int = 5,
    radius: float | None = None,
    masks: dict[str, np.ndarray] | None = None,
    seed: int = 0,
) -> LayerTransitions:
    """Where patches go from one layer to another (Figure 10): `count` circles in each, around centres that lie far
    apart in the denser half of the patches.

    `masks` name sets of patches, bool (picture, patch), such as figure and ground; without any, all patches count. The
    radius is by default half the mean distance of a centre to its nearest neighbour, so circles may overlap a little.
    """
    placed = [np.asarray(found.spectral.of(model, layer, found.plane), np.float32) for layer in layers]
    if placed[0].shape != placed[1].shape:
        raise SettingsError("the layers have different patches", given=[part.shape[:2] for part in placed])
    flat = [part.reshape(-1, 2) for part in placed]
    dense = [part[_dense(part, count, seed)] for part in flat]
    centres = [part[farthest_points(part, min(count, len(part)), seed)] for part in dense]
    if radius is None:
        radius = float(np.mean([_gap(part) for part in centres])) / 2
    members = [
        np.linalg.norm(part[None] - middle[:, None], axis=2) <= radius
        for part, middle in zip(flat, centres, strict=True)
    ]
    given = {"all patches": np.ones(placed[0].shape[:2], bool)} if masks is None else masks
    for name, mask in given.items():
        if np.shape(mask) != placed[0].shape[:2]:
            raise SettingsError(
                f"the mask {name!r} is (picture, patch)", given=np.shape(mask), accepted=str(placed[0].shape[:2])
            )
    matrices = {
        name: transitions(members[0], members[1], np.asarray(mask, bool).ravel()) for name, mask in given.items()
    }
    return LayerTransitions(model, layers, centres[0], centres[1], radius, matrices)


def _dense(points: np.ndarray, least: int, seed: int) -> np.ndarray:
    """Positions of a sample of points: the half whose neighbours are nearest, `least` at least."""
    from scipy.spatial import cKDTree

    some = np.random.default_rng(seed).permutation(len(points))[: max(DENSE, least)]
    away = cKDTree(points[some]).query(points[some], min(NEIGHBOURS, len(some)))[0][:, -1]
    return some[np.argsort(away, kind="stable")[: max(least, len(some) // 2)]]


def _gap(centres: np.ndarray) -> float:
    """Mean distance of a centre to its nearest neighbour."""
    away = np.linalg.norm(centres[:, None] - centres[None], axis=2)
    np.fill_diagonal(away, np.inf)
    return float(away.min(1).mean()) if len(centres) > 1 else float("inf")


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """Positions of the largest values, largest first."""
    count = min(count, len(values))
    some = np.argpartition(-values, count - 1)[:count]
    return some[np.lexsort((some, -values[some]))]
