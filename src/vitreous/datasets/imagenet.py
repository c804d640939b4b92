"""ImageNet-1k. Labels are the standard ones (sorted synsets), whatever part of the classes is there."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path

from vitreous.datasets.matlab import read_variable
from vitreous.datasets.parts import locate, numbers, read_list, require
from vitreous.errors import ImageError
from vitreous.images import ImageSet
from vitreous.images.sources import Files, Folder, list_folder, pick_pictures

DEVKIT = "ILSVRC2012_devkit_t12/data"
TRUTHS = ("LOC_val_solution.csv", "val.txt", "ILSVRC2012_validation_ground_truth.txt")


@cache
def synsets() -> tuple[str, ...]:
    """The 1,000 WordNet ids in the standard order, which is the sorted one."""
    from timm.data import ImageNetInfo

    return tuple(ImageNetInfo().label_names())


@cache
def class_names() -> tuple[str, ...]:
    """Names in the standard order. The bird and the machine are both called crane; they get their synset as well."""
    from timm.data import ImageNetInfo

    info = ImageNetInfo()
    names = [info.index_to_description(k) for k in range(info.num_classes())]
    return tuple(f"{n} ({w})" if names.count(n) > 1 else n for n, w in zip(names, synsets(), strict=True))


def load(root: Path, split: str) -> ImageSet:
    base = locate(root, ("ILSVRC/Data/CLS-LOC", "Data/CLS-LOC", "ILSVRC2012"), (split,))
    pictures, _ = pick_pictures(list_folder(base / split, recursive=True))
    if not pictures:
        raise ImageError("no pictures in here", given=str(base / split))
    if all("/" in name for name in pictures):
        wnids = [name.split("/")[0] for name in pictures]
    else:
        wnids = _flat(Path(root).expanduser().absolute(), base, pictures)
    if strange := sorted(set(wnids) - set(synsets())):
        raise ImageError(
            "synsets that are not among the 1,000 of ImageNet-1k",
            given=strange[:5],
            accepted="folders named n01440764, n01443537, ...",
        )
    facts = {wnid: {"wnid": wnid} for wnid in set(wnids)}  # shared: there are 1.3 million pictures
    source = Files(Folder(base / split), tuple(pictures), facts=[facts[wnid] for wnid in wnids])
    labels = numbers(wnids, synsets())
    return ImageSet(source, tuple(pictures), labels, class_names(), name=f"imagenet/{split}")


def _flat(root: Path, base: Path, pictures: list[str]) -> list[str]:
    """Synsets of pictures that lie in one folder, from the first of the published files of answers that is there."""
    folders = (root, base, root / "ILSVRC", root / DEVKIT, base / DEVKIT)
    path = next((folder / name for folder in folders for name in TRUTHS if (folder / name).is_file()), None)
    if path is None:
        raise ImageError(
            "the pictures lie in no class folders, and there is no file of labels",
            given=str(base),
            accepted=TRUTHS,
            remedy="sort the pictures into synset folders, or put one of these files beside them",
        )
    try:
        answers = _answers(path, pictures)
    except ImageError:
        raise
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise ImageError(f"{path.name} is not as published ({error!r})", given=str(path)) from error
    if missing := [picture for picture in pictures if Path(picture).stem not in answers]:
        raise ImageError(f"{path.name} does not know {len(missing)} of the pictures", given=missing[:5])
    return [answers[Path(picture).stem] for picture in pictures]


def _answers(path: Path, pictures: list[str]) -> dict[str, str]:
    """Name of a picture without its ending -> synset."""
    if path.suffix == ".csv":  # ImageId,PredictionString; the first word of a prediction is the synset
        with path.open(newline="") as file:
            return {row["ImageId"]: row["PredictionString"].split()[0] for row in csv.DictReader(file)}
    lines = read_list(path.parent, path.stem)
    if path.name == "val.txt":  # name and standard label
        return {Path(name).stem: synsets()[int(label)] for name, label in (line.split() for line in lines)}
    return _devkit(path, [int(line) for line in lines], pictures)


def _devkit(path: Path, answers: list[int], pictures: list[str]) -> dict[str, str]:
    """The devkit numbers classes in an order of its own, which only its meta.mat explains."""
    require(path.parent, ["meta.mat"], "files of the devkit")
    table = read_variable((path.parent / "meta.mat").read_bytes(), str(path.parent / "meta.mat"), "synsets").ravel()
    wnids = {int(row["ILSVRC2012_ID"].item()): str(row["WNID"].item()) for row in table}
    out = {}
    for picture in pictures:
        found = re.fullmatch(r"ILSVRC2012_val_(\d{8})", Path(picture).stem)
        if found and 1 <= int(found[1]) <= len(answers):
            out[found[0]] = wnids[answers[int(found[1]) - 1]]
    return out
