"""Token maps against one autograd call a token, for every family and every way through the kernel."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import warnings
import weakref
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest
import torch

import vitreous as vt
from vitreous.errors import ImageError, ModelError, SettingsError, StoreError
from vitreous.kernels import token_backward
from vitreous.kernels.token_backward import cheaper_formed, token_rows
from vitreous.kernels.token_layers import AttentionPart, Space
from vitreous.laws import example_input
from vitreous.lenses import tokens_read
from vitreous.lenses.tokens_read import Reader
from vitreous.lenses.tokens_watch import Unread

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))
sys.path.insert(0, str(Path(__file__).parents[1] / "reference"))
from zoo import ZOO, build

from tokens import slow_maps, slow_rows

WEIGHTS = torch.randn(32, generator=torch.Generator().manual_seed(3))
X = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def exact_rows(subject, x, *args):
    """The twin in double precision: in single precision it is the twin that is off."""
    double = vt.wrap(copy.deepcopy(subject.module).double(), family=subject.family)
    x = x.double() if x.is_floating_point() else x
    args = [a.double() if isinstance(a, torch.Tensor) else a for a in args]
    return slow_rows(double, x, *args).numpy()


def largest_error(found, expected, tokens):
    """Relative to the largest entry of a row; a token's own entry, 1 and more, is measured by itself."""
    own = np.zeros(expected.shape[1:], bool)
    own[range(len(tokens)), tokens] = True
    off = np.abs(found - expected)
    others = np.where(own, 0, off).max(-1) / np.maximum(np.where(own, 0, expected).max(-1), 1e-12)
    return max(others.max(), (off[:, own] / expected[:, own]).max())


def small_input(subject):
    x = example_input(subject)
    return x[:, :, :64, :64] if subject.family.name == "HF SigLIP 2 (NaFlex)" else x


def rows_of(subject, x, blocks, tokens, target="sum", **settings):
    layers, z = Reader(subject, blocks)(x)
    w = {"sum": lambda v: torch.ones_like(v), "energy": lambda v: 2 * v}.get(target, lambda v: target.expand_as(v))
    return token_rows(layers, {b: w(z[b][:, tokens]) for b in blocks}, torch.tensor(tokens), **settings)


@pytest.fixture
def vivid():
    """A ViT whose random weights are large enough for every part of a block to matter: 5 + 16 tokens."""
    return vt.wrap(build("timm ViT, LayerScale, 4 registers"))


# -- the same as autograd


@pytest.mark.parametrize("variant", [v for v in ZOO if "ConvNeXt" not in v])
def test_every_family_agrees_with_one_backward_pass_a_token(variant):
    subject = vt.wrap(build(variant))
    x = small_input(subject)
    last = 11 if subject.modality == "text" else 15
    tokens = [2, last, 7]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no family takes the long way
        found = vt.token_maps(subject, x, -1, tokens, WEIGHTS, batch_size=2, progress=False)
    assert found.tokens == (2, last, 7) and found.block == 2
    assert largest_error(found.scores, exact_rows(subject, x, 2, tokens, WEIGHTS), tokens) < 1e-5


@pytest.mark.parametrize(
    "settings",
    [
        {"scale_attn_norm": True, "scale_mlp_norm": True},
        {"norm_layer": "rmsnorm", "init_values": 0.5},
        {"qkv_bias": False, "proj_bias": False, "act_layer": "quick_gelu"},
    ],
)
def test_blocks_of_other_making_are_read_too(settings):
    """Norms inside the branches, RMSNorm, no biases: vectors are shaken so that gains and shifts differ."""
    from timm.models.vision_transformer import VisionTransformer

    generator = torch.Generator().manual_seed(0)
    module = VisionTransformer(img_size=32, patch_size=8, embed_dim=32, depth=3, num_heads=4, num_classes=7, **settings)
    for value in module.parameters():
        std = value[0].numel() ** -0.5 if value.ndim > 1 else 0.1
        value.data = (value.data if value.ndim == 1 else 0) + std * torch.randn(value.shape, generator=generator)
    subject = vt.wrap(module.eval())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = vt.token_maps(subject, X, -1, [2, 9], WEIGHTS, progress=False)
    assert largest_error(found.scores, exact_rows(subject, X, 2, [2, 9], WEIGHTS), [2, 9]) < 1e-5


@pytest.mark.parametrize("order", ["rollout", "printed"])
@pytest.mark.parametrize("target", ["sum", "energy"])
@pytest.mark.parametrize("block", [0, 1])
def test_targets_orders_and_blocks(vivid, order, target, block):
    found = vt.token_maps(vivid, X, block, "all", target, order, progress=False)
    assert found.scores.dtype == np.float32 and found.scores.shape == (2, 21, 21)
    assert largest_error(found.scores, exact_rows(vivid, X, block, None, target, order), range(21)) < 1e-5


def test_printed_and_rollout_order_differ(vivid):
    a, b = (vt.token_maps(vivid, X, order=order, progress=False).scores for order in ("rollout", "printed"))
    assert np.abs(a - b).max() > 1e-3


def test_one_weight_vector_a_token(vivid):
    w = torch.randn(21, 32, generator=torch.Generator().manual_seed(5))
    found = vt.token_maps(vivid, X[:1], target=w.numpy(), tokens=[20, 3], progress=False)
    assert largest_error(found.scores, exact_rows(vivid, X[:1], -1, [20, 3], w), [20, 3]) < 1e-5


def test_blocks_share_a_pass_and_change_nothing(vivid):
    together = vt.token_maps(vivid, X, block=[2, 0, -2], progress=False)
    assert vt.token_maps(vivid, X, block=np.int64(1), progress=False).block == 1  # one block, one finding
    for block, found in zip([2, 0, 1], together, strict=True):
        alone = vt.token_maps(vivid, X, block=block, progress=False)
        assert found.block == block == alone.block
        np.testing.assert_allclose(found.scores, alone.scores, rtol=2e-5, atol=1e-7)


def test_a_sweep_over_blocks_takes_one_forward_pass_a_batch(vivid):
    vt.token_maps(vivid, X, block=-1, progress=False)  # a kind of block is run once more by itself, the first time
    passes = {name: [] for name in ("all", "first", "last")}
    parts = {"all": vivid.module, "first": vivid.module.blocks[0], "last": vivid.module.blocks[2]}
    for name, part in parts.items():
        forward = part.forward
        part.forward = lambda *given, name=name, forward=forward: passes[name].append(len(given[0])) or forward(*given)
    vt.token_maps(vivid, X, block=range(3), batch_size=1, progress=False)
    assert passes == {"all": [1, 1], "first": [1, 1], "last": [1, 1]}


@pytest.mark.parametrize(
    ("variant", "order"),
    [
        ("timm ViT", "rollout"),
        ("HF GPT-2", "rollout"),
        ("HF GPT-2", "printed"),
        ("HF Llama", "rollout"),
        ("timm ViT, qk-norm, SwiGLU", "printed"),
        ("HF BERT", "rollout"),
    ],
)
@pytest.mark.parametrize("formed", [False, True])
def test_chunks_groups_and_shorter_ways_change_nothing(variant, order, formed, monkeypatch):
    subject = vt.wrap(build(variant))
    subject.module.double()
    x = example_input(subject)
    x = x if subject.modality == "text" else x.double()
    tokens = list(range(1, 12))
    expected = slow_rows(subject, x, 2, tokens, WEIGHTS.double(), order)
    monkeypatch.setattr(token_backward, "cheaper_formed", lambda *_: formed)
    direct = formed and variant not in ("HF Llama", "timm ViT, qk-norm, SwiGLU")  # nothing lies between
    monkeypatch.setattr(AttentionPart, "cheaper_direct", property(lambda _: direct))
    for budget, rows in ((2**14, 30), (2**16, 1024), (2**27, 1024)):
        monkeypatch.setattr(token_backward, "ROWS", rows)
        settings = {"order": order, "dtype": torch.float64, "budget": budget}
        found = rows_of(subject, x, [2], tokens, WEIGHTS.double(), **settings)[2]
        rounding = 1e-5 if variant == "HF Llama" else 1e-9  # whose norms go through single precision
        torch.testing.assert_close(found, expected, rtol=rounding, atol=rounding * 1e-2)


def test_forming_pays_with_many_seeds_only():
    assert not cheaper_formed(50, 768, 3072, 1)  # ViT-B/32
    assert not cheaper_formed(197, 768, 3072, 1)  # ViT-B/16
    assert cheaper_formed(197, 192, 768, 1)  # DeiT-tiny
    assert cheaper_formed(1370, 384, 1536, 1)  # DINOv2-S at 518 pixels
    assert not cheaper_formed(3, 32, 128, 1)


def test_the_direct_way_pays_with_few_tokens_only():
    def part(heads, length, channels, pull=None):
        A, side = torch.zeros(1, heads, length, length), torch.zeros(1, heads, length, 2)
        return AttentionPart(A, side, side, side, 1.0, (), (None, pull, None), torch.zeros(channels, 2 * heads))

    assert part(12, 50, 768).cheaper_direct  # ViT-B/32
    assert not part(12, 50, 768, torch.sin).cheaper_direct
    assert not part(12, 197, 768).cheaper_direct and not part(3, 197, 192).cheaper_direct


def test_tokens_behind_a_causal_token_are_left_out():
    subject = vt.wrap(build("HF GPT-2"))
    x = example_input(subject)
    layers, _ = Reader(subject, [2])(x)
    assert all(layer.causal for layer in layers)
    scores = vt.token_maps(subject, x, progress=False).scores
    assert (np.triu(scores[0], 1) == 0).all() and scores[0, 5, :5].min() > 0
    assert not Reader(vt.wrap(build("HF BERT")), [2])(x)[0][0].causal


def test_half_precision_is_near(vivid):
    exact = vt.token_maps(vivid, X, progress=False)
    near = vt.token_maps(vivid, X, dtype="bfloat16", progress=False)
    assert near.scores.dtype == np.float32 and near.settings["dtype"] == "bfloat16"
    error = largest_error(near.scores, exact.scores, range(21))
    assert 1e-5 < error < 0.05


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_folded_weights_are_kept_for_one_branch_at_a_time(vivid, dtype):
    layers, _ = Reader(vivid, [2])(X)
    one, both = Space(dtype), Space(dtype)
    layers[0].attention.folded(one)
    attention = [len(slot) for slot in one.slots]
    mlp = Space(dtype)
    layers[0].mlp.folded(mlp)
    for layer in layers:
        layer.attention.folded(both)
        layer.mlp.folded(both)
    most = [max(pair) for pair in zip_longest(attention, [len(slot) for slot in mlp.slots], fillvalue=0)]
    assert [len(slot) for slot in both.slots] == most
    assert sum(most) < sum(attention) + sum(len(slot) for slot in mlp.slots)


def test_a_blocks_graph_is_gone_before_the_next_block(vivid, monkeypatch):
    described, seen = tokens_read._described, []

    def spy(plan, block, attended, added):
        assert all(value() is None for value in seen)
        seen.extend(map(weakref.ref, (attended, added)))
        return described(plan, block, attended, added)

    monkeypatch.setattr(tokens_read, "_described", spy)
    Reader(vivid, [0, 2])(X)
    assert len(seen) == 6


def test_batches_change_nothing(vivid):
    one = vt.token_maps(vivid, X, batch_size=1, progress=False).scores
    np.testing.assert_allclose(vt.token_maps(vivid, X, batch_size=2, progress=False).scores, one, rtol=2e-5, atol=1e-7)


def test_the_model_is_left_as_it_was(tiny):
    before = {name: value.clone() for name, value in tiny.module.state_dict().items()}
    y = tiny(X)
    tiny.module.train()
    vt.token_maps(tiny, X, progress=False)
    assert tiny.hooks == 0 and tiny.module.training
    tiny.module.eval()
    assert all(torch.equal(value, before[name]) for name, value in tiny.module.state_dict().items())
    assert torch.equal(tiny(X), y) and all(p.grad is None for p in tiny.module.parameters())


FUSED = """
import sys
sys.path[:0] = [{conformance!r}]
import torch
import vitreous as vt
from vitreous.kernels import token_attention, token_layers, triton_tokens
from vitreous.laws import example_input
from zoo import build

triton_tokens.TILE = 16  # several tiles, the last ones not full
for variant in {variants!r}:
    subject = vt.wrap(build(variant))
    x = example_input(subject)
    tokens = [2, 11, 7]
    plain = vt.token_maps(subject, x, tokens=tokens, target="energy", batch_size=2, progress=False).scores
    places = (token_attention, "fits_fused"), (token_layers, "fused")
    before = [getattr(*place) for place in places]
    for place in places:
        setattr(*place, lambda g: True)
    fused = vt.token_maps(subject, x, tokens=tokens, target="energy", batch_size=2, progress=False).scores
    for place, own in zip(places, before):
        setattr(*place, own)
    assert (abs(fused - plain) < 1e-5 * plain + 1e-7).all(), (variant, abs(fused - plain).max())
    print((fused != plain).sum())
"""


@pytest.mark.slow
def test_the_fused_kernels_give_the_same():
    """By Triton's interpreter, without a GPU."""
    pytest.importorskip("triton")
    variants = ["timm ViT", "timm ViT, qk-norm, SwiGLU", "HF GPT-2", "HF Llama"]
    script = FUSED.format(conformance=str(Path(__file__).parents[1] / "conformance"), variants=variants)
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sum(int(line) for line in done.stdout.split()) > 0  # it did run, and rounds in its own way


# -- the long way


class Odd(torch.nn.Module):
    """Mixes hidden units, which no activation function does."""

    def forward(self, x):
        return torch.nn.functional.gelu(x) + 0.3 * x.roll(1, -1).sin()


def test_a_block_that_does_more_takes_the_long_way_and_says_so(vivid):
    vivid.module.blocks[1].mlp.act = Odd()
    with pytest.warns(
        UserWarning, match="does more than was read from it; tokens are followed back by autograd"
    ) as said:
        found = vt.token_maps(vivid, X, batch_size=1, progress=False)
    assert len(said) == 1 and "autograd" in found.notes[0]
    assert largest_error(found.scores, exact_rows(vivid, X), range(21)) < 1e-5


def test_a_block_that_cannot_be_read_takes_the_long_way(vivid):
    class Gated(torch.nn.Module):
        def forward(self, x):
            return x * x.detach().sigmoid()

    vivid.module.blocks[0].attn.norm = Gated()
    with pytest.raises(Unread, match="something between attention and the linear layer"):
        Reader(vivid, [2])(X)
    for order in ("rollout", "printed"):
        with pytest.warns(UserWarning, match="something between attention"):
            found = vt.token_maps(vivid, X, -1, [0, 9], "energy", order, progress=False)
        assert largest_error(found.scores, exact_rows(vivid, X, -1, [0, 9], "energy", order), [0, 9]) < 1e-5
    assert vivid.hooks == 0


# -- what is known of a module


def test_a_kind_of_block_is_looked_at_once_a_module(vivid, monkeypatch):
    looked = []
    plan = tokens_read._plan
    monkeypatch.setattr(tokens_read, "_plan", lambda *given: looked.append(given[1]) or plan(*given))
    first = vt.token_maps(vivid, X, progress=False)
    vivid.module.blocks[1].mlp.fc1.weight.data *= 1.5  # weights are read anew each time
    second = vt.token_maps(vivid, X, progress=False)
    assert looked == [0] and np.abs(first.scores - second.scores).max() > 1e-3
    assert largest_error(second.scores, exact_rows(vivid, X), range(21)) < 1e-5
    vivid.module.blocks[1].mlp.act = Odd()
    with pytest.warns(UserWarning, match="does more than was read from it"):
        vt.token_maps(vivid, X, progress=False)


def test_a_module_with_hooks_is_looked_at_anew_block_by_block(vivid):
    vt.token_maps(vivid, X, progress=False)
    edit = {"blocks.1.mlp.out": lambda value: value * value.detach().sigmoid()}
    with vt.patch(vivid, edit), pytest.warns(UserWarning, match="does more than was read from it"):
        changed = vt.token_maps(vivid, X, progress=False)
        expected = slow_rows(vivid, X).numpy()
    assert largest_error(changed.scores, expected, range(21)) < 1e-4


def test_one_word_says_nothing_of_whether_words_look_to_the_right():
    subject = vt.wrap(build("HF BERT"))
    vt.token_maps(subject, [[5]], own="keep", progress=False)
    x = example_input(subject)
    found = vt.token_maps(subject, x, target=WEIGHTS.numpy(), progress=False)
    expected = exact_rows(subject, x, -1, range(x.shape[1]), WEIGHTS)
    assert largest_error(found.scores, expected, range(x.shape[1])) < 1e-5


# -- what is found


def test_maps_replace_a_tokens_own_entry_by_the_largest_other(tiny):
    found = vt.token_maps(tiny, X, progress=False)
    kept = vt.token_maps(tiny, X, own="keep", progress=False)
    rows = torch.from_numpy(found.scores)
    for maps, own in ((found, "max_of_others"), (kept, "keep")):
        expected = slow_maps(rows, range(19), 3, own).reshape(2, 19, 4, 4).numpy()
        np.testing.assert_allclose(maps.maps, expected, rtol=1e-6)
    assert found.patches.tolist() == list(range(3, 19))
    assert found.token_at(1, 2) == 3 + 6
    assert found.of([9, 0]).maps.shape == (2, 2, 4, 4)
    np.testing.assert_array_equal(found.of(9).maps[:, 0], found.maps[:, 9])
    np.testing.assert_array_equal(found[1].scores[0], found.scores[1])
    assert found.scaled.min() == 0 and found.scaled.max() == 1


def test_prefix_tokens_go_by_name(tiny):
    found = vt.token_maps(tiny, X, tokens=["register.1", "class", 5], progress=False)
    assert found.tokens == (2, 0, 5)


def test_pictures_in_any_form_come_back_in_their_own_pixels(tiny, tmp_path):
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (40, 64, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    found = [
        vt.token_maps(tiny, given, progress=False)
        for given in (
            str(tmp_path),
            [tmp_path / "a.png"],
            Image.fromarray(pixels),
            [pixels],
            vt.ImageSet.open([pixels]),
        )
    ]
    for maps in found[1:]:
        np.testing.assert_array_equal(maps.scores, found[0].scores)
    (up,) = found[0].upsample()
    assert up.shape == (19, 40, 64)
    assert found[0].upsample((8, 8))[0].shape == found[0].upsample(8)[0].shape == (19, 8, 8)
    nearest = found[0].upsample(mode="nearest", scale=True)[0]
    np.testing.assert_array_equal(nearest[:, 5::10, 8::16], found[0].scaled[0])
    assert found[0].ids == ("a.png",)
    wide = vt.token_maps(vt.wrap(build("timm ViT, wide pictures")), [pixels], progress=False)
    assert wide.grid == (4, 8) and wide.maps.shape == (1, 33, 4, 8)


def test_pixels_that_the_crop_cut_away_have_no_value(tiny):
    steps = vt.Preprocess(size=(32, 32), resize=32)
    subject = vt.wrap(tiny.module, preprocess=steps)
    picture = np.zeros((32, 64, 3), np.uint8)
    picture[:, :32] = 200
    (up,) = vt.token_maps(subject, [picture], progress=False).upsample()
    assert np.isnan(up[:, :, :16]).all() and np.isnan(up[:, :, 48:]).all() and np.isfinite(up[:, :, 17:47]).all()


def test_a_tensor_is_enlarged_to_the_models_input(tiny):
    found = vt.token_maps(tiny, X, tokens=[4], progress=False)
    up = {mode: found.upsample(mode=mode)[0] for mode in ("nearest", "bilinear", "cubic", "bicubic")}
    assert up["cubic"].shape == (1, 32, 32) and np.array_equal(up["cubic"], up["bicubic"])
    assert not any(np.array_equal(up["cubic"], up[mode]) for mode in ("nearest", "bilinear"))
    with pytest.raises(SettingsError, match=r"unknown mode\n  given:    'lanczos'\n  accepted: .*cubic"):
        found.upsample(mode="lanczos")


@pytest.mark.parametrize("name", ["maps.npz", "maps.safetensors"])
def test_saved_and_loaded(tiny, tmp_path, name):
    found = vt.token_maps(tiny, [np.zeros((9, 7, 3), np.uint8)], tokens=["class", 7], progress=False)
    found.save(tmp_path / name)
    loaded = vt.TokenMaps.load(tmp_path / name)
    np.testing.assert_array_equal(loaded.maps, found.maps)
    for field in ("tokens", "block", "prefix", "grid", "size", "frames", "ids", "settings", "notes", "lengths"):
        assert getattr(loaded, field) == getattr(found, field), field
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreError, match="not token maps"):
        vt.TokenMaps.load(tmp_path / name)
    with pytest.raises(StoreError, match="no token maps here"):
        vt.TokenMaps.load(tmp_path / "other.npz")


def test_texts_of_different_lengths(tmp_path):
    subject = vt.wrap(build("HF Llama"))
    long, short = [3, 9, 4, 11, 30, 2, 8], [5, 17, 41]
    found = vt.token_maps(subject, [long, short], progress=False)
    assert found.grid is None and found.maps.shape == (2, 7, 7) and found.lengths.tolist() == [7, 3]
    alone = vt.token_maps(subject, [short], progress=False)
    np.testing.assert_allclose(found.scores[1, :3, :3], alone.scores[0], rtol=1e-5, atol=1e-7)
    assert (found.scores[1, 3:] == 0).all() and (found.scores[1, :, 3:] == 0).all()
    found.save(tmp_path / "text.npz")
    assert vt.TokenMaps.load(tmp_path / "text.npz").lengths.tolist() == [7, 3]
    with pytest.raises(SettingsError, match="texts have no pixels"):
        found.upsample()


# -- what is refused


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"block": 3}, "no such block\n  given:    3\n  accepted: -3 to 2"),
        ({"block": []}, "no such block"),
        ({"block": 1.5}, "no such block\n  given:    1.5"),
        ({"block": True}, "no such block\n  given:    True"),
        ({"block": "last"}, "no such block\n  given:    'last'"),
        ({"block": [0, "last"]}, "no such block\n  given:    'last'"),
        ({"tokens": [19]}, "no such token\n  given:    19\n  accepted: -19 to 18"),
        ({"tokens": [1, 1]}, "none twice"),
        ({"tokens": ["cls"]}, "no prefix token of this name\n  given:    'cls'\n  accepted: class, register.0"),
        ({"tokens": "patches"}, "unknown tokens"),
        ({"target": "norm"}, "unknown target"),
        ({"target": np.ones(31)}, r"weights are \(channel,\).*\n.*\(31,\)\n  accepted: \(32,\) or \(19, 32\)"),
        ({"order": "reverse"}, "unknown order"),
        ({"own": "zero"}, "unknown own"),
        ({"dtype": "float16"}, "unknown dtype"),
        ({"tokens": 5}, "unknown tokens\n  given:    5"),
        ({"tokens": [1.5]}, "no such token\n  given:    1.5"),
        ({"target": None}, "unknown target"),
        ({"target": ["norm"]}, "unknown target"),
        ({"memory_mb": 0}, "memory_mb is a number\n  given:    0\n  accepted: above 0"),
        ({"memory_mb": "3"}, "memory_mb is a number\n  given:    '3'"),
        ({"batch_size": 0}, "batch_size is a whole number\n  given:    0\n  accepted: from 1 on"),
        ({"batch_size": "3"}, "batch_size is a whole number\n  given:    '3'"),
        ({"size": 64}, "a tensor is the model's input as it is"),
    ],
)
def test_settings_are_refused_by_name(tiny, settings, says):
    with pytest.raises(SettingsError, match=says):
        vt.token_maps(tiny, X, progress=False, **settings)


@pytest.mark.parametrize("size", ["64", 64.0, (64,), (64, "64"), 0, (64, -1)])
def test_sizes_are_whole_numbers(tiny, size):
    with pytest.raises(SettingsError, match=r"a size is a number of pixels, or \(height, width\)"):
        vt.token_maps(tiny, [np.zeros((30, 30, 3), np.uint8)], size=size, progress=False)
    with pytest.raises(SettingsError, match=r"a size is a number of pixels, or \(height, width\)"):
        vt.token_maps(tiny, X[:1], progress=False).upsample(size)


def test_sizes_that_the_model_does_not_take_are_refused():
    """By us: timm says it by an assertion in the middle of a forward pass."""
    from timm.models.vision_transformer import VisionTransformer

    picture = [np.zeros((30, 30, 3), np.uint8)]
    for dynamic, says in ((False, r"pictures of one size\n  given:    \(36, 36\)\n  accepted: \(32, 32\)"),
                          (True, r"whole numbers of patches\n  given:    \(36, 36\)")):  # fmt: skip
        module = VisionTransformer(
            img_size=32, patch_size=8, embed_dim=32, depth=1, num_heads=4, num_classes=0, dynamic_img_size=dynamic
        )
        with pytest.raises(SettingsError, match=says):
            vt.token_maps(vt.wrap(module.eval()), picture, size=36, progress=False)
    assert vt.token_maps(vt.wrap(module), picture, size=40, progress=False).grid == (5, 5)


@pytest.mark.parametrize("given", [[1, 2], [[1.5, 2]], [["one"]], [[[1]]], None])
def test_texts_are_texts_or_rows_of_token_ids(given):
    with pytest.raises(SettingsError, match=r"accepted: a text, several, vt\.TextSet, or rows of whole numbers"):
        vt.token_maps(vt.wrap(build("HF GPT-2")), given, progress=False)


def test_pictures_smaller_than_a_patch_are_refused():
    subject = vt.wrap(build("HF DINOv3"))
    picture = [np.zeros((30, 30, 3), np.uint8)]
    with pytest.raises(
        SettingsError, match="pictures this small hold no patch\n  given:    \\(4, 4\\)\n  remedy:   larger"
    ):
        vt.token_maps(subject, picture, size=4, progress=False)
    with pytest.raises(SettingsError, match="this small hold no patch"):
        vt.token_maps(subject, torch.zeros(1, 3, 7, 7), progress=False)


def test_one_patch_has_no_others():
    subject = vt.wrap(build("HF DINOv3"))
    with pytest.raises(SettingsError, match=r'one patch has no others.*\n.*\n.*own="keep"'):
        vt.token_maps(subject, torch.zeros(1, 3, 8, 8), progress=False)
    assert vt.token_maps(subject, torch.zeros(1, 3, 8, 8), own="keep", progress=False).maps.shape == (1, 4, 1, 1)


def test_one_token_has_no_others():
    subject = vt.wrap(build("HF GPT-2"))
    with pytest.raises(SettingsError, match=r'one token has no others.*\n.*\n.*own="keep"'):
        vt.token_maps(subject, [[5]], progress=False)
    assert vt.token_maps(subject, [[5]], own="keep", progress=False).maps.shape == (1, 1, 1)
    assert vt.token_maps(subject, [[5], [5, 6]], progress=False).maps[1, 1].min() > 0


def test_a_model_without_attention_is_refused():
    with pytest.raises(ModelError, match="has no attention to follow tokens back through"):
        vt.token_maps(vt.wrap(build("timm ConvNeXt")), torch.zeros(1, 3, 64, 64))


def test_a_text_longer_than_the_positions_is_refused():
    with pytest.raises(SettingsError, match=r"longer than the positions.*\n.*65 tokens.*\n  accepted: up to 64"):
        vt.token_maps(vt.wrap(build("HF GPT-2")), [[1] * 65])


def test_ids_that_the_model_has_no_tokens_for_are_refused():
    subject = vt.wrap(build("HF GPT-2"))
    words = subject.root.config.vocab_size
    expected = rf"has no tokens for\n  given:    {words}\n  accepted: 0 to {words - 1}\n"
    with pytest.raises(SettingsError, match=expected):
        vt.token_maps(subject, [[3, words]], progress=False)
    with pytest.raises(SettingsError, match=expected):
        vt.context_scores(subject, [3, words], [4], progress=False)
    assert vt.token_maps(subject, [[3, words - 1]], progress=False).maps.shape == (1, 2, 2)


def test_a_name_where_a_model_is_asked_for_is_refused():
    asked = (
        lambda: vt.token_maps("vit_tiny", X),
        lambda: vt.attention_rollout("vit_tiny", X),
        lambda: vt.gradcam("vit_tiny", X),
        lambda: vt.patch_features("vit_tiny", X),
        lambda: vt.context_scores("vit_tiny", "a", "b"),
        lambda: vt.SelfConsistency().fit("vit_tiny", X),
    )
    for ask in asked:
        with pytest.raises(SettingsError, match=r"the model is a subject\n  given:    'vit_tiny'\n.*vt\.wrap"):
            ask()


@pytest.mark.filterwarnings("ignore:.*followed back by autograd")
@pytest.mark.parametrize("what", ["picture", "weights"])
def test_maps_that_are_not_finite_are_refused(tiny, what):
    x, target = X.clone(), np.ones(32)
    (x if what == "picture" else target)[-1] = np.nan
    with pytest.raises(ModelError, match=r"maps of .* are not finite\n  given:    .*1; block 2.\n  remedy: .*`target`"):
        vt.token_maps(tiny, x, target=target, batch_size=2, progress=False)


def test_no_pictures_are_refused(tiny):
    with pytest.raises(SettingsError, match="no pictures were given"):
        vt.token_maps(tiny, X[:0])
    with pytest.raises(ImageError):
        vt.token_maps(tiny, "no such folder")
