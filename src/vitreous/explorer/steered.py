"""What steering changes: the class scores, and the map of the token that they are read from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vitreous.errors import SettingsError
from vitreous.explorer.answers import as_json, eight_bits, text_of
from vitreous.explorer.units import UnitId, refuse_unit

if TYPE_CHECKING:
    from torch import Tensor

    from vitreous.examination import Examination
    from vitreous.examination.classes import Classes
    from vitreous.lenses.disentangle_finding import Disentanglement
    from vitreous.models.subject import Subject

MOST_STEERED = 200  # sub-units at once
LARGEST_FACTOR = 1000.0  # factor


def wanted_numbers(
    examination: Examination, model: str, block: int, factors: Sequence[tuple[str, float]]
) -> dict[int, float]:
    """Number of the sub-unit -> factor. A whole unit stands for all of its sub-units; a factor of 1 changes nothing."""
    if not 1 <= len(factors) <= MOST_STEERED:
        raise SettingsError("some sub-units are steered at once", given=len(factors), accepted=f"1 to {MOST_STEERED}")
    found: dict[int, float] = {}
    for id, factor in factors:
        unit = UnitId.read(id)
        if (unit.model, unit.block) != (model, block):
            raise SettingsError("sub-units of one layer are steered together", given=id, accepted=f"{model}, {block}")
        if not abs(factor) <= LARGEST_FACTOR:
            raise SettingsError(
                "the factor is too large", given=factor, accepted=f"{-LARGEST_FACTOR:g} to {LARGEST_FACTOR:g}"
            )
        refuse_unit(examination, unit)
        finding = examination.disentanglement(model, block)
        numbers = finding.subunits(unit.unit).tolist() if unit.part is None else [unit.number(examination)]
        found |= dict.fromkeys(numbers, factor)
    return found


def entering(subject: Subject, x: Tensor, block: int) -> np.ndarray:
    """float32 (token, input): what enters the last layer of a block's MLP."""
    import vitreous as vt

    site = f"blocks.{block}.mlp.hidden"
    with torch.inference_mode(), vt.capture(subject, site, stop=True) as seen:
        subject(x)
    return seen[site][0].float().cpu().numpy()


def steered_answer(
    subject: Subject,
    x: Tensor,
    finding: Disentanglement,
    factors: Mapping[int, float],
    prefix: bool,
    classes: Classes | None,
) -> bytes:
    """Before and after in one answer; both maps on one scale."""
    before, map_before = _looked(subject, x)
    with _steering(subject, finding, factors, prefix):
        after, map_after = _looked(subject, x)
    if not (np.isfinite(after).all() and np.isfinite(map_after).all()):
        raise SettingsError(
            "steered like this, the model's output is not finite", remedy="smaller factors, or fewer sub-units"
        )
    size = float(np.linalg.norm(before))
    high = max(float(map_before.max()), float(map_after.max()))
    scores = [None if classes is None else _plain(classes.probabilities(side)[0]) for side in (before, after)]
    return as_json(
        {
            "classes": None if classes is None else list(classes.names),
            "before": scores[0],
            "after": scores[1],
            "heat_before": text_of(eight_bits(map_before, high)),
            "heat_after": text_of(eight_bits(map_after, high)),
            "heat_of": _read_from(subject),
            "changed": float(np.linalg.norm(after - before)) / size if size > 0 else 0.0,
        }
    )


def _steering(subject: Subject, finding: Disentanglement, factors: Mapping[int, float], prefix: bool) -> ExitStack:
    """One steering a factor: they are applied one after the other."""
    import vitreous as vt

    with ExitStack() as stack:
        for factor in sorted(set(factors.values())):
            chosen = [number for number, own in factors.items() if own == factor]
            stack.enter_context(vt.steer(subject, finding, amplify=chosen, alpha=factor, prefix=prefix))
        return stack.pop_all()


def _read_from(subject: Subject) -> str:
    """Which map is shown: that of the class token, or of all patches together where there is none."""
    return "class" if subject.prefix[:1] == ("class",) else "patches"


def _looked(subject: Subject, x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The output (sample, channel) or (sample, token, channel), and a map (patch,).

    The map goes the long way, by autograd: the short one knows models as they were built, and not as they are steered.
    """
    from vitreous.lenses.tokens_autograd import autograd_rows, graph_of

    with torch.no_grad():
        output: Any = subject(x)
    last = subject.depth - 1
    patterns, found = graph_of(subject, x, [last])
    count = found[last].shape[1]
    tokens = torch.arange(1 if _read_from(subject) == "class" else count)
    seeds = {last: torch.ones_like(found[last][:, tokens])}
    rows = autograd_rows(patterns, found, seeds, tokens)[last][0]
    rows = rows - torch.eye(count, device=rows.device)[tokens]  # what a token has of itself, by the skip connections
    return output.float().cpu().numpy(), rows.mean(0)[len(subject.prefix) :].detach().float().cpu().numpy()


def _plain(values: np.ndarray) -> list[float]:
    return [round(float(v), 6) for v in values]
