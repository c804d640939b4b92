"""Slow twins of the audit, straight from the words: parts taken out one by one, and every exchange of labels."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import torch


def lost_without(subject, read, layer, parts, levels, x, prefix, of_logits=False):
    """(picture, part, class): log-odds, or logits, that are lost when a part is put at its level, one pass a part."""

    def odds():
        with torch.no_grad():
            logits = read(subject(x)).double().numpy()
        if of_logits:
            return logits
        found = np.empty_like(logits)
        for c in range(logits.shape[1]):
            others = np.delete(logits, c, 1)
            found[:, c] = logits[:, c] - np.log(np.exp(others).sum(1))
        return found

    before, lost = odds(), []
    for k in range(len(parts)):

        def hook(_, args, output, k=k):
            changed = output.clone()
            for position in range(output.shape[1]):
                a = args[0][:, position] @ torch.from_numpy(parts.weight[k]) + float(parts.bias[k])
                level = float(levels[k, min(position, prefix)])
                changed[:, position, parts.owner[k]] += level - a
            return changed

        handle = layer.module.register_forward_hook(hook)
        lost.append(before - odds())
        handle.remove()
    return np.stack(lost, 1)


def every_exchange(effects, member):
    """Differences of means, and the share of all ways to choose as many members that give as much."""
    n, k = len(member), int(member.sum())

    def difference(chosen):
        inside = np.isin(np.arange(n), chosen)
        return effects[inside].mean(0) - effects[~inside].mean(0)

    observed = difference(np.flatnonzero(member))
    drawn = np.stack([difference(np.array(chosen)) for chosen in combinations(range(n), k)])
    return observed, (drawn >= observed - 1e-12).mean(0)


def mates(structure, layer, unit):
    """Units of other layers that share a cluster with a unit at any token: cluster by cluster, place by place."""
    found = []
    for c in range(structure.labels.max() + 1):
        if (structure.labels[layer, :, unit] == c).any():
            for other, _, channel in np.argwhere(structure.labels == c):
                name = f"{structure.layers[other]}.{channel}"
                if other != layer and name not in found:
                    found.append(name)
    return tuple(found)
