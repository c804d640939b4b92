"""How a user gets a subject: `vt.load` by name, `vt.wrap` around a module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from vitreous.errors import ModelError, SettingsError
from vitreous.laws import residual_error
from vitreous.models import match
from vitreous.models.families import FAMILIES
from vitreous.models.family import Family
from vitreous.models.sources import RANDOM, SOURCES, split_name
from vitreous.models.subject import Subject, read_blocks
from vitreous.preprocess import Preprocess

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch import nn

DEVICES = ("auto", "cpu", "cuda", "mps")


def load(
    name: str,
    *,
    weights: str | Path | None = None,
    device: str = "auto",
    dtype: torch.dtype | str = "float32",
    **kwargs: Any,
) -> Subject:
    """Loads a published model by its name with a source prefix.

    >>> vt.load("timm:vit_small_patch14_dinov2")
    >>> vt.load("hf:facebook/dinov2-base"), vt.load("hf:./my_folder")
    >>> vt.load("timm:vit_small_patch14_dinov2", weights="dinov2s.safetensors", dynamic_img_size=True)
    >>> vt.load("bundled:scenes-text")

    `weights` is a local `.safetensors` or `.pth` file, or "random" for the architecture alone, the same at every call;
    without it the published weights are taken. Other keywords go to the source's own constructor. The model is put in
    evaluation mode.
    """
    source, rest = split_name(name)
    where = pick_device(device)
    with _same_draws() if weights == RANDOM else nullcontext():
        loaded = SOURCES[source].load(rest, weights, kwargs)
    loaded.module.eval().to(device=where, dtype=as_dtype(dtype))
    return wrap(
        loaded.module,
        name=name,
        preprocess=loaded.preprocess,
        tokenizer=loaded.tokenizer,
        notes=loaded.notes,
    )


@contextmanager
def _same_draws() -> Iterator[None]:
    """Random weights are those of seed 0, else a run that is taken up again would be one of another model."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def skeleton(name: str, **kwargs: Any) -> Subject:
    """The architecture of a model without its weights, for looking at sites: cheap for models of any size.

    It is not for running: its tensors have shapes and, mostly, no values.
    """
    import torch

    source, rest = split_name(name)
    if source == "bundled":
        return load(name, device="cpu")
    try:
        with torch.device("meta"):
            loaded = SOURCES[source].load(rest, RANDOM, kwargs)
    except ModelError:  # constructors of older versions look at values; a wrong name is refused again here
        loaded = SOURCES[source].load(rest, RANDOM, kwargs)
    return wrap(loaded.module, name=name, preprocess=loaded.preprocess, tokenizer=loaded.tokenizer, notes=loaded.notes)


def wrap(
    module: nn.Module,
    *,
    name: str | None = None,
    family: str | Family | None = None,
    preprocess: Preprocess | None = None,
    tokenizer: Any = None,
    notes: tuple[str, ...] = (),
) -> Subject:
    """Makes a subject of any module that you have built, without changing it.

    The family is found by the module's class, or by its layout if the class is your own, and then its residual identity
    is checked on one random input. `family` names a row of the table, or is a `Family` that you wrote. Of a model with
    a vision tower (CLIP, LLaVA) the tower becomes the subject.

    >>> subject = vt.wrap(my_vit, preprocess=vt.Preprocess(size=vt.Size(64, 64), resize=64))
    """
    known = {f.name: f for f in FAMILIES}
    if isinstance(family, str) and family not in known:
        raise ModelError("no such family", given=family, accepted=tuple(known))
    row = known[family] if isinstance(family, str) else family
    trusted = False
    if row is not None:
        root_path = match.root_of(module, row) or ""
    elif (found := match.by_class(module)) is not None:
        (row, root_path), trusted = found, True
    else:
        row, root_path = match.by_layout(module)
    module, root_path = match.runnable(module, root_path, row)
    blocks = read_blocks(module, root_path, row)
    if row.modality == "image" and preprocess is None:
        preprocess = match.assume_preprocess(module.get_submodule(root_path), row)
    subject = Subject(name or type(module).__name__, module, row, root_path, blocks, preprocess, tokenizer, notes)
    if not trusted:
        _refuse_lookalike(subject)
    return subject


def _refuse_lookalike(subject: Subject) -> None:
    """A layout that only looks alike would give wrong numbers silently."""
    if (error := residual_error(subject)) > 1e-4:
        raise ModelError(
            f"{subject.name} has the paths of {subject.family.name} but not its residual stream: "
            f"resid.in + attn.out + mlp.out misses resid.out by {error:.2g}",
            remedy=match.WRITE_ONE,
        )


def pick_device(device: str) -> torch.device:
    """`auto` is CUDA, else Apple's MPS, else the CPU. What is asked for and not there is refused."""
    import torch

    if device.partition(":")[0] not in DEVICES:
        raise SettingsError("unknown device", given=device, accepted=DEVICES)
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if device == "auto":
        return torch.device(next(name for name, ok in there.items() if ok))
    if not there[device.partition(":")[0]]:
        raise SettingsError(f"no {device} on this machine", given=device, accepted=[d for d, ok in there.items() if ok])
    return torch.device(device)


def as_dtype(dtype: torch.dtype | str) -> torch.dtype:
    import torch

    names = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64}
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in names:
        raise SettingsError("unknown dtype", given=dtype, accepted=tuple(names))
    return names[dtype]
