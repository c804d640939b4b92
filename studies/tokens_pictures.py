"""Figures 2 and 4 of the tokens paper on real pictures: what tokens stand for, and how that grows over blocks.

    python studies/tokens_pictures.py --data ../shared/data [--pictures 3]

dinov2s_saliency on the first pictures of voc_animals in the other studies' fixed order (none picked by hand), about
130 patches of the picture's own shape, maps of the sum in bfloat16. Tokens: the class token, the patch in the middle of
the animal, another one on it, and two on the background, all by the true mask. Writes tokens_pictures_maps.png (maps,
object masks at 0.2) and tokens_pictures_blocks.png (class, animal, background a row; a block a
column) under --out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

import vitreous as vt
from tokens_inputs import Shown, backbone, collection, size_for
from vitreous.evidence.itiou import token_classes
from vitreous.images.imageset import ImageSet
from vitreous.render import to_png
from vitreous.views.panels import Card
from vitreous.views.tokens import layer_panel, token_panel

OUT = Path(__file__).parent / "results"
BLOCKS, PATCHES = (0, 3, 7, 11), 130


def chosen(maps: vt.TokenMaps, shown: Shown) -> list[int]:
    """The class token, two tokens on the animal and two on the background."""
    assert shown.truth is not None and maps.grid is not None
    classes = token_classes(shown.truth, tuple(maps.grid)).reshape(maps.grid)
    tokens = [0]
    for inside in ((classes > 0) & (classes < 255), classes == 0):
        places = np.argwhere(inside)
        if not len(places):
            continue
        first = places[np.linalg.norm(places - places.mean(0), axis=1).argmin()]
        second = places[np.linalg.norm(places - first, axis=1).argmax()]
        tokens += [maps.token_at(int(row), int(column)) for row, column in (first, second)]
    return list(dict.fromkeys(tokens))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--pictures", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    subject = backbone(given.data, "dinov2s_saliency")
    maps, blocks = [], []
    for shown in collection(given.data, "voc_animals", given.pictures).pictures:
        size = size_for(subject, shown.image, PATCHES)
        found = vt.token_maps(subject, [shown.image], BLOCKS, size=size, dtype="bfloat16", progress=False)
        picture = ImageSet.from_arrays([shown.pixels])[0]
        tokens = chosen(found[-1], shown)
        maps.append(token_panel(found[-1], picture, tokens, tau=0.2, title=shown.id))
        blocks.append(layer_panel(found, picture, [*tokens[:2], tokens[-1]], title=shown.id))
        print(shown.id, "done", flush=True)
    given.out.mkdir(parents=True, exist_ok=True)
    said = "Bright: what counts for the framed token of dinov2s_saliency."
    for name, panels in (("maps", maps), ("blocks", blocks)):
        png = to_png(Card("What tokens stand for", said, panels=tuple(panels)), width=9, dpi=75)
        (given.out / f"tokens_pictures_{name}.png").write_bytes(png)


if __name__ == "__main__":
    main()
