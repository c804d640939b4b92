"""Steering: what the formula says on the chosen patches and nothing elsewhere, and no trace of it afterwards."""

from __future__ import annotations

import copy
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import vitreous as vt
from vitreous.render import to_html, to_png
from vitreous.steering import Steering
from vitreous.subunits.applied import at_hand
from vitreous.subunits.layers import find_layer
from vitreous.views.panels import as_json
from vitreous.views.steering import concept_table, steering_card

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))
from zoo import build

from reference import steering as slow
from reference.tokens import slow_rows

QUIET = {"top_k": 150, "min_cluster_size": 10, "progress": False}


def bunches(rows: int, inputs: int, seed: int = 0) -> np.ndarray:
    """Inputs in four bunches, so that most units split."""
    rng = np.random.default_rng(seed)
    centres = np.abs(rng.normal(size=(4, inputs))) * (rng.random((4, inputs)) < 0.4)
    return (centres[rng.integers(0, 4, rows)] + 0.1 * rng.random((rows, inputs))).astype(np.float32)


@pytest.fixture(scope="module")
def layer() -> nn.Linear:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Linear(20, 6)


@pytest.fixture(scope="module")
def finding(layer) -> vt.Disentanglement:
    found = vt.disentangle(layer, bunches(200, 20), **QUIET)
    assert len(found) > 8 and not found.dead.any()  # else it would be no test
    return found


@pytest.fixture
def q() -> torch.Tensor:
    return torch.from_numpy(bunches(3 * 7, 20, seed=2).reshape(3, 7, 20))


@pytest.fixture
def vit(tiny) -> tuple[vt.Subject, vt.Disentanglement]:
    """Three blocks, a class token and two registers before 16 patches; block 1 is split."""
    return tiny, vt.disentangle(tiny, bunches(200, 128), "blocks.1.mlp.out", units=range(8), **QUIET)


def pictures(count: int = 2, seed: int = 1) -> torch.Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


def expected(layer: nn.Linear, finding: vt.Disentanglement, q: torch.Tensor, steering: Steering, **options):
    weights, biases = finding.weights_of(steering.subunits)
    whole = layer(q).detach().numpy()
    return slow.steered(whole, q.numpy(), weights, biases, steering.units, steering.factors, **options)


# -- what the formula says


@pytest.mark.parametrize("patches", [1, 3, 7, 50, "all"])
def test_it_is_the_formula(layer, finding, q, patches):
    with vt.steer(layer, finding, amplify=[0, 1, 4], suppress=[2, 6], alpha=3, gamma=-2, patches=patches) as steering:
        out = layer(q)
    assert steering.subunits.tolist() == [0, 1, 2, 4, 6] and steering.factors.tolist() == [3, 3, -2, 3, -2]
    np.testing.assert_allclose(out.detach(), expected(layer, finding, q, steering, patches=patches), atol=1e-5)
    before = layer(q)
    assert not torch.equal(out, before)
    left = [u for u in range(6) if u not in steering.units]
    assert left and torch.equal(out[..., left], before[..., left])  # other units: the same bits
    places = steering.places.any(-1)
    assert torch.equal(out[~places], before[~places])  # and so are other places


def test_equal_responses_are_taken_in_their_order(layer, finding):
    q = torch.from_numpy(bunches(1, 20)).repeat(1, 5, 1)
    with vt.steer(layer, finding, suppress=[0, 3], patches=2) as steering:
        layer(q)
    assert steering.places[0].nonzero().tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]


def test_where_allows_some_patches_only(layer, finding, q):
    allowed = np.random.default_rng(0).random((3, 7)) < 0.5
    for mask in (allowed, allowed[0]):
        full = np.broadcast_to(mask, (3, 7))
        with vt.steer(layer, finding, suppress=[0, 5], patches=2, where=mask) as steering:
            out = layer(q)
        np.testing.assert_allclose(
            out.detach(), expected(layer, finding, q, steering, patches=2, where=full), atol=1e-5
        )
    with vt.steer(layer, finding, suppress=[0], where=np.zeros(7, bool)):
        assert torch.equal(layer(q), layer(q))
    with pytest.raises(vt.SettingsError, match=r"one mask for all samples.*\n.*\n.*\(7,\) or \(3, 7\)"):
        with vt.steer(layer, finding, suppress=[0], where=np.ones(4, bool)):
            layer(q)
    with pytest.raises(vt.SettingsError, match="where is bool"):
        with vt.steer(layer, finding, suppress=[0], where=np.ones(7)):
            pass
    assert not layer._forward_hooks


def test_the_handle_says_what_was_changed(layer, finding, q):
    with vt.steer(layer, finding, amplify=[(0, 0)], suppress=[(2, 1)], patches=3) as steering:
        with pytest.raises(vt.SettingsError, match="nothing was steered yet"):
            _ = steering.change
        out = layer(q)
    assert steering.site == "Linear" and steering.patches == 3 and steering.prefix == 0
    assert steering.subunits.tolist() == [finding.subunits(0)[0], finding.subunits(2)[1]]
    assert steering.units.tolist() == [0, 2] and steering.factors.tolist() == [5, -5]
    assert repr(steering) == "Steering('Linear': 1 x -5, 1 x 5; 2 sub-units of 2 units)"
    assert steering.before.shape == steering.change.shape == (3, 7, 2)
    np.testing.assert_allclose(steering.before, finding.subunit_activations(q.numpy(), steering.subunits), atol=1e-5)
    assert steering.places.sum(1).tolist() == [[3, 3]] * 3
    torch.testing.assert_close((out - layer(q))[..., [0, 2]], steering.change, atol=1e-5, rtol=1e-4)
    np.testing.assert_allclose(steering.patch_map, steering.change.abs().sum(-1), rtol=1e-6)


def test_a_subunit_of_both_sides_is_amplified_and_counts_once(layer, finding, q):
    with vt.steer(layer, finding, amplify=[1, 1], suppress=[1, 2], alpha=3, gamma=0) as steering:
        layer(q)
    assert steering.subunits.tolist() == [1, 2] and steering.factors.tolist() == [3, 0]


def test_what_is_not_there_can_be_raised(layer, finding, q):
    with vt.steer(layer, finding, amplify=[0, 1], suppress=[4], alpha=1, lift=0.5, patches=3) as steering:
        out = layer(q)
    level = [float(np.mean([v for v in finding.subunit_top.values[k] if np.isfinite(v)])) for k in (0, 1)]
    np.testing.assert_allclose(steering.raised, [0.5 * level[0], 0.5 * level[1], 0], rtol=1e-5)
    wanted = expected(layer, finding, q, steering, patches=3, raised=steering.raised)
    np.testing.assert_allclose(out.detach(), wanted, atol=1e-5)
    torch.testing.assert_close((out - layer(q))[..., steering.units[2]], steering.change[..., 2], atol=1e-5, rtol=1e-4)
    assert steering.change[..., 0][steering.places[..., 0]].eq(steering.change[..., 0].max()).all()


def test_taking_out_all_subunits_takes_out_the_unit(layer, finding, q):
    with vt.steer(layer, finding, suppress=finding.subunits(3), gamma=0):
        out = layer(q)
    assert out[..., 3].abs().max() < 1e-5


def test_gradients_go_through(layer, finding, q):
    q.requires_grad_()
    with vt.steer(layer, finding, suppress=finding.subunits(3), gamma=-1):
        layer(q)[..., 3].sum().backward()
    torch.testing.assert_close(q.grad, -layer.weight[3].detach().expand(3, 7, 20))


# -- no trace


def test_nothing_is_left_also_after_an_error(layer, finding, q):
    before, state = layer(q), {k: v.clone() for k, v in layer.state_dict().items()}
    with pytest.raises(ZeroDivisionError), vt.steer(layer, finding, amplify=[0]):
        layer(q)
        raise ZeroDivisionError
    for wrong in ({"amplify": [999]}, {"amplify": "dog"}, {"suppress": [0], "gamma": np.inf}):
        with pytest.raises(vt.SettingsError), vt.steer(layer, finding, **wrong):
            pass
    assert not layer._forward_hooks and torch.equal(layer(q), before)
    assert all(torch.equal(value, state[name]) for name, value in layer.state_dict().items())


def test_steerings_inside_each_other_follow_each_other(layer, finding, q):
    with vt.steer(layer, finding, amplify=[0, 1], alpha=2, patches=4) as outer:
        once = layer(q)
        with vt.steer(layer, finding, suppress=[1, 2], gamma=-3) as inner:
            twice = layer(q)
        assert torch.equal(layer(q), once)
    weights, biases = finding.weights_of([0, 1, 2])
    a = q.numpy() @ weights.T + biases
    first = a[..., :2] * np.where(outer.places.numpy(), 2, 1)
    np.testing.assert_allclose(inner.before[..., 0], first[..., 1], atol=1e-5)  # what the outer one made of it
    change = np.stack([first[..., 0], -3 * first[..., 1], -3 * a[..., 2]], -1) - a
    units, whole = finding.units[finding.parents[:3]], layer(q).detach().numpy()
    for column, unit in enumerate(units):
        whole[..., unit] += change[..., column]
    np.testing.assert_allclose(twice.detach(), whole, atol=1e-5)
    assert not layer._forward_hooks


def test_steerings_may_end_in_any_order(layer, finding, q):
    before = layer(q)
    with vt.steer(layer, finding, amplify=[5]):
        alone = layer(q)
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(vt.steer(layer, finding, amplify=[0]))
        second.enter_context(vt.steer(layer, finding, amplify=[5]))
        assert len(layer._forward_hooks) == 1
        first.close()
        assert torch.equal(layer(q), alone)
    assert not layer._forward_hooks and torch.equal(layer(q), before)


def test_two_findings_of_one_layer_add_up(layer, finding, q):
    other = vt.disentangle(layer, bunches(200, 20, seed=9), **QUIET)
    before = layer(q)
    with vt.steer(layer, finding, suppress=[0], gamma=0):
        one = layer(q)
    with vt.steer(layer, other, suppress=[len(other) - 1], gamma=0):
        two = layer(q)
    with vt.steer(layer, finding, suppress=[0], gamma=0), vt.steer(layer, other, suppress=[len(other) - 1], gamma=0):
        both = layer(q)
    torch.testing.assert_close(both - before, (one - before) + (two - before), atol=1e-5, rtol=1e-5)
    assert not layer._forward_hooks


def test_what_was_applied_stays_applied(layer, finding, q):
    before = layer(q)
    split = finding.apply(layer)
    with vt.steer(layer, finding, amplify=[0]), split.look([0]) as seen:
        assert not torch.equal(layer(q), before)
    assert len(layer._forward_hooks) == 1 and torch.equal(layer(q), before)
    np.testing.assert_allclose(seen.values.detach(), finding.subunit_activations(q.numpy(), [0]), atol=1e-5)
    with vt.steer(layer, finding, amplify=[0]):
        steered = layer(q)
        finding.remove(layer)
        assert torch.equal(layer(q), steered)  # a steering ends with its context, not before
        with pytest.raises(vt.SettingsError, match="no sub-units are applied"):
            finding.remove(layer)
    assert not layer._forward_hooks and torch.equal(layer(q), before)
    with vt.steer(layer, finding, amplify=[0]):
        finding.apply(layer)
    assert len(layer._forward_hooks) == 1 and torch.equal(layer(q), before)
    finding.remove(layer)
    assert not layer._forward_hooks


def test_edits_that_cannot_be_made_leave_nothing(layer, finding, q):
    before = layer(q)
    split = at_hand(finding, layer)
    assert not layer._forward_hooks  # the hook comes with the first look or edit
    with pytest.raises(vt.SettingsError, match="edited twice at once"), split.edit([0, 0], lambda a: 0 * a):
        pass
    with pytest.raises(vt.SettingsError, match="no such sub-unit"), split.edit([len(finding)], lambda a: 0 * a):
        pass
    assert not layer._forward_hooks and torch.equal(layer(q), before)


def test_a_copy_made_inside_is_steered_on_its_own(layer, finding, q):
    with vt.steer(layer, finding, amplify=[0]):
        steered, twin = layer(q), copy.deepcopy(layer)
    assert torch.equal(twin(q), steered) and not torch.equal(layer(q), steered)


# -- by label

VECTORS = {"cat": (1, 0, 0), "dog": (0.9, 0.4, 0), "kitten": (1, 0.1, 0), "car": (0, 0, 1), "bus": (0, 0.2, 1)}


def embed(texts: list[str]) -> torch.Tensor:
    return torch.tensor([VECTORS[text] for text in texts], dtype=torch.float32)


def named(finding: vt.Disentanglement) -> list[str | None]:
    names = ["cat", "dog", "car", "bus", None]
    return [names[k % 5] for k in range(len(finding))]


def labelled(finding: vt.Disentanglement, seed: int = 0) -> vt.Labels:
    rng, words = np.random.default_rng(seed), ("cat", "dog", "car", "bus")
    indices = np.array([[-1 if name is None else words.index(name)] for name in named(finding)])
    scores = np.where(indices < 0, np.nan, rng.random(indices.shape)).astype(np.float32)
    chance = np.where(indices[:, 0] < 0, np.nan, rng.random(len(indices)))
    return vt.Labels(words, indices, scores, chance, np.zeros((len(indices), 1), int), {})


@pytest.mark.parametrize("top_units", [1, 3, 4, 50])
def test_a_text_stands_for_the_nearest_labels(layer, finding, top_units):
    labels = labelled(finding)
    with vt.steer(layer, finding, suppress="kitten", labels=labels, embed=embed, top_units=top_units) as steering:
        pass
    (match,) = steering.matches
    vectors = [None if name is None else np.array(VECTORS[name]) for name in named(finding)]
    wanted = slow.nearest(np.array(VECTORS["kitten"]), vectors, labels.scores[:, 0], top_units)
    assert match.subunits.tolist() == [subunit for subunit, _ in wanted]
    np.testing.assert_allclose(match.similarity, [cosine for _, cosine in wanted], atol=1e-5)
    assert match.labels == tuple(named(finding)[subunit] for subunit, _ in wanted)
    assert match.concept == "kitten" and match.factor == -5
    assert steering.subunits.tolist() == sorted(match.subunits.tolist())


def test_without_an_embedding_a_text_is_the_label_itself(layer, finding):
    labels = labelled(finding)
    cats = np.array([k for k, name in enumerate(named(finding)) if name == "cat"])
    with vt.steer(layer, finding, amplify=["cat", 1], labels=labels) as steering:
        (match,) = steering.matches
    assert match.subunits.tolist() == cats[np.argsort(-labels.scores[cats, 0])].tolist()
    assert steering.subunits.tolist() == sorted({*cats.tolist(), 1})
    with vt.steer(layer, finding, amplify="cat", labels=labels, top_units=1) as steering:
        assert steering.subunits.tolist() == match.subunits[:1].tolist()
    with vt.steer(layer, finding, amplify="cat", labels=named(finding)) as steering:
        assert steering.subunits.tolist() == cats.tolist()
    sure = float(np.sort(labels.chance[cats])[0])
    with vt.steer(layer, finding, amplify="cat", labels=labels, chance=sure) as steering:
        assert steering.subunits.tolist() == [cats[labels.chance[cats].argmin()]]


def test_many_labels_are_embedded_in_parts(layer, finding):
    asked = []

    def counted(texts: list[str]) -> np.ndarray:
        asked.append(len(texts))
        return np.stack([np.ones(len(texts)), [float(text) for text in texts]], 1)

    labels = [str(k) for k in range(len(finding))]
    with vt.steer(layer, finding, amplify=["3", "4"], suppress="1", labels=labels, embed=counted, top_units=2) as s:
        pass
    assert sum(asked) == len(finding) + 3  # each label once, each concept once
    assert s.subunits.tolist() == sorted({*s.matches[0].subunits, *s.matches[1].subunits, *s.matches[2].subunits})


def test_dead_subunits_are_not_meant_by_a_label(layer, finding):
    from dataclasses import replace

    unit = int(np.flatnonzero(finding.counts > 1)[0])
    codes = finding.codes.copy()
    codes[finding.subunits(unit)] = 255  # all share everything: equal to each other
    dead = replace(finding, codes=codes)
    assert dead.dead.sum() == finding.counts[unit]
    with vt.steer(layer, dead, amplify="cat", labels=["cat"] * len(dead)) as steering:
        assert not np.isin(steering.subunits, dead.subunits(unit)).any()
    with vt.steer(layer, dead, amplify=dead.subunits(unit)) as steering:
        assert steering.subunits.tolist() == dead.subunits(unit).tolist()  # by number they are


# -- models


def test_patches_are_chosen_without_prefix_tokens(vit):
    subject, finding = vit
    x = pictures()
    with vt.capture(subject, ["blocks.1.mlp.hidden", "blocks.1.mlp.fc2"]) as plain:
        before = subject(x)
    q, whole = plain["blocks.1.mlp.hidden"].detach().numpy(), plain["blocks.1.mlp.fc2"].detach().numpy()
    for prefix in (False, True):
        with vt.steer(subject, finding, amplify=[0, 2], suppress=[5], patches=4, prefix=prefix) as steering:
            with vt.capture(subject, "blocks.1.mlp.fc2") as recorded:
                after = subject(x)
        assert steering.site == "blocks.1.mlp.out" and steering.prefix == 3
        assert steering.places.sum(1).tolist() == [[7 if prefix else 4] * 3] * 2
        assert steering.places[:, :3].all() == prefix and steering.patch_map.shape == (2, 16)
        weights, biases = finding.weights_of(steering.subunits)
        wanted = slow.steered(
            whole, q, weights, biases, steering.units, steering.factors, 4, prefix=3, steers_prefix=prefix
        )
        np.testing.assert_allclose(recorded["blocks.1.mlp.fc2"].detach(), wanted, atol=1e-5)
        assert not torch.allclose(after, before) and torch.equal(subject(x), before) and subject.hooks == 0


def test_samples_of_a_batch_do_not_mix(vit):
    subject, finding = vit
    x = pictures(3)
    with vt.steer(subject, finding, amplify=range(5), patches=2):
        together = subject(x)
        for k in range(3):
            torch.testing.assert_close(subject(x[k : k + 1])[0], together[k], atol=1e-5, rtol=1e-4)


def test_the_last_block_is_only_seen_through_the_class_token(tiny):
    finding = vt.disentangle(tiny, bunches(200, 128), "blocks.-1.mlp.out", units=range(4), **QUIET)
    x = pictures()
    before = tiny(x)
    with vt.steer(tiny, finding, amplify=range(len(finding)), alpha=50):
        assert torch.equal(tiny(x), before)
    with vt.steer(tiny, finding, amplify=range(len(finding)), prefix=True, where=np.zeros(16, bool)) as steering:
        assert not torch.allclose(tiny(x), before)
    assert not steering.patch_map.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(tiny, dtype):
    subject = vt.wrap(copy.deepcopy(tiny.module).to(dtype))
    finding = vt.disentangle(subject, bunches(200, 128), "blocks.1.mlp.out", units=range(6), **QUIET)
    x = pictures().to(dtype)
    with vt.capture(subject, ["blocks.1.mlp.hidden", "blocks.1.mlp.fc2"]) as plain:
        before = subject(x)
    with vt.steer(subject, finding, amplify=[0], suppress=finding.subunits(2), gamma=0, patches=5) as steering:
        with vt.capture(subject, "blocks.1.mlp.fc2") as recorded:
            after = subject(x)
    assert after.dtype == dtype and not torch.equal(after, before)
    weights, biases = finding.weights_of(steering.subunits)
    q, whole = (plain[f"blocks.1.mlp.{name}"].detach().float().numpy() for name in ("hidden", "fc2"))
    given, wanted = recorded["blocks.1.mlp.fc2"].detach().float().numpy(), whole.astype(np.float64)
    for place, unit in enumerate(steering.units):
        parts = q @ weights[place] + biases[place]
        wanted[..., unit] += np.where(steering.places[..., place].numpy(), (steering.factors[place] - 1) * parts, 0)
    np.testing.assert_allclose(given, wanted, atol=2e-2)
    assert torch.equal(subject(x), before) and subject.hooks == 0


def test_convolutions():
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 6, 3, padding=1)
    finding = vt.disentangle(conv, bunches(200, 27), **QUIET)
    x = torch.randn(2, 3, 5, 4)
    rows, whole = find_layer(conv, "").rows(x), conv(x).detach().flatten(2).mT.numpy()
    with vt.steer(conv, finding, amplify=[0, 1], suppress=finding.subunits(2), patches=6) as steering:
        after = conv(x)
    weights, biases = finding.weights_of(steering.subunits)
    wanted = slow.steered(whole, rows.numpy(), weights, biases, steering.units, steering.factors, patches=6)
    np.testing.assert_allclose(after.detach().flatten(2).mT, wanted, atol=1e-4)
    assert torch.equal(after[:, 3:], conv(x)[:, 3:]) and steering.places.shape[:2] == (2, 20)


def test_parts_of_a_fused_layer(tiny):
    finding = vt.disentangle(tiny, bunches(200, 32), "blocks.0.attn.k", **QUIET)
    x = pictures()
    with vt.capture(tiny, "blocks.0.attn.*") as plain:
        tiny(x)
    old = {name: plain[f"blocks.0.attn.{name}"] for name in "qkv"}
    with vt.steer(tiny, finding, suppress=finding.subunits(7), gamma=0, prefix=True):
        with vt.capture(tiny, "blocks.0.attn.*") as steered:
            tiny(x)
    assert steered["blocks.0.attn.k"][..., 7].abs().max() < 1e-5
    assert torch.equal(steered["blocks.0.attn.q"], old["q"]) and torch.equal(steered["blocks.0.attn.v"], old["v"])


def test_layers_outside_of_blocks_have_no_prefix_tokens(tiny):
    finding = vt.disentangle(tiny, bunches(200, 192), "patch_embed.proj", units=[0, 1], **QUIET)
    with vt.steer(tiny, finding, suppress=[0], patches=2) as steering:
        tiny(pictures())
    assert steering.prefix == 0 and steering.places.shape == (2, 16, 1)


@pytest.mark.parametrize("variant", ["HF Llama", "HF GPT-2"])
def test_language_models_and_what_they_write(variant):
    """Tokens are steered as patches are, in a whole text and one at a time while it is written."""
    module = build(variant)
    subject = vt.wrap(module)
    inputs = 48 if variant == "HF Llama" else 128
    finding = vt.disentangle(subject, bunches(200, inputs), "blocks.1.mlp.out", units=range(8), **QUIET)
    ids = torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(0))
    written = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0, "use_cache": True}
    with torch.no_grad():
        before, story = subject(ids), module.generate(ids, **written)
        with vt.steer(subject, finding, amplify=range(len(finding)), alpha=20, patches=3) as steering:
            after = subject(ids)
            assert steering.places.sum(1).eq(3).all() and steering.places.shape[1] == 9
            told = module.generate(ids, **written)
            assert steering.places.shape[1] == 1  # the cache: one token a pass
        with vt.steer(subject, finding, amplify=range(len(finding)), alpha=20):
            one_by_one = module.generate(ids, **written)
            again = module.generate(ids, **(written | {"use_cache": False}))
        assert torch.equal(one_by_one, again)
        assert torch.equal(subject(ids), before) and torch.equal(module.generate(ids, **written), story)
    assert not torch.allclose(after, before) and not torch.equal(told, story) and subject.hooks == 0


@pytest.mark.data
def test_a_trained_language_model_tells_another_story(data_root):
    sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
    from real_models import stories15m

    subject = stories15m(data_root)
    texts = [
        f"Once upon a time, there was a {word} who liked to play." for word in ("dog", "cat", "girl", "boy", "bird")
    ]
    texts = vt.TextSet.from_texts(texts * 4, subject.tokenizer.encode)
    finding = vt.disentangle(
        subject, texts, "blocks.3.mlp.out", tokens_per_image="all", top_k=120, min_cluster_size=5, progress=False
    )
    assert finding.expansion > 1.5
    ids = subject.inputs("Once upon a time, there was a little")
    told = {"max_new_tokens": 30, "do_sample": False, "pad_token_id": 0}
    with torch.no_grad():
        story, logits = subject.module.generate(ids, **told), subject(ids)
        with vt.steer(subject, finding, suppress=range(0, len(finding), 4), gamma=-5):
            other = subject.module.generate(ids, **told)
        assert torch.equal(subject.module.generate(ids, **told), story) and torch.equal(subject(ids), logits)
    assert not torch.equal(other, story) and subject.hooks == 0


def test_padding_can_be_left_alone():
    subject = vt.wrap(build("HF Llama"))
    finding = vt.disentangle(subject, bunches(200, 48), "blocks.0.mlp.out", units=range(4), **QUIET)
    texts = vt.TextSet.from_ids([[5, 6, 7], [1, 2, 3, 4, 5, 6, 7, 8]])
    there = np.arange(texts.tokens.shape[1]) < texts.lengths[:, None]
    with vt.steer(subject, finding, suppress=range(len(finding)), patches=5, where=there) as steering:
        subject(texts.tokens)
    assert steering.places.sum(1)[:, 0].tolist() == [3, 5]
    assert not steering.places[0, 3:].any()


def test_the_tower_of_a_vision_language_model():
    """LLaVA-OneVision's architecture with small random weights: the mechanism and the shapes, and no more than that."""
    module = build("HF LLaVA-OneVision's tower")
    subject = vt.wrap(module)
    assert type(subject.module).__name__ == "SiglipVisionModel" and subject.prefix == ()
    finding = vt.disentangle(subject, bunches(200, 48), "blocks.-1.mlp.out", units=range(8), **QUIET)
    crops = torch.randn(1, 3, 3, 32, 32, generator=torch.Generator().manual_seed(0))  # the picture and its two halves
    sizes = torch.tensor([[32, 64]])
    module.config.image_grid_pinpoints, module.config.image_token_id = [[32, 64]], 49
    with torch.no_grad():
        count = len(module.get_image_features(crops, image_sizes=sizes).pooler_output[0])
        ids = torch.cat([torch.full((1, count), 49), torch.tensor([[1, 2, 3]])], 1)
        given = {"input_ids": ids, "pixel_values": crops, "image_sizes": sizes}
        before, caption = module(**given).logits, module.generate(**given, max_new_tokens=4, do_sample=False)
        assert any(part._forward_hooks for part in subject.module.modules())  # transformers' own, which stay and look
        assert subject.hooks == 0
        again = vt.disentangle(subject, bunches(200, 48), "blocks.-1.mlp.out", units=range(8), **QUIET)
        assert np.array_equal(again.codes, finding.codes)
        with vt.steer(subject, finding, amplify=[0, 1], suppress=[4], alpha=50, gamma=-50, patches=5) as steering:
            after = module(**given).logits
            assert module.generate(**given, max_new_tokens=4, do_sample=False).shape == caption.shape
            tower = subject(crops[0])
        assert steering.places.shape == (3, 16, 3) and steering.places.sum(1).eq(5).all()
        assert after.shape == before.shape == (1, count + 3, 50)
        assert not torch.allclose(after, before) and torch.equal(module(**given).logits, before)
        assert torch.equal(module.generate(**given, max_new_tokens=4, do_sample=False), caption)
        assert not torch.allclose(tower, subject(crops[0])) and subject.hooks == 0


# -- what is refused


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "nothing to steer"),
        ({"amplify": [-1]}, r"no such sub-unit\n.*-1\n.*0 to"),
        ({"amplify": [10_000]}, "no such sub-unit"),
        ({"amplify": [True]}, "a sub-unit is named by its number"),
        ({"amplify": [1.5]}, "a sub-unit is named by its number"),
        ({"amplify": (1, 0)}, r"may be two sub-units, or a unit and which(.*\n)*.*\[1, 0\] or \[\(1, 0\)\]"),
        ({"amplify": [(1, 2, 3)]}, "a sub-unit is named by its number"),
        ({"amplify": 1.5}, "a sub-unit is named by its number"),
        ({"amplify": None}, "a sub-unit is named by its number"),
        ({"amplify": [(0, 99)]}, "unit 0 has . sub-units"),
        ({"amplify": [(17, 0)]}, r"this unit was not looked at\n.*17"),
        ({"amplify": "cat"}, "named by its label here, and no labels were given"),
        ({"amplify": [0], "alpha": np.nan}, "alpha is a finite number"),
        ({"suppress": [0], "gamma": -np.inf}, "gamma is a finite number"),
        ({"suppress": [0], "gamma": "strong"}, "gamma is a finite number"),
        ({"amplify": [0], "lift": np.inf}, r"lift is a finite number(.*\n)*.*0 changes nothing"),
        ({"amplify": [0], "top_units": 0}, "top_units is a whole number from 1 on"),
        ({"amplify": [0], "patches": 0}, "patches is a whole number from 1 on"),
        ({"amplify": [0], "patches": "some"}, "patches is a whole number from 1 on, or all"),
        ({"amplify": [0], "patches": 2.5}, "patches is a whole number from 1 on"),
        ({"amplify": [0], "chance": 2}, "chance is between 0 and 1"),
        ({"amplify": [0], "chance": "0.5"}, "chance is between 0 and 1"),
        ({"amplify": [0], "labels": ["cat"]}, "labels are one for each sub-unit"),
        ({"amplify": [0], "labels": "all"}, "a label is a text, or None|labels are one for each"),
    ],
)
def test_what_cannot_be_steered_is_refused(layer, finding, given, says):
    with pytest.raises(vt.SettingsError, match=says), vt.steer(layer, finding, **given):
        pass
    assert not layer._forward_hooks


def test_nothing_is_recorded_or_split_while_it_is_steered(tmp_path):
    """A store, and a finding, carry the fingerprint of the plain model."""
    subject, images = vt.load("bundled:scenes-text"), vt.scenes(20, size=64, seed=3)
    asked = {"units": [2], "tokens_per_image": 60, "min_cluster_size": 20, **QUIET}
    finding = vt.disentangle(subject, images, **asked)
    with vt.steer(subject, finding, amplify=[0]):
        with pytest.raises(vt.SettingsError, match=r"active vt.patch or vt.steer(.*\n)*.*hooks on blocks.7.mlp"):
            vt.record(subject, images, "blocks.-1.mlp.out", out=tmp_path / "store", progress=False)
        with pytest.raises(vt.SettingsError, match=r"active vt.patch or vt.steer(.*\n)*.*outside of the with"):
            vt.disentangle(subject, images, **asked)
    assert not (tmp_path / "store").exists()
    vt.record(subject, images, "blocks.-1.mlp.out", out=tmp_path / "store", progress=False)


def test_a_unit_that_stayed_whole_is_its_own_subunit(layer):
    whole = vt.disentangle(layer, bunches(200, 20), units=[0, 1], top_k=150, min_cluster_size=140, progress=False)
    assert whole.counts.max() < 2
    with vt.steer(layer, whole, amplify=[(1, 0)]) as steering:
        assert steering.units.tolist() == [1]
    with pytest.raises(vt.SettingsError, match="unit 1 was not split: it is its own only sub-unit"):
        with vt.steer(layer, whole, amplify=[(1, 1)]):
            pass


def test_unknown_labels_are_refused_with_those_nearby(layer, finding):
    with pytest.raises(vt.SettingsError, match=r"no sub-unit has this label\n(.*\n)*.*nearest:  cat(.*\n)*.*embed="):
        with vt.steer(layer, finding, amplify="cats", labels=labelled(finding)):
            pass
    with pytest.raises(vt.SettingsError, match="no sub-unit has a label that is sure enough"):
        with vt.steer(layer, finding, amplify="cat", labels=[None] * len(finding)):
            pass
    with pytest.raises(vt.SettingsError, match="a label is a text, or None"):
        with vt.steer(layer, finding, amplify="cat", labels=[3] * len(finding)):
            pass
    with pytest.raises(vt.SettingsError, match="every text has one embedding"):
        with vt.steer(layer, finding, amplify="cat", labels=labelled(finding), embed=lambda _: np.ones((9, 3))):
            pass
    with pytest.raises(vt.SettingsError, match="embeddings hold NaN"):
        with vt.steer(
            layer, finding, amplify="cat", labels=labelled(finding), embed=lambda t: np.full((len(t), 3), np.nan)
        ):
            pass


def test_another_checkpoint_is_refused(layer, finding, tiny):
    other = copy.deepcopy(layer)
    with torch.no_grad():
        other.weight[0, 0] += 1e-3
    with pytest.raises(vt.ModelError, match="are not those that were split"), vt.steer(other, finding, amplify=[0]):
        pass
    with pytest.raises(vt.SiteError), vt.steer(tiny, finding, amplify=[0]):
        pass


# -- to be looked at


def test_a_card_shows_before_and_after(vit):
    subject, finding = vit
    x = pictures(3)
    labels = named(finding)
    seen = [np.full((32, 32, 3), 40 * k, np.uint8) for k in range(3)]
    with torch.no_grad():
        before = subject(x).softmax(1).numpy()
        with vt.steer(
            subject, finding, amplify=["cat", 1], suppress="car", labels=labels, alpha=30, patches=4, prefix=True
        ) as steering:
            after = subject(x).softmax(1).numpy()
    classes = [f"class {k}" for k in range(7)]
    card = steering_card(steering, seen, subject.grid(), before, after, classes)
    moved = int((before.argmax(1) != after.argmax(1)).sum())
    assert card.claim == f"cat x 30, car x -5. The first class changes for {moved} of 3 pictures."
    shown, says, steered = card.panels
    assert len(shown.tiles) == 6
    assert shown.tiles[0].caption.split("\n")[0] == f"before: class {before[0].argmax()} {before[0].max():.2f}"
    assert shown.tiles[1].caption.split("\n")[0] == f"after: class {after[0].argmax()} {after[0].max():.2f}"
    assert shown.tiles[0].caption.count("\n") == 2
    assert shown.tiles[1].heat.shape == (32, 32)
    np.testing.assert_allclose(shown.tiles[3].heat[::8, ::8].reshape(-1), steering.patch_map[1])
    assert (shown.tiles[1].heat[:8, :8] == shown.tiles[1].heat[0, 0]).all()  # a patch is a square
    assert [row[0] for row in says.rows] == ["picture 0", "", "", "picture 1", "", "", "picture 2", "", ""]
    assert says.rows[0][1] == classes[before[0].argmax()] and says.rows[0][3] == classes[after[0].argmax()]
    alive = [None if dead else name for name, dead in zip(labels, finding.dead, strict=True)]
    cats, cars = ([k for k, name in enumerate(alive) if name == word] for word in ("cat", "car"))
    assert steered.rows[0] == ("cat", "x 30", len(cats), "cat", "1.00 to 1.00")
    assert steered.rows[1] == ("car", "x -5", len(cars), "car", "1.00 to 1.00")
    assert steered.rows[2] == ("by number", "x 30", 1, "", "")
    assert to_png(card).startswith(b"\x89PNG") and "before: class" in str(to_html(card)) and as_json(card)


def test_a_card_of_other_pictures_is_refused(vit):
    subject, finding = vit
    with vt.steer(subject, finding, amplify=[0]) as steering:
        subject(pictures(2))
    seen, scores = [np.zeros((32, 32, 3), np.uint8)] * 2, np.zeros((2, 7))
    with pytest.raises(vt.SettingsError, match="one picture and one row of scores"):
        steering_card(steering, seen[:1], subject.grid(), scores, scores, "abcdefg")
    with pytest.raises(vt.SettingsError, match="one picture and one row of scores"):
        steering_card(steering, seen, subject.grid(), scores, scores, "abc")
    with pytest.raises(vt.SettingsError, match="the grid has another number of patches"):
        steering_card(steering, seen, (3, 3), scores, scores, "abcdefg")
    assert concept_table(steering).rows == (("by number", "x 5", 1, "", ""),)


def test_token_maps_of_a_steered_model_are_those_of_the_changed_model():
    subject, images = vt.load("bundled:scenes-text", device="cpu"), vt.scenes(24, size=64, seed=1)
    split = {"units": [0, 1], "top_k": 40, "min_cluster_size": 8, "progress": False}
    finding = vt.disentangle(subject, images, "blocks.5.mlp.out", **split)
    plain = vt.token_maps(subject, images[:2], progress=False)
    slower = pytest.warns(UserWarning, match="do not come from; tokens are followed back by autograd")
    with slower, vt.steer(subject, finding, suppress=[0], gamma=1.0):  # factor 1 changes nothing
        same = vt.token_maps(subject, images[:2], progress=False)
    with slower, vt.steer(subject, finding, suppress=[0], gamma=-50.0):
        changed = vt.token_maps(subject, images[:2], progress=False)
    np.testing.assert_allclose(same.scores, plain.scores, atol=1e-4 * np.abs(plain.scores).max())
    assert np.isfinite(changed.scores).all() and not np.allclose(changed.scores, plain.scores, rtol=1e-2)


@pytest.mark.parametrize("patches", [2, "all"])
def test_token_maps_of_a_steered_model_are_exact(vit, patches):
    subject, finding = vit
    with pytest.warns(UserWarning, match="followed back by autograd"):
        with vt.steer(subject, finding, amplify=[0, 1], suppress=[2], patches=patches):
            found = vt.token_maps(subject, pictures(), own="keep", progress=False).scores
            expected = slow_rows(subject, pictures(), 2, list(range(19)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert not np.allclose(found, vt.token_maps(subject, pictures(), own="keep", progress=False).scores, rtol=1e-3)
