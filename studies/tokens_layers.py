"""Object selection over layers and thresholds: Figures 12 and 13 of the tokens paper on real models.

    python studies/tokens_layers.py --data ../shared/data --work FOLDER [--quick]

ITIoU (eq. 12 and 15) of the lens's maps (sum) after every second block, at thresholds from 0 to 0.95, and of other maps
at the last block: energy, three vectors of length 1 (see tokens_segments.md), attention rollout, raw attention, the
cosine of patch features, and nearness to the token, which knows nothing of the picture. Maps are brought to [0, 1] and
to half of the picture's own pixels. A mask that covers everything scores the area of the class, which is given too.
Maps are kept in FOLDER. Writes tokens_layers.json, .md and .png under --out.

About 70 patches of the picture's own shape for dinov2s_saliency, 8 x 8 for tin-vit-*; the same few pictures of each set
as in tokens_segments, maps in bfloat16. All blocks on voc_animals, the last one elsewhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import vitreous as vt
from tokens_inputs import (
    PATCHES,
    Collection,
    Shown,
    asked,
    backbone,
    collection,
    in_order,
    kept,
    maps_of,
    parser_of,
    put_tables,
    size_for,
)
from vitreous.evidence.bootstrap import mean_interval
from vitreous.evidence.itiou import TAU, TAUS, InitialTokenIoU, image_itiou, token_classes
from vitreous.preprocess import Frame
from vitreous.provenance import json_bytes, versions
from vitreous.render import to_png
from vitreous.views.panels import Card, Curve, Line

MODELS, SETS, PICTURES = ("dinov2s_saliency", "tin-vit-text", "tin-vit-mae"), ("voc_animals", "pets", "camvid"), 12
BLOCKS = (0, 1, 3, 5, 7, 9, 11)
AT_LAST = ("energy", "unit sum", "norm", "own direction", "rollout", "raw attention")
DRAWN = ("energy", "own direction", "raw attention", "cosine of features", "nearness")
LAST = BLOCKS[-1]


# -- maps brought to half of a picture's own pixels, all patches


def half(found: vt.TokenMaps, shown: Shown) -> np.ndarray:
    """float32 (token, row, column) in [0, 1], prefix tokens left out."""
    size = shown.image.height // 2, shown.image.width // 2
    return found.of([found.tokens[k] for k in found.patches]).upsample(size, scale=True)[0]


def drawn(subject: vt.Subject, shown: Shown, maps: np.ndarray) -> np.ndarray:
    """The same for maps (token, row, column) on the grid that have no `TokenMaps`."""
    low, high = (edge(maps, axis=(1, 2), keepdims=True) for edge in (np.min, np.max))
    size = vt.Size(*size_for(subject, shown.image, PATCHES))
    wanted = vt.Size(shown.image.height // 2, shown.image.width // 2)
    return Frame(wanted, size, 0, 0, size).to_pixels((maps - low) / np.where(high > low, high - low, 1))


def cosines(subject: vt.Subject, shown: Shown) -> np.ndarray:
    size = size_for(subject, shown.image, PATCHES)
    z = vt.patch_features(subject, [shown.image], size=size, progress=False)[0]
    rows, columns = z.shape[:2]
    z = (z / np.linalg.norm(z, axis=-1, keepdims=True)).reshape(rows * columns, -1)
    return drawn(subject, shown, (z @ z.T).reshape(-1, rows, columns))


def nearness(subject: vt.Subject, shown: Shown) -> np.ndarray:
    grid = subject.grid(size_for(subject, shown.image, PATCHES))
    assert grid is not None
    places = np.stack(np.divmod(np.arange(grid.patches), grid.columns), 1)
    apart = np.linalg.norm(places[:, None] - places, axis=-1)
    return drawn(subject, shown, -apart.reshape(-1, *grid))


# -- scores


def scored(subject: vt.Subject, shown: Shown, maps: np.ndarray, leave_out: tuple[int, ...]) -> np.ndarray:
    """(threshold + 2,): the scores, that of a mask that covers everything, and the number of tokens."""
    assert shown.truth is not None
    height, width = maps.shape[1:]
    truth = shown.truth[: 2 * height : 2, : 2 * width : 2]
    grid = subject.grid(size_for(subject, shown.image, PATCHES))
    assert grid is not None
    scores, chance, count = image_itiou(
        maps, truth, token_classes(truth, tuple(grid)), thresholds=TAUS, leave_out=leave_out
    )
    return np.array([*scores, chance, count])


def of_picture(subject: vt.Subject, shown: Shown, name: str, work: Path) -> dict[str, np.ndarray]:
    """{"block 3": ..., "rollout": ..., "objects, block 3": ...}; objects alone where background is a class."""
    folder = work / "maps" / name

    def score() -> dict[str, np.ndarray]:
        blocks = BLOCKS if name == SETS[0] else (LAST,)
        maps = maps_of(subject, shown, "sum", blocks, folder)
        found = {f"block {b}": half(one, shown) for b, one in zip(blocks, maps, strict=True)}
        for method in AT_LAST:
            found[method] = half(maps_of(subject, shown, method, [LAST], folder)[0], shown)
        found["cosine of features"], found["nearness"] = cosines(subject, shown), nearness(subject, shown)
        out = {key: scored(subject, shown, part, ()) for key, part in found.items()}
        if name != "camvid":
            out |= {f"objects, {key}": scored(subject, shown, part, (0,)) for key, part in found.items()}
        return out

    return kept(work / "token iou" / subject.name / name / f"{shown.id}.npz", score)


def joined(parts: list[np.ndarray]) -> InitialTokenIoU:
    rows = np.stack(parts)
    return InitialTokenIoU(np.array(TAUS), rows[:, :-2], rows[:, -2], rows[:, -1])


def measured(subject: vt.Subject, given: Collection, work: Path) -> dict[str, InitialTokenIoU]:
    pictures = [of_picture(subject, shown, given.name, work) for shown in given.pictures]
    return {key: joined([p[key] for p in pictures]) for key in pictures[0]}


# -- results


def summary(found: dict[str, InitialTokenIoU]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, scores in found.items():
        fixed, best = scores.at(TAU), scores.at(scores.best)
        out[key] = {
            "at 0.2": [fixed.value, fixed.low, fixed.high],
            "best threshold": scores.best,
            "at best": [best.value, best.low, best.high],
            "full mask": float(np.nanmean(scores.chance)),
            "tokens": int(scores.tokens.sum()),
            "curve": [e.value for e in scores.curve(repeats=1)],
        } | pairs(found, key)
    return out


def pairs(found: dict[str, InitialTokenIoU], key: str) -> dict[str, list[float]]:
    """What maps score more in the same pictures than the sum's, or those of the earlier block that was looked at."""
    head, _, name = key.rpartition(", ")
    before = f"{head}, block " if head else "block "
    given = [b for b in BLOCKS if f"{before}{b}" in found]
    block = int(name.removeprefix("block ")) if name.startswith("block ") else None
    if block == given[0]:
        return {}
    other = found[f"{before}{given[given.index(block) - 1] if block is not None else LAST}"]
    apart = "more than the block before" if block is not None else "more than the sum"
    out = {}
    for said, mine, theirs in (("at 0.2", TAU, TAU), ("at best", found[key].best, other.best)):
        at = [int(np.flatnonzero(np.isclose(TAUS, tau))[0]) for tau in (mine, theirs)]
        gap = mean_interval(found[key].images[:, at[0]] - other.images[:, at[1]])
        out[f"{apart}, {said}"] = [gap.value, gap.low, gap.high]
    return out


def signed(three: list[float]) -> str:
    value, low, high = three
    said = f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"
    return f"**{said}**" if low > 0 or high < 0 else said


def table(by_set: dict[str, Any]) -> list[str]:
    """In pairs: how much more than the sum's in the same pictures, of blocks than the one before; bold if surely."""
    head = " | ".join(f"{name}: τ 0.2 | best τ | in pairs, τ 0.2 | in pairs, best τ" for name in by_set)
    lines = [f"| maps | {head} |"]
    lines.append("|---|" + "---|" * 4 * len(by_set))
    for key in next(iter(by_set.values())):
        cells = []
        for found in by_set.values():
            if key not in found:
                cells += [""] * 4
                continue
            one = found[key]
            value, low, high = one["at 0.2"]
            cells += [f"{value:.3f} [{low:.3f}, {high:.3f}]", f"{one['at best'][0]:.3f} at {one['best threshold']:g}"]
            cells += [signed(v) for name, v in one.items() if name.startswith("more than")] or ["", ""]
        lines.append(f"| {key} | {' | '.join(cells)} |")
    full = [f"{next(iter(found.values()))['full mask']:.3f} | | | " for found in by_set.values()]
    return [*lines, f"| a mask that covers everything | {' | '.join(full)} |", ""]


def curves(result: dict[str, Any], name: str) -> bytes:
    """Figure 13 above Figure 12, objects alone."""
    figures = []
    for tau, said in ((TAU, "τ = 0.2"), (None, "each block's best τ")):
        lines = []
        for k, (model, by_set) in enumerate(result.items()):
            found = by_set[name]
            key = "at 0.2" if tau else "at best"
            values = [found[f"objects, block {b}"][key] for b in BLOCKS]
            y, low, high = (tuple(v[i] for v in values) for i in range(3))
            lines.append(Line(model, y, k, low=low, high=high))
        title = f"ITIoU of objects in {name} over blocks, {said}"
        figures.append(Curve(title, tuple(float(b) for b in BLOCKS), tuple(lines), "block", "ITIoU"))
    for model, by_set in result.items():
        found, names = by_set[name], (f"block {LAST}", *DRAWN)
        lines = [
            Line(
                "sum" if n.startswith("block") else n,
                tuple(found[f"objects, {n}"]["curve"]),
                k,
                control=n == "nearness",
            )
            for k, n in enumerate(names)
        ]
        figures.append(Curve(f"ITIoU over thresholds, {model}, last block", TAUS, tuple(lines), "τ", "ITIoU"))
    return to_png(
        Card(
            "Object selection", f"Figures 12 and 13 on {name}, objects without the background.", panels=tuple(figures)
        ),
        width=7,
        dpi=80,
    )


def main() -> None:
    given = asked(parser_of(__doc__, models=MODELS, sets=SETS, pictures=PICTURES))
    models, sets, count = given.models, given.sets, given.pictures
    result: dict[str, Any] = {}
    for model in models:
        subject = backbone(given.data, model)
        result[model] = {}
        for name in sets:
            result[model][name] = summary(measured(subject, collection(given.data, name, count), given.work))
            print(model, name, "done", flush=True)
    path = given.out / "tokens_layers.json"
    pictures = in_order(path, ("about", "pictures a set"), dict.fromkeys(models, count))
    result = in_order(path, ("itiou",), result)
    about = {"pictures a set": pictures, "blocks": BLOCKS, "patches": PATCHES, "versions": versions()}
    path.write_bytes(json_bytes({"about": about, "itiou": result}))
    put_tables(given.out / "tokens_layers.md", {model: table(by_set) for model, by_set in result.items()})
    (given.out / "tokens_layers.png").write_bytes(curves(result, sets[0]))


if __name__ == "__main__":
    main()
