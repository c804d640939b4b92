"""How long do the concept vectors of one layer take? Ours from inner products against captum's, fit by fit.

PYTHONPATH=src python benchmarks/tcav.py      needs captum; writes benchmarks/results/tcav.json

Activations of one concept (30 pictures) and 300 random sets of 30 pictures, all tokens of a ViT with 65 tokens of 256
channels, and gradients of 100 pictures of a class. Both sides start from the same arrays in memory and end with scores;
captum runs its default classifier on a few sets only, and its time is that of one set.
"""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path

import torch

from turns import Case, Way
from vitreous.baselines.tcav import _by_captum, _by_inner_products, _draws, _Read

OUT = Path(__file__).parent / "results" / "tcav.json"
FEATURES, PICTURES, CONCEPT, SETS, EXAMPLES, TRIED = 65 * 256, 100, 30, 300, 30, 10


def one_layer() -> _Read:
    generator = torch.Generator().manual_seed(0)

    def noise(rows: int) -> torch.Tensor:
        return torch.randn(rows, FEATURES, generator=generator)

    shift = noise(1)
    rows = tuple(slice(k * PICTURES, (k + 1) * PICTURES) for k in range(4))
    return _Read("layer", noise(4 * PICTURES), noise(4 * PICTURES), (noise(CONCEPT) + 0.2 * shift,), rows)


def main() -> None:
    from captum.concept._utils.classifier import DefaultClassifier

    warnings.simplefilter("ignore")
    read = one_layer()
    draws = _draws([PICTURES] * 4, SETS, EXAMPLES, 0)
    start = time.perf_counter()
    fit = _by_inner_products(read, 0, 0.1)
    products = time.perf_counter() - start
    start = time.perf_counter()
    for k in range(4):
        fit(draws[k], read.of_class[k])
    ours = (time.perf_counter() - start) / (4 * SETS)
    slow = _by_captum(read, 0, DefaultClassifier)
    slow(draws[1][:1], read.of_class[1])  # imports
    start = time.perf_counter()
    slow(draws[0][:TRIED], read.of_class[0])
    theirs = (time.perf_counter() - start) / TRIED
    millions = 14 * 47 * 10 * 300
    result = {
        "features": FEATURES,
        "seconds_of_inner_products_a_layer_and_concept": round(products, 3),
        "ms_a_fit": {"ours": round(1e3 * ours, 3), "captum_default": round(1e3 * theirs, 1)},
        "ratio": round(theirs / ours, 1),
        "hours_for_the_papers_14_layers_47_concepts_10_classes_300_sets": {
            "ours": round((millions * ours + 14 * 47 * products) / 3600, 2),
            "captum_default": round(millions * theirs / 3600, 1),
        },
        "threads": torch.get_num_threads(),
    }
    OUT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


# -- for run.py


def ways(sets: int, _: str | None) -> dict[str, Way]:
    read, draws = one_layer(), _draws([PICTURES] * 4, sets, EXAMPLES, 0)

    def by_captum() -> object:
        from captum.concept._utils.classifier import DefaultClassifier

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _by_captum(read, 0, DefaultClassifier)(draws[0], read.of_class[0])

    return {
        "vt.tcav": lambda: _by_inner_products(read, 0, 0.1)(draws[0], read.of_class[0]),
        "captum, its default classifier": by_captum,
    }


CASES = [
    Case("concept vectors", lambda n: f"{n} fits of 60 pictures, {FEATURES:,} features", ways, 10, 2,
         packages={"captum, its default classifier": "captum"},
         note="ours includes its inner products, which a layer and concept need once for 300 fits and more"),
]  # fmt: skip


if __name__ == "__main__":
    main()
