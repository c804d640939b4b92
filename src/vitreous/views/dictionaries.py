"""A comparison of dictionaries as sections of a report: the table, the plane of Figure 2, and units to look at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from vitreous.baselines.dictionaries import KINDS
from vitreous.dictionary_comparison.methods import CONTROLS, TITLES
from vitreous.errors import SettingsError
from vitreous.judges.grids import can_be_shown
from vitreous.views.colours import NEUTRAL
from vitreous.views.panels import (
    Dot,
    Fact,
    Group,
    Member,
    Overview,
    Panel,
    Pictures,
    Scatter,
    Section,
    Statement,
    Table,
    Text,
    Tile,
)

if TYPE_CHECKING:
    from vitreous.dictionary_comparison import DictionaryComparison
    from vitreous.images import ImageSet

OURS = "elude"
SIDE = 96  # pixels of a picture on the page
SERIES = {"backbone": 2, OURS: 1, "transcoder": 3} | dict.fromkeys(CONTROLS, NEUTRAL)
NAMES = {"ms": "MS-Score", "ms_other": "MS-Score in the judge's space", "rate": "pairs won"}


def comparison_table(found: DictionaryComparison) -> Table:
    """The Table 2 form: one row a method."""
    cells = found.cells()
    return Table(
        "Faithful and interpretable?",
        tuple(cells[0]),
        tuple(tuple(row.values()) for row in cells),
        "Active: units above zero a row. R² is of the layer's output; accuracy and difference are of the model's. "
        "MS-Score: mean cosine of the layer's own vectors where a unit is strongest; scored: units that have one. "
        "Pairs won: how often a method's nine samples are the more coherent ones. Effective rank and coherence are of "
        "what units write. Mean ± standard deviation where there are several seeds.",
    )


def comparison_scatter(found: DictionaryComparison, key: str = "ms") -> Scatter:
    """Figure 2: interpretability (`ms`, `ms_other` or `rate`) against R²; area is the number of units.

    A method with a negative R² is drawn at 0 and says so. Units that answer to anything are a line's worth of caption.
    """
    if key not in NAMES:
        raise SettingsError("nothing to draw by that name", given=key, accepted=tuple(NAMES))
    dots = []
    for method in found.methods:
        r2, score = found.mean(method, "r2"), found.mean(method, key)
        if r2 is None or score is None:
            continue
        beyond = f" (R² {r2:.2f})" if r2 < 0 else ""
        dots.append(
            Dot(
                TITLES[method] + beyond,
                max(r2, 0.0),
                score,
                size=found.mean(method, "expansion") or 1.0,
                series=SERIES.get(method, 0),
                control=method in (*CONTROLS, "backbone"),
                x_spread=0.0 if beyond else _spread(found, method, "r2"),
                y_spread=_spread(found, method, key),
            )
        )
    chance = found.mean("any_samples", key) if "any_samples" in found.methods else None
    said = "" if chance is None else f" Units that answer to samples at random score {chance:.3f}."
    caption = f"Up is easier to interpret, right is more faithful. The area of a dot is its number of units.{said}"
    return Scatter("Interpretability and faithfulness", tuple(dots), "R² of the layer's output", NAMES[key], caption)


def _spread(found: DictionaryComparison, method: str, key: str) -> float:
    there = [value for value in found.values(method, key) if value is not None]
    return float(np.std(there)) if len(there) > 1 else 0.0


def ranking_table(found: DictionaryComparison) -> Table | None:
    """Who won how many pairs, with bootstrap intervals; None if pairs were not compared."""
    ranking = found.ranking
    if ranking is None:
        return None
    rates = ranking["rates"]
    order = np.argsort([np.inf if rate is None else -rate for rate in rates], kind="stable")
    rows = tuple(
        (TITLES[ranking["methods"][m]], "-", "no pair decided", "")
        if rates[m] is None
        else (
            TITLES[ranking["methods"][m]],
            ranking["ranks"][m],
            f"{rates[m]:.3f}",
            "{:.3f} to {:.3f}".format(*ranking["intervals"][m]),
        )
        for m in order
    )
    return Table(
        f"Pairs won: {ranking['kind']}",
        ("method", "rank", "won", "95 % interval"),
        rows,
        "Of two units of two methods the one wins whose nine samples lie closer together in an embedding. No language "
        "model was asked.",
    )


def unit_pictures(found: DictionaryComparison, images: ImageSet, method: str) -> Pictures | None:
    """The nine pictures of three units of a method: those at a quarter, half and three quarters of its MS-Scores."""
    row = next(row for row in found.rows if row.method == method)
    shown = can_be_shown(row.tops)
    shown = shown[np.isfinite(row.scores[shown])]
    if not len(shown):
        return None
    order = shown[np.argsort(row.scores[shown], kind="stable")]
    units = [int(order[round(share * (len(order) - 1))]) for share in (0.25, 0.5, 0.75)]
    tiles = []
    for unit in units:
        for place, sample in enumerate(row.tops[unit].tolist()):
            caption = f"{row.scores[unit]:.2f}" if place == 0 else ""
            tiles.append(Tile(_small(images, sample), f"{TITLES[method]}, unit {unit}, sample {sample}", caption))
    return Pictures(TITLES[method], tuple(tiles), 9, series=SERIES.get(method, 0))


def _small(images: ImageSet, sample: int) -> np.ndarray:
    from PIL import ImageOps

    return np.asarray(ImageOps.fit(images[sample].image.convert("RGB"), (SIDE, SIDE)))


# -- the page


def comparison_sections(found: DictionaryComparison, images: ImageSet | None = None) -> tuple[Section, ...]:
    """Table, plane, units to look at (if the pictures are given), how to read it."""
    planes: list[Panel] = [comparison_scatter(found)]
    planes += [comparison_scatter(found, "ms_other")] if _says(found, "ms_other") else []
    groups = [Group("", (comparison_table(found),), " ".join(f"{note}." for note in found.notes))]
    groups.append(Group("", tuple(planes), columns=len(planes)))
    ranked = ranking_table(found)
    if ranked is not None:
        groups.append(Group("", (ranked,)))
    parts = [
        Section(
            "table",
            "What is lost, and what is gained",
            "Every method takes the same layer apart, made from the same activations; the model then runs with it in "
            "place, on samples that were held out.",
            tuple(groups),
            short="Table",
        )
    ]
    if images is not None:
        shown = [panel for method in found.methods if (panel := unit_pictures(found, images, method))]
        parts.append(
            Section(
                "units",
                "Units to look at",
                "Of each method three units: at a quarter, half and three quarters of its MS-Scores, which stand below "
                "the first picture. Look whether a row is about one thing.",
                (Group("", tuple(shown)),),
                short="Units",
            )
        )
    return (*parts, _reading(found))


def _reading(found: DictionaryComparison) -> Section:
    settings = found.settings
    words = Text(
        "How to read the numbers",
        (
            "A dictionary puts its reconstruction in the layer's place. ELUDe's sub-units are computed beside the "
            "layer's own product, so outputs are the same bit for bit; those of the random partition are added up, and "
            "differ by rounding.",
            f"MS-Score looks at the {settings['top']} samples where a unit is strongest, one place in each, weighted "
            "by activation. It takes the layer's own space for the truth; the judge, where there is one, is another "
            "model, whose mean over all samples is taken away.",
            "The random partition splits each unit as often as ELUDe does, but gives inputs to sub-units at random. "
            "What it scores, splitting alone brings.",
            "Effective rank and coherence are of what units write. Two sub-units of one unit write the same: their "
            "coherence is 1, and the rank at most that of the layer.",
            f"Dictionaries had about {settings['steps']:,} steps. Trained longer they reconstruct better.",
        ),
    )
    group = Group("", (words,))
    return Section(
        "reading", "How to read this page", "What was done, and what it does not say.", (group,), "Reading it"
    )


def _says(found: DictionaryComparison, key: str) -> bool:
    return any(found.mean(method, key) is not None for method in found.methods)


def comparison_title(found: DictionaryComparison) -> str:
    return f"{found.settings['model']['name']}, {found.settings['site']}: ways to take a layer apart"


def comparison_overview(found: DictionaryComparison) -> Overview:
    settings = found.settings
    made, measured = settings["made from"], settings["measured on"]
    by = "" if settings["judge"] is None else f" Judged in the space of {settings['judge']['name']}."
    return Overview(
        "One layer, taken apart by sparse dictionaries and by splitting its units: what each leaves of the model, and "
        "whether its units are about one thing.",
        f"Made from {made['samples']:,} samples of {made['name']}, measured on {measured['samples']:,} of "
        f"{measured['name']}.{by}",
        (Member(settings["model"]["name"], settings["site"], 0),),
        tuple(_numbers(found)),
        tuple(Statement(text, "table") for text in statements(found)),
        kind="dictionaries",
    )


def _numbers(found: DictionaryComparison) -> Iterator[Fact]:
    yield Fact("methods", str(len(found.methods)), f"{len({row.seed for row in found.rows})} seed(s)")
    for method in ("backbone", OURS, "random_partition"):
        score = found.mean(method, "ms") if method in found.methods else None
        if score is not None:
            yield Fact("MS-Score", f"{score:.3f}", TITLES[method])


def statements(found: DictionaryComparison) -> list[str]:
    """What the table says in words, also where it speaks against splitting."""
    out = [said for said in (_about_faith(found), _about_ours(found), _about_best(found)) if said]
    return out or ["See the table."]


def _about_faith(found: DictionaryComparison) -> str:
    scores = {m: r2 for m in found.methods if m in KINDS and (r2 := found.mean(m, "r2")) is not None}
    parts = []
    if OURS in found.methods:
        parts.append(f"With ELUDe in place the output differs by {found.mean(OURS, 'output_difference'):.2g}")
    if scores:
        best, worst = max(scores, key=scores.__getitem__), min(scores, key=scores.__getitem__)
        both = [f"{scores[m]:.3f} ({TITLES[m]})" for m in dict.fromkeys((worst, best))]
        parts.append(f"dictionaries keep an R² of {' to '.join(both)}")
    return f"{'; '.join(parts)}." if parts else ""


def _about_ours(found: DictionaryComparison) -> str:
    """Whether splitting did better than the units themselves and than splitting at random."""
    ours = found.mean(OURS, "ms") if OURS in found.methods else None
    rivals = [m for m in ("backbone", "random_partition") if m in found.methods and found.mean(m, "ms") is not None]
    if ours is None or not rivals:
        return ""
    said = []
    for key, name in NAMES.items():
        mine = found.mean(OURS, key)
        others = {m: v for m in rivals if (v := found.mean(m, key)) is not None}
        if mine is None or not others:
            continue
        below = [TITLES[m] for m, v in others.items() if mine <= v]
        verdict = f"not better than {_and(below)}" if below else "better than both" if len(others) > 1 else "better"
        numbers = ", ".join(f"{TITLES[m]} {v:.3f}" for m, v in others.items())
        said.append(f"{name} {mine:.3f} against {numbers}: {verdict}")
    return f"Sub-units of ELUDe: {'; '.join(said)}."


def _about_best(found: DictionaryComparison) -> str:
    said = []
    for key, name in NAMES.items():
        scores = {m: v for m in found.methods if m not in CONTROLS and (v := found.mean(m, key)) is not None}
        if scores:
            best = max(scores, key=scores.__getitem__)
            said.append(f"{name}: {TITLES[best]} ({scores[best]:.3f})")
    return f"Highest of all: {'; '.join(said)}." if said else ""


def _and(names: Sequence[str]) -> str:
    return " and ".join(f"the {name}" if name in ("backbone", "random partition") else name for name in names)
