"""Describes the blocks of any subject for the backward pass over many tokens, from one watched forward pass.

There is no code a family: what feeds what says which linear layer and which norm is which, and autograd tells what lies
between them. A block that does not fit the picture is refused by `Unread`, and the lens takes the long way.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

import torch
from torch import Tensor, nn

from vitreous.hooks import Recording, capture
from vitreous.kernels.token_layers import AttentionPart, Layer, MlpPart, Norm, Norms, Pull
from vitreous.lenses.tokens_watch import Core, Linear, Normed, Seen, Unread, watching
from vitreous.models.subject import Subject


def read_layers(subject: Subject, x: Tensor, blocks: Sequence[int]) -> tuple[list[Layer], dict[int, Tensor]]:
    """The blocks up to the deepest wanted one, and what each wanted block gave (image, token, channel)."""
    last = max(blocks)
    layers: list[Layer] = []
    sites = [f"blocks.{b}.{part}" for b in range(last + 1) for part in ("attn.out", "mlp.out", "resid.out")]
    with ExitStack() as stack:
        stack.enter_context(torch.enable_grad())
        rec: Recording

        def done(seen: Seen) -> None:
            layers.append(_layer(subject, len(layers), seen, rec))

        for block in subject.blocks[: last + 1]:
            stack.enter_context(watching(subject.module.get_submodule(block.path), done))
        rec = stack.enter_context(capture(subject, sites, stop=True))  # its hooks run last, and end the pass
        subject(x)
        return layers, {b: rec[f"blocks.{b}.resid.out"].detach() for b in blocks}


def _layer(subject: Subject, index: int, seen: Seen, rec: Recording) -> Layer:
    core, own = seen.core, subject.blocks[index].norms
    if core is None:
        raise Unread("no attention was seen")
    if not 0 < seen.before < len(seen.linears) or len(seen.linears) < seen.before + 3:
        raise Unread("another number of linear layers than attention and an MLP have")
    first, out, *inner, last = seen.linears[: seen.before], *seen.linears[seen.before :]
    named = [_of(seen.norms, subject.module.get_submodule(path)) for path in own]
    roles = [Norms(), Norms()]
    streams: list[Norm | None] = [None, None]
    for k, (norm, entry, end) in enumerate(zip(named, (first[0], inner[0]), (out, last), strict=True)):
        inside = next((n for n in seen.norms if n.module is not norm.module and _feeds(n, end)), None)
        made = _norm(norm)
        before = made if _feeds(norm, entry) else None
        after = made if before is None and not subject.family.normed_stream else None
        streams[k] = made if before is None and after is None else None
        roles[k] = Norms(before, None if inside is None else _norm(inside), after)
    added = [rec[f"blocks.{index}.{part}"] for part in ("attn.out", "mlp.out")]
    attention = _attention(core, first, out, roles[0], _entered(seen, out), added[0])
    mlp = _mlp(inner, last, roles[1], _entered(seen, last), added[1])
    causal = subject.modality == "text" and not bool(core.A.triu(1).any())
    return Layer(attention, mlp, (streams[0], streams[1]), causal)


def _of(norms: Sequence[Normed], module: nn.Module) -> Normed:
    found = next((n for n in norms if n.module is module), None)
    if found is None:
        raise Unread("a norm that was passed over")
    return found


def _feeds(norm: Normed, linear: Linear) -> bool:
    return norm.left.data_ptr() == linear.entered.data_ptr()


def _entered(seen: Seen, linear: Linear) -> Tensor:
    """What entered the linear layer, or a norm just before it."""
    return next((n.entered for n in seen.norms if _feeds(n, linear)), linear.entered)


def _norm(event: Normed) -> Norm:
    x = event.entered.detach()
    weights = dict(event.module.named_parameters(recurse=False))
    gain = weights["weight"].detach() if "weight" in weights else torch.ones_like(x[0, 0])
    if isinstance(event.module, nn.LayerNorm):
        x = x - x.mean(-1, keepdim=True)
        inverse = (x.square().mean(-1, keepdim=True) + event.module.eps).rsqrt()
        return Norm(x * inverse, inverse, gain, True)
    shaped = x * gain  # an RMSNorm by any name gives gain · x · inverse
    inverse = (event.left.detach() * shaped).sum(-1, keepdim=True) / shaped.square().sum(-1, keepdim=True)
    return Norm(x * inverse, inverse, gain, False)


def _attention(
    core: Core, first: Sequence[Linear], out: Linear, norms: Norms, entered: Tensor, added: Tensor
) -> AttentionPart:
    sources = [_source(used, first) for used in (core.q, core.k, core.v)]
    places = _selection(entered.reshape(core.leaf.shape), core.leaf)
    if places is None:
        raise Unread("something between attention and the linear layer that follows it")
    if norms.inside is not None and not torch.equal(places, places.sort().values):
        raise Unread("heads in another order before a norm")
    weight = out.weight[:, _range(places.argsort())]
    weights, pulls = zip(*sources, strict=True)
    q, k, v = (side.detach() for side in (core.q, core.k, core.v))
    scale = _layer_scale(out, added, norms)
    return AttentionPart(core.A.detach(), q, k, v, core.scale, weights, pulls, weight, scale, norms)


def _range(places: Tensor) -> Tensor | slice:
    """Neighbours in order as a slice: a matrix is then looked at and not copied."""
    first = int(places[0])
    plain = torch.equal(places, torch.arange(first, first + len(places), device=places.device))
    return slice(first, first + len(places)) if plain else places


def _source(used: Tensor, linears: Sequence[Linear]) -> tuple[Tensor, Pull | None]:
    """The matrix that made queries, keys or values, and the way back to its output if that is more than reordering."""
    for linear in linears:
        if torch.autograd.grad(used.sum(), linear.leaf, retain_graph=True, allow_unused=True)[0] is not None:
            places = _selection(used.transpose(1, 2).flatten(2), linear.leaf)
            return (
                (linear.weight, partial(_pull, used, linear.leaf)) if places is None else (linear.weight[places], None)
            )
    raise Unread("queries, keys or values that come from no linear layer of the block")


def _pull(used: Tensor, leaf: Tensor, g: Tensor) -> Tensor:
    (back,) = torch.autograd.grad(used, leaf, g.to(used.dtype), is_grads_batched=True, retain_graph=True)
    return back.reshape(len(g), used.shape[0], used.shape[2], -1).to(g.dtype)


def _selection(value: Tensor, leaf: Tensor) -> Tensor | None:
    """Where each channel of `value` (image, token, channel) lies in `leaf` (image, token, output); None if changed.

    The gradient of numbered channels carries the numbers back to where the channels came from.
    """
    shape = value.shape[:2]
    numbers = torch.arange(1, value.shape[-1] + 1, dtype=value.dtype, device=value.device)
    (back,) = torch.autograd.grad(value, leaf, numbers.expand_as(value), retain_graph=True)
    found = back.reshape(*shape, -1)[0, 0]
    places = found.argsort()[-len(numbers) :]
    same = torch.equal(found[places], numbers) and torch.equal(leaf.reshape(*shape, -1)[..., places], value)
    return places if same else None


def _layer_scale(linear: Linear, added: Tensor, norms: Norms) -> Tensor | None:
    """How what the branch adds depends on what its last linear layer gave: (channel,), None for just so."""
    if norms.after is not None:
        return None
    (slope,) = torch.autograd.grad(added.sum(), linear.leaf, retain_graph=True)
    scale = slope.reshape(-1, slope.shape[-1])[0]
    return None if torch.equal(scale, torch.ones_like(scale)) else scale


def _mlp(inner: Sequence[Linear], last: Linear, norms: Norms, hidden: Tensor, added: Tensor) -> MlpPart:
    """One slope a hidden unit and first layer is all there is: activation functions and gates do not mix units."""
    leaves = [linear.leaf for linear in inner]
    slopes = torch.autograd.grad(hidden.sum(), leaves, retain_graph=True)
    shape = (*added.shape[:2], -1)
    ways: list[tuple[Tensor, Tensor]] = []
    for slope, linear in zip(slopes, inner, strict=True):
        parts = slope.reshape(shape).split(hidden.shape[-1], -1)
        ways += zip(parts, linear.weight.split(hidden.shape[-1]), strict=True)
    return MlpPart(tuple(ways), last.weight, _layer_scale(last, added, norms), norms)
