"""What the four papers claim, what was measured here, and a verdict by one rule. Ours comes from results/*.json alone.

The papers' own numbers are typed in once, each with its table or figure. A claim is one comparison or several, each a
difference that is above 0 if the paper is right, with a 95 % interval where something was repeated. A comparison is sure
if its interval lies above 0, and wrong if the difference is not above 0. A claim holds if all its comparisons are sure,
does not hold if all are wrong, and holds partly otherwise. There is no other threshold. "Not testable here" says what is
missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from structure_ablation_tables import METRICS, by_kind, differences, final, pointed

RESULTS = Path(__file__).parent / "results"
HOLDS, PARTLY, NOT, UNTESTED = "holds", "holds partly", "does not hold", "not testable here"
ONCE = "one seed, no interval"
Found = tuple[str, str]  # what was measured, verdict
Measure = Callable[[Any], float]  # of one run


@dataclass(frozen=True)
class Claim:
    """`where` is the paper's table or figure, `theirs` its numbers, `found` ours with the verdict."""

    where: str
    says: str
    theirs: str
    found: Callable[[], Found]
    page: str = ""  # in results/, with the whole table


@dataclass(frozen=True)
class Gap:
    """A difference that the paper says is above 0, and the lower and upper end of its interval if there is one."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def sure(self) -> bool:
        return self.low is not None and self.low > 0

    @property
    def wrong(self) -> bool:
        return not self.value > 0

    def text(self, times: float = 1, digits: int = 2) -> str:
        if self.low is None or self.high is None:
            return f"{times * self.value:+.{digits}f}"
        return f"{times * self.value:+.{digits}f} [{times * self.low:+.{digits}f}, {times * self.high:+.{digits}f}]"


def verdict(*gaps: Gap) -> str:
    """All comparisons are sure, all are wrong, or something between."""
    return HOLDS if all(gap.sure for gap in gaps) else NOT if all(gap.wrong for gap in gaps) else PARTLY


def exact(value: float) -> Gap:
    """A number that is so by construction or was counted, and would be the same again."""
    return Gap(value, value, value)


def apart(three: Sequence[float], other: Sequence[float]) -> Gap:
    """Two values with an interval each (value, low, high): the widest interval of their difference."""
    return Gap(three[0] - other[0], three[1] - other[2], three[2] - other[1])


def repeated(values: Sequence[float]) -> Gap:
    """The mean of differences, one a seed, with Student's interval; of one seed there is none."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return Gap(mean)
    half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5)
    return Gap(mean, mean - half, mean + half)


def from_t(value: float, statistic: float) -> Gap:
    """A mean difference over thousands of pairs, with the interval that its t statistic stands for."""
    half = 1.96 * abs(value / statistic)
    return Gap(value, value - half, value + half)


@cache
def read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


@cache
def read_benchmark(name: str) -> Any:
    return json.loads((RESULTS.parents[1] / "benchmarks" / "results" / f"{name}.json").read_text())


def missing(what: str) -> Callable[[], Found]:
    return lambda: (what, UNTESTED)


def span(three: Sequence[float], times: float = 1, digits: int = 2) -> str:
    """`0.33 [0.29, 0.38]` of a value and its 95 % interval."""
    value, low, high = (f"{times * number:.{digits}f}" for number in three)
    return f"{value} [{low}, {high}]"


# -- structure


def spiral_sizes() -> Found:
    """Groups of one network depend on each other, so it is trainings that are repeated, not groups."""
    found = read("structure_spiral")
    both = [some["sizes"]["grid"] for some in (found, found["again"])]
    said = [", ".join(f"{name} {one['mean size']:.2f}" for name, one in sizes.items()) for sizes in both]
    gaps = [
        repeated([s[name]["mean size"] - s["vit"]["mean size"] for s in both if name in s]) for name in ("mean", "sum")
    ]
    return (
        f"spiral: {said[0]}; trained once more: {said[1]}; read as mean {gaps[0].text()} over both trainings",
        verdict(*gaps),
    )


def spirals() -> list[dict[str, Any]]:
    """Networks on the grid, by kind: the plain one and both readings, and a pair that was trained once more."""
    found = read("structure_spiral")
    return [{kind: run["grid"] for kind, run in some["runs"].items()} for some in (found, found["again"])]


def spiral_inefficient() -> Found:
    first, again = spirals()
    plain, *loss = (first[name]["inefficient"] for name in ("vit", "mean", "sum"))
    once_more = again["vit"]["inefficient"], again["mean"]["inefficient"]
    return (
        f"plain {plain}; loss read as mean {loss[0]}, as sum {loss[1]}; trained once more: plain {once_more[0]}, mean "
        f"{once_more[1]}",
        verdict(repeated([plain - loss[0], once_more[0] - once_more[1]]), Gap(plain - loss[1])),
    )


def spiral_differences() -> Found:
    said, flatter, change = [], dict[str, list[float]](), []
    for nets in spirals():
        ends = {name: (net["differences"][0], net["differences"][-1]) for name, net in nets.items()}
        said.append("; ".join(f"{name} {a:.1f} to {b:.1f}" for name, (a, b) in ends.items()))
        moved = {name: b - a for name, (a, b) in ends.items()}
        change.append(-moved["vit"])
        for name in moved.keys() - {"vit"}:
            flatter.setdefault(name, []).append(abs(moved["vit"]) - abs(moved[name]))
    gaps = [repeated(values) for values in flatter.values()]
    return "; once more: ".join(said), verdict(*gaps, repeated(change))


def small_gaps(better: str, worse: str, measure: Measure, part: str = "log") -> list[float]:
    """Differences between small networks of two kinds, one a seed of which both have that part of the results."""
    found = {name: run for name, run in read("structure_ablation")["runs"].items() if part in run}
    runs = by_kind(found)
    return differences(runs.get(better, {}), runs.get(worse, {}), measure).tolist()


def cifar_accuracy() -> Found:
    found = read("structure_cifar")
    plain, ours = (found["curves"]["rows"][name]["last five"] for name in ("vit", "ours"))
    one = found["accuracy"]
    more, less, count = one["right alone"]["ours"], one["right alone"]["vit"], one["pictures"]
    gap = (more - less) / count
    half = 1.96 * (more + less - (more - less) ** 2 / count) ** 0.5 / count
    own = Gap(100 * gap, 100 * (gap - half), 100 * (gap + half))
    said = f"plain {plain:.2f} %, loss {ours:.2f} %; of {count} pictures {own.text()} % (one seed each)"
    return said, verdict(own)


def cifar_pointing() -> Found:
    maps = read("structure_cifar")["cifar"]["Grad-CAM++"]
    said, gaps = [], []
    for metric in ("Point Game", "Energy PG"):
        one = maps[metric]
        gaps.append(from_t(one["mean"][1] - one["mean"][0], one["t"]))
        said.append(f"{metric} {one['mean'][0]:.3f} and {one['mean'][1]:.3f}, {gaps[-1].text(digits=3)}")
    return f"plain and loss: {'; '.join(said)} (over 4,000 pictures, one seed each)", verdict(*gaps)


def small_networks(measures: dict[str, Measure], digits: int = 2, part: str = "log") -> Callable[[], Found]:
    """The same question to the small networks of structure_ablation.py: both readings of the loss, several seeds."""

    def found() -> Found:
        said, gaps = [], []
        for reading in ("mean", "sum"):
            for what, measure in measures.items():
                if not (values := small_gaps(reading, "vit", measure, part)):
                    return "maps of these networks were not measured", UNTESTED
                gaps.append(repeated(values))
                said.append(f"read as {reading}, {what} {gaps[-1].text(digits=digits)}")
        return f"loss less plain: {'; '.join(said)}; {len(values)} seeds", verdict(*gaps)

    return found


SMALL_GROUPS = {"units a group": lambda run: run["inside"]["mean group"]}
SMALL_ACCURACY = {"accuracy in %": final}
SMALL_POINTING = {metric: partial(pointed, metric=metric) for metric in METRICS}


def ablation(better: str, worse: str, what: str) -> Callable[[], Found]:
    def found() -> Found:
        if not (values := small_gaps(better, worse, final)):
            return "these networks were not trained", UNTESTED
        gap = repeated(values)
        seeds = ONCE if len(values) == 1 else f"{len(values)} seeds"
        return f"{what}: {gap.text()} %; 10 epochs, {seeds}", verdict(gap)

    return found


def backbones() -> Found:
    models = read("structure_backbones")["models"]
    said = {n: m["trained"]["first three"]["thresholds"]["1"]["mean size"] for n, m in models.items()}
    text = [said[n] for n in ("MiniLM", "stories15M") if n in said]
    seen = [size for n, size in said.items() if n not in ("MiniLM", "stories15M")]
    shown = ", ".join(f"{name} {size:.3f}" for name, size in said.items())
    return f"{shown}; one model of each, no interval", verdict(*(Gap(size - max(seen)) for size in text))


def residual_mlp() -> Found:
    rows = read("structure_residual_mlp")["seeds"]
    after, before = (
        [row[when]["units that come back"] for row in rows] for when in ("after training", "before training")
    )
    many, more = repeated(after), repeated([a - b for a, b in zip(after, before, strict=True)])
    return (
        f"units that come back after training {many.text(digits=1).removeprefix('+')}, less those before it {more.text(digits=1)}; "
        f"{len(rows)} seeds",
        verdict(many, more),
    )


def step_cost() -> Found:
    found = read_benchmark("structure_loss")
    wide, spiral = found["cifar10-32"]["added percent"], found["spiral"]["added percent"]["with"]
    return (
        f"{found['device']}: {wide['median']:.1f} % of a step of cifar10-32 (middle half of {wide['turns']} pairs of turns "
        f"{wide['quarter']:.1f} to {wide['three quarters']:.1f}), {spiral:.1f} % of the spiral's (`benchmarks/structure_loss.py`); the "
        "paper has no number to compare with",
        UNTESTED,
    )


# -- disentangle


def rows_of(table: str) -> dict[str, list[dict[str, Any]]]:
    """Rows of each method, one a draw of tokens; the backbone has one."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in read("disentangle_tables")[table]["rows"]:
        found.setdefault(row["method"], []).append(row)
    return found


def mean_of(rows: list[dict[str, Any]], key: str) -> float:
    return float(np.mean([row[key] for row in rows]))


def above(rows: list[dict[str, Any]], others: list[dict[str, Any]], key: str) -> Gap:
    """The difference draw by draw."""
    same = others * len(rows) if len(others) == 1 else others
    return repeated([row[key] - other[key] for row, other in zip(rows, same, strict=True)])


SAES = ("vanilla", "topk", "batch_topk", "jumprelu", "matryoshka", "archetypal", "matching_pursuit", "transcoder")


def faithful() -> Found:
    said, gaps, same = [], [], True
    for table in ("table2-tin", "table2-dino"):
        rows = rows_of(table)
        mine, best = mean_of(rows["elude"], "r2"), max(mean_of(rows[name], "r2") for name in SAES if name in rows)
        model = read("disentangle_tables")[table]["model"]
        said.append(f"{model}: R² {mine:.4f}, best dictionary {best:.4f}")
        changed = any(row["output_difference"] != 0 for row in rows["elude"])
        same = same and not changed
        gaps.append(exact(-1) if changed else exact(mine - best))
    return f"{'; '.join(said)}; outputs {'' if same else 'not '}the same bit for bit", verdict(*gaps)


def scores_above(key: str) -> Callable[[], Found]:
    def found() -> Found:
        said, gaps = [], []
        for table in ("table2-tin", "table2-dino"):
            rows = rows_of(table)
            best = max((name for name in SAES if name in rows), key=lambda name: mean_of(rows[name], key))
            shown = {"units": "backbone", "random parts": "random_partition", best: best}
            model = read("disentangle_tables")[table]["model"]
            scores = ", ".join(f"{word} {mean_of(rows[name], key):.3f}" for word, name in shown.items())
            draws = len(rows["elude"])
            how = ONCE if draws == 1 else f"{draws} draws of tokens"
            said.append(f"{model}: sub-units {mean_of(rows['elude'], key):.3f}, {scores} ({how})")
            gaps += [above(rows["elude"], rows[name], key) for name in shown.values()]
        return "; ".join(said), verdict(*gaps)

    return found


def rank() -> Found:
    said, gaps = [], []
    for table in ("table2-tin", "table2-dino"):
        ranking = read("disentangle_tables")[table]["ranking"]
        spans = {
            name: (rate, *ends)
            for name, rate, ends in zip(*(ranking[k] for k in ("methods", "rates", "intervals")), strict=True)
        }
        mine = spans.pop("elude")
        next_best = max(spans, key=lambda name: spans[name][0])
        said.append(f"sub-units win {span(mine)}, the best of the others, {next_best}, {span(spans[next_best])}")
        gaps.append(apart(mine, spans[next_best]))
    return "coherence judge, no language model: " + "; ".join(said), verdict(*gaps)


def models_of(table: str) -> list[dict[str, Any]]:
    """The table of each model that has one."""
    return [part for name, part in read("disentangle_tables").items() if name.startswith(f"{table}-")]


def stable() -> Found:
    said, gaps = [], []
    for found in models_of("table4"):
        rows = found["rows"]
        mine = {what: rows[f"ELUDe, other {what}: weights"]["stability"] for what in ("seeds", "tokens")}
        best = max((rows[name]["stability"], name) for name in SAES)
        over = [three_pairs(one, best[0]) for one in mine.values()]
        seeds, tokens = (
            f"{one[0]:.2f} over {what} ({gap.text()})" for (what, one), gap in zip(mine.items(), over, strict=True)
        )
        parts = f"sub-units {seeds}, {tokens.replace('over tokens', 'over other tokens')}"
        said.append(f"{found['model']}: {parts}; best dictionary ({best[1]}) {best[0][0]:.2f}")
        gaps += over
    return "; ".join([*said, "intervals over pairs of three runs"]), verdict(*gaps)


def three_pairs(one: Sequence[float], other: Sequence[float]) -> Gap:
    """Mean and deviation over the three pairs of three runs each: Student's interval of the difference."""
    error = float(np.hypot(one[1], other[1])) / 2**0.5  # deviations divide by 3, errors of a mean by 3 less 1
    half, gap = float(stats.t.ppf(0.975, 2)) * error, one[0] - other[0]
    return Gap(gap, gap - half, gap + half)


def as_fast() -> Found:
    measured = read_benchmark("disentangle_inference_gpu")["rows"]
    rows = {row["variant"]: row | {"peak_mib": row["peak_mib"] - row["kept_mib"]} for row in measured}
    saes = [rows[name] for name in SAES]
    fastest, least = min(row["ms"] for row in saes), min(row["peak_mib"] for row in saes)
    plain, unseen, staged = rows["backbone"], rows["ours, nobody looks"], rows["ours, two stages"]
    said = (
        f"ms a batch and MiB at the peak on an H200: backbone {plain['ms']:.0f}, {plain['peak_mib']:,.0f}; "
        f"ours with nobody looking {unseen['ms']:.0f}, {unseen['peak_mib']:,.0f}; "
        f"in the paper's two stages {staged['ms']:.0f}, {staged['peak_mib']:,.0f}; "
        f"fastest SAE {fastest:.0f}, smallest {least:,.0f}; one run of `benchmarks/disentangle_inference.py`"
    )
    gaps = [Gap(fastest - row["ms"]) for row in (unseen, staged)]
    return said, verdict(*gaps, *(Gap(least - row["peak_mib"]) for row in (unseen, staged)))


def table7() -> Found:
    said, gaps = [], []
    for one in models_of("table7"):
        rows = one["rows"]
        leaf, eom, whole = (rows[name]["ms"][0] for name in ("ELUDe (leaf)", "EOM", "units, not split"))
        worse, low, high = rows["EOM"]["ms less base"]
        three = [Gap(-worse, -high, -low), *(Gap(*rows[name]["ms less units"]) for name in ("EOM", "ELUDe (leaf)"))]
        said.append(
            f"{one['model']}: leaf {leaf:.3f}, EOM {eom:.3f} (leaf less EOM {three[0].text(digits=3)}), units {whole:.3f}"
        )
        gaps += three
    said.append(f"{one['settings']['units']} units of a model, {len(one['settings']['seeds'])} draws of tokens")
    return "; ".join(said), verdict(*gaps)


def steering() -> Found:
    found = read("disentangle_steering")["class"]
    down = found["suppress"]["sub-units of the concept"]["hit where 10% of others changed, less random"]
    up = found["amplify"]["sub-units of the concept"]["drawn where 10% of others changed, less random"]
    less, more = Gap(*(-value for value in (down[0], down[2], down[1]))), Gap(*up)
    said = "where a tenth of other pictures change, against as many random sub-units: hits of the concept fall by "
    return (
        said
        + f"{less.text(digits=3)}, pictures drawn to it rise by {more.text(digits=4)} (`studies/disentangle_steering.py`)",
        verdict(less, more),
    )


def language_units() -> Found:
    rows = {row["method"]: row for row in read("disentangle_language")["block 3"]["rows"]}
    mine, whole = rows["elude"], rows["backbone"]
    said = f"MS-Score {mine['ms']:.3f} against {whole['ms']:.3f}, loss {mine['loss']:.3f} against {whole['loss']:.3f}"
    kept = exact(1) if mine["output_difference"] == 0 else exact(-1)
    return f"{said}; {ONCE}", verdict(Gap(mine["ms"] - whole["ms"]), kept)


# -- align


V4 = ("210325", "201025")  # sessions of 50 and 89 neurons
SEEDS = "three seeds, each with other pictures held out"


def brain() -> Found:
    said, gaps = [], []
    for session in V4:
        one = read("align_brain")[session]
        ours = one["constraint"][str(one["controls with"])]["R2 of seeds"]
        best = max((f"{name} alone" for name in ("text", "contrast", "mae", "dino")), key=one.__getitem__)
        mine = []
        for control in ("shuffled weights", best):  # the same pictures where every seed of the control is kept
            theirs = one.get("controls of seeds", {}).get(control)
            if theirs is None:  # only their mean was kept
                mine.append(Gap(float(np.mean(ours)) - one[control]))
            else:
                mine.append(repeated([r2 - other for r2, other in zip(ours, theirs, strict=True)]))
        top = f", ceiling {one['ceiling']:.2f}" if "ceiling" in one else ""
        top += "" if "controls of seeds" in one else " (of its controls only the mean over seeds was kept: no interval)"
        above = f"above shuffled weights by {mine[0].text(digits=3)}, above {best} by {mine[1].text(digits=3)}"
        said.append(f"session {session}: R² {np.mean(ours):.3f}{top}; {above}")
        gaps += mine
    return f"{'; '.join(said)} ({SEEDS})", verdict(*gaps)


def constraint() -> Found:
    said, every = [], []
    for session in V4:
        found = {key: one["R2 of seeds"] for key, one in read("align_brain")[session]["constraint"].items()}
        gaps = {key: repeated([a - b for a, b in zip(found[key], found["0.0"], strict=True)]) for key in ("1.0", "0.1")}
        each = "; ".join(f"λ {key}: {np.mean(found[key]):.3f}, {gap.text(digits=3)}" for key, gap in gaps.items())
        said.append(f"session {session}: without {np.mean(found['0.0']):.3f}; {each}")
        every += gaps.values()
    return f"{'; '.join(said)} ({SEEDS})", verdict(*every)


def between(found: Any, less: float = 0) -> Gap:
    """A difference kept with its interval over pictures, or as one number where the study was run with one seed."""
    if not isinstance(found, dict):
        return Gap(found - less)
    return Gap(found["value"] - less, found["low"] - less, found["high"] - less)


PICTURES = "three seeds, interval over pictures"


def kept_segments() -> Found:
    said, gaps = [], []
    names = ("before", "after, λ_eigen 0", "after, λ_eigen 1")
    for model, one in read("align_segments")["scores"]["pets, figure and ground"].items():
        if seeded := "differences" in one:
            values = [one[name]["mean"]["value"] for name in names]
            cost, back = (between(one["differences"][f"{a} - {b}"]) for a, b in (names[:2], names[:0:-1]))
        else:
            values = [sum(one[name]) / len(one[name]) for name in names]
            cost, back = Gap(values[0] - values[1]), Gap(values[2] - values[1])
        three = ", ".join(f"{value:.2f}" for value in values)
        said.append(three if not seeded else f"{three}, lost {cost.text(digits=3)}, given back {back.text(digits=3)}")
        said[-1] = f"{model} {said[-1]}"
        gaps += [cost, back]
    how = PICTURES if seeded else ONCE
    return f"mean IoU before, after, after with the constraint: {'; '.join(said)}; {how}", verdict(*gaps)


def alike() -> Found:
    said, gaps = [], []
    for session in V4:
        one = read("align_brain")[session]
        before, after = one["cosine before"], one["constraint"]["0.0"]["cosine after"]
        if seeded := "above before" in after:
            mine = [between(after[f"above {what}"]) for what in ("before", "another patch")]
            before, after = ({k: v["value"] for k, v in part.items()} for part in (before, after))
        else:
            mine = [Gap(after["same patch"] - less) for less in (before["same patch"], after["another patch"])]
        said.append(
            f"session {session}: {before['same patch']:.3f} before, {after['same patch']:.3f} after, "
            f"{mine[0].text(digits=3)}; above another patch {mine[1].text(digits=3)} ({PICTURES if seeded else ONCE})"
        )
        gaps += mine
    return f"cosine of one patch in two networks, {'; '.join(said)}", verdict(*gaps)


def one_colour() -> Found:
    ways = read("align_mixing")["210325"]
    plain, agreed, strangers = (
        ways[way]["another network"]
        for way in (
            "as in the table",
            *(f"patches have to agree, weight 0.1{what}" for what in ("", ", pictures exchanged")),
        )
    )
    shares = [f"{one['value']:.0%} [{one['low']:.0%}, {one['high']:.0%}]" for one in (plain, agreed, strangers)]
    said = f"nearest neighbours of another network {shares[0]} (75 % if networks did not matter)"
    ours = f"with a term of ours, which the paper does not have, {shares[1]}; of networks that saw other pictures {shares[2]}"
    return f"{said}; {ours}; {PICTURES}", verdict(between(plain, 0.75))


def paths() -> Found:
    gaps, said = [], []
    for model, one in read("align_pictures")["transitions"].items():
        step = one["steps"][one["widest"]]
        if seeded := "widest above exchanged" in one:
            mine = [between(one[f"widest above {what}"]) for what in ("exchanged", "other steps")]
            where = f"{model}, layer {step['from']} to {step['to']}"
            said.append(f"{where}: {mine[0].text()} above exchanged masks, {mine[1].text()} above its other steps")
        else:
            mine = [Gap(step["true"] - step["exchanged"])]
            said.append(f"{model} {step['true']:.2f} (exchanged masks {step['exchanged']:.2f})")
        gaps += mine
    how = f"the step was chosen in half of the pictures and measured in the others; {PICTURES}" if seeded else ONCE
    return f"total variation of figure and ground at the widest step: {'; '.join(said)}; {how}", verdict(*gaps)


# -- tokens


def perturbed() -> Found:
    said, gaps = [], []
    for model, sets in read("tokens_perturbation")["table"].items():
        for name, rows in sets.items():
            gap = Gap(*(rows["tokens, sum"]["mask"]["positive - negative"][key] for key in ("value", "low", "high")))
            said.append(f"{model}, {name}: {gap.text(digits=1)}")
            gaps.append(gap)
    return "positive less negative, masks: " + "; ".join(said), verdict(*gaps)


def segment_level() -> Found:
    """The paper does not say whether segments are paired with classes per picture or once: here are both."""
    scores = read("tokens_segments")["scores"]["dinov2s_saliency"]["voc_animals"]
    told, gaps = [], []
    for matching, said in (("over the data set", "paired once"), ("per image, k classes", "per picture")):
        mine, kmeans, shuffled = (
            scores[name][matching]["mIoU"]
            for name in ("tokens, sum", "k-means of features", "tokens, sum, shuffled weights")
        )
        rivals = f"k-means of features {span(kmeans, 100, 1)}; shuffled weights {span(shuffled, 100, 1)}"
        told.append(f"{said} {span(mine, 100, 1)}; {rivals}")
        gaps += [apart(mine, shuffled), apart(mine, kmeans)]
    return "; ".join(told), verdict(*gaps)


def learned_w() -> Found:
    """Over the data set, and per picture where both were kept for the same pictures; what learning adds to length."""
    scores = read("tokens_segments")["scores"]["dinov2s_saliency"]
    gaps, said, pairs, learning = [], [], [], []
    for name in ("voc_animals", "pets", "camvid"):
        a, b = (scores[name][row]["over the data set"]["mIoU"] for row in ("tokens, learned", "tokens, sum"))
        said.append(f"{name} {span(a, 100, 1)} against {span(b, 100, 1)}")
        gaps.append(apart(a, b))
        each = scores[name]["tokens, learned"]["per image, k classes"]
        if "mIoU more than the sum" in each:
            gaps.append(Gap(*each["mIoU more than the sum"]))
            pairs.append(f"{name} {gaps[-1].text(100, 1)}")
        if "mIoU more than the unit sum" in each:
            learning.append(f"{name} {Gap(*each['mIoU more than the unit sum']).text(100, 1)}")
    told = f"; per image, in the same pictures: {'; '.join(pairs)}"
    told += f"; more than the sum at length 1, which learns nothing: {'; '.join(learning)}"
    return "learned w against the sum, over the data set: " + "; ".join(said) + told, verdict(*gaps)


def deeper() -> Found:
    """Blocks are compared in the same pictures, each with the one before that was looked at."""
    found = read("tokens_layers")
    rows = found["itiou"]["dinov2s_saliency"]["voc_animals"]
    steps = {
        block: Gap(*rows[f"objects, block {block}"]["more than the block before, at 0.2"])
        for block in found["about"]["blocks"][1:]
    }
    first, last = (span(rows[f"objects, block {block}"]["at 0.2"]) for block in (0, max(steps)))
    said = "; ".join(f"block {block} {gap.text()}" for block, gap in steps.items())
    return (
        f"block 0 {first}, block {max(steps)} {last}; in the same pictures, each more than the one before: {said}",
        verdict(*steps.values()),
    )


def itiou_level() -> Found:
    row = read("tokens_layers")["itiou"]["dinov2s_saliency"]["voc_animals"]["block 11"]
    value, low, high = row["at 0.2"]
    said = f"{span(row['at 0.2'])}, which {'has' if low <= 0.395 <= high else 'has not'} the paper's number within; "
    above = Gap(value - row["full mask"], low - row["full mask"], high - row["full mask"])
    return said + f"a mask that covers everything {row['full mask']:.2f}", verdict(
        exact(1) if low <= 0.395 <= high else exact(-1), above
    )


def words() -> Found:
    at = read("tokens_language")["about"]["rates"].index(0.2)
    kinds = read("tokens_language")["comprehensiveness"].items()
    gaps = {kind: Gap(*rows["tokens, sum"]["value - random"][at]) for kind, rows in kinds}
    said = "; ".join(f"{kind}: {gap.text()} at 20 %" for kind, gap in gaps.items())
    return "above random words, " + said, verdict(*gaps.values())
