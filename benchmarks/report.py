"""How long the report of a run takes to write, with as many units as several copies of it have.

    vitreous demo --out vitreous-demo
    python benchmarks/report.py vitreous-demo --times 3

The same run is put on one site several times, under other names: every card is read, made and written each time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import vitreous as vt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args()
    runs = [vt.open_run(asked.run) for _ in range(asked.times)]
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        vt.write_site(runs, folder, progress=False)
        seconds = time.perf_counter() - began
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        began = time.perf_counter()
        vt.write_site(runs, Path(folder) / "single", single_file=True, progress=False)
        single = time.perf_counter() - began
        units = sum(len(run.unit_ids) for run in runs)
        found = {"units": units, "seconds": round(seconds, 1), "files": len(files), "megabytes": round(size / 1e6, 1)}
        found |= {"seconds for 1,000 units": round(1000 * seconds / units, 1), "single file, seconds": round(single, 1)}
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
