"""Numbers of an alignment and of a cut as panels: scores by region and layer, cosines, paths, transitions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from vitreous.errors import SettingsError
from vitreous.lenses.align import ChannelAlign
from vitreous.lenses.align_atlas import Atlas, LayerTransitions, Place
from vitreous.lenses.align_likeness import SlotCosines
from vitreous.lenses.align_segmentation import SHUFFLED, LayerScores, RegionMeans
from vitreous.views.align import short_layer
from vitreous.views.colours import NEUTRAL
from vitreous.views.panels import Curve, Line
from vitreous.views.plane import Bar, Bars, Heat, Path, Paths

MOST_REGIONS = 24
LEAST = -0.25  # R² below it is as bad as any
CLOUD = 20_000  # points drawn at most


def score_bars(alignment: ChannelAlign, *, title: str = "How well are held-out pictures predicted?") -> Bars:
    """R² of every region, with the noise ceiling where there were repeats (Table 1)."""
    rows = alignment.records()[: MOST_REGIONS + 1]
    marks = tuple(row["ceiling"] for row in rows) if alignment.ceiling is not None else ()
    caption = f"Mean over the responses of a region, {len(alignment.held_out)} pictures held out of training."
    names = tuple(f"{row['region']} ({row['responses']:,})" for row in rows)
    if min(row["R2"] for row in rows) < LEAST:
        caption += f" Bars end at {LEAST}, the table does not."
    bar = Bar("R²", tuple(max(row["R2"], LEAST) for row in rows), 0, marks)
    return Bars(title, names, (bar,), "R²", caption, "noise ceiling" if marks else "")


def region_bars(
    found: RegionMeans, model: str, layer: str, *, title: str = "What figure and ground add to each region"
) -> Bars:
    """Mean activation of each class by region at one layer (Figures 6 and 7), in deviations of the responses."""
    if (model, layer) not in found.slots:
        raise SettingsError("no such layer", given=f"{model} {layer}", accepted=[" ".join(s) for s in found.slots])
    slot = found.slots.index((model, layer))
    by_roi = dict(list(found.by_roi().items())[:MOST_REGIONS])
    bars = tuple(
        Bar(name, tuple(float(values[slot, k]) for values in by_roi.values()), (1, 0, 2, 3, 4, 5)[k % 6])
        for k, name in enumerate(found.classes)
    )
    return Bars(title, tuple(by_roi), bars, "deviations of the responses", f"{model}, layer {short_layer(layer)}.")


def region_curves(found: RegionMeans, roi: str, *, title: str = "") -> Curve:
    """One class minus the first (figure minus ground), layer by layer, a line a model (Figure 16 in one picture)."""
    by_roi = found.by_roi()
    if roi not in by_roi:
        raise SettingsError("no such region", given=roi, accepted=sorted(by_roi))
    gap = by_roi[roi][:, -1] - by_roi[roi][:, 0]
    models = list(dict.fromkeys(model for model, _ in found.slots))
    values = {m: [float(v) for v, (model, _) in zip(gap, found.slots, strict=True) if model == m] for m in models}
    depth = max(map(len, values.values()))
    lines = tuple(Line(m, _stretched(v, depth), k) for k, (m, v) in enumerate(values.items()))
    label = f"{found.classes[-1]} minus {found.classes[0]}"
    deepest = max(models, key=lambda m: len(values[m]))
    x = _numbers([layer for model, layer in found.slots if model == deepest])
    return Curve(title or roi, x, lines, "layer", label, baseline=0.0)


def segmentation_curves(found: LayerScores, model: str, *, title: str = "") -> Curve:
    """mIoU over layers, a line a reading (Figure 5); what patches could reach and what nothing reaches are dashed."""
    readings = [name for name in found.readings if name != SHUFFLED]
    scores = {name: found.best(name, model) for name in found.readings}
    layers = list(scores[readings[0]])
    lines = [Line(name, tuple(scores[name].values()), k) for k, name in enumerate(readings)]
    if SHUFFLED in scores:
        lines.append(Line(SHUFFLED, tuple(scores[SHUFFLED].values()), NEUTRAL, control=True))
    top = [found.scores[readings[0], model, layer].majority for layer in layers]
    caption = (
        f"{model}; the best of ten thresholds at each layer. Patches of this size named after most of their pixels "
        f"reach {np.mean(top):.2f}."
    )
    x = _numbers(layers)
    return Curve(title or f"Oracle segmentation: {model}", x, tuple(lines), "layer", "mIoU", caption)


def cosine_heats(before: SlotCosines, after: SlotCosines) -> tuple[Heat, Heat]:
    """Figure 3: the same patch at any two layers of any two models, before and after alignment, one scale for both."""
    values = np.concatenate([part.same[np.isfinite(part.same)] for part in (before, after)])
    most = max(0.2, float(np.abs(values).max())) if values.size else 1.0
    return (
        _cosine_heat(before, "Before alignment", most),
        _cosine_heat(after, "After alignment", most),
    )


def _cosine_heat(found: SlotCosines, title: str, most: float) -> Heat:
    names = tuple(short_layer(layer) for _, layer in found.slots)
    parts = tuple((model, len(list(group))) for model, group in groupby(found.slots, key=lambda slot: slot[0]))
    same, other = found.between()
    caption = "Mean cosine of the same patch at two layers."
    if np.isfinite(same):
        caption += f" Between different models {same:.3f}; of another patch {other:.3f}."
    else:
        caption += " Models with different channels cannot be compared (grey)."
    return Heat(title, found.same, names, names, -most, most, "layer", "", caption, False, parts, parts)


def path_panel(
    found: Atlas,
    patches: Sequence[tuple[int, int]],
    model: str,
    *,
    names: Sequence[str] | None = None,
    layers: Sequence[str] | None = None,
    title: str = "",
) -> Paths:
    """Ways of a few patches (picture, patch) through the layers of a model, in the plane of all nodes (Figure 9).

    Points have the colours of the mosaic. A disc is where a way begins, an arrow where it ends.
    """
    if model not in found.models:
        raise SettingsError("no such model", given=model, accepted=found.models)
    kept = [k for k, layer in enumerate(found.layers(model)) if layers is None or layer in layers]
    if len(kept) < 2:
        raise SettingsError("a path needs two layers or more", given=layers, accepted=found.layers(model))
    names = [f"picture {p}, patch {q}" for p, q in patches] if names is None else list(names)
    ways = tuple(
        Path(name, found.path(model, *patch)[kept], k)
        for k, (name, patch) in enumerate(zip(names, patches, strict=True))
    )
    shown = _some(len(found))
    ends = [short_layer(found.layers(model)[k]) for k in (kept[0], kept[-1])]
    caption = f"Layer {ends[0]} (disc) to {ends[1]} (arrow), among all nodes of all models."
    return Paths(title or f"Ways of patches: {model}", found.plane[shown], found.shades[shown], ways, (), caption)


def layer_clouds(found: Atlas, model: str, *, title: str = "") -> Paths:
    """Nodes of one model in the plane, dark at the first layer and bright at the last (Figure 9, left)."""
    layers = found.layers(model)
    rows, shades = [], []
    for k, layer in enumerate(layers):
        part = found.spectral.of(model, layer, found.plane).reshape(-1, 2)
        rows.append(part)
        shades.append(np.repeat([_by_depth(k / max(1, len(layers) - 1))], len(part), 0))
    points, colours = np.concatenate(rows), np.concatenate(shades).astype(np.uint8)
    shown = _some(len(points))
    caption = "Dark blue: first layer; yellow: last."
    return Paths(title or f"Layers of {model}", points[shown], colours[shown], (), (), caption)


def transition_heats(found: LayerTransitions) -> tuple[Heat, ...]:
    """Figure 10: a table a mask; rows are circles of the first layer, columns of the second."""
    count = len(found.before)
    first, second = (short_layer(layer) for layer in found.layers)
    return tuple(
        Heat(
            f"{found.model}: {name}",
            matrix,
            tuple(f"A{k}" for k in range(count)),
            tuple(f"B{k}" for k in range(count)),
            0.0,
            1.0,
            f"layer {second}",
            f"layer {first}",
            "Of the patches in a circle of the first layer, the share in a circle of the second. Grey: no patch.",
            numbers=True,
        )
        for name, matrix in found.matrices.items()
    )


def circle_panel(found: Atlas, moved: LayerTransitions) -> tuple[Paths, Paths]:
    """The circles of `transition_heats`, each among the patches of its layer."""
    panels = []
    for letter, layer, centres in zip("AB", moved.layers, (moved.before, moved.after), strict=True):
        points = found.spectral.of(moved.model, layer, found.plane).reshape(-1, 2)
        shades = found.spectral.of(moved.model, layer, found.shades).reshape(-1, 3)
        circles = tuple((float(x), float(y), moved.radius, f"{letter}{k}") for k, (x, y) in enumerate(centres))
        shown = _some(len(points))
        panels.append(Paths(f"{moved.model}, layer {short_layer(layer)}", points[shown], shades[shown], (), circles))
    return panels[0], panels[1]


def spread_patches(found: Atlas, picture: int, count: int = 4, among: np.ndarray | None = None) -> list[Place]:
    """Patches of one picture, at the middle layer of the first model, whose ways through all layers differ most.

    `among` bool (patch,) are those to choose from; the first chosen is the most ordinary one.
    """
    model = found.models[0]
    layer = found.layers(model)[len(found.layers(model)) // 2]
    patches = found.spectral.block(model, layer)[3]
    ways = [
        np.asarray(found.spectral.of(*slot, found.space)[picture], np.float32)
        for slot in found.slots
        if found.spectral.block(*slot)[3] == patches
    ]
    rows = np.concatenate([way / max(float(way.std()), 1e-6) for way in ways], 1)
    allowed = np.arange(patches) if among is None else np.flatnonzero(among)
    rows = rows[allowed]
    chosen: list[int] = []
    away = -np.linalg.norm(rows - np.median(rows, 0), axis=1)
    while len(chosen) < min(count, len(allowed)):
        chosen.append(int(away.argmax()))
        new = np.linalg.norm(rows - rows[chosen[-1]], axis=1)
        away = new if len(chosen) == 1 else np.minimum(away, new)
        away[chosen] = -1.0  # alike or not, no patch twice
    return [Place(model, layer, picture, int(allowed[k])) for k in chosen]


def _numbers(layers: Sequence[str]) -> tuple[float, ...]:
    """The layers' own numbers where they have some, else 0, 1, 2, ..."""
    names = [short_layer(layer) for layer in layers]
    if all(name.isdigit() for name in names) and len(set(names)) == len(names):
        return tuple(float(name) for name in names)
    return tuple(float(k) for k in range(len(names)))


def _some(count: int) -> np.ndarray:
    if count <= CLOUD:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, CLOUD, replace=False))


def _by_depth(share: float) -> np.ndarray:
    stops = np.array([[26, 28, 96], [32, 120, 140], [246, 222, 56]], float)
    return np.array([np.interp(share, (0, 0.5, 1), stops[:, c]) for c in range(3)]).round()


def _stretched(values: list[float], length: int) -> tuple[float, ...]:
    """Over the depth of the deepest model, so that first and last layers meet."""
    at = np.linspace(0, len(values) - 1, length)
    return tuple(float(v) for v in np.interp(at, range(len(values)), values))
