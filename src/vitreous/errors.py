"""Errors that say what happened, what was given, what is accepted, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence


class VitreousError(ValueError):
    """Base of every error raised on purpose.

    The message is put together here and nowhere else, so that no error forgets a part; `parts` has them one by one:

        no site 'blocks.0.mlp.acts' in timm ViT
          given:    'blocks.0.mlp.acts'
          accepted: blocks.0.attn.out, blocks.0.mlp.hidden, ...
          nearest:  blocks.0.mlp.hidden
          remedy:   `vitreous sites MODEL` lists them
    """

    def __init__(
        self, what: str, *, given: object = None, accepted: Sequence[str] | str | None = None, remedy: str | None = None
    ) -> None:
        parts = {"what": what}
        if given is not None:
            parts["given"] = repr(given)
        if isinstance(accepted, str):
            parts["accepted"] = accepted
        elif accepted is not None:
            names = [str(name) for name in accepted]
            shown = ", ".join(names[:20]) + (f", ... ({len(names)} in all)" if len(names) > 20 else "")
            parts["accepted"] = shown or "(nothing)"
            if isinstance(given, str) and (near := difflib.get_close_matches(given, names, 3, 0.5)):
                parts["nearest"] = ", ".join(near)
        if remedy is not None:
            parts["remedy"] = remedy
        self.parts: Mapping[str, str] = parts
        lines = [f"  {name + ':':<9} {text}" for name, text in parts.items() if name != "what"]
        super().__init__("\n".join([what, *lines]))


class ModelError(VitreousError):
    """A model cannot be loaded, or its architecture is not one we know."""


class SiteError(VitreousError):
    """A place in a model that does not exist, or cannot be recorded or replaced."""


class ImageError(VitreousError):
    """A picture, mask, label or data set folder that cannot be used."""


class StoreError(VitreousError):
    """An activation store that is damaged, or was made from something else."""


class SettingsError(VitreousError):
    """An argument outside of what is accepted."""


class JudgeError(VitreousError):
    """A judge that cannot be reached, or will not serve."""


class EngineError(VitreousError):
    """Worker processes or a cluster that cannot do the work."""
