"""Colour names as regions, not as constants: every object gets its own jittered hue, saturation and brightness."""

from __future__ import annotations

from typing import NamedTuple

from vitreous.scenery.draws import Draws

Tone = tuple[float, float, float]
"""Red, green, blue in [0, 1]."""


class Region(NamedTuple):
    """Where a colour name lies: hue in turns (may pass 1), saturation and brightness, each as (low, high)."""

    hue: tuple[float, float]
    saturation: tuple[float, float]
    brightness: tuple[float, float]


COLOURS: dict[str, Region] = {
    "red": Region((0.975, 1.005), (0.78, 0.95), (0.74, 0.92)),
    "orange": Region((0.062, 0.088), (0.82, 0.98), (0.92, 1.0)),
    "yellow": Region((0.132, 0.155), (0.70, 0.92), (0.93, 1.0)),
    "green": Region((0.27, 0.37), (0.55, 0.85), (0.50, 0.74)),
    "teal": Region((0.475, 0.515), (0.60, 0.90), (0.58, 0.80)),
    "blue": Region((0.585, 0.645), (0.68, 0.92), (0.70, 0.95)),
    "purple": Region((0.735, 0.785), (0.52, 0.78), (0.52, 0.76)),
    "pink": Region((0.895, 0.94), (0.38, 0.58), (0.92, 1.0)),
    "brown": Region((0.05, 0.085), (0.55, 0.75), (0.34, 0.50)),
    "white": Region((0.08, 0.16), (0.0, 0.06), (0.93, 1.0)),
}


def tone(hue: float, saturation: float, brightness: float) -> Tone:
    """Hue (in turns), saturation and brightness -> red, green, blue."""
    parts = []
    for offset in (1.0, 2.0 / 3.0, 1.0 / 3.0):
        ramp = min(max(abs((hue + offset) % 1.0 * 6.0 - 3.0) - 1.0, 0.0), 1.0)
        parts.append(brightness * (1.0 - saturation * (1.0 - ramp)))
    return parts[0], parts[1], parts[2]


def light(colour: Tone) -> float:
    """How bright a tone looks."""
    return 0.3 * colour[0] + 0.59 * colour[1] + 0.11 * colour[2]


def object_tones(name: str, draws: Draws) -> tuple[Tone, Tone]:
    """The colour itself and the second tone of its texture: a shade or tint of the same hue, cream or charcoal.

    The second tone is always clearly lighter or darker than the first, or the texture could not be seen.
    """
    hue, saturation, brightness = (draws.between(*span) for span in COLOURS[name])
    first = tone(hue, saturation, brightness)
    seconds = (
        tone(hue, min(saturation * 1.1, 1.0), brightness * 0.52),
        tone(hue, saturation * 0.42, brightness + (1.0 - brightness) * 0.85),
        tone(0.11, 0.10, 0.97),
        tone(0.62, 0.22, 0.20),
    )
    seen = [second for second in seconds if abs(light(second) - light(first)) > 0.2]
    return first, draws.pick(seen)


def background_tones(name: str, draws: Draws) -> tuple[Tone, Tone]:
    """A dark and a light tone of a muted version of the colour, a little apart in hue."""
    hue, saturation, brightness = (draws.between(*span) for span in COLOURS[name])
    drift = draws.between(-0.035, 0.035)
    muted, depth = draws.between(0.5, 0.8), draws.between(0.74, 0.92)
    contrast = draws.between(0.13, 0.24)
    dark = tone(hue - drift, saturation * muted, brightness * (depth - contrast))
    pale = tone(hue + drift, saturation * muted * 0.8, min(brightness * (depth + contrast), 1.0))
    return dark, pale
