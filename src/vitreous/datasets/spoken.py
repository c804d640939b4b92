"""Pictures by what a shell can say: scenes:N, LAYOUT:FOLDER, or a folder, a zip, a picture."""

from __future__ import annotations

from pathlib import Path

from vitreous.datasets.table import LAYOUTS, dataset
from vitreous.errors import SettingsError
from vitreous.images import ImageSet


def spoken_pictures(data: str, size: int, split: str | None, on_error: str, seed: int) -> ImageSet:
    """`size` and `seed` are those of scenes, `split` is that of a layout."""
    from vitreous.scenery import scenes

    kind, colon, rest = data.partition(":")
    if colon and kind == "scenes":
        if not rest.isdecimal():
            raise SettingsError("scenes:N needs a number", given=data, accepted="scenes:512")
        return scenes(int(rest), size=size, seed=seed)
    if colon and kind in LAYOUTS:
        return dataset(kind, rest, split, on_error=on_error)  # type: ignore[arg-type]
    if colon and len(kind) > 1 and not Path(data).exists():  # one letter is a drive
        raise SettingsError("no such layout of pictures", given=kind, accepted=("scenes", *LAYOUTS))
    return ImageSet.open(data, on_error=on_error)
