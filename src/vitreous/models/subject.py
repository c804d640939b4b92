"""A model under study: the untouched module and where its parts are."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from vitreous.axes import Grid, Size
from vitreous.errors import ModelError, SettingsError
from vitreous.models.family import Family
from vitreous.models.site import PATTERN, SITE_NAMES, Site, expand
from vitreous.preprocess import Preprocess

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor, nn

#: What a Hugging Face output is asked for, in this order.
OUTPUTS = ("logits", "image_embeds", "pooler_output", "last_hidden_state", "feature_maps")


#: Of a Hugging Face configuration, what says nothing about the numbers that the model computes.
UNTOLD = {"transformers_version", "dtype", "torch_dtype", "architectures", "id2label", "label2id", "name_or_path"}


class ForwardStopped(Exception):  # noqa: N818 - a signal, not an error
    """Raised by a recording hook when everything that was asked for has been seen."""


@dataclass(frozen=True)
class Block:
    """One block: how wide its residual stream is, how many heads it has, and the paths of its parts in the module.

    `mlp` is one path, or several where the layers of an MLP lie in the block itself; `second_linear` is its last layer.
    """

    index: int
    path: str
    width: int
    heads: int | None
    attn: str | None
    mlp: tuple[str, ...]
    norms: tuple[str, ...]
    sites: Mapping[str, Site]

    @property
    def second_linear(self) -> str:
        return self.sites["mlp.hidden"].path


@dataclass(frozen=True, eq=False)
class Subject:
    """A model under study. Everything here is read from the module; nothing is asked of the user.

    `subject(x)` runs the model and returns its main output: logits where there is a head, features otherwise.
    """

    name: str
    module: nn.Module
    family: Family
    root_path: str
    blocks: tuple[Block, ...]
    preprocess: Preprocess | None
    tokenizer: Any = None
    notes: tuple[str, ...] = ()
    _sites: dict[str, Site] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        names = {f"blocks.{b.index}.{n}": b.sites[n] for b in self.blocks for n in SITE_NAMES if n in b.sites}
        object.__setattr__(self, "_sites", names)

    def __repr__(self) -> str:
        heads = f", {self.heads} heads" if self.heads else ""
        where = f", prefix {list(self.prefix)}" if self.prefix else ""
        return f"Subject({self.name!r}: {self.family.name}, {self.depth} blocks, {self.width} wide{heads}{where})"

    # -- what the module says about itself

    @cached_property
    def root(self) -> nn.Module:
        return self.module.get_submodule(self.root_path)

    @property
    def modality(self) -> str:
        return self.family.modality

    @property
    def depth(self) -> int:
        return len(self.blocks)

    @property
    def width(self) -> int:
        """Width of the residual stream at the last block."""
        return self.blocks[-1].width

    @property
    def heads(self) -> int | None:
        return self.blocks[-1].heads

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.module.parameters()).dtype

    @cached_property
    def prefix(self) -> tuple[str, ...]:
        """Names of the tokens before the patches, in order: class, distillation, register.0, ..."""
        parameters = dict(self.root.named_parameters())
        found: list[str] = []
        for name, path in self.family.prefix:
            if (token := parameters.get(path)) is not None:
                count = token.shape[-2] if token.ndim > 1 else 1
                found += [name] if name != "register" else [f"register.{i}" for i in range(count)]
        return tuple(found)

    @property
    def norm(self) -> nn.Module | None:
        """The norm after the last block."""
        path = self.family.norm
        return dict(self.root.named_modules()).get(path) if path else None

    @property
    def head(self) -> nn.Module | None:
        """The classifier, projection or unembedding on top, if the model has one."""
        from torch import nn

        modules = dict(self.module.named_modules())
        found = next((modules[path] for path in self.family.head if path in modules), None)
        return None if isinstance(found, nn.Identity) else found

    def grid(self, size: Size | tuple[int, int] | None = None, block: int = -1) -> Grid | None:
        """Rows and columns of patches for pictures of this size (default: the model's own); None for text."""
        if self.modality == "text":
            return None
        if size is None:
            assert self.preprocess is not None
            size = self.preprocess.size
        path = self.blocks[block].path.removeprefix(f"{self.root_path}.") if self.root_path else self.blocks[block].path
        grid = self.family.grid(self.root, Size(*size), path)
        if grid.patches < 1:
            remedy = "larger pictures, or a larger size="
            raise SettingsError("pictures this small hold no patch", given=tuple(size), remedy=remedy)
        return grid

    @property
    def fingerprint(self) -> str:
        """Hash of architecture and weights as they are now: subjects with the same fingerprint compute the same.

        Weights alone do not tell: head counts, activation functions and norms' settings have none.
        """
        import torch

        heads = [block.heads for block in self.blocks]
        config: Any = self.root.config if self.family.source == "hf" else None
        said = {} if config is None else {k: v for k, v in config.to_dict().items() if k not in UNTOLD and k[0] != "_"}
        digest = hashlib.sha256(f"{self.family.name}|{heads}|{sorted(said.items())}|{self.module!r}".encode())
        for name, tensor in sorted(self.module.state_dict().items()):
            digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    @property
    def hooked(self) -> tuple[str, ...]:
        """Paths of modules that carry forward hooks now, ours or anybody's, a path for each hook.

        Hooks of transformers are left out: once a model was asked for hidden states they stay there, and only look.
        """
        found = []
        for path, module in self.module.named_modules():
            for hook in (*module._forward_pre_hooks.values(), *module._forward_hooks.values()):
                if (hook.__module__ or "").partition(".")[0] != "transformers":
                    found.append(path or "the whole model")
        return tuple(found)

    @property
    def hooks(self) -> int:
        """How many forward hooks there are: see `hooked`."""
        return len(self.hooked)

    # -- sites

    def block_number(self, block: int) -> int:
        """A block counted from 0, where -1 may be the last; refuses what is none."""
        if not isinstance(block, Integral) or isinstance(block, bool) or not -self.depth <= block < self.depth:
            raise SettingsError("no such block", given=block, accepted=f"{-self.depth} to {self.depth - 1}")
        return range(self.depth)[block]

    @property
    def sites(self) -> tuple[str, ...]:
        """Every named site, in the order of the forward pass."""
        return tuple(self._sites)

    def resolve(self, wanted: str | Sequence[str]) -> tuple[str, ...]:
        """Site names for globs, negative indices, aliases and raw module paths; refuses what does not exist."""
        modules = [path for path, _ in self.module.named_modules() if path]
        return expand(wanted, self._sites, self.depth, modules)

    def locate(self, name: str) -> Site:
        """Where a resolved site name lies in the module."""
        raw, _, port = name.partition(":")
        return self._sites.get(name) or Site(raw, "in" if port == "in" else "out")

    def block_of(self, name: str) -> int | None:
        match = re.match(r"blocks\.(\d+)\.", name) if name in self._sites else None
        return int(match[1]) if match else None

    def is_pattern(self, name: str) -> bool:
        return name in self._sites and name.endswith(PATTERN)

    # -- running

    def inputs(self, x: Any) -> Tensor:
        """Pictures (one or a list of Pillow images), texts, arrays or tensors -> a tensor that the model takes."""
        import numpy as np
        import torch

        if not isinstance(x, torch.Tensor | np.ndarray):
            given = list(x) if isinstance(x, list | tuple) else [x]
            x = self._from_pictures(given) if self.modality == "image" else self._from_texts(given)
        tensor = torch.as_tensor(x)
        wanted = (4, "(sample, colour, row, column)") if self.modality == "image" else (2, "(sample, token)")
        if tensor.ndim != wanted[0]:
            raise SettingsError(f"{self.name} takes {wanted[1]}", given=tuple(tensor.shape))
        return tensor.to(self.device, self.dtype if self.modality == "image" else torch.long)

    def _from_pictures(self, given: list[Any]) -> np.ndarray:
        import numpy as np
        from PIL import Image

        assert self.preprocess is not None
        wrong = [type(one).__name__ for one in given if not isinstance(one, Image.Image)]
        if wrong or not given:
            said = wrong[0] if wrong else "none"
            accepted = "Pillow images, or a tensor (sample, colour, row, column)"
            raise SettingsError(f"{self.name} takes pictures", given=said, accepted=accepted)
        return np.stack([self.preprocess(one.convert("RGB")) for one in given])

    def _from_texts(self, given: list[Any]) -> np.ndarray:
        """Shorter texts are filled up with zeros on the right, as in a `TextSet`, whatever the tokenizer would do."""
        import numpy as np

        wrong = [type(one).__name__ for one in given if not isinstance(one, str)]
        if wrong or not given:
            said = wrong[0] if wrong else "none"
            accepted = "texts, or a tensor of token ids (sample, token)"
            raise SettingsError(f"{self.name} takes text", given=said, accepted=accepted)
        if self.tokenizer is None:
            raise SettingsError(f"{self.name} has no tokenizer", given="str", accepted="token ids")
        rows = [np.asarray(row, np.int64) for row in self.tokenizer(given)["input_ids"]]
        ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
        for k, row in enumerate(rows):
            ids[k, : len(row)] = row
        return ids

    def __call__(self, x: Any) -> Any:
        """Runs the model; None if a recording stopped it before the end."""
        x = self.inputs(x)
        prepare = self.family.prepare
        try:
            with self._during():
                out = self.module(**prepare(self.root, x)) if prepare else self.module(x)
        except ForwardStopped:
            return None
        if isinstance(out, Mapping):
            out = next(out[key] for key in OUTPUTS if out.get(key) is not None)
        return out[-1] if isinstance(out, tuple | list) else out

    @contextmanager
    def _during(self) -> Iterator[None]:
        config: Any = self.root.config if self.family.during else None
        before = {key: attrgetter(key)(config) for key in self.family.during}
        try:
            for key, value in self.family.during.items():
                setattr(config, key, value)
            yield
        finally:
            for key, value in before.items():
                setattr(config, key, value)


def check_subject(given: Any) -> None:
    """Refuses a name, a path or a bare module where a model is asked for."""
    if not isinstance(given, Subject):
        said = given if isinstance(given, str) else type(given).__name__
        raise SettingsError(
            "the model is a subject", given=said, remedy="vt.load(name) opens one, vt.wrap(module) makes one"
        )


def read_blocks(module: nn.Module, root_path: str, family: Family) -> tuple[Block, ...]:
    """Finds the blocks and their sites by the family's paths; refuses by name what is not there."""
    modules = dict(module.named_modules())
    prefix = f"{root_path}." if root_path else ""
    pattern = re.compile(re.escape(prefix + family.blocks).replace(r"\*", r"[^.]+"))
    paths = [path for path in modules if pattern.fullmatch(path)]
    if not paths:
        raise ModelError(f"{type(module).__name__} has no blocks at {prefix + family.blocks!r}", given=family.name)
    blocks = []
    for index, path in enumerate(paths):
        sites, missing = {}, []
        for name, options in family.sites.items():
            candidates = [s.at(path) for s in (options if isinstance(options, tuple) else (options,))]
            sites[name] = next((s for s in candidates if s.path in modules), None)
            missing += [] if sites[name] else [f"{name} ({candidates[0].path})"]
        if missing:
            raise ModelError(
                f"{type(module).__name__} is not laid out like {family.name}: block {index} lacks {', '.join(missing)}",
                given=type(modules[path]).__name__,
                accepted=family.block_classes,
            )
        if family.attention:
            sites[PATTERN] = Site(path)
        width = attrgetter(family.width)(modules[path]).shape[0]
        heads = _first_found(modules[path], family.heads)
        attn = f"{path}.{family.attn}" if family.attn else None
        mlp, norms = (tuple(f"{path}.{part}" for part in parts) for parts in (family.mlp, family.norms))
        found = {name: site for name, site in sites.items() if site}
        blocks.append(Block(index, path, int(width), heads, attn, mlp, norms, found))
    return tuple(blocks)


def _first_found(block: nn.Module, paths: Sequence[str]) -> int | None:
    """The number at the first of the attribute paths that the block has."""
    for path in paths:
        try:
            return int(attrgetter(path)(block))
        except AttributeError:
            continue
    return None
