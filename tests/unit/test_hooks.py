from __future__ import annotations

import pytest
import torch

import vitreous as vt
from vitreous.errors import SiteError

X = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def test_values_are_what_a_hand_written_hook_gets(tiny):
    seen = {}
    handle = tiny.module.blocks[1].mlp.fc2.register_forward_hook(lambda _, a, o: seen.update(hidden=a[0], out=o))
    with torch.no_grad(), vt.capture(tiny, ["blocks.1.mlp.hidden", "blocks.1.mlp.out"]) as rec:
        tiny(X)
    handle.remove()
    assert torch.equal(rec["blocks.1.mlp.hidden"], seen["hidden"])
    scaled = tiny.module.blocks[1].ls2(seen["out"])
    assert torch.equal(rec["blocks.1.mlp.out"], scaled), "mlp.out is what is added to the stream: after LayerScale"


def test_fused_queries_keys_values_are_the_right_thirds(tiny):
    with torch.no_grad(), vt.capture(tiny, ["blocks.0.attn.[qkv]".replace("[qkv]", c) for c in "qkv"]) as rec:
        tiny(X)
        with vt.capture(tiny, "blocks.0.attn.qkv") as raw:
            tiny(X)
    joined = torch.cat([rec[f"blocks.0.attn.{c}"] for c in "qkv"], -1)
    assert torch.equal(joined, raw["blocks.0.attn.qkv"])


def test_negative_indices_globs_aliases_and_module_paths(tiny):
    with (
        torch.no_grad(),
        vt.capture(tiny, ["blocks.-1.resid.out", "blocks.*.mlp.out", "norm", "blocks.0.norm1:in"]) as rec,
    ):
        tiny(X)
    assert list(rec) == ["blocks.0.mlp.out", "blocks.1.mlp.out", "blocks.2.mlp.out", "blocks.2.resid.out",
                         "blocks.0.norm1:in", "norm"]  # fmt: skip
    assert rec["blocks.-1.resid.out"] is rec["blocks.2.hook_resid_post"]
    assert torch.equal(rec["norm"], tiny.module.norm(rec["blocks.-1.resid.out"]))


def test_hooks_are_gone_after_the_block_and_after_an_exception(tiny):
    with vt.capture(tiny, tiny.sites):
        assert tiny.hooks > 0
    assert tiny.hooks == 0
    with pytest.raises(RuntimeError, match="mine"), vt.capture(tiny, tiny.sites):
        raise RuntimeError("mine")
    with pytest.raises(RuntimeError), vt.capture(tiny, tiny.sites):
        tiny(torch.zeros(1, 5, 32, 32))  # five colours: fails inside the model
    with pytest.raises(ZeroDivisionError), vt.patch(tiny, {"blocks.1.attn.pattern": lambda _: 1 / 0}):
        tiny(X)  # fails inside a block while its attention is open
    assert tiny.hooks == 0
    assert torch.overrides._get_current_function_mode() is None


def test_the_pass_stops_at_the_deepest_site(tiny):
    ran = []
    for i, block in enumerate(tiny.module.blocks):
        block.register_forward_pre_hook(lambda *_, i=i: ran.append(i))
    with torch.no_grad(), vt.capture(tiny, ["blocks.0.mlp.out", "blocks.1.attn.pattern"], stop=True) as rec:
        assert tiny(X) is None
    assert ran == [0, 1]
    assert len(rec) == 2
    assert torch.overrides._get_current_function_mode() is None, "stopping inside a block closes its attention"
    ran.clear()
    with torch.no_grad(), vt.capture(tiny, "blocks.0.mlp.out") as rec:
        assert tiny(X).shape == (2, 7)
    assert ran == [0, 1, 2], "without stop the output is needed"


def test_each_pass_starts_anew(tiny):
    with torch.no_grad(), vt.capture(tiny, "blocks.0.resid.out") as rec:
        tiny(X)
        first = rec["blocks.0.resid.out"]
        tiny(X + 1)
    assert not torch.equal(first, rec["blocks.0.resid.out"])


def test_patch_is_seen_by_a_later_capture_and_by_the_output(tiny):
    with torch.no_grad():
        plain = tiny(X)
        with (
            vt.patch(tiny, {"blocks.*.mlp.out": lambda x: torch.zeros_like(x)}),
            vt.capture(tiny, "blocks.*.resid.*") as rec,
        ):
            cut = tiny(X)
    assert not torch.equal(plain, cut)
    assert torch.equal(rec["blocks.1.resid.mid"], rec["blocks.1.resid.out"]), "nothing was added by the MLP"


def test_patched_attention_is_used(tiny):
    """Attention that looks only at itself makes every token blind to the others."""
    eye = {"blocks.*.attn.pattern": lambda A: torch.eye(A.shape[-1]).expand_as(A)}
    changed = X.clone()
    changed[:, :, :8, :8] += 1  # only the first patch
    with torch.no_grad(), vt.patch(tiny, eye), vt.capture(tiny, "blocks.-1.resid.out") as rec:
        tiny(X)
        before = rec["blocks.-1.resid.out"]
        tiny(changed)
        after = rec["blocks.-1.resid.out"]
    moved = (before - after).abs().amax((0, 2)) > 0
    assert moved.nonzero().flatten().tolist() == [3], "prefix 3, so token 3 is the first patch"


def test_gradient_flows_through_what_is_captured(tiny):
    with vt.capture(tiny, "blocks.0.resid.out") as rec:
        y = tiny(X)
    (g,) = torch.autograd.grad(y.sum(), rec["blocks.0.resid.out"])
    assert g.shape == (2, 19, 32) and g.norm() > 0


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("blocks.0.mlp.hiden", "nearest:  blocks.0.mlp.hidden"),
        ("blocks.3.mlp.out", "block 3 does not exist"),
        ("blocks.-4.mlp.out", "blocks -3 to 2"),
        ("block.*.mlp", "no site 'block.*.mlp'"),
    ],
)
def test_what_does_not_exist_is_refused_by_name(tiny, asked, message):
    with pytest.raises(SiteError) as error, vt.capture(tiny, asked):
        pass
    assert message in str(error.value)


def test_reading_what_was_not_asked_for_says_so(tiny):
    with vt.capture(tiny, "blocks.0.mlp.out") as rec:
        with pytest.raises(SiteError, match="no forward pass has reached it"):
            rec["blocks.0.mlp.out"]
        tiny(X)
    with pytest.raises(SiteError, match="was not asked for"):
        rec["blocks.1.mlp.out"]


def test_replacements_must_keep_their_shape(tiny):
    with pytest.raises(SiteError, match="keep the shape"), vt.patch(tiny, {"blocks.0.mlp.out": lambda x: x[:, :1]}):
        tiny(X)
    two = {"blocks.0.mlp.out": lambda x: x, "blocks.*.mlp.out": lambda x: x}
    with pytest.raises(SiteError, match="two replacements"), vt.patch(tiny, two):
        pass


def test_a_module_used_twice_cannot_be_a_site(tiny):
    tiny.module.blocks[1] = tiny.module.blocks[0]
    with pytest.raises(SiteError, match="fired twice"), vt.capture(tiny, "blocks.0.resid.out"):
        tiny(X)
