"""ULTra: unveiling latent token interpretability in transformers (Hosseini et al. 2024).

What is a latent token made of? A scalar f of the token is followed back to the attention of every block below it.
Where more attention would raise f, attention counts; the product over blocks says how much each input token counts.

    paper     here      axes                        what it is
    z(l)      z         sample token channel        the stream after a block; block b here, from 0, gives z(b + 2)
    f         target    -                           Σ z ("sum"), Σ z² ("energy"), or ⟨z, w⟩ (weights)
    A         A         sample head query key       attention probabilities
    C         -         query key                   I + mean over heads of (∂f/∂A)⁺ ⊙ A, eq. 4
    S         maps      sample token row column     row i of the product of all C, eq. 5

Eq. 4 and 5 are computed by `kernels/token_backward.py`, and again by autograd in `tokens_autograd.py`, which is short
and the place to read them.

How eq. 5 is read. Printed is C(1) C(2) ··· C(l - 1). With rows as queries the input side must stand on the right, as in
attention rollout: the default is C(l - 1) ··· C(1), and `order="printed"` gives the other. z is taken before a final
LayerNorm, behind which the sum over channels would be constant. All tokens take one backward pass of our own.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import torch
from torch import Tensor

from vitreous.checks import number, whole
from vitreous.engine import Engine, open_engine
from vitreous.errors import ModelError, SettingsError
from vitreous.hooks import evaluating
from vitreous.kernels.token_backward import Order, token_rows
from vitreous.lenses.tokens_autograd import autograd_rows, graph_of
from vitreous.lenses.tokens_finding import TokenMaps as TokenMaps
from vitreous.lenses.tokens_inputs import Inputs, inputs_of
from vitreous.lenses.tokens_read import Reader
from vitreous.lenses.tokens_watch import Unread
from vitreous.memory import Parts
from vitreous.models.subject import Subject, check_subject
from vitreous.preprocess import Frame
from vitreous.progress import tqdm

TARGETS = ("sum", "energy")
ORDERS = ("rollout", "printed")
OWN = ("max_of_others", "keep")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
SLOW = "{}: {}; tokens are followed back by autograd instead, which gives the same and takes longer"
NORMED = (
    "the stream of {} is normalised after each block, which leaves the sum and the energy of a token little to vary"
)

Target = Literal["sum", "energy"] | np.ndarray | Tensor
Own = Literal["max_of_others", "keep"]


@overload
def token_maps(subject: Subject, images: Any, block: int = -1, *args: Any, **kwargs: Any) -> TokenMaps: ...
@overload
def token_maps(
    subject: Subject, images: Any, block: Sequence[int], *args: Any, **kwargs: Any
) -> tuple[TokenMaps, ...]: ...
def token_maps(
    subject: Subject,
    images: Any,
    block: int | Sequence[int] = -1,
    tokens: Literal["all"] | Sequence[int | str] = "all",
    target: Target = "sum",
    order: Order = "rollout",
    own: Own = "max_of_others",
    *,
    size: int | tuple[int, int] | None = None,
    dtype: Literal["float32", "bfloat16", "float64"] | None = None,
    batch_size: int | None = None,
    memory_mb: float | None = None,
    engine: str | Engine = "local",
    progress: bool = True,
) -> TokenMaps | tuple[TokenMaps, ...]:
    """How much each input token counts for each latent token after a block: what tokens stand for.

    >>> maps = vt.token_maps(subject, images)
    >>> maps.of(maps.token_at(3, 5)).maps[0]        # (1, row, column) on the patch grid
    >>> first, last = vt.token_maps(subject, images, block=[0, -1])    # one forward pass for both

    `images` are pictures in any form, a tensor that is the model's input, or texts. `tokens` are numbers, prefix tokens
    first, or names of prefix tokens. Weights as `target` are (channel,), or (token, channel) for one vector a token.
    `size` is another input size, `dtype` that of the backward pass. `engine` says who follows them, batch by batch:
    "local" this process, "local:4" workers, "ray" a cluster.
    """
    _refuse(subject, target, order, own)
    if batch_size is not None:
        whole(1, batch_size=batch_size)
    blocks = _blocks(subject, block)
    chosen = (tuple(sorted(set(blocks))), tokens, target, order, _dtype(subject, dtype))
    job = Batch(subject, images, size, *chosen, _budget(subject.device, memory_mb))
    _refuse_one_source(job.given, own)
    rows: dict[int, list[np.ndarray]] = {b: [] for b in job.blocks}
    frames: list[Frame] = []
    count = batch_size or (1 if subject.device.type == "cpu" else 8)
    bar = tqdm(total=len(job.given.ids), desc="token maps", delay=1, disable=not progress)
    with bar:
        for found in open_engine(engine).map(job, job.given.spans(count), gpu=subject.device.type == "cuda"):
            for b, part in found.rows.items():
                rows[b].append(part)
            frames += found.frames
            bar.update(len(part))
    settings = {"subject": subject.name, "order": order, "own": own, "dtype": str(job.dtype).removeprefix("torch.")}
    settings["target"] = target if isinstance(target, str) else "weights"
    about = (job.given, subject, found)  # all batches have the same tokens and notes
    made = {b: _finding(*about, b, np.concatenate(rows[b]), frames, settings) for b in job.blocks}
    return made[blocks[0]] if isinstance(block, int | np.integer) else tuple(made[b] for b in blocks)


def _finding(
    given: Inputs,
    subject: Subject,
    last: Rows,
    block: int,
    rows: np.ndarray,
    frames: Sequence[Frame],
    settings: Mapping[str, Any],
) -> TokenMaps:
    if given.lengths is not None:
        there = np.arange(rows.shape[2]) < given.lengths[:, None]
        rows = np.where(there[:, last.tokens, None] & there[:, None], rows, 0)
    return TokenMaps(
        rows,
        last.tokens,
        block,
        subject.prefix,
        given.grid,
        given.size,
        tuple(frames) or None,
        given.ids,
        settings,
        given.lengths,
        last.notes,
    )


class Rows(NamedTuple):
    """What one batch gives: {block: (image, token, source token)}, frames of its pictures, its tokens, and notes."""

    rows: dict[int, np.ndarray]
    frames: tuple[Frame, ...]
    tokens: tuple[int, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Batch:
    """A job: the samples at some positions to their rows."""

    subject: Subject
    images: Any
    size: int | tuple[int, int] | None
    blocks: tuple[int, ...]
    tokens: Literal["all"] | Sequence[int | str]
    target: Target
    order: Order
    dtype: torch.dtype
    budget: int
    parts: Parts = field(default_factory=Parts)

    def __getstate__(self) -> dict[str, Any]:
        return {part.name: self.__dict__[part.name] for part in fields(self)}

    @cached_property
    def given(self) -> Inputs:
        return inputs_of(self.subject, self.images, self.size)

    @cached_property
    def work(self) -> Work:
        return Work(self.subject, self.blocks, self.tokens, self.target, self.order, self.dtype, self.budget)

    def __call__(self, at: range) -> Rows:
        x, frames = self.given.batch(at)
        with evaluating(self.subject.module):
            found = self.parts(self.work, x)
        rows = {b: part.cpu().numpy() for b, part in found.items()}
        if wrong := [b for b, part in rows.items() if not np.isfinite(part).all()]:
            raise ModelError(
                f"token maps of {self.subject.name} are not finite",
                given=f"{', '.join(self.given.ids[at.start : at.stop])}; block {wrong[0]}",
                remedy="look for numbers that are not finite in the pictures, the model's weights and `target`",
            )
        return Rows(rows, frames or (), self.work.tokens, tuple(self.work.notes))


class Work:
    """Batches of a model's input to rows of eq. 5, by the short way, or by the long one where that does not fit."""

    def __init__(
        self,
        subject: Subject,
        blocks: Sequence[int],
        tokens: Literal["all"] | Sequence[int | str],
        target: Target,
        order: Order,
        dtype: torch.dtype,
        budget: int,
    ) -> None:
        self.subject, self.blocks, self.order, self.dtype, self.budget = subject, tuple(blocks), order, dtype, budget
        self.asked, self.target, self.read = tokens, target, Reader(subject, blocks)
        self.tokens: tuple[int, ...] = ()
        self.short = True
        self.notes = [NORMED.format(subject.name)] * (subject.family.normed_stream and isinstance(target, str))

    def __call__(self, x: Tensor) -> dict[int, Tensor]:
        """{block: (image, token, source token)}."""
        if self.short:
            try:
                return self._by_layers(x)
            except Unread as why:
                self.short = False
                self.notes.append(SLOW.format(self.subject.name, why))
                warnings.warn(self.notes[-1], stacklevel=3)
        patterns, z = graph_of(self.subject, x, self.blocks)
        tokens = self._tokens(z)
        return autograd_rows(patterns, z, self._seeds(z, tokens), tokens, order=self.order, budget=self.budget)

    def _by_layers(self, x: Tensor) -> dict[int, Tensor]:
        layers, z = self.read(x)
        tokens = self._tokens(z)
        rising, back = tokens.sort()
        seeds = self._seeds(z, rising)
        rows = token_rows(layers, seeds, rising, order=self.order, dtype=self.dtype, budget=self.budget)
        return {b: row[:, back.argsort()] for b, row in rows.items()}

    def _tokens(self, z: Mapping[int, Tensor]) -> Tensor:
        one = next(iter(z.values()))
        if not self.tokens:
            self.tokens = _chosen(self.asked, one.shape[1], self.subject.prefix)
        return torch.tensor(self.tokens, device=one.device)

    def _seeds(self, z: Mapping[int, Tensor], tokens: Tensor) -> dict[int, Tensor]:
        """∂f/∂z (image, token, channel)."""
        return {b: _slope(value.detach()[:, tokens], self.target, tokens, value.shape[1]) for b, value in z.items()}


def _slope(z: Tensor, target: Target, tokens: Tensor, length: int) -> Tensor:
    """∂f/∂z for f of section 3.2: (i) the sum, (ii) the energy, (iii) ⟨z, w⟩; eq. 8 is (i) against (iii)."""
    if isinstance(target, str):
        return torch.ones_like(z) if target == "sum" else 2 * z
    w = torch.as_tensor(target).to(z)
    if tuple(w.shape) not in ((z.shape[-1],), (length, z.shape[-1])):
        raise SettingsError(
            "weights are (channel,), or (token, channel)",
            given=tuple(w.shape),
            accepted=f"({z.shape[-1]},) or ({length}, {z.shape[-1]})",
        )
    return (w if w.ndim == 1 else w[tokens]).expand_as(z)


# -- what was given


def _refuse(subject: Subject, target: Target, order: str, own: str) -> None:
    check_subject(subject)
    if not subject.family.attention:
        raise ModelError(
            f"{subject.name} has no attention to follow tokens back through",
            given=subject.family.name,
            remedy="a vision transformer or a language model; vt.gradcam explains classes of any model",
        )
    numbers = isinstance(target, Tensor) or np.asarray(target).dtype.kind in "fiu"
    if target not in TARGETS if isinstance(target, str) else not numbers:
        raise SettingsError("unknown target", given=target, accepted=(*TARGETS, "weights (channel,)"))
    for name, value, known in (("order", order, ORDERS), ("own", own, OWN)):
        if value not in known:
            raise SettingsError(f"unknown {name}", given=value, accepted=known)


def _refuse_one_source(given: Inputs, own: str) -> None:
    if given.grid is not None and given.grid.patches < 2 and own == "max_of_others":
        remedy = 'own="keep", or pictures of more than one patch'
        raise SettingsError("one patch has no others to take the largest of", given=tuple(given.grid), remedy=remedy)
    if given.lengths is not None and given.lengths.max() < 2 and own == "max_of_others":
        remedy = 'own="keep", or texts of more than one token'
        raise SettingsError(
            "one token has no others to take the largest of", given=given.lengths.tolist(), remedy=remedy
        )


def _blocks(subject: Subject, block: int | Sequence[int]) -> list[int]:
    asked = list(block) if isinstance(block, Sequence | np.ndarray) and not isinstance(block, str) else [block]
    if not asked:
        raise SettingsError("no such block", given=asked, accepted=f"{-subject.depth} to {subject.depth - 1}")
    return [subject.block_number(b) for b in asked]


def _chosen(tokens: Literal["all"] | Sequence[int | str], count: int, prefix: tuple[str, ...]) -> tuple[int, ...]:
    if isinstance(tokens, str):
        if tokens != "all":
            raise SettingsError("unknown tokens", given=tokens, accepted='"all", or a list of numbers and names')
        return tuple(range(count))
    if not isinstance(tokens, Iterable):
        raise SettingsError("unknown tokens", given=tokens, accepted='"all", or a list of numbers and names')
    found = []
    for token in tokens:
        if isinstance(token, str):
            if token not in prefix:
                raise SettingsError("no prefix token of this name", given=token, accepted=prefix)
            found.append(prefix.index(token))
        elif not isinstance(token, int | np.integer) or not -count <= token < count:
            raise SettingsError("no such token", given=token, accepted=f"{-count} to {count - 1}")
        else:
            found.append(range(count)[token])
    if not found or len(set(found)) < len(found):
        raise SettingsError("at least one token is needed, and none twice", given=list(tokens))
    return tuple(found)


def _dtype(subject: Subject, dtype: str | None) -> torch.dtype:
    if dtype is None:
        return torch.float64 if subject.dtype == torch.float64 else torch.float32
    if dtype not in DTYPES:
        raise SettingsError("unknown dtype", given=dtype, accepted=tuple(DTYPES))
    return DTYPES[dtype]


def _budget(device: torch.device, memory_mb: float | None) -> int:
    """Bytes that a pass may take besides the model: a quarter of what a GPU has left, 128 MB elsewhere."""
    if memory_mb is not None:
        number(above=True, memory_mb=memory_mb)
        return int(memory_mb * 2**20)
    return torch.cuda.mem_get_info(device)[0] // 4 if device.type == "cuda" else 2**27
