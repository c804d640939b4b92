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

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import vitreous as vt
from tokens_cuts import Labels, by_pixels, class_map, features, kmeans, lens, saliency
from tokens_inputs import (
    MODELS,
    PATCHES,
    Collection,
    Shown,
    asked,
    backbone,
    classifier,
    collection,
    control,
    kept,
    learned_weights,
    parser_of,
    put_tables,
)
from vitreous.evidence.bootstrap import Estimate, mean_interval
from vitreous.evidence.regions import Regions, over_scales, score_regions
from vitreous.evidence.segments import join_segments, over_dataset, pair_segments, per_image, segment_means
from vitreous.provenance import json_bytes, versions
from vitreous.render import to_png
from vitreous.views.tokens import segment_panel

PICTURES, LEARNED, FIXED, SCALES = 8, 256, 6, (2, 3, 4, 6, 8, 12)
CLASSES, PEOPLE, REFERENCE = ("voc_animals", "pets", "camvid"), "bsds500_test", "tokens, sum"
TAUGHT, LENGTH = "tokens, learned", "tokens, unit sum"
MORE, MORE_THAN_LENGTH = "mIoU more than the sum", "mIoU more than the unit sum"
DRAWN = (
    "tokens, sum",
    "tokens, sum, ward, lift",
    "k-means of features",
    "raw attention",
    "k-means of colour and place",
)


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
        TAUGHT: lambda shown, ks: lens(subject, shown, ks, folder, f"learned {learned}", weights=w),
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


def label_maps(
    data: Path, model: str, given: Collection, work: Path, learned: int, only: Sequence[str] = ()
) -> dict[str, list[Labels]]:
    """{method: label maps of each picture by the number of segments}, kept in a folder."""
    cutters = methods(data, model, work, given.name, learned)
    if unknown := set(only) - set(cutters):
        raise SystemExit(f"no such method: {unknown.pop()}; there are {', '.join(cutters)}")
    cutters = {method: cut for method, cut in cutters.items() if not only or method in only}
    found: dict[str, list[Labels]] = {method: [] for method in cutters}
    for shown in given.pictures:
        for method, cut in cutters.items():
            called = f"{method} {learned}" if method == TAUGHT else method
            path = work / "labels" / model / given.name / f"{shown.id}-{called}.npz"
            stored = kept(path, partial(_by_number, cut, shown))
            found[method].append({int(k): labels.astype(int) for k, labels in stored.items()})
    return found


def _by_number(cut: Callable[[Shown, Sequence[int]], Labels], shown: Shown) -> dict[str, np.ndarray]:
    return {str(k): labels.astype(np.int16) for k, labels in cut(shown, wanted(shown)).items()}


def chosen(labels: Labels, k: int) -> np.ndarray:
    return labels[k] if k in labels else labels[2]


def kept_features(data: Path, model: str, given: Collection, work: Path) -> list[np.ndarray]:
    subject, folder = backbone(data, model), work / "features" / model / given.name
    return [
        kept(folder / f"{shown.id}.npz", lambda shown=shown: {"z": features(subject, shown)})["z"]
        for shown in given.pictures
    ]


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
    """Adds what each method has more than the sum in the same pictures, which tells more than two intervals apart.

    Of learned w also what it has more than the sum at length 1: what learning adds, as w has that length.
    """
    pairs = [(method, REFERENCE, MORE) for method in by_method] + [(TAUGHT, LENGTH, MORE_THAN_LENGTH)]
    for method, other, name in pairs:
        for matching, scores in by_method.get(other, {}).items():
            found = by_method.get(method, {}).get(matching, {})
            if "mIoU of each" in scores and "mIoU of each" in found:
                found[name] = number(mean_interval(np.subtract(found["mIoU of each"], scores["mIoU of each"])))


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
    """A row for each method that was kept picture by picture."""
    matchings = [m for m, scores in by_method[REFERENCE].items() if "mIoU of each" in scores]
    lines = [f"| method | {' | '.join(matchings)} |", "|---|" + "---|" * len(matchings)]
    rows = [(method, found, MORE) for method, found in by_method.items() if method != REFERENCE]
    rows.append((f"{TAUGHT}, more than the unit sum", by_method.get(TAUGHT, {}), MORE_THAN_LENGTH))
    for said, found, name in rows:
        gaps = [found.get(m, {}).get(name) for m in matchings]
        lines += [f"| {said} | {' | '.join(map(signed, gaps))} |"] if all(gaps) else []
    return lines


def signed(gap: Sequence[float]) -> str:
    """Bold is surely not 0."""
    value, low, high = gap
    said = f"{100 * value:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
    return f"**{said}**" if low > 0 or high < 0 else said


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
    parser = parser_of(__doc__, models=MODELS, sets=(*CLASSES, PEOPLE), pictures=PICTURES)
    parser.add_argument("--learned", type=int, default=LEARNED, help="pictures that w is learned from")
    parser.add_argument("--methods", nargs="+", default=[], help="these alone; others stay as they were measured")
    given = asked(parser)
    sets, models, count = given.sets, given.models, given.pictures
    learned = 8 if given.quick else given.learned
    for model in models:
        for name in sets:
            pictures = collection(given.data, name, count)
            maps = label_maps(given.data, model, pictures, given.work, learned, given.methods)
            if name == PEOPLE:
                result = {m: against_people(pictures, one) for m, one in maps.items()}
            else:
                z = kept_features(given.data, model, pictures, given.work)
                result = {m: against_classes(pictures, one, z) for m, one in maps.items()}
                if model == MODELS[0] and not given.methods:
                    (given.out / f"tokens_segments_{name}.png").write_bytes(picture(pictures, maps))
            write(given.out, model, name, len(pictures.pictures), learned, result, partly=bool(given.methods))
            print(model, name, "done", flush=True)


def write(
    out: Path, model: str, name: str, count: int, learned: int, result: dict[str, Any], *, partly: bool = False
) -> None:
    """Puts one model on one set beside what was measured earlier, methods beside others of the same pictures."""
    path = out / "tokens_segments.json"
    earlier = json.loads(path.read_text()) if path.exists() else {}
    scores, known = earlier.get("scores", {}), earlier.get("about", {})
    counts, of = known.get("pictures", {}), known.get("pictures of learned w", {})
    measured = tuple(result)
    if partly:
        if counts.get(model, {}).get(name) != count:
            raise SystemExit(f"nothing was measured on {count} pictures of {name} with {model}: leave --methods out")
        result = scores[model][name] | result
    if name != PEOPLE:
        paired(result)
    for table_of, new in ((scores, result), (counts, count), (of, learned)):
        if table_of is not of or TAUGHT in measured:
            table_of.setdefault(model, {})[name] = new
    about = {"pictures": counts, "pictures of learned w": of, "segments": FIXED, "scales": SCALES, "patches": PATCHES}
    path.write_bytes(json_bytes({"about": about | {"versions": versions()}, "scores": scores}))
    said = f"{count} pictures; w was learned from {of[model][name]}."
    tables = {f"{model} on {name}": [said, "", *table(result, name == PEOPLE)]}
    if any("mIoU of each" in scores for scores in result[REFERENCE].values() if name != PEOPLE):
        said = "mIoU more than the sum's in the same pictures, mean and 95 % interval; bold: surely not 0."
        tables[f"{model} on {name}, in pairs"] = [said, "", *table_of_pairs(result)]
    put_tables(out / "tokens_segments.md", tables)


if __name__ == "__main__":
    main()
