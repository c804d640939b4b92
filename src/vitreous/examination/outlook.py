"""How long an examination will take: forward passes and units are counted, and one forward pass is timed."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from vitreous.examination.proof import SPOILED

if TYPE_CHECKING:
    from vitreous.examination.plan import Asked, Plan

TIMED = 4  # pictures in the pass that is timed
MAPS = 0.9  # forward passes that the map of one token after the last block costs
SPLIT = 0.1  # seconds to split a unit
SPREAD, NODE = 20.0, 5e-5  # seconds of the two t-SNEs for the universal space, and of each of its patches


def outlook(plan: Plan) -> dict[str, float]:
    """Seconds by what takes them, the longest first. A rough guess: within a factor of two or three."""
    found = {
        "recording": 0.0,
        "token maps": 0.0,
        "splitting units": 0.0,
        "the universal space": SPREAD,
        "evidence": 0.0,
    }
    for one in plan.models:
        once = seconds_a_picture(one, plan)
        found["recording"] += once * len(plan.images)
        found["the universal space"] += NODE * one.subject.depth * _tokens(one) * len(plan.close)
        for block in one.blocks:
            depth = (block + 1) / one.subject.depth
            units = len(one.units[block])
            found["splitting units"] += 2 * SPLIT * units  # once more on other patches, to see what stays
            if one.maps_attention:
                found["token maps"] += once * depth * MAPS * _tokens(one) * len(plan.maps_close(one))
                found["evidence"] += once * depth * 2 * SPOILED * units
    return dict(sorted(found.items(), key=lambda part: -part[1]))


def seconds_a_picture(one: Asked, plan: Plan) -> float:
    """Of a forward pass, by the clock; the first pass warms up."""
    import torch

    from vitreous.hooks import capture, evaluating

    x = one.subject.inputs([plan.images[k].image for k in range(min(TIMED, len(plan.images)))])
    site = f"blocks.{one.subject.depth - 1}.resid.out"
    times = []
    with evaluating(one.subject.module), torch.inference_mode():
        for _ in range(2):
            began = perf_counter()
            with capture(one.subject, site, stop=True) as seen:
                one.subject(x)
            seen[site].sum().item()  # waits for an accelerator, too
            times.append(perf_counter() - began)
    return times[-1] / len(x)


def spoken(found: dict[str, float]) -> str:
    """`about 6 min on this machine (token maps 5 min)`: the whole, and what takes a tenth of it or more."""
    whole = sum(found.values())
    most = [f"{name} {_span(seconds)}" for name, seconds in found.items() if seconds >= 0.1 * whole]
    return f"about {_span(whole)} on this machine ({', '.join(most)})"


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{max(5, 5 * round(seconds / 5))} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"


def _tokens(one: Asked) -> int:
    grid = one.subject.grid()
    assert grid is not None
    return grid.patches + len(one.subject.prefix)
