"""Every kind of picture file becomes upright RGB, or is refused by name."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from vitreous.errors import ImageError
from vitreous.images.decode import FORMATS, SUFFIXES, decode, decode_mask, to_rgb


def encoded(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def pixels(data: bytes) -> np.ndarray:
    decoded = decode(data, "x")
    assert decoded.image.mode == "RGB"
    return np.asarray(decoded.image)


def colours(height: int = 6, width: int = 9) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def blocks() -> Image.Image:
    """Four flat quarters, 32 x 48, that survive JPEG and show which way is up."""
    array = np.zeros((32, 48, 3), np.uint8)
    array[:16, :24], array[:16, 24:], array[16:, :24] = (250, 0, 0), (0, 250, 0), (0, 0, 250)
    return Image.fromarray(array)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_rgb_comes_back_as_it_was(kind):
    array = colours()
    assert (pixels(encoded(Image.fromarray(array), kind)) == array).all()


def test_lossless_webp_and_jpeg2000_come_back_as_they_were():
    array = colours(16, 16)
    assert (pixels(encoded(Image.fromarray(array), "WEBP", lossless=True)) == array).all()
    assert (pixels(encoded(Image.fromarray(array), "JPEG2000", irreversible=False)) == array).all()


def test_jpeg_is_decoded_as_pillow_does():
    data = encoded(Image.fromarray(colours(20, 31)), "JPEG", quality=80)
    assert (pixels(data) == np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))).all()


def test_grey_is_repeated():
    grey = colours()[..., 0]
    assert (pixels(encoded(Image.fromarray(grey))) == grey[..., None]).all()


def test_bilevel_is_black_and_white():
    bits = colours()[..., 0] > 127
    assert (pixels(encoded(Image.fromarray(bits))) == np.where(bits, 255, 0)[..., None]).all()


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
def test_alpha_is_laid_over_white_and_noted(kind):
    rgba = np.dstack([colours(), np.full((6, 9), 255, np.uint8)])
    rgba[:3, :, 3] = 0
    rgba[3, :, :] = (0, 0, 0, 128)
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    data = encoded(Image.fromarray(rgba), kind, **options)
    out = pixels(data)
    assert (out[:3] == 255).all()
    assert (out[3] == 127).all()
    assert (out[4:] == rgba[4:, :, :3]).all()
    assert decode(data, "x").notes == ("transparency laid over white",)


def test_opaque_alpha_changes_nothing_and_leaves_no_note():
    array = colours()
    data = encoded(Image.fromarray(np.dstack([array, np.full((6, 9), 255, np.uint8)])))
    assert (pixels(data) == array).all()
    assert decode(data, "x").notes == ()


def test_grey_with_alpha():
    la = np.zeros((4, 4, 2), np.uint8)
    la[:2, :, 1] = 255
    out = pixels(encoded(Image.fromarray(la, "LA")))
    assert (out[:2] == 0).all()
    assert (out[2:] == 255).all()


def test_palette_is_looked_up_and_its_transparent_entry_is_white():
    image = Image.fromarray(np.array([[0, 1], [2, 1]], np.uint8))
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    expected = np.array([[(10, 20, 30), (40, 50, 60)], [(70, 80, 90), (40, 50, 60)]])
    assert (pixels(encoded(image)) == expected).all()
    for data in (encoded(image, transparency=1), encoded(image, "GIF", transparency=1)):
        expected[:, 1] = 255
        assert (pixels(data) == expected).all()
    half = pixels(encoded(image, transparency=bytes([255, 255, 0])))
    assert (half[1, 0] == 255).all()
    assert (half[0, 0] == (10, 20, 30)).all()


def test_rgb_with_a_transparent_colour():
    array = colours()
    array[2, 3] = (1, 2, 3)
    out = pixels(encoded(Image.fromarray(array), transparency=(1, 2, 3)))
    array[2, 3] = 255
    assert (out == array).all()


def cmyk() -> Image.Image:
    """Left: cyan ink, right: yellow ink."""
    array = np.zeros((16, 32, 4), np.uint8)
    array[:, :16, 0] = 255
    array[:, 16:, 2] = 255
    return Image.fromarray(array, "CMYK")


def without_adobe_mark(jpeg: bytes) -> bytes:
    """Cuts the APP14 segment out."""
    at = jpeg.index(b"\xff\xee")
    (length,) = struct.unpack(">H", jpeg[at + 2 : at + 4])
    return jpeg[:at] + jpeg[at + 2 + length :]


def assert_cyan_and_yellow(out: np.ndarray) -> None:
    assert np.abs(out[4:12, 4:12].astype(int) - (0, 255, 255)).max() < 8
    assert np.abs(out[4:12, 20:28].astype(int) - (255, 255, 0)).max() < 8


def test_cmyk_jpeg_with_adobes_inversion():
    data = encoded(cmyk(), "JPEG", quality=95)
    assert b"Adobe" in data
    assert_cyan_and_yellow(pixels(data))
    assert decode(data, "x").notes == ("CMYK converted",)


def test_cmyk_jpeg_without_adobes_mark_is_not_inverted():
    inverted = Image.fromarray(
        255 - np.asarray(cmyk()), "CMYK"
    )  # Pillow inverts while saving, so this stores plain inks
    data = without_adobe_mark(encoded(inverted, "JPEG", quality=95))
    assert b"Adobe" not in data
    assert_cyan_and_yellow(pixels(data))


def test_cmyk_tiff():
    assert_cyan_and_yellow(pixels(encoded(cmyk(), "TIFF")))


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "big-endian TIFF"])
def test_sixteen_bit_grey_is_scaled_and_not_clipped(kind):
    values = np.array([[0, 128, 129, 257], [32896, 65406, 65407, 65535]], np.uint16)
    if kind == "big-endian TIFF":
        data = encoded(Image.frombytes("I;16B", (4, 2), values.astype(">u2").tobytes()), "TIFF")
    else:
        data = encoded(Image.fromarray(values), kind)
    assert pixels(data)[..., 0].tolist() == [[0, 0, 1, 1], [128, 254, 255, 255]]
    assert decode(data, "x").notes == ("16-bit grey divided by 257",)


def test_sixteen_bit_grey_with_a_transparent_value():
    chunk = b"tRNS" + struct.pack(">H", 1000)
    data = encoded(Image.fromarray(np.array([[1000, 2570]], np.uint16)))
    at = data.index(b"IDAT") - 4
    data = data[:at] + struct.pack(">I", 2) + chunk + struct.pack(">I", zlib.crc32(chunk)) + data[at:]
    assert pixels(data)[0, :, 0].tolist() == [255, 10]


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied_once(kind, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(blocks(), kind, exif=exif, **({"quality": 95} if kind in ("JPEG", "WEBP") else {}))
    decoded = decode(data, "x")
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    assert decoded.image.size == upright.size == ((48, 32) if orientation < 5 else (32, 48))
    assert (np.asarray(decoded.image) == np.asarray(upright)).all()
    again = ImageOps.exif_transpose(decoded.image)
    assert (np.asarray(again) == np.asarray(decoded.image)).all(), "somebody could turn it a second time"
    if kind != "TIFF":  # Pillow turns TIFFs itself
        assert decoded.notes == (() if orientation == 1 else ("turned upright (EXIF)",))


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_exif_that_cannot_be_read_is_noted_and_the_picture_kept(kind):
    data = encoded(blocks(), kind, exif=b"Exif\x00\x00XX\x00*\x00\x00\x00\x08\x00\x01")
    decoded = decode(data, "x")
    assert decoded.image.size == (48, 32)
    assert decoded.notes == ("unreadable EXIF not used",)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "TIFF", "PNG"])
def test_the_first_of_several_frames_is_taken_and_noted(kind):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue", "green")]
    data = encoded(
        frames[0], kind, save_all=True, append_images=frames[1:], **({"lossless": True} if kind == "WEBP" else {})
    )
    assert (pixels(data) == (255, 0, 0)).all()
    assert decode(data, "x").notes == ("the first of several frames",)
    single = encoded(frames[0], kind)
    assert decode(single, "x").notes == ()


def test_a_telephones_picture_with_a_second_one_inside():
    data = encoded(blocks(), "MPO", save_all=True, append_images=[Image.new("RGB", (8, 8))], quality=95)
    decoded = decode(data, "x.jpg")
    assert decoded.image.size == (48, 32)
    assert decoded.notes == ("the first of several frames",)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (Image.fromarray(np.ones((4, 4), np.float32)), "32-bit float pixels"),
        (Image.fromarray(np.ones((4, 4), np.int32)), "32-bit integer pixels"),
        (Image.new("LAB", (4, 4)), "LAB colours"),
    ],
)
def test_pixels_without_a_known_range_are_refused(image, words):
    with pytest.raises(ImageError, match=words) as caught:
        decode(encoded(image, "TIFF"), "depth.tif")
    assert "'depth.tif'" in str(caught.value)
    assert "float array in [0, 1]" in str(caught.value)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF"])
def test_truncated_files_are_refused_by_name(kind):
    data = encoded(Image.fromarray(colours(64, 64)), kind)
    for share in (0.3, 0.6, 0.9):
        with pytest.raises(ImageError) as caught:
            decode(data[: int(len(data) * share)], "photos/cat.img")
        assert "photos/cat.img" in str(caught.value)
        assert "on_error='skip'" in str(caught.value)


def test_empty_file():
    with pytest.raises(ImageError, match=r"an empty file \(0 bytes\)"):
        decode(b"", "a.jpg")


@pytest.mark.parametrize(
    "data", [b"<html>404</html>", b"\x00" * 100, b"version https://git-lfs", b"%PDF-1.4", b"\xff\xd8\xff"]
)
def test_files_that_are_no_pictures_are_refused(data):
    with pytest.raises(ImageError) as caught:
        decode(data, "a.jpg")
    assert "'a.jpg'" in str(caught.value)


def test_formats_that_run_other_programs_are_not_opened():
    eps = encoded(Image.new("RGB", (4, 4)), "EPS")
    with pytest.raises(ImageError, match="not a picture in a format that is read") as caught:
        decode(eps, "a.jpg")
    assert "JPEG, PNG, GIF" in str(caught.value)


def png_header(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("side", [10_000, 20_000])
@pytest.mark.parametrize("action", ["error", "ignore"])
def test_decompression_bombs_are_refused_whatever_the_warning_filter(side, action):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter(action)
        with pytest.raises(ImageError, match="89,478,485 pixels, Pillow's limit") as caught:
            decode(png_header(side, side), "bomb.png")
    assert "'bomb.png'" in str(caught.value)


def test_damage_keeps_the_reason():
    data = bytearray(encoded(Image.fromarray(colours(64, 64))))
    data[len(data) // 2] ^= 0xFF
    with pytest.raises(ImageError, match=r"a truncated or damaged picture \(.+\)"):
        decode(bytes(data), "x.png")


SEEDS = {
    "jpeg": encoded(Image.fromarray(colours(24, 24)), "JPEG", exif=b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x00"),
    "progressive": encoded(Image.fromarray(colours(24, 24)), "JPEG", progressive=True),
    "png": encoded(Image.fromarray(colours(24, 24))),
    "palette": encoded(Image.fromarray(colours(24, 24)).quantize(16), transparency=3),
    "gif": encoded(Image.fromarray(colours(24, 24)), "GIF"),
    "webp": encoded(Image.fromarray(colours(24, 24)), "WEBP"),
    "tiff": encoded(Image.fromarray(colours(24, 24)), "TIFF", compression="tiff_lzw"),
    "bmp": encoded(Image.fromarray(colours(24, 24)), "BMP"),
    "ppm": encoded(Image.fromarray(colours(24, 24)), "PPM"),
    "jp2": encoded(Image.fromarray(colours(24, 24)), "JPEG2000"),
}


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=300, deadline=None)
@given(
    kind=st.sampled_from(sorted(SEEDS)),
    hits=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=6),
    cut=st.floats(0, 1),
)
def test_damaged_bytes_give_a_picture_or_an_image_error(kind, hits, cut):
    data = bytearray(SEEDS[kind])
    for at, value in hits:
        data[int(at * len(data))] = value
    for read in (decode, decode_mask):
        try:
            read(bytes(data[: max(1, int(cut * len(data)))]), "fuzz")
        except ImageError as error:
            assert "'fuzz'" in str(error)


# ----------------------------------------------------------------------------------------------------------- masks


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "BMP", "GIF"])
def test_masks_keep_palette_positions(kind):
    labels = np.array([[0, 1, 255], [7, 7, 2]], np.uint8)
    image = Image.fromarray(labels)
    image.putpalette(np.random.default_rng(1).permutation(256).repeat(3).astype(np.uint8).tobytes())
    assert (decode_mask(encoded(image, kind, **({"optimize": False} if kind == "GIF" else {})), "m") == labels).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_masks_keep_grey_values(dtype):
    labels = (np.arange(12).reshape(3, 4) * (5000 if dtype == np.uint16 else 20)).astype(dtype)
    out = decode_mask(encoded(Image.fromarray(labels)), "m")
    assert out.dtype.kind in "iu"
    assert (out == labels).all()


def narrow_png(labels: np.ndarray, bits: int) -> bytes:
    """A grey PNG with 1, 2 or 4 bits a pixel."""
    rows = b""
    for row in labels:
        text = "".join(f"{value:0{bits}b}" for value in row)
        text += "0" * (-len(text) % 8)
        rows += b"\0" + bytes(int(text[k : k + 8], 2) for k in range(0, len(text), 8))

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", labels.shape[1], labels.shape[0], bits, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_masks_with_few_bits_are_not_stretched(bits):
    labels = np.random.default_rng(bits).integers(0, 2**bits, (5, 7))
    assert (decode_mask(narrow_png(labels, bits), "m") == labels).all()


def test_masks_in_colour_or_jpeg_are_refused():
    with pytest.raises(ImageError, match="a mask in colours"):
        decode_mask(encoded(blocks()), "m.png")
    with pytest.raises(ImageError, match="compression has mixed its labels"):
        decode_mask(encoded(blocks().convert("L"), "JPEG"), "m.jpg")


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_masks_round_trip(height, width, seed):
    labels = np.random.default_rng(seed).integers(0, 256, (height, width), dtype=np.uint8)
    assert (decode_mask(encoded(Image.fromarray(labels)), "m") == labels).all()


# ------------------------------------------------------------------------------------------------------ in memory


def test_pillow_pictures_in_memory_follow_the_same_rules():
    image = blocks()
    exif = image.getexif()
    exif[0x0112] = 6
    assert to_rgb(image, "x").image.size == (32, 48)
    assert image.size == (48, 32), "the caller's picture is left alone"
    with pytest.raises(ImageError, match="32-bit float pixels"):
        to_rgb(Image.fromarray(np.ones((2, 2), np.float32)), "x")


def test_rgb_is_copied_and_carries_nothing_along():
    image = blocks()
    image.info["comment"] = "kept by the caller"
    out = to_rgb(image, "x").image
    out.putpixel((0, 0), (9, 9, 9))
    assert image.getpixel((0, 0)) == (250, 0, 0)
    assert out.info == {}
    assert image.info == {"comment": "kept by the caller"}


def test_every_suffix_belongs_to_a_format_that_is_read():
    Image.init()
    known = {suffix for suffix, name in Image.registered_extensions().items() if name in FORMATS}
    assert known >= SUFFIXES
