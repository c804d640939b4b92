"""How long the explorer takes from a question to its whole answer, for pictures that were not asked for before.

    python benchmarks/explorer.py [--run RUN] [--rounds 12]

Without a run, a small one of a bundled model is made first. The server is a real one on this machine.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import torch

import vitreous as vt
from vitreous.examination import open_run
from vitreous.explorer.app import BODIES, make_app
from vitreous.explorer.room import Room
from vitreous.explorer.server import open_door, serve


def small_run(folder: Path) -> Path:
    settings = {"blocks": [7], "units": 4, "close": 4, "eigenvectors": 6, "device": "cpu"}
    vt.examine("bundled:scenes-text", vt.scenes(64, size=64, seed=3), folder, progress=False, **settings)
    return folder


def get(link: str, path: str) -> tuple[float, dict]:
    began = time.perf_counter()
    with urllib.request.urlopen(link + path) as answer:
        data = answer.read()
    return 1000 * (time.perf_counter() - began), json.loads(data)


def measure(run: Path, rounds: int) -> list[tuple[str, float, float]]:
    examination = open_run(run)
    entry = examination.models[0]
    door = open_door("127.0.0.1", 0, BODIES)
    room = Room(examination, device="cpu")
    with tempfile.TemporaryDirectory() as site:
        app = make_app(room, Path(site), door.rules)
        threading.Thread(target=serve, args=(app, door.listening), daemon=True).start()
        get(door.link, f"api/maps?model={entry.name}&picture=0&block=0")  # loads the model
        rows = []
        picture = 1
        for block in sorted({0, entry.depth // 2, entry.depth - 1}):
            took = []
            for _ in range(rounds):
                settled(room, entry.name)
                took.append(get(door.link, f"api/maps?model={entry.name}&picture={picture}&block={block}")[0])
                picture += 1
            rows.append((f"maps of all tokens, block {block}", *summary(took)))
        took = [get(door.link, f"api/maps?model={entry.name}&picture=1&block=0")[0] for _ in range(rounds)]
        rows.append(("the same again", *summary(took)))
        get(door.link, f"api/segments?model={entry.name}&picture=1&k=3")
        took = [get(door.link, f"api/segments?model={entry.name}&picture=1&k={k + 2}")[0] for k in range(rounds)]
        rows.append(("another number of segments", *summary(took)))
        close = examination.pictures.close[0]
        path = f"api/neighbours?model={entry.name}&layer=5&picture={close}&token="
        took = [get(door.link, path + str(1 + k))[0] for k in range(rounds)]
        rows.append(("neighbours of a patch", *summary(took)))
    room.close()
    return rows


def settled(room: Room, model: str) -> None:
    """Waits until nothing is computed ahead any more, so that each question is measured by itself."""
    while room.live.workers[model].busy:
        time.sleep(0.01)


def summary(took: list[float]) -> tuple[float, float]:
    return statistics.median(took), max(took)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--run", type=Path)
    asked.add_argument("--rounds", type=int, default=12)
    given = asked.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(given.run or small_run(Path(folder) / "run"), given.rounds)
    print(f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print("\n| from question to answer | median, ms | longest, ms |\n| --- | --- | --- |")
    for name, median, longest in rows:
        print(f"| {name} | {median:.0f} | {longest:.0f} |")


if __name__ == "__main__":
    main()
