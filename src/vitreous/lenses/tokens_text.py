"""Which words of a context does a summary rest on? Token contribution scores (ULTra, eq. 13).

λ_i is the mean, over the tokens of the summary, of what the context's token i counts for them.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitreous.attention import tap
from vitreous.checks import is_number
from vitreous.errors import ModelError, SettingsError
from vitreous.finding import Finding, heat
from vitreous.hooks import evaluating
from vitreous.lenses.tokens import Target, token_maps
from vitreous.lenses.tokens_inputs import check_positions, inputs_of, token_ids
from vitreous.models.subject import Subject, check_subject
from vitreous.provenance import json_bytes, replace_file


@dataclass(frozen=True, eq=False)
class ContextScores(Finding):
    """`scores` float32 (context token,) are λ of eq. 13, `words` the tokens as text; `rows` (summary token, context
    token) is what the mean is taken of; `notes` say what is to be kept in mind.
    """

    scores: np.ndarray
    words: tuple[str, ...]
    rows: np.ndarray
    summary: tuple[str, ...]
    block: int
    settings: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.scores)

    def facts(self) -> dict[str, Any]:
        return {"context": "".join(self.words), "summary": "".join(self.summary), "block": self.block}

    def columns_of_rows(self) -> dict[str, Any]:
        """A row a token of the context."""
        return {"position": np.arange(len(self)), "word": list(self.words), "score": self.scores}

    def thumbnails(self) -> list[tuple[str, np.ndarray]]:
        return [("summary tokens by context tokens", heat(self.rows))]

    def top(self, share: float) -> np.ndarray:
        """Positions of the highest-scored share of the context, in order; at least one."""
        if not is_number(share) or not 0 < share <= 1:
            raise SettingsError("share is above 0 and at most 1", given=share)
        count = max(1, round(share * len(self.scores)))
        return np.sort(np.argsort(-self.scores, kind="stable")[:count])

    def save(self, path: str | Path) -> None:
        """One npz: scores, rows, the tokens of both texts, and what made them as JSON; no pickles."""
        path, file = Path(path), io.BytesIO()
        said = {"block": self.block, "settings": dict(self.settings), "notes": list(self.notes)}
        about = np.frombuffer(json_bytes(said), np.uint8)
        texts = {"words": np.array(self.words), "summary": np.array(self.summary)}
        np.savez(file, allow_pickle=False, scores=self.scores, rows=self.rows, about=about, **texts)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, file.getvalue())


def context_scores(
    subject: Subject,
    context: str | Sequence[int],
    summary: str | Sequence[int],
    block: int = -1,
    *,
    separator: str | Sequence[int] | None = None,
    target: Target = "sum",
    progress: bool = True,
) -> ContextScores:
    """Scores of a context's tokens for a summary that follows it, in a causal language model.

    Texts, or token ids. The `separator`, a line break between texts unless another is given, is not scored.

    >>> found = vt.context_scores(subject, "Tom had a red ball. It was lost.", "Tom lost his ball.")
    >>> sorted(zip(found.scores, found.words))[-3:]
    """
    check_subject(subject)
    if subject.modality != "text":
        raise ModelError(f"{subject.name} takes pictures: it has no context to read", given=subject.family.name)
    if separator is None:
        separator = "\n" if isinstance(context, str) else []
    before, between, after = _ids(subject, context, separator, summary)
    ids = [*before, *between, *after]
    check_positions(subject, len(ids))
    first = len(before) + len(between)
    block = subject.block_number(block)
    _refuse_looking_ahead(subject, ids)
    maps = token_maps(subject, [ids], block, range(first, len(ids)), target, own="keep", progress=progress)
    rows = maps.scores[0, :, : len(before)]
    settings = {**maps.settings, "separator": separator if isinstance(separator, str) else list(separator)}
    words, said = words_of(subject, before), words_of(subject, after)
    return ContextScores(rows.mean(0), words, rows, said, maps.block, settings, maps.notes)


def _refuse_looking_ahead(subject: Subject, ids: list[int]) -> None:
    """Scores would not tell: where a model is normalised at its end, those of the sum may all be 0."""
    ahead: list[bool] = []

    def see(A: torch.Tensor) -> None:
        ahead.append(bool(A.triu(1).any()))

    x, _ = inputs_of(subject, [ids]).batch(range(1))
    with evaluating(subject.module), torch.no_grad(), tap(subject, dict.fromkeys(range(subject.depth), see)):
        subject(x)
    if any(ahead):
        raise ModelError(f"{subject.name} is not causal: its tokens look ahead", given=subject.family.name)


def _ids(subject: Subject, *texts: str | Sequence[int]) -> list[list[int]]:
    """Token ids of context, separator and summary; a token that opens every text stays before the first one only."""
    config: Any = subject.root.config if subject.family.source == "hf" else None
    opening = {} if config is None else {config.to_dict().get("bos_token_id")}
    found = []
    for k, text in enumerate(texts):
        words = isinstance(text, str)
        (ids,) = [[]] if words and not text else token_ids(subject, text if words else [text])
        found.append(ids[1:] if k and words and ids and ids[0] in opening else ids)
    if not found[0] or not found[2]:
        raise SettingsError("a context and a summary of at least one token each", given=(texts[0], texts[2]))
    return found


def words_of(subject: Subject, ids: Sequence[int]) -> tuple[str, ...]:
    if subject.tokenizer is None:
        return tuple(str(token) for token in ids)
    return tuple(subject.tokenizer.decode([token]) for token in ids)
