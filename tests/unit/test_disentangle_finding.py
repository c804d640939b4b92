"""A finding on disk, in a model and out again, and in the paper's two-stage form."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from torch import nn

import vitreous as vt


def clustered(rows: int, inputs: int, seed: int = 0) -> np.ndarray:
    """Inputs in four bunches, so that most units split."""
    rng = np.random.default_rng(seed)
    centres = np.abs(rng.normal(size=(4, inputs))) * (rng.random((4, inputs)) < 0.4)
    return (centres[rng.integers(0, 4, rows)] + 0.1 * rng.random((rows, inputs))).astype(np.float32)


def split(layer: nn.Module, inputs: int, **change) -> vt.Disentanglement:
    asked = {"top_k": 200, "min_cluster_size": 15, "progress": False}
    return vt.disentangle(layer, clustered(300, inputs), **(asked | change))


@pytest.fixture
def layer() -> nn.Linear:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Linear(20, 6)


def test_shares_are_small_codes_and_weights_sum_back(layer):
    finding = split(layer, 20)
    assert len(finding) > 8 and finding.codes.shape == (len(finding), 3) and finding.codes.dtype == np.uint8
    assert finding.codes.nbytes < finding.dense[0].nbytes / 20
    weight = layer.weight.detach().numpy()
    for unit in range(6):
        shares = finding.shares(unit)
        allowed = [0, *(1 / n for n in range(1, len(shares) + 1))]
        assert np.isin(shares, allowed).all() and np.allclose(shares.sum(0), 1)
        weights, biases = finding.subunit_weights(unit)
        again, _ = vt.split_weights(
            weight[unit],
            finding.bias[unit],
            finding.representatives[finding.subunits(unit)],
            max(finding.rho[unit], 0.05),
        )
        np.testing.assert_array_equal(weights, again)  # what was saved is what the formula gives
        np.testing.assert_array_equal(sum(weights), weight[unit])
        assert sum(biases) == layer.bias[unit].item()
    assert finding.dead.shape == (len(finding),)
    assert repr(finding) == f"Disentanglement('Linear': 6 units, {len(finding)} sub-units, x {len(finding) / 6:.2f})"


def test_activations_of_arrays_and_tensors_add_up_to_the_unit(layer):
    finding = split(layer, 20, units=[4, 2])
    x = clustered(7, 20, seed=5).reshape(7, 1, 20)
    parts = finding.subunit_activations(x)
    assert parts.shape == (7, 1, len(finding))
    whole = layer(torch.from_numpy(x)).detach().numpy()
    for at, unit in enumerate([4, 2]):
        np.testing.assert_allclose(parts[..., finding.parents == at].sum(-1), whole[..., unit], atol=1e-5)
        assert finding.subunits(unit).tolist() == np.flatnonzero(finding.parents == at).tolist()
    np.testing.assert_allclose(finding.subunit_activations(torch.from_numpy(x)).numpy(), parts, atol=1e-5)
    np.testing.assert_allclose(finding.subunit_activations(x, [1, 0]), parts[..., [1, 0]], atol=1e-6)
    with pytest.raises(vt.SettingsError, match="no such sub-unit"):
        finding.subunit_activations(x, [len(finding)])
    with pytest.raises(vt.SettingsError, match="this unit was not looked at"):
        finding.subunits(0)
    with pytest.raises(vt.SettingsError, match="given what enters the layer"):
        finding.subunit_activations(x[..., :5])
    for given in (x.tolist(), 3.0, np.float32(1)):
        with pytest.raises(vt.SettingsError, match="an array or a tensor"):
            finding.subunit_activations(given)


def test_subunits_of_different_units_that_say_the_same_are_found(layer):
    with torch.no_grad():
        layer.weight[3] = 2 * layer.weight[0]
        layer.weight[5] = 0
    x = clustered(300, 20)
    finding = split(layer, 20)
    groups = finding.duplicates(x)
    changing = finding.units[finding.parents] != 5
    correlation = np.corrcoef(finding.subunit_activations(x)[:, changing].T)
    owner = finding.parents[changing]
    correlation[owner == owner[:, None]] = 0  # parts of one unit are no duplicates
    assert any({0, 3} <= set(finding.units[finding.parents[ids]].tolist()) for ids in groups)
    assert sum(map(len, groups)) == (correlation.max(0) > 0.95).sum()
    assert [len(ids) for ids in groups] == sorted((len(ids) for ids in groups), reverse=True)
    assert len(finding.duplicates(x, 0.9999)) < len(finding)
    with pytest.raises(vt.SettingsError, match="duplicates are found on two finite inputs or more"):
        finding.duplicates(x[:1])
    with pytest.raises(vt.SettingsError, match="two finite inputs"):  # none is no answer
        finding.duplicates(np.where(x > 1, np.nan, x))
    with pytest.raises(vt.SettingsError, match="at a threshold between 0 and 1"):
        finding.duplicates(x, "0.9")
    with pytest.raises(vt.SettingsError, match="sub-units are whole numbers"):
        finding.weights_of([0.5])


# -- on disk


def test_it_comes_back_from_disk_as_it_was(layer, tmp_path):
    finding = split(layer, 20)
    finding.save(tmp_path / "a")
    again = vt.Disentanglement.load(tmp_path / "a")
    for name in ("units", "weight", "bias", "counts", "rho", "scores", "noise", "parents", "sizes", "codes"):
        np.testing.assert_array_equal(again.__dict__[name], finding.__dict__[name])
    np.testing.assert_array_equal(again.representatives, finding.representatives)
    np.testing.assert_array_equal(again.top.images, finding.top.images)
    np.testing.assert_array_equal(again.subunit_top.values, finding.subunit_top.values)
    assert (again.site, again.path, again.first) == (finding.site, finding.path, finding.first)
    assert again.settings == finding.settings and again.settings["min_cluster_size"] == 15
    again.save(tmp_path / "b")
    assert {p.name for p in (tmp_path / "b").iterdir()} == {"disentanglement.json", "disentanglement.safetensors"}
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    again.apply(layer)


def test_damaged_and_foreign_folders_are_refused(layer, tmp_path):
    with pytest.raises(vt.StoreError, match="no disentanglement here"):
        vt.Disentanglement.load(tmp_path)
    split(layer, 20).save(tmp_path)
    arrays, about = tmp_path / "disentanglement.safetensors", tmp_path / "disentanglement.json"
    whole, said = arrays.read_bytes(), json.loads(about.read_bytes())
    arrays.write_bytes(whole[:-40])
    with pytest.raises(vt.StoreError, match="not a disentanglement"):
        vt.Disentanglement.load(tmp_path)
    arrays.write_bytes(whole)
    about.write_text(json.dumps(said | {"format": "a poem"}))
    with pytest.raises(vt.StoreError, match=r"not a disentanglement.*a poem"):
        vt.Disentanglement.load(tmp_path)
    nameless = {name: value for name, value in said["settings"].items() if name != "layer"}
    for settings in (None, nameless, nameless | {"layer": 5}):
        about.write_text(json.dumps(said | {"settings": settings}))
        with pytest.raises(vt.StoreError, match=r"does not say what it was made of[\s\S]*no layer"):
            vt.Disentanglement.load(tmp_path)
    about.write_text(json.dumps(said))
    from safetensors.numpy import load, save

    tensors = load(whole)
    for name in ("codes", "parents", "top.images"):
        arrays.write_bytes(save(tensors | {name: np.ascontiguousarray(tensors[name][1:])}))
        with pytest.raises(vt.StoreError, match="do not fit together"):
            vt.Disentanglement.load(tmp_path)


# -- in a model


def test_nothing_changes_unless_somebody_edits(layer):
    finding = split(layer, 20)
    x = torch.from_numpy(clustered(5, 20, seed=2)).requires_grad_()
    before = layer(x)
    applied = finding.apply(layer)
    assert torch.equal(layer(x), before)
    assert list(layer.state_dict()) == ["weight", "bias"]
    with applied.look() as seen:
        assert seen.values is None
        assert torch.equal(layer(x), before)
    assert seen.values.shape == (5, 1, len(finding))
    np.testing.assert_allclose(seen.values.detach()[:, 0], finding.subunit_activations(x.detach().numpy()), atol=1e-5)
    with applied.edit([0, 1], lambda a: a), applied.edit([2], lambda _: None):
        assert torch.equal(layer(x), before)
    finding.remove(layer)
    assert not layer._forward_hooks and torch.equal(layer(x), before)


def test_an_edit_moves_its_unit_by_what_its_subunits_move(layer):
    finding = split(layer, 20)
    x = torch.from_numpy(clustered(5, 20, seed=2))
    before = layer(x)
    ids = finding.subunits(3)[:2]
    with finding.applied(layer) as applied:
        with applied.look(ids) as seen, applied.edit(ids, lambda a: 0 * a):
            after = layer(x)
        assert torch.equal(layer(x), before)  # and no trace is left
    torch.testing.assert_close(after[:, 3], before[:, 3] - seen.values[:, 0].sum(-1))
    others = [0, 1, 2, 4, 5]
    assert torch.equal(after[:, others], before[:, others])
    with pytest.raises(vt.SettingsError, match="no such sub-unit"), finding.applied(layer) as applied:
        applied.look([len(finding)]).__enter__()
    with pytest.raises(vt.SettingsError, match="an edit keeps the shape"), finding.applied(layer) as applied:
        with applied.edit([0], lambda a: a[:1]):
            layer(x)
    assert not layer._forward_hooks


def test_convolutions_and_parts_of_a_layer_are_edited_where_they_are(tiny):
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 6, 3, stride=2, padding=1)
    finding = split(conv, 27)
    x = torch.randn(2, 3, 8, 8)
    before = conv(x)
    ids = finding.subunits(5)
    with finding.applied(conv) as applied, applied.edit(ids, lambda a: 0 * a):
        after = conv(x)
    assert after[:, 5].abs().max() < 1e-5 and torch.equal(after[:, :5], before[:, :5])
    keys = vt.disentangle(tiny, clustered(300, 32), "blocks.0.attn.k", top_k=200, min_cluster_size=15, progress=False)
    x = torch.randn(2, 3, 32, 32)
    with vt.capture(tiny, "blocks.0.attn.*") as plain:
        tiny(x)
    old = {name: plain[f"blocks.0.attn.{name}"] for name in "qkv"}
    with keys.applied(tiny) as applied, applied.edit(keys.subunits(7), lambda a: 0 * a):
        with vt.capture(tiny, "blocks.0.attn.*") as edited:
            tiny(x)
        assert edited["blocks.0.attn.k"][..., 7].abs().max() < 1e-5
        assert torch.equal(edited["blocks.0.attn.q"], old["q"]) and torch.equal(edited["blocks.0.attn.v"], old["v"])
        assert torch.equal(edited["blocks.0.attn.k"][..., :7], old["k"][..., :7])


def test_another_checkpoint_is_refused_and_a_copy_is_not(layer, tiny, tmp_path):
    finding = split(layer, 20)
    finding.apply(copy.deepcopy(layer))
    with pytest.raises(vt.SettingsError, match="are applied to the layer already"):
        finding.apply(layer)
        finding.apply(layer)
    finding.remove(layer)
    with pytest.raises(vt.SettingsError, match="no sub-units are applied"):
        finding.remove(layer)
    with pytest.raises(vt.ModelError, match="another checkpoint, another precision"):
        finding.apply(copy.deepcopy(layer).half())
    finding.save(tmp_path)
    saved = vt.Disentanglement.load(tmp_path)
    saved.apply(copy.deepcopy(layer))
    with torch.no_grad():
        layer.weight[0, 0] += 1e-6
    for use in (finding.apply, finding.materialised, saved.apply, saved.materialised):
        with pytest.raises(vt.ModelError, match="are not those that were split"):
            use(layer)
    whole = vt.disentangle(tiny, clustered(300, 128), top_k=200, min_cluster_size=15, units=[0], progress=False)
    whole.apply(tiny.module)  # by path, where there is no subject
    whole.remove(tiny)


def test_only_what_was_put_in_is_taken_out(layer, tmp_path):
    finding, other = split(layer, 20), split(layer, 20, units=[0, 1])
    finding.apply(layer)
    with pytest.raises(vt.SettingsError, match=r"applied to the layer are others(.*\n)*.*2 units(.*\n)*.*6 units"):
        other.remove(layer)
    finding.save(tmp_path)
    vt.Disentanglement.load(tmp_path).remove(layer)  # a copy of it is as good
    assert not layer._forward_hooks


def test_parts_of_one_layer_are_applied_side_by_side(tiny):
    """Queries and keys come out of one module in many models."""
    asked = {"top_k": 200, "min_cluster_size": 15, "progress": False}
    q, k = (vt.disentangle(tiny, clustered(300, 32), f"blocks.0.attn.{name}", **asked) for name in "qk")
    x = torch.randn(2, 3, 32, 32)
    before = tiny(x)
    of_q, of_k = q.apply(tiny), k.apply(tiny)
    with of_q.look([0]) as seen_q, of_k.look([0]) as seen_k:
        assert torch.equal(tiny(x), before)
    assert not torch.equal(seen_q.values, seen_k.values)
    k.remove(tiny)
    with pytest.raises(vt.SettingsError, match=r"are applied to .* already"):
        q.apply(tiny)
    q.remove(tiny)
    assert tiny.hooks == 0


# -- in two stages


@pytest.mark.parametrize("bias", [True, False])
def test_two_stages_are_the_layer_up_to_rounding(bias):
    torch.manual_seed(1)
    for module, inputs, x in [
        (nn.Linear(20, 6, bias=bias), 20, torch.randn(3, 5, 20)),
        (nn.Conv2d(3, 6, 3, stride=2, padding=1, bias=bias), 27, torch.randn(2, 3, 9, 9)),
        (nn.Conv2d(20, 6, 1, bias=bias), 20, torch.randn(2, 20, 4, 4)),
    ]:
        finding = split(module, inputs, units=[1, 2, 4])
        staged = finding.materialised(module)
        assert staged.split.weight.shape[0] == len(finding) + 3  # the other units are their own sub-units
        torch.testing.assert_close(staged(x), module(x), atol=2e-6, rtol=1e-5)
        assert torch.equal(staged(x), staged(x))


def test_two_stages_take_a_layers_place(tiny):
    finding = vt.disentangle(
        tiny, clustered(300, 128), "blocks.0.mlp.out", top_k=200, min_cluster_size=15, progress=False
    )
    x = torch.randn(2, 3, 32, 32)
    before = tiny(x)
    tiny.module.blocks[0].mlp.fc2 = finding.materialised(tiny)
    torch.testing.assert_close(tiny(x), before, atol=1e-5, rtol=1e-4)
