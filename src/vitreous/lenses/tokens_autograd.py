"""The long way: autograd follows many tokens back at once, through any module with opened attention.

For blocks that `tokens_read` does not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from vitreous.attention import open_attention
from vitreous.hooks import capture
from vitreous.kernels.token_backward import Order
from vitreous.models.subject import Subject


def graph_of(subject: Subject, x: Tensor, blocks: Sequence[int]) -> tuple[list[Tensor], dict[int, Tensor]]:
    """A (image, head, query, key) of the blocks up to the deepest wanted one, and what each wanted block gave."""
    last = max(blocks)
    sites = [f"blocks.{b}.resid.out" for b in sorted({*blocks, last})]
    with torch.enable_grad(), open_attention(subject) as attention, capture(subject, sites, stop=True) as rec:
        subject(x)
        return [attention[b] for b in range(last + 1)], {b: rec[f"blocks.{b}.resid.out"] for b in blocks}


def autograd_rows(
    patterns: Sequence[Tensor],
    outputs: Mapping[int, Tensor],
    seeds: Mapping[int, Tensor],
    tokens: Tensor,
    *,
    order: Order = "rollout",
    budget: int = 2**27,
) -> dict[int, Tensor]:
    """The same as `kernels.token_backward.token_rows`, from a graph: {block: (image, seed, source token)}."""
    found = {}
    for block, z in outputs.items():
        used = patterns[: block + 1]
        a_seed = 3 * sum(A.numel() for A in used) * z.element_size()
        share = max(1, budget // a_seed)
        rows = [
            _rows(used, z, seeds[block][:, first : first + share], tokens[first : first + share], order)
            for first in range(0, len(tokens), share)
        ]
        found[block] = torch.cat(rows, 1)
    return found


def _rows(patterns: Sequence[Tensor], z: Tensor, seeds: Tensor, tokens: Tensor, order: Order) -> Tensor:
    count, length = len(tokens), z.shape[1]
    start = z.new_zeros(count, *z.shape)
    start[torch.arange(count), :, tokens] = seeds.transpose(0, 1).to(z.dtype)
    gradients = torch.autograd.grad(z, patterns, start, retain_graph=True, is_grads_batched=True)
    v = torch.eye(length, dtype=z.dtype, device=z.device)[tokens].expand(len(z), -1, -1)
    blocks = list(zip(gradients, patterns, strict=True))
    with torch.no_grad():
        for g, A in blocks if order == "printed" else reversed(blocks):
            more = (g.relu() * A).mean(2)  # seed, image, query, key: C of eq. 4 without the identity
            v = v + torch.einsum("isq,siqk->isk", v, more)  # eq. 5: row i times C
    return v
