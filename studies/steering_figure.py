"""The figure of the steering study: what every method buys at which price, and what became of some pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

import vitreous as vt
from steering_measures import CONCEPTS
from vitreous.render import to_png
from vitreous.views.panels import Card, Curve, Line, Pictures, Tile

#: Side -> method -> its colour and whether it is a control; what is left out of the figure stands in the JSON.
SHOWN: dict[str, dict[str, tuple[int, bool]]] = {
    "suppress": {
        "sub-units of the concept": (0, False),
        "sub-units of the concept, 5 instead of 20": (3, False),
        "difference of means, by class labels": (1, False),
        "whole units of these sub-units": (2, True),
        "random partition, labelled anew": (4, True),
        "sub-units of another concept": (5, True),
        "random sub-units": (6, True),
    },
    "amplify": {
        "sub-units of the concept": (0, False),
        "sub-units of the concept, raised": (3, False),
        "difference of means, by class labels": (1, False),
        "whole units of these sub-units": (2, True),
        "sub-units of another concept, raised": (5, True),
        "random sub-units": (6, True),
    },
}
PRICE = np.linspace(0, 0.4, 21)
EXAMPLES = ("dog", "cat", "insect", "bird")
GAMMA = -24.0


def draw(found: dict[str, Any], study: Any, images: vt.ImageSet, path: Path) -> None:
    card = Card(
        "Sub-units of a concept, steered by its word: tin-vit-text, last block, 12 concepts",
        f"{len(study.held):,} pictures that had no part in finding or labelling the sub-units; 20 sub-units a concept.",
        panels=(
            curve(found, "suppress", "hit", "Suppressed: pictures of the concept that are still called so"),
            curve(found, "amplify", "drawn", "Amplified: other pictures that are now called so"),
            examples(study, images),
        ),
    )
    path.write_bytes(to_png(card, width=9, dpi=75))


def curve(found: dict[str, Any], side: str, what: str, title: str) -> Curve:
    """Every method over its price: the share of other pictures whose class has changed."""
    lines = []
    for name, (series, control) in SHOWN[side].items():
        rows = found[side][name]
        price = np.array([0.0, *(1 - kept for kept in rows["kept"])])
        value = np.array([found["hits before" if what == "hit" else "drawn before"], *rows[what]])
        order = np.argsort(price, kind="stable")
        lines.append(Line(name, tuple(np.interp(PRICE, price[order], value[order]).tolist()), series, control))
    return Curve(title, tuple(PRICE.tolist()), tuple(lines), "share of all other pictures whose class changes", "share")


def examples(study: Any, images: vt.ImageSet, each: int = 3) -> Pictures:
    """The first pictures of some concepts that are called so, and what they are called once it is suppressed."""
    assert images.classes is not None
    names, tiles = [name.split(",")[0].split(" (")[0] for name in images.classes], []
    for concept in EXAMPLES:
        called = np.isin(study.before.argmax(1).numpy(), CONCEPTS[concept])
        mine = np.flatnonzero(called & np.isin(study.truth[study.held], CONCEPTS[concept]))[:each]
        ids = study.meaning(concept, 5).subunits
        with torch.no_grad(), vt.steer(study.block.subject, study.finding, suppress=ids, gamma=GAMMA, prefix=True):
            after = study.block(study.held[mine])
        for place, now in zip(mine, after, strict=True):
            was = study.before[place]
            said = [f"{names[int(p.argmax())]} {p.max():.2f}" for p in (was, now)]
            picture = np.asarray(images[int(study.held[place])].image)
            tiles.append(Tile(picture, f"{concept} suppressed", f"- {concept}: {said[0]}\n{said[1]}"))
    return Pictures(f"The first class before and after, 5 sub-units x {GAMMA:g}", tuple(tiles), 6)
