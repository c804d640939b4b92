"""Hugging Face's `preprocessor_config.json`, in all its forms, read into one `Preprocess`."""

from __future__ import annotations

from typing import Any

from vitreous.axes import Size
from vitreous.errors import ModelError
from vitreous.preprocess import Preprocess

#: Pillow's numbers for resampling.
RESAMPLE = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}


def read_processor(name: str, local: bool) -> Preprocess | None:
    """The published steps, or None where a folder brings none (a language model, a bare checkpoint)."""
    from transformers.image_processing_base import ImageProcessingMixin

    try:
        config, _ = ImageProcessingMixin.get_image_processor_dict(name, local_files_only=local)
    except OSError:
        return None
    return from_config(config)


def from_config(config: dict[str, Any]) -> Preprocess:
    """
    >>> from_config({"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}, ...}).resize
    256
    """
    size = config.get("size") or {}
    size = {"height": size, "width": size} if isinstance(size, int) else dict(size)
    crop = config.get("crop_size") if config.get("do_center_crop", "crop_size" in config) else None
    crop = {"height": crop, "width": crop} if isinstance(crop, int) else crop
    mean, std = tuple(config.get("image_mean", (0.5,) * 3)), tuple(config.get("image_std", (0.5,) * 3))
    steps: dict[str, Any] = {
        "mean": mean if config.get("do_normalize", True) else (0.0,) * 3,
        "std": std if config.get("do_normalize", True) else (1.0,) * 3,
        "interpolation": RESAMPLE[int(config.get("resample", 2))],
        "source": "preprocessor_config.json",
        "rounding": "down",
    }
    if "shortest_edge" in size:
        edge = size["shortest_edge"]
        if crop:
            return Preprocess(Size(crop["height"], crop["width"]), edge, **steps)
        share = config.get("crop_pct")  # ConvNeXt: below 384 pixels resize to edge / crop_pct and crop, else squash
        if share and edge < 384:
            return Preprocess(Size(edge, edge), int(edge / share), **steps)
        return Preprocess(Size(edge, edge), Size(edge, edge) if share else edge, **steps)
    if "height" in size and "width" in size:
        exact = Size(size["height"], size["width"])
        return Preprocess(Size(crop["height"], crop["width"]) if crop else exact, exact, **steps)
    if "max_num_patches" in config:  # NaFlex: any shape; a square with that many patches is what we take
        edge = int(config["max_num_patches"] ** 0.5) * int(config.get("patch_size", 16))
        return Preprocess(Size(edge, edge), Size(edge, edge), **steps)
    raise ModelError(
        "preprocessor_config.json in a form that is not known",
        given=sorted(size),
        accepted=("shortest_edge", "height, width"),
    )
