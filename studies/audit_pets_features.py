"""The audit's question put to features of a dictionary: what each adds to a class without the object, and switched off.

A TopK dictionary is trained on what the last block gives, on patches of pictures that are audited or trained on, never
with a label. A feature's effect is its code minus its level (the mean code), times its atom's slope on the log-odds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

import vitreous as vt
from vitreous.auditing.effects import log_odds
from vitreous.auditing.heads import Head
from vitreous.auditing.sweep import STEPS
from vitreous.auditing.switch import logits_of
from vitreous.evidence.suspicion import corrected, difference, exchange_test
from vitreous.kernels.fill_holes import fill_holes

SITE, PREFIX, BATCH = "blocks.-1.resid.out", 1, 16
EPOCHS, EXPANSION, K = 20, 4, 20
TESTED, REPEATS = 256, 10_000


@dataclass(frozen=True, eq=False)
class Features:
    """Features most suspicious first, with the level of each and whether it raised an alarm."""

    dictionary: vt.Dictionary
    order: np.ndarray
    suspicion: np.ndarray
    alarm: np.ndarray
    levels: np.ndarray

    @property
    def alarms(self) -> np.ndarray:
        return self.order[self.alarm]

    @contextmanager
    def off(self, subject: vt.Subject, which: np.ndarray) -> Iterator[None]:
        """These features are put at their level at every patch."""
        at = torch.from_numpy(which)
        levels = torch.from_numpy(self.levels[which]).float()

        def moved(x: Tensor) -> Tensor:
            codes = self.dictionary.encode(x[:, PREFIX:])[..., at]
            change = (levels - codes) @ self.dictionary.atoms[at]
            return torch.cat([x[:, :PREFIX], x[:, PREFIX:] + change], 1)

        with vt.patch(subject, {SITE: moved}):
            yield


def train(subject: vt.Subject, sets: list[vt.ImageSet], seed: int) -> vt.Dictionary:
    rows = []
    with torch.inference_mode(), vt.capture(subject, SITE) as seen:
        for images in sets:
            for _, x in images.batches(subject.preprocess, BATCH):
                subject(torch.from_numpy(x))
                rows.append(seen[SITE][:, PREFIX:].reshape(-1, seen[SITE].shape[-1]).clone())
    return vt.train_dictionary(
        torch.cat(rows), "topk", expansion=EXPANSION, k=K, epochs=EPOCHS, seed=seed, progress=False
    )


def codes(subject: vt.Subject, dictionary: vt.Dictionary, images: vt.ImageSet) -> np.ndarray:
    """(picture, feature): the mean over patches."""
    found = []
    with torch.inference_mode(), vt.capture(subject, SITE) as seen:
        for _, x in images.batches(subject.preprocess, BATCH):
            subject(torch.from_numpy(x))
            found.append(dictionary.encode(seen[SITE][:, PREFIX:]).mean(1).numpy())
    return np.concatenate(found)


def audit(
    subject: vt.Subject,
    head: Head,
    dictionary: vt.Dictionary,
    images: vt.ImageSet,
    masks: np.ndarray,
    labels: np.ndarray,
    seed: int,
) -> Features:
    """The same test as `vt.audit`'s: those that vary most, exchanged labels, corrected."""
    levels = codes(subject, dictionary, images)
    levels = np.mean([levels[labels == c].mean(0) for c in np.unique(labels)], 0)
    effects = _painted_effects(subject, head, dictionary, images, masks, levels)
    spread = effects.std(0)
    chosen = np.argsort(-spread, kind="stable")[:TESTED]
    chosen = chosen[spread[chosen] > 0]
    found, p = exchange_test(effects[:, chosen], labels == 1, repeats=REPEATS, seed=seed)
    safe, order = corrected(p), np.argsort(-found, kind="stable")
    return Features(
        dictionary, chosen[order], found[order], (safe[order] <= 0.05) & (found[order] > 0), levels.astype(np.float32)
    )


def _painted_effects(
    subject: vt.Subject,
    head: Head,
    dictionary: vt.Dictionary,
    images: vt.ImageSet,
    masks: np.ndarray,
    levels: np.ndarray,
) -> np.ndarray:
    """(picture, feature) on class 1, in pictures whose object is painted over."""
    found = []
    for at, batch in images.batches(subject.preprocess, BATCH):
        x = fill_holes(torch.from_numpy(batch), torch.from_numpy(masks[at]))
        leaf: list[Tensor] = []

        def cut(value: Tensor, leaf: list[Tensor] = leaf) -> Tensor:
            leaf.append(value.detach().requires_grad_())
            return leaf[0]

        with torch.enable_grad(), vt.patch(subject, {SITE: cut}):
            (slope,) = torch.autograd.grad(log_odds(head.logits(subject, x))[:, 1].sum(), leaf[0])
        a = dictionary.encode(leaf[0].detach()[:, PREFIX:]) - torch.from_numpy(levels).float()
        found.append((a * (slope[:, PREFIX:] @ dictionary.atoms.T)).sum(1).numpy())
    return np.concatenate(found)


def enough(
    features: Features, subject: vt.Subject, head: Head, images: vt.ImageSet, masks: np.ndarray, labels: np.ndarray
) -> int:
    """How many alarms, switched off, leave the least of the label in pictures whose object is painted over."""
    left, count = {}, len(features.alarms)
    for n in [n for n in STEPS if n < count] + [count]:
        with features.off(subject, features.alarms[:n]):
            odds = log_odds(torch.from_numpy(logits_of(subject, head, images, masks))).numpy()
        value = float(difference(odds[:, [1]], labels == 1)[0])
        left[n] = abs(value)
        if value <= 0:
            break
    return min(left, key=lambda n: left[n])
