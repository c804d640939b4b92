"""The benchmarks of splitting run from end to end at small size, and say what they measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


def run(script: str, tmp_path: Path, *words: str) -> dict:
    out = tmp_path / "found.json"
    command = [sys.executable, str(ROOT / "benchmarks" / script), "--small", "--device", "cpu", "--json", str(out)]
    subprocess.run([*command, *words], check=True, capture_output=True, cwd=tmp_path)
    return json.loads(out.read_text())


@pytest.mark.slow
def test_a_layer_is_measured_and_compared_with_exact_hdbscan(tmp_path):
    found = run("disentangle_gpu.py", tmp_path, "--exact", "1")
    assert found["layer"]["units_done"] == found["layer"]["units"] == 12 and not found["layer"]["extrapolated"]
    assert found["worst_ari_exact"] > 0.9
    cut = run("disentangle_gpu.py", tmp_path, "--exact", "1", "--seconds", "0")["layer"]
    assert cut["units_done"] == 1 and cut["extrapolated"]
    assert cut["whole_layer_seconds"] > 11 * cut["seconds_a_unit"]


@pytest.mark.slow
def test_inference_is_measured_with_every_dictionary(tmp_path):
    from vitreous.baselines.dictionaries import KINDS

    rows = {row["variant"]: row for row in run("disentangle_inference.py", tmp_path)["rows"]}
    assert set(rows) > set(KINDS) and all(row["ms"] > 0 for row in rows.values())
    assert all(row["same_bits"] for name, row in rows.items() if "look" in name)
    assert 0 < rows["ours, two stages"]["largest_difference"] < 1e-4 < rows["topk"]["largest_difference"]
    assert rows["ours, nobody looks"]["peak_mib"] <= 1.02 * rows["backbone"]["peak_mib"]


def test_an_output_that_is_kept_takes_its_own_memory_only(monkeypatch):
    """Peaks on a GPU count all that lives, and a class token is a view of all tokens."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from disentangle_inference import backbone, output_of

    with torch.inference_mode():
        output = output_of(backbone(True, 28, torch.device("cpu")), torch.zeros(2, 3, 28, 28))
    assert output.untyped_storage().nbytes() == output.nbytes == 2 * 96 * 4


@pytest.mark.slow
def test_a_run_that_was_cut_off_keeps_its_rows_and_goes_on(tmp_path):
    first = run("disentangle_inference.py", tmp_path, "--kinds", "")
    assert [row["memory_times_layer"] for row in first["layer"][:2]] == [1, 1]
    cut = {**first, "rows": first["rows"][:2]}
    (tmp_path / "found.json").write_text(json.dumps(cut))
    again = run("disentangle_inference.py", tmp_path, "--kinds", "")
    assert again["layer"] == first["layer"] and again["rows"][:2] == cut["rows"] and len(again["rows"]) == 5
    other = run("disentangle_inference.py", tmp_path, "--kinds", "", "--precision", "high")
    assert other["precision"] == "high" and other["layer"] != first["layer"]
