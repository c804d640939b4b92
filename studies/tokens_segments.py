"""Segmentation without training: Tables 1 to 4 of the tokens paper on real models, against every baseline.

    python studies/tokens_segments.py --data ../shared/data --work FOLDER [--quick]

Maps of all patch tokens after the last block are clustered (vt.segment) and scored in the pictures' own pixels:

- voc_animals, pets, camvid: U. mIoU and U. accuracy with segments paired per picture, for as many segments as the
  picture has classes (told to all methods alike) and for six; and paired over the data set, six segments a picture
  joined by their mean features into as many clusters as there are classes.
- bsds500_test: covering and boundary F against all people, for 2 to 12 segments.

The lens comes with the paper's sum, energy and learned w, and with two that are ours, of length 1 (see the .md): the
sum scaled so, and the norm. Linkages stand beside each other, and "lift": what counts more for a token than on average
(see vt.segment). Rivals: attention rollout and raw attention clustered in the same way, k-means of patch features, and
maps of classes cut in two by Otsu's threshold: Grad-CAM++ and Chefer, of mean saliency for dinov2s_saliency and of the
predicted class for tin-vit-text. Controls: the lens on shuffled weights, k-means of colour and place, and of place
alone. dinov2s_saliency was trained to predict saliency: its own map is a reference, no rival. Label maps are kept in
FOLDER. Writes tokens_segments.json, .md and .png under --out; models and sets can be measured one after the other, with
different numbers of pictures, which each table says.

Small pictures: about 70 patches of the picture's own shape for dinov2s_saliency, 8 x 8 at 64 pixels for
tin-vit-*. The intervals say what that costs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vitreous as vt
from tokens_inputs import (
    MODELS,
    PATCHES,
    Collection,
    Shown,
    backbone,
    classifier,
    collection,
    control,
    learned_weights,
    maps_of,
    put_tables,
    size_for,
)
from vitreous.evidence.bootstrap import Estimate, mean_interval
from vitreous.evidence.regions import Regions, over_scales, score_regions
from vitreous.evidence.segments import join_segments, over_dataset, pair_segments, per_image, segment_means
from vitreous.preprocess import Frame
from vitreous.provenance import json_bytes, versions
from vitreous.render import to_png
from vitreous.views.tokens import segment_panel

OUT = Path(__file__).parent / "results"
PICTURES, LEARNED, FIXED, SCALES = 8, 12, 6, (2, 3, 4, 6, 8, 12)
CLASSES, PEOPLE, REFERENCE = ("voc_animals", "pets", "camvid"), "bsds500_test", "tokens, sum"
DRAWN = (
    "tokens, sum",
    "tokens, sum, ward, lift",
    "k-means of features",
    "raw attention",
    "k-means of colour and place",
)
Labels = dict[int, np.ndarray]


# -- label maps of one picture, by the number of segments


def lens(
    subject: vt.Subject,
    shown: Shown,
    ks: Sequence[int],
    folder: Path,
    method: str,
    linkage: str = "ward",
    weights: np.ndarray | None = None,
) -> Labels:
    """`linkage` is one of vt.segment's; "ward, mean" weighs clusters equally, "ward, lift" scales maps by lift."""
    (found,) = maps_of(subject, shown, method, [subject.depth - 1], folder, weights)
    name, _, more = linkage.partition(", ")
    weigh, scale = ("sum", "lift") if more == "lift" else (more or "sum", "minmax")
    cut = vt.segment(found, k=ks[0], linkage=name, weigh=weigh, scale=scale)
    return {k: cut.at(k=k).labels()[0] for k in ks}


def features(subject: vt.Subject, shown: Shown) -> np.ndarray:
    """(row, column, channel)."""
    size = size_for(subject, shown.image, PATCHES)
    return vt.patch_features(subject, [shown.image], size=size, progress=False)[0]


def kmeans(subject: vt.Subject, shown: Shown, ks: Sequence[int]) -> Labels:
    z = features(subject, shown)
    size = shown.image.height, shown.image.width
    return {k: vt.kmeans_segments(z[None], k).at(size)[0] for k in ks}


def by_pixels(shown: Shown, ks: Sequence[int], *, colour: bool) -> Labels:
    """k-means of place, and of colour where asked, on a grid of about 40 x 40 points."""
    pixels = shown.pixels / 255.0
    height, width = pixels.shape[:2]
    rows, columns = (np.linspace(0, n - 1, 40).round().astype(int) for n in (height, width))
    place = np.stack(np.meshgrid(rows / height, columns / width, indexing="ij"), -1)
    values = np.concatenate([place, pixels[rows[:, None], columns]], -1) if colour else place
    return {k: _nearest(_clusters(values, k), height, width) for k in ks}


def _clusters(values: np.ndarray, k: int) -> np.ndarray:
    from sklearn.cluster import KMeans

    flat = values.reshape(-1, values.shape[-1])
    return KMeans(k, n_init=3, random_state=0).fit_predict(flat).reshape(values.shape[:2])


def _nearest(labels: np.ndarray, height: int, width: int) -> np.ndarray:
    rows, columns = (np.arange(n) * m // n for n, m in zip((height, width), labels.shape, strict=True))
    return labels[rows[:, None], columns]


def class_map(subject: vt.Subject, shown: Shown, make: Callable[..., Any]) -> Labels:
    """Two segments: where a class's map is above Otsu's threshold, and the rest."""
    size = vt.Size(*size_for(subject, shown.image, PATCHES))
    assert subject.preprocess is not None
    x = torch.from_numpy(subject.preprocess.at(*size)(shown.image))[None]
    found = make(subject, x, progress=False).maps[0]
    return {2: _halves(found, size, shown)}


def saliency(subject: vt.Subject, shown: Shown) -> Labels:
    """What dinov2s_saliency was trained for."""
    size = vt.Size(*size_for(subject, shown.image, PATCHES))
    assert subject.preprocess is not None
    x = torch.from_numpy(subject.preprocess.at(*size)(shown.image))[None]
    with torch.inference_mode():
        heat = subject.module.heat(x)[0].numpy()
    wanted = vt.Size(shown.image.height, shown.image.width)
    return {2: (Frame(wanted, size, 0, 0, size).to_pixels(heat) > 0).astype(int)}


def _halves(found: np.ndarray, size: vt.Size, shown: Shown) -> np.ndarray:
    wanted = vt.Size(shown.image.height, shown.image.width)
    large = Frame(wanted, size, 0, 0, size).to_pixels(found)
    return (large > otsu(large)).astype(int)


def otsu(values: np.ndarray, bins: int = 128) -> float:
    """The threshold that leaves the least variance inside the two halves."""
    counts, edges = np.histogram(values, bins)
    middles = (edges[1:] + edges[:-1]) / 2
    below, total = counts.cumsum(), (counts * middles).cumsum()
    above = below[-1] - below
    apart = np.where(
        (below > 0) & (above > 0),
        below * above * (total / np.maximum(below, 1) - (total[-1] - total) / np.maximum(above, 1)) ** 2,
        -1,
    )
    best = np.flatnonzero(apart >= apart.max() * (1 - 1e-9))  # between two heaps all thresholds are as good
    return float(edges[1 + best[len(best) // 2]])


# -- everything of one model on one set


def methods(
    data: Path, model: str, work: Path, name: str, learned: int = LEARNED
) -> dict[str, Callable[[Shown, Sequence[int]], Labels]]:
    """What cuts pictures, by name; class maps give two segments whatever is asked for; w is of `learned` pictures."""
    subject, folder = backbone(data, model), work / "maps" / name
    chance = control(subject)
    w = learned_weights(data, model, learned, work / "w")
    given: dict[str, Callable[[Shown, Sequence[int]], Labels]] = {
        "tokens, sum": lambda shown, ks: lens(subject, shown, ks, folder, "sum"),
        "tokens, energy": lambda shown, ks: lens(subject, shown, ks, folder, "energy"),
        "tokens, unit sum": lambda shown, ks: lens(subject, shown, ks, folder, "unit sum"),
        "tokens, norm": lambda shown, ks: lens(subject, shown, ks, folder, "norm"),
        "tokens, learned": lambda shown, ks: lens(subject, shown, ks, folder, f"learned {learned}", weights=w),
        **{
            f"tokens, sum, {linkage}": partial(_linked, subject, folder, linkage)
            for linkage in ("ward, lift", "ward, mean", "average", "average, mean", "complete", "single")
        },
        "tokens, norm, ward, lift": lambda shown, ks: lens(subject, shown, ks, folder, "norm", "ward, lift"),
        "attention rollout": lambda shown, ks: lens(subject, shown, ks, folder, "rollout"),
        "raw attention": lambda shown, ks: lens(subject, shown, ks, folder, "raw attention"),
        "raw attention, ward, lift": lambda shown, ks: lens(subject, shown, ks, folder, "raw attention", "ward, lift"),
        "k-means of features": lambda shown, ks: kmeans(subject, shown, ks),
        "tokens, sum, shuffled weights": lambda shown, ks: lens(chance, shown, ks, folder, "sum"),
        "k-means of colour and place": lambda shown, ks: by_pixels(shown, ks, colour=True),
        "k-means of place": lambda shown, ks: by_pixels(shown, ks, colour=False),
    }
    if (top := classifier(data, model)) is not None:
        given["Grad-CAM++, in two"] = lambda shown, _: class_map(top, shown, vt.gradcam)
        given["Chefer, in two"] = lambda shown, _: class_map(top, shown, vt.chefer)
        if model == "dinov2s_saliency":
            given["its own saliency, in two"] = lambda shown, _: saliency(top, shown)
    return given


def _linked(subject: vt.Subject, folder: Path, linkage: str, shown: Shown, ks: Sequence[int]) -> Labels:
    return lens(subject, shown, ks, folder, "sum", linkage)


def wanted(shown: Shown) -> tuple[int, ...]:
    return SCALES if shown.truth is None else tuple(sorted({shown.classes, FIXED}))


def label_maps(data: Path, model: str, given: Collection, work: Path, learned: int) -> dict[str, list[Labels]]:
    """{method: label maps of each picture by the number of segments}, kept in a folder."""
    cutters = methods(data, model, work, given.name, learned)
    found: dict[str, list[Labels]] = {method: [] for method in cutters}
    for shown in given.pictures:
        for method, cut in cutters.items():
            called = f"{method} {learned}" if method == "tokens, learned" else method
            path = work / "labels" / model / given.name / f"{shown.id}-{called}.npz"
            if not path.exists():
                made = cut(shown, wanted(shown))
                path.parent.mkdir(parents=True, exist_ok=True)
                np.savez_compressed(path, **{str(k): labels.astype(np.int16) for k, labels in made.items()})
            with np.load(path) as stored:
                found[method].append({int(k): stored[k].astype(int) for k in stored.files})
    return found


def chosen(labels: Labels, k: int) -> np.ndarray:
    return labels[k] if k in labels else labels[2]


def kept_features(data: Path, model: str, given: Collection, work: Path) -> list[np.ndarray]:
    found, subject = [], backbone(data, model)
    for shown in given.pictures:
        path = work / "features" / model / given.name / f"{shown.id}.npy"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, features(subject, shown))
        found.append(np.load(path))
    return found


# -- scores


def number(estimate: Estimate) -> list[float]:
    return [estimate.value, estimate.low, estimate.high]


def against_classes(given: Collection, maps: list[Labels], z: list[np.ndarray]) -> dict[str, Any]:
    truths = [shown.truth for shown in given.pictures]
    counts = {"classes": [shown.classes for shown in given.pictures], "six": [FIXED] * len(truths)}
    out: dict[str, Any] = {}
    for name, ks in counts.items():
        found = per_image([chosen(one, k) for one, k in zip(maps, ks, strict=True)], truths, classes=len(given.classes))
        scores = {"mIoU": number(found.miou()), "accuracy": number(found.accuracy())}
        out[f"per image, k {name}"] = scores | {"mIoU of each": found.image_miou.round(5).tolist()}
    six = [chosen(one, FIXED) for one in maps]
    present = len({c for shown in given.pictures for c in np.unique(shown.truth).tolist()} - {255})
    means = [segment_means(s, f) for s, f in zip(six, z, strict=True)]
    segments = sum(int(np.isfinite(part).all(1).sum()) for part in means)  # equal maps cannot be told apart
    joined = join_segments(six, means, min(present, segments))
    once = over_dataset(joined, truths, classes=len(given.classes), count=present)
    out["over the data set"] = {"mIoU": number(once.miou(repeats=500)), "accuracy": number(once.accuracy(repeats=500))}
    return out


def against_people(given: Collection, maps: list[Labels]) -> dict[str, Any]:
    people = [shown.people for shown in given.pictures]
    ks = SCALES if SCALES[-1] in maps[0] else (2,)
    scored: list[Regions] = [score_regions([one[k] for one in maps], people) for k in ks]
    scales = over_scales(np.stack([s.covering for s in scored], 1))
    best = scored[scales.best]
    return {
        "best k": ks[scales.best],
        "covering, one k": number(scales.ods),
        "covering, best k of each": number(scales.ois),
        "boundary F at the k with the best F": number(max((s.f() for s in scored), key=lambda e: e.value)),
        "precision at best k": number(best.precision()),
        "recall at best k": number(best.recall()),
        "covering by k": [float(s.covering.mean()) for s in scored],
        "boundary F by k": [s.f(repeats=1).value for s in scored],
    }


def paired(by_method: dict[str, Any]) -> None:
    """Adds what each method has more than the sum in the same pictures, which tells more than two intervals apart."""
    for matching, scores in by_method[REFERENCE].items():
        if "mIoU of each" in scores:
            for found in by_method.values():
                more = np.subtract(found[matching]["mIoU of each"], scores["mIoU of each"])
                found[matching]["mIoU more than the sum"] = number(mean_interval(more))


# -- tables and pictures


def cell(value: Sequence[float]) -> str:
    return f"{100 * value[0]:.1f} [{100 * value[1]:.1f}, {100 * value[2]:.1f}]"


def table(by_method: dict[str, Any], people: bool) -> list[str]:
    first = next(iter(by_method.values()))
    if people:
        keys = ("covering, one k", "best k", "covering, best k of each", "boundary F at the k with the best F")
        lines = [f"| method | {' | '.join(keys)} |", "|---|" + "---|" * len(keys)]
        for method, found in by_method.items():
            shown = [str(found[k]) if k == "best k" else cell(found[k]) for k in keys]
            lines.append(f"| {method} | {' | '.join(shown)} |")
        return lines
    head = [f"{matching}: {score}" for matching in first for score in ("mIoU", "accuracy")]
    lines = [f"| method | {' | '.join(head)} |", "|---|" + "---|" * len(head)]
    for method, found in by_method.items():
        shown = [cell(found[m][s]) for m in first for s in ("mIoU", "accuracy")]
        lines.append(f"| {method} | {' | '.join(shown)} |")
    return lines


def table_of_pairs(by_method: dict[str, Any]) -> list[str]:
    matchings = [m for m, scores in by_method[REFERENCE].items() if "mIoU of each" in scores]
    lines = [f"| method | {' | '.join(matchings)} |", "|---|" + "---|" * len(matchings)]
    for method, found in by_method.items():
        cells = []
        for value, low, high in (found[m]["mIoU more than the sum"] for m in matchings):
            said = f"{100 * value:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
            cells.append(f"**{said}**" if low > 0 or high < 0 else said)
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return [line for line in lines if not line.startswith(f"| {REFERENCE} |")]


def picture(given: Collection, maps: dict[str, list[Labels]], count: int = 6) -> bytes:
    """Figure 3: as many segments as classes, in the colours of the classes that they are paired with."""
    some = given.pictures[:: max(1, len(given.pictures) // count)][:count]
    places = [given.pictures.index(shown) for shown in some]
    rows = {"truth": [np.where(shown.truth == 255, -1, shown.truth) for shown in some]}
    colours: dict[str, list[dict[int, int]]] = {"truth": [{c: c for c in range(256)}] * len(some)}
    for method in DRAWN:
        cut = [chosen(maps[method][k], given.pictures[k].classes) for k in places]
        rows[method] = cut
        colours[method] = [pair_segments(labels, shown.truth) for labels, shown in zip(cut, some, strict=True)]
    title = f"{given.name}: segments in the colour of the class that they are paired with, dark without one"
    images, names = [shown.pixels for shown in some], [shown.id for shown in some]
    panel = segment_panel(images, rows, names=names, colours=colours, title=title)
    return to_png(panel, width=12, dpi=70)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--pictures", type=int, default=PICTURES)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--sets", nargs="*", default=[*CLASSES, PEOPLE])
    parser.add_argument("--learned", type=int, default=LEARNED, help="pictures that w is learned from; the paper's 256")
    parser.add_argument("--quick", action="store_true", help="one model, one set, two pictures")
    given = parser.parse_args()
    torch.set_num_threads(1)
    sets, models, count, learned = given.sets, given.models, given.pictures, given.learned
    if given.quick:
        sets, models, count = sets[:1], ["tin-vit-text"], 2
    given.out.mkdir(parents=True, exist_ok=True)
    for model in models:
        for name in sets:
            pictures = collection(given.data, name, count)
            maps = label_maps(given.data, model, pictures, given.work, learned)
            if name == PEOPLE:
                result = {m: against_people(pictures, one) for m, one in maps.items()}
            else:
                z = kept_features(given.data, model, pictures, given.work)
                result = {m: against_classes(pictures, one, z) for m, one in maps.items()}
                paired(result)
                if model == MODELS[0]:
                    (given.out / f"tokens_segments_{name}.png").write_bytes(picture(pictures, maps))
            write(given.out, model, name, len(pictures.pictures), learned, result)
            print(model, name, "done", flush=True)


def write(out: Path, model: str, name: str, count: int, learned: int, result: dict[str, Any]) -> None:
    """Puts one model on one set beside what was measured earlier."""
    path = out / "tokens_segments.json"
    earlier = json.loads(path.read_text()) if path.exists() else {}
    scores, known = earlier.get("scores", {}), earlier.get("about", {})
    counts, of = known.get("pictures", {}), known.get("pictures of learned w", {})
    for kept, new in ((scores, result), (counts, count), (of, learned)):
        kept.setdefault(model, {})[name] = new
    about = {"pictures": counts, "pictures of learned w": of, "segments": FIXED, "scales": SCALES, "patches": PATCHES}
    path.write_bytes(json_bytes({"about": about | {"versions": versions()}, "scores": scores}))
    said = f"{count} pictures; w was learned from {learned}."
    tables = {f"{model} on {name}": [said, "", *table(result, name == PEOPLE)]}
    if name != PEOPLE:
        said = "mIoU more than the sum's in the same pictures, mean and 95 % interval; bold: surely not 0."
        tables[f"{model} on {name}, in pairs"] = [said, "", *table_of_pairs(result)]
    put_tables(out / "tokens_segments.md", tables)


if __name__ == "__main__":
    main()
