"""Names for units: the words of a vocabulary that fit the pictures a unit responds to most."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.checks import is_number, whole
from vitreous.errors import SettingsError, StoreError
from vitreous.evidence.directions import array_of, directions
from vitreous.evidence.dissect import best_texts
from vitreous.finding import Finding
from vitreous.judges.grids import top_pictures
from vitreous.progress import tqdm
from vitreous.provenance import json_bytes, replace_file

if TYPE_CHECKING:
    from vitreous.images import ImageSet

FORMAT, VERSION = "vitreous labels", 1
ARRAYS = ("indices", "scores", "chance", "pictures")
PRIORS = ("units", "random")
BATCH = 256  # texts that a text tower is given at a time

Embed = Callable[[list[Any]], Any]


@dataclass(frozen=True, eq=False)
class Labels(Finding):
    """Words for every unit. `indices` int64 (unit, kept) into `vocabulary`, best first, with their `scores` float32.

    `chance` (unit,) is the share of random sets of pictures, the unit itself counted as one, that some word fits as
    much better than usual as its name fits the unit: with a large chance a name is none. `pictures` (unit, top) are
    those that were looked at. A unit that is never above zero, or always the same, has no name: -1, and NaN for scores
    and chance.
    """

    vocabulary: tuple[str, ...]
    indices: np.ndarray
    scores: np.ndarray
    chance: np.ndarray
    pictures: np.ndarray
    settings: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, unit: int) -> tuple[tuple[str, float], ...]:
        """(word, score) of one unit, best first; empty if it has no name."""
        found = zip(self.indices[unit].tolist(), self.scores[unit].tolist(), strict=True)
        return tuple((self.vocabulary[index], score) for index, score in found if index >= 0)

    @property
    def names(self) -> tuple[str | None, ...]:
        """The best word of every unit, None for units without a name."""
        return tuple(self.vocabulary[index] if index >= 0 else None for index in self.indices[:, 0].tolist())

    def facts(self) -> dict[str, Any]:
        named = [name for name in self.names if name is not None]
        sure = int((self.chance <= 0.05).sum())
        return {"units": len(self), "words": len(self.vocabulary), "named": len(named), "chance at most 0.05": sure}

    def columns_of_rows(self) -> dict[str, Any]:
        """A row a unit, with its best word."""
        found = {"unit": np.arange(len(self)), "name": list(self.names), "score": self.scores[:, 0]}
        return found | {"chance": self.chance}

    def units(self, word: str, *, among: int = 1, chance: float = 1.0) -> np.ndarray:
        """Units that have `word` among their first few, the surest first; `chance` leaves out what may be luck."""
        if word not in self.vocabulary:
            raise SettingsError("not a word of the vocabulary", given=word, accepted=self.vocabulary)
        here = self.indices[:, :among] == self.vocabulary.index(word)
        unit, place = np.nonzero(here & (self.chance <= chance)[:, None])
        return unit[np.argsort(-self.scores[unit, place], kind="stable")]

    def save(self, path: str | Path) -> None:
        """One file in numpy's npz format, vocabulary and settings as JSON under "about"."""
        about = {"format": FORMAT, "version": VERSION, "vocabulary": self.vocabulary, "settings": dict(self.settings)}
        arrays: dict[str, np.ndarray] = {"about": np.frombuffer(json_bytes(about), np.uint8)}
        arrays |= {name: self.__dict__[name] for name in ARRAYS}
        file = io.BytesIO()
        np.savez(file, allow_pickle=False, **arrays)
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, file.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> Labels:
        try:
            with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as file:
                about = json.loads(file["about"].tobytes())
                if (about["format"], about["version"]) != (FORMAT, VERSION):
                    raise KeyError(FORMAT)
                arrays = {name: file[name] for name in ARRAYS}
            found = cls(vocabulary=tuple(about["vocabulary"]), settings=about["settings"], **arrays)
            units = len(found.indices)
            if found.scores.shape != found.indices.shape or {len(a) for a in arrays.values()} != {units}:
                raise ValueError("its parts do not fit together")
        except FileNotFoundError:
            raise StoreError("no labels here", given=str(path)) from None
        # what zipfile, numpy and json say of files that are cut short, altered or foreign
        except (zipfile.BadZipFile, OSError, EOFError, ValueError, LookupError, TypeError, RuntimeError) as error:
            raise StoreError(
                f"not labels of this version: {path}: {error}", accepted="what Labels.save wrote"
            ) from None
        return found


def label(
    activations: Any,
    image_embeddings: Any,
    text_embeddings: Any | Embed,
    vocabulary: Sequence[str] | str | Path,
    *,
    top: int = 100,
    keep: int = 5,
    pool: str = "max",
    prior: str = "random",
    prior_weight: float = 1.0,
    temperature: float = 10.0,
    membership: tuple[float, float] = (0.998, 0.97),
    random_sets: int = 200,
    seed: int = 0,
    device: str = "cpu",
    progress: bool = True,
) -> Labels:
    """Words for units or sub-units by CLIP-Dissect's soft WPMI; see `evidence.dissect` for the formula.

    `activations` (picture, token, unit) or (picture, unit); `image_embeddings` (picture, channel) of the same pictures
    and `text_embeddings` (word, channel) in one space, from any two-tower model; or a function that embeds a list of
    words. `vocabulary` is words, or a file with one a line. A picture counts for a unit with its strongest token, or
    with the mean of all (`pool="mean"`); a unit is named by its `top` strongest pictures.

    A word that fits everywhere names nothing: p(t) is its mean over `random_sets` random sets of pictures. The
    published one, the mean over the units given, is `prior="units"`; where words fit pictures sharply it is that of the
    one unit that a word fits best, and the others lose their names to words that fit nobody (docs/labels.md).

    >>> labels = vt.label(store["blocks.-1.mlp.hidden"], seen, tower, "words.txt")
    >>> labels[179], labels.chance[179]
    """
    words = _words(vocabulary)
    given = {"top": top, "keep": keep, "pool": pool, "prior": prior, "prior_weight": prior_weight}
    given |= {"temperature": temperature, "membership": list(membership), "random_sets": random_sets, "seed": seed}
    _check(given)
    embedded = embed_texts(text_embeddings, words) if callable(text_embeddings) else text_embeddings
    images, texts = directions(image_embeddings, "picture"), directions(embedded, "word")
    _check_shapes(tuple(activations.shape), images.shape, texts.shape, len(words))
    tops = top_pictures(activations, top, pool=pool, progress=progress)
    named = np.flatnonzero(tops[:, 0] >= 0)
    if len(named) < (2 if prior == "units" else 1):
        raise SettingsError(
            "too few units with a changing activation to tell what is common to all",
            given=f"{len(named)} of {len(tops)}",
            remedy='prior="random" needs one, and compares it with random pictures',
        )
    rng = np.random.default_rng(seed)
    others = np.stack([rng.permutation(len(images))[:top] for _ in range(random_sets)])
    keep = min(keep, len(words))
    settings: dict[str, Any] = {"weight": prior_weight, "prior": prior, "temperature": temperature}
    settings |= {"membership": membership, "device": device, "progress": progress}
    best = best_texts(images, texts, tops[named], others, keep=keep, **settings)
    indices = np.full((len(tops), keep), -1)
    scores, chance = np.full(indices.shape, np.nan, np.float32), np.full(len(tops), np.nan)
    indices[named], scores[named], chance[named] = best
    return Labels(words, indices, scores, chance, tops, given | {"pictures": len(images), "channels": images.shape[1]})


def read_vocabulary(path: str | Path) -> tuple[str, ...]:
    """One word or phrase a line, UTF-8; empty lines do not count, and none may come twice."""
    try:
        lines = Path(path).read_text("utf-8-sig").splitlines()
    except FileNotFoundError:
        raise SettingsError("no vocabulary file here", given=str(path)) from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"a vocabulary is UTF-8 text: {error.reason}", given=str(path)) from None
    return _words([line.strip() for line in lines if line.strip()])


def embed_pictures(function: Embed, images: ImageSet, *, batch_size: int = 64, progress: bool = True) -> np.ndarray:
    """float32 (picture, channel): what `function` makes of lists of pictures, such as a subject or a model's tower."""
    import torch

    parts = []
    with torch.no_grad():
        for start in tqdm(range(0, len(images), batch_size), "embedding pictures", disable=not progress, delay=1):
            batch = [images[k].image for k in range(start, min(start + batch_size, len(images)))]
            parts.append(array_of(function(batch)).astype(np.float32))
    return np.concatenate(parts)


def embed_texts(function: Embed, texts: Sequence[str]) -> np.ndarray:
    """(text, channel): what `function` makes of lists of texts, some at a time."""
    import torch

    with torch.no_grad():
        parts = [array_of(function(list(texts[start : start + BATCH]))) for start in range(0, len(texts), BATCH)]
    return np.concatenate(parts)


def _words(vocabulary: Sequence[str] | str | Path) -> tuple[str, ...]:
    if isinstance(vocabulary, str | Path):
        return read_vocabulary(vocabulary)
    words = tuple(vocabulary)
    if not words or not all(isinstance(word, str) and word.strip() for word in words):
        raise SettingsError("a vocabulary needs words", given=f"{len(words)} of them", accepted="one or more a line")
    if len(set(words)) < len(words):
        seen: set[str] = set()
        twice = next(word for word in words if word in seen or seen.add(word))  # type: ignore[func-returns-value]
        raise SettingsError("a word that comes twice in the vocabulary", given=twice)
    return words


def _check(given: Mapping[str, Any]) -> None:
    whole(1, **{name: given[name] for name in ("top", "keep", "random_sets")})
    whole(0, seed=given["seed"])
    if given["prior"] not in PRIORS:
        raise SettingsError("no such prior", given=given["prior"], accepted=PRIORS)
    numbers = is_number(given["temperature"]) and is_number(given["prior_weight"])
    if not numbers or not (0 < given["temperature"] < np.inf and 0 <= given["prior_weight"] < np.inf):
        raise SettingsError(
            "temperature is above 0 and prior_weight at least 0", given=(given["temperature"], given["prior_weight"])
        )
    ends = given["membership"]
    if len(ends) != 2 or not all(map(is_number, ends)) or not 0 <= ends[1] <= ends[0] < 1:
        raise SettingsError("membership falls from below 1 to no less than 0", given=given["membership"])


def _check_shapes(activations: tuple[int, ...], images: tuple[int, ...], texts: tuple[int, ...], words: int) -> None:
    if activations[0] != images[0]:
        raise SettingsError(
            "activations and embeddings are of the same pictures", given=f"{activations[0]} and {images[0]} pictures"
        )
    if texts[0] != words:
        raise SettingsError("every word has one embedding", given=f"{texts[0]} embeddings for {words} words")
    if images[1] != texts[1]:
        raise SettingsError(
            "pictures and words lie in one space",
            given=f"{images[1]} and {texts[1]} channels",
            remedy="take both towers of one model, with their projections",
        )
