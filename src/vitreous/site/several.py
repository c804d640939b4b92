"""One run or several on one site: models keep apart by their names, pictures stand one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from vitreous.cards.deck import Deck
from vitreous.errors import SettingsError
from vitreous.examination import Examination

if TYPE_CHECKING:
    from vitreous.examination.opened import ModelEntry


@dataclass(frozen=True, eq=False)
class Member:
    """One run of a site: its cards, where its pictures begin, and what its models are called here."""

    deck: Deck
    first: int
    names: dict[str, str]
    own_pictures: bool

    @property
    def run(self) -> Examination:
        return self.deck.run

    def moved(self, value: Any) -> Any:
        """A card, or a part of one, with the site's numbers of pictures and names of models."""
        if self.first == 0 and all(old == new for old, new in self.names.items()):
            return value
        return self._moved(value)

    def _moved(self, value: Any) -> Any:
        if isinstance(value, dict):
            found = {key: self._moved(part) for key, part in value.items()}
            if isinstance(value.get("picture"), int):
                found["picture"] = value["picture"] + self.first
            if value.get("model") in self.names:
                found["model"] = self.names[value["model"]]
            return found
        if isinstance(value, list):
            return [self._moved(part) for part in value]
        if isinstance(value, str) and (name := value.partition("/blocks.")[0]) in self.names and "/blocks." in value:
            return self.names[name] + value[len(name) :]
        return value


@dataclass(frozen=True, eq=False)
class Gathered:
    """All runs of a site."""

    members: tuple[Member, ...]

    def __len__(self) -> int:
        return sum(len(one.deck) for one in self.members)

    @property
    def first(self) -> Examination:
        return self.members[0].run

    @cached_property
    def models(self) -> tuple[tuple[str, ModelEntry, Examination], ...]:
        return tuple((one.names[entry.name], entry, one.run) for one in self.members for entry in one.run.models)

    @cached_property
    def pictures(self) -> tuple[tuple[Examination, int, str], ...]:
        """(run, its number there, file name here) of every picture of the site."""
        found = []
        for number, one in enumerate(self.members):
            if one.own_pictures:
                before = "" if number == 0 else f"run{number}-"
                files = one.run.pictures.files
                found += [(one.run, k, f"{before}{name}") for k, name in enumerate(files)]
        return tuple(found)

    @property
    def picture_names(self) -> list[str]:
        return [run.pictures.names[k] for run, k, _ in self.pictures]

    def cards(self) -> Iterator[dict[str, Any]]:
        for one in self.members:
            for card in one.deck.cards():
                yield one.moved(card)

    def card(self, number: int) -> dict[str, Any]:
        """The card in this place of the columns."""
        for one in self.members:
            if number < len(one.deck):
                return one.moved(one.deck.card(*one.run.unit_ids[number]))
            number -= len(one.deck)
        raise SettingsError("no such card", given=number)

    @cached_property
    def columns(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        before = 0
        for one in self.members:
            columns = one.deck.columns()
            columns["id"] = one.moved(columns["id"])
            columns["model"] = [k + before for k in columns["model"]]
            columns["top"] = [k + one.first for k in columns["top"]]
            before += len(one.run.models)
            for key, values in columns.items():
                found.setdefault(key, []).extend(values)
        return found


def gather(runs: Examination | Sequence[Examination]) -> Gathered:
    """Runs of the same pictures share them; models of the same name are told apart by a number."""
    given = [runs] if isinstance(runs, Examination) else list(runs)
    if not given:
        raise SettingsError("a report needs a run", given=0)
    taken: set[str] = set()
    starts: dict[str, int] = {}
    members, count = [], 0
    for run in given:
        names = {entry.name: _free(entry.name, taken) for entry in run.models}
        key = run.pictures.fingerprint
        fresh = key not in starts or not key
        if fresh:
            starts[key] = count
            count += len(run.pictures)
        members.append(Member(Deck(run), starts[key], names, fresh))
    return Gathered(tuple(members))


def _free(name: str, taken: set[str]) -> str:
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    taken.add(found)
    return found
