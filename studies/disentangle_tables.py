"""Tables 2, 4, 6 and 7 of the disentanglement paper on real models, at the size of two processor cores.

    python studies/disentangle_tables.py PART --data ../shared/data [--work runs/disentangle] [--quick]

PART is one of

    table2-tin, table2-dino     every method on the last MLP of tin-vit-text and of dinov2s_saliency, Figure 2's plane
    layers, models, expansions  Table 6: other blocks, other models, 4, 8 and 16 sub-units a unit
    table4                      stability over seeds and over other tokens
    table7                      ablations; UMAP if the package umap can be imported
    tables                      writes disentangle_tables.md from what is there

Results are added to disentangle_tables.json and .md under --out (studies/results), part by part. Each takes up where
it was killed. --work holds activations and dictionaries, a few hundred MB.
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
from tqdm.auto import tqdm  # type: ignore[import-untyped]

import vitreous as vt
from disentangle_inputs import Case, dino_case, tin_case
from disentangle_report import put_tables
from disentangle_umap import umap_finding
from vitreous.baselines.dictionaries import KINDS
from vitreous.dictionary_comparison.activations import record_training
from vitreous.dictionary_comparison.methods import Bench
from vitreous.dictionary_comparison.rows import strongest_samples
from vitreous.dictionary_comparison.settings import Settings
from vitreous.dictionary_comparison.watch import Watched
from vitreous.evidence.monosemanticity import ms_scores, random_partition
from vitreous.evidence.stability import coherence, effective_rank, matched_similarity, stability
from vitreous.provenance import json_bytes
from vitreous.render import to_png
from vitreous.subunits.layers import find_layer
from vitreous.views.dictionaries import comparison_scatter
from vitreous.views.panels import Card

OUT = Path(__file__).parent / "results"
NAME = "disentangle_tables"
LAST = "blocks.-1.mlp.out"
STRONGEST = ("backbone", "batch_topk", "matching_pursuit", "elude", "random_partition", "any_samples")
TRAINING: dict[str, Any] = {
    "tokens": 16,
    "expansion": 4,
    "steps": 300,
    "batch_size": 256,
    "learning_rate": 2e-3,
    "top": 10,
}
SHORT = {**TRAINING, "steps": 200, "tokens": 8}
TOP = 10
TOKENS = {"tin-vit-text": 8, "dinov2s_saliency": 16}  # a picture, for the ablations
FEW = 4  # units of the ablation that is slow
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
    said |= {"data": case.said, "judge": case.judged_by, "seconds": round(time.time() - began)}
    rows = [_rounded(row.facts()) for row in found.rows]
    ranking = (
        {name: _rounded(found.ranking[name]) for name in ("methods", "rates", "intervals")} if found.ranking else None
    )
    return {"model": case.name, "settings": said, "rows": rows, "ranking": ranking, "notes": list(found.notes)}


def table2(case: Case, name: str, work: Path, quick: bool) -> Results:
    began = time.time()
    found = compare(case, work / name, **(TRAINING if not quick else {**SHORT, "steps": 10}))
    print(found.table())
    picture = plane(found)
    (OUT / f"disentangle_{name.split('-')[1]}.png").write_bytes(picture)
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


def run_table4(data: Path, work: Path, quick: bool) -> Results:
    """Dictionaries from three seeds; ELUDe from three seeds, and from three draws of tokens."""
    began = time.time()
    case, seeds = tin_case(data, small=True), (42, 7, 1024)
    layer = find_layer(case.subject, LAST)
    trained = {s: record_training(case.subject, layer, case.train, 8, s, work / f"tokens-{s}", True) for s in seeds}
    units = range(16 if quick else 128)
    settings = Settings(LAST, 4, 8, None, None, 10 if quick else 200, 256, 2e-3, None, "none", TOP, "none")
    rows: dict[str, Any] = {}
    for kind in KINDS:
        made = [Bench(case.subject, layer, settings, trained[42], s, work / "made", True).make(kind) for s in seeds]
        atoms = [method.writes for method in made]
        rows[kind] = _geometry(atoms, stability(atoms).pairs)
    asked = {"units": units, "tokens_per_image": 8, "min_cluster_size": 8}
    runs = {
        "ELUDe, other seeds": [vt.disentangle(case.subject, trained[42].source, LAST, seed=s, **asked) for s in seeds],
        "ELUDe, other tokens": [vt.disentangle(case.subject, trained[s].source, LAST, seed=0, **asked) for s in seeds],
    }
    for name, findings in runs.items():
        reads = [[_alive(f, unit, f.subunit_weights(unit)[0]) for unit in f.units] for f in findings]
        writes = [
            [np.repeat(np.eye(len(layer.whole))[[unit]], len(block), 0) for unit, block in enumerate(run)]
            for run in reads
        ]
        rows[f"{name}: weights"] = _geometry([np.concatenate(run) for run in reads], stability(reads).pairs)
        best = [_best_match(reads[a], reads[b]) for a, b in ((0, 1), (0, 2), (1, 2))]
        rows[f"{name}: weights, best of the larger"] = {"stability": _rounded(float(np.mean(best)))}
        rows[f"{name}: channels written"] = _geometry([np.concatenate(run) for run in writes], stability(writes).pairs)
        rows[f"{name}: weights"]["expansion"] = [_rounded(f.expansion) for f in findings]
    said = {"units split": len(units), "tokens": 8, "steps": settings.steps, "seconds": round(time.time() - began)}
    return {"table4": {"model": case.name, "settings": said, "rows": rows}}


def _geometry(runs: list[np.ndarray], pairs: tuple[float, ...]) -> Results:
    of = {"effective rank": [effective_rank(run) for run in runs], "coherence": [coherence(run) for run in runs]}
    spread = {name: _rounded([float(np.mean(v)), float(np.std(v))]) for name, v in of.items()}
    return {"stability": _rounded([float(np.mean(pairs)), float(np.std(pairs))]), **spread}


def _alive(finding: vt.Disentanglement, unit: int, rows: np.ndarray) -> np.ndarray:
    return rows[~finding.dead[finding.subunits(unit)]]


def _best_match(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    """As `stability`, but of the run with more sub-units those are left out that match worst, not the last ones."""
    return float(np.mean([matched_similarity(x, y, unmatched="best") for x, y in zip(a, b, strict=True)]))


# -- Table 7


def run_table7(data: Path, work: Path, quick: bool) -> Results:
    made = {}
    for name, make in (("tin-vit-text", tin_case), ("dinov2s_saliency", dino_case)):
        made[name] = ablations(make(data), work / name, TOKENS[name], 8 if quick else 16)
    return {"table7": made}


def ablations(case: Case, work: Path, tokens: int, units: int) -> Results:
    """MS-Scores of some units' sub-units as one setting at a time is changed."""
    began = time.time()
    layer = find_layer(case.subject, LAST)
    training = record_training(case.subject, layer, case.train, tokens, 0, work / "tokens", True)
    held = record_training(case.subject, layer, case.evaluate, "all", 0, work / "held", True)
    q, y = np.asarray(held.q), held.y
    judged = case.embeddings()
    chosen = np.sort(np.random.default_rng(0).permutation(layer.count)[:units])
    base = {"units": chosen.tolist(), "tokens_per_image": tokens, "progress": False}
    first = vt.disentangle(case.subject, training.source, LAST, expansion=4, **base)
    k, size = first.settings["top_k"], first.settings["min_cluster_size"]
    changes: dict[str, dict[str, Any]] = {
        "ELUDe (leaf)": {},
        "EOM": {"selection": "eom"},
        "exact HDBSCAN": {"clusterer": "exact"},
        f"min cluster size {max(2, size // 2)}": {"min_cluster_size": max(2, size // 2)},
        f"min cluster size {2 * size}": {"min_cluster_size": 2 * size},
        f"min cluster size {4 * size}": {"min_cluster_size": 4 * size},
        "min samples 1": {"min_samples": 1},
        "min samples 5": {"min_samples": 5},
        "min samples 50": {"min_samples": 50},
        f"top-k {k // 2}": {"top_k": k // 2},
    }
    weight, bias = layer.matrix()
    rows = Kept(work / f"rows-{len(chosen)}-{k}-{size}.json")
    rows.put("units, not split", lambda: scores(weight[chosen], bias[chosen], q, y, judged))
    for name, change in tqdm(changes.items(), case.name):
        asked = {"top_k": k, "min_cluster_size": size, **base, **change}
        split = lambda asked=asked: vt.disentangle(case.subject, training.source, LAST, **asked)  # noqa: E731
        rows.put(name, lambda split=split: of_finding(split(), q, y, judged))
    parts = np.maximum(first.counts, 1)
    drawn = [random_partition(weight[chosen], bias[chosen], parts, np.random.default_rng(s))[:2] for s in range(3)]
    rows.put("random partition", lambda: _mean_of([scores(w.astype(np.float32), b, q, y, judged) for w, b in drawn]))
    few = chosen[:FEW]  # UMAP takes a minute a unit
    asked = {"top_k": k, "min_cluster_size": size, **base, "units": few.tolist()}
    rows.put(
        f"ELUDe (leaf), {FEW} of the units",
        lambda: of_finding(vt.disentangle(case.subject, training.source, LAST, **asked), q, y, judged),
    )
    rows.put(
        f"UMAP to 5 dimensions, the same {FEW} units",
        lambda: of_finding(umap_finding(training.source, case.subject, layer, few, k, size), q, y, judged),
    )
    said = {"units": units, "top_k": k, "min_cluster_size": size, "data": case.said}
    said |= {"tokens": tokens, "judge": case.judged_by}
    return {"settings": {**said, "seconds": round(time.time() - began)}, "rows": rows.found}


class Kept:
    """Rows that are on disk as soon as they are made; those that are there are not made again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: Results = json.loads(path.read_bytes()) if path.exists() else {}

    def put(self, name: str, make: Callable[[], Results]) -> None:
        if name not in self.found:
            self.found[name] = make()
            self.path.write_bytes(json_bytes(self.found))


def of_finding(finding: vt.Disentanglement | None, q: np.ndarray, y: np.ndarray, judged: np.ndarray) -> Results:
    if finding is None:
        return {"note": "no umap here"}
    alive = np.flatnonzero(~finding.dead)
    found = scores(*finding.weights_of(alive), q, y, judged)
    return found | {"expansion": _rounded(finding.expansion), "noise": _rounded(float(finding.noise.mean()))}


def scores(weight: np.ndarray, bias: np.ndarray, q: np.ndarray, y: np.ndarray, judged: np.ndarray) -> Results:
    """MS-Score of linear units (unit, input) on q (sample, token, input), in the layer's space and the judge's."""
    parts = [q[k : k + 50] @ weight.T + bias for k in range(0, len(q), 50)]
    strongest = np.concatenate([part.max(1) for part in parts])
    places = np.concatenate([part.argmax(1) for part in parts])
    low = np.min([part.min((0, 1)) for part in parts], 0)
    best = strongest_samples(Watched(None, strongest, places, low, 0.0, np.empty(0)), TOP)  # type: ignore[arg-type]
    at = np.take_along_axis(places.T, best.samples, 1)
    own = ms_scores(best.weights, best.samples * q.shape[1] + at, y)[best.active]
    flat = best.samples if judged.ndim == 2 else best.samples * judged.shape[1] + at
    other = ms_scores(best.weights, flat, judged)[best.active]
    return {"units": len(weight), "ms": _rounded(float(own.mean())), "ms judge": _rounded(float(other.mean()))}


def _mean_of(found: list[Results]) -> Results:
    keys = ("ms", "ms judge")
    return {**found[0], **{key: _rounded(float(np.mean([f[key] for f in found]))) for key in keys}}


# -- parts


def run_models(data: Path, work: Path, quick: bool) -> Results:
    made = {}
    for objective in ("contrast", "mae"):
        made |= settings_of(
            tin_case(data, objective, small=True), work, {f"tin-vit-{objective}": {"steps": 10} if quick else {}}
        )
    return {"models": made}


PARTS: dict[str, Callable[[Path, Path, bool], Results]] = {
    "table2-tin": lambda data, work, quick: table2(tin_case(data), "table2-tin", work, quick),
    "table2-dino": lambda data, work, quick: table2(dino_case(data), "table2-dino", work, quick),
    "layers": lambda data, work, _: {
        "layers": settings_of(
            tin_case(data, small=True), work, {f"block {b}": {"site": f"blocks.{b}.mlp.out"} for b in (5, 8, 10)}
        )
    },
    "models": run_models,
    "expansions": lambda data, work, _: {
        "expansions": settings_of(
            tin_case(data, small=True), work, {f"expansion {e}": {"expansion": e} for e in (4, 8, 16)}
        )
    },
    "table4": run_table4,
    "table7": run_table7,
}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) and value not in (0.0, 1.0) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*PARTS, "tables"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--work", type=Path, default=Path("runs/disentangle"))
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--quick", action="store_true", help="to see that it runs: few steps and units")
    given = parser.parse_args()
    torch.set_num_threads(1)
    file = given.out / f"{NAME}.json"
    made = {} if given.part == "tables" else PARTS[given.part](given.data, given.work / given.part, given.quick)
    results = (json.loads(file.read_bytes()) if file.exists() else {}) | made  # read late: parts may run side by side
    file.write_bytes(json_bytes(results))
    put_tables(results, given.out / f"{NAME}.md")


if __name__ == "__main__":
    main()
