"""Tables 2, 4, 6 and 7 of the disentanglement paper on real models, at the size of two processor cores.

    python studies/disentangle_tables.py PART --data ../shared/data [--work runs/disentangle] [--quick]

PART is one of

    table2-tin, table2-dino     every method on the last MLP of tin-vit-text and of dinov2s_saliency, Figure 2's plane;
                                --epochs, --sweep-epochs and --seeds say how long and how often, --epochs 50
                                --sweep-epochs 50 --device cuda is the paper's protocol; --methods makes some of the
                                rows, as table2-tin-some or table2-dino-some, which a whole table then starts from
    layers, models, expansions  Table 6: other blocks, other models, 4, 8 and 16 sub-units a unit
    layers-dino                 Table 6: another block of dinov2s_saliency
    table4-tin, table4-dino     stability over seeds and over other tokens
    table7-tin, table7-dino     ablations; UMAP if the package umap can be imported
    tables                      writes disentangle_tables.md from what is there

Results are added to disentangle_tables.json and .md under --out (studies/results, of --quick its own folder under
--work), part by part. Each takes up where it was killed. --work holds activations and dictionaries, a few hundred MB.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vitreous as vt
from disentangle_ablations import LAST, SEEDS, TOP, ablations
from disentangle_inputs import Case, dino_case, tin_case
from disentangle_report import put_tables, rounded
from vitreous.baselines.dictionaries import KINDS
from vitreous.dictionary_comparison.activations import record_training
from vitreous.dictionary_comparison.methods import METHODS, Bench
from vitreous.dictionary_comparison.settings import Settings
from vitreous.evidence.stability import coherence, effective_rank, matched_similarity, stability
from vitreous.provenance import json_bytes
from vitreous.render import to_png
from vitreous.subunits.layers import find_layer
from vitreous.views.dictionaries import comparison_scatter
from vitreous.views.panels import Card

OUT = Path(__file__).parent / "results"
NAME = "disentangle_tables"
STRONGEST = ("backbone", "batch_topk", "matching_pursuit", "elude", "random_partition", "any_samples")
TRAINING: dict[str, Any] = {
    "tokens": 16,
    "expansion": 4,
    "batch_size": 256,
    "top": 10,
}
SHORT = {**TRAINING, "steps": 200, "tokens": 8, "learning_rate": 2e-3}
TOKENS = {"tin-vit-text": 8, "dinov2s_saliency": 16}  # a picture, for the ablations
UNITS = 32  # drawn by lot, for the ablations
Results = dict[str, Any]


# -- Tables 2 and 6: one comparison each


def compare(case: Case, work: Path, site: str = LAST, **asked: Any) -> vt.DictionaryComparison:
    return vt.compare_dictionaries(
        case.subject, case.train, site, evaluate=case.evaluate, judge=case.judge, head=case.head, out=work, **asked
    )


def kept(found: vt.DictionaryComparison, case: Case, began: float) -> Results:
    """What is written down of a comparison."""
    said = {
        name: found.settings[name] for name in ("site", "expansion", "tokens", "steps", "batch_size", "top", "read by")
    }
    said |= {"sweep": found.settings["sweep"], "sweep_steps": found.settings["sweep_steps"]}
    said |= {"data": case.said, "judge": case.judged_by, "seconds": round(time.time() - began)}
    rows = [rounded(row.facts()) for row in found.rows]
    ranking = (
        {name: rounded(found.ranking[name]) for name in ("methods", "rates", "intervals")} if found.ranking else None
    )
    return {"model": case.name, "settings": said, "rows": rows, "ranking": ranking, "notes": list(found.notes)}


def table2(case: Case, name: str, given: argparse.Namespace, work: Path) -> Results:
    """All methods from every draw of tokens; dictionaries with the sweep of section E.1 on the first draw."""
    began = time.time()
    for subject in (case.subject, case.judge):
        if isinstance(subject, vt.Subject):
            subject.module.to(given.device)
    epoch = len(case.train) * TRAINING["tokens"] // TRAINING["batch_size"]
    asked = {**TRAINING, "sweep": "paper", "seeds": given.seeds, "steps": given.epochs * epoch}
    if given.sweep_epochs != given.epochs:
        asked["sweep_steps"] = given.sweep_epochs * epoch
    asked = asked if not given.quick else {**SHORT, "steps": 10}
    found = compare(case, work / name, **asked, methods=given.methods or "all")
    print(found.table())
    if given.methods:
        return {f"{name}-some": kept(found, case, began)}
    (given.out / f"disentangle_{name.split('-')[1]}.png").write_bytes(plane(found))
    return {name: kept(found, case, began)}


def plane(found: vt.DictionaryComparison) -> bytes:
    """Figure 2 twice: interpretability by the model itself, and by the judge."""
    planes = comparison_scatter(found), comparison_scatter(found, "ms_other")
    return to_png(Card(f"{found.settings['model']['name']}, {found.settings['site']}", "", panels=planes))


def settings_of(case: Case, work: Path, names: dict[str, dict[str, Any]]) -> Results:
    """One comparison for every setting: its name, and what it changes."""
    made = {}
    for name, change in names.items():
        began = time.time()
        found = compare(case, work / name, **{**SHORT, "methods": STRONGEST, **change})
        print(name, found.table(), sep="\n")
        made[name] = kept(found, case, began)
    return made


# -- Table 4


def table4(case: Case, name: str, given: argparse.Namespace, work: Path) -> Results:
    """Dictionaries from three seeds; ELUDe from three seeds, and from three draws of tokens."""
    began, seeds = time.time(), (42, 7, 1024)
    layer = find_layer(case.subject, LAST)
    trained = {s: record_training(case.subject, layer, case.train, 8, s, work / f"tokens-{s}", True) for s in seeds}
    units = range(16 if given.quick else 128)
    settings = Settings(LAST, 4, 8, None, None, 10 if given.quick else 200, 256, 2e-3, None, "none", None, TOP, "none")
    rows: dict[str, Any] = {}
    for kind in KINDS:
        made = [Bench(case.subject, layer, settings, trained[42], s, work / "made", True).make(kind) for s in seeds]
        atoms = [method.writes for method in made]
        rows[kind] = _geometry(atoms, stability(atoms).pairs)
    asked = {"units": units, "tokens_per_image": 8, "min_cluster_size": 8}

    def split(drawn: int, seed: int) -> vt.Disentanglement:
        source, out = trained[drawn].source, work / f"elude-{drawn}-{seed}"
        return vt.disentangle(case.subject, source, LAST, seed=seed, out=out, **asked)

    runs = {
        "ELUDe, other seeds": [split(42, seed) for seed in seeds],
        "ELUDe, other tokens": [split(seed, 0) for seed in seeds],
    }
    for run, findings in runs.items():
        reads = [[_alive(f, unit, f.subunit_weights(unit)[0]) for unit in f.units] for f in findings]
        writes = [
            [np.repeat(np.eye(len(layer.whole))[[unit]], len(block), 0) for unit, block in enumerate(one)]
            for one in reads
        ]
        rows[f"{run}: weights"] = _geometry([np.concatenate(one) for one in reads], stability(reads).pairs)
        best = [_best_match(reads[a], reads[b]) for a, b in ((0, 1), (0, 2), (1, 2))]
        rows[f"{run}: weights, best of the larger"] = {"stability": rounded(float(np.mean(best)))}
        rows[f"{run}: channels written"] = _geometry([np.concatenate(one) for one in writes], stability(writes).pairs)
        rows[f"{run}: weights"]["expansion"] = [rounded(f.expansion) for f in findings]
    said = {"units split": len(units), "tokens": 8, "steps": settings.steps, "data": case.said}
    said |= {"seconds": round(time.time() - began)}
    return {name: {"model": case.name, "settings": said, "rows": rows}}


def _geometry(runs: list[np.ndarray], pairs: tuple[float, ...]) -> Results:
    of = {"effective rank": [effective_rank(run) for run in runs], "coherence": [coherence(run) for run in runs]}
    spread = {name: rounded([float(np.mean(v)), float(np.std(v))]) for name, v in of.items()}
    return {"stability": rounded([float(np.mean(pairs)), float(np.std(pairs))]), **spread}


def _alive(finding: vt.Disentanglement, unit: int, rows: np.ndarray) -> np.ndarray:
    return rows[~finding.dead[finding.subunits(unit)]]


def _best_match(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    """As `stability`, but of the run with more sub-units those are left out that match worst, not the last ones."""
    return float(np.mean([matched_similarity(x, y, unmatched="best") for x, y in zip(a, b, strict=True)]))


# -- Table 7


def table7(case: Case, name: str, given: argparse.Namespace, work: Path) -> Results:
    found = ablations(case, work, TOKENS[case.name], 8 if given.quick else UNITS)
    return {name: {"model": case.name, **found}}


# -- parts


def run_models(given: argparse.Namespace, work: Path) -> Results:
    made = {}
    for objective in ("contrast", "mae"):
        made |= settings_of(
            tin_case(given.data, objective, small=True),
            work,
            {f"tin-vit-{objective}": {"steps": 10} if given.quick else {}},
        )
    return {"models": made}


PARTS: dict[str, Callable[[argparse.Namespace, Path], Results]] = {
    "table2-tin": lambda given, work: table2(tin_case(given.data), "table2-tin", given, work),
    "table2-dino": lambda given, work: table2(dino_case(given.data), "table2-dino", given, work),
    "layers": lambda given, work: {
        "layers": settings_of(
            tin_case(given.data, small=True), work, {f"block {b}": {"site": f"blocks.{b}.mlp.out"} for b in (5, 8, 10)}
        )
    },
    "layers-dino": lambda given, work: {
        "layers-dino": settings_of(dino_case(given.data), work, {"block 8": {"site": "blocks.8.mlp.out"}})
    },
    "models": run_models,
    "expansions": lambda given, work: {
        "expansions": settings_of(
            tin_case(given.data, small=True), work, {f"expansion {e}": {"expansion": e} for e in (4, 8, 16)}
        )
    },
    "table4-tin": lambda given, work: table4(tin_case(given.data, small=True), "table4-tin", given, work),
    "table4-dino": lambda given, work: table4(dino_case(given.data), "table4-dino", given, work),
    "table7-tin": lambda given, work: table7(tin_case(given.data), "table7-tin", given, work),
    "table7-dino": lambda given, work: table7(dino_case(given.data), "table7-dino", given, work),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*PARTS, "tables"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--work", type=Path, default=Path("runs/disentangle"))
    parser.add_argument("--out", type=Path, help="studies/results, but for --quick")
    parser.add_argument("--epochs", type=int, default=5, help="of the dictionaries of Table 2")
    parser.add_argument("--sweep-epochs", type=int, default=1, help="of the 9 or 27 candidates of each kind")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="draws of tokens for Table 2")
    parser.add_argument("--methods", nargs="+", choices=METHODS, metavar="METHOD", help="of Table 2; else all")
    parser.add_argument("--device", default="cpu", help="for Table 2")
    parser.add_argument("--quick", action="store_true", help="to see that it runs: few steps and units")
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.work = given.work / "quick" if given.quick else given.work  # its rows are no results
    given.out = given.out or (given.work if given.quick else OUT)
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / f"{NAME}.json"
    made = {} if given.part == "tables" else PARTS[given.part](given, given.work / given.part)
    results = (json.loads(file.read_bytes()) if file.exists() else {}) | made  # read late: parts may run side by side
    file.write_bytes(json_bytes(results))
    put_tables(results, given.out / f"{NAME}.md")


if __name__ == "__main__":
    main()
