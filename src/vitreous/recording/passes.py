"""One forward pass to what goes into a shard: tokens chosen, padding blanked, numbers checked and cast."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from vitreous.axes import Size
from vitreous.errors import SettingsError, SiteError, StoreError
from vitreous.memory import Parts
from vitreous.store.manifest import SiteInfo

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from vitreous.models.subject import Subject

OnNonfinite = Literal["raise", "keep"]
Arrays = dict[str, np.ndarray]  # of every site
Check = Callable[[Mapping[str, "Tensor"], "Tensor"], None]


def look(subject: Subject, sites: Sequence[str], x: np.ndarray, size: Size | None) -> dict[str, SiteInfo]:
    """Shapes and axes of the sites, all tokens, from a pass over `x`: one sample is enough."""
    values = _capture(subject, sites, x)
    return {site: _describe(subject, site, value, len(x), size) for site, value in values.items()}


def _capture(subject: Subject, sites: Sequence[str], x: np.ndarray) -> dict[str, Tensor]:
    import torch

    from vitreous.hooks import capture

    with torch.inference_mode(), capture(subject, sites, stop=True) as recording:
        subject(torch.from_numpy(x))
        return {site: recording[site] for site in sites}


def _describe(subject: Subject, site: str, value: Tensor, samples: int, size: Size | None) -> SiteInfo:
    shape = tuple(value.shape)
    pattern = subject.is_pattern(site)
    if shape[0] != samples or len(shape) not in ((4,) if pattern else (2, 3)):
        raise SiteError(
            f"{site!r} cannot be stored: its shape is {shape} for {samples} samples",
            given=site,
            accepted="(sample, channel), (sample, token, channel), patterns (sample, head, query, key)",
        )
    axes = ("head", "query", "key") if pattern else ("token", "channel")[-len(shape) + 1 :]
    if len(shape) == 2:
        return SiteInfo(shape[1:], axes)
    block = subject.block_of(site)
    grid = subject.grid(size, -1 if block is None else block)
    fits = grid is not None and grid.patches + len(subject.prefix) == shape[-2]
    return SiteInfo(shape[1:], axes, shape[-2], grid if fits else None)


def keep_tokens(info: SiteInfo, count: int) -> SiteInfo:
    """The site with `count` of its tokens; sites without tokens are kept whole."""
    if info.tokens is None:
        return info
    return SiteInfo((*info.shape[:-2], count, info.shape[-1]), info.axes, info.tokens, info.grid)


def draw_tokens(seed: int, tokens: int, count: int, lengths: np.ndarray) -> np.ndarray:
    """(sample, count) positions, each once and in order, of `lengths[k]` tokens that text or picture k has.

    Sample k has its own generator, made from (seed, k): neither batches nor other samples change what is drawn. The
    `count` smallest of one uniform number a token are taken, which depends on nothing but the generator's numbers.
    """
    drawn = np.empty((len(lengths), count), np.int32)
    for k, length in enumerate(lengths):
        keys = np.random.default_rng((seed, k)).random(tokens)[:length]
        drawn[k] = np.sort(np.argsort(keys, kind="stable")[:count])
    return drawn


@dataclass(frozen=True)
class Pass:
    """Computes batches. `draws` has the positions to keep for each number of tokens; it is empty if all are kept."""

    subject: Subject
    sites: Mapping[str, SiteInfo]
    dtype: str
    draws: Mapping[int, np.ndarray]
    ids: Sequence[str]
    lengths: np.ndarray | None
    on_nonfinite: OnNonfinite
    parts: Parts = field(default_factory=Parts)

    @property
    def ahead(self) -> int:
        """Batches that a device computes while those before are on their way to this machine's memory."""
        return int(self.subject.device.type == "cuda")

    def batches(self, source: Iterable[tuple[np.ndarray, np.ndarray]]) -> Iterator[tuple[np.ndarray, Arrays]]:
        """Positions and inputs -> positions and what lies on disk, in order."""
        coming: deque[tuple[np.ndarray, Arrays | Flight]] = deque()
        for positions, x in source:
            coming.append((positions, self(positions, x)))
            while len(coming) > self.ahead:
                yield _landed(*coming.popleft())
        while coming:
            yield _landed(*coming.popleft())

    def __call__(self, positions: np.ndarray, x: np.ndarray) -> Arrays | Flight:
        """Samples at `positions` with input `x` -> for each site what lies on disk; bfloat16 as its 16 bits.

        From a GPU it is on its way: nothing here waits for it.
        """
        import torch

        dtype = {"float16": torch.float16, "float32": torch.float32, "bfloat16": torch.bfloat16}[self.dtype]
        check = partial(_check_numbers, dtype, [self.ids[k] for k in positions], self.on_nonfinite)
        with torch.inference_mode():
            values = self.parts(partial(_capture, self.subject, list(self.sites)), x)
            for site in self.sites:
                values[site] = self._keep(site, values[site], positions)
            sound = _within(values, dtype)
            if self.ahead:
                return Flight(values, dtype, sound, check)
            check(values, sound)
            return {site: _to_numpy(values.pop(site).to(dtype)) for site in self.sites}  # one site at a time in memory

    def _keep(self, site: str, value: Tensor, positions: np.ndarray) -> Tensor:
        """Chosen tokens only, padding zero. Tokens, and queries of a pattern, are the axis before the last."""
        import torch

        info = self.sites[site]
        if info.tokens is not None and self.lengths is not None:
            padding = np.arange(info.tokens) >= self.lengths[positions, None]
            value = value.masked_fill(_along_tokens(torch.from_numpy(padding).to(value.device), value), 0)
        if info.tokens is not None and info.tokens in self.draws:
            index = torch.from_numpy(self.draws[info.tokens][positions].astype(np.int64)).to(value.device)
            shape = (*value.shape[:-2], index.shape[1], value.shape[-1])
            value = value.gather(-2, _along_tokens(index, value).expand(shape))
        if tuple(value.shape) != (len(positions), *info.shape):
            raise StoreError(
                f"{site!r} changed its shape from one sample to the next",
                given=tuple(value.shape),
                accepted=f"(sample, {', '.join(map(str, info.shape))})",
            )
        return value


def _along_tokens(of_token: Tensor, value: Tensor) -> Tensor:
    """(sample, token) -> as many axes as `value`, to be spread over heads and channels."""
    return of_token.reshape(len(of_token), *(1,) * (value.ndim - 3), -1, 1)


def _to_numpy(value: Tensor) -> np.ndarray:
    import torch

    value = value.cpu().contiguous()
    return (value.view(torch.int16) if value.dtype == torch.bfloat16 else value).numpy()


class Flight:
    """A batch on its way from a GPU into page-locked memory, beside the next batch's computation.

    What was computed stays on the GPU until it has landed and was found sound, so that a culprit can be named.
    """

    def __init__(self, values: dict[str, Tensor], dtype: torch.dtype, sound: Tensor, check: Check) -> None:
        import torch

        self._values, self._check = values, check
        device = sound.device
        cast = {site: value.to(dtype).contiguous() for site, value in values.items()}
        aside = torch.cuda.Stream(device)
        aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(aside):
            self._arrays = {site: _page_locked(value) for site, value in cast.items()}
            self._sound = _page_locked(sound)
        self._left, self._end = cast, aside.record_event()

    def land(self) -> Arrays:
        self._end.synchronize()
        self._left.clear()
        self._check(self._values, self._sound)
        self._values.clear()
        return {site: _to_numpy(value) for site, value in self._arrays.items()}


def _page_locked(value: Tensor) -> Tensor:
    import torch

    return torch.empty(value.shape, dtype=value.dtype, pin_memory=True).copy_(value, non_blocking=True)


def _landed(positions: np.ndarray, found: Arrays | Flight) -> tuple[np.ndarray, Arrays]:
    return positions, found.land() if isinstance(found, Flight) else found


def _within(values: Mapping[str, Tensor], dtype: torch.dtype) -> Tensor:
    """Whether all numbers of all sites are finite and fit, by a look at their extremes."""
    import torch

    extremes = torch.stack([torch.stack(torch.aminmax(value)).double() for value in values.values()])
    return (extremes.abs() <= torch.finfo(dtype).max).all()  # not-a-number compares as False


def _check_numbers(
    dtype: torch.dtype, ids: list[str], on_nonfinite: OnNonfinite, values: Mapping[str, Tensor], sound: Tensor
) -> None:
    """Raises if something is wrong; only if that is not plain sailing is the culprit searched for."""
    import torch

    if bool(sound):
        return
    largest = torch.finfo(dtype).max
    for site, value in values.items():
        finite = torch.isfinite(value)
        if on_nonfinite == "raise" and not bool(finite.all()):
            sample = int((~finite).flatten(1).any(1).nonzero()[0])
            raise StoreError(
                f"the model gave a value that is not finite at {site!r} for sample {ids[sample]!r}",
                given=float(value[sample][~finite[sample]][0]),
                remedy="look at this sample; run the model in float32; on_nonfinite='keep' records it as it is",
            )
        over = value.abs().masked_fill(~finite, 0).double()
        if float(over.max()) > largest:
            sample = int(over.flatten(1).amax(1).argmax())
            raise StoreError(
                f"{site!r} does not fit into {str(dtype).removeprefix('torch.')}: "
                f"its largest value is {float(over.max()):.6g}, for sample {ids[sample]!r}",
                given=float(over.max()),
                accepted=f"up to {largest:.6g}",
                remedy='record with dtype="bfloat16" or dtype="float32"',
            )


def check_count(sites: Mapping[str, SiteInfo], count: int, lengths: np.ndarray | None, ids: Sequence[str]) -> None:
    """Refuses to draw more tokens than a site, or the shortest text, has."""
    with_tokens = {site: info.tokens for site, info in sites.items() if info.tokens is not None}
    if not with_tokens:
        raise SettingsError("none of these sites has tokens to draw from", given=count, accepted='tokens="all"')
    site, fewest = min(with_tokens.items(), key=lambda item: item[1])
    if count > fewest:
        raise SettingsError(
            f"more tokens asked for than {site!r} has", given=count, accepted=f"'all', or a number from 1 to {fewest}"
        )
    if lengths is not None and count > lengths.min():
        raise SettingsError(
            f"more tokens asked for than text {ids[int(lengths.argmin())]!r} has",
            given=count,
            accepted=f"'all', or a number from 1 to {lengths.min()}",
        )
