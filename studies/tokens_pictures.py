"""Figures 2, 3 and 4 of the tokens paper on real pictures: what tokens stand for, segments, growth over blocks.

    python studies/tokens_pictures.py --data ../shared/data --work FOLDER [--pictures 5]

dinov2s_saliency on the first pictures of voc_animals in the other studies' fixed order (none picked by hand), about
130 patches of the picture's own shape, maps in bfloat16, kept in FOLDER. Tokens are chosen by the true mask and not by
their maps: the class token, the patch deepest inside the animal and the one farthest from that on it, the patch deepest
inside the background and the one farthest from that. Writes under --out

- tokens_pictures_maps.png: maps of the sum, and object masks at 0.2;
- tokens_pictures_segments.png: five segments a picture in colours of their own, by the lens and k-means of features;
- tokens_pictures_blocks.png: class, animal, background a row, a block a column, of the first three pictures.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

import vitreous as vt
from tokens_inputs import IGNORE, METHODS, Shown, asked, backbone, collection, parser_of, size_for
from vitreous.evidence.itiou import token_classes
from vitreous.images.imageset import ImageSet
from vitreous.render import to_png
from vitreous.views.panels import Card
from vitreous.views.tokens import layer_panel, segment_panel, token_panel

BLOCKS, PATCHES, SEGMENTS = (0, 3, 7, 11), 130, 5


def chosen(maps: vt.TokenMaps, shown: Shown) -> list[int]:
    """The class token, two tokens on the animal and two on the background."""
    assert shown.truth is not None and maps.grid is not None
    classes = token_classes(shown.truth, tuple(maps.grid)).reshape(maps.grid)
    tokens = [0]
    for inside in ((classes > 0) & (classes < 255), classes == 0):
        places, others = np.argwhere(inside), np.argwhere(~inside)
        if not len(places) or not len(others):
            continue
        first = places[np.linalg.norm(places[:, None] - others, axis=-1).min(1).argmax()]
        second = places[np.linalg.norm(places - first, axis=1).argmax()]
        tokens += [maps.token_at(int(row), int(column)) for row, column in (first, second)]
    return list(dict.fromkeys(tokens))


def made(subject: vt.Subject, shown: Shown, work: Path) -> tuple[list[vt.TokenMaps], vt.TokenMaps]:
    """Maps of the sum after all `BLOCKS`, and of the norm after the last."""
    paths = [work / "pictures" / f"{shown.id}-{PATCHES}-{name}.npz" for name in (*(f"sum-{b}" for b in BLOCKS), "norm")]
    if not all(path.exists() for path in paths):
        size = size_for(subject, shown.image, PATCHES)
        found = METHODS["sum"](subject, [shown.image], list(BLOCKS), size)
        for one, path in zip(
            (*found, *METHODS["norm"](subject, [shown.image], [BLOCKS[-1]], size)), paths, strict=True
        ):
            one.save(path)
    *sums, norm = (vt.TokenMaps.load(path) for path in paths)
    return sums, norm


def segments(subject: vt.Subject, shown: Shown, last: vt.TokenMaps, norm: vt.TokenMaps) -> dict[str, np.ndarray]:
    assert shown.truth is not None
    z = vt.patch_features(subject, [shown.image], size=size_for(subject, shown.image, PATCHES), progress=False)
    size = shown.image.height, shown.image.width
    return {
        "truth": np.where(shown.truth == IGNORE, -1, shown.truth),
        "sum": vt.segment(last, SEGMENTS).labels()[0],
        "sum, lift": vt.segment(last, SEGMENTS, scale="lift").labels()[0],
        "norm, lift": vt.segment(norm, SEGMENTS, scale="lift").labels()[0],
        "k-means of features": vt.kmeans_segments(z, SEGMENTS).at(size)[0],
    }


def main() -> None:
    given = asked(parser_of(__doc__, pictures=5))
    subject = backbone(given.data, "dinov2s_saliency")
    maps, blocks, rows = [], [], dict[str, list[np.ndarray]]()
    pictures = collection(given.data, "voc_animals", given.pictures).pictures
    for shown in pictures:
        found, norm = made(subject, shown, given.work)
        (picture,) = ImageSet.from_arrays([shown.pixels], ids=[shown.id])
        tokens = chosen(found[-1], shown)
        maps.append(token_panel(found[-1], picture, tokens, tau=0.2, title=""))
        blocks.append(layer_panel(found, picture, [*tokens[:2], tokens[-1]], title=shown.id))
        for name, labels in segments(subject, shown, found[-1], norm).items():
            rows.setdefault(name, []).append(labels)
        print(shown.id, "done", flush=True)
    said = "Bright: what counts for the framed token of dinov2s_saliency."
    title = f"{SEGMENTS} segments a picture, each in a colour of its own"
    panel = segment_panel([s.pixels for s in pictures], rows, names=[s.id for s in pictures], title=title)
    pages = {
        "maps": (Card("What tokens stand for", said, panels=tuple(maps)), 12),
        "blocks": (Card("What tokens stand for, block by block", said, panels=tuple(blocks[:3])), 9),
        "segments": (panel, 12),
    }
    for name, (page, width) in pages.items():
        pixels = Image.open(BytesIO(to_png(page, width=width, dpi=80)))
        pixels.quantize(256).save(given.out / f"tokens_pictures_{name}.png", optimize=True)


if __name__ == "__main__":
    main()
