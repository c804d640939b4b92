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
