"""Does a replaced layer still say the same? R², the largest difference, and the accuracy of what reads from it.

    R² = 1 - Σ |x - x̂|² / Σ |x - μ|²

The disentanglement paper gives no formula. With `centre="channel"` μ is the mean of each channel, so that predicting
the mean scores exactly 0; with `centre="all"` it is one mean of all numbers, as in the library its baselines come from,
which scores higher wherever channels differ in their mean. Numbers of the two are not comparable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from vitreous.errors import SettingsError

CENTRES = ("channel", "all")


@dataclass(frozen=True)
class Faithfulness:
    """`r2` at most 1; `max_difference` the largest |x - x̂| of any element; `mse` the mean square; `rows` how many."""

    r2: float
    max_difference: float
    mse: float
    rows: int


def faithfulness(pairs: Iterable[tuple[Any, Any]], *, centre: Literal["channel", "all"] = "channel") -> Faithfulness:
    """R² and the largest difference over batches of (original, reconstruction), each (..., channel).

    One pass, in float64, with memory for one batch. A reconstruction with the same bits scores exactly 1.

    >>> faithfulness((x, dictionary.reconstruct(x)) for x in store["blocks.-1.mlp.out"].batches(64))
    """
    if centre not in CENTRES:
        raise SettingsError("no such centre", given=centre, accepted=CENTRES)
    rows, error, largest = 0, 0.0, 0.0
    shift: np.ndarray | None = None
    for original, reconstruction in pairs:
        x, x_hat = _rows(original), _rows(reconstruction)
        if x.shape != x_hat.shape or (shift is not None and x.shape[1:] != shift.shape):
            raise SettingsError("reconstructions have the shape of the originals", given=(x.shape, x_hat.shape))
        if shift is None:  # near the mean, so that the squares below keep their digits
            shift = x.mean(0)
            first, second = np.zeros_like(shift), np.zeros_like(shift)
        first, second = first + (x - shift).sum(0), second + ((x - shift) ** 2).sum(0)
        off = x - x_hat
        error, largest = error + float((off * off).sum()), max(largest, float(np.abs(off).max(initial=0)))
        rows += len(x)
    if shift is None or rows == 0:
        raise SettingsError("there is nothing to compare: no rows were given")
    spread = float((second - first * first / rows).sum())
    if centre == "all":
        means = shift + first / rows
        spread += rows * float(((means - means.mean()) ** 2).sum())
    return Faithfulness(_r2(error, spread), largest, error / (rows * len(shift)), rows)


def _r2(error: float, spread: float) -> float:
    """Constant originals have no spread to explain: reproduced exactly they score 1, otherwise minus infinity."""
    if error == 0:
        return 1.0
    return 1 - error / spread if spread > 0 else -np.inf


# -- what reads from the layer


def accuracy(predictions: Any, labels: Sequence[int] | np.ndarray) -> float:
    """Share of right answers; predictions are class numbers (sample,) or logits (sample, class)."""
    given, truth = _array(predictions), np.asarray(labels)
    answers = given.argmax(1) if given.ndim == 2 else given
    if answers.shape != truth.shape or truth.ndim != 1 or len(truth) == 0:
        raise SettingsError("one prediction and one label a sample", given=(given.shape, truth.shape))
    return float((answers == truth).mean())


def head_accuracy(head: Callable[[Any], Any], features: Iterable[Any], labels: Sequence[int] | np.ndarray) -> float:
    """Accuracy of a model's own head on batches of (reconstructed) features, in the order of the labels."""
    return accuracy(np.concatenate([_array(head(batch)) for batch in features]), labels)


@dataclass(frozen=True, eq=False)
class RidgeProbe:
    """A linear classifier: `weight` float64 (channel, class), `bias` (class,), `classes` the label of each."""

    weight: np.ndarray
    bias: np.ndarray
    classes: np.ndarray

    def predict(self, features: Any) -> np.ndarray:
        """(sample, channel) -> labels (sample,)."""
        x = _array(features)
        if x.ndim != 2 or x.shape[1] != len(self.weight):
            raise SettingsError(
                "a probe takes features (sample, channel)", given=x.shape, accepted=f"(any, {len(self.weight)})"
            )
        return self.classes[(x @ self.weight + self.bias).argmax(1)]


def fit_ridge_probe(features: Any, labels: Sequence[int] | np.ndarray, *, ridge: float = 1e-3) -> RidgeProbe:
    """Least squares to one column a class, with a penalty of `ridge` times the mean variance of a channel.

    Closed form: nothing to tune or to draw, the same inputs give the same probe.
    """
    x, y = _array(features).astype(np.float64), np.asarray(labels)
    if x.ndim != 2 or y.shape != x.shape[:1] or len(x) == 0:
        raise SettingsError("a probe takes features (sample, channel) and one label each", given=(x.shape, y.shape))
    if not np.isfinite(x).all() or not ridge > 0:
        raise SettingsError("features are finite and ridge is above 0", given={"ridge": ridge})
    classes, column = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise SettingsError("a probe tells at least two classes apart", given=classes.tolist())
    target = np.eye(len(classes))[column]
    mean, share = x.mean(0), target.mean(0)
    centred = x - mean
    gram = centred.T @ centred / len(x)
    gram[np.diag_indices_from(gram)] += ridge * max(float(np.trace(gram)) / len(gram), np.finfo(np.float64).tiny)
    weight = np.linalg.solve(gram, centred.T @ (target - share) / len(x))
    return RidgeProbe(weight, share - mean @ weight, classes)


def _array(values: Any) -> np.ndarray:
    if isinstance(values, np.ndarray | list | tuple):
        return np.asarray(values)
    import torch

    values = values.detach().cpu() if isinstance(values, torch.Tensor) else torch.from_numpy(np.asarray(values))
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy()


def _rows(values: Any) -> np.ndarray:
    array = _array(values)
    if array.ndim < 2:
        raise SettingsError("originals and reconstructions are (..., channel)", given=array.shape)
    array = array.reshape(-1, array.shape[-1]).astype(np.float64)
    if not np.isfinite(array).all():
        raise SettingsError("originals and reconstructions are finite", given="NaN or infinity")
    return array
