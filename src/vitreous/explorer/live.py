"""A run with its models alive: maps, segments, activations and steering of any picture, each computed once and kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vitreous.examination.files import ALIGN
from vitreous.explorer.album import Album
from vitreous.explorer.answers import heat_answer, maps_answer, sized
from vitreous.explorer.cache import Cache
from vitreous.explorer.neighbours import Neighbourhood
from vitreous.explorer.precision import Dtype, quicker_dtype
from vitreous.explorer.steered import entering, steered_answer, wanted_numbers
from vitreous.explorer.units import UnitId, refuse_block, refuse_model
from vitreous.explorer.workers import NOW, SOON, Flight, Worker

if TYPE_CHECKING:
    from torch import Tensor

    from vitreous.examination import Examination
    from vitreous.lenses.align_finding import ChannelAlign
    from vitreous.lenses.tokens_finding import TokenMaps
    from vitreous.lenses.tokens_segments import Segments
    from vitreous.models.subject import Subject

BUDGET = 512 * 2**20  # bytes of kept results


class Live:
    """Answers are JSON, as bytes: what is kept goes out as it is."""

    def __init__(self, examination: Examination, *, device: str = "auto", budget: int = BUDGET) -> None:
        self.examination, self.album, self.cache = examination, Album(examination), Cache(budget)
        self.workers = {
            entry.name: Worker(lambda name=entry.name: examination.subject(name, device), self.cache)  # type: ignore[misc]
            for entry in examination.models
        }
        self._near: Neighbourhood | None = None
        self._dtypes: dict[str, Dtype | None] = {}

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()

    def worker(self, model: str) -> Worker:
        refuse_model(self.examination, model)
        return self.workers[model]

    # -- token maps

    def maps(self, model: str, picture: str, block: int, target: str, urgency: int = NOW) -> Flight:
        """All tokens of a block at once, and the other blocks of the picture as long as nobody asks for anything."""
        block = refuse_block(self.examination, model, block)
        self.album.refuse(picture)
        flight = self._ask_maps(model, picture, block, target, urgency)
        if urgency == NOW:
            self._look_ahead(model, picture, block, target)
        return flight

    def _look_ahead(self, model: str, picture: str, block: int, target: str) -> None:
        depth = self.examination.model(model).depth
        nearest = sorted(set(range(depth)) - {block}, key=lambda other: abs(other - block))
        wanted = [other for other in nearest if ("maps", model, picture, other, target) not in self.cache]
        self.worker(model).forget_ahead()
        for other in wanted:
            self._ask_maps(model, picture, other, target, SOON)

    def _ask_maps(self, model: str, picture: str, block: int, target: str, urgency: int) -> Flight:
        def work(subject: Subject) -> tuple[bytes, int]:
            began = time.perf_counter()
            maps = self._token_maps(subject, model, picture, block, target, self._quicker(subject, model, picture))
            return sized(maps_answer(maps, block, began))

        return self.worker(model).ask(("maps", model, picture, block, target), work, urgency)

    def _token_maps(
        self, subject: Subject, model: str, picture: str, block: int, target: str, dtype: Dtype | None = None
    ) -> TokenMaps:
        import vitreous as vt

        x = self._input(subject, model, picture)
        return vt.token_maps(subject, x, block, target=target, dtype=dtype, progress=False)

    def _quicker(self, subject: Subject, model: str, picture: str) -> Dtype | None:
        if model not in self._dtypes:
            self._dtypes[model] = quicker_dtype(subject, self._input(subject, model, picture))
        return self._dtypes[model]

    def _input(self, subject: Subject, model: str, picture: str) -> Tensor:
        """The picture as the model's input; only called by the model's own thread."""
        key = ("input", model, picture)
        x = self.cache.get(key)
        if x is None:
            x = subject.inputs(self.album.image(picture))
            self.cache.put(key, x, x.numel() * x.element_size())
        return x

    # -- segments

    def segments(self, model: str, picture: str, block: int) -> Flight:
        """The tree of a picture's tokens, which `segments_answer` cuts."""
        import vitreous as vt

        block = refuse_block(self.examination, model, block)
        self.album.refuse(picture)

        def work(subject: Subject) -> tuple[Segments, int]:
            found = vt.segment(self._token_maps(subject, model, picture, block, "sum"))
            return found, found.maps.scores.nbytes + found.trees[0].nbytes + 4096

        return self.worker(model).ask(("tree", model, picture, block), work)

    # -- units

    def activations(self, unit: UnitId, picture: str) -> Flight:
        """How much a unit or sub-unit answers to each patch."""
        weight, bias = unit.weights(self.examination)
        self.album.refuse(picture)

        def work(subject: Subject) -> tuple[bytes, int]:
            x = self._input(subject, unit.model, picture)
            values = entering(subject, x, unit.block)[len(subject.prefix) :] @ weight + bias
            return sized(heat_answer(values, self.examination.model(unit.model).grid))

        return self.worker(unit.model).ask(("activations", str(unit), picture), work)

    def steer(self, model: str, picture: str, block: int, factors: Sequence[tuple[str, float]], prefix: bool) -> Flight:
        """Class scores and map with some sub-units made stronger or weaker."""
        numbers = wanted_numbers(self.examination, model, block, factors)
        finding = self.examination.disentanglement(model, block)
        classes = self.examination.classes(model)
        self.album.refuse(picture)

        def work(subject: Subject) -> tuple[bytes, int]:
            x = self._input(subject, model, picture)
            return sized(steered_answer(subject, x, finding, numbers, prefix, classes))

        key = ("steer", model, picture, block, tuple(sorted(numbers.items())), prefix)
        return self.worker(model).ask(key, work)

    # -- the universal space

    @property
    def neighbourhood(self) -> Neighbourhood:
        if self._near is None:
            self._near = Neighbourhood(self.examination.spectral, self.examination.pictures.close)
        return self._near

    def placed(self, model: str, picture: str, block: int) -> Flight:
        """Where the patches of a dropped picture lie in the universal space."""
        block = refuse_block(self.examination, model, block)
        spectral = self.examination.spectral
        site = self.neighbourhood.site(model, block)
        aligned = alignment_of(self.examination)
        self.album.refuse(picture)

        def work(subject: Subject) -> tuple[np.ndarray, int]:
            import torch

            import vitreous as vt

            x = self._input(subject, model, picture)
            with torch.inference_mode(), vt.capture(subject, site, stop=True) as seen:
                subject(x)
            features = seen[site][0, len(subject.prefix) :].float().cpu().numpy()
            found = spectral.transform(features if aligned is None else aligned.transform(features, model, site))
            return found, found.nbytes

        return self.worker(model).ask(("placed", model, picture, block), work)


def alignment_of(examination: Examination) -> ChannelAlign | None:
    """What brought the models of different width into one space; None where they were cut as they are."""
    from vitreous.lenses.align_finding import ABOUT, ChannelAlign

    folder = examination.folder / ALIGN
    return ChannelAlign.load(folder) if (folder / ABOUT).is_file() else None
