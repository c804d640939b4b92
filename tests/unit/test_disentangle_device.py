"""Units split on a torch device: what the cores find, in any order of work, killed or not, and what is refused."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from test_disentangle import INPUTS, planted

import vitreous as vt
from vitreous.kernels.density_device import Instances, contribution_clusters_on_device
from vitreous.lenses import disentangle_device
from vitreous.lenses.disentangle_device import OnDevice, chosen_device, cluster_sums_on_device, hold, in_order
from vitreous.lenses.disentangle_rows import Rows
from vitreous.lenses.disentangle_units import OnCores, Options, cluster_sums
from vitreous.lenses.disentangle_work import Work

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference import disentangle as slow

CPU = torch.device("cpu")


def rows_of(q: np.ndarray) -> Rows:
    return Rows(lambda ids: q[ids], np.arange(len(q)) // 2, np.arange(len(q)) % 2, q.shape[1])


def parts(finding: vt.Disentanglement) -> dict[str, np.ndarray]:
    names = ("counts", "rho", "scores", "noise", "sizes", "parents", "codes", "representatives")
    tops = {f"{name}{i}": part for name in ("top", "subunit_top") for i, part in enumerate(finding.__dict__[name])}
    return {name: finding.__dict__[name] for name in names} | tops


@pytest.fixture(scope="module")
def mixture():
    layer, q, _, _ = planted()
    settings = {"top_k": 400, "min_cluster_size": 30, "tokens_per_image": "all", "progress": False}
    return layer, q.reshape(750, 2, INPUTS), settings


def test_the_finding_is_that_of_the_cores(mixture):
    layer, q, settings = mixture
    cores = vt.disentangle(layer, q, **settings)
    found = vt.disentangle(layer, q, device="cpu", **settings)
    assert found.counts.tolist() == [3, 3, 3, 3]
    assert found.settings["asked"]["device"] == "cpu" and cores.settings["asked"]["device"] is None
    for name, part in parts(found).items():
        if part.dtype.kind == "f":
            np.testing.assert_allclose(part, parts(cores)[name], atol=1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(part, parts(cores)[name], err_msg=name)


def test_units_in_work_together_and_rows_in_pieces_change_nothing(mixture, monkeypatch):
    layer, q, settings = mixture
    alone = vt.disentangle(layer, q, device="cpu", **settings)
    monkeypatch.setitem(disentangle_device.LANES, "cpu", 3)
    together = vt.disentangle(layer, q, device="cpu", **settings)
    for name, part in parts(together).items():
        np.testing.assert_array_equal(part, parts(alone)[name], err_msg=name)
    monkeypatch.setattr(disentangle_device, "CHUNK", 100 * INPUTS)
    monkeypatch.setattr(disentangle_device, "HELD", 1)  # one unit a pass
    monkeypatch.setattr("vitreous.kernels.density_device.CHUNK", 70 * INPUTS)
    cut = vt.disentangle(layer, q, device="cpu", **settings)
    for name in ("counts", "sizes", "codes", "top0", "top1", "subunit_top0"):
        np.testing.assert_array_equal(parts(cut)[name], parts(alone)[name], err_msg=name)


def test_units_that_do_not_fit_together_are_looked_at_in_fewer_at_a_time(mixture, monkeypatch, capfd):
    layer, q, settings = mixture
    whole = vt.disentangle(layer, q, device="cpu", **settings)
    stream = disentangle_device.stream_top_on_device

    def small(pieces, k):
        pieces = list(pieces)
        if len(pieces[0]) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return stream(pieces, k)

    monkeypatch.setattr(disentangle_device, "stream_top_on_device", small)
    fewer = vt.disentangle(layer, q, device="cpu", **settings)
    said = capfd.readouterr().err
    assert said.count("out of memory with 4 units at a time: going on with 2") == 1 == said.count("going on with 1")
    for name in ("counts", "sizes", "codes", "top0", "top1", "subunit_top0"):
        np.testing.assert_array_equal(parts(fewer)[name], parts(whole)[name], err_msg=name)

    def never(pieces, k):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(disentangle_device, "stream_top_on_device", never)
    with pytest.raises(torch.OutOfMemoryError):
        vt.disentangle(layer, q, device="cpu", **settings)


def test_sums_of_clusters_are_those_of_the_cores_and_of_the_formula(mixture):
    layer, q, _ = mixture
    rows, weight = q.reshape(-1, INPUTS)[:400].copy(), layer.weight[1].detach().numpy()
    rows[::9] = np.random.default_rng(0).random(rows[::9].shape)  # noise
    there = torch.from_numpy(rows)
    instances = Instances(lambda at: there[at], *rows.shape, CPU)
    found = contribution_clusters_on_device(instances, layer.weight[1].detach(), min_cluster_size=20)
    labels, certain = found.labels.numpy(), found.probabilities.numpy()
    assert found.clusters > 2 and (labels < 0).any()
    sums, sizes = cluster_sums_on_device(instances, found)
    expected, counted = cluster_sums(rows, weight, labels, certain)
    np.testing.assert_allclose(sums, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(sizes, counted)
    r = weight * sums[: found.clusters]
    wanted = slow.representatives(rows, weight, labels, certain)
    np.testing.assert_allclose(r / np.linalg.norm(r, axis=1, keepdims=True), wanted, atol=1e-6)


def test_given_equal_clusters_shares_and_margin_are_equal(mixture):
    layer, q, _ = mixture
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    options = Options(400, 30, "leaf", None, "auto", 0)
    routes = [route(rows_of(q.reshape(-1, INPUTS)), weight, bias, *more) for route, more in ROUTES]
    cores, device = (dict(route.splits(route.top(range(4), 400), options, 8)) for route in routes)
    assert sorted(cores) == sorted(device) == [0, 1, 2, 3]
    for at, split in device.items():
        np.testing.assert_array_equal(split.members, cores[at].members)
        np.testing.assert_allclose(split.representatives, cores[at].representatives, atol=1e-6)
        assert (split.rho, split.noise) == (cores[at].rho, cores[at].noise)
        assert split.score == pytest.approx(cores[at].score, abs=1e-6)


ROUTES = ((OnCores, ()), (OnDevice, (CPU, False)))


def test_the_strongest_rows_are_those_of_the_cores(mixture):
    layer, q, _ = mixture
    q = np.round(q.reshape(-1, INPUTS), 1)  # ties
    weight, bias = np.round(layer.weight.detach().numpy(), 1), np.zeros(4, np.float32)
    cores, device = (route(rows_of(q), weight, bias, *more) for route, more in ROUTES)
    for one, other in zip(cores.top([1, 3], 100), device.top([1, 3], 100), strict=True):
        assert one.at == other.at
        np.testing.assert_allclose(one.values, other.values, rtol=1e-5)
        assert len(set(one.ids.tolist()) ^ set(other.ids.tolist())) <= 4  # products are rounded one way or the other


def test_no_clusters_and_dead_units_stay_whole(mixture):
    layer, q, settings = mixture
    none = vt.disentangle(layer, q, device="cpu", **(settings | {"top_k": 100, "min_cluster_size": 90}))
    assert none.counts.tolist() == [0] * 4 and none.expansion == 1 and none.sizes.tolist() == [0] * 4
    np.testing.assert_array_equal(none.dense[0], layer.weight.detach().numpy())
    dead, _, _, _ = planted()
    with torch.no_grad():
        dead.weight[1] = 0
    found = vt.disentangle(dead, q, device="cpu", **settings)
    assert found.counts[1] == 0 and found.counts[0] == 3
    assert not found.representatives[found.subunits(1)].any()
    silent = vt.disentangle(dead, np.zeros_like(q), device="cpu", **settings)
    assert silent.counts.tolist() == [0] * 4 and np.isfinite(silent.representatives).all()


def test_an_expansion_is_looked_for_there_too(mixture):
    layer, q, settings = mixture
    asked = {name: value for name, value in settings.items() if name != "min_cluster_size"}
    found = vt.disentangle(layer, q, expansion=3, device="cpu", **asked)
    assert found.expansion == 3 and found.settings["sampled_expansion"] == 3


def test_a_run_that_was_killed_goes_on_and_ends_with_the_same_bytes(mixture, tmp_path, monkeypatch):
    layer, q, settings = mixture
    monkeypatch.setitem(disentangle_device.LANES, "cpu", 2)
    vt.disentangle(layer, q, device="cpu", out=tmp_path / "whole", **settings)
    written = []

    def die(self, unit, split, write=Work.write):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(unit)
        write(self, unit, split)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Work, "write", die)
        vt.disentangle(layer, q, device="cpu", out=tmp_path / "cut", **settings)
    assert written == [0, 1]
    with pytest.raises(vt.StoreError, match="something else"):  # the cores round another way
        vt.disentangle(layer, q, out=tmp_path / "cut", **settings)
    vt.disentangle(layer, q, device="cpu", out=tmp_path / "cut", **settings)
    for path in (tmp_path / "whole").iterdir():
        assert path.read_bytes() == (tmp_path / "cut" / path.name).read_bytes()


# -- rows


def test_rows_are_held_as_they_fit(mixture):
    _, q, _ = mixture
    q = q.reshape(-1, INPUTS)
    ids = torch.tensor([5, 1, 1, 700])
    for room, kind, exact in ((4 * q.size, torch.float32, True), (2 * q.size, torch.float16, False), (9, None, True)):
        held = hold(rows_of(q), CPU, False, room)
        assert held.kind is kind
        assert held.take(ids).dtype == torch.float32
        assert np.array_equal(held.take(ids).numpy(), q[ids]) == exact
        np.testing.assert_allclose(torch.cat(list(held.batches())).numpy(), q, rtol=1e-3, atol=1e-6)
    loud = q.copy()
    loud[3, 3] = 1e5  # beyond half precision
    assert hold(rows_of(loud), CPU, False, 2 * q.size).kind is None


# -- order


def test_results_come_in_order_whoever_is_first():
    threads = set()

    def work(n: int) -> int:
        threads.add(threading.get_ident())
        time.sleep(0.02 if n % 2 else 0)
        return n * n

    assert list(in_order(work, range(9), 3)) == [n * n for n in range(9)]
    assert len(threads) > 1


def test_few_items_are_taken_ahead_and_errors_arrive_at_their_place():
    taken = []

    def items():
        for n in range(100):
            taken.append(n)
            yield n

    def work(n: int) -> int:
        if n == 4:
            raise vt.SettingsError("the fifth")
        return n

    done = []
    with pytest.raises(vt.SettingsError, match="the fifth"):
        for found in in_order(work, items(), 2):
            done.append(found)
    assert done == [0, 1, 2, 3] and len(taken) <= 8


# -- where


def test_where_units_are_split_is_chosen_by_where_the_model_lies(tiny):
    layer = torch.nn.Linear(3, 3)
    assert chosen_device(layer, None) is None and chosen_device(tiny, None) is None
    assert chosen_device(layer, "cpu") == CPU
    for wrong in ("tpu", "gpu", "cuda:99"):
        with pytest.raises(vt.SettingsError, match="no such device to split units on"):
            chosen_device(layer, wrong)


@pytest.mark.parametrize(("lies", "splits"), [("cuda:1", "cuda:1"), ("meta", None), ("cpu", None)])
def test_a_gpu_is_where_units_are_split_by_default(lies, splits):
    class Elsewhere(torch.nn.Module):
        def parameters(self, *_):
            yield SimpleNamespace(device=torch.device(lies))

    assert chosen_device(Elsewhere(), None) == (splits and torch.device(splits))


def test_engines_and_clusterers_that_are_not_there_are_refused(mixture):
    layer, q, settings = mixture
    with pytest.raises(vt.SettingsError, match=r"unknown engine\n.*'spark'\n  accepted: .local"):
        vt.disentangle(layer, q, engine="spark", **settings)
    with pytest.raises(vt.SettingsError, match='clusterer "exact" runs on the cores alone'):
        vt.disentangle(layer, q, clusterer="exact", device="cpu", **settings)
    assert vt.disentangle(layer, q, engine="local", units=[0], **settings).counts.tolist() == [3]
