"""AlignedCut (NeurIPS 2024 submission): layers of several models in one channel space, guided by responses.

    paper      here          axes               what it is
    V_i        features      picture patch channel   of slot i, a layer of a model (attention output, no residual)
    W_i        maps[i]       channel width      one linear map a slot
    V'_i       transform     … width            aligned features V_i W_i, eq. 1
    β, ε       head, bias    width response     from the mean over slots and patches to responses, eq. 2
    B_i        in_response_space  … response    V'_i β: what each patch adds to each response

The maps are learned from responses of a brain (or any other (image, response) matrix): L1 response loss (eq. 9, as a
mean), plus λ_eigen times the eigen-constraint (eq. 5, in the focal form of eq. 8), λ_zero times eq. 6, λ_cov times
eq. 7. The sum is eq. 10; all terms are in `align_training.py`. λ_agree is ours and 0 unless asked for: nothing in
eq. 10 makes two networks use one channel for one thing. Responses are brought to mean 0 and deviation 1 for
training and back afterwards. Where the paper is silent: Adam, 10 % of the images held out to stop early, the weights
of the best epoch are kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.engine import say
from vitreous.errors import SettingsError
from vitreous.lenses.align_checks import Asked, device_of, folder_for, regions
from vitreous.lenses.align_finding import ChannelAlign as ChannelAlign
from vitreous.lenses.align_nodes import Nodes, Read, open_nodes
from vitreous.mirrors import kept_at
from vitreous.progress import tqdm
from vitreous.provenance import replace_file

if TYPE_CHECKING:
    import torch

    from vitreous.images import ImageSet
    from vitreous.lenses.align_training import AlignNet, Seen, Weights
    from vitreous.responses import Responses

CHECKPOINT = "checkpoint.pt"
PATCHES = 4  # of a picture, kept for the regularisers


@dataclass(frozen=True)
class Schedule:
    epochs: int
    patience: int
    batch: int
    lr: float
    seed: int
    out: Path | None
    data: str  # a hash of what is learned from


@kept_at("out")
def align(
    sources: Any,
    images: ImageSet | None,
    responses: Responses | np.ndarray,
    rois: Mapping[str, np.ndarray] | None = None,
    *,
    width: int = 256,
    lambda_eigen: float = 1.0,
    lambda_zero: float = 0.01,
    lambda_cov: float = 0.01,
    lambda_agree: float = 0.0,
    nodes: int = 100,
    eigenvectors: int = 6,
    held_out: float = 0.1,
    epochs: int = 200,
    patience: int = 20,
    batch: int = 64,
    lr: float = 1e-3,
    sites: str = "blocks.*.attn.out",
    tokens: str = "all",
    predict: str = "together",
    read: Read | None = None,
    out: str | Path | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: bool = True,
) -> ChannelAlign:
    """Learns one linear map a layer, from stores of several models to one space that predicts the responses.

    `sources` is {model: store}, {model: {layer: array (image, token, channel)}}, or {model: subject}, which are then
    recorded into `out`/stores. `images` are what was seen, in the order of the responses; stores of others are refused.
    Stores and arrays do without: None. `responses` is a `vt.Responses` or an array (image, response) with `rois`:
    voxels, neurons, another model's embedding. With `out`
    training can be killed and called again; it goes on and ends with the same maps. The paper's sum of all layers is
    `predict="together"`; with "alone" every layer has to predict by itself, through the one head: layers and models
    come nearer to each other. `lambda_agree` asks for that itself: a patch in one layer has to be more like itself in
    another layer or model than like other patches.

    >>> alignment = vt.align({"text": store_a, "mae": store_b}, images, vt.Responses(spikes), out="aligned")
    >>> alignment.score(["all"]), alignment.transform(store_a["blocks.3.attn.out"][:4], "text", "blocks.3.attn.out")
    """
    asked = Asked(
        width, lambda_eigen, lambda_zero, lambda_cov, lambda_agree, nodes, eigenvectors, held_out, epochs, patience,
        batch, lr, sites, tokens, predict, seed,
    )  # fmt: skip
    where, wanted, kept = device_of(device), _responses(images, responses, rois), folder_for(out)
    sources = _recorded(sources, images, sites, kept, progress)
    found = open_nodes(sources, sites=sites, tokens=tokens, read=read, same_width=False)
    _check(found, wanted, asked)
    finding = _learned(found, wanted, asked, where, kept, progress)
    if kept is not None:
        finding.save(kept)
    return finding


def _learned(
    found: Nodes, wanted: Responses, asked: Asked, where: torch.device, kept: Path | None, progress: bool
) -> ChannelAlign:
    from vitreous.lenses.align_training import AlignNet, Weights, read_features

    seen = read_features(found.blocks, PATCHES, asked.seed, progress)
    target = _target(wanted, asked.held_out, asked.seed)
    net = AlignNet([p.shape[1] for p in seen.pooled], asked.width, target.values.shape[1], asked.seed)
    weights = Weights(
        asked.lambda_eigen,
        asked.lambda_zero,
        asked.lambda_cov,
        asked.nodes,
        asked.eigenvectors,
        asked.predict == "alone",
        asked.lambda_agree,
    )
    data = "" if kept is None else _hash(seen, target)
    schedule = Schedule(asked.epochs, asked.patience, asked.batch, asked.lr, asked.seed, kept, data)
    log = _fit(net.to(where), seen.to(where), target, weights, schedule, progress)
    settings = asdict(asked) | {"most epochs": asked.epochs, "epochs": len(log), "responses": wanted.name}
    return _finding(net.cpu(), seen, found, wanted, target, log, settings)


def _responses(
    images: ImageSet | None, given: Responses | np.ndarray, rois: Mapping[str, np.ndarray] | None
) -> Responses:
    from vitreous.images import ImageSet
    from vitreous.responses import Responses

    if images is not None and not isinstance(images, ImageSet):
        accepted = "vt.align(sources, images, responses), images a vt.ImageSet, or None with stores and arrays"
        raise SettingsError("images come before the responses", given=type(images).__name__, accepted=accepted)
    regions(rois)
    if isinstance(given, Responses) and rois:
        raise SettingsError(
            "these responses have regions of their own", given="rois=", remedy="put them into Responses"
        )
    wanted = given if isinstance(given, Responses) else Responses(np.asarray(given), rois or {})
    if images is not None and len(images) != len(wanted):
        raise SettingsError(
            "there are not as many responses as images", given=f"{len(wanted)} responses, {len(images)} images"
        )
    return wanted


def _recorded(sources: Any, images: ImageSet | None, sites: str, out: Path | None, progress: bool) -> Any:
    """Sources with a store in the place of each subject; stores are of these pictures."""
    from vitreous.models.subject import Subject
    from vitreous.recording import record
    from vitreous.store import Store

    if not isinstance(sources, Mapping):
        return sources
    for name, part in sources.items():
        if images is not None and isinstance(part, Store) and tuple(images.ids) != part.ids:
            raise SettingsError("a store is of other pictures than images", given=f"{name}: {part}")
    if not any(isinstance(part, Subject) for part in sources.values()):
        return sources
    if images is None or out is None:
        raise SettingsError("subjects have to be recorded first", remedy="give images and out=, or stores of vt.record")
    folder = out / "stores"
    return {
        name: record(part, images, sites, out=folder / name, progress=progress) if isinstance(part, Subject) else part
        for name, part in sources.items()
    }


@dataclass(frozen=True, eq=False)
class Target:
    """Responses at mean 0 and deviation 1 over the images to train on, and which images those are."""

    values: np.ndarray
    trained: np.ndarray
    tested: np.ndarray
    centre: np.ndarray
    spread: np.ndarray
    ceiling: np.ndarray | None


def _target(wanted: Responses, held_out: float, seed: int) -> Target:
    from vitreous.evidence.responses import noise_ceiling

    ceiling = None if wanted.repeats is None else noise_ceiling(wanted.repeats).reliability
    order = np.random.default_rng(seed).permutation(len(wanted))
    many = max(2, round(held_out * len(wanted)))  # one image has no variance to explain
    tested, trained = np.sort(order[:many]), np.sort(order[many:])
    centre, spread = wanted.values[trained].mean(0), wanted.values[trained].std(0)
    spread = np.where(spread > 0, spread, 1).astype(np.float32)
    return Target((wanted.values - centre) / spread, trained, tested, centre, spread, ceiling)


def _finding(
    net: AlignNet, seen: Seen, found: Nodes, wanted: Responses, target: Target, log: list[Any], settings: dict[str, Any]
) -> ChannelAlign:
    import torch

    tested = torch.from_numpy(target.tested)
    with torch.no_grad():
        predicted = net([p[tested] for p in seen.pooled]).numpy() * target.spread + target.centre
    return ChannelAlign(
        slots=tuple((block.model, block.layer) for block in found.blocks),
        maps=tuple(w.detach().numpy() for w in net.maps),
        head=net.head.detach().numpy() * target.spread,
        bias=net.bias.detach().numpy() * target.spread + target.centre,
        held_out=target.tested,
        measured=wanted.values[target.tested],
        predicted=predicted,
        spread=target.spread,
        rois=dict(wanted.rois),
        log=tuple(log),
        settings=settings,
        ceiling=target.ceiling,
    )


def _check(found: Nodes, wanted: Responses, asked: Asked) -> None:
    counts = {f"{block.model} {block.layer}": len(block.array) for block in found.blocks}
    if wrong := {name: n for name, n in counts.items() if n != len(wanted)}:
        raise SettingsError(
            "there are not as many responses as images",
            given=f"{len(wanted)} responses, {next(iter(wrong.values()))} images of {next(iter(wrong))}",
            remedy="give the responses in the order of the images of every store",
        )
    patches = {f"{block.model} {block.layer}": block.shape[1] for block in found.blocks}
    if asked.lambda_agree and (len(set(patches.values())) > 1 or len(patches) < 2):
        raise SettingsError(
            "patches agree between two layers or more that have as many",
            given=patches,
            remedy="record with size= so that the grids are alike, or lambda_agree=0",
        )
    if wanted.constant.all():
        raise SettingsError("every response is constant over the images", given=wanted)
    if not 0 < asked.held_out < 0.9 or len(wanted) < 10:
        raise SettingsError("too few images to train and to test on", given=f"{len(wanted)}, held_out={asked.held_out}")


def _fit(
    net: AlignNet, seen: Seen, target: Target, weights: Weights, schedule: Schedule, progress: bool
) -> list[dict[str, float]]:
    """Epochs until the held-out images get no better; the best weights stay in `net`. Gives a line an epoch."""
    import torch

    from vitreous.lenses.align_training import held_out_error

    optimiser = torch.optim.Adam(net.parameters(), lr=schedule.lr)
    log, best = _resume(net, optimiser, schedule, weights)
    device = net.head.device
    wanted, trained, tested = (
        torch.from_numpy(part).to(device) for part in (target.values, target.trained, target.tested)
    )
    with tqdm(
        total=schedule.epochs, initial=len(log), desc="align", unit="epoch", disable=not progress, delay=1
    ) as bar:
        while len(log) < schedule.epochs and not _over(log, schedule.patience):
            log.append(_epoch(net, optimiser, seen, wanted, trained, weights, schedule, len(log)))
            log[-1]["held out"] = held_out_error(net, seen, tested, wanted, weights)
            if log[-1]["held out"] <= min(line["held out"] for line in log):
                best = {name: value.detach().clone() for name, value in net.state_dict().items()}
            bar.update()
            bar.set_postfix(error=f"{log[-1]['held out']:.3f}")
            if schedule.out is not None:
                _keep(net, optimiser, log, best, schedule, weights)
    net.load_state_dict(best)
    return log


def _epoch(
    net: AlignNet,
    optimiser: Any,
    seen: Seen,
    target: Any,
    trained: Any,
    weights: Weights,
    schedule: Schedule,
    epoch: int,
) -> dict[str, float]:
    """Its randomness depends on the seed and the epoch alone."""
    import torch

    from vitreous.lenses.align_training import losses

    generator = torch.Generator().manual_seed((schedule.seed << 20) + epoch)
    sums: dict[str, float] = {}
    pieces = trained[torch.randperm(len(trained), generator=generator)].split(schedule.batch)
    for pictures in pieces:
        found = losses(net, seen, pictures, target, weights, generator)
        optimiser.zero_grad()
        found["total"].backward()
        optimiser.step()
        for name, value in found.items():
            sums[name] = sums.get(name, 0.0) + float(value.detach()) / len(pieces)
    if not np.isfinite(sums["total"]):
        raise SettingsError("the loss became NaN or infinite", given=f"epoch {epoch}", remedy="lower lr")
    return sums


def _over(log: list[dict[str, float]], patience: int) -> bool:
    errors = [line["held out"] for line in log]
    return len(errors) > patience and min(errors[-patience:]) > min(errors[:-patience])


def _facts(schedule: Schedule, weights: Weights) -> str:
    return json.dumps([repr(weights), schedule.batch, schedule.lr, schedule.seed, schedule.patience, schedule.data])


def _hash(seen: Seen, target: Target) -> str:
    """Of features and responses: a checkpoint of other data must not go on."""
    import hashlib

    whole = hashlib.sha256()
    for part in (target.values, target.tested, *(pooled.numpy() for pooled in seen.pooled)):
        whole.update(str(part.shape).encode() + np.ascontiguousarray(part).tobytes())
    return whole.hexdigest()


def _keep(net: AlignNet, optimiser: Any, log: Any, best: Any, schedule: Schedule, weights: Weights) -> None:
    from io import BytesIO

    import torch

    assert schedule.out is not None
    schedule.out.mkdir(parents=True, exist_ok=True)
    state = {"net": net.state_dict(), "optimiser": optimiser.state_dict(), "best": best}
    state |= {"log": log, "facts": _facts(schedule, weights)}
    file = BytesIO()
    torch.save(state, file)
    replace_file(schedule.out / CHECKPOINT, file.getvalue())


def _resume(net: AlignNet, optimiser: Any, schedule: Schedule, weights: Weights) -> tuple[list[Any], dict[str, Any]]:
    path = None if schedule.out is None else schedule.out / CHECKPOINT
    state = None if path is None else _read(path, net.head.device)
    if state is None:
        return [], {name: value.detach().clone() for name, value in net.state_dict().items()}
    try:
        if state["facts"] != _facts(schedule, weights):
            raise SettingsError(
                "the folder holds an alignment with other settings, models or responses",
                given=str(path),
                remedy="choose another folder",
            )
        net.load_state_dict(state["net"])
        optimiser.load_state_dict(state["optimiser"])
        return list(state["log"]), state["best"]
    except SettingsError:
        raise
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        raise SettingsError(
            "the checkpoint is of other models or responses, or none of ours",
            given=str(path),
            remedy="delete it, or choose another folder",
        ) from error


def _read(path: Path, device: Any) -> Any:
    """A checkpoint; None where there is none, or one that has lost its end: the same maps are learned anew."""
    import pickle
    from io import BytesIO

    import torch

    if not path.exists():
        return None
    try:
        return torch.load(BytesIO(path.read_bytes()), weights_only=True, map_location=device)
    except (RuntimeError, EOFError, ValueError, pickle.UnpicklingError):
        say(f"{path} cannot be read: training begins anew")
        return None
