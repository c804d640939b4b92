"""Thumbnails of all pictures on a few sheets, so that a page of a thousand of them asks for four files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vitreous.errors import StoreError

if TYPE_CHECKING:
    from PIL.Image import Image

    from vitreous.examination import Examination
    from vitreous.site.several import Gathered

SIZE, ACROSS, DOWN = 96, 16, 16
QUALITY = 85
GREY = (128, 128, 128)


def sheets(gathered: Gathered) -> Iterator[bytes]:
    """JPEG files of 16 x 16 thumbnails, as the first model sees the pictures; the last has the rows it needs."""
    from PIL import Image as pil

    for first in range(0, len(gathered.pictures), ACROSS * DOWN):
        here = gathered.pictures[first : first + ACROSS * DOWN]
        rows = -(-len(here) // ACROSS)
        sheet = pil.new("RGB", (ACROSS * SIZE, rows * SIZE), GREY)
        for k, (run, picture, _) in enumerate(here):
            sheet.paste(thumbnail(run, picture), (k % ACROSS * SIZE, k // ACROSS * SIZE))
        yield jpeg(sheet)


def thumbnail(examination: Examination, picture: int) -> Image:
    """96 x 96 pixels of what the first model sees; grey for a picture that cannot be read."""
    from PIL import Image as pil

    try:
        image = examination.pictures.seen(picture, examination.models[0].preprocess)
    except StoreError:
        return pil.new("RGB", (SIZE, SIZE), GREY)
    return image.resize((SIZE, SIZE), pil.Resampling.LANCZOS)


def jpeg(image: Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=QUALITY)
    return file.getvalue()


def large(examination: Examination, picture: int) -> bytes | None:
    """A picture as the first model sees it, in the format in which it is kept; None if it cannot be read."""
    path = examination.pictures.path(picture)
    try:
        whole = examination.pictures.image(picture)
        seen = examination.pictures.seen(picture, examination.models[0].preprocess)
    except StoreError:
        return None
    if seen.size == whole.size:
        return path.read_bytes()
    file = io.BytesIO()
    lossless = path.suffix == ".png"
    seen.save(file, "PNG") if lossless else seen.save(file, "JPEG", quality=90)
    return file.getvalue()
