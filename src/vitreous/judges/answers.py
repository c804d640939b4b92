"""What is asked, and what counts as an answer.

Judges are asked for a JSON object. They wrap it in prose and code fences, think aloud first, are cut off in the middle,
or decline. A choice counts if it is said in the form that was asked for; nothing is guessed from prose.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PROMPT = """\
You will see two pictures, grid A and grid B. Each is made of the nine images that one unit of a neural network \
responds to most.

A unit is coherent if most of its images have one thing in common that can be named: a kind of object, a part of one, \
a colour, a texture, a material, a shape, a scene, or any other visual or semantic property. It is incoherent if you \
find nothing that they share.

Say of each grid, in one short sentence, what its images have in common, or that they have nothing in common. Then \
decide which grid is the more coherent one. You have to choose one of the two.

Answer with one JSON object and nothing else:
{"grid_a": "<one sentence>", "grid_b": "<one sentence>", "answer": "<A or B>"}"""

AGAIN = 'That was not the JSON object asked for. Answer with {"grid_a": ..., "grid_b": ..., "answer": ...} only.'

KEPT = 2000  # letters of an unreadable answer that are kept
BRACES = 100  # places in a text that are tried as the start of an object
_CHOICE = re.compile(r"""\W*(?:grid\s*)?([ab])\W*""", re.IGNORECASE)
_CUT_OFF = re.compile(r'"answer"\s*:\s*"\s*(?:grid\s*)?([ab])\s*"', re.IGNORECASE)
_THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Judgement:
    """`choice` is "A", "B" or None; `why` is "answered", "undecided", "refused" or "unreadable".

    `said` holds the sentences on both grids, or what could not be read.
    """

    choice: str | None
    why: str
    said: tuple[str, ...] = ()

    @property
    def vote(self) -> int:
        return {"A": 1, "B": -1, None: 0}[self.choice]


def read_answer(text: str, refusal: str | None = None) -> Judgement:
    """The judgement in a model's words."""
    if refusal:
        return Judgement(None, "refused", (refusal[:KEPT],))
    spoken = _THOUGHT.sub("", text).strip()
    found = [answer for answer in _objects(spoken) if "answer" in answer]
    if found:
        said = tuple(str(found[-1].get(name, ""))[:KEPT] for name in ("grid_a", "grid_b"))
        choices = {choice for answer in found if (choice := _choice(answer["answer"]))}  # the form itself may be quoted
        if len(choices) > 1:
            return Judgement(None, "unreadable", (spoken[:KEPT],))
        return Judgement(choices.pop(), "answered", said) if choices else Judgement(None, "undecided", said)
    broken = {match.upper() for match in _CUT_OFF.findall(spoken)}  # JSON that is damaged elsewhere
    if not broken and (bare := _CHOICE.fullmatch(spoken)):
        broken = {bare[1].upper()}
    if len(broken) == 1:
        return Judgement(broken.pop(), "answered", (spoken[:KEPT],))
    return Judgement(None, "unreadable", (spoken[:KEPT],))


def _choice(answer: Any) -> str | None:
    match = _CHOICE.fullmatch(answer) if isinstance(answer, str) else None
    return match[1].upper() if match else None


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """JSON objects that stand in a text, whatever is around them."""
    decoder = json.JSONDecoder()
    at = text.find("{")
    for _ in range(BRACES):
        if at < 0:
            return
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            yield value
        at = text.find("{", end)
