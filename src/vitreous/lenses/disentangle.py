"""Interpretability without tradeoffs: disentangling polysemanticity at equal predictive performance (ELUDe, 2026).

A unit that answers to dogs and to violins is driven by different inputs for each. Its strongest instances are clustered
by what each input added, and every input is given to the sub-units whose clusters it drives. Their weights sum back to
the unit's, so the layer computes what it always did.

    paper     here              axes             what it is
    l         row               -                an instance: one position of one image
    D_u       rows              k                the top-k instances of unit u (eq. 1)
    q         q                 instance input   what enters the layer
    c         -                 instance input   contributions W_u * q, of length 1; never formed here
    p         certain           instance         how surely an instance belongs to its cluster
    r~        representatives   cluster input    mean of a cluster's c, weighted by p, of length 1 (eq. 2)
    rho       rho               -                margin by which a set of sub-units wins an input (eq. 3)
    w^(u,c)   members           sub-unit input   shares of the unit's weights (eq. 4), kept as bits

This file goes over all units. The steps for one stand in the paper's order in `disentangle_units.py` (eq. 1 and 2),
`kernels/split_weights.py` (eq. 3 to 5) and `subunits/` (eq. 6 as a hook, eq. 8 as a layer).

Where we differ: outputs are not recomputed from the sub-units, so they are the same bit for bit rather than up to
rounding. The paper takes k = 400,000 of 2.56 million instances and clusters of k / 400 or more; with less data the same
ratios hold, down to the floors below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vitreous.checks import whole
from vitreous.engine import Engine, Here, Ranks, open_engine
from vitreous.errors import SettingsError
from vitreous.kernels.density import METHODS
from vitreous.kernels.density_rule import SELECTIONS
from vitreous.lenses.disentangle_expansion import options_for
from vitreous.lenses.disentangle_finding import Disentanglement as Disentanglement
from vitreous.lenses.disentangle_rows import Rows, Tokens, describe_source, open_rows
from vitreous.lenses.disentangle_share import Claims
from vitreous.lenses.disentangle_units import OnCores, Options, Route, SplitOne, UnitTop
from vitreous.lenses.disentangle_work import UnitSplit, Work, assemble, open_work
from vitreous.mirrors import kept_at
from vitreous.models.subject import Subject
from vitreous.progress import tqdm
from vitreous.subunits.layers import LinearLayer, chosen_units, find_layer

if TYPE_CHECKING:
    import torch
    from torch import nn

    from vitreous.images import ImageSet
    from vitreous.store import Store
    from vitreous.texts import TextSet

PAPER_K, PAPER_SHARE, PAPER_RATIO = 400_000, 400_000 / 2_562_334, 400
LEAST_K, LEAST_CLUSTER = 1000, 10
EXAMPLES = 32  # strongest instances that are kept of a unit and of a sub-unit
SAMPLED_UNITS = 32  # units that are clustered to find the options for an expansion
PAUSE = 0.5  # seconds, where other processes have all units that are left


@kept_at("out")
def disentangle(
    subject: Subject | nn.Module,
    source: ImageSet | TextSet | Store | np.ndarray,
    site: str = "blocks.-1.mlp.out",
    *,
    units: Literal["all"] | int | Sequence[int] = "all",
    top_k: int | None = None,
    tokens_per_image: Tokens = 2,
    min_cluster_size: int | None = None,
    expansion: float | None = None,
    selection: str = "leaf",
    min_samples: int | None = None,
    clusterer: str = "auto",
    seed: int = 0,
    engine: str | Engine = "local",
    device: str | None = None,
    out: str | Path | None = None,
    progress: bool = True,
) -> Disentanglement:
    """Splits units of a linear layer into sub-units that answer to one thing each.

    `site` is `mlp.out`, `attn.out`, `attn.q`, `.k` or `.v` of a block, or the path of a linear layer or convolution.
    The source is pictures or texts for the model, a store that holds what enters the layer, or that as an array. With
    `expansion` the size of clusters, or `top_k` where that size is given, is chosen so that about that many sub-units a
    unit come out. With `out` the finding is saved there, and a run that was killed goes on where it was; processes with
    the same arguments and the same folder share the work.

    `engine` says who splits units: "local" this process, "local:4" workers, "ray" a cluster; under "torchrun" all
    processes share the folder `out`. `device` is where: by default the GPU that the model lies on, or else the cores of
    the machine, with code made for them; "cpu" runs a GPU's code there.

    >>> finding = vt.disentangle(subject, images)
    >>> finding.expansion, finding.subunits(31), finding.subunit_top.images[finding.subunits(31)]
    """
    layer = find_layer(subject, site)
    which = chosen_units(units, layer.count)
    asked: dict[str, Any] = {"top_k": top_k, "tokens_per_image": tokens_per_image, "min_cluster_size": min_cluster_size}
    asked |= {"expansion": expansion, "selection": selection, "min_samples": min_samples, "clusterer": clusterer}
    asked |= {"seed": seed}
    _check(asked)
    asked = {name: value.item() if isinstance(value, np.generic) else value for name, value in asked.items()}
    runner = open_engine(engine)
    where = _where(subject, device, clusterer)
    asked |= {"device": None if where is None else where.type}
    weight, bias = (part[which] for part in layer.matrix())
    model = {"name": subject.name, "fingerprint": subject.fingerprint} if isinstance(subject, Subject) else None
    made_of = {"model": model, "layer": layer.fingerprint, "data": describe_source(source), "asked": asked}
    with open_work(out, made_of | {"site": layer.site, "units": which.tolist()}) as work:
        if work.finished is not None:
            return work.finished
        with work.settling():
            if work.ended:
                return Disentanglement.load(work.folder.parent)
            tokens = asked["tokens_per_image"]
            rows = open_rows(subject, layer, source, tokens, asked["seed"], work.folder, progress)
            route = _route(rows, weight, bias, where, clusterer, progress)
            chosen = work.remembered(lambda: _options(asked, route, len(rows), len(which), progress))
        return _found(route, layer, which, work, made_of | {"instances": len(rows)} | chosen, runner, progress)


# -- all units


def _found(
    route: Route,
    layer: LinearLayer,
    which: np.ndarray,
    work: Work,
    settings: dict[str, Any],
    runner: Engine,
    progress: bool,
) -> Disentanglement:
    """The finding, by this process or by another that was faster."""
    options = Options(**{part.name: settings[part.name] for part in fields(Options)})
    splits = _split_all(partial(_splits, route, options, runner), which, work, progress)
    if splits is None:
        return Disentanglement.load(work.folder.parent)
    weight, bias = layer.matrix()
    finding = assemble(layer, which, weight[which], bias[which], splits, settings)
    work.finish(finding)
    return finding


def _route(
    rows: Rows, weight: np.ndarray, bias: np.ndarray, device: torch.device | None, clusterer: str, progress: bool
) -> Route:
    if device is None or clusterer != "auto":
        return OnCores(rows, weight, bias)
    from vitreous.lenses.disentangle_device import OnDevice

    return OnDevice(rows, weight, bias, device, progress)


def _splits(route: Route, options: Options, runner: Engine, claims: Claims) -> Iterator[tuple[int, UnitSplit]]:
    """The strongest rows are looked for here, in one pass for many units; workers are given units with theirs."""
    tops = claims.taken(route.top(claims.free, options.top_k))
    if isinstance(runner, Here | Ranks):  # processes of torchrun share the folder
        return route.splits(tops, options, EXAMPLES)
    return runner.map(SplitOne(route, options, EXAMPLES), map(UnitTop.on_host, tops), gpu=route.on_gpu)


def _split_all(
    splitting: Callable[[Claims], Iterator[tuple[int, UnitSplit]]], which: np.ndarray, work: Work, progress: bool
) -> list[UnitSplit] | None:
    """Units one after the other; those that the folder has, or gets from other processes, are read from it.

    None if another process has ended it all meanwhile.
    """
    splits: dict[int, UnitSplit] = {}
    with tqdm(total=len(which), desc="units", disable=not progress, leave=False) as bar:
        while len(splits) < len(which):
            if work.ended:
                return None
            for at, unit in enumerate(which):
                if at not in splits and (split := work.read(int(unit))) is not None:
                    splits[at] = split
            bar.update(len(splits) - bar.n)
            claims = Claims(work, which, [at for at in range(len(which)) if at not in splits])
            if not claims.free:
                sleep(PAUSE if len(splits) < len(which) else 0)
                continue
            with claims:
                for at, split in splitting(claims):
                    work.write(int(which[at]), split)
                    claims.release(at)
                    splits[at] = split
                    bar.update()
    return [splits[at] for at in range(len(which))]


# -- what was asked for


def _check(asked: dict[str, Any]) -> None:
    for name in ("top_k", "min_cluster_size", "min_samples"):
        if asked[name] is not None:
            whole(2 if name == "min_cluster_size" else 1, **{name: asked[name]})
    if asked["clusterer"] not in METHODS:
        raise SettingsError("unknown clusterer", given=asked["clusterer"], accepted=METHODS)
    if asked["selection"] not in SELECTIONS:
        raise SettingsError("unknown selection", given=asked["selection"], accepted=SELECTIONS)
    expansion = asked["expansion"]
    if expansion is not None and not (isinstance(expansion, int | float | np.number) and 1 < expansion < np.inf):
        raise SettingsError("expansion is more than 1", given=expansion, accepted="a finite number")
    if None not in (asked["expansion"], asked["min_cluster_size"], asked["top_k"]):
        raise SettingsError(
            "expansion chooses min_cluster_size or top_k, and all three are given",
            given={name: asked[name] for name in ("expansion", "min_cluster_size", "top_k")},
            accepted="expansion with one of the other two, or with none",
        )
    whole(0, seed=asked["seed"])


def _where(owner: Subject | nn.Module, device: str | None, clusterer: str) -> torch.device | None:
    """The device that units are split on, None for the cores."""
    from vitreous.lenses.disentangle_device import chosen_device

    if clusterer == "auto":
        return chosen_device(owner, device)
    if device is not None:
        raise SettingsError(
            f'clusterer "{clusterer}" runs on the cores alone',
            given=device,
            accepted='no device, or clusterer="auto"',
        )
    return None


def _options(asked: dict[str, Any], route: Route, instances: int, units: int, progress: bool) -> dict[str, Any]:
    """What was asked for with the rest filled in, and the expansion on a few units if that was to be reached."""
    top_k = asked["top_k"]
    if top_k is None:
        top_k = min(PAPER_K, instances, max(LEAST_K, round(PAPER_SHARE * instances)))
    if top_k > instances:
        raise SettingsError(
            "top_k is more than there are instances",
            given=top_k,
            accepted=f"1 to {instances}",
            remedy="a smaller top_k, more pictures, or more tokens_per_image",
        )
    if asked["expansion"] is None and (asked["min_samples"] or 1) > top_k:
        raise SettingsError(
            "min_samples is more than there are points", given=asked["min_samples"], accepted=f"1 to {top_k}"
        )
    size = asked["min_cluster_size"] or max(LEAST_CLUSTER, round(top_k / PAPER_RATIO))
    options = Options(top_k, size, asked["selection"], asked["min_samples"], asked["clusterer"], asked["seed"])
    reached = None
    if asked["expansion"] is not None:
        some = np.random.default_rng((options.seed, 2)).permutation(units)[:SAMPLED_UNITS]
        options, reached = options_for(
            asked["expansion"],
            options,
            route,
            sorted(some.tolist()),
            sizes=asked["min_cluster_size"] is None,
            instances=min(PAPER_K, instances) if asked["top_k"] is None else None,
            progress=progress,
        )
    return {**asdict(options), "sampled_expansion": reached}
