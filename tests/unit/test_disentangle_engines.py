"""Units are split into the same bytes by this process, by workers and by a Ray cluster; a death costs nothing."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from test_disentangle import INPUTS, planted
from test_record_engines import files, subject_and_images

import vitreous as vt
from vitreous.engine import Cluster, Workers, open_engine

SETTINGS = {"top_k": 400, "min_cluster_size": 30, "tokens_per_image": "all", "progress": False}
ENGINES = ["local:2", "ray:2"]


def needs_ray(engine: str) -> None:
    if engine.startswith("ray"):
        ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def mixture():
    layer, q, _, _ = planted()
    return layer, q.reshape(750, 2, INPUTS)


@pytest.fixture(scope="module")
def alone(mixture, tmp_path_factory) -> dict[str, dict[str, str]]:
    """Files of a finding on the cores, and by a device's code."""
    folder = tmp_path_factory.mktemp("alone")
    for name, device in (("cores", None), ("device", "cpu")):
        vt.disentangle(*mixture, out=folder / name, device=device, **SETTINGS)
    return {name: files(folder / name) for name in ("cores", "device")}


@pytest.mark.parametrize("device", [None, "cpu"], ids=["cores", "device"])
@pytest.mark.parametrize("engine", ENGINES)
def test_workers_find_the_same_bytes(engine, device, mixture, alone, tmp_path):
    needs_ray(engine)
    vt.disentangle(*mixture, out=tmp_path / "found", device=device, engine=engine, **SETTINGS)
    assert files(tmp_path / "found") == alone["cores" if device is None else "device"]


@dataclass(frozen=True)
class Fatal:
    """A job whose process is killed at its third item, once."""

    job: object
    mark: Path

    def __call__(self, top):
        if top.at == 2 and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.job(top)


@dataclass(frozen=True)
class Deadly:
    """An engine one of whose workers will die."""

    inner: Workers | Cluster
    mark: Path
    lead: bool = True

    @property
    def workers(self) -> int:
        return self.inner.workers

    def agree(self, make):
        return self.inner.agree(make)

    def map(self, job, items, *, gpu=False):
        return self.inner.map(Fatal(job, self.mark), items, gpu=gpu)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_worker_killed_in_the_middle_changes_nothing(engine, mixture, alone, tmp_path):
    needs_ray(engine)
    deadly = Deadly(open_engine(engine), tmp_path / "mark")
    vt.disentangle(*mixture, out=tmp_path / "found", engine=deadly, **SETTINGS)
    assert (tmp_path / "mark").exists()
    assert files(tmp_path / "found") == alone["cores"]


@pytest.mark.parametrize("source", ["pictures", "store"])
def test_rows_of_pictures_and_stores_are_read_by_workers(source, tmp_path):
    subject, images = subject_and_images()
    asked = {"tokens_per_image": 8, "units": range(6), "top_k": 100, "min_cluster_size": 5, "progress": False}
    if source == "store":
        asked["tokens_per_image"] = "all"
        data = vt.record(subject, images, "blocks.1.mlp.hidden", tmp_path / "store", progress=False)
    else:
        data = images
    one = vt.disentangle(subject, data, "blocks.1.mlp.out", out=tmp_path / "one", **asked)
    vt.disentangle(subject, data, "blocks.1.mlp.out", out=tmp_path / "two", engine="local:2", **asked)
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert len(one.units) == 6 and np.isfinite(one.representatives).all()


def test_rows_that_a_worker_cannot_see_are_named(tmp_path):
    from vitreous.lenses.disentangle_rows import InFile

    with pytest.raises(vt.StoreError, match=r"cannot be read here(.|\n)*on a disk that all of them see"):
        InFile(tmp_path / "elsewhere", (4, 2))(np.arange(2))


def test_a_pass_over_pictures_that_does_not_fit_is_done_in_parts(tmp_path, monkeypatch, capfd):
    subject, images = subject_and_images()
    asked = {"tokens_per_image": 8, "units": 3, "top_k": 100, "min_cluster_size": 5, "progress": False}
    whole = vt.disentangle(subject, images, "blocks.1.mlp.out", **asked)
    forward = type(subject).__call__

    def small(self, x):
        if len(x) > 6:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, x)

    monkeypatch.setattr(type(subject), "__call__", small)
    parts = vt.disentangle(subject, images, "blocks.1.mlp.out", **asked)
    assert "out of memory with 23 samples at a time: going on with 12" in capfd.readouterr().err
    assert parts.counts.tolist() == whole.counts.tolist()
    np.testing.assert_allclose(parts.representatives, whole.representatives, atol=1e-4)
