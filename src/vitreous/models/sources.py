"""Where models come from: timm, Hugging Face, torchvision, and the small ones in this package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.axes import Size
from vitreous.errors import ModelError
from vitreous.models.bundled import BUNDLED, load_bundled
from vitreous.models.hf_preprocess import read_processor
from vitreous.models.weights import put_weights, read_state
from vitreous.preprocess import Preprocess

if TYPE_CHECKING:
    from torch import nn

RANDOM = "random"
OFFLINE = "without a network: weights= (--weights) takes a local file, or 'random' for the architecture alone"


@dataclass(frozen=True)
class Loaded:
    """What a source hands over: a module, and what it knows about feeding it."""

    module: nn.Module
    preprocess: Preprocess | None = None
    tokenizer: Any = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """One row: the prefix in a model name, how to load, and what there is to load."""

    about: str
    load: Callable[[str, str | Path | None, dict[str, Any]], Loaded]
    names: Callable[[], tuple[str, ...]]


def split_name(name: str) -> tuple[str, str]:
    """`timm:vit_b` -> ("timm", "vit_b"); a name without a source is refused with the names it could mean."""
    source, colon, rest = name.partition(":")
    if colon and source in SOURCES and rest:
        return source, rest
    if not colon and Path(name).is_dir():
        raise ModelError("a model name needs its source", given=name, remedy=f"hf:{name}")
    meant = [f"{s}:{name}" for s, row in SOURCES.items() if not colon and name in row.names()]
    raise ModelError(
        "a model name needs its source" if not colon else f"unknown source {source!r}",
        given=name,
        accepted=meant or [f"{s}:NAME" for s in SOURCES],
        remedy="`vitreous models` lists what can be loaded",
    )


# -- timm


def _timm_names() -> tuple[str, ...]:
    import timm

    return tuple(timm.list_models(module=["vision_transformer", "eva", "convnext"]))


def _load_timm(name: str, weights: str | Path | None, kwargs: dict[str, Any]) -> Loaded:
    import timm
    from timm.data import resolve_model_data_config

    if not timm.is_model(name.partition(".")[0]):
        raise ModelError("timm has no such model", given=name, accepted=_timm_names(), remedy="`vitreous models timm`")
    try:
        module = timm.create_model(name, pretrained=weights is None, **kwargs)
    except (OSError, RuntimeError) as error:
        raise _unreachable(f"timm:{name}", error) from error
    preprocess = timm_preprocess(resolve_model_data_config(module), module)
    return Loaded(module, preprocess, notes=_fill(module, weights))


def timm_preprocess(config: dict[str, Any], module: nn.Module) -> Preprocess:
    """timm's data configuration; the size is the one that this very module was built for."""
    built = next((vars(m)["img_size"] for m in module.modules() if vars(m).get("img_size")), None)
    height, width = built or config["input_size"][-2:]
    size = Size(height, width)
    mode = config.get("crop_mode") or "center"
    if mode not in ("center", "squash"):
        raise ModelError("timm preprocessing with another crop", given=mode, accepted=("center", "squash"))
    resize: int | Size = int(min(size) / config["crop_pct"]) if mode == "center" else size
    mean, std = tuple(config["mean"]), tuple(config["std"])
    return Preprocess(size, resize, mean, std, config["interpolation"], "timm's data configuration")


# -- torchvision


def _torchvision_names() -> tuple[str, ...]:
    import torchvision

    return tuple(n for n in torchvision.models.list_models() if n.startswith("vit_"))


def _load_torchvision(name: str, weights: str | Path | None, kwargs: dict[str, Any]) -> Loaded:
    from torchvision import models

    if name not in models.list_models():
        raise ModelError("torchvision has no such model", given=name, accepted=_torchvision_names())
    if name not in _torchvision_names():
        raise ModelError(
            f"torchvision's {name} is of no family that vitreous knows", given=name, accepted=_torchvision_names()
        )
    published = models.get_model_weights(name).DEFAULT
    try:
        module = models.get_model(name, weights=published if weights is None else None, **kwargs)
    except (OSError, RuntimeError) as error:
        raise _unreachable(f"torchvision:{name}", error) from error
    steps = published.transforms()
    size = Size(module.image_size, module.image_size)
    resize = max(round(steps.resize_size[0] * size.height / steps.crop_size[0]), size.height)
    preprocess = Preprocess(
        size, resize, tuple(steps.mean), tuple(steps.std), steps.interpolation.value, f"torchvision {published}"
    )
    return Loaded(module, preprocess, notes=_fill(module, weights))


# -- Hugging Face


def _load_hf(name: str, weights: str | Path | None, kwargs: dict[str, Any]) -> Loaded:
    import transformers

    folder = Path(name).expanduser()
    local = folder.is_dir()
    if name.startswith((".", "/", "~")) and not local:
        raise ModelError("no such folder", given=name, remedy="hf:ORG/NAME for the hub, hf:./FOLDER for a folder")
    if local and not (folder / "config.json").is_file():
        raise ModelError(
            "the folder holds no config.json", given=name, remedy="save with model.save_pretrained(folder)"
        )
    name = str(folder) if local else name
    try:
        config = transformers.AutoConfig.from_pretrained(name, local_files_only=local)
        kind = _hf_class(config)
        if weights is None:
            module, found = kind.from_pretrained(
                name, dtype="float32", local_files_only=local, output_loading_info=True, **kwargs
            )
            notes = _not_stored(sorted(found["missing_keys"]))
        else:
            module = kind._from_config(config, **kwargs)
            notes = _fill(module, weights)
    except (OSError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        raise _unreachable(f"hf:{name}", error) from error
    return Loaded(module, read_processor(name, local), _hf_tokenizer(name, local, module), notes)


def _not_stored(names: list[str]) -> tuple[str, ...]:
    """transformers fills what a checkpoint lacks with random numbers; whoever measures must know."""
    return (f"random, not in the checkpoint: {', '.join(names[:4])} ({len(names)} tensors)",) if names else ()


def _hf_class(config: Any) -> Any:
    """The class that the checkpoint was saved from, so that its head comes along; else the bare model."""
    import transformers

    for name in config.architectures or ():
        try:
            return transformers.__getattr__(name)
        except AttributeError:
            continue  # a class of somebody's own
    if type(config) not in transformers.MODEL_MAPPING:
        raise ModelError("transformers has no model for this configuration", given=type(config).__name__)
    return transformers.MODEL_MAPPING[type(config)]


def _hf_tokenizer(name: str, local: bool, module: nn.Module) -> Any:
    import transformers

    if module.main_input_name != "input_ids":
        return None
    if local and not any(Path(name).glob("tokenizer*")):
        return None
    try:
        return transformers.AutoTokenizer.from_pretrained(name, local_files_only=local)
    except (OSError, ValueError) as error:
        raise _unreachable(f"hf:{name}", error) from error


def _fill(module: nn.Module, weights: str | Path | None) -> tuple[str, ...]:
    """Puts a local weight file into the module, where one was given; returns what it has to say."""
    return () if weights is None or weights == RANDOM else put_weights(module, read_state(weights), Path(weights).name)


def _unreachable(name: str, error: Exception) -> ModelError:
    return ModelError(f"{name} cannot be loaded: {str(error).splitlines()[0]}", given=name, remedy=OFFLINE)


def _load_bundled(name: str, weights: str | Path | None, kwargs: dict[str, Any]) -> Loaded:
    if weights is not None or kwargs:
        raise ModelError("a bundled model takes no other weights or settings", given=name)
    return Loaded(*load_bundled(name))


#: The one table of sources.
SOURCES: dict[str, Source] = {
    "timm": Source("PyTorch image models: ViT, DINOv2, EVA, ConvNeXt", _load_timm, _timm_names),
    "hf": Source("Hugging Face: ORG/NAME on the hub, or a local folder", _load_hf, lambda: ()),
    "torchvision": Source("torchvision's vision transformers", _load_torchvision, _torchvision_names),
    "bundled": Source("small models trained on scenes, in this package", _load_bundled, lambda: tuple(BUNDLED)),
}
