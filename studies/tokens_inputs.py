"""What the token studies look at: pictures with class maps or human segmentations, models, and maps kept on disk.

Pictures are seen whole: both sides are resized to what the model takes, so that no truth is cut away. dinov2s_saliency
takes any multiple of 14 pixels and gets a grid of the picture's own shape with about as many patches as asked for.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

import vitreous as vt
from gradcam_tin import text_classifier
from real_models import dinov2s_saliency, tin_vit
from vitreous.demo import shuffled

OUT = Path(__file__).parent / "results"
IGNORE = 255
PATCH = 14  # pixels of a patch of dinov2s_saliency
PATCHES = 70  # about so many in a picture

# -- the command line of a study


def parser_of(
    about: str | None,
    *,
    models: Sequence[str] = (),
    sets: Sequence[str] = (),
    pictures: int | None = None,
    quick: str = "one small model, one set, two pictures",
) -> argparse.ArgumentParser:
    """What the token studies are asked with; --models and --sets where there is a choice of them."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="keeps what was computed: a study can be ended")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.set_defaults(models=[], sets=[])
    if pictures is not None:
        parser.add_argument("--pictures", type=int, default=pictures)
    if models:
        parser.add_argument("--models", nargs="+", choices=MODELS, default=list(models))
        parser.add_argument("--sets", nargs="+", choices=tuple(COLLECTIONS), default=list(sets))
    return parser


def asked(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The answers, and one thread: small products gain nothing from more, and the machine has other work."""
    torch.set_num_threads(1)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.quick:
        given.models, given.sets, given.pictures = ["tin-vit-text"], given.sets[:1], 2
    return given


# -- what a study looks at


@dataclass(frozen=True, eq=False)
class Shown:
    """A picture with its class map (row, column), 255 for what counts for nothing, or with several segmentations."""

    id: str
    image: Image.Image
    truth: np.ndarray | None = None
    people: tuple[np.ndarray, ...] = ()

    @property
    def pixels(self) -> np.ndarray:
        return np.asarray(self.image)

    @property
    def classes(self) -> int:
        """How many classes the picture has."""
        assert self.truth is not None
        return len(set(np.unique(self.truth).tolist()) - {IGNORE})


@dataclass(frozen=True)
class Collection:
    """Pictures in a fixed order; `classes` are names, none for segmentations without names."""

    name: str
    pictures: tuple[Shown, ...]
    classes: tuple[str, ...] = ()


# -- pictures


def collection(data: Path, name: str, count: int) -> Collection:
    """The first pictures of a fixed random order of one of `COLLECTIONS`: fewer are part of more."""
    with zipfile.ZipFile(data / name / f"{name}.zip") as archive:
        return COLLECTIONS[name](archive, count)


def _voc(archive: zipfile.ZipFile, count: int) -> Collection:
    names = _drawn(archive, "images/", count)
    shown = [Shown(n, _picture(archive, f"images/{n}.jpg"), _labels(archive, f"labels/{n}.png")) for n in names]
    return Collection("voc_animals", tuple(shown), tuple(json.loads(archive.read("classes.json"))))


def _pets(archive: zipfile.ZipFile, count: int) -> Collection:
    shown = []
    for n in _drawn(archive, "images/", count):
        trimap = _labels(archive, f"trimaps/{n}.png")
        truth = np.select([trimap == 2, trimap == 1], [0, 1], IGNORE)
        shown.append(Shown(n, _picture(archive, f"images/{n}.jpg"), truth))
    return Collection("pets", tuple(shown), ("background", "animal"))


def _camvid(archive: zipfile.ZipFile, count: int) -> Collection:
    names = json.loads(archive.read("classes.json"))[:11]
    shown = []
    for n in _drawn(archive, "test/", count):
        labels = _labels(archive, f"test_labels/{n}.png")
        shown.append(Shown(n, _picture(archive, f"test/{n}.jpg"), np.where(labels == 11, IGNORE, labels)))
    return Collection("camvid", tuple(shown), tuple(names))


def _bsds(archive: zipfile.ZipFile, count: int) -> Collection:
    shown = []
    for n in _drawn(archive, "images/", count):
        people = sorted(p for p in archive.namelist() if p.startswith(f"segs/{n}_"))
        shown.append(Shown(n, _picture(archive, f"images/{n}.jpg"), people=tuple(_labels(archive, p) for p in people)))
    return Collection("bsds500_test", tuple(shown))


COLLECTIONS: dict[str, Callable[[zipfile.ZipFile, int], Collection]] = {
    "voc_animals": _voc,
    "pets": _pets,
    "camvid": _camvid,
    "bsds500_test": _bsds,
}


def _drawn(archive: zipfile.ZipFile, folder: str, count: int) -> list[str]:
    names = sorted(Path(n).stem for n in archive.namelist() if n.startswith(folder) and n.endswith(".jpg"))
    return [names[k] for k in np.random.default_rng(0).permutation(len(names))[:count]]


def _picture(archive: zipfile.ZipFile, name: str) -> Image.Image:
    return Image.open(io.BytesIO(archive.read(name))).convert("RGB")


def _labels(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(archive.read(name)))).astype(int)


# -- models


class Saliency(nn.Module):
    """dinov2s_saliency with its own decoder, as a classifier of one class: the mean saliency of a picture, a logit."""

    def __init__(self, net: nn.Module, state: dict[str, Tensor]) -> None:
        super().__init__()
        self.net = net
        layers: dict[str, nn.Module] = {}
        for k, (inside, out) in enumerate(((384, 256), (256, 128), (128, 64)), 1):
            layers[f"upconv{k}"] = nn.ConvTranspose2d(inside, out, 4, 2, 1)
            layers[f"bn{k}"], layers[f"relu{k}"] = nn.BatchNorm2d(out), nn.ReLU()
        self.decoder = nn.Sequential(OrderedDict(layers, final_conv=nn.Conv2d(64, 1, 1)))
        missing = self.decoder.load_state_dict(state, strict=False).missing_keys
        assert all(name.endswith("num_batches_tracked") for name in missing), missing

    def heat(self, x: Tensor) -> Tensor:
        """Saliency before the sigmoid (sample, row, column), eight times as fine as the patches."""
        grid = x.shape[-2] // PATCH, x.shape[-1] // PATCH
        return self.decoder(self.net.forward_features(x)[:, 1:].mT.unflatten(2, grid))[:, 0]

    def forward(self, x: Tensor) -> Tensor:
        return self.heat(x).mean((1, 2))[:, None]


def backbone(data: Path, name: str) -> vt.Subject:
    """One of `MODELS`, seeing pictures whole."""
    subject = dinov2s_saliency(data, device="cpu") if name == "dinov2s_saliency" else tin_vit(data, name[8:])
    return whole(subject)


def whole(subject: vt.Subject) -> vt.Subject:
    steps = subject.preprocess
    assert steps is not None
    return vt.wrap(subject.module, name=subject.name, preprocess=replace(steps, resize=steps.size))


def classifier(data: Path, name: str) -> vt.Subject | None:
    """The same backbone with classes on top, where there are any."""
    if name == "tin-vit-text":
        return text_classifier(data)
    if name != "dinov2s_saliency":
        return None
    subject = backbone(data, name)
    stored = load_file(data / "weights" / "dinov2s_saliency_fp16.safetensors")
    decoder = {k.removeprefix("decoder."): v.float() for k, v in stored.items() if k.startswith("decoder.")}
    module = Saliency(subject.module, decoder)
    return vt.wrap(module.eval(), name="dinov2s_saliency, mean saliency", preprocess=subject.preprocess)


MODELS = ("dinov2s_saliency", "tin-vit-text", "tin-vit-contrast", "tin-vit-mae")


def control(subject: vt.Subject, seed: int = 0) -> vt.Subject:
    """The same architecture with the numbers of each weight array shuffled."""
    return whole(shuffled(subject, seed))


def size_for(subject: vt.Subject, image: Image.Image, patches: int) -> tuple[int, int]:
    """Input size: the model's own, or for dinov2s_saliency about `patches` patches in the picture's own shape."""
    assert subject.preprocess is not None
    if not subject.name.startswith("dinov2s"):
        return tuple(subject.preprocess.size)
    aspect = image.width / image.height
    return PATCH * round((patches / aspect) ** 0.5), PATCH * round((patches * aspect) ** 0.5)


# -- kept on disk: a study can be ended at any time and go on


def kept(path: Path, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """What `make` gives, computed once. A file is whole or not there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.part.npz")
        np.savez_compressed(part, **make())
        part.rename(path)
    with np.load(path) as stored:
        return dict(stored)


def maps_of(
    subject: vt.Subject,
    shown: Shown,
    method: str,
    blocks: Sequence[int],
    folder: Path,
    weights: np.ndarray | None = None,
) -> list[vt.TokenMaps]:
    """Maps of all tokens of one picture after some blocks, by one of `METHODS`, kept in a folder.

    With `weights` (channel,) they are those of the lens with f(z) = ⟨z, w⟩, whatever the method is called.
    """
    paths = [folder / subject.name / f"{shown.id}-{method}-{block}.npz" for block in blocks]
    missing = [(block, path) for block, path in zip(blocks, paths, strict=True) if not path.exists()]
    if missing:
        size = size_for(subject, shown.image, PATCHES)
        make = METHODS[method] if weights is None else _lens(weights)
        found = make(subject, [shown.image], [block for block, _ in missing], size)
        for one, (_, path) in zip(found, missing, strict=True):
            one.save(path)
    return [vt.TokenMaps.load(path) for path in paths]


def _lens(target: str | np.ndarray) -> Callable[..., Sequence[vt.TokenMaps]]:
    def make(subject: vt.Subject, images: list, blocks: list[int], size: tuple[int, int]) -> Sequence[vt.TokenMaps]:
        # half the time of float32; maps of a picture correlate with those of float32 above 0.999
        return vt.token_maps(subject, images, blocks, target=target, size=size, dtype="bfloat16", progress=False)

    return make


def _each(make: Callable[..., vt.TokenMaps]) -> Callable[..., Sequence[vt.TokenMaps]]:
    def made(subject: vt.Subject, images: list, blocks: list[int], size: tuple[int, int]) -> Sequence[vt.TokenMaps]:
        return [make(subject, images, block, size=size, progress=False) for block in blocks]

    return made


def learned_weights(data: Path, model: str, pictures: int, folder: Path) -> np.ndarray:
    """w (channel,) by self-consistency from pictures of imagenet_sample, a set that nothing is measured on.

    One w for all tokens, so that it can serve grids of several shapes. To learn in minutes, pictures are small (6 x 6
    patches for dinov2s_saliency), each keeps its noise from epoch to epoch, and first maps are in bfloat16.
    """

    def learn() -> dict[str, np.ndarray]:
        size = 6 * PATCH if model.startswith("dinov2s") else None
        images = unmeasured(data, pictures)
        learner = vt.SelfConsistency(samples=pictures, shared=True, redraw=False, dtype="bfloat16")
        fit = learner.fit(backbone(data, model), images, size=size, progress=False)
        return {"w": fit.weights[0], "losses": fit.losses}

    return kept(folder / f"{model}-{pictures}.npz", learn)["w"]


def unmeasured(data: Path, count: int) -> list[Image.Image]:
    """The first pictures of a fixed random order of imagenet_sample."""
    with zipfile.ZipFile(data / "imagenet_sample" / "images.zip") as archive:
        names = sorted(archive.namelist())
        if not 1 <= count <= len(names):
            raise SystemExit(f"w can be learned from 1 to {len(names)} pictures, not from {count}")
        return [_picture(archive, names[k]) for k in np.random.default_rng(0).permutation(len(names))[:count]]


def _aimed(of: Callable[[np.ndarray], np.ndarray]) -> Callable[..., Sequence[vt.TokenMaps]]:
    """The lens with a vector of length 1 for each token, made from what tokens are (token, channel)."""

    def make(subject: vt.Subject, images: list, blocks: list[int], size: tuple[int, int]) -> Sequence[vt.TokenMaps]:
        assert subject.preprocess is not None
        x = torch.from_numpy(np.stack([subject.preprocess.at(*size)(image) for image in images]))
        found = []
        for block in blocks:
            site = f"blocks.{block}.resid.out"
            with torch.inference_mode(), vt.capture(subject, site, stop=True) as rec:
                subject(x)
            w = of(rec[site][0].numpy())
            w = w / np.linalg.norm(w, axis=-1, keepdims=True)
            found += _lens(w)(subject, images, [block], size)
        return found

    return make


METHODS: dict[str, Callable[..., Sequence[vt.TokenMaps]]] = {
    "sum": _lens("sum"),
    "energy": _lens("energy"),
    "unit sum": _aimed(np.ones_like),
    "norm": _aimed(lambda z: z),  # the gradient of |z|
    "own direction": _aimed(lambda z: z - z[1:].mean(0)),  # all models here have one prefix token
    "rollout": _each(vt.attention_rollout),
    "raw attention": _each(vt.raw_attention),
}


# -- pages


def in_order(path: Path, keys: Sequence[str], new: dict[str, Any]) -> dict[str, Any]:
    """What a file of results holds by model under some keys, with what was measured now in its place."""
    earlier: Any = json.loads(path.read_text()) if path.exists() else {}
    for key in keys:
        earlier = earlier.get(key, {})
    joined = earlier | new
    return {model: joined[model] for model in MODELS if model in joined}


def put_tables(page: Path, tables: dict[str, list[str]]) -> None:
    """Replaces what stands between the markers of a page, and leaves its words alone; a new page is tables alone."""
    page.parent.mkdir(parents=True, exist_ok=True)
    if not page.exists():
        page.write_text("\n".join(f"<!-- table: {name} -->\n<!-- end -->\n" for name in tables))
    text = page.read_text()
    for name, lines in tables.items():
        pattern = re.compile(rf"(<!-- table: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not pattern.search(text):
            text += f"\n<!-- table: {name} -->\n<!-- end -->\n"
        made = "\n".join(lines).strip()
        text = pattern.sub(lambda found, made=made: f"{found[1]}\n{made}\n\n{found[2]}", text)
    page.write_text(text)
