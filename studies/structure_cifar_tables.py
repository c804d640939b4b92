"""The numbers of studies/structure_cifar_maps.py as tables, beside the paper's, with what they say in plain words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vitreous.evidence.statistics import p_text

METRICS = ("Point Game", "Energy PG")
METHODS = ("Grad-CAM++", "Grad-CAM")
LEVEL = 0.01  # p-values below are called a difference between these two networks
GAMMA = 0.1
NOISE = 0.5  # percent of accuracy that another seed may change
PAPER_MAPS = {
    "Point Game": ("0.613 ± 0.487", "0.703 ± 0.457", -13.517),
    "Energy PG": ("0.487 ± 0.344", "0.644 ± 0.236", -37.504),
}
PAPER_ACCURACY = (97.49, 97.58)
#: kind: what it is, and the paper's accuracy in Tables 13 to 15 (batch 392, 300 epochs).
ABLATION = {
    "vit": ("ViT", "92.43"),
    "ours": ("ours: grouped rank, 15,680 samples, threshold 1", "91.69"),
    "ours_one_batch": ("clustering on one batch (784 samples; paper 392)", "93.02"),
    "rank": ("rank without groups", "91.60"),
    "raw": ("raw", "87.31"),
    "normalised_raw": ("normalised raw", "92.14"),
    "threshold_half": ("threshold 0.5", "87.28"),
    "sum": ("section 3.5 read as a sum", "-"),
}
#: Table 10: ViT, ours, t, win rate by layer.
PAPER_TCAV = (
    ("0.49406, 0.49327", -1.59, 44.26), ("0.49313, 0.49306", -0.13, 48.72), ("0.49206, 0.49392", 3.46, 55.96),
    ("0.48993, 0.49350", 6.19, 61.70), ("0.48761, 0.49392", 10.51, 68.94), ("0.48998, 0.49285", 4.63, 59.15),
    ("0.48852, 0.48805", -0.72, 48.09), ("0.48869, 0.48772", -1.47, 46.17), ("0.48905, 0.48597", -4.67, 41.70),
    ("0.49083, 0.48811", -4.28, 44.04), ("0.49402, 0.49153", -4.11, 44.89), ("0.50087, 0.49821", -4.37, 42.34),
    ("0.51437, 0.51423", -0.16, 48.72), ("0.54147, 0.54442", 1.88, 54.89),
)  # fmt: skip


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def write_tables(result: Mapping[str, Any]) -> str:
    """Markdown of those parts that have been computed."""
    writers = {"cifar": _cifar, "animals": _animals, "tcav": _tcav, "inside": _inside}
    text = [_head(result), _short(result)]
    text += [_accuracy(result)] if "curves" in result else []
    text += [writer(result[part]) for part, writer in writers.items() if part in result]
    text += [_curves(result["curves"])] if "curves" in result else []
    return "\n".join(text)


def _head(result: Mapping[str, Any]) -> str:
    epochs = _epochs(result["curves"]) if "curves" in result else "some"
    return (
        "# CIFAR-10: what the structure loss changes in a small ViT\n\n"
        "Written by studies/structure_cifar_maps.py from structure_cifar.json.\n\n"
        "Not as in the paper: recipe `cifar10-32`, pictures of 32 pixels with patches of 4 (paper: 256 and 16), "
        f"{epochs} epochs of which 5 are warm-up (paper: 3,600), batch 784, one seed (42), CIFAR-10 as stored in JPEG "
        "files, so accuracies do not compare with published ones. All networks start from the same weights and see "
        "the same pictures in the same order.\n\n"
        "A paired t-test here says whether two trained networks differ over pictures. It does not say whether the "
        "method made the difference: there is one network of each kind, and another seed may turn it round.\n"
    )


def _epochs(curves: Mapping[str, Any]) -> str:
    return " or ".join(map(str, sorted(set(curves["epochs"].values()))))


# -- in short


def _short(result: Mapping[str, Any]) -> str:
    """A sentence for each question, made from the numbers."""
    said = []
    if "curves" in result and "ours" in result["curves"]["rows"]:
        said += [_said_accuracy(result["curves"]), _said_loss(result["curves"]["loss"]["ours"][-1])]
    if "cifar" in result:
        said.append(_said_maps(result["cifar"]))
    if "animals" in result:
        said.append(_said_animals(result["animals"]))
    if "tcav" in result:
        sure = [row["difference"] > 0 for row in result["tcav"]["rows"] if row["p of pairs"] < LEVEL]
        said.append(
            f"Textures by layer: of {len(result['tcav']['rows'])} layers ours is surely higher at {sum(sure)}, surely "
            f"lower at {len(sure) - sum(sure)} (p < {LEVEL} over concept and class)."
        )
    return "## In short\n\n" + "".join(f"- {sentence}\n" for sentence in said)


def _said_accuracy(curves: Mapping[str, Any]) -> str:
    vit, ours = curves["rows"]["vit"], curves["rows"]["ours"]
    gap, early = (ours[name] - vit[name] for name in ("last five", "first 30"))
    theirs = PAPER_ACCURACY[1] - PAPER_ACCURACY[0]
    added = (
        f" A step took {curves['step']['added percent']:+.1f} % (see Time)."
        if "added percent" in curves["step"]
        else ""
    )
    return (
        f"Accuracy of ours {gap:+.2f} % against ViT ({_gap(gap)}; paper {theirs:+.2f} %), "
        f"over the first {curves['early']} epochs {early:+.2f} % on average ({_gap(early)}; the paper sees ours "
        f"ahead).{added}"
    )


def _gap(gap: float) -> str:
    return "within what one seed can tell" if abs(gap) < NOISE else "ours higher" if gap > 0 else "ours lower"


def _said_loss(mean: Mapping[str, Any]) -> str:
    share = 100 * GAMMA * mean["structure"] / mean["main"] if mean["main"] else 0.0
    return (
        f"The loss had {mean['terms']:.0f} terms on average and kept {mean['kept']:.0f} of them; times γ it was "
        f"{share:.2g} % of the main loss."
    )


def _said_maps(found: Mapping[str, Any]) -> str:
    parts = []
    for method in METHODS:
        rows = [found[method][metric] for metric in METRICS]
        both = "; ".join(
            f"{m} {r['mean'][0]:.3f} and {r['mean'][1]:.3f} ({verdict(r)})" for m, r in zip(METRICS, rows, strict=True)
        )
        parts.append(f"{method}: {both}")
    point, energy = found["bump in the middle"]
    return (
        f"On CIFAR-10 with MobileSAM's masks, ViT and ours. {'. '.join(parts)}. The paper has ours higher in both. A "
        f"bump in the middle gets {point:.3f} and {energy:.3f}, a flat map {found['mean area of the masks']:.3f}."
        + _untrained(found)
    )


def _said_animals(found: Mapping[str, Any]) -> str:
    parts = []
    for method in METHODS:
        words = [verdict(part[method][m]) for by in found.values() for part in by.values() for m in METRICS]
        parts.append(
            f"{method}: ours higher in {words.count('ours higher')}, lower in {words.count('**ours lower**')} of "
            f"{len(words)} comparisons"
        )
    return f"On animals with true masks (two sets, predicted and true class, two metrics). {'; '.join(parts)}."


# -- Table 1 and Table 9


def verdict(row: Mapping[str, Any]) -> str:
    """Of a row vit - ours."""
    if row["p"] >= LEVEL:
        return "no difference"
    return "ours higher" if row["mean"][1] > row["mean"][0] else "**ours lower**"


def _pairs(row: Mapping[str, Any]) -> list[str]:
    return [f"{m:.3f} ± {s:.3f}" for m, s in zip(row["mean"], row["deviation"], strict=True)]


def _accuracy(result: Mapping[str, Any]) -> str:
    rows = result["curves"]["rows"]
    if "ours" not in rows:
        return ""
    final = [(rows[kind]["final"], rows[kind]["last five"]) for kind in ("vit", "ours")]
    gap = final[1][1] - final[0][1]
    said = _gap(gap)
    cells = [
        ("accuracy, %, last epoch", *(f"{v[0]:.2f}" for v in final), *PAPER_ACCURACY, said),
        ("accuracy, %, mean of the last five", *(f"{v[1]:.2f}" for v in final), "", "", f"{gap:+.2f}: {said}"),
    ]
    if "cifar" in result:
        for metric in METRICS:
            row = result["cifar"]["Grad-CAM++"][metric]
            paper = [f"{100 * float(cell.split()[0]):.1f}" for cell in PAPER_MAPS[metric][:2]]
            cells.append((f"{metric}, %", *(f"{100 * m:.2f}" for m in row["mean"]), *paper, verdict(row)))
    text = "## Table 1, CIFAR-10\n\n" + table(("", "ViT", "ours", "paper ViT", "paper ours", ""), cells)
    return text + (_weights(result["accuracy"]) if "accuracy" in result else "")


def _weights(found: Mapping[str, Any]) -> str:
    here, alone = found["here"], found["right alone"]
    logged = ", ".join(f"{kind} {here[kind]:.2f} % (logged {found['logged'][kind]:.2f} %)" for kind in here)
    return (
        f"\nThe weights came back rounded to half precision. In single precision, on {found['pictures']:,} test "
        f"pictures, they give {logged}. ViT alone is right on {alone['vit']} of them, ours alone on {alone['ours']} "
        f"(McNemar p = {p_text(found['p (McNemar)'])}).\n"
    )


MAP_HEAD = ("metric", "ViT", "ours", "t (ViT - ours)", "p", "", "with other pictures' maps", "own - other, t")


def _map_row(row: Mapping[str, Any]) -> list[str]:
    strange = ", ".join(f"{v:.3f}" for v in row["maps of other pictures"])
    gains = ", ".join(f"{v['statistic']:.1f}" for v in row["own above other"])
    return [*_pairs(row), f"{row['t']:.2f}", p_text(row["p"]), verdict(row), strange, gains]


def _control(found: Mapping[str, Any]) -> str:
    point, energy = found["bump in the middle"]
    right = ", ".join(f"{k} {v:.1f} %" for k, v in found["accuracy"].items())
    return (
        f"{found['pictures']:,} pictures, rightly named: {right}. A flat map gets "
        f"{found['mean area of the masks']:.3f} in both, a bump in the middle {point:.3f} in Point Game and "
        f"{energy:.3f} in Energy PG.{_untrained(found)}"
    )


def _untrained(found: Mapping[str, Any]) -> str:
    if "before training" not in found:
        return ""
    scores = found["before training"]
    each = "; ".join(f"{method} {scores[method][0]:.3f} and {scores[method][1]:.3f}" for method in METHODS)
    return f" The network before training, on {scores['pictures']:,} pictures: {each}."


def _shapes(found: Mapping[str, Any]) -> str:
    said = []
    for method in METHODS:
        zero, wide = found[method]["maps that are zero"], found[method]["spread"]
        said.append(
            f"{method}: {zero[0]} maps of ViT and {zero[1]} of ours are zero everywhere; the others cover "
            f"{wide[0]:.2f} and {wide[1]:.2f} of a picture."
        )
    return " ".join(said)


def _cifar(found: Mapping[str, Any]) -> str:
    masks = found["masks"]
    rows = [(method, metric, *_map_row(found[method][metric])) for method in METHODS for metric in METRICS]
    rows += [("paper, Grad-CAM++", m, a, b, f"{t:.2f}", *[""] * 4) for m, (a, b, t) in PAPER_MAPS.items()]
    text = (
        "## Table 9: do the maps point at the object?\n\n"
        f"Test pictures with masks of {masks['model']} (prompt `{masks['prompt']}`), maps of the predicted class on "
        "the output of the last block, as in the paper. At this size about a third of such a mask is wrong "
        "(docs/interpretability.md). Two numbers in a cell are ViT and ours.\n\n"
        + table(("method", *MAP_HEAD), rows)
        + f"\n{_control(found)} {_shapes(found)}\n"
    )
    if "both right" in found:
        part = found["both right"]
        some = [(m, q, part[m][q]) for m in METHODS for q in METRICS]
        lines = [(m, q, *_pairs(row), f"{row['t']:.2f}", verdict(row)) for m, q, row in some]
        text += f"\nOnly the {part['pictures']:,} pictures that both name rightly:\n\n"
        text += table(("method", "metric", "ViT", "ours", "t", ""), lines)
    return text + "\n![maps](structure_cifar_maps.png)\n"


def _animals(found: Mapping[str, Any]) -> str:
    rows, notes = [], []
    for name, by_class in found.items():
        for which, part in by_class.items():
            for method in METHODS:
                rows += [
                    (name, which.split()[0], method, metric, *_map_row(part[method][metric])) for metric in METRICS
                ]
        notes.append(f"{name}: {_control(by_class['predicted class'])}")
    return (
        "## The same with true masks\n\n"
        "Pictures brought to 32 pixels (shorter side, then the middle); the networks never saw pictures of these sets. "
        "Maps of the predicted class, and of the true one.\n\n"
        + table(("pictures", "class", "method", *MAP_HEAD), rows)
        + "\n"
        + "\n\n".join(notes)
        + "\n"
    )


# -- Table 10


TCAV_HEAD = ("layer", "ViT", "ours", "diff", "t", "p", "win %", "t of pairs", "p", "held out", "paper", "t", "win %")


def _tcav(found: Mapping[str, Any]) -> str:
    entries = found["rows"]
    alike = len(entries) == len(PAPER_TCAV)
    rows = []
    for n, row in enumerate(entries):
        numbers = (f"{row['difference']:+.5f}", f"{row['t']:.2f}", p_text(row["p"]), f"{row['wins']:.1f}")
        pairs = (f"{row['t of pairs']:.2f}", p_text(row["p of pairs"]))
        held = ", ".join(f"{v[n]:.2f}" for v in found["held-out accuracy"].values())
        theirs, t, wins = PAPER_TCAV[n] if alike else ("", "", "")
        rows.append((n + 1, *(f"{m:.5f}" for m in row["mean"]), *numbers, *pairs, held, theirs, t, wins))
    up = [str(n + 1) for n, row in enumerate(entries) if row["difference"] > 0]
    sure = [f"{n + 1} ({row['difference']:+.3f})" for n, row in enumerate(entries) if row["p of pairs"] < LEVEL]
    best = max(range(len(entries)), key=lambda n: entries[n]["difference"]) + 1
    return (
        "## Table 10: texture concepts by layer (TCAV)\n\n"
        f"{found['concepts']} textures of {found['pictures of a concept']} pictures (paper: 47 textures), "
        f"{found['pictures of a class']} test pictures a class, {found['random sets']} random sets of "
        f"{found['examples']} (paper: 300). `t` pairs all scores, as the paper does; repeats share their pictures, so "
        "its p is too small. `t of pairs` averages over random sets first and pairs (concept, class). `held out`: how "
        "often a concept's classifier is right about a picture that it was not shown, ViT and ours.\n\n"
        + table(TCAV_HEAD, rows)
        + f"\nOurs is higher at layers {', '.join(up) or 'none'}, most at {best} (paper: 3 to 6 and 14, most at 5). "
        f"The test of pairs calls it a difference (p < {LEVEL}) at {', '.join(sure) or 'no layer'}.\n"
    )


# -- inside, and the log


def _inside(found: Mapping[str, Any]) -> str:
    names = ("units", "units in clusters", "clusters", "over several layers", "inefficient", "largest")
    rows = [(name, *(found[kind][name] for kind in ("vit", "ours"))) for name in names]
    parts = ("change from block to block, squared", "the same over the units' variance")
    moves = [
        (f"{n + 1} to {n + 2}", *(f"{found[kind][part][n]:.4f}" for part in parts for kind in ("vit", "ours")))
        for n in range(len(found["vit"][parts[0]]))
    ]
    return (
        "## Inside the networks\n\n"
        f"Units of all layers at {found['tokens']} tokens in the middle, over {found['samples']:,} test pictures, "
        "clustered by the rule of the loss, over all layers at once.\n\n"
        + table(("", "ViT", "ours"), rows)
        + "\nHow far a unit moves from one block to the next (mean square), which is what the loss makes small for "
        "units of a cluster, and the same over the units' variance:\n\n"
        + table(("blocks", "ViT", "ours", "ViT, relative", "ours, relative"), moves)
    )


def _curves(found: Mapping[str, Any]) -> str:
    rows, early = found["rows"], found["early"]
    lines = []
    for kind, (what, paper) in ABLATION.items():
        if kind in rows:
            row = rows[kind]
            gap = row["last five"] - rows["vit"]["last five"]
            first, whole = row["epochs above vit"]
            counts = ("", "", "") if kind == "vit" else (f"{gap:+.2f}", f"{first}", f"{whole}")
            means = (f"{row[name]:.2f}" for name in ("final", "last five", "first 30"))
            lines.append((what, *means, *counts, paper))
    head = ("network", "last epoch", "mean of last 5", f"mean of first {early}", "last 5 against ViT")
    epochs = _epochs(found)
    step = found["step"]
    turns = "; ".join(f"{kind} {', '.join(f'{t:.2f}' for t in one)} ms" for kind, one in step["alone ms"].items())
    added = f" The loss added {step['added percent']:.1f} % in these few turns." if "added percent" in step else ""
    added += " Thirty pairs of turns of a later version: 2.2 % (`benchmarks/results/structure_loss.json`)."
    return (
        "## Tables 13, 14 and 15, and Figure 6\n\n"
        + table((*head, f"epochs above ViT, first {early}", f"of {epochs}", "paper"), lines)
        + f"\nPercent of 10,000 test pictures; 32 pixels, {epochs} epochs, batch 784, one seed (paper: batch 392, 300 "
        f"epochs). A difference below {NOISE} % between two such runs means nothing.\n\n"
        + "![curves](structure_cifar_curves.png)\n"
        + _loss(found["loss"])
        + f"\n## Time\n\nA step alone on the GPU, in turns: {turns}.{added}\n"
    )


def _loss(loss: Mapping[str, Any]) -> str:
    """What the loss found to align: of ours over time, of the others the mean."""
    names = ("clusters", "members", "terms", "kept")
    rows = []
    for kind, entries in loss.items():
        for entry in entries if kind == "ours" else entries[-1:]:
            share = 100 * GAMMA * entry["structure"] / entry["main"] if entry["main"] else 0.0
            losses = (f"{entry['structure']:.4f}", f"{entry['main']:.3f}", f"{share:.2f}")
            rows.append((kind, entry["epoch"], *(f"{entry[name]:.0f}" for name in names), *losses))
    return (
        "\n## What the structure loss did\n\n"
        + table(("network", "epoch", *names, "structure loss", "main loss", "γ · structure / main, %"), rows)
        + "\nAt the last step of an epoch; 2,304 units (3 blocks, 3 tokens, 256 channels) are clustered at a time. A "
        "term is a unit that is to follow its anchor; those kept are below the main loss.\n"
    )
