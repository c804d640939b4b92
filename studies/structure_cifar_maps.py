"""What the CIFAR-10 networks look at: section 4.3 of the structure paper, Tables 1, 9, 10, 13 to 15, Figures 3 and 6.

    PYTHONPATH=src python studies/structure_cifar_maps.py DATA --runs DIR [--parts curves cifar ...]

DIR is what studies/structure_cifar.py wrote, with masks.npz of studies/sam_masks.py beside it. Every part adds its
numbers to studies/results/structure_cifar.json, so they can run one by one; the tables are written from there. Parts:

    curves      accuracy by epoch, what the structure loss did, step times
    cifar       Grad-CAM++ and Grad-CAM against MobileSAM's masks, and the picture
    animals     the same against true masks: pets, and cats, dogs and horses of voc_animals, brought to 32 pixels
    tcav        textures of dtd10 as concepts, by layer
    inside      how units cluster over layers in both networks
    accuracy    the weights as they came back, on the whole test set
"""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Mapping
from csv import DictReader
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple
from zipfile import ZipFile

import numpy as np
import torch
from PIL import Image

import vitreous as vt
from sam_masks import read_masks
from structure_cifar import CLASSES, KEPT, pictures, recipe_of
from structure_cifar_curves import curves, draw_curves, fewer_colours
from structure_cifar_tables import write_tables
from vitreous.baselines.gradcam import METHODS, CamFinding
from vitreous.baselines.logits import batches
from vitreous.evidence.pointing import compare_pointing, energy_point_game, point_game
from vitreous.evidence.statistics import paired_t
from vitreous.render import to_png
from vitreous.training.trainee import build
from vitreous.views.cams import cam_panel
from vitreous.views.panels import Tile

OUT = Path(__file__).parent / "results" / "structure_cifar"
SIDE, LARGE = 32, 128  # of the pictures, and of the tiles that show them
SEEN = vt.Preprocess(vt.Size(SIDE, SIDE), SIDE, (0.5,) * 3, (0.5,) * 3, source="recipe cifar10-32")
ANIMALS = {8: "cat", 10: "cow", 12: "dog", 13: "horse", 17: "sheep"}  # VOC's numbers
BATCH = 100


class Shown(NamedTuple):
    """Pictures that have a mask: `masks` bool (sample, row, column) over the network's input; `labels` (sample,)."""

    images: vt.ImageSet
    masks: np.ndarray

    @property
    def labels(self) -> np.ndarray:
        assert self.images.labels is not None
        return self.images.labels


# -- what is read


def open_network(folder: Path, kind: str, device: str = "cpu") -> vt.Subject:
    """The network of the recipe with the weights that the run wrote, in evaluation mode; tiny where the run was."""
    flat = np.concatenate([np.load(folder / f"{kind}.weights.{n}.npy") for n in range(2)]).astype(np.float32)
    model = fresh(len(flat))
    state = model.state_dict()
    parts = torch.from_numpy(flat).split([tensor.numel() for tensor in state.values()])
    model.load_state_dict({k: part.view_as(state[k]) for k, part in zip(state, parts, strict=True)})
    return vt.wrap(model.to(device), name=kind, preprocess=SEEN)


def fresh(weights: int) -> torch.nn.Module:
    """The recipe's network as training begins, all kinds alike; the tiny one if that has so many weights."""
    for small in (False, True):
        model = build(recipe_of("vit", small), len(CLASSES)).eval()
        if sum(tensor.numel() for tensor in model.state_dict().values()) == weights:
            return model
    raise SystemExit(f"{weights} weights fit no network of the recipe")


def cifar(data: Path, folder: Path, count: int) -> Shown:
    """The first test pictures with MobileSAM's masks; those without an object in them are left out."""
    masks = read_masks(folder / "masks.npz")[:count]
    some = np.flatnonzero(masks.any((1, 2)))
    return Shown(pictures(data, "test", len(masks))[some], masks[some])


def shown(name: str, images: list[np.ndarray], masks: list[np.ndarray], labels: list[str]) -> Shown:
    """Pictures of any size with class names; a picture whose object the centre crop cuts away is left out."""
    seen = vt.input_masks(masks, SEEN)
    numbers = np.array([CLASSES.index(label) for label in labels])
    some = np.flatnonzero(seen.any((1, 2)))
    return Shown(vt.ImageSet.from_arrays(images, labels=numbers, classes=CLASSES, name=name)[some], seen[some])


def pets(data: Path) -> Shown:
    """Cats and dogs; the trimap's 1 is the animal without its boundary."""
    with ZipFile(data / "pets" / "pets.zip") as archive:
        rows = list(DictReader(io.StringIO(archive.read("index.csv").decode())))
        images = [_pixels(archive, f"images/{row['name']}.jpg") for row in rows]
        masks = [_numbers(archive, f"trimaps/{row['name']}.png") == 1 for row in rows]
    return shown("pets", images, masks, [row["species"] for row in rows])


def voc_animals(data: Path) -> Shown:
    """Pictures in which the animal that covers most is one that CIFAR-10 knows; the mask is that animal's."""
    images, masks, labels = [], [], []
    with ZipFile(data / "voc_animals" / "voc_animals.zip") as archive:
        for name in sorted(n[7:-4] for n in archive.namelist() if n.startswith("images/")):
            numbers = _numbers(archive, f"labels/{name}.png")
            most = max(ANIMALS, key=lambda k: int((numbers == k).sum()))
            if ANIMALS[most] in CLASSES and (numbers == most).any():
                images.append(_pixels(archive, f"images/{name}.jpg"))
                masks.append(numbers == most)
                labels.append(ANIMALS[most])
    return shown("voc_animals", images, masks, labels)


def _pixels(archive: ZipFile, name: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(archive.read(name))).convert("RGB"))


def _numbers(archive: ZipFile, name: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(archive.read(name))))


# -- maps


def bump(count: int, width: float = 0.25) -> np.ndarray:
    """What a map would be that only knows that objects are in the middle."""
    y = (np.arange(SIDE) + 0.5) / SIDE - 0.5
    one = np.exp(-(y[:, None] ** 2 + y[None, :] ** 2) / (2 * width**2))
    return np.broadcast_to(one, (count, SIDE, SIDE))


def spread(cams: np.ndarray) -> float:
    """Share of the picture that a map covers, mean over maps that are not zero: 1 is flat, near 0 a point."""
    flat = cams.reshape(len(cams), -1)
    flat = flat[flat.any(1)].astype(np.float64)
    return float((flat.mean(1) ** 2 / np.square(flat).mean(1)).mean()) if len(flat) else 0.0


def compared(findings: Mapping[str, CamFinding], masks: np.ndarray, where: Any = slice(None)) -> dict[str, Any]:
    """Table 9 for the two networks, by metric."""
    table = compare_pointing(findings["vit"].at()[where], findings["ours"].at()[where], masks[where], KEPT)
    return {row.metric: asdict(row) for row in table.rows}


def pointing(findings: Mapping[str, CamFinding], masks: np.ndarray) -> dict[str, Any]:
    """Table 9, and what maps of other pictures get in the same places."""
    cams = {kind: findings[kind].at() for kind in KEPT}
    others = np.roll(np.arange(len(masks)), len(masks) // 2 + 1)
    result = compared(findings, masks)
    for metric, score in (("Point Game", point_game), ("Energy PG", energy_point_game)):
        strange = [score(cams[kind][others], masks) for kind in KEPT]
        gain = [score(cams[kind], masks) - other for kind, other in zip(KEPT, strange, strict=True)]
        result[metric] |= {
            "maps of other pictures": [float(v.mean()) for v in strange],
            "own above other": [asdict(paired_t(v, np.zeros_like(v))) | {"mean": float(v.mean())} for v in gain],
            "own above other, vit - ours": asdict(paired_t(*gain)),
        }
    result["maps that are zero"] = [int((~findings[kind].maps.any((1, 2))).sum()) for kind in KEPT]
    result["spread"] = [spread(cams[kind]) for kind in KEPT]
    return result


def controls(masks: np.ndarray) -> dict[str, Any]:
    middle = bump(len(masks))
    return {
        "pictures": len(masks),
        "mean area of the masks": float(masks.mean()),
        "bump in the middle": [float(f(middle, masks).mean()) for f in (point_game, energy_point_game)],
    }


Maps = Mapping[str, Mapping[str, CamFinding]]  # by method, then by kind of network


def all_maps(networks: Mapping[str, vt.Subject], some: Shown, targets: np.ndarray | None = None) -> Maps:
    found = {k: vt.gradcams(n, some.images, targets, batch_size=BATCH) for k, n in networks.items()}
    return {method: {kind: found[kind][method] for kind in KEPT} for method in METHODS}


def measure(found: Maps, some: Shown) -> dict[str, Any]:
    right = {kind: finding.predicted == some.labels for kind, finding in found["Grad-CAM"].items()}
    both = right["vit"] & right["ours"]
    result = controls(some.masks) | {"accuracy": {kind: 100 * float(right[kind].mean()) for kind in KEPT}}
    result |= {method: pointing(found[method], some.masks) for method in METHODS}
    if 1 < both.sum() < len(both):
        part = {method: compared(found[method], some.masks, both) for method in METHODS}
        result["both right"] = {"pictures": int(both.sum()), **part}
    return result


def before_training(network: vt.Subject, some: Shown, most: int) -> dict[str, Any]:
    """What the maps of a network that has learned nothing get: the same weights that both kinds start from."""
    model = fresh(sum(tensor.numel() for tensor in network.module.state_dict().values()))
    part = Shown(some.images[:most], some.masks[:most])
    untrained = vt.wrap(model.to(network.device), name="untrained", preprocess=SEEN)
    found = vt.gradcams(untrained, part.images, batch_size=BATCH)
    scores = {
        m: [float(f(c.at(), part.masks).mean()) for f in (point_game, energy_point_game)] for m, c in found.items()
    }
    return {"pictures": len(part.masks), **scores}


def draw_maps(found: Maps, some: Shown, path: Path) -> None:
    """The first picture of every class that both networks name rightly: nothing else is chosen."""
    right = np.all([finding.predicted == some.labels for finding in found["Grad-CAM"].values()], 0)
    first = {int(some.labels[k]): int(k) for k in reversed(np.flatnonzero(right))}
    chosen = [first[label] for label in sorted(first)]
    if not chosen:
        return
    size = vt.Size(LARGE, LARGE)
    large = [np.asarray(some.images[k].image.resize((LARGE, LARGE), Image.Resampling.LANCZOS)) for k in chosen]
    shown = {
        f"{kind}{mark}": CamFinding(f.maps[chosen], f.targets[chosen], f.predicted[chosen], f.site, size, {})
        for method, mark in zip(METHODS, (" ++", " plain"), strict=True)
        for kind, f in found[method].items()
    }
    panel = cam_panel(
        large,
        shown,
        names=[CLASSES[some.labels[k]] for k in chosen],
        masks=np.kron(some.masks[chosen], np.ones((LARGE // SIDE,) * 2, bool)),
        pairs=1,
        title="Grad-CAM++ and plain Grad-CAM of the predicted class",
    )
    path.write_bytes(fewer_colours(to_png(replace(panel, tiles=tuple(map(_short, panel.tiles))), width=7, dpi=100)))


def _short(tile: Tile) -> Tile:
    """Both networks are right, so that the class stands beside the picture once."""
    return replace(tile, caption=tile.caption.split(":")[0])


# -- concepts, clusters, accuracy


def concepts(networks: Mapping[str, vt.Subject], data: Path, each: int, random_sets: int) -> dict[str, Any]:
    """Table 10 with the ten textures that are here; `each` test pictures of a class."""
    textures = vt.ImageSet.open(data / "dtd10" / "dtd10.zip", labels="folders")
    images = pictures(data, "test", each * len(CLASSES))
    start = perf_counter()
    found = {k: vt.tcav(n, images, textures, random_sets=random_sets, batch_size=BATCH) for k, n in networks.items()}
    table = vt.tcav_table(found["vit"], found["ours"], names=KEPT)
    return {
        "concepts": len(found["vit"].concepts),
        "pictures of a concept": len(textures) // len(found["vit"].concepts),
        "pictures of a class": each,
        "random sets": random_sets,
        "examples": found["vit"].settings["examples"],
        "seconds": round(perf_counter() - start, 1),
        "held-out accuracy": {k: f.accuracy.mean((1, 2)).tolist() for k, f in found.items()},
        "rows": [asdict(row) | {"mean": list(row.mean)} | pairs_only(found, n) for n, row in enumerate(table.rows)],
    }


def pairs_only(found: Mapping[str, Any], layer: int) -> dict[str, float]:
    """The same test over (concept, class) pairs, whose random sets are averaged first: those are not independent."""
    a, b = (found[kind].scores[layer].mean(-1).ravel() for kind in KEPT)
    test = paired_t(b, a)
    return {"t of pairs": test.statistic, "p of pairs": test.p}


@torch.no_grad()
def inside(networks: Mapping[str, vt.Subject], images: vt.ImageSet, tokens: int = 3) -> dict[str, Any]:
    """Clusters over all layers at tokens in the middle, and how far a unit moves from one block to the next."""
    result = {}
    for kind, network in networks.items():
        sites = [f"blocks.{n}.resid.out" for n in range(network.depth)]
        parts = []
        with vt.capture(network, sites) as seen:
            for _, x in batches(network, images, BATCH, True, kind):
                network(x)
                middle = seen[sites[0]].shape[1] // 2
                parts.append(torch.stack([seen[site][:, middle : middle + tokens] for site in sites], 1))
        features = torch.cat(parts).cpu().numpy()
        finding = vt.structure(features, progress=False)
        moved = np.square(np.diff(features, axis=1)).mean((0, 2, 3))
        scale = features[:, 1:].var(0).mean((1, 2))
        result[kind] = {
            "clusters": len(finding.sizes),
            "units in clusters": int((finding.labels >= 0).sum()),
            "units": int(finding.labels.size),
            "over several layers": int((finding.spans[:, 1] > finding.spans[:, 0]).sum()),
            "inefficient": int(finding.inefficient.sum()),
            "largest": finding.largest,
            "differences": finding.differences.tolist(),
            "change from block to block, squared": moved.tolist(),
            "the same over the units' variance": (moved / scale).tolist(),
        }
    return result | {"samples": len(images), "tokens": tokens}


@torch.no_grad()
def accuracies(networks: Mapping[str, vt.Subject], images: vt.ImageSet, runs: Mapping[str, Any]) -> dict[str, Any]:
    """Half-precision weights computed in single precision, against the log; and who is right where the other is not."""
    from scipy.stats import binomtest

    right = {}
    for kind, network in networks.items():
        said = [network(x).argmax(1) for _, x in batches(network, images, 250, True, kind)]
        right[kind] = torch.cat(said).cpu().numpy() == images.labels
    alone = [int((right[a] & ~right[b]).sum()) for a, b in (KEPT, KEPT[::-1])]
    return {
        "pictures": len(images),
        "here": {kind: 100 * float(v.mean()) for kind, v in right.items()},
        "logged": {kind: runs[kind]["log"][-1]["accuracy"] for kind in KEPT},
        "right alone": dict(zip(KEPT, alone, strict=True)),
        "p (McNemar)": float(binomtest(alone[0], sum(alone)).pvalue) if sum(alone) else 1.0,
    }


# -- all of it


def parts_of(args: argparse.Namespace, runs: Mapping[str, Any]) -> dict[str, Any]:
    """What each part computes, by name, when it is asked for."""
    networks = {kind: open_network(args.runs, kind, args.device) for kind in KEPT}

    def by_class(some: Shown) -> dict[str, Any]:
        true = all_maps(networks, some, some.labels)
        first = measure(all_maps(networks, some), some)
        first["before training"] = before_training(networks["vit"], some, args.untrained)
        return {"predicted class": first, "true class": measure(true, some)}

    def with_sam() -> dict[str, Any]:
        some = cifar(args.data, args.runs, args.count)
        found = all_maps(networks, some)
        draw_maps(found, some, args.out.with_name(f"{args.out.name}_maps.png"))
        settings = json.loads(str(np.load(args.runs / "masks.npz")["settings"]))
        untrained = before_training(networks["vit"], some, args.untrained)
        return measure(found, some) | {"masks": settings, "before training": untrained}

    def logged() -> dict[str, Any]:
        found = curves(runs)
        draw_curves(found, args.out.with_name(f"{args.out.name}_curves.png"))
        return found

    return {
        "curves": logged,
        "cifar": with_sam,
        "animals": lambda: {"pets": by_class(pets(args.data)), "voc_animals": by_class(voc_animals(args.data))},
        "tcav": lambda: concepts(networks, args.data, args.each, args.random_sets),
        "inside": lambda: inside(networks, pictures(args.data, "test", args.inside)),
        "accuracy": lambda: accuracies(networks, pictures(args.data, "test", args.tested), runs),
    }


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=OUT, help="results without their endings")
    parser.add_argument("--parts", nargs="*", help="those named, all by default; none writes the tables again")
    parser.add_argument("--count", type=int, default=4000, help="pictures with masks")
    parser.add_argument("--each", type=int, default=40, help="pictures of a class for TCAV")
    parser.add_argument("--random-sets", type=int, default=100)
    parser.add_argument("--inside", type=int, default=1000, help="pictures over which units are clustered")
    parser.add_argument("--untrained", type=int, default=1000, help="pictures for the control without training")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tested", type=int, default=10_000, help="pictures for the accuracy")
    args = parser.parse_args()
    runs = json.loads((args.runs / "runs.json").read_text())
    file = args.out.with_suffix(".json")
    result = json.loads(file.read_text()) if file.exists() else {}
    known = parts_of(args, runs)
    if wrong := set(args.parts or ()) - set(known):
        raise SystemExit(f"no such part: {sorted(wrong)}; there are {list(known)}")
    for name in known if args.parts is None else args.parts:
        start = perf_counter()
        result[name] = rounded(known[name]())
        file.write_text(json.dumps(result, indent=1) + "\n")
        print(f"{name}: {perf_counter() - start:.0f} s", flush=True)
    args.out.with_suffix(".md").write_text(write_tables(result))


if __name__ == "__main__":
    main()
