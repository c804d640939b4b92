"""Learned weights against eq. 11 written out, and what must not change."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from shown import leaves_as_a_table, shows_itself

import vitreous as vt
from vitreous.errors import SettingsError
from vitreous.lenses import tokens_learned

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))
sys.path.insert(0, str(Path(__file__).parents[1] / "reference"))
from zoo import build

from tokens import slow_loss

X = torch.randn(6, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def vivid():
    """Five prefix tokens and 16 patches."""
    return vt.wrap(build("timm ViT, LayerScale, 4 registers"))


def test_the_loss_is_that_of_the_equation(vivid):
    grid = torch.tensor([[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 2, 1], [2, 2, 2, 1]])
    noise = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(7))
    generator = torch.Generator().manual_seed(7)
    differences = tokens_learned._differences(vivid, X[0], grid, -1, 0.3, generator)
    pixels = grid.repeat_interleave(8, 0).repeat_interleave(8, 1)
    pictures = [X[0], *(X[0] + 0.3 * noise[c] * (pixels != c) for c in range(3))]
    with torch.no_grad(), vt.capture(vivid, "blocks.2.resid.out") as rec:
        vivid(torch.stack(pictures))
        z, *noisy = rec["blocks.2.resid.out"].double().numpy()
    theta = torch.randn(21, 32, generator=generator).double()
    segment_of = {5 + k: int(c) for k, c in enumerate(grid.flatten())}
    expected = slow_loss(z, dict(enumerate(noisy)), segment_of, theta.numpy())
    found = tokens_learned._loss(differences.double()[None], theta)
    assert expected > 0 and float(found) == pytest.approx(expected, rel=1e-4)


def test_weights_are_learned_and_the_model_is_not_touched(vivid, tmp_path):
    before = {name: value.clone() for name, value in vivid.module.state_dict().items()}
    settings = vt.SelfConsistency(samples=4, epochs=6, batch_size=2, k=3, lr=0.05, redraw=False)
    learned = settings.fit(vivid, X, progress=False)
    leaves_as_a_table(learned, tmp_path)
    shows_itself(learned)
    assert learned.weights.shape == (21, 32) and learned.weights.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(learned.weights, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(learned.weights[:5], 32**-0.5, rtol=1e-5)  # prefix tokens are in no segment
    assert (np.abs(learned.weights[5:] - 32**-0.5).max(1) > 0.01).all()
    assert learned.losses.shape == (6,) and learned.losses[-1] < 0.7 * learned.losses[0]
    assert learned.settings["pictures"] == 4 and learned.settings["k"] == 3
    assert all(torch.equal(value, before[name]) for name, value in vivid.module.state_dict().items())
    assert vivid.hooks == 0 and all(p.grad is None for p in vivid.module.parameters())
    maps = vt.token_maps(vivid, X[:1], target=learned.weights, progress=False)
    assert np.abs(maps.scores - vt.token_maps(vivid, X[:1], progress=False).scores).max() > 1e-4


@pytest.mark.parametrize(("redraw", "noises"), [(True, 6), (False, 2)])
def test_noise_is_drawn_anew_in_each_epoch_or_once_a_picture(vivid, monkeypatch, redraw, noises):
    drawn, differences = [], tokens_learned._differences
    monkeypatch.setattr(tokens_learned, "_differences", lambda *given: drawn.append(differences(*given)) or drawn[-1])
    vt.SelfConsistency(samples=2, epochs=3, k=6, redraw=redraw).fit(vivid, X, progress=False)
    assert len(drawn) == noises and len({float(one.norm()) for one in drawn}) == noises


def test_a_loss_is_the_mean_a_picture_however_batches_end(vivid):
    """Steps too small to matter: six pictures as one batch, and as four and two."""
    losses = [
        vt.SelfConsistency(samples=6, epochs=1, k=6, lr=1e-9, batch_size=size).fit(vivid, X, progress=False).losses[0]
        for size in (6, 4)
    ]
    assert losses[0] > 0 and losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_the_same_seed_gives_the_same_bytes(vivid):
    runs = [vt.SelfConsistency(samples=3, epochs=2, k=2, seed=seed).fit(vivid, X, progress=False) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(runs[0].weights, runs[1].weights)
    assert (runs[0].weights != runs[2].weights).any()


def test_one_vector_for_all_tokens(vivid):
    learned = vt.SelfConsistency(samples=2, epochs=1, k=2, shared=True).fit(vivid, X, progress=False)
    assert (learned.weights == learned.weights[0]).all() and learned.weights[0].std() > 0


def test_the_papers_settings_are_the_defaults():
    settings = vt.SelfConsistency()
    assert (settings.lr, settings.batch_size, settings.samples, settings.epochs) == (0.01, 32, 256, 10)


@pytest.mark.parametrize("given", [0, "3"])
@pytest.mark.parametrize("name", ["delta", "samples", "epochs", "batch_size", "lr"])
def test_settings_are_refused_by_name(name, given):
    with pytest.raises(SettingsError, match=f"{name} is a (whole )?number\n  given:    {given!r}"):
        vt.SelfConsistency(**{name: given})


def test_more_clusters_than_tokens_are_refused_before_any_map_is_computed(vivid, monkeypatch):
    monkeypatch.setattr("vitreous.lenses.tokens_learned.token_maps", None)
    with pytest.raises(SettingsError, match="more clusters than tokens, or none\n  given:    17\n  accepted: 1 to 16"):
        vt.SelfConsistency(k=17).fit(vivid, X)
    with pytest.raises(SettingsError, match="k is a whole number"):
        vt.SelfConsistency(k="3").fit(vivid, X)


def test_a_threshold_is_refused_before_any_map_is_computed():
    with pytest.raises(SettingsError, match="share of the tree's height\n  given:    3"):
        vt.SelfConsistency(threshold=3)


def test_first_maps_are_followed_back_in_the_dtype_asked_for(vivid, monkeypatch):
    found, token_maps = [], tokens_learned.token_maps
    monkeypatch.setattr(tokens_learned, "token_maps", lambda *a, **k: found.append(token_maps(*a, **k)) or found[-1])
    learned = vt.SelfConsistency(samples=2, epochs=1, dtype="bfloat16").fit(vivid, X, progress=False)
    assert [maps.settings["dtype"] for maps in found] == ["bfloat16"] and learned.settings["dtype"] == "bfloat16"


def test_texts_have_no_segments():
    with pytest.raises(SettingsError, match="texts have no segments"):
        vt.SelfConsistency().fit(vt.wrap(build("HF GPT-2")), [[1, 2, 3]])
