"""Normalized cut over patches of many pictures, layers and models (AlignedCut, section 2.2 and C.5).

    paper   here            axes              what it is
    V'      features        node channel      aligned features; a node is a patch of a picture at a layer of a model
    A       affinity        node node         exp(cos - 1), never filled above a size
    X       eigenvectors    node eigenvector  of D^-1/2 A D^-1/2, largest eigenvalue first, eq. 3
    m       n_sample        -                 nodes whose own graph is solved
    K       k               -                 nearest of them that carry a vector to another node, eq. 4

Where we differ: above `EXACT` nodes the default is a low-rank route in which all nodes count (`kernels/ncut.py`), more
exact and faster than the paper's, which is `method="paper"`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.checks import whole
from vitreous.errors import SettingsError
from vitreous.finding import Finding, heat
from vitreous.lenses.align_checks import checked_affinity, device_of
from vitreous.lenses.align_nodes import Nodes, Read, open_nodes, square
from vitreous.progress import tqdm

if TYPE_CHECKING:
    from torch import Tensor

    from vitreous.kernels.ncut import Cut, Placer

METHODS = ("auto", "exact", "low_rank", "paper")
EXACT = 4096  # nodes up to which the whole matrix is solved
PIECE = 16_384  # nodes that are looked at together
LANDMARKS, PAPER_SAMPLE = 512, 10_000
NODE = ("model", "layer")
VECTORS, ABOUT, PLACER = "eigenvectors.npy", "spectral.json", "placer.npz"


@dataclass(frozen=True, eq=False)
class Spectral(Finding):
    """`eigenvectors` float32 (node, eigenvector), `eigenvalues` (eigenvector,), largest first.

    `blocks` says which nodes belong to which layer of which model: (model, layer) -> (first, last + 1, pictures,
    patches), `grids` how the patches of a layer lie (rows, columns), where that is known. `settings` says how it was
    made.
    """

    eigenvectors: np.ndarray
    eigenvalues: np.ndarray
    blocks: dict[tuple[str, str], tuple[int, int, int, int]]
    settings: dict[str, Any]
    grids: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    _place: Callable[[Tensor], Tensor] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.eigenvectors)

    @property
    def method(self) -> str:
        return str(self.settings["method"])

    def block(self, model: str, layer: str) -> tuple[int, int, int, int]:
        """(first node, last + 1, pictures, patches) of one layer."""
        if (model, layer) not in self.blocks:
            raise SettingsError("no such layer", given=(model, layer), accepted=[" ".join(key) for key in self.blocks])
        return self.blocks[model, layer]

    def grid(self, model: str, layer: str) -> tuple[int, int]:
        """(rows, columns) of the patches of one layer; a square where nothing else is known."""
        return self.grids.get((model, layer)) or square(self.block(model, layer)[3])

    def of(self, model: str = "", layer: str = "", values: np.ndarray | None = None) -> np.ndarray:
        """(picture, patch, …) of one layer: its eigenvectors, or its part of `values` (node, …)."""
        first, last, pictures, patches = self.block(model, layer)
        part = (self.eigenvectors if values is None else np.asarray(values))[first:last]
        return part.reshape(pictures, patches, *part.shape[1:])

    def facts(self) -> dict[str, Any]:
        models = list(dict.fromkeys(model for model, _ in self.blocks))
        found = {"nodes": len(self), "models": ", ".join(models), "layers": len(self.blocks)}
        return found | {"eigenvectors": len(self.eigenvalues), "method": self.method}

    def places(self) -> dict[str, Any]:
        """What every node is: columns model, layer, picture and patch."""
        parts = [(*slot, *np.divmod(np.arange(p * n), n)) for slot, (_, _, p, n) in self.blocks.items()]
        found = {name: np.concatenate([part[k] for part in parts]) for k, name in ((2, "picture"), (3, "patch"))}
        named = {name: np.repeat([p[k] for p in parts], [len(p[2]) for p in parts]) for k, name in enumerate(NODE)}
        return named | found

    def columns_of_rows(self) -> dict[str, Any]:
        """A row a node, with its eigenvectors."""
        return self.places() | {f"eigenvector {k}": v for k, v in enumerate(np.asarray(self.eigenvectors).T)}

    def thumbnails(self) -> list[tuple[str, np.ndarray]]:
        """The second eigenvector over the first picture, layer by layer; nodes on no grid have none."""
        slots = [slot for slot in self.blocks if slot in self.grids]
        second = min(1, len(self.eigenvalues) - 1)
        return [(" ".join(s), heat(self.of(*s)[0, :, second].reshape(self.grids[s]))) for s in slots]

    def transform(self, new: np.ndarray) -> np.ndarray:
        """(…, channel) of new nodes -> (…, eigenvector)."""
        if self._place is None:
            raise SettingsError(
                "this cut was loaded from a file that cannot place new nodes",
                given=f"method {self.method}, affinity {self.settings['affinity']}",
                accepted="methods exact and low_rank with the affinity exp_cos",
                remedy="run vt.ncut again on its features",
            )
        import torch

        given = np.asarray(new)
        if given.ndim < 2 or given.shape[-1] != self.settings["channels"]:
            raise SettingsError(
                "new nodes have other channels", given=given.shape, accepted=f"(…, {self.settings['channels']})"
            )
        if not np.isfinite(given).all():
            raise SettingsError("some new nodes are not finite", given=given.shape, remedy="leave them out")
        rows = torch.from_numpy(np.ascontiguousarray(given.reshape(-1, given.shape[-1]), np.float32))
        device = self.settings["device"]
        parts = [self._place(part.to(device)).cpu() for part in rows.split(PIECE)]
        return torch.cat(parts).numpy().reshape(*given.shape[:-1], len(self.eigenvalues))

    def save(self, folder: str | Path) -> Path:
        """Eigenvectors as `.npy`, the rest as JSON; and what `transform` needs, but for the method "paper" and for an
        affinity of your own."""
        import json

        from vitreous.kernels.ncut import Placer

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / VECTORS, self.eigenvectors)
        (folder / PLACER).unlink(missing_ok=True)
        if isinstance(self._place, Placer) and self.settings["affinity"] == "exp_cos":
            kept = {"landmarks": self._place.landmarks.float(), "mix": self._place.mix, "degrees": self._place.degrees}
            arrays = {name: value.cpu().numpy() for name, value in kept.items()}
            np.savez(folder / PLACER, allow_pickle=False, **arrays)
        layers = [
            {"model": model, "layer": layer, "nodes": place, "grid": self.grids.get((model, layer))}
            for (model, layer), place in self.blocks.items()
        ]
        about = {"settings": self.settings, "eigenvalues": self.eigenvalues.tolist(), "layers": layers}
        (folder / ABOUT).write_text(json.dumps(about, indent=1) + "\n")
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Spectral:
        """What `save` wrote; eigenvectors are read where they are looked at."""
        import json
        from zipfile import BadZipFile

        folder = Path(folder)
        try:
            about = json.loads((folder / ABOUT).read_text())
            values = np.array(about["eigenvalues"], np.float32)
            places = {(one["model"], one["layer"]): tuple(one["nodes"]) for one in about["layers"]}
            grids = {(one["model"], one["layer"]): tuple(one["grid"]) for one in about["layers"] if one["grid"]}
            vectors = read_array(folder / VECTORS)
            ends = [0, *(last for _, last, *_ in places.values())]
            wanted = [(first, first + pictures * patches) for first, _, pictures, patches in places.values()]
            if vectors.shape != (ends[-1], len(values)) or wanted != list(pairwise(ends)):
                raise ValueError("the parts do not fit together")
            settings = about["settings"] | {"device": "cpu"}
            return cls(vectors, values, places, settings, grids, _placer(folder / PLACER))
        except (OSError, ValueError, KeyError, TypeError, BadZipFile, EOFError, RecursionError) as error:
            raise SettingsError(
                "not a saved cut, or a damaged one", given=str(folder), remedy="run vt.ncut again"
            ) from error


def read_array(path: Path) -> np.ndarray:
    """A saved array, mapped and not read."""
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(found, np.ndarray):  # several arrays in one file
            found.close()
            raise ValueError("not one array")
        return found
    except (OSError, ValueError, EOFError) as error:
        raise SettingsError(
            "this array of the cut cannot be read", given=str(path), remedy="run vt.ncut again"
        ) from error


def ncut(
    features: Any,
    n_eig: int = 20,
    *,
    method: str = "auto",
    n_sample: int | None = None,
    k: int = 100,
    affinity: str | Callable[[Tensor], Tensor] = "exp_cos",
    sites: str = "blocks.*.attn.out",
    tokens: str = "patches",
    read: Read | None = None,
    seed: int = 0,
    device: str | None = None,
    progress: bool = True,
) -> Spectral:
    """Cuts a graph of nodes: arrays (node, channel) or (sample, token, channel), a store, or {model: store}.

    `method` is "exact", "low_rank", "paper", or "auto": exact up to 4,096 nodes, low rank above. `n_sample` are the
    landmarks (512), or the nodes of the paper's sub-graph (10,000; the paper takes 50,000), `k` its nearest neighbours.
    `affinity` maps cosines to affinities. `read(features, model, layer)` is applied to what is read, for example an
    alignment's `transform`. Stores are read piece by piece: nodes need not fit in memory.

    >>> spectral = vt.ncut({"text": store_a, "mae": store_b}, read=alignment.transform)
    >>> spectral.of("text", "blocks.5.attn.out")  # (picture, patch, eigenvector)
    """
    import torch

    whole(0, seed=seed)
    whole(1, n_eig=n_eig, k=k, **({} if n_sample is None else {"n_sample": n_sample}))
    where = device_of(device)
    nodes = open_nodes(features, sites=sites, tokens=tokens, read=read)
    count = len(nodes)
    if method not in METHODS:
        raise SettingsError("unknown method", given=method, accepted=METHODS)
    if n_eig >= count:
        raise SettingsError("a graph has fewer eigenvectors than nodes", given=f"{n_eig} of {count} nodes")
    chosen = ("exact" if count <= EXACT else "low_rank") if method == "auto" else method
    weigh = _affinity(affinity)
    sample = _sample(count, n_eig, n_sample, chosen)
    k = min(k, sample or k)

    def pieces() -> Iterator[Tensor]:
        with tqdm(total=count, desc="ncut", unit="node", disable=not progress, delay=1) as bar:
            for piece in one_ahead(nodes.pieces(PIECE)):
                yield torch.from_numpy(piece).to(where)
                bar.update(len(piece))

    cut = _checked_cut(affinity, n_eig, chosen, nodes, pieces, sample, k, weigh, seed, where)
    settings = {"method": chosen, "n_sample": sample, "k": k if chosen == "paper" else None, "seed": seed}
    settings |= {"affinity": affinity if isinstance(affinity, str) else "own", "channels": nodes.channels}
    settings |= {"device": str(where), "read": read is not None}
    grids = {(block.model, block.layer): block.grid for block in nodes.blocks if block.grid is not None}
    return Spectral(cut.vectors.cpu().numpy(), cut.values.cpu().numpy(), nodes.places(), settings, grids, cut.place)


def _placer(path: Path) -> Placer | None:
    import io

    import torch

    from vitreous.kernels.ncut import Placer

    if not path.exists():
        return None
    with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
        landmarks, mix, degrees = (torch.from_numpy(stored[name]) for name in ("landmarks", "mix", "degrees"))
    if not (landmarks.ndim == mix.ndim == 2 and len(landmarks) == len(mix) == len(degrees)):
        raise ValueError("the parts do not fit together")
    return Placer(landmarks, mix, degrees)


def one_ahead(pieces: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """The same pieces; while one is worked on, the next is read in a thread."""
    with ThreadPoolExecutor(1, "vitreous-nodes") as pool:
        coming = pool.submit(next, pieces, None)
        while (piece := coming.result()) is not None:
            coming = pool.submit(next, pieces, None)
            yield piece


def _affinity(affinity: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    from vitreous.kernels.ncut import exp_cos

    if callable(affinity):
        return checked_affinity(affinity)
    if affinity != "exp_cos":
        raise SettingsError("unknown affinity", given=affinity, accepted="exp_cos, or a function of cosines")
    return exp_cos


def _sample(count: int, n_eig: int, n_sample: int | None, method: str) -> int | None:
    """Landmarks or sampled nodes; no more than there are."""
    if n_sample is not None and not n_eig < n_sample <= count:
        raise SettingsError(
            "n_sample lies between the eigenvectors and the nodes", given=n_sample, accepted=f"{n_eig + 1} to {count}"
        )
    if method == "exact":
        return None
    least = 4 * n_eig
    return min(count, n_sample or max(least, LANDMARKS if method == "low_rank" else PAPER_SAMPLE))


def _checked_cut(given: Any, n_eig: int, *how: Any) -> Cut:
    from vitreous.kernels.ncut import NoKernelError

    try:
        cut = _cut(n_eig, *how)
    except NoKernelError as error:
        raise SettingsError(
            "this affinity is no kernel: it has large negative eigenvalues",
            given=given,
            remedy="method='paper', or 'exact' for few nodes",
        ) from error
    if cut.vectors.shape[1] < n_eig:
        raise SettingsError(
            "nodes and landmarks are too alike for so many eigenvectors",
            given=f"{n_eig} eigenvectors, a graph of rank {cut.vectors.shape[1]}",
            remedy="fewer eigenvectors, a larger n_sample, or method='exact' for few nodes",
        )
    if callable(given) and not bool(cut.vectors.isfinite().all()):
        raise SettingsError("this affinity leaves nodes without neighbours", given=given)
    return cut


def _cut(
    n_eig: int,
    method: str,
    nodes: Nodes,
    pieces: Callable[[], Iterator[Tensor]],
    sample: int | None,
    k: int,
    affinity: Callable[[Tensor], Tensor],
    seed: int,
    device: Any,
) -> Cut:
    import torch

    from vitreous.kernels import ncut as kernel

    if sample is None:
        return kernel.exact_cut(torch.cat(list(pieces())), n_eig, affinity)
    places = np.sort(np.random.default_rng(seed).choice(len(nodes), sample, replace=False))
    rows = kernel.unit_rows(torch.from_numpy(nodes.take(places)).to(device))
    if method == "paper":
        return kernel.paper_cut(pieces, rows, n_eig, k, affinity)
    mixed = torch.from_numpy(np.random.default_rng(seed).permutation(sample)).to(device)
    return kernel.low_rank_cut(pieces, rows[mixed], n_eig, max(2 * n_eig, sample // 4), affinity)
