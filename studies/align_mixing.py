"""Why does one colour not stand for one concept in all networks (AlignedCut, Figure 4)? One thing changed at a time.

    python studies/align_mixing.py DATA --work DIR [--session 201025] [--only WAY ...]

Patches of 60 pets and 60 voc_animals pictures at six layers of four networks, as in `align_pictures.py`, brought into
a shared space in different ways and cut as one graph. Ways:

- the alignments of `align_brain.py` (λ_eigen 0), read as they are; less the mean of each layer of each network; in the
  space of the responses;
- trained otherwise: every layer of every network made to predict the responses alone, through the one head (the paper:
  their sum); 1,152 responses, the four networks' own embeddings of the pictures; each layer's channels centred on their
  own (another reading of eq. 6); wider; longer;
- no brain: directions that the same patch of the same picture shares in all networks (canonical correlations over
  patches of the session's pictures), which is the most that one linear map a layer can do; the same with pictures
  exchanged between networks; random maps;
- our own term: patches have to be more like themselves in other layers and networks than like other patches
  (`lambda_agree`), with each weight, and the same where each network sees other pictures;
- a check of the method: four copies of dinov2s_saliency whose channels were turned at random instead of four networks.

Measures: `align_measures.mixing` and cosines of the same patch. Three seeds, intervals over pictures. Writes
studies/results/align_mixing.json and the table of align_mixing.md after every way.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import vitreous as vt
from align_inputs import NETWORKS, SEEDS, SETTINGS, SITES, aligned, random_map, recorded, session
from align_measures import CHANCE, Features, cosines, joined, mean_over, mixing, share, spoken
from align_pictures import draw_mosaic
from tokens_inputs import put_tables
from vitreous.lenses import align_training

OUT = Path(__file__).parent / "results" / "align_mixing"
PICTURES = 60  # of each set
FITTED = 400  # pictures whose patches canonical correlations are fitted on
KEPT, SHARED = 64, 16  # directions of each layer, and shared ones
Read = Callable[[np.ndarray, str, str], np.ndarray]
SLOTS = [(model, site) for model in NETWORKS for site in SITES]


class Inputs:
    """What the ways have in common; read when it is asked for, and kept."""

    def __init__(self, data: Path, work: Path, session: str) -> None:
        self.data, self.work, self.session = data, work, session
        self.kept: dict[str, Any] = {}
        self.features, self.pixels, self.figures = joined(data, work, PICTURES)
        self.means = {slot: self.features[slot[0]][slot[1]].mean((0, 1), dtype=np.float64) for slot in SLOTS}

    def centred(self, read: Read) -> Read:
        """Less the mean of each layer of each network over all patches; maps are linear."""
        return lambda rows, model, site: read((rows - self.means[model, site]).astype(np.float32), model, site)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self.kept:
            self.kept[name] = make()
        return self.kept[name]

    def neurons(self) -> tuple[Features, vt.Responses]:
        return self.once("neurons", self._neurons)

    def embeddings(self) -> tuple[Features, vt.Responses]:
        """The same pictures, with the mean of the last layer of every network as responses."""
        features, _ = self.neurons()
        return features, vt.Responses(np.concatenate([features[m][SITES[-1]].mean(1) for m in NETWORKS], 1))

    def _neurons(self) -> tuple[Features, vt.Responses]:
        images, found = session(self.data, self.session)
        return arrays(recorded(self.data, images, self.work / self.session / "trained")), found


def arrays(stores: dict[str, vt.Store]) -> Features:
    return {m: {site: np.asarray(store[site][:], np.float32) for site in SITES} for m, store in stores.items()}


# -- ways to train


def own_centre(weight: float) -> Callable[..., dict[str, Any]]:
    """The losses of eq. 10 with eq. 6 for each layer of each network on its own."""
    plain = align_training.losses

    def losses(net: Any, seen: Any, pictures: Any, *rest: Any) -> dict[str, Any]:
        found = plain(net, seen, pictures, *rest)
        rows = [part[pictures].flatten(0, 1) @ w for part, w in zip(seen.patches, net.maps, strict=True)]
        found["total"] = found["total"] + weight * torch.stack([align_training.zero_centre(row) for row in rows]).mean()
        return found

    return losses


def trained(
    inputs: Features, responses: vt.Responses, losses: Any = None, seeds: tuple[int, ...] = SEEDS, **settings: Any
) -> list[vt.ChannelAlign]:
    with patch.object(align_training, "losses", losses or align_training.losses):
        settings = {**SETTINGS, "lambda_eigen": 0.0, **settings}
        return [vt.align(inputs, None, responses, seed=seed, **settings) for seed in seeds]


def exchanged(features: Features) -> Features:
    """Each network sees the pictures in an order of its own, so that it has nothing in common with the others."""
    found: Features = {}
    for n, model in enumerate(NETWORKS):
        order = np.random.default_rng(n).permutation(len(features[model][SITES[0]]))
        found[model] = {site: rows[order] for site, rows in features[model].items()}
    return found


# -- maps that no response taught


def canonical(inputs: Features, seed: int, exchanged: bool = False) -> Read:
    """Directions that patches share over all layers and networks (generalised canonical correlations): eigenvectors of
    the covariance of all layers beside each other, each whitened. `exchanged`: each network sees other pictures."""
    generator = np.random.default_rng(seed)
    some = generator.permutation(len(inputs["text"][SITES[0]]))[:FITTED]
    order = {m: generator.permutation(some) if exchanged else some for m in NETWORKS}  # places stay
    middles, bases, parts = {}, {}, []
    for model, site in SLOTS:
        rows = inputs[model][site][order[model]][:, 1:]
        rows = rows.reshape(-1, rows.shape[-1])
        middles[model, site] = rows.mean(0)
        rows = rows - middles[model, site]
        values, vectors = np.linalg.eigh(rows.T @ rows / len(rows))
        bases[model, site] = vectors[:, -KEPT:] / np.sqrt(values[-KEPT:] + 1e-2 * values[-KEPT:].mean())
        parts.append(rows @ bases[model, site])
    together = np.concatenate(parts, 1)
    shared = np.linalg.eigh(together.T.astype(np.float64) @ together / len(together))[1][:, -SHARED:]
    maps = {slot: bases[slot] @ shared[n * KEPT : (n + 1) * KEPT] for n, slot in enumerate(SLOTS)}
    return lambda rows, model, site: (rows @ maps[model, site]).astype(np.float32)


def at_random(seed: int) -> Read:
    def read(rows: np.ndarray, model: str, site: str) -> np.ndarray:
        return rows @ random_map(seed, model, site, rows.shape[-1]).astype(np.float32)

    return read


def turned(features: Features, seed: int = 0) -> Features:
    """Four copies of dinov2s_saliency in place of the networks, channels of each layer of each turned at random."""
    found: Features = {}
    for n, model in enumerate(NETWORKS):
        found[model] = {}
        for k, site in enumerate(SITES):
            rows = features["dino"][site]
            generator = np.random.default_rng([seed, n, k])
            turn = np.linalg.qr(generator.standard_normal((rows.shape[-1], rows.shape[-1])))[0]
            found[model][site] = (rows @ turn).astype(np.float32)
    return found


# -- all ways


def score(
    features: Features, figures: np.ndarray, reads: list[Read], runs: list[vt.ChannelAlign] | None
) -> dict[str, Any]:
    counted = []
    for seed, read in enumerate(reads):
        spectral = vt.ncut(features, read=read, seed=seed, progress=False)
        counted.append(mixing(spectral, figures, seed))
    found: dict[str, Any] = {name: share([one[name] for one in counted]) for name in CHANCE}
    cosine = np.stack([cosines(features, read) for read in reads])
    found["cosine above another patch"] = mean_over(cosine[:, 0] - cosine[:, 1])
    if runs is not None:
        found["R2"] = [run.means()["all"] for run in runs]
    return found


def ways(it: Inputs) -> dict[str, Callable[[], dict[str, Any]]]:
    def taught(how: str, losses: Any = None, inputs: Any = None, **settings: Any) -> list[vt.ChannelAlign]:
        return it.once(how, lambda: trained(*(inputs or it.neurons)(), losses, **settings))

    def of(runs: list[vt.ChannelAlign], space: str = "transform", centred: bool = False) -> dict[str, Any]:
        reads = [getattr(one, space) for one in runs]
        reads = [it.centred(read) for read in reads] if centred else reads
        return score(it.features, it.figures, reads, runs)

    def without(reads: list[Read]) -> dict[str, Any]:
        return score(it.features, it.figures, [it.centred(read) for read in reads], None)

    def copies() -> dict[str, Any]:
        features, responses = it.neurons()
        runs = trained(turned(features), responses)
        return score(turned(it.features), it.figures, [run.transform for run in runs], runs)

    def plain() -> list[vt.ChannelAlign]:
        """Those of `align_brain.py`, learned here where it has not run."""
        folder = it.work / it.session / "lambda-0.0"
        return [aligned(folder / str(seed), *it.neurons(), lambda_eigen=0.0, seed=seed) for seed in SEEDS]

    def agreed(weight: float) -> list[vt.ChannelAlign]:
        return taught(f"agree {weight}", lambda_agree=weight)

    def strangers(weight: float) -> list[vt.ChannelAlign]:
        """What is left in common is where in a picture a patch lies."""
        features, responses = it.neurons()
        return taught(f"strangers {weight}", inputs=lambda: (exchanged(features), responses), lambda_agree=weight)

    return {
        "as in the table": lambda: of(plain()),
        "each layer's mean taken away": lambda: of(plain(), centred=True),
        "in the space of responses, means taken away": lambda: of(plain(), "in_response_space", centred=True),
        "patches have to agree, weight 0.03": lambda: of(agreed(0.03)),
        "patches have to agree, weight 0.1": lambda: of(agreed(0.1)),
        "patches have to agree, weight 0.1, pictures exchanged": lambda: of(strangers(0.1)),
        "patches have to agree, weight 1": lambda: of(agreed(1.0)),
        "patches have to agree, weight 1, means taken away": lambda: of(agreed(1.0), centred=True),
        "patches have to agree, weight 1, pictures exchanged": lambda: of(strangers(1.0)),
        "every layer predicts alone": lambda: of(taught("alone", predict="alone")),
        "every layer predicts alone, means taken away": lambda: of(taught("alone", predict="alone"), centred=True),
        "shared directions of patches": lambda: without([canonical(it.neurons()[0], s) for s in SEEDS]),
        "shared directions, pictures exchanged": lambda: without([canonical(it.neurons()[0], s, True) for s in SEEDS]),
        "random maps": lambda: score(it.features, it.figures, [at_random(seed) for seed in SEEDS], None),
        "random maps, means taken away": lambda: without([at_random(seed) for seed in SEEDS]),
        "one network in four copies": copies,
        "1,152 responses, means taken away": lambda: of(taught("rich", inputs=it.embeddings), centred=True),
        "1,152 responses, every layer alone, means taken away": lambda: of(
            taught("rich, alone", inputs=it.embeddings, predict="alone"), centred=True
        ),
        "eq. 6 by layer, weight 1": lambda: of(taught("centre", own_centre(1.0))),
        "width 512": lambda: of(taught("wide", width=512)),
        "300 epochs, not stopped": lambda: of(taught("long", epochs=300, patience=300)),
    }


def mosaic(it: Inputs) -> None:
    """Figure 4 where patches have to agree, weight 1, first seed: pets and animals that no map was learned from."""
    alignment = trained(*it.neurons(), lambda_agree=1.0, seeds=SEEDS[:1])[0]
    cut = vt.ncut(it.features, read=alignment.transform, progress=False)
    shades = vt.colors(vt.spectral_tsne(cut, dims=3, n_sample=2000))
    draw_mosaic(cut, shades, it.pixels, [0, 1, 2, 3, 60, 61, 62, 63], "align_mosaic_agree.png")


def table(results: dict[str, Any]) -> list[str]:
    names = [*CHANCE, "cosine above another patch"]
    lines = ["| way | R² | " + " | ".join(names) + " |", "| --- | --- |" + " --- |" * len(names)]
    for way, row in results.items():
        r2 = f"{np.mean(row['R2']):.3f}" if "R2" in row else ""
        lines.append(f"| {way} | {r2} | " + " | ".join(spoken(row[name]) for name in names) + " |")
    return [*lines, "| if it did not matter | | " + " | ".join(f"{value:.3f}" for value in CHANCE.values()) + " | 0 |"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--session", default="201025")
    parser.add_argument("--only", nargs="*", help="ways, by name")
    parser.add_argument("--mosaic", action="store_true", help="draw align_mosaic_agree.png")
    options = parser.parse_args()
    path = OUT.with_suffix(".json")
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    inputs = Inputs(options.data, options.work, options.session)
    known = ways(inputs)
    if wrong := set(options.only or ()) - set(known):
        parser.error(f"no such way: {sorted(wrong)}; there are {list(known)}")
    for name, way in known.items():
        done = results.get(options.session, {})
        if name in (known if options.only is None else options.only) and name not in done:
            done[name] = way()
            results[options.session] = {key: done[key] for key in known if key in done}
            path.write_text(json.dumps(results, indent=1) + "\n")
            put_tables(OUT.with_suffix(".md"), {key: table(found) for key, found in results.items()})
            print(name, {key: spoken(done[name][key]) for key in CHANCE}, flush=True)
    if options.mosaic:
        mosaic(inputs)


if __name__ == "__main__":
    main()
