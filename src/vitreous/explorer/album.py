"""Pictures that can be looked at: those of the run, by number, and those that were dropped in, by id."""

from __future__ import annotations

import hashlib
import io
import re
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vitreous.axes import Size
from vitreous.errors import ImageError, SettingsError

if TYPE_CHECKING:
    from PIL.Image import Image

    from vitreous.examination import Examination
    from vitreous.preprocess import Preprocess

LARGEST_FILE = 20 * 2**20  # bytes
LARGEST_PICTURE = 40_000_000  # pixels
KEPT_SIDE = 1024  # pixels of the longer side that is kept of a dropped picture
KEPT = 64  # dropped pictures in memory
PICTURE = r"^([0-9]{1,7}|u[0-9a-f]{16})$"


class NotThereError(SettingsError):
    """A picture, model, unit or job that this run does not have."""


@dataclass(frozen=True, eq=False)
class Upload:
    """A picture that somebody dropped in; it lives as long as the explorer."""

    id: str
    name: str
    image: Image

    def about(self) -> dict[str, object]:
        return {"id": self.id, "name": self.name, "width": self.image.width, "height": self.image.height}


class Album:
    """Uploads are kept in memory, the latest ones; nothing of them is written to disk."""

    def __init__(self, examination: Examination) -> None:
        self.pictures = examination.pictures
        self._uploads: OrderedDict[str, Upload] = OrderedDict()
        self._lock = threading.Lock()
        self._one = threading.Lock()  # decodes at a time: a large picture takes some memory

    @property
    def uploads(self) -> list[Upload]:
        return list(self._uploads.values())

    def refuse(self, id: str) -> None:
        """Says it if there is no such picture."""
        self.number(id) if id.isdecimal() else self.upload(id)

    def image(self, id: str) -> Image:
        """The picture, RGB."""
        if id.isdecimal():
            return self.pictures.image(self.number(id))
        return self.upload(id).image

    def number(self, id: str) -> int:
        count = len(self.pictures)
        if not re.fullmatch(PICTURE, id) or (id.isdecimal() and int(id) >= count):
            raise NotThereError("no such picture", given=id, accepted=f"0 to {count - 1}, or a picture dropped in")
        return int(id)

    def upload(self, id: str) -> Upload:
        found = self._uploads.get(id)
        if found is None:
            remedy = "drop it in again: dropped pictures are kept while the explorer runs, the latest ones"
            raise NotThereError("no such picture", given=id, remedy=remedy)
        return found

    def add(self, data: bytes, name: str = "") -> Upload:
        """Decodes a file's bytes. Files and pictures that are too large are refused before they are unpacked."""
        if len(data) > LARGEST_FILE:
            raise ImageError("the file is too large", given=f"{len(data):,} bytes", accepted=f"{LARGEST_FILE:,} bytes")
        with self._one:
            image = _decoded(data)
            if min(image.size) < 1 or max(image.size) > 200 * min(image.size):
                raise ImageError("the picture is too narrow to look at", given=f"{image.width} x {image.height} pixels")
            image.thumbnail((KEPT_SIDE, KEPT_SIDE))
        digest = hashlib.sha256(f"{image.size}".encode() + image.tobytes()).hexdigest()
        shown = "".join(c for c in name if c.isprintable())[:120]
        upload = Upload(f"u{digest[:16]}", shown, image)
        with self._lock:
            self._uploads[upload.id] = upload
            self._uploads.move_to_end(upload.id)
            while len(self._uploads) > KEPT:
                self._uploads.popitem(last=False)
        return upload

    def png(self, id: str, preprocess: Preprocess | None = None) -> bytes:
        """The picture as a file; with `preprocess`, only what a model sees of it, which maps lie on."""
        image = self.image(id)
        if preprocess is not None:
            image = image.crop(seen_box(preprocess, image))
        file = io.BytesIO()
        image.save(file, "PNG", compress_level=1)
        return file.getvalue()


def _decoded(data: bytes) -> Image:
    """What was dropped in, RGB. A refusal says what to do in the browser, not what to do with a folder of pictures."""
    from vitreous.images.decode import decode

    try:
        return decode(data, "the picture", most=LARGEST_PICTURE).image
    except ImageError as error:
        raise ImageError(
            error.parts["what"], accepted=error.parts.get("accepted"), remedy="drop in another picture"
        ) from error


def seen_box(preprocess: Preprocess, image: Image) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of what the model sees, in the picture's own pixels."""
    frame = preprocess.frame(Size(image.height, image.width))
    down, right = image.height / frame.resized.height, image.width / frame.resized.width
    return (
        round(frame.left * right),
        round(frame.top * down),
        round((frame.left + frame.size.width) * right),
        round((frame.top + frame.size.height) * down),
    )
