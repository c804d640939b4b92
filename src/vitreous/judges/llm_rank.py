"""LLM Rank (B.1): methods ranked by which of two units' pictures vision-language models find more coherent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vitreous.errors import JudgeError, SettingsError
from vitreous.evidence.ranking import Ranking, Schedule, rank, schedule
from vitreous.judges.answers import PROMPT, Judgement
from vitreous.judges.chat import ChatJudge
from vitreous.judges.grids import CELL, Grid, Tops, can_be_shown, checked_tops, png, unit_grid
from vitreous.judges.journal import Journal, question_key
from vitreous.progress import tqdm

if TYPE_CHECKING:
    from vitreous.images import ImageSet

KIND = "LLM Rank"


class Question(NamedTuple):
    """Number of the presentation and of the judge, the grids in the order shown, and the key in the journal."""

    presentation: int
    judge: int
    grids: tuple[Grid, Grid]
    key: str


def llm_rank(
    tops: Tops | Sequence[Tops],
    images: ImageSet,
    judges: Sequence[ChatJudge],
    *,
    journal: str | Path,
    pairs: int = 50,
    swaps: str = "separate",
    resample: str = "pair",
    repeats: int = 1000,
    seed: int = 0,
    cell: int = CELL,
    prompt: str = PROMPT,
    concurrent: int = 8,
    progress: bool = True,
) -> Ranking:
    """Ranks methods by what judges say of their units.

    `tops` are, of every method, the pictures of its units (unit, 9) as numbers into `images`; a list of such mappings
    is one a data set. Answers go to `journal` as they come: run again, only what is missing is asked. A judge that
    fails is left out, the others finish, and then an error says what is missing.

    >>> tops = {"units": top_pictures(store[site]), "sub-units": top_pictures(activations)}
    >>> print(vt.llm_rank(tops, images, judges, journal="judgements.jsonl").table())
    """
    sets = checked_tops(tops, len(images))
    _check_judges(judges, concurrent, cell)
    shown = schedule([{name: can_be_shown(of) for name, of in one.items()} for one in sets], pairs=pairs, seed=seed)
    with Journal(journal) as book:
        asking = _Asking(judges, prompt, book, concurrent)
        asking.run(_questions(shown, sets, images, judges, prompt, cell), len(shown) * len(judges), progress)
        asking.check_complete(len(shown))
        votes = np.array([[asking.votes[p, j] for j in range(len(judges))] for p in range(len(shown))], np.int8)
    settings = {"judges": [judge.settings for judge in judges], "prompt": prompt, "cell": cell, "seed": seed}
    names = [judge.name for judge in judges]
    return rank(
        shown, votes, names, kind=KIND, swaps=swaps, resample=resample, repeats=repeats, seed=seed, settings=settings
    )


def _questions(
    shown: Schedule,
    sets: Sequence[Tops],
    images: ImageSet,
    judges: Sequence[ChatJudge],
    prompt: str,
    cell: int,
) -> Iterator[Question]:
    """All questions in a fixed order. Grids are drawn as they come up; the two orders of a pair follow each other."""

    @lru_cache(maxsize=8)
    def drawn(dataset: int, method: int, unit: int) -> Grid:
        return unit_grid(images, sets[dataset][shown.names[method]][unit], cell)

    for p in range(len(shown)):
        dataset, methods, units = int(shown.dataset[p]), shown.methods[p].tolist(), shown.units[p].tolist()
        a, b = (drawn(dataset, method, unit) for method, unit in zip(methods, units, strict=True))
        for j, judge in enumerate(judges):
            yield Question(p, j, (a, b), question_key(judge, prompt, (a.digest, b.digest)))


@dataclass
class _Asking:
    """Questions under way. Only `run` touches the journal and the votes; other threads just wait for answers."""

    judges: Sequence[ChatJudge]
    prompt: str
    journal: Journal
    concurrent: int
    votes: dict[tuple[int, int], int] = field(default_factory=dict)
    failed: dict[int, JudgeError] = field(default_factory=dict)
    stop: Event = field(default_factory=Event)
    pending: dict[Future[Judgement], Question] = field(default_factory=dict)

    def run(self, questions: Iterator[Question], total: int, progress: bool) -> None:
        pool = ThreadPoolExecutor(self.concurrent, "judges")
        try:
            for question in tqdm(questions, "judgements", total, disable=not progress):
                if len(self.failed) == len(self.judges):
                    break
                known = self.journal.get(question.key)
                if known is not None:
                    self.votes[question.presentation, question.judge] = known.vote
                elif question.judge not in self.failed:
                    self.pending[pool.submit(self._ask, question)] = question
                    while len(self.pending) >= 2 * self.concurrent:
                        self._collect(wait(self.pending, return_when=FIRST_COMPLETED).done)
            while self.pending:
                self._collect(wait(self.pending, return_when=FIRST_COMPLETED).done)
        finally:
            self.stop.set()
            pool.shutdown(cancel_futures=True)
            self._collect({future for future in self.pending if future.done() and not future.cancelled()})

    def check_complete(self, presentations: int) -> None:
        if not self.failed:
            return
        lines = [
            f"{presentations - sum(j == k for _, k in self.votes)} of {presentations} judgements missing: {error}"
            for j, error in self.failed.items()
        ]
        raise JudgeError(
            "\n".join(lines), remedy=f"run again: {len(self.journal)} judgements are kept in {self.journal.path}"
        )

    def _ask(self, question: Question) -> Judgement:
        judge = self.judges[question.judge]
        if question.judge in self.failed:
            raise self.failed[question.judge]
        return judge.compare(self.prompt, [png(grid.pixels) for grid in question.grids], self.stop.wait)

    def _collect(self, done: set[Future[Judgement]]) -> None:
        for future in done:
            question = self.pending.pop(future)
            error = future.exception()
            if isinstance(error, JudgeError):
                self.failed.setdefault(question.judge, error)
                continue
            judgement = future.result()
            digests = [grid.digest for grid in question.grids]
            self.journal.add(question.key, judgement, model=self.judges[question.judge].model, grids=digests)
            self.votes[question.presentation, question.judge] = judgement.vote


def _check_judges(judges: Sequence[ChatJudge], concurrent: int, cell: int) -> None:
    names = [judge.name for judge in judges]
    same = [question_key(judge, "", ()) for judge in judges]
    if not judges or len(set(names)) < len(names) or len(set(same)) < len(same):
        raise SettingsError("one judge or more, no two alike", given=names, remedy="name= tells two endpoints apart")
    if concurrent < 1 or cell < 1:
        raise SettingsError("concurrent and cell are at least 1", given={"concurrent": concurrent, "cell": cell})
    for judge in judges:
        judge.key()  # a missing key is found before anything is asked
