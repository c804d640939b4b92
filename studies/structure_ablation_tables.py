"""The numbers of studies/structure_ablation.py as tables beside the paper's, with a verdict on each of its claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

GAMMA = 0.1
#: kind: what it is, and the paper's accuracy in Tables 13 to 15 (whole CIFAR-10 at 256 pixels, batch 392, 300 epochs).
ROWS = {
    "vit": ("ViT", "92.43"),
    "mean": ("structure loss, read as a mean", "-"),
    "sum": ("structure loss, read as a sum: grouped rank, 20 batches, threshold 1", "91.69"),
    "rank": ("rank without groups", "91.60"),
    "raw": ("raw", "87.31"),
    "normalised_raw": ("normalised raw", "92.14"),
    "one_batch": ("clustering on one batch", "93.02"),
    "ten_batches": ("clustering on ten batches (paper: twenty of 392)", "91.30"),
    "threshold_half": ("threshold 0.5", "87.28"),
    "rank_fit": ("rank without groups, as strict as 1 bin of 100", "-"),
    "raw_fit": ("raw, as strict as 1 bin of 100", "-"),
    "normalised_raw_fit": ("normalised raw, as strict as 1 bin of 100", "-"),
}
Claim = tuple[str, str, str, str]  # the better kind, the worse one, the claim, its table
CLAIMS: tuple[Claim, ...] = (
    ("one_batch", "vit", "clustering on one batch beats the plain network", "Table 13"),
    ("sum", "rank", "grouped ranks beat ranks", "Table 13"),
    ("sum", "raw", "grouped ranks beat raw activations", "Table 13"),
    ("one_batch", "normalised_raw", "grouped ranks, clustered on one batch, beat normalised activations", "Table 13"),
    ("vit", "raw", "raw activations do harm", "Table 13"),
    ("one_batch", "sum", "clustering on one batch beats clustering on twenty", "Table 14"),
    ("one_batch", "ten_batches", "clustering on one batch beats clustering on ten", "Table 14"),
    ("sum", "threshold_half", "threshold 1 beats threshold 0.5", "Table 15"),
    ("sum", "rank_fit", "grouped ranks beat ranks that are joined as strictly", "not in the paper"),
    ("sum", "raw_fit", "grouped ranks beat raw activations that are joined as strictly", "not in the paper"),
    ("sum", "normalised_raw_fit", "and normalised ones", "not in the paper"),
)
#: What Point Game and Energy PG get by chance: the mean area of the masks at 32 pixels (structure_cifar.json).
CHANCE = {"pets": 0.316, "voc_animals": 0.294}
METRICS = ("Point Game", "Energy PG")


def write_tables(result: Mapping[str, Any]) -> str:
    runs = by_kind(result["runs"])
    return "\n".join(
        [_head(result), _short(runs), _verdicts(runs), _accuracies(runs), _pointing(runs), _inside(runs), _loss(runs)]
    )


def by_kind(runs: Mapping[str, Any]) -> dict[str, dict[int, Any]]:
    """kind -> seed -> run."""
    found: dict[str, dict[int, Any]] = {}
    for name, run in runs.items():
        kind, seed = name.split()
        found.setdefault(kind, {})[int(seed)] = run
    return found


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def final(run: Mapping[str, Any], last: int = 3) -> float:
    """Accuracy in percent, mean of the last epochs."""
    return float(np.mean([entry["accuracy"] for entry in run["log"][-last:]]))


def pointed(run: Mapping[str, Any], metric: str, when: str = "after training", method: str = "Grad-CAM++") -> float:
    """Point Game or Energy PG of maps of the predicted class, mean over both sets of animals."""
    found = run["pointing"][when]
    return float(np.mean([found[name]["predicted"][method][METRICS.index(metric)] for name in CHANCE]))


def differences(
    a: Mapping[int, Any], b: Mapping[int, Any], measure: Callable[[Mapping[str, Any]], float] = final
) -> np.ndarray:
    """Of a minus that of b, one for every seed that both have."""
    return np.array([measure(a[seed]) - measure(b[seed]) for seed in sorted(set(a) & set(b))])


def seed_noise(runs: Mapping[str, Mapping[int, Any]]) -> float:
    """How far runs of one kind lie apart over seeds: the pooled standard deviation, in percent."""
    parts = [np.array([final(run) for run in seeds.values()]) for seeds in runs.values() if len(seeds) > 1]
    free = sum(len(part) - 1 for part in parts)
    return float(np.sqrt(sum(((part - part.mean()) ** 2).sum() for part in parts) / free)) if free else float("nan")


def _head(result: Mapping[str, Any]) -> str:
    s = result["settings"]
    n = s["network"]
    seeds = sorted({int(name.split()[1]) for name in result["runs"]})
    return (
        "# Tables 13 to 15 in small\n\n"
        "Written by `python studies/structure_ablation.py DATA`, numbers in structure_ablation.json; two CPU cores, "
        f"torch {s['torch']}.\n\n"
        f"**Much smaller than the paper**: {s['train']:,} training and {s['test']:,} test pictures of CIFAR-10 at 32 "
        f"pixels (paper: 50,000 and 10,000 at 256), {n['depth']} blocks of {n['embed_dim']} with patches of "
        f"{n['patch_size']} (14 of 256, patches of 16), {s['warmup'] + s['epochs']} epochs of which {s['warmup']} is "
        f"warm-up (300), batches of {s['batch']} (392), pictures mirrored and moved by two pixels (timm's "
        f"augmentation), seeds {', '.join(map(str, seeds))} (one run each). Runs of one seed start from the same "
        "weights and see the same pictures in the same order. The rows take the loss as section 3.5 prints it, as a "
        "sum; one row has the mean.\n\n"
        "A network that has just begun to learn says nothing about one trained for 300 epochs. What it can say is "
        "whether a choice does harm or good early on, and what the loss does at all.\n"
    )


def _short(runs: Mapping[str, Mapping[int, Any]]) -> str:
    """What the numbers say, in sentences that follow from them."""
    said = []
    if missing := [what for kind, (what, _) in ROWS.items() if kind not in runs]:
        said.append(f"Not run yet: {'; '.join(missing)}.")
    if uneven := sorted({len(seeds) for seeds in runs.values()})[:-1]:
        said.append(f"Some rows have only {uneven[0]} of the seeds: the runs were cut by time.")
    if grown := [kind for kind in runs if kind != "vit" and "vit" in runs and _grown(runs, kind)]:
        said.append(f"Groups of alike units are larger by a tenth or more with {_names(grown)}, for every seed.")
    if same := [k for k in runs if k not in ("vit", *grown)]:
        said.append(f"They are not, or not for every seed, with {_names(same)}.")
    if flat := [kind for kind, seeds in runs.items() if kind != "vit" and _one_cluster(seeds)]:
        gaps = [f"{value:+.2f}" for value in differences(runs[flat[0]], runs["vit"])]
        said.append(
            f"With {_names(flat)} all units are one cluster at threshold 1. Its anchor has one channel to follow it, "
            "so the loss is as good as off: these rows say nothing about the transform, only that the threshold does "
            f"not fit it. That they differ from the plain network all the same ({', '.join(gaps)} % by seed) is what "
            "chance does to one run: differences of that size in one seed mean nothing."
        )
    return "## In short\n\n" + "".join(f"- {sentence}\n" for sentence in said)


def _names(kinds: Sequence[str]) -> str:
    return ", ".join(f"`{kind}`" for kind in kinds)


def _grown(runs: Mapping[str, Mapping[int, Any]], kind: str) -> bool:
    both = set(runs[kind]) & set(runs["vit"])
    return all(
        runs[kind][seed]["inside"]["mean group"] > 1.1 * runs["vit"][seed]["inside"]["mean group"] for seed in both
    )


def _one_cluster(seeds: Mapping[int, Any]) -> bool:
    entries = [entry for run in seeds.values() for entry in run["log"] if "clusters" in entry]
    return bool(entries) and all(entry["clusters"] == 1 for entry in entries)


def half_width(gap: np.ndarray) -> float:
    """Of Student's 95 % interval of the mean over seeds."""
    return float(stats.t.ppf(0.975, len(gap) - 1) * gap.std(ddof=1) / np.sqrt(len(gap)))


def interval(gap: np.ndarray, digits: int = 2) -> str:
    if len(gap) < 2:
        return f"{gap.mean():+.{digits}f}"
    half = half_width(gap)
    return f"{gap.mean():+.{digits}f} [{gap.mean() - half:+.{digits}f}, {gap.mean() + half:+.{digits}f}]"


def verdict(gap: np.ndarray) -> str:
    """Of differences by seed: what they say of `the first is better`."""
    if len(gap) < 2:
        return "one seed: not shown"
    if gap.mean() > half_width(gap):
        return "as the paper says"
    if -gap.mean() > half_width(gap):
        return "**the other way round**"
    return "not shown: seeds differ by more"


def _verdicts(runs: Mapping[str, Mapping[int, Any]]) -> str:
    rows = []
    for better, worse, claim, where in CLAIMS:
        if better in runs and worse in runs:
            gap = differences(runs[better], runs[worse])
            known = "-" not in (ROWS[better][1], ROWS[worse][1])
            theirs = f"{float(ROWS[better][1]) - float(ROWS[worse][1]):+.2f}" if known else "-"
            each = ", ".join(f"{value:+.2f}" for value in gap)
            rows.append((claim, where, theirs, interval(gap), each, verdict(gap)))
    return (
        "## The paper's claims\n\n"
        "Differences of accuracy in percent, mean of the last three epochs, paired by seed, with Student's 95 % "
        "interval over seeds. A claim counts as shown if the interval lies above 0. Runs of one kind lie "
        f"{seed_noise(runs):.2f} apart over seeds (standard deviation; `nan` with one seed).\n\n"
        + table(("claim", "", "paper", "here", "by seed", "verdict"), rows)
    )


def _accuracies(runs: Mapping[str, Mapping[int, Any]]) -> str:
    rows = []
    for kind, (what, paper) in ROWS.items():
        if kind in runs:
            own = np.array([final(run) for run in runs[kind].values()])
            gap = differences(runs[kind], runs["vit"]) if kind != "vit" and "vit" in runs else np.array([])
            against = interval(gap) if len(gap) else ""
            early = np.mean(
                [[e["accuracy"] for e in run["log"][: len(run["log"]) // 2]] for run in runs[kind].values()]
            )
            each = ", ".join(f"{value:.2f}" for value in own)
            rows.append((what, f"{own.mean():.2f}", each, against, f"{early:.2f}", paper))
    head = ("network", "accuracy, %", "by seed", "against ViT", "mean of the first half (Figure 6)", "paper")
    return "## Accuracy\n\n" + table(head, rows)


def _pointing(runs: Mapping[str, Mapping[int, Any]]) -> str:
    """Table 9 over seeds: a paired t-test over pictures says nothing about other trainings, this does."""
    rows = []
    for kind, (what, _) in ROWS.items():
        some = {seed: run for seed, run in runs.get(kind, {}).items() if "pointing" in run}
        cells = []
        for method in ("Grad-CAM++", "Grad-CAM"):
            for metric in METRICS:
                measure = partial(pointed, metric=metric, method=method)
                gap = differences(some, runs["vit"], measure) if kind != "vit" and "vit" in runs else np.array([])
                mean = f"{np.mean([measure(run) for run in some.values()]):.3f}" if some else ""
                cells.append(f"{mean}, {interval(gap, 3)}" if len(gap) else mean)
        if some:
            rows.append((what, len(some), *cells))
    if "vit" in runs and all("pointing" in run for run in runs["vit"].values()):
        before = [
            f"{np.mean([pointed(run, metric, 'before training', method) for run in runs['vit'].values()]):.3f}"
            for method in ("Grad-CAM++", "Grad-CAM")
            for metric in METRICS
        ]
        rows.append(("before training", len(runs["vit"]), *before))
    if not rows:
        return ""
    head = ("network", "seeds", *(f"{method}, {metric}" for method in ("Grad-CAM++", "Grad-CAM") for metric in METRICS))
    return (
        "## Do the maps point at the object? (Table 9 over seeds)\n\n"
        "259 pets and 72 cats, dogs and horses of PASCAL at 32 pixels with their true masks, maps of the predicted "
        "class on the output of the last block (four by four patches); the mean of both sets, and the difference from "
        "the plain network of the same seed with Student's interval. By chance both scores are "
        f"{np.mean(list(CHANCE.values())):.3f}.\n\n" + table(head, rows)
    )


def _inside(runs: Mapping[str, Mapping[int, Any]]) -> str:
    names = ("mean group", "units in clusters", "inefficient", "largest", "moved, relative")
    rows = []
    for kind, (what, _) in ROWS.items():
        if kind in runs:
            means = [float(np.mean([run["inside"][name] for run in runs[kind].values()])) for name in names]
            rows.append((what, *(f"{value:.3f}" if n in (0, 4) else f"{value:.0f}" for n, value in enumerate(means))))
    head = ("network", "mean size of a group", "units in clusters", "inefficient clusters", "largest", "moved")
    return (
        "## Inside the trained networks\n\n"
        "All blocks, three tokens in the middle, 1,000 test pictures, clustered by grouped ranks at threshold 1 "
        "whatever the training used; means over seeds. Moved: how far units move from one block to the next, mean "
        "square over variance: what the loss makes small.\n\n" + table(head, rows)
    )


def _loss(runs: Mapping[str, Mapping[int, Any]]) -> str:
    rows = []
    for kind, (what, _) in ROWS.items():
        if kind != "vit" and kind in runs:
            entries = [entry for run in runs[kind].values() for entry in run["log"]]
            mean = {k: np.mean([e.get(k, 0) for e in entries]) for k in ("clusters", "members", "terms", "kept")}
            share = np.mean([100 * GAMMA * e["structure"] / e["main"] for e in entries if "structure" in e])
            rows.append((what, *(f"{value:.0f}" for value in mean.values()), f"{share:.3f}"))
    head = ("network", "clusters", "members", "terms", "kept", "γ · structure / main, %")
    return "## What the loss did\n\nAt the last step of an epoch, mean over epochs and seeds.\n\n" + table(head, rows)
