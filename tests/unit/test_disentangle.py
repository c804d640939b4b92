"""Units with a known mixture, every kind of source and layer, runs that were killed, and what is refused."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import vitreous as vt
from vitreous.kernels.density import contribution_clusters
from vitreous.lenses import disentangle as lens
from vitreous.lenses import disentangle_units
from vitreous.lenses.disentangle_rows import Rows
from vitreous.lenses.disentangle_work import Work

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference import disentangle as slow

INPUTS, CONCEPTS = 48, 9


def planted(seed: int = 0, units: int = 4, each: int = 3) -> tuple[nn.Linear, np.ndarray, np.ndarray, np.ndarray]:
    """A layer whose units add up detectors of three concepts each, inputs that show one concept each, and which."""
    rng = np.random.default_rng(seed)
    patterns = np.zeros((CONCEPTS, INPUTS), np.float32)
    for pattern, own in zip(patterns, rng.permutation(45).reshape(CONCEPTS, 5), strict=True):
        pattern[own] = rng.uniform(0.5, 1.5, 5)
        pattern[45:] = 0.3  # what all concepts have in common
    mixed = np.stack([rng.choice(CONCEPTS, each, replace=False) for _ in range(units)])
    layer = nn.Linear(INPUTS, units)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(patterns[mixed].sum(1)))
        layer.bias.copy_(torch.linspace(-0.2, 0.2, units))
    shown = rng.integers(0, CONCEPTS, 1500)
    q = patterns[shown] * rng.uniform(0.5, 1.5, (1500, 1)) + 0.05 * np.abs(rng.normal(size=(1500, INPUTS)))
    return layer, q.astype(np.float32), shown, mixed


def on_cores(q: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> disentangle_units.OnCores:
    rows = Rows(lambda ids: q[ids], np.arange(len(q)), np.zeros(len(q), int), q.shape[1])
    return disentangle_units.OnCores(rows, weight, bias)


@pytest.fixture(scope="module")
def mixture():
    layer, q, shown, mixed = planted()
    finding = vt.disentangle(layer, q, top_k=400, min_cluster_size=30, progress=False)
    return finding, layer, q, shown, mixed


def test_planted_concepts_are_recovered(mixture):
    finding, layer, q, shown, mixed = mixture
    assert finding.counts.tolist() == [3, 3, 3, 3]
    assert finding.expansion == 3
    whole = layer(torch.from_numpy(q)).detach().numpy()
    parts = finding.subunit_activations(q)
    for unit, concepts in enumerate(mixed):
        best = []
        for concept in concepts:
            truth = shown == concept
            of_unit = np.corrcoef(whole[:, unit], truth)[0, 1]
            of_parts = [np.corrcoef(parts[:, s], truth)[0, 1] for s in finding.subunits(unit)]
            best.append(int(np.argmax(of_parts)))
            assert max(of_parts) > 0.8 and max(of_parts) > of_unit + 0.2
            strongest = finding.subunit_top.images[finding.subunits(unit)[best[-1]]][:20]
            assert (shown[strongest] == concept).mean() > 0.9
        assert sorted(best) == [0, 1, 2]  # each concept has a sub-unit of its own


def test_shuffled_concepts_are_not_recovered():
    """The control: inputs mixed up among each other drive no sub-unit of their own."""
    layer, q, shown, mixed = planted()
    rng = np.random.default_rng(1)
    q = np.stack([rng.permutation(column) for column in q.T], 1)
    finding = vt.disentangle(layer, q, top_k=400, min_cluster_size=30, progress=False)
    parts = finding.subunit_activations(q)
    assert max(abs(np.corrcoef(parts[:, s], shown == c)[0, 1]) for s in range(len(finding)) for c in mixed[0]) < 0.2


def test_every_step_is_the_formulas(mixture):
    finding, layer, q, _, _ = mixture
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    for unit, ids, values in on_cores(q, weight, bias).top(range(4), 400):
        expected = slow.top_instances(q @ weight[unit] + bias[unit], 400)
        assert sorted(ids) == sorted(expected) and (np.diff(values) <= 0).all()
        options = disentangle_units.Options(400, 30, "leaf", None, "exact", 0)
        found = contribution_clusters(q[ids], weight[unit], min_cluster_size=30, method="exact")
        split = disentangle_units.split_unit(q[ids], weight[unit], bias[unit], options)
        r = slow.representatives(q[ids], weight[unit], found.labels, found.probabilities)
        np.testing.assert_allclose(split.representatives, r, atol=1e-5)
        expected = np.array(slow.shares(split.representatives, split.rho), float)
        np.testing.assert_array_equal(split.members / split.members.sum(0), expected)
        scores = [slow.rho_score(weight[unit], bias[unit], r, rho, q[ids], found.labels) for rho in (0.05, 0.5, 1.0)]
        assert split.score >= max(scores) - 1e-4
        assert split.noise == (found.labels < 0).mean()
        np.testing.assert_array_equal(finding.shares(unit), split.members / split.members.sum(0))


def test_memory_for_the_top_k_does_not_change_it(mixture, monkeypatch):
    _, layer, q, _, _ = mixture
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    route = on_cores(q, weight, bias)
    whole = [ids for _, ids, _ in route.top(range(4), 100)]
    monkeypatch.setattr(disentangle_units, "HELD", 1)  # one unit a pass
    monkeypatch.setattr("vitreous.lenses.disentangle_rows.PIECE", 64 * INPUTS)
    for one, (_, ids, _) in zip(whole, route.top(range(4), 100), strict=True):
        np.testing.assert_array_equal(ids, one)


def test_memory_does_not_grow_with_the_tokens(tmp_path, monkeypatch):
    """But for two numbers a token, which say where it was: a fifth of the inputs leaves room for a busy clusterer."""
    monkeypatch.setattr("vitreous.lenses.disentangle_rows.PIECE", 1 << 16)
    torch.manual_seed(0)
    layer = nn.Linear(128, 4)
    kept = np.lib.format.open_memmap(tmp_path / "inputs.npy", "w+", np.float32, (60_000, 128))
    kept[:] = np.random.default_rng(0).random((60_000, 128), dtype=np.float32)

    def peak(tokens: int) -> int:
        tracemalloc.start()
        try:
            vt.disentangle(layer, kept[:tokens], top_k=200, min_cluster_size=10, progress=False)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1000)  # what is loaded once
    assert peak(60_000) - peak(20_000) < kept[:40_000].nbytes / 5


def test_a_unit_that_is_never_positive_has_its_real_exemplars(mixture):
    _, layer, q, _, _ = mixture
    below = nn.Linear(INPUTS, 4)
    with torch.no_grad():
        below.weight.copy_(layer.weight)
        below.bias.fill_(-100)
    finding = vt.disentangle(below, q, top_k=400, min_cluster_size=30, progress=False)
    assert finding.top.values.max() < 0
    assert finding.top.images[0, 0] == (q @ below.weight[0].detach().numpy()).argmax()
    assert finding.counts.tolist() == [3, 3, 3, 3]


def test_examples_are_one_an_image_and_say_image_and_token():
    layer, q, _, _ = planted()
    q = q.reshape(375, 4, INPUTS)
    finding = vt.disentangle(layer, q, top_k=400, min_cluster_size=30, tokens_per_image="all", progress=False)
    whole = q @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
    for unit in range(4):
        images, tokens, values = (part[unit] for part in finding.top)
        assert len(set(images.tolist())) == 32
        np.testing.assert_allclose(values, whole[images, tokens, unit], rtol=1e-5)
        np.testing.assert_allclose(values, np.sort(whole[:, :, unit].max(1))[::-1][:32], rtol=1e-5)
    parts = finding.subunit_activations(q)
    for subunit in range(len(finding)):
        images, tokens, values = (part[subunit] for part in finding.subunit_top)
        np.testing.assert_allclose(values, parts[images, tokens, subunit], rtol=1e-4, atol=1e-5)


# -- sources


def settings(**change):
    return {
        "units": range(4),
        "top_k": 60,
        "min_cluster_size": 5,
        "tokens_per_image": 3,
        "progress": False,
        "seed": 4,
    } | change


def same(a: vt.Disentanglement, b: vt.Disentanglement) -> None:
    assert a.counts.tolist() == b.counts.tolist()
    for name in ("codes", "representatives", "rho", "sizes", "parents"):
        np.testing.assert_array_equal(a.__dict__[name], b.__dict__[name])
    for one, other in zip((*a.top, *a.subunit_top), (*b.top, *b.subunit_top), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.fixture(scope="module")
def pictures() -> vt.ImageSet:
    return vt.ImageSet.from_arrays(np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), np.uint8))


def test_pictures_stores_and_arrays_give_the_same(tiny, pictures, tmp_path):
    from_pictures = vt.disentangle(tiny, pictures, **settings())
    drawn = vt.record(
        tiny, pictures, "blocks.-1.mlp.hidden", tmp_path / "a", tokens=3, seed=4, dtype="float32", progress=False
    )
    whole = vt.record(tiny, pictures, "blocks.-1.mlp.hidden", tmp_path / "b", dtype="float32", progress=False)
    same(from_pictures, vt.disentangle(tiny, drawn, **settings()))
    same(from_pictures, vt.disentangle(tiny, whole, **settings()))
    array = np.asarray(whole["blocks.-1.mlp.hidden"])
    same(from_pictures, vt.disentangle(tiny, array, **settings()))
    assert from_pictures.settings["instances"] == 120
    assert max(from_pictures.counts) > 1  # else it would be no test
    assert from_pictures.top.tokens.max() < 19 and len(np.unique(from_pictures.top.tokens)) > 5
    every = vt.disentangle(tiny, pictures, **settings(tokens_per_image="all"))
    assert every.settings["instances"] == 40 * 19


def test_texts_never_show_their_padding():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=50, n_positions=64)
    subject = vt.wrap(GPT2LMHeadModel(config).eval())
    rng = np.random.default_rng(0)
    lengths = rng.integers(4, 13, 30)
    texts = vt.TextSet.from_ids([rng.integers(0, 50, length).tolist() for length in lengths])
    finding = vt.disentangle(subject, texts, **settings(tokens_per_image="all"))  # a Conv1D, transposed
    assert finding.settings["instances"] == lengths.sum()
    assert finding.weight.shape == (4, 128)
    kept = finding.top.images >= 0
    assert (finding.top.tokens[kept] < lengths[finding.top.images[kept]]).all()
    x = torch.from_numpy(texts.tokens[:4])
    before = subject(x)
    with finding.applied(subject) as split, split.look() as seen:
        assert torch.equal(subject(x), before)
    assert seen.values.shape == (4, 12, len(finding))


@pytest.mark.parametrize(
    ("site", "outputs", "inputs"),
    [
        ("blocks.0.mlp.out", 32, 128),
        ("blocks.1.mlp.fc1", 128, 32),
        ("blocks.-1.attn.v", 32, 32),
        ("blocks.-1.attn.out", 32, 32),
        ("patch_embed.proj", 32, 3 * 8 * 8),
        ("head", 7, 32),
    ],
)
def test_sites(tiny, pictures, site, outputs, inputs):
    finding = vt.disentangle(tiny, pictures, site, **settings(units=[1, 5], top_k=40))
    assert finding.weight.shape == (2, inputs) and finding.units.tolist() == [1, 5]
    x = tiny.inputs(np.random.default_rng(1).normal(size=(2, 3, 32, 32)))
    before = tiny(x)
    split = finding.apply(tiny)
    assert split.layer.count == outputs
    with vt.capture(tiny, split.layer.path) as recorded, split.look() as seen:
        assert torch.equal(tiny(x), before)
    given = recorded[split.layer.path]
    given = given.flatten(2).mT if given.ndim == 4 else given.reshape(2, -1, given.shape[-1])
    for at, unit in enumerate(finding.units):
        parts = seen.values[..., finding.parents == at].sum(-1)
        torch.testing.assert_close(parts, given[..., finding.first + unit], atol=2e-6, rtol=2e-5)
    finding.remove(tiny)
    assert tiny.hooks == 0 and torch.equal(tiny(x), before)


@pytest.mark.parametrize("conv", [{}, {"stride": 2}, {"padding": "same", "dilation": 2}, {"kernel_size": 1}])
def test_convolutions_are_rows_of_what_they_see(conv):
    from vitreous.subunits.layers import find_layer

    torch.manual_seed(0)
    module = nn.Conv2d(3, 5, **({"kernel_size": 3} | conv))
    x = torch.randn(2, 3, 9, 8)
    layer = find_layer(module, "")
    rows = layer.rows(x)
    expected = module(x)
    found = (rows @ layer.whole.T + layer.bias).mT.reshape(expected.shape)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


# -- runs that are killed


def test_a_run_that_was_killed_goes_on_and_ends_with_the_same_bytes(tiny, pictures, tmp_path, monkeypatch):
    vt.disentangle(tiny, pictures, out=tmp_path / "whole", **settings(units=range(8)))
    calls = []

    def die(self, unit, split, write=Work.write):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(unit)
        write(self, unit, split)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Work, "write", die)
        vt.disentangle(tiny, pictures, out=tmp_path / "cut", **settings(units=range(8)))
    assert len(list((tmp_path / "cut" / "work").glob("unit-*.safetensors"))) == 3
    done = []
    split_unit = disentangle_units.split_unit
    monkeypatch.setattr(disentangle_units, "split_unit", lambda *a: (done.append(1), split_unit(*a))[1])
    monkeypatch.setattr("vitreous.lenses.disentangle_rows._write", None)  # instances are there already
    again = vt.disentangle(tiny, pictures, out=tmp_path / "cut", **settings(units=range(8)))
    assert len(done) == 5
    names = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert names == ["asked.json", "disentanglement.json", "disentanglement.safetensors"]
    for name in names:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()
    third = vt.disentangle(tiny, pictures, out=tmp_path / "cut", **settings(units=range(8)))
    assert len(done) == 5  # nothing was left to do
    same(again, third)
    with pytest.raises(vt.StoreError, match="holds a disentanglement of something else"):
        vt.disentangle(tiny, pictures, out=tmp_path / "cut", **settings(units=range(8), top_k=50))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"top_k": 121}, "top_k is more than there are instances"),
        ({"tokens_per_image": 99}, "more tokens a sample asked for than there are"),
        ({"min_samples": 61}, "min_samples is more than there are points"),
    ],
)
def test_a_refusal_does_not_keep_the_folder(tiny, pictures, tmp_path, wrong, message):
    """Who follows its remedy comes with other arguments, and rows that were drawn for the first are not taken."""
    with pytest.raises(vt.SettingsError, match=message):
        vt.disentangle(tiny, pictures, out=tmp_path / "again", **settings(**wrong))
    found = vt.disentangle(tiny, pictures, out=tmp_path / "again", **settings(seed=5))
    same(found, vt.disentangle(tiny, pictures, **settings(seed=5)))
    assert sorted(path.name for path in (tmp_path / "again").iterdir()) == [
        "asked.json",
        "disentanglement.json",
        "disentanglement.safetensors",
    ]


def test_a_refusal_does_not_take_the_folder_from_a_run_that_goes_on(tiny, pictures, tmp_path, monkeypatch):
    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Work, "write", die)
        vt.disentangle(tiny, pictures, out=tmp_path / "cut", **settings())
    before = sorted(path.name for path in (tmp_path / "cut" / "work").iterdir())
    with pytest.raises(vt.StoreError, match="holds a disentanglement of something else"):
        vt.disentangle(tiny, pictures, out=tmp_path / "cut", **settings(top_k=121))
    assert sorted(path.name for path in (tmp_path / "cut" / "work").iterdir()) == before


def test_foreign_folders_are_left_alone(tiny, pictures, tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(vt.StoreError, match="is not empty and not ours"):
        vt.disentangle(tiny, pictures, out=tmp_path, **settings())
    with pytest.raises(vt.StoreError, match="and this is a file"):
        vt.disentangle(tiny, pictures, out=tmp_path / "thesis.tex", **settings())


# -- sizes


def test_defaults_keep_the_papers_ratios():
    def chosen(instances: int, **asked) -> lens.Options:
        found = settled(instances, **asked)
        assert found.pop("sampled_expansion") is None
        return lens.Options(**found)

    def settled(instances: int, **asked) -> dict:
        nothing = dict.fromkeys(("top_k", "min_cluster_size", "expansion", "min_samples"))
        more = {"selection": "leaf", "clusterer": "auto", "seed": 0}
        return lens._options(nothing | more | asked, on_cores(*3 * [np.zeros((1, 2))]), instances, 1, False)

    paper = chosen(2_562_334)
    assert (paper.top_k, paper.min_cluster_size) == (400_000, 1000)
    assert (chosen(10**7).top_k, chosen(10**5).top_k, chosen(500).top_k) == (400_000, 15611, 500)
    assert chosen(10**5).min_cluster_size == 39 and chosen(500).min_cluster_size == 10
    assert chosen(10**6, top_k=60_000).min_cluster_size == 150


def test_an_expansion_chooses_the_size_of_clusters(mixture):
    _, layer, q, _, _ = mixture
    finding = vt.disentangle(layer, q, top_k=400, expansion=3, progress=False)
    assert finding.expansion == 3 and finding.settings["sampled_expansion"] == 3
    more = vt.disentangle(layer, q, top_k=400, expansion=12, progress=False)
    assert more.expansion > 6 and more.settings["min_cluster_size"] < finding.settings["min_cluster_size"]


def test_for_clusters_of_a_given_size_an_expansion_chooses_the_instances(mixture):
    _, layer, q, _, _ = mixture
    few, many = (
        vt.disentangle(layer, q, min_cluster_size=20, expansion=e, progress=False, tokens_per_image="all")
        for e in (1.2, 3)
    )
    assert many.settings["sampled_expansion"] == many.expansion == 3
    assert few.settings["top_k"] < many.settings["top_k"] <= len(q)
    assert few.settings["min_cluster_size"] == many.settings["min_cluster_size"] == 20


# -- several processes


def test_processes_in_one_folder_share_the_units(tiny, pictures, tmp_path, monkeypatch):
    """Here two threads stand for them: locks are those of open files, not of processes."""
    alone = vt.disentangle(tiny, pictures, out=tmp_path / "alone", **settings(units=range(8)))
    done: dict[int, list[int]] = {}
    both_began = threading.Barrier(2, timeout=600)

    def write(self, unit, split, plain=Work.write):
        mine = done.setdefault(threading.get_ident(), [])
        if not mine:
            both_began.wait()  # neither does all of them before the other is there
        mine.append(unit)
        plain(self, unit, split)

    monkeypatch.setattr(Work, "write", write)
    monkeypatch.setattr(lens, "PAUSE", 0.01)
    ask = settings(units=range(8))
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(vt.disentangle, tiny, pictures, out=tmp_path / "both", **ask) for _ in range(2)]
        findings = [run.result(timeout=600) for run in runs]
    assert len(done) == 2 and sorted(unit for mine in done.values() for unit in mine) == list(range(8))
    for finding in findings:
        same(finding, alone)
    for path in (tmp_path / "alone").iterdir():
        assert path.read_bytes() == (tmp_path / "both" / path.name).read_bytes()
    assert len(list((tmp_path / "both").iterdir())) == 3  # no locks, no units


def test_units_of_a_process_that_died_are_taken_over(tiny, pictures, tmp_path):
    """A process is killed while it holds a unit; another that waits for it goes on with it."""
    script = f"""
import time
from pathlib import Path

from vitreous.lenses.disentangle_share import claim

work = Path({str(tmp_path / "cut" / "work")!r})
work.mkdir(parents=True)
held = claim(work / "unit-000003.lock")
print("holds it", flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "holds it\n"
            whole = vt.disentangle(tiny, pictures, out=tmp_path / "whole", **settings(units=range(5)))
            (tmp_path / "cut" / "asked.json").write_bytes((tmp_path / "whole" / "asked.json").read_bytes())
            with ThreadPoolExecutor(1) as pool:
                run = pool.submit(vt.disentangle, tiny, pictures, out=tmp_path / "cut", **settings(units=range(5)))
                done = [tmp_path / "cut" / "work" / f"unit-00000{n}.safetensors" for n in (0, 1, 2, 4)]
                while not all(path.exists() for path in done) and not run.done():
                    time.sleep(0.1)
                time.sleep(1)
                assert not run.done()  # it waits for unit 3, which somebody has
                other.kill()
                same(run.result(timeout=600), whole)
        finally:
            other.kill()


# -- bad input


def test_no_clusters_anywhere_leave_every_unit_whole():
    layer, q, _, _ = planted()
    finding = vt.disentangle(layer, q, top_k=100, min_cluster_size=90, progress=False)
    assert finding.counts.tolist() == [0] * 4 and finding.expansion == 1
    assert finding.sizes.tolist() == [0] * 4 and np.isnan(finding.rho).all() and (finding.noise == 1).all()
    np.testing.assert_array_equal(finding.dense[0], layer.weight.detach().numpy())
    x = torch.from_numpy(q[:5])
    with finding.applied(layer) as split, split.look() as seen:
        assert torch.equal(layer(x), layer(x))
    torch.testing.assert_close(seen.values[:, 0], layer(x))


def test_dead_units_and_zero_weights_stay_whole():
    layer, q, _, _ = planted()
    with torch.no_grad():
        layer.weight[1] = 0
        layer.weight[2, : INPUTS // 2] = 0
    finding = vt.disentangle(layer, q, top_k=400, min_cluster_size=30, progress=False)
    assert finding.counts[1] == 0 and finding.counts[0] == 3
    assert not finding.representatives[finding.subunits(1)].any()
    for unit in range(4):
        weights, biases = finding.subunit_weights(unit)
        np.testing.assert_array_equal(weights.sum(0), layer.weight[unit].detach().numpy())
        assert biases.sum() == layer.bias[unit]
    silent = vt.disentangle(layer, np.zeros_like(q), top_k=400, min_cluster_size=30, progress=False)
    assert silent.counts.tolist() == [0] * 4 and np.isfinite(silent.representatives).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_split_exactly_and_applied_without_a_trace(dtype):
    layer, q, _, _ = planted()
    layer = layer.to(dtype)
    finding = vt.disentangle(layer, q, top_k=400, min_cluster_size=30, progress=False)
    assert finding.counts.tolist() == [3] * 4
    np.testing.assert_array_equal(finding.dense[0][:3].sum(0), layer.weight[0].float().detach().numpy())
    x = torch.from_numpy(q[:9]).to(dtype)
    before = layer(x)
    with finding.applied(layer) as split, split.look([0, 1, 2]) as seen:
        assert torch.equal(layer(x), before)
    assert seen.values.dtype == dtype
    torch.testing.assert_close(seen.values.float().sum(-1)[:, 0], before[:, 0].float(), rtol=0.05, atol=0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"top_k": 1501}, "top_k is more than there are instances"),
        ({"top_k": 0}, "top_k is a whole number"),
        ({"top_k": True}, "top_k is a whole number"),
        ({"top_k": 1e2}, "top_k is a whole number"),
        ({"min_samples": 0}, "min_samples is a whole number"),
        ({"min_samples": 301, "top_k": 300}, "min_samples is more than there are points"),
        ({"min_cluster_size": 1}, "min_cluster_size is a whole number"),
        ({"units": [0, 7]}, "no such unit"),
        ({"units": [-1]}, "no such unit"),
        ({"units": [1, 1]}, "a unit is asked for twice"),
        ({"units": []}, "units are whole numbers"),
        ({"units": [0.5]}, "units are whole numbers"),
        ({"units": "some"}, "unknown units"),
        ({"clusterer": "kmeans"}, "unknown clusterer"),
        ({"selection": "best"}, "unknown selection"),
        ({"expansion": 1}, "expansion is more than 1"),
        ({"expansion": "4"}, "expansion is more than 1"),
        ({"expansion": float("inf")}, "a finite number"),
        ({"expansion": 4, "min_cluster_size": 10, "top_k": 90}, "expansion chooses min_cluster_size or top_k, and all"),
        ({"seed": -1}, "seed is a whole number"),
        ({"tokens_per_image": 0, "source": np.ones((5, 2, INPUTS), np.float32)}, "unknown tokens_per_image"),
        ({"tokens_per_image": 3, "source": np.ones((5, 2, INPUTS), np.float32)}, "more tokens a sample asked for"),
        ({"source": np.ones((9, 7), np.float32)}, "inputs of the layer are floats"),
        ({"source": np.full((9, INPUTS), np.nan, np.float32)}, "inputs are not finite"),
        ({"source": "pictures"}, "instances come from something else"),
        ({"source": "pictures"}, "vt.ImageSet.open('pictures')"),
    ],
)
def test_what_cannot_be_done_is_refused(change, message):
    layer, q, _, _ = planted()
    source = change.pop("source", q)
    with pytest.raises(vt.SettingsError) as error:
        vt.disentangle(layer, source, progress=False, **change)
    assert message in str(error.value)


def test_numbers_of_numpy_are_numbers():
    layer, q, _, _ = planted()
    asked = {"top_k": 300, "min_cluster_size": 20, "min_samples": 8, "seed": 3, "tokens_per_image": 1}
    plain = vt.disentangle(layer, q[:, None], progress=False, **asked)
    numpy = {name: np.int64(value) for name, value in asked.items()}
    found = vt.disentangle(layer, q[:, None], progress=False, **numpy)
    same(found, plain)
    assert found.settings == plain.settings and type(found.settings["top_k"]) is int


def test_layers_that_are_not_linear_or_not_there_are_refused(tiny, pictures, tmp_path):
    for site, message in {
        "blocks.0.mlp.hidden": "is not the output of one linear layer",
        "blocks.0.norm1": "is a LayerNorm, not a linear layer",
        "blocks.0.mlp.fc2:in": "units are outputs of a layer",
        "blocks.*.mlp.out": "one layer is split at a time",
        "blocks.0.mlp.fc3": "no site",
    }.items():
        with pytest.raises(vt.SiteError, match=message.replace("(", r"\(")):
            vt.disentangle(tiny, pictures, site, **settings())
    with pytest.raises(vt.SiteError, match="no module 'fc'"):
        vt.disentangle(nn.Sequential(nn.Linear(2, 2)), np.ones((4, 2), np.float32), "fc")
    with pytest.raises(vt.SiteError, match="a convolution in groups"):
        vt.disentangle(nn.Conv2d(4, 4, 3, groups=2), np.ones((4, 18), np.float32))
    with pytest.raises(vt.SiteError, match=r"belongs to an nn\.MultiheadAttention"):
        vt.disentangle(nn.MultiheadAttention(8, 2), np.ones((4, 8), np.float32), "out_proj")
    with pytest.raises(vt.SettingsError, match="float32 cannot hold exactly"):
        vt.disentangle(nn.Linear(4, 4).double(), np.ones((4, 4), np.float32))
    broken = nn.Linear(4, 4)
    nn.init.constant_(broken.weight, float("nan"))
    with pytest.raises(vt.SettingsError, match="are not finite"):
        vt.disentangle(broken, np.ones((4, 4), np.float32))
    with pytest.raises(vt.SettingsError, match="a bare module takes its layer's inputs as an array"):
        vt.disentangle(nn.Linear(4, 4), pictures, progress=False)


def test_stores_of_another_model_or_site_and_hooked_models_are_refused(tiny, pictures, tmp_path):
    store = vt.record(tiny, pictures, "blocks.-1.mlp.out", tmp_path / "out", progress=False)
    with pytest.raises(vt.StoreError, match=r"does not hold what enters blocks\.2\.mlp\.fc2"):
        vt.disentangle(tiny, store, **settings())
    with vt.patch(tiny, {"blocks.0.mlp.out": lambda x: 0 * x}), pytest.raises(vt.SettingsError, match="carries hooks"):
        vt.disentangle(tiny, pictures, **settings())
    with torch.no_grad():
        tiny.module.head.bias += 1
    with pytest.raises(vt.StoreError, match="recorded from another model"):
        vt.disentangle(tiny, store, **settings())
    with pytest.raises(vt.SettingsError, match="takes image"):
        vt.disentangle(tiny, vt.TextSet.from_ids([[1, 2]]), **settings())


def test_the_command_splits_pictures_and_stores_alike(tmp_path):
    import json

    from typer.testing import CliRunner

    from vitreous.cli import app

    def run(*words: str) -> dict:
        done = CliRunner().invoke(app, ["disentangle", "bundled:scenes-mae", *words, "--units", "0,3", "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    few = ("--top-k", "100", "--min-cluster-size", "5", "--seed", "2", "--device", "cpu")
    found = run("scenes:20", "--out", str(tmp_path / "a"), "--tokens", "6", *few)
    assert (found["units"], found["instances"], found["top_k"]) == (2, 120, 100)
    subject = vt.load("bundled:scenes-mae", device="cpu")
    images = vt.scenes(20, size=64, seed=2)
    vt.record(subject, images, "blocks.-1.mlp.hidden", tmp_path / "store", dtype="float32", progress=False)
    assert run(str(tmp_path / "store"), "--out", str(tmp_path / "b"), "--tokens", "6", *few) == found
    other = ("--tokens", "6", "--selection", "eom", "--min-samples", "2")
    run(str(tmp_path / "store"), "--out", str(tmp_path / "e"), *other, *few)
    settings = vt.Disentanglement.load(tmp_path / "e").settings
    assert (settings["selection"], settings["min_samples"]) == ("eom", 2)
    refused = CliRunner().invoke(
        app, ["disentangle", "bundled:scenes-mae", "scenes:4", "--out", str(tmp_path / "c"), "--units", "999"]
    )
    assert refused.exit_code == 2 and "no such unit" in refused.output
