"""Which layer is behind a site, its weights as a matrix, and its inputs as rows: a = W q + b at every position."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vitreous.errors import SettingsError, SiteError
from vitreous.models.subject import Subject

if TYPE_CHECKING:
    from torch import Tensor, nn

    from vitreous.axes import Grid

#: Sites of a block that are the output of a linear layer, up to LayerScale and dropout.
SPLITTABLE = ("attn.q", "attn.k", "attn.v", "attn.out", "mlp.out")
ACCEPTED = f"blocks.*.({', '.join(SPLITTABLE)}), or the path of a Linear, Conv1D or Conv2d module"


@dataclass(frozen=True, eq=False)
class LinearLayer:
    """A Linear, Conv1D (Hugging Face's transposed Linear) or Conv2d; or `count` of its outputs from `first` on."""

    site: str
    path: str
    module: nn.Module
    first: int
    count: int

    @property
    def whole(self) -> Tensor:
        """The weights (output, input) of the layer; the inputs of a convolution are (channel, row, column) flat."""
        import torch

        weight = self.module.get_parameter("weight").detach()
        if isinstance(self.module, torch.nn.Conv2d):
            return weight.flatten(1)
        return weight if isinstance(self.module, torch.nn.Linear) else weight.T

    @property
    def bias(self) -> Tensor | None:
        return dict(self.module.named_parameters(recurse=False)).get("bias")

    def matrix(self) -> tuple[np.ndarray, np.ndarray]:
        """float32 weights (unit, input) and biases (unit,), zero where the layer has none; float64 is refused."""
        import torch

        rows = slice(self.first, self.first + self.count)
        weight, bias = self.whole, self.bias
        if weight.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise SettingsError(
                f"{self.path or 'the layer'} has weights that float32 cannot hold exactly",
                given=str(weight.dtype),
                accepted="float32, float16, bfloat16",
            )
        found = weight[rows].float().cpu().numpy()
        biases = np.zeros(len(found), np.float32) if bias is None else bias.detach()[rows].float().cpu().numpy()
        if not (np.isfinite(found).all() and np.isfinite(biases).all()):
            raise SettingsError(f"the weights of {self.path or 'the layer'} are not finite", given=self.site)
        return np.ascontiguousarray(found), biases.copy()

    def rows(self, x: Tensor) -> Tensor:
        """What the layer is given -> (sample, position, input)."""
        import torch

        if not isinstance(self.module, torch.nn.Conv2d):
            return x.reshape(len(x), -1, x.shape[-1])
        conv = self.module
        if conv.kernel_size == (1, 1) and conv.padding in ((0, 0), "valid", "same"):
            down, right = conv.stride
            return x[:, :, ::down, ::right].flatten(2).mT
        padding = conv._reversed_padding_repeated_twice  # what Conv2d itself pads by, "same" worked out
        padded = torch.nn.functional.pad(x, padding)
        cut = torch.nn.functional.unfold(padded, conv.kernel_size, conv.dilation, 0, conv.stride)
        return cut.mT

    @property
    def channel_axis(self) -> int:
        """Where the units are in what the layer gives."""
        import torch

        return 1 if isinstance(self.module, torch.nn.Conv2d) else -1

    def moved(self, output: Tensor, units: Tensor, change: Tensor) -> Tensor:
        """What the layer gives with `change` (sample, position, unit) added to some outputs; others keep their bits."""
        if self.channel_axis == 1:
            shaped = change.mT.reshape(len(change), -1, *output.shape[2:])
        else:
            shaped = change.reshape(*output.shape[:-1], -1)
        return output.index_add(self.channel_axis, units, shaped.to(output))

    @property
    def fingerprint(self) -> str:
        """Hash of all weights of the layer as they are now."""
        import torch

        digest = hashlib.sha256()
        for tensor in (self.whole, self.bias):
            if tensor is not None:
                digest.update(f"{tensor.dtype}|{tuple(tensor.shape)}".encode())
                digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()


def find_layer(owner: Subject | nn.Module, site: str) -> LinearLayer:
    """The linear layer behind a site of a subject, a module path, or a bare layer; refuses what is not linear."""
    if not isinstance(owner, Subject):
        modules = dict(owner.named_modules())
        if not is_linear(owner) and site not in modules:
            raise SiteError(
                f"no module {site!r} here", given=site, accepted=[p for p, m in modules.items() if is_linear(m)]
            )
        path = "" if is_linear(owner) else site
        return _checked(site if path else type(owner).__name__, path, modules[path], None)
    names = owner.resolve(site)
    if len(names) != 1:
        raise SiteError("one layer is split at a time", given=site, accepted=names)
    path, part = _behind(owner, names[0])
    return _checked(names[0], path, owner.module.get_submodule(path), part)


def inputs_of(subject: Subject, layer: LinearLayer) -> tuple[str, ...]:
    """Names of sites where a store may hold the inputs of the layer."""
    hidden = [f"blocks.{b.index}.mlp.hidden" for b in subject.blocks if b.second_linear == layer.path]
    return (*hidden, f"{layer.path}:in")


def prefix_at(owner: Subject | nn.Module, layer: LinearLayer) -> int:
    """How many tokens that are no patches stand before them at this layer: in blocks, and nowhere else."""
    if not isinstance(owner, Subject):
        return 0
    inside = any(layer.path.startswith(f"{block.path}.") for block in owner.blocks)
    return len(owner.prefix) if inside else 0


def grid_at(subject: Subject, layer: LinearLayer, positions: int) -> Grid | None:
    """Rows and columns of the patches that the layer sees, which differ by stage in some models; None where its
    positions are no patches, as in a head."""
    block = next((b.index for b in subject.blocks if layer.path.startswith(f"{b.path}.")), 0)
    grid = subject.grid(block=block)
    return grid if grid is not None and grid.patches + prefix_at(subject, layer) == positions else None


def _behind(subject: Subject, name: str) -> tuple[str, tuple[int, int] | None]:
    """Path of the layer whose output, or which part of it, a resolved site is."""
    block = subject.block_of(name)
    if block is None:
        if name.endswith(":in"):
            raise SiteError("units are outputs of a layer, and this is an input", given=name, accepted=ACCEPTED)
        return name, None
    what = name.split(".", 2)[2]
    if what not in SPLITTABLE:
        raise SiteError(f"{name!r} is not the output of one linear layer", given=name, accepted=ACCEPTED)
    if what == "mlp.out":
        return subject.blocks[block].second_linear, None
    if what == "attn.out":
        return _projection(subject, block), None
    located = subject.locate(name)
    return located.path, located.part


def _projection(subject: Subject, block: int) -> str:
    """The last linear layer of a block's attention: what mixes the heads."""
    here = subject.blocks[block]
    inside = f"{here.attn}."
    found = [path for path, m in subject.module.named_modules() if path.startswith(inside) and is_linear(m)]
    taken = {here.sites[name].path for name in ("attn.q", "attn.k", "attn.v") if name in here.sites}
    left = [path for path in found if path not in taken]
    if not left:
        raise SiteError(f"block {block} has no output projection of its own", given=here.attn, accepted=ACCEPTED)
    return left[-1]


def is_linear(module: nn.Module) -> bool:
    from torch import nn

    return isinstance(module, nn.Linear | nn.Conv2d) or type(module).__name__ == "Conv1D"


def _checked(site: str, path: str, module: nn.Module, part: tuple[int, int] | None) -> LinearLayer:
    from torch import nn
    from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

    if not is_linear(module):
        raise SiteError(f"{site!r} is a {type(module).__name__}, not a linear layer", given=site, accepted=ACCEPTED)
    if isinstance(module, NonDynamicallyQuantizableLinear):
        raise SiteError(
            f"{path} belongs to an nn.MultiheadAttention, which uses its weights without calling it", given=site
        )
    if isinstance(module, nn.Conv2d) and (module.groups > 1 or module.padding_mode != "zeros"):
        raise SiteError(
            f"{path or site} is a convolution in groups, or one that does not pad with zeros",
            given=f"groups={module.groups}, padding_mode={module.padding_mode!r}",
            accepted="groups=1, padding_mode='zeros'",
        )
    k, of = part or (0, 1)
    outputs = module.get_parameter("weight").shape[1 if type(module).__name__ == "Conv1D" else 0] // of
    return LinearLayer(site, path, module, k * outputs, outputs)


def chosen_units(units: str | int | Sequence[int] | np.ndarray, count: int) -> np.ndarray:
    """int64 (unit,) in the order asked for; "all" for every unit."""
    if isinstance(units, str):
        if units != "all":
            raise SettingsError("unknown units", given=units, accepted=f"'all', or numbers from 0 to {count - 1}")
        return np.arange(count)
    found = np.atleast_1d(np.asarray(units))
    if found.ndim != 1 or found.dtype.kind not in "iu" or not len(found):
        raise SettingsError("units are whole numbers, one or more", given=units, accepted=f"0 to {count - 1}")
    if wrong := [int(unit) for unit in found if not 0 <= unit < count]:
        raise SettingsError("no such unit", given=wrong[:5], accepted=f"0 to {count - 1}")
    if len(np.unique(found)) < len(found):
        raise SettingsError("a unit is asked for twice", given=found.tolist()[:10])
    return found.astype(np.int64)
