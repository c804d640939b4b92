"""Rounds of the fault bench in a row: kills, full disks, cut files, dead workers and lost storage, at other moments.

    make faults TIMES=10
    python benchmarks/faults.py --times 10 --out benchmarks/results/faults.json

A round is every test of FAULTS with its number as the seed of the moments. The first that is not green ends the run.
The file has a line a round, written when it ends, so that it also says how far a run came that was stopped. With
`--beside 2` two rounds run at a time, each in a folder of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
UNITS = ("record_kill", "object_storage", "record_engines", "disentangle_engines")
FAULTS = ("tests/faults", *(f"tests/unit/test_{name}.py" for name in UNITS))


def one_round(seed: int) -> dict[str, Any]:
    """How many tests there were, and what became of them."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told.xml"
        where = ["-p", "no:cacheprovider", "--basetemp", f"{folder}/work", "--junitxml", str(told)]
        command = [sys.executable, "-m", "pytest", *FAULTS, "-m", "slow or not slow", "-x", "-rs", *where]
        begun = time.monotonic()
        ended = subprocess.run(command, cwd=ROOT, env={**os.environ, "VITREOUS_FAULT_SEED": str(seed)})
        seconds = round(time.monotonic() - begun)
        about = ElementTree.parse(told).getroot().find("testsuite") if told.exists() else None
    counts = (
        {name: int(about.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
        if about is not None
        else {}
    )
    green = ended.returncode == 0
    return {"seed": seed, "green": green, "seconds": seconds, **counts, "load": round(os.getloadavg()[0], 1)}


def commit() -> str:
    asked = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return asked.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--first", type=int, default=1, help="number of the first round")
    parser.add_argument("--beside", type=int, default=1, help="rounds at a time")
    parser.add_argument("--out", type=Path, help="JSON with a line a round")
    args = parser.parse_args()
    more = [f"--{name} {value}" for name, value in (("first", args.first), ("beside", args.beside)) if value > 1]
    asked = " ".join([f"--times {args.times}", *more])
    found: dict[str, Any] = {"command": f"python benchmarks/faults.py {asked}", "commit": commit()}
    found |= {"date": time.strftime("%Y-%m-%d"), "python": platform.python_version(), "cores": os.cpu_count()}
    found |= {"in_a_row": 0, "rounds": []}
    pool = ThreadPoolExecutor(args.beside)
    for made in pool.map(one_round, range(args.first, args.first + args.times)):
        found["rounds"].append(made)
        found["in_a_row"] += made["green"]
        print(f"round {made['seed']}, green in a row {found['in_a_row']}: {made}", flush=True)
        if args.out:
            args.out.write_text(json.dumps(found, indent=1) + "\n")
        if not made["green"]:
            pool.shutdown(cancel_futures=True)
            raise SystemExit(1)


if __name__ == "__main__":
    main()
