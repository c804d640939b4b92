"""What models are called on pages and in folders, and which of their blocks are looked at when nobody says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vitreous.models.subject import Subject


def hidden_blocks(depth: int) -> tuple[int, ...]:
    """An early, a middle and the last block."""
    return tuple(sorted({depth // 4, depth // 2, depth - 1}))


def about(subject: Subject) -> str:
    """What a model is, in a few words."""
    from vitreous.models.bundled import BUNDLED

    known = BUNDLED.get(subject.name.removeprefix("bundled:"))
    size = f"{subject.depth} blocks, {subject.width} wide"
    return f"{known} ({size})" if known else f"{subject.family.name}, {size}"


def short_names(names: Sequence[str]) -> list[str]:
    """Names for folders and charts: without their source, with nothing a file system minds, no two alike."""
    plain = [re.sub(r"[^\w.-]+", "-", name.rpartition(":")[2]).strip("-.") or "model" for name in names]
    return [name if plain.count(name) == 1 else f"{name}-{k}" for k, name in enumerate(plain)]
