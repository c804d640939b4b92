"""What every row of the table of dictionaries must do. A new kind is a new row, and is tested here without a word."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

import vitreous as vt
from vitreous.baselines.dictionaries import KINDS, Dictionary, quality, train_dictionary
from vitreous.baselines.dictionaries.learning import _begin
from vitreous.baselines.dictionaries.rows import Rows

CHANNELS, ATOMS, ACTIVE, ROWS = 20, 30, 2, 4000
SMALL = {"candidates": 200}  # options that are too large for so little data
PENALTY = {"vanilla": 0.06, "jumprelu": 0.06, "transcoder": 0.03}  # of few channels
#: Mean largest cosine of planted and found atoms; drawn at random they reach about 0.55.
RECOVERED = {"jumprelu": 0.75, "transcoder": 0.7, "matryoshka": 0.8}


@cache
def planted() -> tuple[torch.Tensor, torch.Tensor]:
    """Rows that are each a sum of two known atoms, with a mean and a scale of their own."""
    g = torch.Generator().manual_seed(0)
    atoms = torch.nn.functional.normalize(torch.randn(ATOMS, CHANNELS, generator=g), dim=1)
    which = torch.rand(ROWS, ATOMS, generator=g).topk(ACTIVE).indices
    z = torch.zeros(ROWS, ATOMS).scatter(1, which, 1 + torch.rand(ROWS, ACTIVE, generator=g))
    return 5 * (z @ atoms + 0.01 * torch.randn(ROWS, CHANNELS, generator=g)) + 3, atoms


@cache
def before() -> torch.Tensor:
    """What a transcoder reads: 24 channels from which the layer's output follows."""
    mixing = torch.randn(24, CHANNELS, generator=torch.Generator().manual_seed(1)) / 5
    return planted()[0] @ torch.linalg.pinv(mixing)


def given(kind: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    return (before(), planted()[0]) if kind == "transcoder" else (planted()[0], None)


def settings(kind: str, **others) -> dict:
    row = KINDS[kind]
    asked = {"penalty": PENALTY[kind]} if row.penalties else {"k": ACTIVE}
    asked |= {name: value for name, value in SMALL.items() if name in row.options}
    shared = {"expansion": 1.5, "epochs": 15, "batch_size": 200, "learning_rate": 2e-2, "progress": False}
    return shared | asked | others


def train(kind: str, **others) -> Dictionary:
    x, y = given(kind)
    return train_dictionary(x, kind, targets=y, **settings(kind, **others))


trained = cache(train)
kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
def test_it_explains_most_of_the_data(kind):
    found = quality(trained(kind), *given(kind))
    assert found.r2 > 0.6  # the mean predictor has 0
    x, y = given(kind)
    aim = x if y is None else y
    error = (trained(kind).reconstruct(x) - aim).square().mean()
    assert found.mse == pytest.approx(float(error), rel=1e-4)
    assert float(error) < 0.4 * float((aim - aim.mean(0)).square().mean())


@kinds
def test_planted_atoms_are_recovered(kind):
    def closest(atoms: torch.Tensor) -> float:
        return float((planted()[1] @ torch.nn.functional.normalize(atoms, dim=1).T).max(1).values.mean())

    drawn = torch.randn(ATOMS, CHANNELS, generator=torch.Generator().manual_seed(2))
    assert closest(drawn) < 0.6
    assert closest(trained(kind).atoms) > RECOVERED.get(kind, 0.85)


@kinds
def test_codes_are_as_sparse_as_asked(kind):
    x, _ = given(kind)
    dictionary = trained(kind)
    active = (dictionary.encode(x) > 0).sum(1).float()
    if KINDS[kind].penalties:
        many = train(kind, penalty=PENALTY[kind] / 8)
        assert active.mean() < 0.8 * (many.encode(x) > 0).sum(1).float().mean()
    elif KINDS[kind].architecture == "jumprelu":  # as many as asked on average, not in every row
        assert float(active.mean()) == pytest.approx(ACTIVE, rel=0.1)
    else:
        assert active.max() <= ACTIVE and active.mean() > 0.9 * ACTIVE


@kinds
def test_shapes_and_signs(kind):
    x, _ = given(kind)
    dictionary = trained(kind)
    units, outputs = round(1.5 * CHANNELS), CHANNELS
    z = dictionary.encode(x[:6].reshape(2, 3, -1))
    assert z.shape == (2, 3, units) and (z >= 0).all() and z.dtype == torch.float32
    assert dictionary.decode(z).shape == dictionary.reconstruct(x[:6].reshape(2, 3, -1)).shape == (2, 3, outputs)
    assert dictionary.atoms.shape == (units, outputs)
    torch.testing.assert_close(dictionary.reconstruct(x[:6].numpy()), dictionary.decode(dictionary.encode(x[:6])))
    if kind != "archetypal":
        torch.testing.assert_close(dictionary.atoms.norm(dim=1), torch.ones(units))
    config = dictionary.config
    assert (config.kind, config.inputs, config.outputs, config.units) == (kind, x.shape[1], outputs, units)


@kinds
def test_a_row_does_not_depend_on_the_others(kind):
    x, _ = given(kind)
    together = trained(kind).encode(x[:50])
    alone = torch.cat([trained(kind).encode(row[None]) for row in x[:50]])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)


@kinds
def test_a_saved_dictionary_is_the_same(kind, tmp_path):
    x, _ = given(kind)
    dictionary = trained(kind)
    dictionary.save(tmp_path / "d")
    loaded = vt.Dictionary.load(tmp_path / "d")
    assert torch.equal(loaded.reconstruct(x), dictionary.reconstruct(x))
    assert dict(loaded.config.training) == _plain(dictionary.config.training)
    first = (tmp_path / "d" / "sae_weights.safetensors").read_bytes()
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again" / "sae_weights.safetensors").read_bytes() == first
    assert (tmp_path / "again" / "cfg.json").read_bytes() == (tmp_path / "d" / "cfg.json").read_bytes()


@kinds
def test_the_same_seed_gives_the_same_bits_and_another_does_not(kind):
    state = torch.get_rng_state()
    a, b, c = (train(kind, epochs=1, seed=seed) for seed in (1, 1, 2))
    for name in a.weights:
        assert torch.equal(a.weights[name], b.weights[name])
    assert not torch.equal(a.atoms, c.atoms)
    assert torch.equal(torch.get_rng_state(), state)  # nothing was drawn from the global generator


@kinds
def test_every_parameter_has_a_finite_gradient(kind):
    x, y = given(kind)
    asked = {"seed": 0, "batch_size": 200, "options": {**KINDS[kind].options}}
    asked["options"] |= {name: value for name, value in SMALL.items() if name in asked["options"]}
    rows = Rows(x)
    trainee = _begin(KINDS[kind], rows, rows if y is None else Rows(y), 30, ACTIVE, asked)
    start = trainee.start
    aim = x / start.scale_in if y is None else y / start.scale_out
    trainee.loss(x[:200] / start.scale_in, aim[:200], 0.1, 1e-3).backward()
    for name, parameter in trainee.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), name
            assert (parameter.grad != 0).any(), name


@kinds
def test_scale_and_place_of_the_data_do_not_matter(kind):
    """The same data in other units give the same dictionary in other units."""
    x, y = given(kind)
    plain = train_dictionary(x, kind, targets=y, **settings(kind, epochs=2))
    far = train_dictionary(8 * x, kind, targets=None if y is None else 8 * y, **settings(kind, epochs=2))
    torch.testing.assert_close(far.encode(8 * x[:50]), 8 * plain.encode(x[:50]), rtol=1e-3, atol=1e-2)
    torch.testing.assert_close(far.atoms, plain.atoms, rtol=1e-3, atol=1e-3)


@kinds
def test_numpy_half_precision_and_tokens_are_rows_too(kind):
    x, y = given(kind)
    few = {"epochs": 1, "batch_size": 500}
    halves = x.half()
    expected = train_dictionary(halves.float(), kind, targets=y, **settings(kind, **few))
    tokens = halves.numpy().reshape(400, 10, -1)
    tokens.flags.writeable = False
    found = train_dictionary(tokens, kind, targets=y, **settings(kind, **few))
    assert torch.equal(found.atoms, expected.atoms)


@kinds
def test_gradients_pass_to_the_input(kind):
    """So that a dictionary can stand inside a model."""
    x = given(kind)[0][:3].clone().requires_grad_()
    trained(kind).reconstruct(x).square().sum().backward()
    assert torch.isfinite(x.grad).all() and (x.grad != 0).any()
    assert not any(value.requires_grad for value in trained(kind).weights.values())


def _plain(value):
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def test_the_dictionaries_of_the_paper_are_there():
    assert np.array_equal(
        sorted(KINDS),
        ["archetypal", "batch_topk", "jumprelu", "matching_pursuit", "matryoshka", "topk", "transcoder", "vanilla"],
    )
