"""What is trained and how: the paper's Tables 2 to 6 as values, one row a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from math import inf
from types import MappingProxyType
from typing import Any

from vitreous.checks import is_number, number
from vitreous.errors import SettingsError

#: Table 3: timm's augmentation of pictures.
AUGMENTATION = MappingProxyType(
    {
        "auto_augment": "rand-m8-inc1-mstd1.0",
        "scale": (0.08, 1.0),
        "ratio": (0.75, 1.33),
        "hflip": 0.5,
        "grayscale_prob": 0.05,
        "gaussian_blur_prob": 0.05,
        "color_jitter": None,
        "interpolation": "random",
    }
)
#: Dropout is timm's `drop_rate`, which a ViT applies before its head.
DROPPED = MappingProxyType({"drop_rate": 0.3, "drop_path_rate": 0.1})
WEE = "vit_wee_patch16_reg1_gap_256"


@dataclass(frozen=True)
class Recipe:
    """A training run. The learning rate is `lr` for a batch of `lr_batch` and scales with `batch`.

    `model` is a timm name with `settings` for its constructor; `size` the side of a picture in pixels, None for points.
    `warmup` epochs come before the `epochs` and rise from zero. `structure` are the settings of the structure loss.
    """

    name: str
    about: str
    data: str
    size: int | None
    model: str = WEE
    settings: Mapping[str, Any] = field(default_factory=dict)
    batch: int = 784
    epochs: int = 3600
    warmup: int = 5
    lr: float = 0.002
    lr_batch: int = 4096
    betas: tuple[float, float] = (0.6, 0.995)
    weight_decay: float = 0.125
    smoothing: float = 0.1
    amp: str = "float16"
    augmentation: Mapping[str, Any] = field(default_factory=lambda: dict(AUGMENTATION))
    crop: float = 0.95
    structure: Mapping[str, Any] = field(default_factory=dict)
    test_every: int = 1
    seed: int = 42

    def with_(self, **changes: Any) -> Recipe:
        """The same with some values changed; settings of the structure loss are added to those that are there."""
        known = {f.name for f in fields(self)} - {"name", "about"}
        if wrong := sorted(set(changes) - known):
            raise SettingsError("a recipe has no such value", given=wrong, accepted=sorted(known))
        for name in ("settings", "augmentation", "structure"):
            if not isinstance(changes.get(name, {}), Mapping):
                raise SettingsError(f"{name} are values by name", given=changes[name], accepted="a dictionary")
        if "structure" in changes:
            changes["structure"] = {**self.structure, **changes["structure"]}
        changed = replace(self, **changes)
        _refuse_wrong(changed)
        return changed


def _refuse_wrong(recipe: Recipe) -> None:
    values = asdict(recipe)
    for name, least in {"batch": 1, "epochs": 1, "lr_batch": 1, "test_every": 1, "warmup": 0, "seed": 0}.items():
        if not isinstance(values[name], int) or isinstance(values[name], bool) or values[name] < least:
            raise SettingsError(f"{name} is a count", given=values[name], accepted=f"{least} or more")
    for name, most in {"lr": inf, "weight_decay": inf, "smoothing": 1, "crop": 1}.items():
        number(**{name: values[name]})
        if values[name] > most:
            raise SettingsError(f"{name} is a share", given=values[name], accepted="0 to 1")
    betas: Any = recipe.betas
    if not isinstance(betas, list | tuple) or len(betas) != 2 or not all(is_number(b) and 0 <= b < 1 for b in betas):
        raise SettingsError("betas are two numbers", given=betas, accepted="from 0 to below 1")
    if recipe.amp not in ("float16", "bfloat16", "none"):
        raise SettingsError("unknown amp", given=recipe.amp, accepted=("float16", "bfloat16", "none"))


RECIPES = {
    row.name: row
    for row in (
        Recipe(
            "spiral",
            "two arms of a spiral in the plane; 16,384 points, 14 blocks, 3,600 epochs",
            "spiral",
            None,
            settings={**DROPPED, "img_size": (1, 2), "patch_size": 1, "in_chans": 1},
            augmentation={},
            crop=1.0,
            test_every=20,
        ),
        Recipe(
            "cifar10-256",
            "CIFAR-10 at 256 pixels, patch 16, 3,600 epochs, as the paper has it",
            "cifar10",
            256,
            settings=dict(DROPPED),
        ),
        Recipe(
            "cifar10-32",
            "CIFAR-10 at its own 32 pixels, patch 4: the same network at a sixteenth of the cost, 300 epochs",
            "cifar10",
            32,
            settings={**DROPPED, "img_size": 32, "patch_size": 4},
            epochs=300,
        ),
        Recipe(
            "imagenet",
            "ImageNet-1K, 20 blocks of 512, 10 epochs; the paper averages seeds 0, 1 and 2",
            "imagenet",
            256,
            model="vit_mediumd_patch16_reg4_gap_256",
            settings=dict(DROPPED),
            batch=392,
            epochs=10,
            seed=0,
        ),
        Recipe(
            "scenes",
            "the bundled scenes, colour of the largest object; a small network that two cores train in three minutes",
            "scenes",
            64,
            settings={
                **{"img_size": 64, "patch_size": 8, "depth": 6, "embed_dim": 64, "num_heads": 2, "mlp_ratio": 3},
                "init_values": None,  # blocks that work from the first step: there are few steps
            },
            batch=64,
            epochs=10,
            warmup=1,
            lr_batch=64,
            lr=0.001,
            weight_decay=0.05,
            augmentation={"scale": (0.8, 1.0), "ratio": (0.9, 1.1), "hflip": 0.5, "color_jitter": None},
            structure={"every": 10},
        ),
    )
}


def find_recipe(name: str | Recipe) -> Recipe:
    if isinstance(name, Recipe):
        return name
    if name not in RECIPES:
        raise SettingsError("unknown recipe", given=name, accepted=tuple(RECIPES))
    return RECIPES[name]


def learning_rate(recipe: Recipe, update: int, an_epoch: int) -> float:
    """At each update: a line from zero over the warm-up, then half a cosine to zero."""
    from math import cos, pi

    most = recipe.lr * recipe.batch / recipe.lr_batch
    rise = recipe.warmup * an_epoch
    if update < rise:
        return most * update / rise
    return most * 0.5 * (1 + cos(pi * (update - rise) / (recipe.epochs * an_epoch)))
