"""What is read from the model once the layer is replaced: its classes, a probe on its features, or the next token."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.dictionary_comparison.activations import Data, batches, looked_at, pooled
from vitreous.errors import SettingsError
from vitreous.evidence.faithfulness import RidgeProbe, accuracy, fit_ridge_probe
from vitreous.hooks import evaluating
from vitreous.texts import TextSet

if TYPE_CHECKING:
    from torch import Tensor

    from vitreous.models.subject import Subject

Head = Callable[["Tensor"], "Tensor"]


@dataclass(frozen=True, eq=False)
class Reader:
    """`keep` makes of a batch's output and input what is compared, (sample, ...); `how` names it.

    `right` says how often what was kept is right, and `loss` how surprised a language model is, where they can.
    """

    how: str
    keep: Callable[[Tensor, Tensor], np.ndarray]
    right: Callable[[np.ndarray], float] | None = None
    loss: Callable[[np.ndarray], float] | None = None
    note: str = ""


def choose_reader(
    subject: Subject, train: Data, evaluate: Data, how: str, head: Head | None, folder: Path, progress: bool
) -> Reader:
    """A reader that fits the model and the labels; accuracy is left out, with a note, where nothing does."""
    if isinstance(evaluate, TextSet):
        return _next_token(evaluate)
    if how == "none":
        return Reader("none", _features)
    if evaluate.labels is None:
        if how != "auto" or head is not None:
            raise SettingsError(
                "accuracy needs labels", given=evaluate.name, remedy='pictures with labels, or accuracy="none"'
            )
        return Reader("none", _features, note=f"{evaluate.name} has no labels: accuracy is left out")
    classes = len(evaluate.classes) if evaluate.classes else int(evaluate.labels.max()) + 1
    if head is not None or how == "head" or (how == "auto" and _outputs(subject, evaluate) == classes):
        return _classes(subject, evaluate, head)
    if train.labels is None or len(np.unique(train.labels)) < 2:
        if how == "probe":
            raise SettingsError("a probe is fitted to labels of two classes or more", given=train.name)
        note = f"{train.name} has no labels of two classes to fit a probe to: accuracy is left out"
        return Reader("none", _features, note=note)
    probe, labels = _fitted(subject, train, folder / "probe.npz", progress), evaluate.labels
    return Reader("probe", _features, partial(_by_probe, probe, labels))


def _features(out: Tensor, _: Tensor) -> np.ndarray:
    return pooled(out).float().cpu().numpy()


def _outputs(subject: Subject, data: Data) -> int:
    """Classes that the model's head tells apart; 0 without a head, whose features are no classes."""
    if subject.head is None:
        return 0
    _, x = next(iter(data.batches(subject.preprocess, 1)))  # type: ignore[arg-type]
    return int(_logits(subject, x).shape[-1])


def _logits(subject: Subject, x: np.ndarray) -> Any:
    import torch

    with torch.inference_mode(), evaluating(subject.module):
        return subject(torch.from_numpy(x))


def _classes(subject: Subject, evaluate: Data, head: Head | None) -> Reader:
    if head is None and subject.head is None:
        raise SettingsError(
            f"{subject.name} has no head", given="head", accepted=("probe", "none"), remedy="give head=, or a probe"
        )
    assert evaluate.labels is not None
    labels = evaluate.labels

    return Reader("head", partial(_class_scores, labels, head), partial(_by_class, labels))


# what a reader does stands in functions of their own, which can be sent to worker processes


def _by_probe(probe: RidgeProbe, labels: np.ndarray, kept: np.ndarray) -> float:
    return accuracy(probe.predict(kept), labels)


def _by_class(labels: np.ndarray, kept: np.ndarray) -> float:
    return accuracy(kept, labels)


def _class_scores(labels: np.ndarray, head: Head | None, out: Tensor, _: Tensor) -> np.ndarray:
    logits = out if head is None else head(pooled(out))
    if logits.ndim != 2 or logits.shape[1] <= labels.max():
        raise SettingsError(
            "labels are numbers of the head's classes",
            given=f"{int(labels.max())} for outputs {tuple(logits.shape)}",
            remedy='accuracy="probe" fits a head to these labels',
        )
    return logits.float().cpu().numpy()


def _next_token(texts: TextSet) -> Reader:
    """Of every position that is looked at, but the last: the log-probability of the next token and whether it leads."""
    seen = looked_at(texts, texts.tokens.shape[1])
    judged = seen[:, :-1] & (np.arange(1, texts.tokens.shape[1]) < texts.lengths[:, None])
    return Reader("next token", _token_scores, partial(_led, judged), partial(_surprise, judged))


def _token_scores(out: Tensor, x: Tensor) -> np.ndarray:
    import torch

    if out.ndim != 3:
        raise SettingsError("a language model gives (sample, token, piece)", given=tuple(out.shape))
    after = x[:, 1:].to(out.device)
    logits = torch.log_softmax(out[:, :-1].float(), -1)
    chance = logits.gather(-1, after[..., None])[..., 0]
    return torch.stack([chance, (logits.argmax(-1) == after).float()], -1).cpu().numpy()


def _led(judged: np.ndarray, kept: np.ndarray) -> float:
    return float(kept[..., 1][judged].mean())


def _surprise(judged: np.ndarray, kept: np.ndarray) -> float:
    return float(-kept[..., 0][judged].mean())


def _fitted(subject: Subject, train: Data, path: Path, progress: bool) -> RidgeProbe:
    if not path.exists():
        probe = fit_ridge_probe(features(subject, train, progress), train.labels)  # type: ignore[arg-type]
        draft = path.with_name("draft.npz")
        np.savez(draft, weight=probe.weight, bias=probe.bias, classes=probe.classes)
        draft.replace(path)
    with np.load(path) as stored:
        return RidgeProbe(stored["weight"], stored["bias"], stored["classes"])


def features(subject: Subject, data: Data, progress: bool, what: str = "features") -> np.ndarray:
    """The model's pooled outputs (sample, channel)."""
    import torch

    bar, source = batches(subject, data, progress, what)
    parts = []
    with closing(source), evaluating(subject.module), torch.inference_mode():
        for _, x in bar:
            parts.append(_features(subject(torch.from_numpy(x)), x))
    return np.concatenate(parts)
