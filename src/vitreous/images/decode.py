"""From the bytes of a picture file to an upright 8-bit RGB picture, or an `ImageError` that names the file.

What happens to pictures that are not plain RGB is fixed here, for every source, and never silent: each step that
changes pixels leaves a note (`Picture.about["decoded"]`).

    grey, bilevel, palette       repeated into the three colours, or looked up
    transparency of any kind     laid over white
    CMYK                         converted; JPEGs with Adobe's mark are stored inverted, those without are not
    16-bit grey                  divided by 257 and rounded, so that 0 and 65535 become 0 and 255
    16-bit colour                the high byte (Pillow reads it so)
    EXIF orientation             applied, so that the picture stands upright
    several frames or pages      the first
    32-bit, float, LAB           refused: their range is not known
    truncated, damaged, empty    refused
    colour profiles              not applied, as in the published evaluation pipelines
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from vitreous.errors import ImageError

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "JPEG2000", "AVIF")
SUFFIXES = frozenset(
    ".jpg .jpeg .jpe .jfif .png .apng .gif .webp .tif .tiff .bmp .ppm .pgm .pbm .pnm .jp2 .j2k .avif".split()
)
SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I;16N")
REFUSED = {
    "F": "32-bit float pixels",
    "I": "32-bit integer pixels",
    "LAB": "LAB colours",
    "HSV": "HSV colours",
}
ORIENTATION = 0x0112  # the EXIF tag
# What Pillow's readers raise on damaged files. They parse by hand, so it is a long list (found by fuzzing, see tests).
DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    struct.error,
    LookupError,
    TypeError,
    ArithmeticError,
    MemoryError,
    RuntimeError,
    Warning,  # where the caller's program turns warnings into errors
)


@dataclass(frozen=True)
class Decoded:
    """An upright RGB picture, and what had to be done to get it."""

    image: Image
    notes: tuple[str, ...] = ()


def decode(data: bytes, name: str, *, most: int | None = None) -> Decoded:
    """The picture in a file's bytes. `name` is only for messages, `most` a limit of pixels below Pillow's own."""
    image = load(data, name, most)
    if image.format in ("JPEG", "MPO") and image.mode == "CMYK" and "adobe" not in image.info:
        from PIL import ImageChops

        image = ImageChops.invert(image)  # Pillow takes every CMYK JPEG for an inverted one
        image.format = "JPEG"
    decoded = to_rgb(image, name)
    return Decoded(decoded.image, (*decoded.notes, *_frames(image)))


def decode_mask(data: bytes, name: str) -> np.ndarray:
    """The label map (height, width) in a file's bytes: palette positions or grey values, never colours."""
    image = load(data, name)
    if image.format in ("JPEG", "MPO"):
        raise ImageError(
            "a mask stored as JPEG: compression has mixed its labels",
            given=name,
            accepted="PNG, TIFF, BMP or GIF",
            remedy="use the lossless masks that the data set publishes",
        )
    if image.mode not in ("1", "L", "P", "I", *SIXTEEN_BITS):
        raise ImageError(
            f"a mask in colours (mode {image.mode}): which colour is which label is not known",
            given=name,
            accepted="grey values or palette positions",
            remedy="convert it to a label map first, or pass masks=... as arrays",
        )
    labels = np.asarray(image)
    if image.format == "PNG" and data[25] == 0 and data[24] in (2, 4):
        labels = labels // (255 // (2 ** data[24] - 1))  # Pillow stretches 2- and 4-bit grey to 0..255
    return labels.astype(np.uint8) if labels.dtype == bool else labels


def to_rgb(image: Image, name: str) -> Decoded:
    """A loaded Pillow picture of any mode -> upright RGB."""
    notes: list[str] = []
    turn = _orientation(image, notes)
    if image.mode in SIXTEEN_BITS or (image.mode == "I" and image.format == "PNG"):
        rgb = _from_sixteen_bits(image)
        notes.append("16-bit grey divided by 257")
    elif image.mode in REFUSED:
        raise ImageError(
            f"a picture with {REFUSED[image.mode]}: their range is not known",
            given=name,
            accepted="8-bit grey, RGB, RGBA, CMYK or palette, 16-bit grey",
            remedy="save it with 8 bits a colour, or pass it as a float array in [0, 1]",
        )
    elif image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        rgb = _over_white(image, notes)
    else:
        rgb = image.convert("RGB")
        if image.mode == "CMYK":
            notes.append("CMYK converted")
    if turn is not None:
        rgb = rgb.transpose(turn)
        notes.append("turned upright (EXIF)")
    elif rgb is image:
        rgb = image.copy()
    rgb.info = {}  # no EXIF and no transparency any more: nobody may apply them a second time
    return Decoded(rgb, tuple(notes))


@cache
def _formats() -> tuple[str, ...]:
    from PIL import Image as pil

    pil.init()
    return tuple(name for name in FORMATS if name in pil.OPEN)


def load(data: bytes, name: str, most: int | None = None) -> Image:
    """The picture as it is stored, fully decoded, so that damage shows here and nowhere else."""
    from PIL import Image as pil

    if not data:
        raise ImageError("an empty file (0 bytes)", given=name, remedy="copy the file again, or on_error='skip'")
    try:
        image = pil.open(io.BytesIO(data), formats=_formats())
        _refuse_bomb(image.width * image.height, pil.MAX_IMAGE_PIXELS, name)
        if most is not None and image.width * image.height > most:
            raise ImageError(
                "the picture is too large", given=f"{image.width} x {image.height}", accepted=f"{most:,} pixels"
            )
        image.load()
    except pil.UnidentifiedImageError:
        raise ImageError(
            "not a picture in a format that is read",
            given=name,
            accepted=_formats(),
            remedy="convert it, or on_error='skip' to leave it out",
        ) from None
    except (pil.DecompressionBombError, pil.DecompressionBombWarning):
        _refuse_bomb(None, pil.MAX_IMAGE_PIXELS, name)
        raise
    except ImageError:
        raise
    except DAMAGE as error:
        raise ImageError(
            f"a truncated or damaged picture ({error})",
            given=name,
            remedy="copy the file again, or on_error='skip' to leave it out",
        ) from error
    return image


def _refuse_bomb(pixels: int | None, limit: int | None, name: str) -> None:
    if limit is not None and (pixels is None or pixels > limit):
        raise ImageError(
            f"a picture with more than {limit:,} pixels, Pillow's limit against decompression bombs",
            given=name,
            remedy="make it smaller; if you trust the file, set PIL.Image.MAX_IMAGE_PIXELS higher",
        )


def _orientation(image: Image, notes: list[str]):
    """The turn that EXIF asks for, as Pillow's constant, or None."""
    from PIL import Image as pil

    turns = {
        2: pil.Transpose.FLIP_LEFT_RIGHT,
        3: pil.Transpose.ROTATE_180,
        4: pil.Transpose.FLIP_TOP_BOTTOM,
        5: pil.Transpose.TRANSPOSE,
        6: pil.Transpose.ROTATE_270,
        7: pil.Transpose.TRANSVERSE,
        8: pil.Transpose.ROTATE_90,
    }
    try:
        return turns.get(image.getexif().get(ORIENTATION, 1))
    except DAMAGE:
        notes.append("unreadable EXIF not used")
        return None


def _from_sixteen_bits(image: Image) -> Image:
    from PIL import Image as pil

    wide = np.asarray(image).astype(np.int64)
    grey = ((wide + 128) // 257).astype(np.uint8)
    if "transparency" in image.info:
        grey[wide == image.info["transparency"]] = 255
    return pil.fromarray(grey).convert("RGB")


def _over_white(image: Image, notes: list[str]) -> Image:
    from PIL import Image as pil

    rgba = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
    if rgba.getchannel("A").getextrema()[0] == 255:
        return rgba.convert("RGB")
    notes.append("transparency laid over white")
    return pil.alpha_composite(pil.new("RGBA", rgba.size, "white"), rgba).convert("RGB")


def _frames(image: Image) -> tuple[str, ...]:
    """A note when there is a second frame; every Pillow picture answers `seek`, most with EOFError."""
    try:
        image.seek(1)
    except DAMAGE:
        return ()
    return ("the first of several frames",)
