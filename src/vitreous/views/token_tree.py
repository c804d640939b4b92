"""The tree of segments (Figure 14): a picture taken apart one cut after the other, each part shown alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from vitreous.errors import SettingsError
from vitreous.views.panels import Pictures, Tile

if TYPE_CHECKING:
    from vitreous.images.imageset import Picture
    from vitreous.lenses.tokens_segments import Segments

SIDE = 120  # pixels of a part
GAP, DROP = 22, 46  # between parts of a row, and between rows
FADED = 0.16  # brightness of what is not the part
INK, GROUND = (90, 100, 112), (255, 255, 255)


@dataclass(frozen=True)
class Node:
    """A part: `members` of the leaves, height at which it was joined, and its two parts (none for a leaf)."""

    members: tuple[int, ...]
    height: float
    parts: tuple[Node, Node] | None = None


def cut_tree(linkage: np.ndarray, leaves: int) -> Node:
    """The upper part of a tree in scipy's layout (merge, 4), cut where it has `leaves` parts."""
    count = len(linkage) + 1
    if linkage.ndim != 2 or linkage.shape[1] != 4 or not 1 <= leaves <= count:
        raise SettingsError("a tree is (merge, 4), cut into parts that it has", given=(linkage.shape, leaves))
    nodes = [Node((k,), 0.0) for k in range(count)]
    for k, (a, b, height, _) in enumerate(linkage):
        left, right = nodes[int(a)], nodes[int(b)]
        kept = count - k - 1 < leaves  # the last merges are the upper ones
        members = tuple(sorted(left.members + right.members))
        nodes.append(Node(members, float(height), (left, right) if kept else None))
    return nodes[-1]


def tree_panel(
    picture: Picture, segments: Segments, *, sample: int = 0, leaves: int = 6, title: str = "A picture taken apart"
) -> Pictures:
    """Parts of one picture of `segments`: pixels go to the leaf whose maps add up to the most, as in eq. 6 and 7.

    A part higher up is its leaves together, so parts nest.
    """
    one = segments[sample]
    root = cut_tree(one.trees[0], min(leaves, len(one.trees[0]) + 1))
    ends = _ends(root)
    clusters = np.empty_like(one.clusters)
    for k, end in enumerate(ends):
        clusters[0, list(end.members)] = k
    (labels,) = replace(one, clusters=clusters).labels()
    image = np.asarray(picture.image)
    if labels.shape != image.shape[:2]:
        raise SettingsError("segments of another picture", given=labels.shape, accepted=f"{image.shape[:2]}")
    drawn = _draw(image, {end.members: labels == k for k, end in enumerate(ends)}, root)
    said = "From the whole picture down: each part and the two it falls into; numbers are heights in the tree."
    return Pictures(title, (Tile(drawn, f"{title}, {len(ends)} parts"),), 1, said)


def _ends(node: Node) -> list[Node]:
    return [node] if node.parts is None else [end for part in node.parts for end in _ends(part)]


def _draw(image: np.ndarray, where: dict[tuple[int, ...], np.ndarray], root: Node) -> np.ndarray:
    """`where` says which pixels a leaf has."""
    from PIL import Image, ImageDraw

    width = round(SIDE * image.shape[1] / image.shape[0])
    places = _places(root)
    rows, columns = (1 + max(place[k] for place in places.values()) for k in (0, 1))
    across = width + GAP
    page = Image.new("RGB", (round(columns * across) + GAP, round(rows * (SIDE + DROP)) - DROP + GAP), GROUND)
    pen = ImageDraw.Draw(page)

    def corner(node: Node) -> tuple[int, int]:
        row, column = places[node.members]
        return GAP + round(column * across), GAP // 2 + row * (SIDE + DROP)

    def visit(node: Node) -> None:
        x, y = corner(node)
        for part in node.parts or ():
            px, py = corner(part)
            middle = y + SIDE + DROP // 2
            start, end = (x + width // 2, y + SIDE), (px + width // 2, py)
            pen.line([start, (start[0], middle), (end[0], middle), end], fill=INK, width=2)
            visit(part)
        mine = np.any([where[end.members] for end in _ends(node)], axis=0)
        shown = np.where(mine[..., None], image, FADED * image + (1 - FADED) * 235).astype(np.uint8)
        page.paste(Image.fromarray(shown).resize((width, SIDE), Image.Resampling.BICUBIC), (x, y))
        pen.rectangle([x, y, x + width - 1, y + SIDE - 1], outline=INK)
        if node.parts:
            pen.text((x + width // 2 + 5, y + SIDE + 3), f"{node.height:.2g}", fill=INK)

    visit(root)
    return np.asarray(page)


def _places(root: Node) -> dict[tuple[int, ...], tuple[int, float]]:
    """{members: (row, column)}: leaves stand side by side, a parent above the middle of its parts."""
    places: dict[tuple[int, ...], tuple[int, float]] = {}
    free = iter(range(len(root.members)))

    def place(node: Node, row: int) -> float:
        column = float(next(free)) if node.parts is None else sum(place(p, row + 1) for p in node.parts) / 2
        places[node.members] = (row, column)
        return column

    place(root, 0)
    return places
