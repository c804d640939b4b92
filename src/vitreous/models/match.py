"""Which family is a module of? By class, or by layout if the class is somebody's own."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from vitreous.axes import Size
from vitreous.errors import ModelError
from vitreous.models.families import FAMILIES
from vitreous.models.family import Family
from vitreous.models.subject import read_blocks
from vitreous.preprocess import IMAGENET_MEAN, IMAGENET_STD, Preprocess

if TYPE_CHECKING:
    from torch import nn

ASSUMED = "assumed: ImageNet mean and deviation, plain resize"
#: Architectures that people will try, and what is missing for them. The start of a class name is enough.
GAPS = {
    "Swin": "attention runs in shifted windows, so a block has no one pattern over all tokens",
    "Maxx": "attention runs in windows and grids, so a block has no one pattern over all tokens",
    "NaFlexVit": "pictures of different grids share one batch, so a token has no fixed place",
    "DiffParallelScalingBlock": "attention and MLP run side by side, so there is no resid.mid between them",
    "ParallelScalingBlock": "attention and MLP run side by side, so there is no resid.mid between them",
    "ParallelThingsBlock": "several attentions run side by side, so a block has no one pattern",
}
WRITE_ONE = "write a Family with its paths and pass it as family=; see docs/families.md"


def _qualified(module: nn.Module) -> set[str]:
    return {f"{c.__module__}.{c.__qualname__}" for c in type(module).__mro__}


def root_of(module: nn.Module, family: Family) -> str | None:
    roots = (path for path, m in module.named_modules() if _qualified(m) & set(family.roots))
    return next(roots, None)


def by_class(module: nn.Module) -> tuple[Family, str] | None:
    """The first row whose root class and block classes are found. Wrong blocks in a known root are refused by name."""
    strange: str | None = None
    for family in FAMILIES:
        root_path = root_of(module, family)
        if root_path is None:
            continue
        root = module.get_submodule(root_path)
        inner = {type(m).__name__ for m in root.modules()}
        if inner & set(family.block_classes):
            return family, root_path
        strange = strange or f"{type(root).__name__}: {_gap(root) or 'its blocks are of another kind'}"
    if strange:
        raise ModelError(
            f"not supported, {strange}",
            given=sorted({type(m).__name__ for m in module.modules() if "Block" in type(m).__name__}),
            accepted=sorted({c for f in FAMILIES for c in f.block_classes}),
            remedy=WRITE_ONE,
        )
    return None


def by_layout(module: nn.Module) -> tuple[Family, str]:
    """The first row whose every path exists in a module of an unknown class, such as its authors' own code."""
    reasons = []
    for family in FAMILIES:
        try:
            read_blocks(module, "", family)
        except (ModelError, AttributeError) as error:
            reasons.append((family.name, str(error).splitlines()[0]))
            continue
        return family, ""
    closest = min((why for _, why in reasons), key=lambda why: why.count("(") or 99)
    raise ModelError(
        f"{type(module).__name__} is not supported: {_gap(module) or f'of no known family; {closest}'}",
        given=f"{type(module).__module__}.{type(module).__name__}",
        accepted=[f.name for f in FAMILIES],
        remedy=WRITE_ONE,
    )


def _gap(module: nn.Module) -> str | None:
    names = {type(m).__name__ for m in module.modules()}
    return next((why for start, why in GAPS.items() if any(n.startswith(start) for n in names)), None)


def runnable(module: nn.Module, root_path: str, family: Family) -> tuple[nn.Module, str]:
    """The outermost module that takes just the family's own kind of input; for a composite model that is the root.

    Hugging Face says so itself: a classifier's main input is pixel_values, a captioner's is input_ids.
    """
    if family.source != "hf" or not root_path:
        return module, root_path
    wanted = "pixel_values" if family.modality == "image" else "input_ids"
    takes_it = module.main_input_name == wanted
    return (module, root_path) if takes_it else (module.get_submodule(root_path), "")


def assume_preprocess(root: nn.Module, family: Family) -> Preprocess:
    """Steps for a module that brings none: its own input size if it has one, and ImageNet's statistics."""
    try:
        size = attrgetter(family.image_size)(root) if family.image_size else None
    except AttributeError:
        size = None
    height, width = (size, size) if isinstance(size, int) else tuple(size or (224, 224))
    return Preprocess(Size(height, width), Size(height, width), IMAGENET_MEAN, IMAGENET_STD, "bicubic", ASSUMED)
