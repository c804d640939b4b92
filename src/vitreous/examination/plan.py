"""What a run is to do: models, pictures and choices, settled before anything is computed, and never mixed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import vitreous.examination.files as files
from vitreous.checks import whole
from vitreous.errors import ModelError, SettingsError
from vitreous.models.naming import about, hidden_blocks, short_names
from vitreous.models.subject import Subject
from vitreous.subunits.layers import chosen_units, find_layer

if TYPE_CHECKING:
    from vitreous.images import ImageSet
    from vitreous.responses import Responses

MAP_BYTES = 1 << 26  # of the token maps of one block; larger grids are looked at on fewer pictures


@dataclass(frozen=True)
class Towers:
    """A picture tower and a text tower of one space, and the words to choose from, for naming units."""

    name: str
    pictures: Callable[[list[Any]], Any]
    texts: Callable[[list[str]], Any]
    vocabulary: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Asked:
    """One examined model."""

    name: str
    subject: Subject
    weights: str | None
    settings: Mapping[str, Any]
    blocks: tuple[int, ...]
    units: Mapping[int, np.ndarray]

    @property
    def maps_attention(self) -> bool:
        return bool(self.subject.family.attention)

    def entry(self) -> dict[str, Any]:
        subject = self.subject
        grid = subject.grid()
        assert subject.preprocess is not None and grid is not None
        return {
            "name": self.name,
            "source": subject.name,
            "weights": self.weights,
            "settings": dict(self.settings),
            "fingerprint": subject.fingerprint,
            "about": about(subject),
            "depth": subject.depth,
            "width": subject.width,
            "grid": list(grid),
            "prefix": list(subject.prefix),
            "blocks": list(self.blocks),
            "preprocess": asdict(subject.preprocess),
        }


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that decides what comes out."""

    out: Path
    models: tuple[Asked, ...]
    images: ImageSet
    close: np.ndarray
    eigenvectors: int
    seed: int
    towers: Towers | None
    responses: Responses | None
    progress: bool

    def record(self) -> dict[str, Any]:
        units = {f"{m.name}/{block}": m.units[block].tolist() for m in self.models for block in m.blocks}
        settings = {"seed": self.seed, "close": len(self.close), "eigenvectors": self.eigenvectors, "units": units}
        settings |= {"named by": None if self.towers is None else self.towers.name}
        settings |= {"words": None if self.towers is None else list(self.towers.vocabulary)}
        settings |= {"responses": None if self.responses is None else _named(self.responses)}
        images = {"source": self.images.name, "fingerprint": self.images.fingerprint, "close": self.close.tolist()}
        images |= {"names": list(self.images.ids)}
        return {
            "format": files.FORMAT,
            "version": files.VERSION,
            "models": [one.entry() for one in self.models],
            "images": images,
            "settings": settings,
        }

    def maps_close(self, one: Asked) -> np.ndarray:
        """The closely seen pictures whose token maps are kept."""
        grid = one.subject.grid()
        assert grid is not None
        tokens = grid.patches + len(one.subject.prefix)
        return self.close[: max(1, MAP_BYTES // (4 * tokens * tokens))]


def _named(responses: Responses) -> str:
    return f"{responses.name}, {responses.fingerprint[:16]}"


def make_plan(
    subjects: Sequence[Subject | str],
    images: ImageSet,
    out: str | Path,
    *,
    weights: Sequence[str | Path | None] | None,
    settings: Mapping[str, Any] | None,
    blocks: Sequence[int] | None,
    units: int | Sequence[int] | None,
    close: int,
    eigenvectors: int,
    towers: Towers | None,
    responses: Responses | None,
    seed: int,
    device: str,
    progress: bool,
) -> Plan:
    """Loads what is given by name, checks everything, and chooses blocks, units and pictures."""
    if not len(images) >= 16:
        raise SettingsError("an examination needs some pictures", given=len(images), accepted="16 or more")
    whole(4, close=close)
    whole(2, eigenvectors=eigenvectors)
    whole(0, seed=seed)
    if isinstance(units, int):
        whole(1, units=units)
    loaded = _load(subjects, weights, settings or {}, device)
    names = short_names([subject.name for subject, _ in loaded])
    models = tuple(
        _asked(name, subject, file, settings or {}, blocks, units, seed)
        for name, (subject, file) in zip(names, loaded, strict=True)
    )
    at = np.unique(np.linspace(0, len(images) - 1, min(close, len(images))).round().astype(int))
    if towers is None and all(one.subject.name.startswith("bundled:") for one in models):
        towers = bundled_towers(device)
    return Plan(Path(out), models, images, at, eigenvectors, seed, towers, responses, progress)


def _load(
    subjects: Sequence[Subject | str],
    weights: Sequence[str | Path | None] | None,
    settings: Mapping[str, Any],
    device: str,
) -> list[tuple[Subject, str | None]]:
    from vitreous.subjects import load

    if not subjects:
        raise SettingsError("nothing to examine", accepted="one model or more")
    files_of = [None] * len(subjects) if weights is None else [None if w is None else str(w) for w in weights]
    if len(files_of) != len(subjects):
        raise SettingsError("one weights file a model", given=f"{len(files_of)} for {len(subjects)} models")
    found = []
    for one, file in zip(subjects, files_of, strict=True):
        subject = one if isinstance(one, Subject) else load(one, weights=file, device=device, **settings)
        if subject.preprocess is None:
            raise ModelError("pictures are examined, and this model takes text", given=subject.name)
        found.append((subject, file))
    return found


def _asked(
    name: str,
    subject: Subject,
    weights: str | None,
    settings: Mapping[str, Any],
    blocks: Sequence[int] | None,
    units: int | Sequence[int] | None,
    seed: int,
) -> Asked:
    """Without `units` all units of a block; else these, or so many, drawn by the seed."""
    wanted = hidden_blocks(subject.depth) if blocks is None else blocks
    numbers = tuple(sorted({subject.block_number(block) for block in wanted}))
    which = {}
    for block in numbers:
        count = find_layer(subject, f"blocks.{block}.mlp.out").count
        if not isinstance(units, int):
            which[block] = chosen_units("all" if units is None else list(units), count)
        else:
            drawn = np.random.default_rng((seed, block)).permutation(count)[:units]
            which[block] = np.sort(drawn)
    return Asked(name, subject, weights, settings, numbers, which)


def bundled_towers(device: str) -> Towers:
    """The two towers of `scenes-text`, which know shapes, colours and textures of scenes."""
    from vitreous.models.bundled import load_words
    from vitreous.scenery import ATTRIBUTES
    from vitreous.subjects import load

    subject, tower = load("bundled:scenes-text", device=device), load_words()
    words = (*ATTRIBUTES["shape"], *ATTRIBUTES["colour"], *ATTRIBUTES["texture"])
    return Towers(
        "bundled:scenes-text",
        lambda pictures: tower.image(subject(pictures).cpu()),
        lambda texts: tower.text(tower.tokens(texts)),
        words,
    )
