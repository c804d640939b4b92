"""Local weight files put into a module: what fits is taken, what is left over is said, what is missing is refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING

from vitreous.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor, nn

ENDINGS = (".safetensors", ".pth", ".pt", ".bin")


def read_state(path: str | Path) -> dict[str, Tensor]:
    """Tensors by name. Pickles are read weights-only; int8 matrices with a `NAME.scale` a row are widened."""
    import torch

    path = Path(path)
    if not path.is_file():
        near = sorted(p.name for p in path.parent.glob("*") if p.suffix in ENDINGS) if path.parent.is_dir() else []
        raise ModelError("no such weight file", given=str(path), accepted=near or "an existing file")
    if path.suffix not in ENDINGS:
        raise ModelError("not a weight file that can be read", given=path.name, accepted=ENDINGS)
    state = _read_safetensors(path) if path.suffix == ".safetensors" else _read_pickle(path)
    for wrapper in ("model", "state_dict", "model_state_dict"):
        if isinstance(state.get(wrapper), dict):
            state = state[wrapper]
    tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    scaled = {n for n, t in tensors.items() if t.dtype == torch.int8 and f"{n}.scale" in tensors}
    for name in scaled:
        tensors[name] = tensors[name].float() * tensors.pop(f"{name}.scale")[:, None]
    return tensors


def _read_safetensors(path: Path) -> dict:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"the weight file is damaged: {error}", given=path.name, remedy="fetch it again") from error


def _read_pickle(path: Path) -> dict:
    import torch

    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, OSError, pickle.UnpicklingError) as error:
        raise ModelError(
            f"the weight file cannot be read as plain tensors: {str(error).splitlines()[0]}",
            given=path.name,
            remedy="save it again as safetensors; files that hold code are not opened",
        ) from error
    if not isinstance(state, dict):
        raise ModelError("the weight file holds no table of tensors", given=type(state).__name__)
    return state


def put_weights(module: nn.Module, state: dict[str, Tensor], source: str) -> tuple[str, ...]:
    """Loads every tensor of the module from `state`, under whatever common prefix it is stored; returns notes.

    Tensors that the module does not have (a decoder, a projection) are left out and named in the notes. A tensor that
    the module needs and the file lacks, or of another shape, is an error.
    """
    own = module.state_dict()
    prefix = _common_prefix(own, state)
    mine = {name: state[prefix + name] for name in own if prefix + name in state}
    missing = [name for name in own if name not in mine]
    wrong = [f"{n}: {tuple(mine[n].shape)} for {tuple(own[n].shape)}" for n in mine if mine[n].shape != own[n].shape]
    if missing or wrong:
        raise ModelError(
            f"{source} does not fit {type(module).__name__}: "
            + "; ".join(filter(None, [_some("missing", missing), _some("of another shape", wrong)])),
            given=_some("stored", sorted(state)),
            remedy="pass the constructor's own keywords (img_size=, num_classes=, ...) so that the shapes agree",
        )
    module.load_state_dict(mine)
    used = {prefix + name for name in mine}
    left = sorted(name for name in state if name not in used)
    return (_some(f"{source}: not used", left),) if left else ()


def _common_prefix(own: dict[str, Tensor], state: dict[str, Tensor]) -> str:
    """The prefix under which most of the module's names are stored: "", "backbone.", "module.", ..."""
    probe = next(iter(own))
    candidates = {name[: -len(probe)] for name in state if name.endswith(probe)} | {""}
    return max(sorted(candidates), key=lambda prefix: sum(prefix + name in state for name in own))


def _some(what: str, names: list[str]) -> str:
    return f"{what}: {', '.join(names[:4])}{f' and {len(names) - 4} more' if len(names) > 4 else ''}" if names else ""
