"""What the two studies of pets share: one JSON a model and seed, made where it is missing, and the tables of all."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import vitreous as vt
from audit_pets_inputs import Pets, Pooled, backbone, read_pets
from vitreous.provenance import json_bytes, machine, replace_file, versions

RESULTS = Path(__file__).parent / "results"


class Study(NamedTuple):
    """`run` makes the row of a model and a seed, `written` the page of all rows; `settings` stand in the result."""

    name: str
    doc: str
    models: dict[str, int | None]
    seeds: Sequence[int]
    settings: dict[str, Any]
    run: Callable[[Pets, vt.Subject, str, int], dict[str, Any]]
    written: Callable[[list[dict[str, Any]]], list[str]]

    def file(self, name: str, seed: int) -> Path:
        return Path("runs") / self.name / f"{name}-{seed}.json"

    def tables(self) -> None:
        """The result and its page, of what is there."""
        files = [self.file(name, seed) for name in self.models for seed in sorted(self.seeds)]
        rows = [json.loads(file.read_text()) for file in files if file.exists()]
        if not rows:
            raise SystemExit(f"no runs in {Path('runs') / self.name}: run the study first")
        about = {"command": f"python studies/{self.name}.py DATA", "machine": machine(), "versions": versions()}
        replace_file(RESULTS / f"{self.name}.json", json_bytes(about | self.settings | {"rows": rows}))
        replace_file(RESULTS / f"{self.name}.md", ("\n".join(self.written(rows)).strip() + "\n").encode())

    def main(self) -> None:
        parser = argparse.ArgumentParser(description=self.doc.splitlines()[0])
        parser.add_argument("data", type=Path)
        parser.add_argument("step", nargs="?", choices=("run", "tables"), default="run")
        asked = parser.parse_args()
        if asked.step == "run":
            self._rows(asked.data)
        self.tables()

    def _rows(self, data: Path) -> None:
        pets = read_pets(data)
        todo = [(s, name) for s in self.seeds for name in self.models if not self.file(name, s).exists()]
        for seed, name in todo:
            self.file(name, seed).parent.mkdir(parents=True, exist_ok=True)
            base = backbone(data, name, self.models[name])
            subject = vt.wrap(Pooled(base.module, patches=True), name=name, preprocess=base.preprocess)
            found = self.run(pets, subject, name, seed)
            replace_file(self.file(name, seed), json_bytes(found))
            self.tables()
            print(name, seed, f"{found['seconds']:.0f} s", flush=True)
