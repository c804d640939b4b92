"""Named places in a model, the same names for every family.

    blocks.{i}.resid.in       what enters the block
    blocks.{i}.attn.q .k .v   the projections, before rotary positions or norms on them
    blocks.{i}.attn.pattern   attention probabilities (sample, head, query, key)
    blocks.{i}.attn.out       what attention adds to the residual stream (after LayerScale)
    blocks.{i}.resid.mid      resid.in + attn.out
    blocks.{i}.mlp.hidden     input of the MLP's second linear layer (for a gated MLP: the gated product)
    blocks.{i}.mlp.out        what the MLP adds to the residual stream (after LayerScale)
    blocks.{i}.resid.out      resid.mid + mlp.out

Where the stream itself is normalised (BERT), resid.mid is norm(resid.in + attn.out), and resid.out is
norm(resid.mid + mlp.out).

A module path of the model itself is a site too: `encoder.ln` (its output) or `encoder.ln:in` (its input).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from vitreous.errors import SiteError

PATTERN = "attn.pattern"
RESID_MID = "resid.mid"

#: In the order in which a forward pass meets them.
SITE_NAMES = (
    "resid.in",
    "attn.q",
    "attn.k",
    "attn.v",
    PATTERN,
    "attn.out",
    RESID_MID,
    "mlp.hidden",
    "mlp.out",
    "resid.out",
)

#: Names that people bring along from TransformerLens.
ALIASES = {
    "hook_in": "resid.in",
    "hook_out": "resid.out",
    "hook_resid_pre": "resid.in",
    "hook_resid_mid": "resid.mid",
    "hook_resid_post": "resid.out",
    "hook_attn_out": "attn.out",
    "hook_mlp_out": "mlp.out",
    "attn.hook_pattern": PATTERN,
    "mlp.hook_post": "mlp.hidden",
}


@dataclass(frozen=True)
class Site:
    """The input or output of one module, or an equal part of its channels.

    `path` may hold `{block}`, which stands for the path of a block. `part=(1, 3)` is the second of three equal parts:
    the keys of a fused query-key-value projection. `layout` says where the channels are in a picture-shaped activation;
    "linear" means: second if the module is a convolution, last otherwise.
    """

    path: str
    port: Literal["in", "out"] = "out"
    part: tuple[int, int] | None = None
    layout: Literal["tokens", "NCHW", "NHWC", "linear"] = "tokens"

    def at(self, block: str) -> Site:
        return replace(self, path=self.path.format(block=block))


def canonical(name: str, depth: int) -> str:
    """Resolves aliases and negative block indices: `blocks.-1.hook_mlp_out` -> `blocks.11.mlp.out`."""
    match = re.fullmatch(r"blocks\.(-?\d+)\.(.+)", name)
    if not match:
        return name
    index = int(match[1])
    if not -depth <= index < depth:
        raise SiteError(f"block {index} does not exist", given=name, accepted=f"blocks {-depth} to {depth - 1}")
    return f"blocks.{index % depth}.{ALIASES.get(match[2], match[2])}"


def expand(wanted: str | Sequence[str], names: Iterable[str], depth: int, modules: Iterable[str]) -> tuple[str, ...]:
    """Site names for what was asked, each once, block sites first in the order of the forward pass.

    A `*` stands for anything within one part of a name, `**` for any number of parts.
    """
    known = list(names)
    raw = set(modules)
    chosen: set[str] = set()
    for asked in (wanted,) if isinstance(wanted, str) else wanted:
        name = canonical(asked, depth)
        if "*" in name:
            hits = [n for n in known if _matches(name, n)] or sorted(n for n in raw if _matches(name, n))
        else:
            hits = [name] if name in known or name.removesuffix(":in") in raw else []
        if not hits:
            raise SiteError(
                f"no site {asked!r} here", given=asked, accepted=known, remedy="`vitreous sites MODEL` lists them"
            )
        chosen.update(hits)
    order = {name: i for i, name in enumerate(known)}
    return tuple(sorted(chosen, key=lambda name: (order.get(name, len(order)), name)))


def _matches(pattern: str, name: str) -> bool:
    parts = re.split(r"(\*\*|\*)", pattern)
    regex = "".join({"**": ".+", "*": r"[^.]+"}.get(part) or re.escape(part) for part in parts)
    # `blocks.*.*` should mean every site of every block although a site name has two parts
    return bool(re.fullmatch(regex, name) or (pattern.endswith(".*") and re.fullmatch(regex + r"\.[^.]+", name)))
