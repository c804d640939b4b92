"""Slow twins of the audit of places, place by place and token by token."""

from __future__ import annotations

import numpy as np
import torch


def nearest(tokens, picture, k):
    """For every place the k other pictures that have the place most like it, by the cosine of tokens less the mean."""
    x = tokens - tokens.mean(0)
    found = []
    for a in range(len(x)):
        best = {}
        for b in range(len(x)):
            if picture[b] != picture[a]:
                likeness = x[a] @ x[b] / np.sqrt((x[a] @ x[a]) * (x[b] @ x[b]))
                best[int(picture[b])] = max(likeness, best.get(int(picture[b]), -2.0))
        found.append(sorted(best, key=lambda p: -best[p])[:k])
    return np.array(found)


def put_at_level(x, prefix, weight, bias, levels):
    """x (sample, token, channel) with every patch that a direction finds replaced by the level of its position."""
    out = x.clone()
    for s in range(len(x)):
        for p in range(prefix, x.shape[1]):
            away = x[s, p].double() - torch.from_numpy(levels[p - prefix]).double()
            if any(
                float(away @ torch.from_numpy(w).double()) + float(b) > 0 for w, b in zip(weight, bias, strict=True)
            ):
                out[s, p] = torch.from_numpy(levels[p - prefix])
    return out


def whole_test(odds, labels, repeats, seed):
    """Of two classes: the difference of mean log-odds, and how often labels in a random order give as much."""
    rng = np.random.default_rng(seed)
    observed = odds[labels == 1].mean() - odds[labels == 0].mean()
    as_much = 1
    for _ in range(repeats):
        order = rng.permutation(labels)
        as_much += odds[order == 1].mean() - odds[order == 0].mean() >= observed - 1e-12
    return observed, as_much / (repeats + 1)
