"""Every kernel and lens against its peers, in one run: the table benchmarks/RESULTS.md, with numbers in JSON beside it.

    make bench                                       all of it on the cores of this machine, about a quarter of an hour
    make bench-gpu                                   on an accelerator, with shares of its measured rates
    python benchmarks/run.py --small --out DIR       everything at tiny size, in a minute or two
    python benchmarks/run.py --gpu --small --out DIR a GPU's code at tiny size, on cores where there is none
    python benchmarks/run.py --only ncut --out DIR   some of the scripts

Each script named in SCRIPTS offers CASES, and some GROWTH (`turns.py`). Ways take turns within a case, after one call
each that does not count; a ratio is of neighbours, and the table has its median and range. Memory is the peak above
the ready input in a process of its own. Growth is timed apart, without peers.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from turns import Case, grown, in_turn, machine, memory, rates, spread

SCRIPTS = ("structure", "disentangle", "ncut", "tokens", "recording", "monosemanticity", "tcav")
HERE = Path(__file__).parent


def measured(script: str, case: Case, rounds: int, device: str | None, small: bool) -> dict[str, Any]:
    size = case.small if small else case.on_gpu if device else case.size
    print(f"{case.name}: {case.said(size)}", flush=True)
    ways = case.there(size, device)
    found = {name: way() for name, way in ways.items()}  # also compiles
    worth = case.quality(size, found)
    del found
    taken = in_turn(ways, rounds, device)
    ours = next(iter(ways))
    held = {} if device else memory(script, case, ways, size)
    rows = {}
    for name in ways:
        row: dict[str, Any] = {"seconds": statistics.median(clock for clock, _ in taken[name])}
        row |= {"ratio": spread(taken[name], taken[ours])} if name != ours else {}
        row["ours"] = name == ours or name in case.also_ours
        rows[name] = row | {"memory_mb": held.get(name), "worth": worth.get(name, "")}
        print(f"    {name}: {row['seconds']:.3f} s, {ratio_said(row)}", flush=True)
    least = {} if small else case.work(size)
    return {"said": case.said(size), "ways": rows, "missing": case.missing, "work": least, "note": case.note}


def ratio_said(row: dict[str, Any]) -> str:
    if "ratio" not in row:
        return "1"
    return "{median:.3g} ({low:.3g} to {high:.3g})".format(**row["ratio"])


# -- the table


def share(case: dict[str, Any], rate: dict[str, float]) -> str:
    """Of what the machine was seen to do, what ours does: operations in float32, bytes of a copy."""
    taken = next(iter(case["ways"].values()))["seconds"]
    parts = (
        [f"{100 * case['work']['flop'] / taken / rate['float32_flop']:.0f} % of products"]
        if "flop" in case["work"]
        else []
    )
    if "bytes" in case["work"]:
        parts.append(f"{100 * case['work']['bytes'] / taken / rate['bytes']:.1f} % of a copy")
    return ", ".join(parts)


def verdict(row: dict[str, Any]) -> str:
    if row["ours"]:
        return "ours"
    ratio = row["ratio"]
    return "ours faster" if ratio["low"] > 1 else "**peer faster**" if ratio["high"] < 1 else "no difference"


def case_lines(name: str, case: dict[str, Any], rate: dict[str, float]) -> list[str]:
    reached = share(case, rate) if case["work"] else ""
    lines = ["", f"### {name}: {case['said']}", ""]
    lines += ["| way | seconds | times as long as ours (range) | | peak memory | worth |", "|---|---|---|---|---|---|"]
    for way, row in case["ways"].items():
        held = "-" if row["memory_mb"] is None else f"{row['memory_mb']:.0f} MB"
        lines.append(f"| {way} | {row['seconds']:.3g} | {ratio_said(row)} | {verdict(row)} | {held} | {row['worth']} |")
    lines += [f"| {peer} | not installed here (`{package}`) | | | | |" for peer, package in case["missing"].items()]
    lines += ["", f"Ours reaches {reached}."] if reached else []
    return lines + (["", case["note"][0].upper() + case["note"][1:] + "."] if case["note"] else [])


def growth_lines(growth: dict[str, dict[str, Any]]) -> list[str]:
    if not growth:
        return []
    lines = ["", "## Growth", "", "![time against size](growth.png)", ""]
    lines += [
        "| what | sizes | seconds | exponent | of the last step | of processor time | at most |",
        "|" + "---|" * 7,
    ]
    for name, found in growth.items():
        sizes, times = " ".join(f"{n:,}" for n in found["sizes"]), " ".join(f"{t:.3g}" for t in found["seconds"])
        lines.append(
            f"| {name} | {sizes} {found['counted']} | {times} | {found['exponent']:.2f} | {found['last_step']:.2f} |"
            f" {found['processor_exponent']:.2f} |"
            f" {found['at_most']:g} |"
        )
    return lines


def table(found: dict[str, Any]) -> str:
    about, rate = found["machine"], found["rates"]
    where = about.get("gpu", f"{about['cores']} cores of {about['processor']}")
    lines = [
        "# Measured against peers",
        "",
        f"`{found['command']}` on {found['date']}, {found['rounds']} rounds in turn, seed 0, planted and random data.",
        f"{where}; {about['threads']} threads, torch {about['torch']}, numpy {about['numpy']},"
        f" Python {about['python']}."
        f" Load of the machine {about['load']:.1f} at the start and {found['load_after']:.1f} at the end;"
        f" all of it took {found['seconds'] / 60:.1f} minutes.",
        f"Seen on this machine: products of {rate['float32_flop'] / 1e9:.0f} GFLOP/s in float32 and"
        f" {rate['bfloat16_flop'] / 1e9:.0f} in bfloat16, a copy at {rate['bytes'] / 1e9:.1f} GB/s (read and written).",
        "",
        "Above 1 ours is faster. Ranges are over rounds; where a range holds 1 there is no difference to speak of.",
    ]
    for name, case in found["cases"].items():
        lines += case_lines(name, case, rate)
    return "\n".join(lines + growth_lines(found["growth"])) + "\n"


def plot(growth: dict[str, dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure((11, 2.2 * -(-len(growth) // 3) + 0.8), layout="constrained")
    axes = figure.subplots(-(-len(growth) // 3), 3, squeeze=False).ravel()
    for ax in axes[len(growth) :]:
        ax.axis("off")
    for ax, (name, found) in zip(axes, growth.items(), strict=False):
        n, t, p = found["sizes"], found["seconds"], found["exponent"]
        ax.loglog(n, t, "o", color="teal")
        line = np.exp(np.log(t).mean() + p * (np.log(n) - np.log(n).mean()))
        ax.loglog(n, line, color="teal")
        ax.set_title(f"{name}: $n^{{{p:.2f}}}$", fontsize=10)
        ax.set_xlabel(found["counted"], fontsize=9)
        ax.set_xticks(n, [f"{k:,}" for k in n], fontsize=8)
        ax.minorticks_off()
        ax.set_ylabel("seconds", fontsize=9)
    figure.savefig(path, dpi=110)


# -- the run


def write(out: Path, found: dict[str, Any], begun: float) -> None:
    found |= {"seconds": time.perf_counter() - begun, "load_after": os.getloadavg()[0]}
    (out / "RESULTS.json").write_text(json.dumps(found, indent=1) + "\n")
    (out / "RESULTS.md").write_text(table(found))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpu", action="store_true", help="on an accelerator")
    parser.add_argument("--small", action="store_true", help="a rehearsal at tiny size")
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, default=list(SCRIPTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--threads", type=int, help="of all libraries (default: theirs); 1 is steadier beside other work"
    )
    parser.add_argument("--out", type=Path, help="folder for RESULTS.md, RESULTS.json and growth.png")
    args = parser.parse_args()
    if args.small and args.out is None:
        parser.error("a rehearsal is no result: --small wants --out")
    if args.out is None and args.only != list(SCRIPTS):
        parser.error("a part is no result: --only wants --out")
    if args.gpu and not args.small and not torch.cuda.is_available():
        parser.error("no accelerator here: PyTorch sees no CUDA device. `--gpu --small --out DIR` rehearses on cores")
    return args


def main() -> None:
    args = parse()
    if args.threads and os.environ.get("OMP_NUM_THREADS") != str(args.threads):  # read when libraries are loaded
        names = ("OMP", "MKL", "OPENBLAS", "NUMBA")
        os.environ |= {f"{name}_NUM_THREADS": str(args.threads) for name in names}
        os.execv(sys.executable, [sys.executable, *sys.argv])
    device = None if not args.gpu else "cuda" if torch.cuda.is_available() else "cpu"
    begun, date = time.perf_counter(), time.strftime("%Y-%m-%d")
    command = f"python benchmarks/run.py{' --gpu' * args.gpu}{' --small' * args.small} --rounds {args.rounds}"
    command += f" --threads {args.threads}" if args.threads else ""
    command += f" --only {' '.join(args.only)}" if args.only != list(SCRIPTS) else ""
    found: dict[str, Any] = {"command": command, "date": date, "rounds": args.rounds, "machine": machine(device)}
    found |= {"rates": rates(device, args.small), "cases": {}, "growth": {}}
    out = args.out or (HERE / "results" / "gpu" if args.gpu else HERE)
    out.mkdir(parents=True, exist_ok=True)
    for script in args.only:
        module = importlib.import_module(script)
        for case in module.CASES:
            if device is None or case.on_gpu is not None:
                found["cases"][case.name] = measured(script, case, args.rounds, device, args.small)
                write(out, found, begun)  # what is measured is kept, whatever becomes of the rest
        for growth in vars(module).get("GROWTH", ()) if device is None else ():
            found["growth"][growth.name] = grown(growth, args.small, min(3, args.rounds))
            print(f"{growth.name}: exponent {found['growth'][growth.name]['exponent']:.2f}", flush=True)
    write(out, found, begun)
    if found["growth"]:
        plot(found["growth"], out / "growth.png")
    print(f"{out / 'RESULTS.md'}: {found['seconds'] / 60:.1f} minutes")


if __name__ == "__main__":
    main()
