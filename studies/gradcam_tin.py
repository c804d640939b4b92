"""Grad-CAM++ of a trained ViT on Tiny ImageNet: does it point at the object's box better than a map that knows nothing?

PYTHONPATH=src python studies/gradcam_tin.py DATA [--count 500]

The model is tin-vit-text with its class texts as classifier. It reads its class token, so maps are taken from what
enters the last block. Controls: the maps of other pictures, a bump in the middle of the picture, and the area of the
box, which is what a flat map gets. Writes studies/results/gradcam_tin.json and .png.
"""

from __future__ import annotations

import argparse
import io
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

import vitreous as vt
from real_models import tin_vit
from vitreous.evidence.pointing import energy_point_game, point_game
from vitreous.evidence.statistics import paired_t
from vitreous.render import to_png
from vitreous.views.cams import cam_panel, inputs_of

OUT = Path(__file__).parent / "results" / "gradcam_tin"


class TextClassifier(nn.Module):
    """Cosine of a picture's projected class token to the texts of the 200 classes, times the trained scale."""

    def __init__(self, net: nn.Module, state: dict[str, Tensor]) -> None:
        super().__init__()
        self.net = net
        self.projection = nn.Linear(*state["text_proj.weight"].T.shape)
        self.projection.load_state_dict({k: state[f"text_proj.{k}"].float() for k in ("weight", "bias")})
        self.register_buffer("texts", state["text_classes"].float())
        self.register_buffer("scale", state["logit_scale"].float().exp())

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * nn.functional.normalize(self.projection(self.net(x)), dim=-1) @ self.texts.T


def text_classifier(data: Path) -> vt.Subject:
    backbone = tin_vit(data, "text")
    module = TextClassifier(backbone.module, load_file(data / "weights" / "tin-vit-text.safetensors"))
    return vt.wrap(module.eval(), name="tin-vit-text, classes by text", preprocess=backbone.preprocess)


def tiny_imagenet(data: Path, count: int) -> vt.ImageSet:
    """Validation pictures with labels and boxes, evenly spaced so that all classes are there."""
    stored = np.load(data / "tiny_imagenet_val" / "tiny_imagenet_val.npz")
    raw, spans = stored["jpeg"].tobytes(), list(pairwise(stored["offsets"]))
    chosen = np.linspace(0, len(spans) - 1, min(count, len(spans))).astype(int)
    pictures = [np.asarray(Image.open(io.BytesIO(raw[slice(*spans[k])])).convert("RGB")) for k in chosen]
    return vt.ImageSet.from_arrays(
        np.stack(pictures),
        labels=stored["labels"][chosen],
        classes=[str(name) for name in stored["names"]],
        boxes=[stored["boxes"][k][None].astype(float) for k in chosen],
        name="tiny_imagenet_val",
    )


def bump(size: vt.Size, count: int, width: float = 0.25) -> np.ndarray:
    y, x = ((np.arange(side) + 0.5) / side - 0.5 for side in size)
    one = np.exp(-(y[:, None] ** 2 + x[None, :] ** 2) / (2 * width**2))
    return np.broadcast_to(one, (count, *one.shape))


def scores(cams: np.ndarray, masks: np.ndarray) -> dict[str, float]:
    point, energy = point_game(cams, masks), energy_point_game(cams, masks)
    return {"point_game": round(float(point.mean()), 4), "energy_pg": round(float(energy.mean()), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--count", type=int, default=500)
    args = parser.parse_args()
    subject, images = text_classifier(args.data), tiny_imagenet(args.data, args.count)
    masks = vt.object_masks(images, "boxes", progress=False)
    seen = vt.input_masks(masks, subject.preprocess)
    finding = vt.gradcam(subject, images)
    cams = finding.at()
    others = np.roll(np.arange(len(cams)), len(cams) // 2 + 1)
    centre = bump(finding.size, len(cams))
    small = seen.mean((1, 2)) < 0.4
    rows = {
        "Grad-CAM++": cams,
        "Grad-CAM++, eps 0": vt.gradcam(subject, images, eps=0).at(),
        "Grad-CAM": vt.gradcam(subject, images, plus_plus=False).at(),
        "Grad-CAM++, block 8": vt.gradcam(subject, images, block=8).at(),
        "Grad-CAM++ of other pictures": cams[others],
        "bump in the middle": centre,
    }
    area = {"point_game": round(float(seen.mean()), 4), "energy_pg": round(float(seen.mean()), 4)}
    result = {
        "pictures": len(images),
        "accuracy": round(float((finding.predicted == images.labels).mean()), 4),
        "site": finding.site,
        "notes": finding.notes,
        "all": {**{name: scores(c, seen) for name, c in rows.items()}, "flat map (area of the box)": area},
        "box below 0.4 of the picture": {
            "pictures": int(small.sum()),
            **{name: scores(c[small], seen[small]) for name, c in rows.items()},
            "flat map (area of the box)": {k: round(float(seen[small].mean()), 4) for k in area},
        },
        "t of Energy PG against other pictures' maps": paired_t(
            energy_point_game(cams, seen), energy_point_game(cams[others], seen)
        ).statistic,
        "maps that are zero": int((finding.maps.max((1, 2)) == 0).sum()),
    }
    OUT.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    _draw(subject, images, finding, seen)


def _draw(subject: vt.Subject, images: vt.ImageSet, finding, seen: np.ndarray) -> None:
    """The first pictures that are classified rightly with a box that leaves something out."""
    right = (finding.predicted == images.labels) & (seen.mean((1, 2)) < 0.6)
    chosen = np.flatnonzero(right)[:8]
    shown = vt.gradcam(subject, images[chosen], progress=False)
    plain = vt.gradcam(subject, images[chosen], plus_plus=False, progress=False)
    panel = cam_panel(
        inputs_of(images[chosen], subject.preprocess),
        {"++": shown, "CAM": plain},
        names=[images.classes[k].split(",")[0] for k in images.labels[chosen]],
        classes=[name.split(",")[0] for name in images.classes],
        masks=seen[chosen],
        title="tin-vit-text on Tiny ImageNet: picture, box, Grad-CAM++ and Grad-CAM of what it predicts",
    )
    OUT.with_suffix(".png").write_bytes(to_png(panel, width=9, dpi=75))


if __name__ == "__main__":
    main()
