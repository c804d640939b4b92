"""Makes the pictures of the README and the first pages that come from lenses alone, with the package itself.

python docs/write_pictures.py [follow structure tokens disentangle align]
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import vitreous as vt
from vitreous.models.bundled import load_words
from vitreous.render import to_png
from vitreous.scenery import ATTRIBUTES
from vitreous.views.align import color_mosaic
from vitreous.views.panels import Box, Pictures, Tile
from vitreous.views.structure import unit_maps
from vitreous.views.tokens import paint_segments, token_tiles

DOCS = Path(__file__).parent
SHOWN = 6
ALIGNED = (0, 1, 2)  # scenes of the picture of align


def tokens_picture() -> bytes:
    """Rows of: a scene, maps of its largest things, segments."""
    subject, images = vt.load("bundled:scenes-text", device="cpu"), vt.scenes(3, size=64, seed=7)
    maps = vt.token_maps(subject, images, progress=False)
    segments = vt.segment(maps, k=5, scale="lift").labels()
    tiles = []
    for k, picture in enumerate(images):
        image = np.asarray(picture.image)
        things, pixels = np.unique(picture.instances[picture.instances > 0], return_counts=True)
        largest = things[np.argsort(-pixels)][:3]
        places = [
            np.unravel_index((picture.instances == t).reshape(8, 8, 8, 8).mean((1, 3)).argmax(), (8, 8))
            for t in largest
        ]
        (heat,) = maps[k].of([maps.token_at(int(r), int(c)) for r, c in places]).upsample()
        boxes = [Box(int(c) * 8, int(r) * 8, int(c) * 8 + 8, int(r) * 8 + 8) for r, c in places]
        seen = token_tiles(image, heat, boxes, [f"patch {r}, {c}" for r, c in places])
        tiles += [
            Tile(image, "scene", "scene"),
            *seen,
            Tile(paint_segments(image, segments[k]), "segments", "segments"),
        ]
    return to_png(Pictures("What single tokens are made of, and segments without training", tuple(tiles), columns=5))


def split_picture() -> bytes:
    """A unit of the class token and its sub-units: their strongest pictures, the words that fit, and luck's share."""
    subject, tower = vt.load("bundled:scenes-text", device="cpu"), load_words()
    images = vt.scenes(600, size=64, seed=11)
    x = subject.inputs([picture.image for picture in images])
    with torch.no_grad(), vt.capture(subject, "blocks.-1.mlp.hidden") as seen:
        summaries = subject(x)
    q = seen["blocks.-1.mlp.hidden"].numpy()[:, :1]
    asked = {"tokens_per_image": "all", "top_k": 200, "min_cluster_size": 12, "progress": False}
    finding = vt.disentangle(subject, q, "blocks.-1.mlp.out", **asked)
    words = tuple(word for kind in ("shape", "colour", "texture") for word in ATTRIBUTES[kind])
    embed = lambda texts: tower.text(tower.tokens(texts))  # noqa: E731
    labels = vt.label(finding.subunit_activations(q), tower.image(summaries), embed, words, top=30, progress=False)
    unit = _clearest(finding, labels)
    tiles = _row(finding.top.images[finding.units.tolist().index(unit)], images, f"unit {unit}")
    for number in finding.subunits(unit)[:3]:
        said = f"{labels.names[number]} (chance {labels.chance[number]:.3f})"
        tiles += _row(finding.subunit_top.images[number], images, said)
    return to_png(Pictures(f"Unit {unit} above, its sub-units below: strongest scenes", tuple(tiles), columns=SHOWN))


def _row(numbers: np.ndarray, images: vt.ImageSet, said: str) -> list[Tile]:
    return [Tile(np.asarray(images[int(n)].image), said, said if not k else " ") for k, n in enumerate(numbers[:SHOWN])]


def _clearest(finding: vt.Disentanglement, labels: vt.Labels) -> int:
    """Of units with two or three sub-units of different names, the one whose names are surest."""
    best, found = np.inf, int(finding.units[0])
    for unit in finding.units[(finding.counts > 1) & (finding.counts < 4)]:
        ids = finding.subunits(int(unit))
        if len({labels.names[i] for i in ids}) == len(ids) and (luck := float(labels.chance[ids].max())) < best:
            best, found = luck, int(unit)
    return found


def followed_picture() -> bytes:
    """The scene of docs/follow.md at each stage, from what the blocks of that page compute."""
    code = re.findall(r"^```python\n(.*?)^```", (DOCS / "follow.md").read_text(), re.DOTALL | re.MULTILINE)
    before, space = Path.cwd(), {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        exec("\n".join(code), space)
        os.chdir(before)
    image, (row, column) = np.asarray(space["one"].image), (int(space["row"]), int(space["column"]))
    looked = space["looked"].repeat(8, 0).repeat(8, 1)
    colours = space["colours"].reshape(8, 8, 3).repeat(8, 0).repeat(8, 1)
    box = Box(column * 8, row * 8, column * 8 + 8, row * 8 + 8)
    tiles = [
        Tile(image, "scene", "the picture"),
        *token_tiles(image, looked[None], [None], ["class token looks"]),
        *token_tiles(image, space["heat"], [box], [f"patch {row}, {column}"]),
        Tile(paint_segments(image, space["segments"].labels()[0]), "segments", "segments"),
        Tile(colours, "concepts", "concepts"),
    ]
    return to_png(Pictures("One picture, stage by stage", tuple(tiles), columns=len(tiles)))


def structure_picture() -> bytes:
    """Units of the class token of a masked autoencoder from block to block, framed by their clusters."""
    subject, images = vt.load("bundled:scenes-mae", device="cpu"), vt.scenes(512, size=64, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        store = vt.record(subject, images, "blocks.*.resid.out", f"{folder}/store", progress=False)
        finding = vt.structure(store, tokens=[0], keep_transformed=True, progress=False)
    return to_png(unit_maps(finding, sort=True, title="scenes-mae, 512 scenes"))


def align_picture() -> bytes:
    """Patches of three scenes in two models, block by block, coloured in a space in which patches have to agree."""
    images = vt.scenes(200, size=64, seed=3)
    names, layers = ("text", "mae"), [f"blocks.{n}.attn.out" for n in (1, 3, 5, 7)]
    with tempfile.TemporaryDirectory() as folder:
        stores = {
            name: vt.record(
                vt.load(f"bundled:scenes-{name}", device="cpu"), images, layers, f"{folder}/{name}", progress=False
            )
            for name in names
        }
        asked = {"width": 32, "epochs": 60, "lr": 3e-3, "lambda_eigen": 0, "lambda_agree": 1, "progress": False}
        alignment = vt.align(stores, images, vt.scene_responses(images), **asked)
        rows = {m: {site: store[site][:, 1:] for site in layers} for m, store in stores.items()}
        cut = vt.ncut(rows, n_eig=12, read=alignment.transform, progress=False)
    mosaic = color_mosaic(cut, vt.colors(vt.spectral_tsne(cut, n_sample=2000)), images, pictures=ALIGNED)
    return to_png(mosaic)


PICTURES = {
    "follow": followed_picture,
    "structure": structure_picture,
    "tokens": tokens_picture,
    "disentangle": split_picture,
    "align": align_picture,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        (DOCS / f"{name}.png").write_bytes(PICTURES[name]())
