"""A cut as a page: colours, likeness, concepts, ways through the layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from vitreous.images import ImageSet
from vitreous.lenses.align_atlas import Atlas, Place, layer_transitions, model_mixing, slot_share
from vitreous.lenses.align_colors import farthest_points
from vitreous.views.align import Crops, color_mosaic, framed, likeness, short_layer
from vitreous.views.align_panels import (
    circle_panel,
    layer_clouds,
    path_panel,
    spread_patches,
    transition_heats,
)
from vitreous.views.panels import (
    Curve,
    Fact,
    Group,
    Line,
    Member,
    Overview,
    Page,
    Panel,
    Pictures,
    Section,
    Statement,
    Text,
)

CONCEPTS, SHOWN, REACH = 8, 6, 2  # shown on the page; patches around a patch
WAYS = "ABCDEF"
LIKE = 7  # pictures in a row of likeness, spread over all


@dataclass(frozen=True, eq=False)
class Look:
    """What a page is made of: a cut, its pictures (None: only what needs none), which of them are shown, how models
    crop them, and for each model sets of patches bool (picture, patch) by name, such as figure and ground."""

    atlas: Atlas
    images: ImageSet | None = None
    pictures: tuple[int, ...] = ()
    crops: Crops = field(default_factory=dict)
    masks: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)


def cut_page(look: Look, *, aligned: bool) -> Page:
    """The whole page; `aligned` says whether models were brought into one space first."""
    found = look.atlas
    sections = [*_picture_sections(look), *_way_sections(look), _reading_section(found, aligned)]
    nodes = f"{len(found):,} patches"
    numbers = (
        Fact("nodes", f"{len(found):,}", "patches of pictures at layers"),
        Fact("layers", str(len(found.spectral.blocks)), f"of {len(found.models)} models"),
        Fact("eigenvectors", str(len(found.spectral.eigenvalues)), f"method: {found.spectral.method}"),
    )
    members = tuple(Member(m or "model", f"{len(found.layers(m))} layers", k) for k, m in enumerate(found.models))
    first = next(iter(found.spectral.blocks.values()))
    lede = (
        "Every patch of every picture at every layer is a node of one graph; a normalized cut puts nodes together that "
        "are alike. One colour is one concept, wherever it turns up."
    )
    overview = Overview(
        lede, f"{first[2]:,} pictures", members, numbers, tuple(_statements(look, sections)), kind="concepts"
    )
    return Page(f"Concepts in {nodes}", overview, tuple(sections))


def _statements(look: Look, sections: Sequence[Section]) -> Iterator[Statement]:
    found = look.atlas
    there = {section.name for section in sections}
    name = next((name for name in ("colours", "ways") if name in there), None)
    if name is not None:
        if len(found.slots) > 1:
            share = slot_share(found)
            yield Statement(
                f"The layer that a patch is at explains {share:.0%} of where it lies, what the patch shows at most the "
                f"other {1 - share:.0%}.",
                name,
            )
        if len(found.models) > 1:
            said = ", ".join(f"{m} {share:.0%}" for m, share in model_mixing(found).items())
            yield Statement(
                "Do models share concepts? Of a model's patches, the share whose most alike one in another picture is "
                f"of another model: {said}; {1 - 1 / len(found.models):.0%} if models did not matter.",
                name,
            )


# -- what needs pictures


def _picture_sections(look: Look) -> Iterator[Section]:
    if look.images is None or not look.pictures:
        return
    found, images = look.atlas, look.images
    made = (color_mosaic(found.spectral, found.shades, images, pictures=(p,), crops=look.crops) for p in look.pictures)
    mosaics = tuple(replace(m, title=images.ids[p], caption="") for m, p in zip(made, look.pictures, strict=True))
    sentence = "One colour means the same in every picture, layer and model. Numbers are layers."
    yield Section("colours", "Concepts by picture, layer and model", sentence, (Group("", mosaics),), "Colours")
    picks = spread_patches(found, look.pictures[0], 3)
    panels = [_likeness_panel(look, place) for place in picks]
    sentence = "Bright patches are like the framed one, in other pictures and in other models."
    yield Section("likeness", "What is like one patch", sentence, (Group("", tuple(panels)),), "Likeness")
    yield _concept_section(look)


def _likeness_panel(look: Look, place: Place) -> Pictures:
    """The same depth in every model, from one patch."""
    assert look.images is not None
    layers = look.atlas.layers(place.model)
    depth = layers.index(place.layer) / max(1, len(layers) - 1)
    slots = [(place.model, place.layer)]
    for model in look.atlas.models:
        others = look.atlas.layers(model)
        if model != place.model:
            slots.append((model, others[round(depth * (len(others) - 1))]))
    title = f"{place.model}, layer {short_layer(place.layer)}, picture {look.images.ids[place.picture]}"
    more = np.linspace(0, len(look.images) - 1, min(LIKE, len(look.images))).round().astype(int).tolist()
    return likeness(look.atlas.spectral, look.images, place, pictures=more, slots=slots, crops=look.crops, title=title)


def _concept_section(look: Look) -> Section:
    """Centres that lie far apart in space, each with the patches of other pictures that are most like it."""
    assert look.images is not None
    found = look.atlas
    panels: list[Panel] = []
    for node in _centres(found):
        own = found.place(node)
        places = [own, *(place for place, _ in found.nearest(node, SHOWN - 1))]
        tiles = tuple(
            framed(
                look.images,
                p.picture,
                p.patch,
                found.spectral.grid(p.model, p.layer),
                f"{p.model} {short_layer(p.layer)}",
                look.crops.get(p.model),
                REACH,
            )
            for p in places
        )
        panels.append(Pictures(f"Concept {len(panels) + 1}", tiles, SHOWN))
    sentence = (
        "Nodes of each model that lie far apart, and the nodes of other pictures, in whatever layer or model, that are "
        "most like them."
    )
    return Section("concepts", "A few concepts", sentence, (Group("", tuple(panels), columns=2),), "Concepts")


def _centres(found: Atlas) -> list[int]:
    """A few nodes of every model that lie far apart."""
    each = max(2, CONCEPTS // len(found.models))
    models = np.array([found.models.index(model) for model, _ in found.slots])
    sample = np.sort(np.random.default_rng(0).choice(len(found), min(8000, len(found)), replace=False))
    owner = models[found.places(sample)[:, 0]]
    chosen = []
    for k in range(len(found.models)):
        mine = sample[owner == k]
        space = np.asarray(found.space[mine], np.float32)
        chosen += [int(mine[n]) for n in farthest_points(space, min(each, len(mine)), 0)] if len(mine) else []
    return chosen


# -- ways


def _way_sections(look: Look) -> Iterator[Section]:
    found = look.atlas
    deep = [m for m in found.models if len(found.layers(m)) > 1]
    if not deep:
        return
    groups = []
    picture = look.pictures[0] if look.pictures else 0
    picks, said = _followed(look, picture)
    grid = found.spectral.grid(picks[0].model, picks[0].layer)
    if look.images is not None:
        crop = look.crops.get(picks[0].model)
        tiles = tuple(framed(look.images, p.picture, p.patch, grid, said[k], crop) for k, p in enumerate(picks))
        groups.append(Group("", (Pictures("The patches that are followed", tiles, max(4, len(tiles))),)))
    names = [WAYS[k] for k in range(len(picks))]
    same = [m for m in deep if found.spectral.grid(m, found.layers(m)[0]) == grid]  # a number is the same place
    ways = [path_panel(found, [(p.picture, p.patch) for p in picks], m, names=names) for m in same]
    groups.append(Group("", (*ways, *(layer_clouds(found, m) for m in deep)), columns=2))
    sentence = "All nodes in one plane. A patch begins at the disc, in the first layer, and ends at the arrow."
    yield Section("ways", "How patches move through the layers", sentence, tuple(groups), "Ways")
    model = deep[0]
    layers = found.layers(model)
    at = max(1, len(layers) // 3)
    moved = layer_transitions(found, model, (layers[at - 1], layers[at]), masks=look.masks.get(model))
    groups = [
        Group("", circle_panel(found, moved), columns=2),
        Group("", transition_heats(moved), columns=min(2, len(moved.matrices))),
    ]
    sentence = (
        "Five circles in each of two layers that follow each other, and the share of a circle's patches that goes to "
        "another. A row need not sum to 1: circles do not hold every patch."
    )
    yield Section("transitions", "Where patches go next", sentence, tuple(groups), "Transitions")


def _followed(look: Look, picture: int) -> tuple[list[Place], list[str]]:
    """Patches to follow, with a letter each: two on objects and two on the ground where that is known."""
    masks = {name: part[picture] for name, part in look.masks.get(look.atlas.models[0], {}).items()}
    sets = {name: part for name, part in masks.items() if part.any()} or {"": None}
    each = 4 // len(sets)
    picks: list[Place] = []
    said = []
    for name, among in sets.items():
        for place in spread_patches(look.atlas, picture, each, among):
            said.append(f"{WAYS[len(picks)]} {name}".strip())
            picks.append(place)
    return picks, said


def _reading_section(found: Atlas, aligned: bool) -> Section:
    values = found.spectral.eigenvalues
    curve = Curve(
        "Eigenvalues",
        tuple(range(1, len(values) + 1)),
        (Line("eigenvalue", tuple(float(v) for v in values)),),
        "number",
        "eigenvalue",
        "A value near 1 is a group that hardly touches the others.",
    )
    space = (
        "The layers were brought into one channel space first (`vt.align`), so that models can be compared."
        if aligned
        else "The layers were taken as they are: channels of different layers and models have nothing to do with each "
        "other unless they were aligned, so colours mostly tell layers apart."
    )
    words = Text(
        "How to read it",
        (
            space,
            f"Method of the cut: {found.spectral.method}. Colours and planes are t-SNE of a sample of nodes; distances "
            "between far groups mean little.",
            "Likeness is the cosine of eigenvectors, not of features.",
        ),
        "import vitreous as vt\n\nfound = vt.Atlas.load(FOLDER)\nnode = found.node((MODEL, LAYER, 0, 27))\n"
        "found.nearest(node)  # the patches of other pictures most like it\nfound.path(MODEL, 0, 27)  # (layer, 2)",
    )
    return Section(
        "reading", "How to read this page", "What was done.", (Group("", (words, curve), columns=2),), "Reading it"
    )
