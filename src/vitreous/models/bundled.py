"""The small models in this package: three ViTs of one shape, trained on `scenes` under three objectives."""

from __future__ import annotations

import json
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING

from vitreous.axes import Size
from vitreous.errors import ModelError
from vitreous.preprocess import Preprocess

if TYPE_CHECKING:
    from torch import nn

    from vitreous.models.captions import CaptionTower

BUNDLED = {
    "scenes-text": "contrast with captions: language supervised",
    "scenes-mae": "masked autoencoder: no labels, predicts hidden pixels",
    "scenes-contrast": "contrast of two views: no labels",
}


def _file(name: str) -> Traversable:
    return files("vitreous.models") / "weights_bundled" / f"{name}.safetensors"


def load_words() -> CaptionTower:
    """The text tower of `scenes-text`: words and phrases in the space of its class token and of its patches."""
    from vitreous.models.captions import load_captions

    with as_file(_file("scenes-text")) as path:
        return load_captions(path)


def load_bundled(name: str) -> tuple[nn.Module, Preprocess]:
    from safetensors import safe_open
    from timm.models.vision_transformer import VisionTransformer

    if name not in BUNDLED:
        raise ModelError("no such bundled model", given=name, accepted=tuple(BUNDLED))
    with as_file(_file(name)) as path:
        with safe_open(path, "pt") as stored:
            config = json.loads(stored.metadata()["config"])
            state = {
                k.removeprefix("vit."): stored.get_tensor(k).float() for k in stored.keys() if k.startswith("vit.")
            }
    module = VisionTransformer(**config["architecture"])
    module.load_state_dict(state)
    side = config["architecture"]["img_size"]
    size = Size(side, side)
    return module, Preprocess(size, size, tuple(config["mean"]), tuple(config["std"]), "bicubic", "measured on scenes")
