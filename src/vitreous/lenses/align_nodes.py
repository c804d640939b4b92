"""The nodes of a graph: patches of pictures at layers of models, read from arrays or stores when they are wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.errors import SettingsError

if TYPE_CHECKING:
    from vitreous.store import Store

Read = Callable[[np.ndarray, str, str], np.ndarray]  # (…, channel), model, layer -> (…, channel)


@dataclass(frozen=True, eq=False)
class Block:
    """All nodes of one layer of one model. `array` (sample, token, channel) is read when it is indexed; `first` is the
    first token that counts; `grid` (rows, columns) is how the patches lie, where that is known."""

    model: str
    layer: str
    array: Any
    first: int = 0
    read: Read | None = None
    grid: tuple[int, int] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.array), self.array.shape[1] - self.first

    def __len__(self) -> int:
        samples, tokens = self.shape
        return samples * tokens

    @property
    def channels(self) -> int:
        return self.samples(slice(0, 1)).shape[2]

    def samples(self, rows: Any) -> np.ndarray:
        """(sample, token, channel), float32."""
        part = np.asarray(self.array[rows], np.float32)[:, self.first :]
        if self.read is None:
            return part
        found = np.asarray(self.read(part, self.model, self.layer))
        if found.ndim != 3 or found.shape[:2] != part.shape[:2] or found.dtype.kind not in "fiu":
            raise SettingsError(
                "read= gives numbers (…, channel) for the patches that it is given",
                given=f"{found.dtype} {found.shape} for {part.shape}",
            )
        return found.astype(np.float32, copy=False)


@dataclass(frozen=True, eq=False)
class Nodes:
    """Blocks one after the other; inside a block pictures, inside a picture patches."""

    blocks: tuple[Block, ...]
    channels: int

    def __len__(self) -> int:
        return sum(map(len, self.blocks))

    def places(self) -> dict[tuple[str, str], tuple[int, int, int, int]]:
        """(model, layer) -> (first node, last + 1, pictures, patches)."""
        found, first = {}, 0
        for block in self.blocks:
            found[block.model, block.layer] = (first, first + len(block), *block.shape)
            first += len(block)
        return found

    def pieces(self, size: int) -> Iterator[np.ndarray]:
        """(node, channel), about `size` nodes at a time, whole pictures."""
        for block in self.blocks:
            samples, tokens = block.shape
            step = max(1, size // max(1, tokens))
            for start in range(0, samples, step):
                part = block.samples(slice(start, start + step))
                yield finite(part, block, range(start, samples)).reshape(-1, self.channels)

    def take(self, places: np.ndarray) -> np.ndarray:
        """(place, channel) of any nodes, in the order asked for."""
        found = np.empty((len(places), self.channels), np.float32)
        first = 0
        for block in self.blocks:
            here = np.flatnonzero((places >= first) & (places < first + len(block)))
            tokens = block.shape[1]
            sample, token = np.divmod(places[here] - first, tokens)
            wanted, where = np.unique(sample, return_inverse=True)
            for some in np.array_split(np.arange(len(wanted)), max(1, len(wanted) // 64)):
                if len(some):
                    part = finite(block.samples(wanted[some]), block, wanted[some])
                    mine = (where >= some[0]) & (where <= some[-1])
                    found[here[mine]] = part[where[mine] - some[0], token[mine]]
            first += len(block)
        return found


def finite(part: np.ndarray, block: Block, pictures: Sequence[int] | np.ndarray) -> np.ndarray:
    """The part (picture, token, channel) itself; `pictures` are their numbers, which a refusal names."""
    good = np.isfinite(part).all((1, 2))
    if not good.all():
        first = pictures[int(good.argmin())]
        where = f"{block.model} {block.layer}, picture {first}" if block.model or block.layer else f"row {first}"
        raise SettingsError("some features are not finite", given=where, remedy="leave those pictures out")
    return part


def open_nodes(
    source: Any,
    *,
    sites: str = "blocks.*.attn.out",
    tokens: str = "patches",
    read: Read | None = None,
    same_width: bool = True,
) -> Nodes:
    """What `vt.ncut` takes: an array (…, channel), a store, or by name of the model stores or {layer: array}.

    Nodes of one graph have the same channels; an alignment, which makes them the same, says `same_width=False`.
    """
    from vitreous.store import Store

    if isinstance(source, Nodes):
        return source
    if tokens not in ("patches", "all"):
        raise SettingsError("unknown choice of tokens", given=tokens, accepted=("patches", "all"))
    if isinstance(source, Store):
        source = {str(source.manifest.model["name"]): source}
    if isinstance(source, Mapping):
        blocks = [
            block
            for name, part in source.items()
            for block in (
                [_of_array(array, str(name), str(layer), read) for layer, array in part.items()]
                if isinstance(part, Mapping)
                else _of_store(str(name), part, sites, tokens, read)
            )
        ]
    else:
        blocks = [_of_array(source, read=read)]
    if not blocks or not sum(map(len, blocks)):
        raise SettingsError("there is nothing to cut: no nodes were given", given=source)
    widths = {block.channels for block in blocks}
    if len(widths) > 1 and same_width:
        raise SettingsError(
            "nodes of one graph have the same channels", given=sorted(widths), remedy="align the models first: vt.align"
        )
    return Nodes(tuple(blocks), max(widths))


def _of_array(source: Any, model: str = "", layer: str = "", read: Read | None = None) -> Block:
    array = np.asarray(source)
    if array.ndim < 2 or not array.size or array.dtype.kind not in "fiu":
        raise SettingsError(
            "features are numbers (node, channel) or (sample, token, channel)", given=f"{array.dtype} {array.shape}"
        )
    return Block(model, layer, array.reshape(len(array), -1, array.shape[-1]), read=read)


def _of_store(name: str, store: Store, sites: str, tokens: str, read: Read | None) -> list[Block]:
    from fnmatch import fnmatchcase

    names = [site for site in store.sites if fnmatchcase(site, sites)]
    if not names:
        raise SettingsError(f"the store of {name} has no such sites", given=sites, accepted=store.sites)
    first = len(store.prefix) if tokens == "patches" else 0
    if first and store.manifest.settings["tokens"] != "all":
        raise SettingsError(
            "the store holds random tokens, which cannot be told apart from patches",
            given=store.manifest.settings["tokens"],
            remedy="tokens='all', or record all tokens",
        )
    return [Block(name, site, store[site], first, read, _grid_of(store, site, first)) for site in names]


def _grid_of(store: Store, site: str, first: int) -> tuple[int, int] | None:
    grid = store.grid(site)
    return None if grid is None or grid.patches != store[site].shape[1] - first else (grid.rows, grid.columns)


def square(patches: int) -> tuple[int, int]:
    """(rows, columns) of patches that lie in a square."""
    side = round(patches**0.5)
    if side * side != patches:
        raise SettingsError("patches do not fill a square", given=patches, remedy="cut with tokens='patches'")
    return side, side


def unit_length(rows: np.ndarray) -> np.ndarray:
    """(…, channel), each of length 1; zeros stay zeros."""
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), np.finfo(np.float32).tiny)
