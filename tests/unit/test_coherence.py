"""The coherence judge: the mean cosine of pairs, a planted order, and its own name."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitreous as vt
from vitreous.evidence.directions import directions
from vitreous.judges.coherence import coherence


def planted(seed: int = 0):
    """Sixty pictures of six kinds; units that show one kind, three kinds, or any."""
    rng = np.random.default_rng(seed)
    kinds = rng.normal(size=(6, 16))
    embeddings = kinds.repeat(10, 0) + 0.3 * rng.normal(size=(60, 16))
    one = np.array([10 * k + rng.permutation(10)[:9] for k in range(6)])
    three = np.array([[10 * ((k + j // 3) % 6) + j for j in range(9)] for k in range(6)])
    return embeddings, {"three": three, "any": rng.permutation(60)[:54].reshape(6, 9), "one": one}


def test_it_is_the_mean_cosine_of_pairs():
    embeddings, tops = planted()
    found = coherence(embeddings, tops["three"], centre=False)
    rows = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    for unit, pictures in enumerate(tops["three"]):
        pairs = [rows[i] @ rows[j] for i in pictures for j in pictures if i != j]
        assert found[unit] == pytest.approx(np.mean(pairs))
    assert np.isnan(coherence(embeddings, np.full((1, 9), -1))[0])


def test_what_all_pictures_share_is_taken_away_first():
    embeddings, tops = planted()
    shifted = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True) * 0.05 + np.eye(16)[0]
    raw, centred = (coherence(shifted, tops["any"], centre=c) for c in (False, True))
    assert (raw > 0.9).all() and (centred < 0.3).all()
    assert (coherence(shifted, tops["one"]) > 0.7).all()


def test_a_planted_order_is_recovered_under_its_own_name():
    embeddings, tops = planted()
    found = vt.coherence_rank([tops, tops], embeddings, pairs=20, repeats=100)
    assert dict(zip(found.methods, found.ranks.tolist(), strict=True)) == {"one": 1, "three": 2, "any": 3}
    assert found.kind == "coherence judge" and found.judges == ("coherence judge",)
    assert "LLM" not in found.table() + str(found.as_json())
    assert found.consistent[0] == 1 and found.first[0] == 0.5 and np.isnan(found.unanimous)
    tensors = vt.coherence_rank([tops, tops], torch.tensor(embeddings), pairs=20, repeats=100)
    assert tensors.as_json() == found.as_json()


def test_units_that_are_equal_tie():
    embeddings, tops = planted()
    found = vt.coherence_rank({"a": tops["one"][:1], "b": tops["one"][:1]}, embeddings, repeats=10)
    assert found.dropped == 2 and np.isnan(found.rates).all()


def test_directions():
    rows = np.array([[3.0, 4.0], [0.0, 0.0], [1e200, 1e200]])
    np.testing.assert_allclose(directions(rows), [[0.6, 0.8], [0, 0], [0.5**0.5] * 2])
    assert directions(torch.ones(2, 3, dtype=torch.bfloat16)).dtype == np.float32
    for wrong in (np.zeros(3), np.zeros((0, 3)), np.array([["a"]])):
        with pytest.raises(vt.SettingsError, match=r"numbers \(text, channel\)"):
            directions(wrong, "text")
    with pytest.raises(vt.SettingsError, match="NaN or infinity\n  given:    'picture 1'"):
        directions(np.array([[1.0], [np.nan]]))
