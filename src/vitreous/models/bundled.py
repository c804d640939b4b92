"""The small models in this package: three ViTs of one shape, trained on `scenes` under three objectives."""

from __future__ import annotations

import json
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from vitreous.axes import Size
from vitreous.errors import ModelError
from vitreous.preprocess import Preprocess

if TYPE_CHECKING:
    from torch import nn

BUNDLED = {
    "scenes-text": "contrast with captions: language supervised",
    "scenes-mae": "masked autoencoder: no labels, predicts hidden pixels",
    "scenes-contrast": "contrast of two views: no labels",
}


def load_bundled(name: str) -> tuple[nn.Module, Preprocess]:
    from safetensors import safe_open
    from timm.models.vision_transformer import VisionTransformer

    if name not in BUNDLED:
        raise ModelError("no such bundled model", given=name, accepted=tuple(BUNDLED))
    with as_file(files("vitreous.models") / "weights_bundled" / f"{name}.safetensors") as path:
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
