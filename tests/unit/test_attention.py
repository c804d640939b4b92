from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import vitreous as vt
from vitreous.attention import probabilities
from vitreous.errors import ModelError, SiteError

X = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("mask", [None, "bool", "float"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_probabilities_reproduce_torchs_own_attention(mask, causal, scale):
    if mask and causal:
        pytest.skip("torch refuses both at once")
    q, k, v = (random(2, 4, 5, 8, seed=s) for s in range(3))
    m = {None: None, "bool": random(5, 5) > -1, "float": random(5, 5)}[mask]
    if mask == "bool":
        m[:, 0] = True  # a row that sees nothing is undefined
    A = probabilities(q, k, m, causal, scale)
    torch.testing.assert_close(A @ v, F.scaled_dot_product_attention(q, k, v, m, 0.0, causal, scale=scale))


def slow_twin(tiny, x):
    """Attention of block 0 written out from the weights, one head at a time."""
    block = tiny.module.blocks[0]
    with vt.capture(tiny, "blocks.0.resid.in") as rec:
        tiny(x)
    h = block.norm1(rec["blocks.0.resid.in"])
    n, t, _ = h.shape
    A = torch.empty(n, 4, t, t)
    qkv = h @ block.attn.qkv.weight.T + block.attn.qkv.bias
    for i in range(4):
        q, k = (qkv[..., 32 * s + 8 * i : 32 * s + 8 * i + 8] for s in range(2))
        A[:, i] = torch.softmax(q @ k.transpose(1, 2) / 8**0.5, -1)
    return A


def test_patterns_agree_with_the_slow_twin(tiny):
    with torch.no_grad(), vt.capture(tiny, "blocks.0.attn.pattern") as rec:
        tiny(X)
        torch.testing.assert_close(rec["blocks.0.attn.pattern"], slow_twin(tiny, X))


def test_gradients_agree_with_attention_written_out(tiny):
    """The same module with its fused kernel off puts A into the graph by itself."""
    with vt.open_attention(tiny) as fused:
        y = tiny(X)
        gradients = fused.gradients(y[:, 2].sum())
    for block in tiny.module.blocks:
        block.attn.fused_attn = False
    with vt.open_attention(tiny) as written:
        expected = written.gradients(tiny(X)[:, 2].sum())
    for b in range(3):
        torch.testing.assert_close(gradients[b], expected[b], rtol=1e-4, atol=1e-7)


def test_finite_differences_agree(tiny):
    """The gradient with respect to A is what a small change of A does to the output."""
    tiny.module.double()
    x = X.double()
    with vt.open_attention(tiny) as attention:
        g = attention.gradients(tiny(x)[:, 0].sum())[1]
    direction = random(*g.shape, seed=5).double()
    with torch.no_grad():
        moved = []
        for sign in (1, -1):
            with vt.patch(tiny, {"blocks.1.attn.pattern": lambda A, s=sign: A + s * 1e-6 * direction}):
                moved.append(tiny(x)[:, 0].sum())
    torch.testing.assert_close((moved[0] - moved[1]) / 2e-6, (g * direction).sum(), rtol=1e-5, atol=1e-8)


def test_frozen_models_have_gradients_too(tiny):
    tiny.module.requires_grad_(False)
    with vt.open_attention(tiny) as attention:
        gradients = attention.gradients(tiny(X).sum())
    assert all(g.norm() > 0 for g in gradients.values())


def test_batched_gradients(tiny):
    """One call for many targets, as token maps need it."""
    with vt.open_attention(tiny) as attention:
        y = tiny(X)
        targets = torch.eye(7)[:, None].expand(7, 2, 7)
        (batched,) = torch.autograd.grad(y, [attention[0]], targets, is_grads_batched=True, retain_graph=True)
        one = torch.autograd.grad(y, [attention[0]], targets[3])[0]
    torch.testing.assert_close(batched[3], one)


def test_inference_mode_and_half_precision(tiny):
    with torch.inference_mode(), vt.open_attention(tiny) as attention:
        y = tiny(X)
    assert torch.equal(y, tiny(X)) and attention[-1].shape == (2, 4, 19, 19)
    tiny.module.bfloat16()
    with torch.no_grad(), vt.open_attention(tiny) as attention:
        assert torch.equal(tiny(X), tiny(X))
    assert attention[0].dtype == torch.bfloat16


def test_refusals(tiny):
    with vt.open_attention(tiny) as attention:
        pass
    with pytest.raises(SiteError, match="showed no attention in the last pass"):
        attention[0]
    tiny.module.train()
    for block in tiny.module.blocks:
        block.attn.attn_drop.p = 0.1
    with pytest.raises(ModelError, match="dropout"), vt.open_attention(tiny):
        tiny(X)


@pytest.mark.parametrize("way", ["another key", "a mask by position"])
def test_multihead_attention_that_is_not_replayed_is_refused(way):
    """Its forward pass is replayed from one input: anything else would show an attention that never was."""
    from vitreous.attention import _open_multihead

    module = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    module.register_forward_hook(_open_multihead(module, lambda _: None), with_kwargs=True)
    x = random(1, 5, 8, seed=1)
    module(x, x, x, need_weights=False)
    with pytest.raises(ModelError, match="only plain batch-first self-attention"):
        if way == "another key":
            module(x, random(1, 5, 8, seed=2), x)
        else:
            module(x, x, x, None, False, torch.ones(5, 5, dtype=torch.bool).triu(1))


def test_a_model_without_attention_is_refused():
    import timm

    subject = vt.wrap(timm.create_model("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 8, 8, 8)).eval())
    with pytest.raises(SiteError, match="has no attention"), vt.open_attention(subject):
        pass
