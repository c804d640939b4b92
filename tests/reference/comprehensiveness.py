"""Eq. 16 and 17 word by word, for a model that is a table of next-word probabilities."""

from __future__ import annotations

from math import log


def slow_support(table, context: list[int], summary: list[int]) -> float:
    """Σ log π(y_i | x, y_<i): the next word depends on the word before and on how often it was seen before."""
    seen, total = list(context), 0.0
    for word in summary:
        weights = [table[seen[-1]][w] + seen.count(w) for w in range(len(table))]
        total += log(weights[word] / sum(weights))
        seen.append(word)
    return total


def slow_comprehensiveness(table, context, summary, scores, rate: float) -> float:
    count = max(1, round(rate * len(context)))
    gone = sorted(range(len(context)), key=lambda k: (-scores[k], k))[:count]
    left = [word for k, word in enumerate(context) if k not in gone]
    whole = slow_support(table, context, summary)
    return (whole - slow_support(table, left, summary)) / abs(whole)
