"""Slow twin of `vitreous.evidence.ranking`: section B.1 read line by line, one presentation after the other."""

from __future__ import annotations

from collections import Counter


def majority(votes: list[str | None]) -> str | None:
    """Of "A", "B" and None for no answer: the one that more judges chose."""
    counts = Counter(vote for vote in votes if vote is not None)
    if counts["A"] == counts["B"]:
        return None
    return "A" if counts["A"] > counts["B"] else "B"


def win_rates(shown: list[tuple[str, str]], votes: list[list[str | None]]) -> dict[str, float]:
    """shown[i] = (method of grid A, method of grid B) -> rate of each method; ties are dropped."""
    won: Counter[str] = Counter()
    decided: Counter[str] = Counter()
    for (a, b), answers in zip(shown, votes, strict=True):
        winner = majority(answers)
        if winner is not None:
            won[a if winner == "A" else b] += 1
            decided.update((a, b))
    return {method: won[method] / decided[method] for method in decided}


def agreed_rates(shown: list[tuple[str, str]], pair: list[int], votes: list[list[str | None]]) -> dict[str, float]:
    """The stricter rule: of presentations of one pair all must name the same winner, which then counts once."""
    winners: dict[int, set[str | None]] = {}
    methods: dict[int, tuple[str, str]] = {}
    for number, (a, b), answers in zip(pair, shown, votes, strict=True):
        winner = majority(answers)
        winners.setdefault(number, set()).add({"A": a, "B": b, None: None}[winner])
        methods[number] = (a, b)
    won: Counter[str] = Counter()
    decided: Counter[str] = Counter()
    for number, found in winners.items():
        if len(found) == 1 and None not in found:
            won.update(found)
            decided.update(methods[number])
    return {method: won[method] / decided[method] for method in decided}
