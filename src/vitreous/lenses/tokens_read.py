"""Describes the blocks of any subject for the backward pass over many tokens, from one watched forward pass.

There is no code a family: what feeds what says which linear layer and which norm is which, and autograd tells what lies
between them. Blocks that print alike are built alike, so this is found out once a kind, and one block of each kind is
run again by itself to compare its gradients with autograd's. A block that does not fit the picture is refused by
`Unread`, and the lens takes the long way.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from vitreous.attention import tap
from vitreous.hooks import capture
from vitreous.kernels.token_backward import past_block
from vitreous.kernels.token_layers import AttentionPart, Layer, MlpPart, Norm, Norms, Pull
from vitreous.lenses.tokens_watch import Core, Given, Linear, Normed, Seen, Unread, watching
from vitreous.memory import give_back
from vitreous.models.subject import Subject

SHAPED = ("CloneBackward0", "ViewBackward0", "UnsafeViewBackward0", "TransposeBackward0")
TOLERANCE = 1e-3  # of the largest gradient; rounding stays far below, another computation far above

Places = Tensor | slice


@dataclass(frozen=True)
class _Role:
    """Of one branch: the number of its norm among those that ran, where it stands, and that of one inside if any.

    There is none where the model puts an identity in its place.
    """

    norm: int | None
    stands: Literal["before", "after", "stream"]
    inside: int | None


@dataclass(frozen=True)
class Plan:
    """How blocks of one kind are built: (linear layer, rows of it) for q, k, v; rows None where more lies between.

    `scaled` says whether anything happens to what the last linear layer of a branch gives before it is added.
    """

    sources: tuple[tuple[int, Places | None], ...]
    heads: Places
    roles: tuple[_Role, _Role]
    scaled: tuple[bool, bool]
    text: bool


#: What was found out and compared, by module and kind of block: weights may change, not how a block is built.
_KNOWN: WeakKeyDictionary[nn.Module, dict[str, Plan]] = WeakKeyDictionary()


class Reader:
    """Model inputs to layers, up to the deepest wanted block. A module with hooks is looked at anew, block by block."""

    def __init__(self, subject: Subject, blocks: Sequence[int]) -> None:
        self.subject, self.blocks = subject, tuple(blocks)
        self.modules = [subject.module.get_submodule(b.path) for b in subject.blocks[: max(blocks) + 1]]
        self.kinds = [repr(module) for module in self.modules]
        self.known = _KNOWN.setdefault(subject.module, {})
        if subject.hooks:  # they may do anything to any block
            self.kinds, self.known = [f"{k} {kind}" for k, kind in enumerate(self.kinds)], {}

    def __call__(self, x: Tensor) -> tuple[list[Layer], dict[int, Tensor]]:
        """All blocks, and what each wanted one gave (image, token, channel)."""
        layers: list[Layer] = []
        plans, unknown = dict(self.known), dict[int, Given]()
        parts = ("attn.out", "mlp.out")
        sites = [f"blocks.{b}.{part}" for b in range(len(self.modules)) for part in parts]
        with ExitStack() as stack:
            stack.enter_context(torch.enable_grad())
            branches = stack.enter_context(capture(self.subject, sites))

            def done(seen: Seen) -> None:
                index = len(layers)
                kind = self.kinds[index]
                added = [branches[f"blocks.{index}.{part}"] for part in parts]
                branches.clear()  # a block's graph goes with it, before the next block makes its own
                if kind not in plans:
                    plans[kind] = _plan(self.subject, index, seen, *added)
                    unknown[index] = seen.given
                layers.append(_described(plans[kind], seen, *added))

            for module in self.modules:
                stack.enter_context(watching(module, done))
            wanted = [f"blocks.{b}.resid.out" for b in self.blocks]
            rec = stack.enter_context(capture(self.subject, wanted, stop=True))  # its hooks run last, and end the pass
            self.subject(x)
        for index, given in unknown.items():
            _compare(self.subject, index, given, layers[index])
        if unknown:
            give_back()  # matrices of one whole block were folded to compare it
        self.known.update(plans)
        return layers, {b: rec[f"blocks.{b}.resid.out"].detach() for b in self.blocks}


# -- how a kind of block is built


def _plan(subject: Subject, index: int, seen: Seen, attended: Tensor, added: Tensor) -> Plan:
    core = seen.core
    if core is None:
        raise Unread("no attention was seen")
    if not 0 < seen.before < len(seen.linears) - 2:
        raise Unread("another number of linear layers than attention and an MLP have")
    first, out, inner, last = _linears(seen)
    sources = tuple(_source(used, first) for used in (core.q, core.k, core.v))
    places = _selection(_entered(seen, out).reshape(core.leaf.shape), core.leaf)
    if places is None:
        raise Unread("something between attention and the linear layer that follows it")
    paths = subject.blocks[index].norms
    normed = subject.family.normed_stream
    roles = [
        _role(seen, subject.module.get_submodule(path), entry, end, normed)
        for path, entry, end in zip(paths, (first[0], inner[0]), (out, last), strict=True)
    ]
    heads = _range(places.argsort())
    if roles[0].inside is not None and not isinstance(heads, slice):
        raise Unread("heads in another order before a norm")
    scaled = tuple(not _same(*pair) for pair in ((attended, out.leaf), (added, last.leaf)))
    return Plan(sources, heads, (roles[0], roles[1]), (scaled[0], scaled[1]), subject.modality == "text")


def _same(value: Tensor, leaf: Tensor) -> bool:
    """Whether the value is the leaf's copy, at most in another shape: the graph says so."""
    node: Any = value.grad_fn
    while node is not None and node.name() in SHAPED:
        node = node.next_functions[0][0]
    return node is not None and node.name() == "torch::autograd::AccumulateGrad" and node.variable is leaf


def _linears(seen: Seen) -> tuple[list[Linear], Linear, list[Linear], Linear]:
    """Those of queries, keys and values; the one after attention; the MLP's first ones, and its last."""
    return seen.linears[: seen.before], seen.linears[seen.before], seen.linears[seen.before + 1 : -1], seen.linears[-1]


def _role(seen: Seen, module: nn.Module, entry: Linear, end: Linear, normed_stream: bool) -> _Role:
    number = next((k for k, norm in enumerate(seen.norms) if norm.module is module), None)
    if number is None and not isinstance(module, nn.Identity):
        raise Unread("a norm that was passed over")
    inside = next((k for k, norm in enumerate(seen.norms) if k != number and _feeds(norm, end)), None)
    if number is None or _feeds(seen.norms[number], entry):
        return _Role(number, "before", inside)
    return _Role(number, "stream" if normed_stream else "after", inside)


def _feeds(norm: Normed, linear: Linear) -> bool:
    return norm.left.data_ptr() == linear.entered.data_ptr()


def _entered(seen: Seen, linear: Linear) -> Tensor:
    """What entered the linear layer, or a norm just before it."""
    return next((norm.entered for norm in seen.norms if _feeds(norm, linear)), linear.entered)


def _source(used: Tensor, linears: Sequence[Linear]) -> tuple[int, Places | None]:
    for number, linear in enumerate(linears):
        if torch.autograd.grad(used.sum(), linear.leaf, retain_graph=True, allow_unused=True)[0] is not None:
            places = _selection(used.transpose(1, 2).flatten(2), linear.leaf)
            return number, None if places is None else _range(places)
    raise Unread("queries, keys or values that come from no linear layer of the block")


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


def _range(places: Tensor) -> Places:
    """Neighbours in order as a slice: a matrix is then looked at and not copied."""
    first = int(places[0])
    plain = torch.equal(places, torch.arange(first, first + len(places), device=places.device))
    return slice(first, first + len(places)) if plain else places


# -- one block


def _described(plan: Plan, seen: Seen, attended: Tensor, added: Tensor) -> Layer:
    """`attended` and `added` are what attention and the MLP add to the stream."""
    core = seen.core
    assert core is not None
    first, out, inner, last = _linears(seen)
    norms, streams = [], []
    for role in plan.roles:
        made = {} if role.norm is None else {role.stands: _norm(seen.norms[role.norm])}
        inside = None if role.inside is None else _norm(seen.norms[role.inside])
        norms.append(Norms(made.get("before"), inside, made.get("after")))
        streams.append(made.get("stream"))
    weights, pulls = zip(*(_projection(core, k, first, plan) for k in range(3)), strict=True)
    q, k, v = (side.detach() for side in (core.q, core.k, core.v))
    scales = [
        _layer_scale(end, value) if scaled and norm.after is None else None
        for end, value, norm, scaled in zip((out, last), (attended, added), norms, plan.scaled, strict=True)
    ]
    attention = AttentionPart(
        core.A.detach(), q, k, v, core.scale, weights, pulls, out.weight[:, plan.heads], scales[0], norms[0]
    )
    ways = _ways(inner, _entered(seen, last), added.shape[:2])
    mlp = MlpPart(ways, last.weight, scales[1], norms[1])
    causal = plan.text and not bool(core.A.triu(1).any())
    return Layer(attention, mlp, (streams[0], streams[1]), causal)


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


def _projection(core: Core, side: int, linears: Sequence[Linear], plan: Plan) -> tuple[Tensor, Pull | None]:
    """The matrix of queries, keys or values, and the way back to its output if that is more than reordering."""
    number, places = plan.sources[side]
    linear = linears[number]
    if places is not None:
        return linear.weight[places], None
    return linear.weight, partial(_pull, (core.q, core.k, core.v)[side], linear.leaf)


def _pull(used: Tensor, leaf: Tensor, g: Tensor) -> Tensor:
    (back,) = torch.autograd.grad(used, leaf, g.to(used.dtype), is_grads_batched=True, retain_graph=True)
    return back.reshape(len(g), used.shape[0], used.shape[2], -1).to(g.dtype)


def _layer_scale(linear: Linear, added: Tensor) -> Tensor:
    """How what the branch adds depends on what its last linear layer gave: (channel,)."""
    (slope,) = torch.autograd.grad(added.sum(), linear.leaf, retain_graph=True)
    return slope.reshape(-1, slope.shape[-1])[0]


def _ways(inner: Sequence[Linear], hidden: Tensor, shape: torch.Size) -> tuple[tuple[Tensor, Tensor], ...]:
    """One slope a hidden unit and first layer is all there is: activation functions and gates do not mix units."""
    leaves = [linear.leaf for linear in inner]
    slopes = torch.autograd.grad(hidden.sum(), leaves, retain_graph=True, allow_unused=True)
    width = hidden.shape[-1]
    ways: list[tuple[Tensor, Tensor]] = []
    for slope, linear in zip(slopes, inner, strict=True):
        if slope is None:  # such as a steering's own, which runs beside the MLP
            raise Unread("a linear layer that the MLP's hidden units do not come from")
        if slope.shape[-1] % width:
            raise Unread("an MLP whose hidden units are not those of its first linear layers")
        ways += zip(slope.view(*shape, -1).split(width, -1), linear.weight.split(width), strict=True)
    return tuple(ways)


@torch.enable_grad()
def _compare(subject: Subject, index: int, given: Given, layer: Layer) -> None:
    """Runs the block once more by itself, and refuses it if its gradients are not those of the description."""
    patterns: list[Tensor] = []
    args, kwargs = given
    x = (args[0] if args else kwargs["hidden_states"]).detach().requires_grad_()
    block = subject.module.get_submodule(subject.blocks[index].path)
    with tap(subject, {index: patterns.append}):
        out: Any = block(x, *args[1:], **kwargs) if args else block(**{**kwargs, "hidden_states": x})
    out = out[0] if isinstance(out, tuple) else out
    g = torch.randn(out.shape, generator=torch.Generator().manual_seed(0)).to(out)
    expected = torch.autograd.grad(out, [patterns[0], x], g)
    found = past_block(layer, g[:, :, None])
    for mine, true in zip(found, (expected[0] * patterns[0], expected[1]), strict=True):
        if not (mine - true).abs().max() <= TOLERANCE * true.abs().max():
            raise Unread("a block does more than was read from it")
