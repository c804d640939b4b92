"""Brain responses in the layout of the Algonauts 2023 challenge (fMRI of the Natural Scenes Dataset)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vitreous.datasets.pickles import DAMAGE, OnlyArrays
from vitreous.errors import SettingsError
from vitreous.responses import Responses

HEMISPHERES = {"left": "lh", "right": "rh"}


def algonauts(folder: str | Path) -> Responses:
    """The Algonauts 2023 layout of one subject: `training_split/training_fmri/{lh,rh}_training_fmri.npy`, and
    `roi_masks/{lh,rh}.NAME_challenge_space.npy` with `mapping_NAME.npy` beside them. Left hemisphere first. With
    `roi_masks/{lh,rh}.all-vertices_fsaverage_space.npy` responses know their place on the surface of the brain."""
    folder = Path(folder)
    fmri = [folder / "training_split" / "training_fmri" / f"{side}_training_fmri.npy" for side in HEMISPHERES.values()]
    if missing := [str(path) for path in fmri if not path.is_file()]:
        raise SettingsError(
            "not the folder of an Algonauts 2023 subject",
            given=missing,
            accepted="a folder such as subj01, with training_split/training_fmri and roi_masks",
        )
    sides = [_load(path) for path in fmri]
    if any(side.ndim != 2 for side in sides):
        raise SettingsError("responses are numbers (image, vertex)", given=[side.shape for side in sides])
    if len({len(side) for side in sides}) > 1:
        raise SettingsError("the hemispheres saw different numbers of images", given=[side.shape for side in sides])
    widths = [side.shape[1] for side in sides]
    rois: dict[str, np.ndarray] = {}
    for number, side in enumerate(HEMISPHERES.values()):
        before = sum(widths[:number])
        for path in sorted((folder / "roi_masks").glob(f"{side}.*_challenge_space.npy")):
            for name, mask in _regions(path, widths[number]).items():
                whole = rois.setdefault(name, np.zeros(sum(widths), bool))
                whole[before : before + widths[number]] |= mask
    for number, name in enumerate(HEMISPHERES):
        rois[f"{name} hemisphere"] = np.repeat([n == number for n in range(2)], widths)
    places = [
        _vertices(folder / "roi_masks" / f"{side}.all-vertices_fsaverage_space.npy", number, widths[number])
        for number, side in enumerate(HEMISPHERES.values())
    ]
    known = [place for place in places if place is not None]
    vertices = np.concatenate(known) if len(known) == len(places) else None
    return Responses(np.concatenate(sides, 1), rois, name=folder.name, vertices=vertices)


def _vertices(path: Path, hemisphere: int, width: int) -> np.ndarray | None:
    """int64 (response, 2), or None where there is no such file: 1 at the vertices of fsaverage that were measured."""
    if not path.is_file():
        return None
    found = np.flatnonzero(_load(path))
    if len(found) != width:
        raise SettingsError(
            "the file of vertices does not fit the responses", given=f"{path.name}: {len(found)}", accepted=str(width)
        )
    return np.stack([np.full(width, hemisphere), found], 1)


def _load(path: Path) -> np.ndarray:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise SettingsError("this file cannot be read", given=str(path), remedy="download it again") from error


def _regions(path: Path, width: int) -> dict[str, np.ndarray]:
    """Name -> bool (vertex,) from one file of numbers and the file that names them."""
    numbers = _load(path)
    if numbers.shape != (width,):
        raise SettingsError(
            "a mask of regions does not fit the responses", given=f"{path.name} {numbers.shape}", accepted=f"({width},)"
        )
    kind = path.name.split(".", 1)[1].removesuffix("_challenge_space.npy")
    return {name: numbers == number for number, name in _mapping(path.parent / f"mapping_{kind}.npy").items() if number}


def _mapping(path: Path) -> dict[int, str]:
    """Numbers and names. The authors pickled a dictionary, in an array of its own."""
    import io

    try:
        stream = io.BytesIO(path.read_bytes())
        version = np.lib.format.read_magic(stream)
        (np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0)(stream)
        found: Any = OnlyArrays(stream).load()
        names = found.item() if isinstance(found, np.ndarray) else found
        return {int(number): str(name) for number, name in names.items()}
    except (OSError, *DAMAGE) as error:
        raise SettingsError(
            "the names of regions cannot be read", given=str(path), remedy="download roi_masks again"
        ) from error
