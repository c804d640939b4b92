"""Table 5 of the tokens paper on real models, with the controls that it does not have.

    python studies/tokens_perturbation.py --data ../shared/data --work FOLDER [--quick]

For each model and set of pictures, ten tokens of each picture are drawn; patches that a map calls relevant (positive)
or irrelevant (negative) are masked or get noise, never the token's own, and the distance that the token moves is
measured (eq. 14). Beside the maps of the lens (sum, energy) stand attention rollout, raw attention, the cosine of patch
features, nearness to the token (a map that knows nothing of the picture), and random numbers. What is measured is kept
in FOLDER, so the study can be ended and go on, and models can be measured one after the other: pages are written after
each. Writes tokens_perturbation.json, .md and, of dinov2s_saliency, .png under --out.

Pictures are seen whole at 112 pixels (dinov2s_saliency, 8 x 8 patches) and 64 pixels (tin-vit-*, 8 x 8); a quarter of
the patches is spoiled. Masks are zeros in the normalised input (the mean colour), noise has a standard deviation of 0.3
there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vitreous as vt
from tokens_inputs import COLLECTIONS, MODELS, asked, backbone, collection, in_order, kept, parser_of, put_tables
from vitreous.evidence.bootstrap import Estimate, mean_interval
from vitreous.evidence.perturbation import (
    KINDS,
    PerturbationTest,
    deletion,
    draw_tokens,
    insertion,
    perturbation_test,
)
from vitreous.provenance import json_bytes, versions
from vitreous.render import to_png
from vitreous.views.panels import Curve, Line

SIZE, AREA, TOKENS, PICTURES, STEPS = 112, 0.25, 10, 12, 4
FIRST, CONTROL, SUM = "voc_animals", "random numbers", "tokens, sum"
SIDES = ("negative", "positive")  # random patches are those that random numbers call relevant
Maps = Callable[[vt.Subject, torch.Tensor, np.ndarray], np.ndarray]


# -- maps of drawn tokens: (sample, token, row, column)


def lens(target: str) -> Maps:
    """By vt.token_maps; "unit sum" and "norm" are vectors of length 1, along the sum and along the token itself."""

    def maps(subject: vt.Subject, x: torch.Tensor, tokens: np.ndarray) -> np.ndarray:
        z = represent(subject)(x.numpy())
        w = {"unit sum": np.ones_like(z), "norm": z}.get(target)
        found = []
        for k in range(len(x)):
            aim = target if w is None else w[k] / np.linalg.norm(w[k], axis=-1, keepdims=True)
            one = vt.token_maps(subject, x[k : k + 1], tokens=tokens[k].tolist(), target=aim, progress=False)
            found.append(one.maps)
        return np.concatenate(found)

    return maps


def of_all(make: Callable[..., vt.TokenMaps]) -> Maps:
    def maps(subject: vt.Subject, x: torch.Tensor, tokens: np.ndarray) -> np.ndarray:
        return np.take_along_axis(make(subject, x, progress=False).maps, tokens[:, :, None, None], 1)

    return maps


def similarity(subject: vt.Subject, x: torch.Tensor, tokens: np.ndarray) -> np.ndarray:
    z = represent(subject)(x.numpy())
    z = z / np.linalg.norm(z, axis=-1, keepdims=True)
    first = len(subject.prefix)
    drawn = np.take_along_axis(z, tokens[:, :, None], 1)
    return (drawn @ z[:, first:].transpose(0, 2, 1)).reshape(*tokens.shape, *grid_of(subject, x))


def nearness(subject: vt.Subject, x: torch.Tensor, tokens: np.ndarray) -> np.ndarray:
    rows, columns = grid_of(subject, x)
    places = np.stack(np.divmod(np.arange(rows * columns), columns), 1)
    own = np.stack(np.divmod(tokens - len(subject.prefix), columns), -1)
    return -np.linalg.norm(own[:, :, None] - places, axis=-1).reshape(*tokens.shape, rows, columns)


def chance(subject: vt.Subject, x: torch.Tensor, tokens: np.ndarray) -> np.ndarray:
    return np.random.default_rng(0).random((*tokens.shape, *grid_of(subject, x)))


#: Models with all methods on the first set; elsewhere the question of Table 5, and whether place alone answers it.
FULL, SHORT = ("tin-vit-text", "dinov2s_saliency"), ("tokens, sum", "tokens, energy", "nearness", CONTROL)
METHODS: dict[str, Maps] = {
    "tokens, sum": lens("sum"),
    "tokens, energy": lens("energy"),
    "tokens, unit sum": lens("unit sum"),
    "tokens, norm": lens("norm"),
    "attention rollout": of_all(vt.attention_rollout),
    "raw attention": of_all(vt.raw_attention),
    "cosine of features": similarity,
    "nearness": nearness,
    CONTROL: chance,
}


def methods_of(model: str, name: str) -> tuple[str, ...]:
    return tuple(METHODS) if model in FULL and name == FIRST else SHORT


def grid_of(subject: vt.Subject, x: torch.Tensor) -> tuple[int, int]:
    grid = subject.grid(tuple(x.shape[-2:]))
    assert grid is not None
    return tuple(grid)


def represent(subject: vt.Subject) -> Callable[[np.ndarray], np.ndarray]:
    """Tokens after the last block."""
    site = f"blocks.{subject.depth - 1}.resid.out"

    @torch.inference_mode()
    def tokens(x: np.ndarray) -> np.ndarray:
        with vt.capture(subject, site, stop=True) as rec:
            subject(torch.from_numpy(x))
        return rec[site].numpy()

    return tokens


# -- one model on one set


def inputs(subject: vt.Subject, data: Path, name: str, count: int) -> torch.Tensor:
    """(sample, colour, row, column) as the model takes them."""
    assert subject.preprocess is not None
    steps = subject.preprocess.at(SIZE) if subject.name.startswith("dinov2s") else subject.preprocess
    return torch.from_numpy(np.stack([steps(p.image) for p in collection(data, name, count).pictures]))


def measured(subject: vt.Subject, data: Path, name: str, method: str, count: int, work: Path) -> PerturbationTest:
    x = inputs(subject, data, name, count)
    prefix, grid = len(subject.prefix), grid_of(subject, x)
    tokens = draw_tokens(len(x), grid[0] * grid[1], TOKENS, prefix=prefix, seed=0)

    def run() -> dict[str, np.ndarray]:
        maps = METHODS[method](subject, x, tokens)
        found = perturbation_test(
            represent(subject), x.numpy(), maps, tokens, prefix=prefix, area=AREA, sides=SIDES, batch_size=20,
            progress=False,
        )  # fmt: skip
        return {"distances": found.distances, "cosines": found.cosines, "patches": np.array(found.patches)}

    parts = kept(work / subject.name / f"{name}-{method}-{count}.npz", run)
    of = grid[0] * grid[1]
    return PerturbationTest(
        parts["distances"], parts["cosines"], KINDS, SIDES, tokens, int(parts["patches"]), of, {"area": AREA}
    )


def curves(subject: vt.Subject, data: Path, name: str, method: str, count: int, work: Path) -> dict[str, np.ndarray]:
    """Cosine of a token to itself while patches are taken away or put back: (token, step) each."""
    x = inputs(subject, data, name, count)
    prefix, grid = len(subject.prefix), grid_of(subject, x)
    tokens = draw_tokens(len(x), grid[0] * grid[1], TOKENS, prefix=prefix, seed=0)
    which = np.repeat(np.arange(len(x)), TOKENS)
    ask = represent(subject)

    def run() -> dict[str, np.ndarray]:
        maps = METHODS[method](subject, x, tokens).reshape(-1, *grid)
        whole = np.take_along_axis(ask(x.numpy()), tokens[:, :, None], 1).reshape(len(maps), -1)

        def score(pictures: np.ndarray, at: np.ndarray) -> np.ndarray:
            z = ask(pictures)[np.arange(len(at)), tokens.ravel()[at]]
            return (z * whole[at]).sum(1) / np.linalg.norm(z, axis=1) / np.linalg.norm(whole[at], axis=1)

        given = {"which": which, "keep": tokens.ravel() - prefix, "steps": STEPS, "batch_size": 40, "progress": False}
        gone = deletion(score, x.numpy(), maps, **given)
        back = insertion(score, x.numpy(), maps, **given)
        return {"shares": gone.shares, "deletion": gone.values, "insertion": back.values}

    return kept(work / subject.name / f"{name}-{method}-{count}-curves.npz", run)


# -- tables


def number(estimate: Estimate) -> dict[str, float]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def row(found: PerturbationTest, control: PerturbationTest, reference: PerturbationTest) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for kind in KINDS:
        out[kind] = {side: number(found.mean(kind, side)) for side in SIDES}
        out[kind]["positive - negative"] = number(found.gap(kind))
        at = KINDS.index(kind), SIDES.index("positive")
        over_random = found.distances[at].mean(1) - control.distances[at].mean(1)
        out[kind]["positive - random"] = number(mean_interval(over_random))
        out[kind]["gap more than the sum's"] = number(mean_interval(gaps(found, kind) - gaps(reference, kind)))
        out[kind]["pictures where positive is further"] = float((gaps(found, kind) > 0).mean())
    return out


def gaps(found: PerturbationTest, kind: str) -> np.ndarray:
    """(picture,): how much further positive patches move its tokens than negative ones."""
    negative, positive = found.distances[KINDS.index(kind)].mean(2)
    return positive - negative


def table_5(result: dict[str, Any], pictures: dict[str, int], sets: list[str]) -> list[str]:
    head = " | ".join(f"{name} neg. ↓ | pos. ↑" for name in sets)
    lines = [f"| model | pictures a set | perturbation | {head} |", "|---|---|---|" + "---|" * 2 * len(sets)]
    for model, by_set in result.items():
        for kind in KINDS:
            cells = [
                "{value:.2f} [{low:.2f}, {high:.2f}]".format(**by_set[s][SUM][kind][side]) if s in by_set else ""
                for s in sets
                for side in ("negative", "positive")
            ]
            lines.append(f"| {model} | {pictures[model]} | {kind} | {' | '.join(cells)} |")
    return lines


def table_gaps(result: dict[str, Any], sets: list[str], kind: str) -> list[str]:
    """Ratio positive / negative of the means: what a method's choice of patches is worth, free of the model's scale."""
    lines = [f"| model | maps | {' | '.join(sets)} |", "|---|---|" + "---|" * len(sets)]
    for model, by_set in result.items():
        for method in methods_of(model, FIRST):
            cells = []
            for name in sets:
                if method not in by_set.get(name, {}):
                    cells.append("")
                    continue
                cell = by_set[name][method][kind]
                gap = cell["positive - negative"]
                sign = "" if gap["low"] > 0 else " (gap may be 0)" if gap["high"] > 0 else " (gap below 0)"
                cells.append(f"{cell['positive']['value'] / cell['negative']['value']:.2f}{sign}")
            lines.append(f"| {model} | {method} | {' | '.join(cells)} |")
    return lines


def table_pairs(result: dict[str, Any], sets: list[str], kind: str) -> list[str]:
    """How much larger a method's gap is than the sum's in the same pictures, in the distance of eq. 14."""
    lines = [f"| model | maps | {' | '.join(sets)} |", "|---|---|" + "---|" * len(sets)]
    for model, by_set in result.items():
        for method in methods_of(model, FIRST):
            found = [by_set.get(name, {}).get(method, {}).get(kind) for name in sets]
            cells = [signed(cell["gap more than the sum's"], 1) if cell else "" for cell in found]
            lines += [f"| {model} | {method} | {' | '.join(cells)} |"] if method != SUM else []
    return lines


def signed(gap: dict[str, float], digits: int) -> str:
    """Bold is surely not 0."""
    said = "{value:+.{d}f} [{low:+.{d}f}, {high:+.{d}f}]".format(**gap, d=digits)
    return f"**{said}**" if gap["low"] > 0 or gap["high"] < 0 else said


def main() -> None:
    parser = parser_of(__doc__, models=MODELS, sets=tuple(COLLECTIONS), pictures=PICTURES)
    parser.add_argument("--no-curves", action="store_true", help="leave out insertion and deletion")
    given = asked(parser)
    sets, models, count = given.sets, given.models, given.pictures
    for model in models:
        subject = backbone(given.data, model)
        result: dict[str, Any] = {}
        for name in sets:
            tests = {m: measured(subject, given.data, name, m, count, given.work) for m in methods_of(model, name)}
            result[name] = {m: row(test, tests[CONTROL], tests[SUM]) for m, test in tests.items()}
            print(model, name, "done", flush=True)
        drawn: dict[str, Any] = {}
        if model in FULL and not given.no_curves:
            drawn = {m: curves(subject, given.data, FIRST, m, max(2, count // 2), given.work) for m in METHODS}
        write(given.out, model, result, drawn, sets, count)
        print(model, "done", flush=True)


def write(out: Path, model: str, result: dict[str, Any], drawn: dict[str, Any], sets: list[str], count: int) -> None:
    """Puts a model beside those that were measured earlier."""
    path = out / "tokens_perturbation.json"
    pictures = in_order(path, ("about", "pictures a set"), {model: count})
    result = in_order(path, ("table",), {model: result})
    areas = in_order(path, ("areas",), {model: areas_of(drawn)} if drawn else {})
    about = {"pictures a set": pictures, "tokens a picture": TOKENS, "area": AREA, "noise": 0.3, "versions": versions()}
    path.write_bytes(json_bytes({"about": about, "table": result, "areas": areas}))
    tables = {"table 5": table_5(result, pictures, sets)}
    for kind in KINDS:
        tables[f"ratios, {kind}"] = table_gaps(result, sets, kind)
        tables[f"in pairs, {kind}"] = table_pairs(result, sets, kind)
    tables |= {f"areas, {model}": table_areas(by) for model, by in areas.items()}
    put_tables(out / "tokens_perturbation.md", tables)
    if drawn and model == MODELS[0]:
        (out / "tokens_perturbation.png").write_bytes(picture(model, drawn, sets[0]))


def areas_of(drawn: dict[str, dict[str, np.ndarray]]) -> dict[str, Any]:
    """Areas under the curves, means over pictures of their tokens' means, and how much more than the sum's."""
    out: dict[str, Any] = {}
    for method, part in drawn.items():
        out[method] = {"pictures": len(part["deletion"]) // TOKENS}
        for kind in ("deletion", "insertion"):
            mine, theirs = (area(of["shares"], of[kind]) for of in (part, drawn[SUM]))
            out[method][kind] = number(mean_interval(mine))
            out[method][f"{kind}, more than the sum"] = number(mean_interval(mine - theirs))
    return out


def area(shares: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(picture,) from curves (token of a picture after another, step)."""
    of_tokens = ((values[:, 1:] + values[:, :-1]) / 2 * np.diff(shares)).sum(1)
    return of_tokens.reshape(-1, TOKENS).mean(1)


def table_areas(by: dict[str, Any]) -> list[str]:
    kinds = {"deletion": "deletion ↓", "insertion": "insertion ↑"}
    head = " | ".join(f"{said} | more than the sum" for said in kinds.values())
    lines = [f"{next(iter(by.values()))['pictures']} pictures.", "", f"| maps | {head} |", "|---|" + "---|" * 4]
    for method, part in by.items():
        cells = []
        for kind in kinds:
            cells.append("{value:.3f} [{low:.3f}, {high:.3f}]".format(**part[kind]))
            cells.append("" if method == SUM else signed(part[f"{kind}, more than the sum"], 3))
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return lines


def picture(model: str, by: dict[str, Any], name: str) -> bytes:
    lines = tuple(
        Line(m, tuple(part["deletion"].mean(0).tolist()), min(k, 5), control=m in ("nearness", CONTROL))
        for k, (m, part) in enumerate(by.items())
    )
    shares = tuple(next(iter(by.values()))["shares"].tolist())
    title = f"{model} on {name}: patches taken away, most relevant first"
    return to_png(
        Curve(title, shares, lines, "share of patches gone", "cosine of the token to itself"), width=7, dpi=90
    )


if __name__ == "__main__":
    main()
