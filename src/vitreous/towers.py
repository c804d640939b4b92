"""Two towers that put pictures and words into one space: the bundled pair, or a CLIP or SigLIP model in a folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.errors import ModelError, SettingsError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Towers:
    """`image` makes (picture, channel) of a list of pictures, `text` (word, channel) of a list of words.

    `fit` says how well words fit what a model made of pictures, (picture, word), where the model is the image tower.
    """

    image: Callable[[list[Any]], Tensor]
    text: Callable[[list[str]], Tensor]
    fit: Callable[[Tensor, list[str]], np.ndarray]


def open_towers(name: str, device: str = "auto") -> Towers:
    """`bundled`, or `hf:FOLDER` of a Hugging Face model with `get_image_features` and `get_text_features`."""
    if name == "bundled":
        return _bundled(device)
    source, colon, folder = name.partition(":")
    if source != "hf" or not colon:
        raise SettingsError("no such towers", given=name, accepted="'bundled', or hf:FOLDER of a CLIP or SigLIP model")
    return _hugging_face(folder, device)


def _bundled(device: str) -> Towers:
    from vitreous.models.bundled import load_words
    from vitreous.subjects import load

    subject, tower = load("bundled:scenes-text", device=device), load_words()
    tower = tower.to(subject.device)

    def fit(out: Tensor, words: list[str]) -> np.ndarray:
        return tower(out, words).sigmoid().cpu().numpy()

    return Towers(
        lambda pictures: tower.image(subject(pictures)),
        lambda words: tower.text(tower.tokens(words).to(subject.device)),
        fit,
    )


def _hugging_face(folder: str, device: str) -> Towers:
    import torch
    from transformers import AutoModel, AutoProcessor

    from vitreous.subjects import pick_device

    try:
        model = AutoModel.from_pretrained(folder, local_files_only=Path(folder).is_dir())
        processor = AutoProcessor.from_pretrained(folder, local_files_only=Path(folder).is_dir())
    except (OSError, ValueError) as error:
        raise ModelError(f"no model and processor here: {error}", given=folder) from None
    if not {"get_image_features", "get_text_features"} <= set(dir(model)):
        raise ModelError("a model with one tower", given=type(model).__name__, accepted="CLIP, SigLIP and their kin")
    model = model.eval().to(pick_device(device))

    def features(found: Any) -> Tensor:
        return found if isinstance(found, torch.Tensor) else found.pooler_output

    def text(words: list[str]) -> Tensor:
        given = processor(text=words, return_tensors="pt", **_padding(model.config)).to(model.device)
        return features(model.get_text_features(**given))

    def image(pictures: list[Any]) -> Tensor:
        given = processor(images=pictures, return_tensors="pt").to(model.device)
        return features(model.get_image_features(**given))

    def fit(out: Tensor, words: list[str]) -> np.ndarray:
        a, b = (torch.nn.functional.normalize(part.float(), dim=-1) for part in (out, text(words)))
        return (a @ b.T).cpu().numpy()

    return Towers(image, text, fit)


def _padding(config: Any) -> dict[str, Any]:
    """SigLIP reads the last place of a text and masks none: it wants the length that it was trained with. Padded to the
    longest of a batch, the same word would have another vector beside other words."""
    if not config.model_type.startswith("siglip"):
        return {"padding": True}
    return {"padding": "max_length", "max_length": config.text_config.max_position_embeddings}
