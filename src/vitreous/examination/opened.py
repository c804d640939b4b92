"""A run folder, opened: every part is read when it is asked for, and a damaged one is refused by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

import vitreous.examination.files as files
from vitreous.axes import Grid, Size
from vitreous.errors import SettingsError, StoreError, VitreousError
from vitreous.examination.classes import Classes
from vitreous.examination.profiles import Profile
from vitreous.finding import Finding, columns
from vitreous.mirrors import read_from
from vitreous.notes import Note, read_notes
from vitreous.preprocess import Preprocess

if TYPE_CHECKING:
    from PIL.Image import Image

    from vitreous.labels import Labels
    from vitreous.lenses.align_cut import Spectral
    from vitreous.lenses.disentangle_finding import Disentanglement
    from vitreous.lenses.structure_finding import StructureFinding
    from vitreous.lenses.tokens_finding import TokenMaps
    from vitreous.models.subject import Subject
    from vitreous.store import Store

T = TypeVar("T")
LARGEST_TILE = 20_000_000  # pixels of a kept picture; ours have at most 512 x 512


@dataclass(frozen=True)
class ModelEntry:
    """One examined model: how it is called here, and how it is loaded again."""

    name: str
    source: str
    weights: str | None
    settings: Mapping[str, Any]
    fingerprint: str
    about: str
    depth: int
    width: int
    grid: Grid
    prefix: tuple[str, ...]
    blocks: tuple[int, ...]
    preprocess: Preprocess

    @property
    def sites(self) -> tuple[str, ...]:
        """Sites whose units were examined."""
        return tuple(f"blocks.{block}.mlp.out" for block in self.blocks)


@dataclass(frozen=True, eq=False)
class Pictures:
    """The pictures of a run, kept in it at 512 pixels or less; `close` are those that were looked at closely."""

    folder: Path
    names: tuple[str, ...]
    files: tuple[str, ...]
    close: tuple[int, ...]
    source: str
    fingerprint: str

    def __len__(self) -> int:
        return len(self.names)

    def path(self, picture: int) -> Path:
        if not 0 <= picture < len(self):
            raise SettingsError("no such picture", given=picture, accepted=f"0 to {len(self) - 1}")
        return self.folder / self.files[picture]

    def image(self, picture: int) -> Image:
        """The whole picture, RGB."""
        from PIL import Image as pil

        path = self.path(picture)
        try:
            with pil.open(path) as opened:
                if opened.width * opened.height > LARGEST_TILE:
                    raise ValueError(f"{opened.width} x {opened.height} pixels")
                return opened.convert("RGB")
        except FileNotFoundError:
            raise StoreError("a picture of the run is missing", given=path.name, remedy=files.AGAIN) from None
        except (OSError, ValueError, SyntaxError, EOFError) as error:
            raise StoreError(
                f"a picture of the run cannot be read: {error}", given=path.name, remedy=files.AGAIN
            ) from None

    def seen(self, picture: int, preprocess: Preprocess) -> Image:
        """What a model sees of the picture: cut as it is for the model, in the picture's own pixels."""
        image = self.image(picture)
        frame = preprocess.frame(Size(image.height, image.width))
        fy, fx = image.height / frame.resized.height, image.width / frame.resized.width
        left, right = round(frame.left * fx), round((frame.left + frame.size.width) * fx)
        top, bottom = round(frame.top * fy), round((frame.top + frame.size.height) * fy)
        cut = (left, top, right, bottom)
        return image if cut == (0, 0, image.width, image.height) else image.crop(cut)


@dataclass(frozen=True, eq=False)
class Examination(Finding):
    """What `vt.examine` found, in its folder. Parts are read when they are asked for.

    `absent` says why a part is not there, as "part/model" -> reason; `missing(part, model)` also looks whether it can
    be read.
    """

    folder: Path
    models: tuple[ModelEntry, ...]
    pictures: Pictures
    settings: Mapping[str, Any]
    absent: Mapping[str, str]
    _kept: dict[str, Any] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        names = ", ".join(entry.name for entry in self.models)
        return f"Examination({self.folder.name!r}: {names} on {len(self.pictures)} pictures)"

    def facts(self) -> dict[str, Any]:
        return {"run": self.folder.name, "models": len(self.models), "pictures": len(self.pictures)}

    def columns_of_rows(self) -> dict[str, Any]:
        """A row a unit that has a card."""
        return columns([dict(zip(("model", "block", "unit"), ids, strict=True)) for ids in self.unit_ids])

    def model(self, name: str) -> ModelEntry:
        for entry in self.models:
            if entry.name == name:
                return entry
        raise SettingsError("no such model in this run", given=name, accepted=[entry.name for entry in self.models])

    def subject(self, name: str, device: str = "auto") -> Subject:
        """The model itself, loaded again; refused if its weights are not the ones that were examined."""
        from vitreous.subjects import load

        entry = self.model(name)
        subject = load(entry.source, weights=entry.weights, device=device, **entry.settings)
        if subject.fingerprint != entry.fingerprint:
            raise StoreError(
                f"{entry.source} has other weights than the model that was examined",
                given=subject.fingerprint[:12],
                accepted=entry.fingerprint[:12],
                remedy="the same weights file, or examine again",
            )
        return subject

    # -- the parts

    def store(self, model: str) -> Store:
        from vitreous.store import Store

        return self._part(f"{files.STORES}/{self.model(model).name}", Store.open)

    def structure(self, model: str) -> StructureFinding:
        from vitreous.lenses.structure_finding import StructureFinding

        return self._part(f"{files.STRUCTURE}/{self.model(model).name}.npz", StructureFinding.load)

    def near(self, model: str) -> tuple[np.ndarray, np.ndarray]:
        """Nearest units in the stream, int32 (layer, token, channel, place) flat numbers, and distances a sample."""
        found = self._part(f"{files.STRUCTURE}/{self.model(model).name}-near.npz", _load_near)
        return found["units"], found["distances"]

    def disentanglement(self, model: str, block: int) -> Disentanglement:
        from vitreous.lenses.disentangle_finding import Disentanglement

        return self._part(f"{files.DISENTANGLE}/{self._site(model, block)}", Disentanglement.load)

    def profile(self, model: str, block: int) -> Profile:
        return self._part(f"{files.PROFILES}/{self._site(model, block)}.npz", Profile.load)

    def token_maps(self, model: str, block: int) -> TokenMaps:
        """Of the pictures that were looked at closely, or fewer where the grid is large: `ids` says which."""
        from vitreous.lenses.tokens_finding import TokenMaps

        return self._part(f"{files.TOKENS}/{self._site(model, block)}.npz", TokenMaps.load)

    def labels(self, model: str, block: int, subunits: bool = False) -> Labels:
        from vitreous.labels import Labels

        name = "subunits" if subunits else "units"
        return self._part(f"{files.LABELS}/{self._site(model, block)}/{name}.npz", Labels.load)

    def classes(self, model: str) -> Classes | None:
        """How the model's output reads as classes; None if it has none."""
        path = f"{files.CLASSES}/{self.model(model).name}.npz"
        return None if f"classes/{model}" in self.absent else self._part(path, Classes.load)

    @property
    def spectral(self) -> Spectral:
        from vitreous.lenses.align_cut import Spectral

        return self._part(files.ALIGN, Spectral.load)

    @property
    def places(self) -> np.ndarray:
        """float32 (node, 2): where every patch lies on the map."""
        return self._map()["places"]

    @property
    def solid(self) -> np.ndarray:
        """float32 (node, 3)."""
        return self._map()["solid"]

    @property
    def colours(self) -> np.ndarray:
        """uint8 (node, 3)."""
        return self._map()["colours"]

    @property
    def concepts(self) -> np.ndarray:
        """uint8 (node,): which of about twenty groups a patch belongs to."""
        return self._map()["concepts"]

    def _map(self) -> dict[str, np.ndarray]:
        found = self._part(f"{files.ALIGN}/map.npz", _load_map)
        if len({len(self.spectral), *map(len, found.values())}) > 1:
            raise StoreError("the map does not fit its eigenvectors", given="align/map.npz", remedy=files.AGAIN)
        return found

    @property
    def similar(self) -> tuple[np.ndarray, np.ndarray]:
        """Most correlated units int32 (unit, place) by their number in `unit_ids`, and r."""
        found = self._part(files.SIMILAR, _load_similar)
        return found["units"], found["r"]

    def evidence(self, model: str, block: int) -> Mapping[str, list[float | None]]:
        return self._part(f"{files.EVIDENCE}/{self._site(model, block)}.json", _load_evidence)

    @property
    def notes(self) -> Mapping[str, Note]:
        """What people wrote about units, by id, as it stands now."""
        return read_notes(self.folder).current

    # -- what there is

    @cached_property
    def unit_ids(self) -> tuple[tuple[str, int, int], ...]:
        """(model, block, unit) of all units, in the order in which `similar` numbers them."""
        found = []
        for entry in self.models:
            for block in entry.blocks:
                found += [(entry.name, block, unit) for unit in self.settings["units"][f"{entry.name}/{block}"]]
        return tuple(found)

    def missing(self, part: Callable[[], object]) -> str | None:
        """Why a part cannot be used, in one line; None if it can."""
        try:
            part()
        except VitreousError as error:
            return str(error).splitlines()[0]
        return None

    def _site(self, model: str, block: int) -> str:
        entry = self.model(model)
        if block not in entry.blocks:
            raise SettingsError(
                f"block {block} of {model} was not examined", given=block, accepted=[str(b) for b in entry.blocks]
            )
        return f"{entry.name}/{block}"

    def _part(self, name: str, load: Callable[[Path], T]) -> T:
        """Reads a part once; a refusal says which part it is, how it can be had, and nothing of where it lies."""
        if name not in self._kept:
            key = name.removesuffix(".npz").removesuffix(".json")
            why = next((self.absent[known] for known in self.absent if f"{key}/".startswith(f"{known}/")), None)
            if why is not None:
                raise StoreError(f"{key} is not part of this run: {why}")
            path = self.folder / name
            try:
                self._kept[name] = load(path)
            except VitreousError as error:
                said = str(error).splitlines()[0].replace(str(path), name)
                state = "is damaged" if path.exists() else "is missing"
                raise StoreError(f"{key} {state}: {said}", remedy=files.AGAIN) from error
        return self._kept[name]


@read_from("folder")
def open_run(folder: str | Path) -> Examination:
    """Opens what `vt.examine` wrote. Parts are not read yet; a folder that holds no finished run is refused."""
    folder = Path(folder)
    path = folder / files.ABOUT
    if not path.is_file():
        unfinished = (folder / files.PLAN).is_file()
        what = "the examination here is not finished" if unfinished else "no examination here"
        remedy = files.AGAIN if unfinished else "`vitreous examine MODEL --images FOLDER --out RUN` makes one"
        raise StoreError(what, given=str(folder), remedy=remedy)
    about = files.read_json(path, "examination.json")
    try:
        if (about["format"], about["version"]) != (files.FORMAT, files.VERSION):
            raise ValueError(f"{about['format']}, version {about['version']}")
        pictures = about["images"]
        names, shown = tuple(map(_text, pictures["names"])), tuple(map(_inside, pictures["files"]))
        if len(names) != len(shown):
            raise ValueError("pictures and files differ in number")
        kept = Pictures(
            folder / files.PICTURES,
            names,
            shown,
            tuple(int(k) for k in pictures["close"] if 0 <= int(k) < len(names)),
            str(pictures["source"]),
            str(pictures["fingerprint"]),
        )
        models = tuple(_entry(one) for one in about["models"])
        absent = {str(key): str(why) for key, why in about["absent"].items()}
        return Examination(folder, models, kept, dict(about["settings"]), absent)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StoreError(f"examination.json is damaged: {said}", given=folder.name, remedy=files.AGAIN) from None


def _text(name: Any) -> str:
    """A name as it can be written anywhere: of file names that are no text Python keeps halves of characters."""
    return str(name).encode(errors="replace").decode()


def _inside(name: Any) -> str:
    """A file name of the pictures' folder: nothing that leads anywhere else."""
    text = str(name)
    if Path(text).name != text or text in ("", ".", ".."):
        raise ValueError(f"{text!r} is no file name")
    return text


def _entry(one: Mapping[str, Any]) -> ModelEntry:
    return ModelEntry(
        _inside(one["name"]),
        str(one["source"]),
        one["weights"],
        dict(one["settings"]),
        str(one["fingerprint"]),
        str(one["about"]),
        int(one["depth"]),
        int(one["width"]),
        Grid(*map(int, one["grid"])),
        tuple(map(str, one["prefix"])),
        tuple(map(int, one["blocks"])),
        Preprocess(**one["preprocess"]),
    )


def _load_near(path: Path) -> dict[str, np.ndarray]:
    return _checked(files.read_arrays(path, "nearest units")[1], ("units", "distances"), path)


def _load_map(path: Path) -> dict[str, np.ndarray]:
    return _checked(files.read_arrays(path, "a map")[1], ("places", "solid", "colours", "concepts"), path)


def _load_similar(path: Path) -> dict[str, np.ndarray]:
    return _checked(files.read_arrays(path, "similar units")[1], ("units", "r"), path)


def _checked(arrays: dict[str, np.ndarray], names: tuple[str, ...], path: Path) -> dict[str, np.ndarray]:
    if set(arrays) != set(names) or len({len(array) for array in arrays.values()}) > 1:
        raise StoreError("arrays that do not belong here, or do not fit together", given=path.name, remedy=files.AGAIN)
    return arrays


def _load_evidence(path: Path) -> dict[str, list[float | None]]:
    found = files.read_json(path, "evidence")
    if not isinstance(found, dict) or not all(isinstance(part, list) for part in found.values()):
        raise StoreError("not evidence", given=path.name, remedy=files.AGAIN)
    return found
