"""What `vt.structure` finds: a frozen value with the numbers of section 4.2 of its paper, that can be saved."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vitreous.errors import StoreError
from vitreous.finding import Finding, shades
from vitreous.provenance import json_bytes, replace_file

FORMAT, VERSION = "vitreous structure finding", 1
REQUIRED = ("labels", "dead", "nearly_dead", "to_anchor", "differences")  # arrays of every file
OPTIONAL = ("distances", "transformed")
REMEDY = "save the finding again"


class Copies(NamedTuple):
    """Units that are in a cluster without being its anchor, in flat order.

    `units` and `anchors` are (copy, (layer, token, channel)); `distances` (copy,) is how far a unit is from its anchor,
    in steps of the transform a sample. A unit can be near others that are near the anchor and yet be far from it.
    """

    units: np.ndarray
    anchors: np.ndarray
    distances: np.ndarray


@dataclass(frozen=True, eq=False)
class StructureFinding(Finding):
    """Clusters of units over layers, and the numbers of section 4.2.

    `labels` int64 (layer, token, channel): cluster or -1; `dead` bool, constant over all samples; `nearly_dead` bool,
    at one and the same value on all but about a hundredth of them: such units come out alike whatever the tie rule.
    `to_anchor` float64: the distance to the anchor of its cluster a sample, NaN for units of no cluster.
    `differences` (layer,) is the mean distance of a layer's units to all units on a scale of 0 to 255, where 255 stands
    for `farthest`, the largest distance of any two. Only if asked for: `distances`, the whole matrix (unit, unit), and
    `transformed` (unit, sample), what the distances are taken between.
    """

    labels: np.ndarray
    dead: np.ndarray
    nearly_dead: np.ndarray
    to_anchor: np.ndarray
    differences: np.ndarray
    farthest: float
    layers: tuple[str, ...]
    tokens: tuple[int, ...]
    settings: Mapping[str, Any]
    distances: np.ndarray | None = None
    transformed: np.ndarray | None = None

    # -- clusters of two or more

    @cached_property
    def clusters(self) -> tuple[np.ndarray, ...]:
        """Members (member, (layer, token, channel)) of each cluster, in flat order: the first is its anchor."""
        order = np.argsort(self.labels, axis=None, kind="stable")
        sizes = np.bincount(self.labels.ravel() + 1, minlength=1)
        parts = np.split(order[sizes[0] :], np.cumsum(sizes[1:])[:-1]) if len(sizes) > 1 else []
        return tuple(np.stack(np.unravel_index(part, self.labels.shape), 1) for part in parts)

    @property
    def anchors(self) -> np.ndarray:
        """(cluster, (layer, token, channel)): the first member of each."""
        return np.array([members[0] for members in self.clusters], int).reshape(-1, 3)

    @property
    def spans(self) -> np.ndarray:
        """(cluster, 2): first and last layer of each."""
        return np.array([(m[:, 0].min(), m[:, 0].max()) for m in self.clusters], int).reshape(-1, 2)

    @property
    def sizes(self) -> np.ndarray:
        return np.array([len(members) for members in self.clusters], int)

    @property
    def largest(self) -> int:
        return int(self.sizes.max(initial=0))

    @property
    def inefficient(self) -> np.ndarray:
        """bool (cluster,): whether it skips a layer between its first and its last."""
        present = np.array([len(set(members[:, 0].tolist())) for members in self.clusters], int)
        return self.spans[:, 1] - self.spans[:, 0] + 1 > present

    @property
    def copies(self) -> Copies:
        """Candidates for pruning: units that follow an anchor, and how closely."""
        copy = (self.labels >= 0).ravel()
        copy[np.ravel_multi_index(tuple(self.anchors.T), self.labels.shape)] = False
        units = np.stack(np.unravel_index(np.flatnonzero(copy), self.labels.shape), 1)
        anchors = self.anchors[self.labels.ravel()[copy]]
        return Copies(units, anchors, self.to_anchor.ravel()[copy])

    # -- groups: clusters, and every other unit as a group of one

    @property
    def counted(self) -> np.ndarray:
        """bool (layer, token, channel): units that could join a cluster; dead ones, and those left out, could not."""
        return ~self.dead if self.settings["keep_nearly_dead"] else ~(self.dead | self.nearly_dead)

    @property
    def group_sizes(self) -> np.ndarray:
        """Sizes of all groups: the clusters, then a 1 for every counted unit of no cluster."""
        return np.concatenate([self.sizes, np.ones(int((self.counted & (self.labels < 0)).sum()), int)])

    @property
    def mean_size(self) -> float:
        """Units a group, as in Table 12."""
        return float(self.group_sizes.mean())

    @property
    def counts(self) -> np.ndarray:
        """(layer,): how many groups have a unit in it."""
        alone = (self.counted & (self.labels < 0)).sum((1, 2))
        return alone + [len(np.unique(layer[layer >= 0])) for layer in self.labels]

    def histogram(self, width: int = 10, end: int = 200) -> tuple[np.ndarray, np.ndarray]:
        """Cluster sizes in bins of `width` up to `end`: (count, edge); larger ones are in the last bin."""
        edges = np.arange(0, end + width, width)
        counts, _ = np.histogram(np.minimum(self.sizes, end), edges)
        return counts, edges

    # -- as a table

    def facts(self) -> dict[str, Any]:
        return {
            "units": self.labels.size,
            "in_clusters": int((self.labels >= 0).sum()),
            "clusters": len(self.sizes),
            "mean_size": self.mean_size,
            "largest": self.largest,
            "inefficient": int(self.inefficient.sum()),
            "dead": int(self.dead.sum()),
            "nearly_dead": int(self.nearly_dead.sum()),
        }

    def columns_of_rows(self) -> dict[str, Any]:
        """A row a unit, in flat order."""
        layer, token, channel = (part.ravel() for part in np.indices(self.labels.shape))
        found: dict[str, Any] = {"layer": np.array(self.layers)[layer], "token": np.array(self.tokens)[token]}
        named = {"cluster": "labels", "dead": "dead", "nearly_dead": "nearly_dead", "to_anchor": "to_anchor"}
        return found | {"channel": channel} | {key: self.__dict__[name].ravel() for key, name in named.items()}

    def thumbnails(self) -> list[tuple[str, np.ndarray]]:
        """Layers (row) by the channels of a token: units of one cluster have one colour, units of none are grey."""
        names = [f"token {token}: layers by channels" for token in self.tokens]
        return [(name, shades(self.labels[:, k])) for k, name in enumerate(names)]

    # -- on disk

    def save(self, path: str | Path) -> None:
        """One file, in numpy's npz format, with layers and settings as JSON under "about". No pickles in it."""
        path = Path(path)
        about = {"format": FORMAT, "version": VERSION, "layers": list(self.layers), "tokens": list(self.tokens)}
        about |= {"farthest": self.farthest, "settings": dict(self.settings)}
        arrays: dict[str, np.ndarray] = {"about": np.frombuffer(json_bytes(about), np.uint8)}
        arrays |= {name: self.__dict__[name] for name in REQUIRED}
        arrays |= {name: self.__dict__[name] for name in OPTIONAL if self.__dict__[name] is not None}
        file = io.BytesIO()
        np.savez(file, allow_pickle=False, **arrays)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, file.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> StructureFinding:
        """What `save` wrote. A file that is damaged, or is something else, is refused."""
        try:
            about, arrays = _read(Path(path))
            finding = cls(
                **arrays,
                farthest=about["farthest"],
                layers=tuple(about["layers"]),
                tokens=tuple(about["tokens"]),
                settings=about["settings"],
            )
            _check(finding, path)
        except FileNotFoundError:
            raise StoreError("no structure finding here", given=str(path)) from None
        except StoreError:
            raise
        # what zipfile, numpy and json say of files that are cut short, altered or foreign
        except (zipfile.BadZipFile, OSError, EOFError, ValueError, LookupError, TypeError, RuntimeError) as error:
            accepted = "what StructureFinding.save wrote"
            raise StoreError(f"not a structure finding: {path}: {error}", accepted=accepted, remedy=REMEDY) from None
        return finding


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    with zipfile.ZipFile(path) as archive:
        if (broken := archive.testzip()) is not None:
            raise StoreError(f"a damaged structure finding: {path}", given=broken, remedy=REMEDY)
    with np.load(path, allow_pickle=False) as file:
        about = json.loads(file["about"].tobytes())
        if about["format"] != FORMAT:
            raise KeyError(FORMAT)
        if about["version"] != VERSION:
            given, accepted = about["version"], str(VERSION)
            raise StoreError("a structure finding of another version", given=given, accepted=accepted, remedy=REMEDY)
        names = [*REQUIRED, *(name for name in OPTIONAL if name in file.files)]
        return about, {name: file[name] for name in names}


def _check(finding: StructureFinding, path: str | Path) -> None:
    """Whether the parts fit together: a file can be whole and yet be made up."""
    shape = finding.labels.shape
    units = int(np.prod(shape))
    wanted: dict[str, tuple[int, ...]] = {name: shape for name in ("dead", "nearly_dead", "to_anchor")}
    wanted |= {"differences": shape[:1], "distances": (units, units)}
    wanted |= {"transformed": (units, finding.settings["samples"])}
    found = {name: array.shape for name in wanted if (array := finding.__dict__[name]) is not None}
    wrong = {name: given for name, given in found.items() if given != wanted[name]}
    if wrong or shape[:2] != (len(finding.layers), len(finding.tokens)) or len(shape) != 3:
        raise StoreError(f"the parts of {path} do not fit together", given={"labels": shape, **wrong})
