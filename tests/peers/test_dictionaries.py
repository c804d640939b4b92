"""The same codes and reconstructions as overcomplete and SAELens on the same weights, and the same metrics.

overcomplete's package opens with drawing code that wants OpenCV and an older matplotlib; its dictionaries need neither,
so they are imported past it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types

import numpy as np
import pytest
import torch

import vitreous as vt
from vitreous.baselines.dictionaries import KINDS
from vitreous.evidence.faithfulness import faithfulness
from vitreous.evidence.stability import coherence, matched_similarity

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def overcomplete():
    """The package without its first page."""
    spec = importlib.util.find_spec("overcomplete")
    if spec is None or spec.submodule_search_locations is None:
        pytest.skip("overcomplete is not installed")
    pytest.importorskip("einops")
    bare = types.ModuleType("overcomplete")
    bare.__path__ = list(spec.submodule_search_locations)
    sys.modules["overcomplete"] = bare
    importlib.import_module("overcomplete.metrics")
    importlib.import_module("overcomplete.sae")
    yield bare
    for name in [name for name in sys.modules if name.split(".")[0] == "overcomplete"]:
        del sys.modules[name]


def data(rows: int = 400, channels: int = 12) -> torch.Tensor:
    return 3 * torch.randn(rows, channels, generator=torch.Generator().manual_seed(0)) + 1


def trained(kind: str) -> vt.Dictionary:
    x = data()
    asked = {} if KINDS[kind].penalties else {"k": 4}
    asked |= {"targets": x[:, :6].contiguous()} if kind == "transcoder" else {}
    return vt.train_dictionary(x, kind, expansion=3, epochs=3, batch_size=100, progress=False, **asked)


@pytest.mark.parametrize("kind", ["topk", "archetypal", "vanilla"])
def test_codes_are_those_of_overcomplete(overcomplete, kind):
    ours, x = trained(kind), data()
    w = ours.weights
    theirs = (
        overcomplete.sae.SAE(12, 36) if kind == "vanilla" else overcomplete.sae.TopKSAE(12, 36, top_k=ours.config.k)
    )
    linear = theirs.encoder.final_block[0]
    with torch.no_grad():
        linear.weight.copy_(w["W_enc"].T)
        linear.bias.copy_(w["b_enc"] - w["b_dec"] @ w["W_enc"])  # it has no bias in front
        _, z = theirs.encode(x)
    torch.testing.assert_close(z, ours.encode(x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(z @ w["W_dec"] + w["b_dec"], ours.reconstruct(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["batch_topk", "matryoshka", "jumprelu"])
def test_codes_above_a_threshold_are_those_of_overcomplete(overcomplete, kind):
    """Finished: it has no Matryoshka, whose codes are those of BatchTopK once it is trained."""
    ours, x = trained(kind), data()
    w = ours.weights
    theirs = overcomplete.sae.JumpSAE(12, 36) if kind == "jumprelu" else overcomplete.sae.BatchTopKSAE(12, 36)
    linear = theirs.encoder.final_block[0]
    with torch.no_grad():
        linear.weight.copy_(w["W_enc"].T)
        linear.bias.copy_(w["b_enc"] - w["b_dec"] @ w["W_enc"])
        if kind == "jumprelu":
            theirs.thresholds.copy_(w["threshold"].log())
        else:
            theirs.eval().running_threshold = w["threshold"][0]
        _, z = theirs.encode(x)
    assert 0 < (z > 0).float().mean() < 0.9
    torch.testing.assert_close(z, ours.encode(x), rtol=1e-4, atol=1e-4)


def test_gradients_of_the_jump_are_those_of_overcomplete(overcomplete):
    """But for a factor: its kernels divide by the bandwidth, and its gradient divides by it once more."""
    from vitreous.baselines.dictionaries.jumprelu import _Count, _Jump

    kernels = importlib.import_module("overcomplete.sae.kernels")
    theirs = importlib.import_module("overcomplete.sae.jump_sae")
    x, upstream = data().relu(), torch.randn(400, 12, generator=torch.Generator().manual_seed(1))
    bandwidth = 0.5
    for ours, other in ((_Jump.apply, theirs.jump_relu), (_Count.apply, theirs.heaviside)):
        found = []
        for function, more in ((ours, (bandwidth,)), (other, (kernels.rectangle_kernel, torch.tensor(bandwidth)))):
            x.requires_grad_(True).grad = None
            threshold = torch.linspace(0.2, 3, 12).requires_grad_()
            (function(x, threshold, *more) * upstream).sum().backward()
            found.append((torch.zeros_like(x) if x.grad is None else x.grad.clone(), threshold.grad))
        (by_x, by_threshold), (their_by_x, their_by_threshold) = found
        torch.testing.assert_close(by_x, their_by_x)
        torch.testing.assert_close(by_threshold, bandwidth * their_by_threshold)
        assert by_threshold.abs().min() > 0


def test_archetypal_atoms_are_kept_in_bounds_as_overcomplete_does(overcomplete):
    from vitreous.baselines.dictionaries.learning import _begin
    from vitreous.baselines.dictionaries.rows import Rows

    rows = Rows(data())
    settings = {"batch_size": 100, "seed": 0, "options": {**KINDS["archetypal"].options, "candidates": 50}}
    ours = _begin(KINDS["archetypal"], rows, rows, 36, 4, settings)
    g = torch.Generator().manual_seed(2)
    with torch.no_grad():
        ours.A += 0.1 * torch.randn(ours.A.shape, generator=g)
        ours.relaxation += torch.randn(ours.relaxation.shape, generator=g)
        ours.multiplier += 0.3
    theirs = overcomplete.sae.RelaxedArchetypalDictionary(12, 36, ours.C)
    theirs.W.data, theirs.Relax.data = ours.A.detach().clone(), ours.relaxation.detach().clone()
    theirs.multiplier.data = ours.multiplier.detach().clone()
    before = ours.atoms.detach().clone()
    ours.constrain()
    assert not torch.allclose(before, ours.atoms)
    torch.testing.assert_close(theirs.get_dictionary().detach(), ours.atoms.detach(), rtol=1e-4, atol=1e-5)


def test_pursuit_is_that_of_overcomplete(overcomplete):
    ours, x = trained("matching_pursuit"), data()
    theirs = overcomplete.sae.MpSAE(12, 36, k=4)
    theirs.get_dictionary = lambda: ours.atoms
    with torch.no_grad():
        _, z = theirs.encode(x - ours.weights["b_dec"])
    torch.testing.assert_close(z, ours.encode(x), rtol=1e-4, atol=1e-4)


def test_metrics_are_those_of_overcomplete(overcomplete):
    metrics = overcomplete.metrics
    ours, x = trained("topk"), data()
    a, b = ours.atoms, trained("vanilla").atoms
    assert coherence(a) == pytest.approx(float(metrics.dictionary_collinearity(a)[0]), rel=1e-5)
    distance = metrics.cosine_hungarian_loss(a, b) / len(a)
    assert matched_similarity(a, b) == pytest.approx(1 - distance, rel=1e-4)
    x_hat = ours.reconstruct(x)
    assert faithfulness([(x, x_hat)], centre="all").r2 == pytest.approx(float(metrics.r2_score(x, x_hat)), rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_saelens_loads_what_we_save(kind, tmp_path):
    saelens = pytest.importorskip("sae_lens")
    ours, x = trained(kind), data()
    ours.save(tmp_path)
    theirs = saelens.SAE.load_from_disk(str(tmp_path))
    with torch.no_grad():
        torch.testing.assert_close(theirs.encode(x), ours.encode(x), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(theirs(x), ours.reconstruct(x), rtol=1e-4, atol=1e-4)


def test_the_probe_predicts_what_scikit_learn_s_ridge_does():
    from sklearn.linear_model import RidgeClassifier

    from vitreous.evidence.faithfulness import fit_ridge_probe

    x, labels = data().double().numpy(), np.arange(400) % 3
    penalty = 0.1 * x.var(0).mean() * len(x)
    assert (
        fit_ridge_probe(x, labels, ridge=0.1).predict(x) == RidgeClassifier(alpha=penalty).fit(x, labels).predict(x)
    ).all()
