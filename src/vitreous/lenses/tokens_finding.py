"""What `vt.token_maps` finds: a frozen value that can be cut, enlarged to the original pixels, saved and loaded."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vitreous.axes import Grid, Size
from vitreous.errors import SettingsError, StoreError
from vitreous.finding import Finding, heat
from vitreous.lenses.tokens_inputs import size_of
from vitreous.preprocess import Frame
from vitreous.provenance import json_bytes, replace_file

FORMAT, VERSION = "vitreous token maps", 1
Mode = Literal["nearest", "bilinear", "cubic", "bicubic"]  # cubic and bicubic are the same
MODES = ("nearest", "bilinear", "cubic", "bicubic")


@dataclass(frozen=True, eq=False)
class TokenMaps(Finding):
    """How much each input token counts for each latent token after one block.

    `scores` float32 (sample, token, source token) are the rows of eq. 5 as they come, prefix tokens and a token's own
    entry included; `tokens` are the numbers of the latent tokens. `maps` is what the paper calls S. Texts have no
    `grid` and no `frames`; text k has `lengths[k]` tokens, and its scores beyond are 0.
    """

    scores: np.ndarray
    tokens: tuple[int, ...]
    block: int
    prefix: tuple[str, ...]
    grid: Grid | None
    size: Size | None
    frames: tuple[Frame, ...] | None
    ids: tuple[str, ...]
    settings: Mapping[str, Any]
    lengths: np.ndarray | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        where = f"{self.grid.rows} x {self.grid.columns} patches" if self.grid else f"{self.scores.shape[2]} tokens"
        return f"TokenMaps({len(self)} samples, {len(self.tokens)} tokens after block {self.block}, over {where})"

    def __getitem__(self, key: int | slice | Sequence[int] | np.ndarray) -> TokenMaps:
        """The same for fewer samples."""
        at = np.atleast_1d(np.arange(len(self))[key if not isinstance(key, tuple) else list(key)])
        frames = None if self.frames is None else tuple(self.frames[k] for k in at)
        lengths = None if self.lengths is None else self.lengths[at]
        ids = tuple(self.ids[k] for k in at)
        return replace(self, scores=self.scores[at], frames=frames, ids=ids, lengths=lengths)

    def of(self, tokens: int | Sequence[int]) -> TokenMaps:
        """The same for fewer latent tokens, by their numbers."""
        wanted = [tokens] if isinstance(tokens, int | np.integer) else list(tokens)
        places = {token: k for k, token in enumerate(self.tokens)}
        if missing := [t for t in wanted if t not in places]:
            raise SettingsError("no map of this token", given=missing[0], accepted=[str(t) for t in self.tokens])
        kept = [places[t] for t in wanted]
        return replace(self, scores=self.scores[:, kept], tokens=tuple(int(t) for t in wanted))

    def token_at(self, row: int, column: int) -> int:
        """The number of the token of a patch."""
        if self.grid is None:
            raise SettingsError("texts have no grid", given=(row, column))
        if not (0 <= row < self.grid.rows and 0 <= column < self.grid.columns):
            raise SettingsError("no such patch", given=(row, column), accepted=f"below {tuple(self.grid)}")
        return len(self.prefix) + row * self.grid.columns + column

    @property
    def patches(self) -> np.ndarray:
        """Positions in `tokens` of those that stand for a patch (or a word): prefix tokens are left out."""
        return np.flatnonzero(np.asarray(self.tokens) >= len(self.prefix))

    @cached_property
    def maps(self) -> np.ndarray:
        """S of eq. 5: float32 (sample, token, row, column), or (text, token, source token) for texts.

        With `own="max_of_others"` a token's own entry, which the skip connections fill, is the largest of the others.
        """
        first = len(self.prefix)
        found = self.scores[:, :, first:].copy()
        if self.settings["own"] == "max_of_others":
            for k in self.patches:
                at = self.tokens[k] - first
                rest = np.delete(found[:, k], at, axis=1)
                found[:, k, at] = rest.max(1, initial=0)
        return found if self.grid is None else found.reshape(*found.shape[:2], *self.grid)

    @property
    def scaled(self) -> np.ndarray:
        """The maps brought to [0, 1], each by its own smallest and largest value; a map that is flat becomes 0."""
        axes = tuple(range(2, self.maps.ndim))
        low, high = (edge(self.maps, axis=axes, keepdims=True) for edge in (np.min, np.max))
        return (self.maps - low) / np.where(high > low, high - low, 1)

    def upsample(
        self, size: int | tuple[int, int] | None = None, mode: Mode = "bilinear", *, scale: bool = False
    ) -> list[np.ndarray]:
        """Maps float32 (token, height, width) of each picture, in its original pixels; NaN where the crop cut it off.

        With a `size`, or if the pictures' own sizes are not known, all are as large as that, or as the model's input.
        `mode` is "nearest", "bilinear" or "cubic", which "bicubic" is another name of.
        `scale` brings each map to [0, 1] first.
        """
        if self.grid is None:
            raise SettingsError("texts have no pixels", given=self)
        if mode not in MODES:
            raise SettingsError("unknown mode", given=mode, accepted=MODES)
        maps = self.scaled if scale else self.maps
        return [self.enlarge(k, one, mode, size) for k, one in enumerate(maps)]

    def enlarge(
        self, sample: int, maps: np.ndarray, mode: Mode = "bilinear", size: int | tuple[int, int] | None = None
    ) -> np.ndarray:
        """Any maps (..., row, column) on the patch grid of one sample, in the pixels that `upsample` would give."""
        assert self.size is not None
        by: Literal["nearest", "bilinear", "bicubic"] = "bicubic" if mode == "cubic" else mode
        if size is not None or self.frames is None:
            wanted = self.size if size is None else size_of(size)
            return Frame(wanted, self.size, 0, 0, self.size).to_pixels(maps, by)
        return self.frames[sample].to_pixels(maps, by)

    # -- as a table

    def facts(self) -> dict[str, Any]:
        made = {name: self.settings.get(name) for name in ("target", "order", "own")}
        return {"samples": len(self), "latent tokens": len(self.tokens), "block": self.block} | made

    def columns_of_rows(self) -> dict[str, Any]:
        """A row a sample, latent token and source token; what a text is too short for is left out."""
        sample, token, source = (part.ravel() for part in np.indices(self.scores.shape))
        found: dict[str, Any] = {"sample": np.array(self.ids)[sample], "token": np.array(self.tokens)[token]}
        found |= {"source": source, "score": self.scores.ravel()}
        if self.lengths is None:
            return found
        there = source < np.asarray(self.lengths)[sample]
        return {name: values[there] for name, values in found.items()}

    def thumbnails(self) -> list[tuple[str, np.ndarray]]:
        """Maps of tokens spread over the first picture; a text's are one picture, latent tokens by source tokens."""
        if not len(self):
            return []
        if self.grid is None:
            return [(f"{self.ids[0]}: tokens by source tokens", heat(self.scores[0]))]
        chosen = np.unique(np.linspace(0, len(self.tokens) - 1, 6).round().astype(int))
        return [(f"{self.ids[0]}, token {self.tokens[k]}", heat(self.maps[0, k])) for k in chosen]

    # -- on disk

    def save(self, path: str | Path) -> None:
        """One file: numpy's npz, or safetensors if the name ends so. What is no array is JSON in it; no pickles."""
        path = Path(path)
        arrays = {"scores": self.scores}
        if self.lengths is not None:
            arrays["lengths"] = self.lengths
        about = json_bytes(self._about())
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".safetensors":
            from safetensors.numpy import save

            replace_file(path, save(arrays, metadata={"about": about.decode()}))
            return
        file = io.BytesIO()
        np.savez(file, allow_pickle=False, about=np.frombuffer(about, np.uint8), **arrays)
        replace_file(path, file.getvalue())

    def _about(self) -> dict[str, Any]:
        frames = (
            None if self.frames is None else [[*f.original, *f.resized, f.top, f.left, *f.size] for f in self.frames]
        )
        return {
            "format": FORMAT,
            "version": VERSION,
            "tokens": list(self.tokens),
            "block": self.block,
            "prefix": list(self.prefix),
            "grid": self.grid,
            "size": self.size,
            "frames": frames,
            "ids": list(self.ids),
            "settings": dict(self.settings),
            "notes": list(self.notes),
        }

    @classmethod
    def load(cls, path: str | Path) -> TokenMaps:
        """What `save` wrote. A file that is damaged, or is something else, is refused."""
        try:
            about, arrays = _read(Path(path))
            return _made(about, arrays)
        except FileNotFoundError:
            raise StoreError("no token maps here", given=str(path)) from None
        # what zipfile, numpy, safetensors and json say of files that are cut short, altered or foreign
        except (zipfile.BadZipFile, OSError, EOFError, ValueError, LookupError, TypeError, RuntimeError) as error:
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            accepted = "what TokenMaps.save wrote"
            raise StoreError(f"not token maps: {path}: {said}", accepted=accepted, remedy="save them again") from None


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "numpy") as file:
                return json.loads(file.metadata()["about"]), {name: file.get_tensor(name) for name in file.keys()}
        except SafetensorError as error:
            raise ValueError(str(error)) from None
    with zipfile.ZipFile(path) as archive:
        if (broken := archive.testzip()) is not None:
            raise ValueError(f"damaged at {broken}")
    with np.load(path, allow_pickle=False) as file:
        return json.loads(file["about"].tobytes()), {name: file[name] for name in file.files if name != "about"}


def _made(about: dict[str, Any], arrays: dict[str, np.ndarray]) -> TokenMaps:
    if (about["format"], about["version"]) != (FORMAT, VERSION):
        raise ValueError(f"{about['format']}, version {about['version']}")
    grid, size, frames = about["grid"], about["size"], about["frames"]
    made = TokenMaps(
        arrays["scores"],
        tuple(about["tokens"]),
        about["block"],
        tuple(about["prefix"]),
        grid and Grid(*grid),
        size and Size(*size),
        frames and tuple(Frame(Size(*f[:2]), Size(*f[2:4]), f[4], f[5], Size(*f[6:])) for f in frames),
        tuple(about["ids"]),
        about["settings"],
        arrays.get("lengths"),
        tuple(about["notes"]),
    )
    sources = made.scores.shape[2] if made.grid is None else made.grid.patches + len(made.prefix)
    if made.scores.shape != (len(made.ids), len(made.tokens), sources):
        raise ValueError(f"parts that do not fit together: {made.scores.shape}")
    return made
