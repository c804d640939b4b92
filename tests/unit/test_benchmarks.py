"""The one command of the benchmarks runs from end to end at tiny size, and refuses what it cannot do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "run.py"


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("where", [[], ["--gpu"]], ids=["cores", "device"])
def test_a_rehearsal_writes_table_and_numbers(where, tmp_path):
    words = [
        "--small",
        "--rounds",
        "2",
        "--threads",
        "1",
        "--only",
        "structure",
        "monosemanticity",
        "--out",
        str(tmp_path),
    ]
    done = bench(*where, *words)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "RESULTS.json").read_text())
    case = found["cases"]["structure"]
    assert {row["worth"] for row in case["ways"].values()} == {"same clusters"}
    table = (tmp_path / "RESULTS.md").read_text()
    assert case["said"] in table and "times as long as ours" in table
    if not where:
        assert set(found["growth"]) == {"structure, ranks", "structure, pairs"} and "MS-Score" in found["cases"]
        assert (tmp_path / "growth.png").stat().st_size > 1000
        assert all(row["memory_mb"] is not None for row in case["ways"].values())


def test_what_cannot_be_measured_is_refused():
    import torch

    assert "--small wants --out" in bench("--small").stderr
    if not torch.cuda.is_available():
        assert "no accelerator here" in bench("--gpu").stderr


def test_a_peer_that_is_not_installed_is_said_and_one_that_wins_too():
    sys.path.insert(0, str(SCRIPT.parent))
    from run import case_lines, verdict

    row = {"seconds": 1.0, "memory_mb": None, "worth": "", "ours": True}
    case = {"said": "n", "ways": {"ours": row}, "missing": {"evoc": "evoc"}, "work": {}, "note": ""}
    assert "| evoc | not installed here (`evoc`) | | | | |" in case_lines("clusters", case, {})
    for low, high, said in ((0.5, 0.9, "**peer faster**"), (0.9, 1.2, "no difference"), (1.1, 2, "ours faster")):
        assert verdict(row | {"ours": False, "ratio": {"median": 1, "low": low, "high": high}}) == said


def test_the_plan_for_very_large_runs_follows_from_what_was_measured(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parents[1] / "studies"))
    import scale_simulation

    kept = json.loads(scale_simulation.OUT.read_text())["plan"]
    assert kept == scale_simulation.plan(), "python studies/scale_simulation.py plan; python docs/write_tables.py"
