"""Token maps, rows of a comparison of dictionaries, and permutation tests are the same whoever makes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from test_dictionary_comparison import QUICK, SITE, model, some_pictures
from test_record_engines import subject_and_images

import vitreous as vt

ENGINES = ["local:2", "ray:2"]


def needs_ray(engine: str) -> None:
    if engine.startswith("ray"):
        pytest.importorskip("ray", reason="the extra 'ray' is not installed")


@pytest.mark.parametrize("engine", ENGINES)
def test_token_maps(engine):
    needs_ray(engine)
    subject, images = subject_and_images()
    one = vt.token_maps(subject, images, [0, -1], batch_size=4, progress=False)
    two = vt.token_maps(subject, images, [0, -1], batch_size=4, engine=engine, progress=False)
    for a, b in zip(one, two, strict=True):
        assert a.scores.tobytes() == b.scores.tobytes()
        assert (a.tokens, a.ids, a.frames, a.notes, a.settings) == (b.tokens, b.ids, b.frames, b.notes, b.settings)


def test_token_maps_that_do_not_fit_are_made_in_parts(monkeypatch, capfd):
    from vitreous.lenses import tokens

    subject, images = subject_and_images()
    whole = vt.token_maps(subject, images, batch_size=8, progress=False)
    compute = tokens.Work.__call__

    def small(self, x):
        if len(x) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return compute(self, x)

    monkeypatch.setattr(tokens.Work, "__call__", small)
    parts = vt.token_maps(subject, images, batch_size=8, progress=False)
    assert "out of memory with 8 samples at a time: going on with 4" in capfd.readouterr().err
    np.testing.assert_allclose(parts.scores, whole.scores, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_of_a_comparison_of_dictionaries(engine, tmp_path):
    needs_ray(engine)
    asked = QUICK | {"methods": ("backbone", "topk", "elude", "random_partition")}
    one = vt.compare_dictionaries(model(), some_pictures(), SITE, out=tmp_path / "one", **asked)
    two = vt.compare_dictionaries(model(), some_pictures(), SITE, out=tmp_path / "two", engine=engine, **asked)
    for a, b in zip(one.rows, two.rows, strict=True):
        assert (a.method, a.seed) == (b.method, b.seed)
        for name in ("r2", "accuracy", "units", "layer_difference", "output_difference"):
            assert a.__dict__[name] == b.__dict__[name], (a.method, name)
        np.testing.assert_array_equal(a.tops, b.tops)


@pytest.mark.parametrize("engine", ENGINES)
def test_permutation_tests(engine):
    needs_ray(engine)
    rng = np.random.default_rng(0)
    a, b = (vt.structure(rng.standard_normal((120, 3, 1, 10), np.float32), keep_transformed=True) for _ in range(2))
    one, two = vt.compare(a, b, progress=False), vt.compare(a, b, engine=engine, progress=False)
    assert one.layers == two.layers and len(one.layers) == 3


RANKS = """
import os, sys
from pathlib import Path
sys.path[:0] = [{tests!r}]
import numpy as np
import vitreous as vt
from test_dictionary_comparison import QUICK, SITE, model, some_pictures
from test_record_engines import files, subject_and_images

subject, images = subject_and_images()
rng = np.random.default_rng(0)
a, b = (vt.structure(rng.standard_normal((120, 3, 1, 6), np.float32), keep_transformed=True) for _ in range(2))
units = dict(tokens_per_image=8, units=range(6), top_k=100, min_cluster_size=5)
methods = QUICK | dict(methods=("backbone", "topk", "elude", "random_partition"))

def work(out, engine):
    maps = vt.token_maps(subject, images, batch_size=4, engine=engine, progress=False)
    tests = vt.compare(a, b, engine=engine, progress=False)
    vt.disentangle(subject, images, "blocks.1.mlp.out", out=out / "split", engine=engine, progress=False, **units)
    rows = vt.compare_dictionaries(model(), some_pictures(), SITE, out=out / "rows", engine=engine, **methods).rows
    told = [(row.method, row.r2, row.tops.tolist()) for row in rows]
    return [maps.scores.tobytes(), tests.layers, files(out / "split"), told]

own = work(Path({out!r}) / os.environ["RANK"], "local")
shared = work(Path({out!r}) / "shared", "torchrun")
for k, (one, two) in enumerate(zip(own, shared, strict=True)):
    assert one == two, k
print("well", flush=True)
"""


@pytest.mark.slow
def test_all_of_them_by_the_processes_of_torchrun(tmp_path):
    """Two ranks that share a folder, each of which also knows what one alone finds."""
    (tmp_path / "script.py").write_text(RANKS.format(tests=str(Path(__file__).parent), out=str(tmp_path / "out")))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(tmp_path / "script.py")],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("well") == 2
