"""What the four papers claim, what was measured here, and a verdict by rule. Ours comes from results/*.json alone.

The papers' own numbers are typed in once, each with its table or figure. A verdict is computed from the numbers beside
it, never written by hand, except "not testable here", which says what is missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
HOLDS, PARTLY, NOT, UNTESTED = "holds", "holds partly", "does not hold", "not testable here"
Found = tuple[str, str]  # what was measured, verdict


@dataclass(frozen=True)
class Claim:
    """`where` is the paper's table or figure, `theirs` its numbers, `found` ours with the verdict."""

    where: str
    says: str
    theirs: str
    found: Callable[[], Found]
    page: str = ""  # in results/, with the whole table


@cache
def read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def missing(what: str) -> Callable[[], Found]:
    return lambda: (what, UNTESTED)


def span(three: list[float], times: float = 1, digits: int = 2) -> str:
    """`0.33 [0.29, 0.38]` of a value and its 95 % interval."""
    value, low, high = (f"{times * number:.{digits}f}" for number in three)
    return f"{value} [{low}, {high}]"


def verdict(*parts: bool) -> str:
    """All parts of a claim, some, or none."""
    return HOLDS if all(parts) else PARTLY if any(parts) else NOT


# -- structure


def spiral_sizes() -> Found:
    sizes = read("structure_spiral")["sizes"]["grid"]
    plain, loss = sizes["vit"]["mean size"], {name: sizes[name] for name in ("mean", "sum")}
    said = [f"{n} {one['mean size']:.2f} (KS p {one['KS']['p']})" for n, one in loss.items()]
    told = [one["mean size"] > plain and float(one["KS"]["p"]) < 0.01 for one in loss.values()]
    return f"plain {plain:.2f}; loss read as {', as '.join(said)}", verdict(*told)


def spiral_inefficient() -> Found:
    runs = read("structure_spiral")["runs"]
    plain, *loss = (runs[name]["grid"]["inefficient"] for name in ("vit", "mean", "sum"))
    return f"plain {plain}; loss read as mean {loss[0]}, as sum {loss[1]}; one run each", verdict(
        *(n < plain for n in loss)
    )


def spiral_differences() -> Found:
    runs = read("structure_spiral")["runs"]
    ends = {name: (run["grid"]["differences"][0], run["grid"]["differences"][-1]) for name, run in runs.items()}
    said = [f"{name} {first:.1f} to {last:.1f}" for name, (first, last) in ends.items()]
    plain = abs(ends["vit"][1] - ends["vit"][0])
    flatter = [abs(ends[name][1] - ends[name][0]) < plain for name in ("mean", "sum")]
    same_way = ends["vit"][1] < ends["vit"][0]  # the paper's plain network grows more alike with depth
    return "; ".join(said), verdict(*flatter, same_way)


def cifar_accuracy() -> Found:
    rows = read("structure_cifar")["curves"]["rows"]
    plain, ours = rows["vit"]["last five"], rows["ours"]["last five"]
    return f"plain {plain:.2f} %, loss {ours:.2f} % (one seed: half a percent is chance)", verdict(
        ours > plain - 0.5, ours > plain + 0.5
    )


def cifar_pointing() -> Found:
    maps = read("structure_cifar")["cifar"]["Grad-CAM++"]
    said, told = [], []
    for metric in ("Point Game", "Energy PG"):
        one = maps[metric]
        said.append(f"{metric} {one['mean'][0]:.3f} and {one['mean'][1]:.3f} (paired t p {one['p']:.1e})")
        told.append(one["mean"][1] > one["mean"][0] and one["p"] < 0.01)
    return "plain and loss: " + "; ".join(said), verdict(*told)


def ablation(better: str, worse: str, what: str) -> Callable[[], Found]:
    def found() -> Found:
        runs = read("structure_ablation")["runs"]
        pairs = [
            (runs[f"{better} {s}"], runs[f"{worse} {s}"])
            for s in (0, 1)
            if {f"{better} {s}", f"{worse} {s}"} <= {*runs}
        ]
        gaps = [_late(a) - _late(b) for a, b in pairs]
        said = ", ".join(f"{gap:+.2f} %" for gap in gaps)
        if len(gaps) < 2:
            return f"{what}: {said} (one seed, 10 epochs)", UNTESTED
        return f"{what}: {said} (two seeds, 10 epochs)", HOLDS if min(gaps) > 0 else NOT

    return found


def _late(run: dict[str, Any]) -> float:
    return sum(line["accuracy"] for line in run["log"][-3:]) / 3


def backbones() -> Found:
    models = read("structure_backbones")["models"]
    said = {n: m["trained"]["first three"]["thresholds"]["1"]["mean size"] for n, m in models.items()}
    text = [said[n] for n in ("MiniLM", "stories15M") if n in said]
    seen = [size for n, size in said.items() if n not in ("MiniLM", "stories15M")]
    shown = ", ".join(f"{name} {size:.3f}" for name, size in said.items())
    return shown, verdict(max(seen) < 1.05, min(text) > max(seen))


def residual_mlp() -> Found:
    found = read("structure_residual_mlp")
    many, before = (len(found[when]["units that come back"]) for when in ("after training", "before training"))
    return f"{many} units come back after training, {before} before it", verdict(many > 0, many > before)


def step_cost() -> Found:
    added = read("structure_cifar")["curves"]["step"]["added percent"]
    return f"{added:.1f} % of a step", HOLDS if added < 10 else NOT


# -- disentangle


def rows_of(table: str) -> dict[str, dict[str, Any]]:
    return {row["method"]: row for row in read("disentangle_tables")[table]["rows"]}


SAES = ("vanilla", "topk", "batch_topk", "jumprelu", "matryoshka", "archetypal", "matching_pursuit", "transcoder")


def faithful() -> Found:
    said, told = [], []
    for table in ("table2-tin", "table2-dino"):
        rows = rows_of(table)
        best = max(rows[name]["r2"] for name in SAES if name in rows)
        said.append(
            f"{read('disentangle_tables')[table]['model']}: R² {rows['elude']['r2']:.4f}, best dictionary {best:.4f}"
        )
        told.append(rows["elude"]["output_difference"] == 0 and rows["elude"]["r2"] == 1)
    return "; ".join(said), verdict(*told)


def scores_above(key: str) -> Callable[[], Found]:
    def found() -> Found:
        said, told = [], []
        for table in ("table2-tin", "table2-dino"):
            rows = rows_of(table)
            mine, whole, parts = (rows[name][key] for name in ("elude", "backbone", "random_partition"))
            best = max((rows[name][key], name) for name in SAES if name in rows)
            model = read("disentangle_tables")[table]["model"]
            said.append(
                f"{model}: sub-units {mine:.3f}, units {whole:.3f}, random parts {parts:.3f}, {best[1]} {best[0]:.3f}"
            )
            told += [mine > whole and mine > parts, mine > best[0]]
        return "; ".join(said), verdict(*told)

    return found


def rank() -> Found:
    said, told = [], []
    for table in ("table2-tin", "table2-dino"):
        ranking = read("disentangle_tables")[table]["ranking"]
        rates = dict(zip(ranking["methods"], ranking["rates"], strict=True))
        spans = dict(zip(ranking["methods"], ranking["intervals"], strict=True))
        first = max(rates, key=rates.__getitem__)
        low, high = spans["elude"]
        said.append(f"sub-units win {rates['elude']:.2f} [{low:.2f}, {high:.2f}], first is {first} {rates[first]:.2f}")
        told += [low > spans["backbone"][1], first == "elude"]
    return "coherence judge, no language model: " + "; ".join(said), verdict(*told)


def stable() -> Found:
    rows = read("disentangle_tables")["table4"]["rows"]
    seeds, tokens = (rows[f"ELUDe, other {what}: weights"]["stability"][0] for what in ("seeds", "tokens"))
    best = max((rows[name]["stability"][0], name) for name in SAES)
    said = (
        f"sub-units {seeds:.2f} over seeds, {tokens:.2f} over other tokens; best dictionary ({best[1]}) {best[0]:.2f}"
    )
    return said, verdict(seeds > best[0], tokens > best[0])


def table7() -> Found:
    said, told = [], []
    for model, one in read("disentangle_tables")["table7"].items():
        rows = {name: row["ms"] for name, row in one["rows"].items()}
        leaf, eom = rows["ELUDe (leaf)"], rows["EOM"]
        said.append(f"{model}: leaf {leaf:.3f}, EOM {eom:.3f}, units {rows['units, not split']:.3f}")
        told += [leaf > eom, leaf > rows["units, not split"]]
    return "; ".join(said), verdict(*told)


def steering() -> Found:
    found = read("disentangle_steering")["class"]
    before, after = found["hits before"], found["suppress"]["sub-units of the concept"]["hit"]
    strengths = found["strengths, |factor - 1|"]
    said = ", ".join(f"{value:.2f} at {s}" for s, value in zip(strengths, after, strict=True))
    return f"hits of the concept {before:.2f} before; suppressed by strength: {said}", HOLDS if after[
        -1
    ] < before / 2 else PARTLY


def language_units() -> Found:
    rows = {row["method"]: row for row in read("disentangle_language")["block 3"]["rows"]}
    mine, whole = rows["elude"], rows["backbone"]
    said = f"MS-Score {mine['ms']:.3f} against {whole['ms']:.3f}, loss {mine['loss']:.3f} against {whole['loss']:.3f}"
    return said, verdict(mine["ms"] > whole["ms"], mine["loss"] == whole["loss"])


# -- align


def brain() -> Found:
    one = read("align_brain")["210325"]
    best = one["constraint"]["0.0"]
    alone = max(one[f"{name} alone"] for name in ("text", "contrast", "mae", "dino"))
    low, high = min(best["R2 of seeds"]), max(best["R2 of seeds"])
    said = f"R² {best['R2']:.3f} (seeds {low:.3f} to {high:.3f}), ceiling {one['ceiling']:.2f}; shuffled weights "
    said += f"{one['shuffled weights']:.3f}, best network alone {alone:.3f}"
    return said, verdict(low > one["shuffled weights"], low > alone)


def constraint() -> Found:
    found = read("align_brain")["210325"]["constraint"]
    said = "; ".join(
        f"λ {key}: {one['R2']:.3f} (seeds {min(one['R2 of seeds']):.3f} to {max(one['R2 of seeds']):.3f})"
        for key, one in found.items()
    )
    better = [found[key]["R2"] > found["0.0"]["R2"] for key in ("1.0", "0.1")]
    return said, verdict(*better)


def kept_segments() -> Found:
    scores = read("align_segments")["scores"]["pets, figure and ground"]
    said, told = [], []
    for model, one in scores.items():
        before, with_it, without = (
            sum(one[k]) / len(one[k]) for k in ("before", "after, λ_eigen 1", "after, λ_eigen 0")
        )
        said.append(f"{model} {before:.2f}, {without:.2f}, {with_it:.2f}")
        told.append(without < before and with_it > without)
    return "mean IoU before, after, after with the constraint: " + "; ".join(said), verdict(*told)


def alike() -> Found:
    one = read("align_brain")["210325"]
    before, after = one["cosine before"]["same patch"], one["constraint"]["0.0"]["cosine after"]["same patch"]
    other = one["constraint"]["0.0"]["cosine after"]["another patch"]
    said = f"cosine of one patch in two networks {before:.3f} before, {after:.3f} after; another patch {other:.3f}"
    return said, verdict(after > before + 0.02, after > 0.5)


def one_colour() -> Found:
    mixing = read("align_pictures")["mixing"]["after, λ_eigen 0"]
    said = f"nearest neighbours of another network {mixing['another network']:.0%} (75 % if networks did not matter)"
    return said, HOLDS if mixing["another network"] > 0.5 else NOT


def paths() -> Found:
    told, said = [], []
    for model, one in read("align_pictures")["transitions"].items():
        step = one["steps"][one["widest"]]
        said.append(f"{model} {step['true']:.2f} (exchanged masks {step['exchanged']:.2f})")
        told.append(step["true"] > 2 * step["exchanged"])
    return "total variation of figure and ground at the widest step: " + "; ".join(said), verdict(*told)


# -- tokens


def perturbed() -> Found:
    said, told = [], []
    for model, sets in read("tokens_perturbation")["table"].items():
        for name, rows in sets.items():
            gap = rows["tokens, sum"]["mask"]["positive - negative"]
            said.append(f"{model}, {name}: {span([gap['value'], gap['low'], gap['high']], digits=1)}")
            told.append(gap["low"] > 0)
    return "positive less negative, masks: " + "; ".join(said), verdict(*told)


def segment_level() -> Found:
    scores = read("tokens_segments")["scores"]["dinov2s_saliency"]["voc_animals"]
    mine, kmeans = (scores[name]["over the data set"]["mIoU"] for name in ("tokens, sum", "k-means of features"))
    shuffled = scores["tokens, sum, shuffled weights"]["over the data set"]["mIoU"]
    said = (
        f"{span(mine, 100, 1)}; k-means of features {span(kmeans, 100, 1)}; shuffled weights {span(shuffled, 100, 1)}"
    )
    return said, verdict(mine[0] > shuffled[2], mine[0] > kmeans[0])


def learned_w() -> Found:
    scores = read("tokens_segments")["scores"]["dinov2s_saliency"]
    told, said = [], []
    for name in ("voc_animals", "pets", "camvid"):
        a, b = (scores[name][row]["over the data set"]["mIoU"] for row in ("tokens, learned", "tokens, sum"))
        said.append(f"{name} {span(a, 100, 1)} against {span(b, 100, 1)}")
        told += [a[0] > b[0], a[1] > b[2]]  # higher, and surely so
    return "learned w against the sum: " + "; ".join(said), verdict(*told)


def deeper() -> Found:
    rows = read("tokens_layers")["itiou"]["dinov2s_saliency"]["voc_animals"]
    values = {block: rows[f"objects, block {block}"]["at 0.2"] for block in (0, 3, 7, 11)}
    ups = list(values.values())
    said = "; ".join(f"block {block} {span(value)}" for block, value in values.items())
    return said, HOLDS if all(a[0] < b[0] for a, b in pairwise(ups)) else PARTLY


def itiou_level() -> Found:
    row = read("tokens_layers")["itiou"]["dinov2s_saliency"]["voc_animals"]["block 11"]
    said = f"{span(row['at 0.2'])}; a mask that covers everything {row['full mask']:.2f}"
    return said, verdict(abs(row["at 0.2"][0] - 0.395) < 0.05, row["at 0.2"][1] > row["full mask"])


def words() -> Found:
    about = read("tokens_language")["about"]["rates"]
    said, told = [], []
    for kind, rows in read("tokens_language")["comprehensiveness"].items():
        at = about.index(0.2)
        gap = rows["tokens, sum"]["value - random"][at]
        said.append(f"{kind}: {span(gap)} at 20 %")
        told.append(gap[1] > 0)
    return "above random words, " + "; ".join(said), verdict(*told)
