"""What a split layer and sparse dictionaries cost a ViT-B/14 at inference: ms a batch and peak memory (paper, Table 5).

    PYTHONPATH=src python benchmarks/disentangle_inference.py --json inference.json     batches of 256, 20 passes each
    PYTHONPATH=src python benchmarks/disentangle_inference.py --paper                   100 passes to warm up, 500 timed
    PYTHONPATH=src python benchmarks/disentangle_inference.py --compile                 with torch.compile, as the paper
    PYTHONPATH=src python benchmarks/disentangle_inference.py --layer-only --batch 16   the layer alone, on cores too
    PYTHONPATH=src python benchmarks/disentangle_inference.py --small                   a rehearsal on cores

The layer alone is measured first, because it is quick. With --json every row is written as soon as it is there, and a
run with the same settings and file goes on where another was cut off.

The backbone has random weights, which cost what trained ones do, and so have dictionaries and sub-units, eight times
as many as the layer has units. Dictionaries replace the output of the last block's second linear layer by what they
make of it; the transcoder makes it from the layer's input. Codes of all tokens are in memory together, as in the paper.
Ours: applied with nobody looking, with one unit's sub-units or all of them looked at, and in the paper's two stages.

Peak memory is all that torch has allocated, weights, batch and activations; `held_mib` is what of it was there before
the variant was put in, so that what an earlier one left behind can be told from what this one takes. The paper's
backbone, 501 MB at a batch of 256, has room for its weights and a batch of 224 x 224 pictures and nothing else:
activations are not in it, but in its dictionaries' numbers they are. Ratios of memory are therefore not those of the
paper. The finding, which lies in the machine's memory, is not in any of these; its size is told apart.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import vitreous as vt
from vitreous.baselines.dictionaries import KINDS, Dictionary, DictionaryConfig
from vitreous.kernels.split_weights import winners
from vitreous.lenses.disentangle_finding import Disentanglement, Examples
from vitreous.lenses.disentangle_work import UnitSplit, assemble
from vitreous.models.subject import Subject
from vitreous.subunits.layers import LinearLayer, find_layer

SITE, EXPANSION = "blocks.-1.mlp.out", 8
ROUNDS = 7  # of the layer by itself, variants in turn
LAYER_PASSES = 50  # at most, in each of them

Variant = Callable[[], AbstractContextManager[object]]


def backbone(small: bool, size: int, device: torch.device) -> Subject:
    import timm

    more = {"embed_dim": 96, "depth": 2, "num_heads": 3} if small else {}
    torch.manual_seed(0)
    module = timm.create_model("vit_base_patch14_dinov2", pretrained=False, img_size=size, num_classes=0, **more)
    for name, parameter in module.named_parameters():
        if name.endswith("gamma"):  # LayerScale starts at 1e-5, which would hide what a layer does
            nn.init.ones_(parameter)
    return vt.wrap(module.eval().to(device))


def random_dictionary(kind: str, layer: LinearLayer, device: torch.device) -> Dictionary:
    outputs, inputs = layer.whole.shape
    units = EXPANSION * outputs
    rng = torch.Generator().manual_seed(0)
    read = inputs if kind == "transcoder" else outputs
    atoms = torch.randn(units, outputs, generator=rng)
    atoms /= atoms.norm(dim=1, keepdim=True)
    into = atoms.T.clone() if read == outputs else torch.randn(read, units, generator=rng) / read**0.5
    weights = {"W_dec": atoms, "b_dec": torch.zeros(outputs), "W_enc": into, "b_enc": torch.zeros(units)}
    if KINDS[kind].architecture == "matching_pursuit":
        del weights["W_enc"], weights["b_enc"]
    if KINDS[kind].architecture == "jumprelu":
        weights["threshold"] = torch.full((units,), 0.1)
    config = DictionaryConfig(kind, read, outputs, units, KINDS[kind].default_k(units), kind != "transcoder")
    return Dictionary(config, weights).to(device)


@contextmanager
def hooked(layer: LinearLayer, dictionary: Dictionary) -> Iterator[None]:
    def hook(_: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        given = args[0] if dictionary.config.inputs != output.shape[-1] else output
        return dictionary.decode(dictionary.encode(given)).to(output.dtype)

    handle = layer.module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def random_split(layer: LinearLayer) -> Disentanglement:
    """Every unit in parts, four to twelve and eight on average, as the paper's rule makes them of random clusters."""
    rng = np.random.default_rng(0)
    weight, bias = layer.matrix()
    none = Examples(*(np.full((1, 1), -1, np.int64) for _ in range(2)), np.full((1, 1), np.nan, np.float32))
    splits = []
    for count in EXPANSION + (np.arange(len(weight)) % 9 - 4):
        representatives = rng.standard_normal((count, weight.shape[1])).astype(np.float32)
        tops = Examples(*(np.repeat(part, count, 0) for part in none))
        split = UnitSplit(
            int(count), np.ones(count, int), representatives, winners(representatives, 0.5), 0.5, 0.0, 0.0
        )
        splits.append(split._replace(top=none, subunit_top=tops))
    units = np.arange(len(weight))
    return assemble(layer, units, weight, bias, splits, {"layer": layer.fingerprint})


@contextmanager
def swapped(subject: Subject, layer: LinearLayer, other: nn.Module) -> Iterator[None]:
    path, name = layer.path.rsplit(".", 1)
    parent = subject.module.get_submodule(path)
    parent.register_module(name, other)
    try:
        yield
    finally:
        parent.register_module(name, layer.module)


def variants(subject: Subject, layer: LinearLayer, finding: Disentanglement, kinds: list[str]) -> dict[str, Variant]:
    """What stands in the model while it is timed, made when its turn comes: peak memory is of one at a time."""
    some = finding.subunits(0)

    @contextmanager
    def nothing() -> Iterator[None]:
        yield

    @contextmanager
    def looked(subunits: np.ndarray | None) -> Iterator[None]:
        with finding.applied(subject) as split, split.look(subunits):
            yield

    @contextmanager
    def two_stages() -> Iterator[None]:
        with swapped(subject, layer, finding.materialised(subject)):
            yield

    @contextmanager
    def dictionary(kind: str) -> Iterator[None]:
        with hooked(layer, random_dictionary(kind, layer, layer.whole.device)):
            yield

    found: dict[str, Variant] = {"backbone": nothing}
    found |= {kind: lambda kind=kind: dictionary(kind) for kind in kinds}
    found["ours, nobody looks"] = lambda: finding.applied(subject)
    found[f"ours, {len(some)} sub-units looked at"] = lambda: looked(some)
    found[f"ours, all {len(finding)} sub-units looked at"] = lambda: looked(None)
    found["ours, two stages"] = two_stages
    return found


# -- the clock


def allocated(run: Callable[[], object]) -> float:
    """MiB that a pass on cores has at its peak, as torch's allocator tells it."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        run()
    events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    steps = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return float(np.cumsum([0, *steps]).max()) / 2**20


def timed(module: nn.Module, x: Tensor, warmup: int, iterations: int) -> dict:
    """Milliseconds a pass, median and spread, and MiB at the peak of it: weights, what is given, and all between."""
    device = x.device

    def run() -> object:
        return module(x)

    for _ in range(warmup):
        run()
    if device.type != "cuda":
        spent = []
        for _ in range(iterations):
            begin = time.perf_counter()
            run()
            spent.append(1e3 * (time.perf_counter() - begin))
        held = sum(part.nbytes for part in (x, *module.parameters(), *module.buffers())) / 2**20
        row = {"ms": statistics.median(spent), "ms_range": [min(spent), max(spent)]}
        return row | {"peak_mib": held + allocated(run)}
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(iterations)]
    begin = time.perf_counter()
    for start, stop in events:
        start.record()
        run()
        stop.record()
    torch.cuda.synchronize(device)
    wall = 1e3 * (time.perf_counter() - begin) / iterations
    spent = [start.elapsed_time(stop) for start, stop in events]
    row = {"ms": statistics.median(spent), "ms_range": [min(spent), max(spent)], "ms_wall": wall}
    return row | {"peak_mib": torch.cuda.max_memory_allocated(device) / 2**20}


def whole_model(subject: Subject, x: Tensor, chosen: dict[str, Variant], args: argparse.Namespace, found: dict) -> None:
    rows = found.setdefault("rows", [])
    with torch.inference_mode():
        before = output_of(subject, x)
        for name, variant in chosen.items():
            if name in {row["variant"] for row in rows}:
                continue
            held = held_mib(x.device)
            with variant():
                module = torch.compile(subject.module) if args.compile else subject.module
                row = {"variant": name} | ({} if held is None else {"held_mib": held})
                row |= timed(module, x, args.warmup, args.iterations)
                row |= against(before, output_of(subject, x))
            if args.compile:
                torch.compiler.reset()
            row |= {"times_backbone": row["ms"] / (rows[0]["ms"] if rows else row["ms"])}
            rows.append(row)
            print(told(row), flush=True)
            write(found, args.json)


def output_of(subject: Subject, x: Tensor) -> Tensor:
    """With memory of its own: the class token is a view that keeps all tokens, which the next peak would count."""
    return subject.module(x).clone()


def against(before: Tensor, after: Tensor) -> dict:
    return {"same_bits": torch.equal(before, after), "largest_difference": float((before - after).abs().max())}


def held_mib(device: torch.device) -> float | None:
    """What a GPU still holds when all that nobody needs is gone."""
    gc.collect()
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated(device) / 2**20


def write(found: dict, path: Path | None) -> None:
    if path:
        path.write_text(json.dumps(found, indent=1) + "\n")


def begun(found: dict, path: Path | None) -> dict:
    """What an earlier run with the same settings has left in the file, or nothing."""
    there = json.loads(path.read_text()) if path and path.exists() else {}
    return found | there if all(there.get(name) == value for name, value in found.items()) else found


def layer_alone(
    subject: Subject, layer: LinearLayer, x: Tensor, chosen: dict[str, Variant], iterations: int
) -> list[dict]:
    """The layer by itself, variants in turn so that a change of clocks meets all of them alike."""
    rows: dict[str, list[dict]] = {name: [] for name in chosen}
    with torch.inference_mode():
        for _ in range(ROUNDS):
            for name, variant in chosen.items():
                held_mib(x.device)
                with variant():
                    module = subject.module.get_submodule(layer.path)
                    rows[name].append(timed(module, x, 3, iterations))
    found: list[dict] = []
    for name, runs in rows.items():
        row = {"variant": name, "ms": statistics.median(run["ms"] for run in runs)}
        row["peak_mib"] = max(run["peak_mib"] for run in runs)
        first = found[0] if found else row
        row["times_layer"] = row["ms"] / first["ms"]
        row["memory_times_layer"] = row["peak_mib"] / first["peak_mib"]
        found.append(row)
        print("layer alone: " + told(row), flush=True)
    return found


def nobody_looks(layer: LinearLayer, finding: Disentanglement, subject: Subject, x: Tensor, pairs: int) -> dict:
    """The layer with sub-units applied against the layer without, one pass each in turn, the order drawn by lot.

    In pairs, because what ran before a pass changes it by more than what is to be seen.
    """
    rng = np.random.default_rng(0)
    spent = np.empty((pairs, 2))
    with torch.inference_mode(), finding.applied(subject) as split:
        for pair in range(-3, pairs):
            for applied in rng.permutation(2):
                split.kept = bool(applied)
                split.settle()  # puts the hook in or takes it out
                assert bool(layer.module._forward_hooks) == bool(applied)
                begin = time.perf_counter()
                layer.module(x)
                if x.device.type == "cuda":
                    torch.cuda.synchronize(x.device)
                spent[max(pair, 0), applied] = time.perf_counter() - begin
        split.kept = True
        split.settle()
    ratio = spent[:, 1] / spent[:, 0]
    drawn = np.median(rng.choice(ratio, (1000, pairs)), 1)
    row = {"rows": x.shape[0] * x.shape[1], "pairs": pairs, "ms": 1e3 * float(np.median(spent[:, 0]))}
    row |= {"microseconds_more": 1e6 * float(np.median(spent[:, 1] - spent[:, 0]))}
    row |= {"times_layer": float(np.median(ratio)), "interval": np.quantile(drawn, [0.025, 0.975]).tolist()}
    print("nobody looks, in pairs: " + ", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    return row


def told(row: dict) -> str:
    words = [f"{row['variant']:36} {row['ms']:9.2f} ms"]
    words += [f"{name} {value:.4g}" for name, value in row.items() if name not in ("variant", "ms", "ms_range")]
    return "  ".join(words)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--size", type=int, default=224, help="pixels; the paper's memory fits 224, timm's own is 518")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=300, help="of passes, to see what an applied layer costs")
    parser.add_argument("--paper", action="store_true", help="100 passes to warm up and 500 timed ones")
    parser.add_argument("--precision", default="highest", choices=("highest", "high", "medium"), help="of products")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of dictionaries, or nothing")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--layer-only", action="store_true", help="not the whole model")
    parser.add_argument("--small", action="store_true", help="a rehearsal")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.paper:
        args.warmup, args.iterations = 100, 500
    if args.small:
        args.batch, args.size, args.warmup, args.iterations, args.pairs = 4, 70, 1, 3, 10
    torch.set_float32_matmul_precision(args.precision)
    device = torch.device(args.device)
    subject = backbone(args.small, args.size, device)
    layer = find_layer(subject, SITE)
    x = torch.randn(args.batch, 3, args.size, args.size, generator=torch.Generator().manual_seed(0)).to(device)
    finding = random_split(layer)
    chosen = variants(subject, layer, finding, [kind for kind in args.kinds.split(",") if kind])
    found: dict = {name: vars(args)[name] for name in ("batch", "size", "warmup", "iterations", "precision", "compile")}
    found["machine"] = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    found["torch"] = torch.__version__
    found["finding_mib"] = sum(part.nbytes for part in vars(finding).values() if isinstance(part, np.ndarray)) / 2**20
    found = begun(found, args.json)
    if "nobody_looks" not in found:
        tokens = (args.size // 14) ** 2 + 1
        q = torch.randn(args.batch, tokens, layer.whole.shape[1], device=device)
        ours = {name: variant for name, variant in chosen.items() if name not in KINDS}
        found["layer"] = layer_alone(subject, layer, q, ours, min(args.iterations, LAYER_PASSES))
        parts = (q, q[:1], q[:1, :1])
        found["nobody_looks"] = [nobody_looks(layer, finding, subject, part, args.pairs) for part in parts]
        del q, parts
        write(found, args.json)
    if not args.layer_only:
        whole_model(subject, x, chosen, args, found)


if __name__ == "__main__":
    main()
