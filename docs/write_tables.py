"""Writes what the documentation can learn from running code: the laws of every family, commands, public names."""

from __future__ import annotations

import inspect
import json
import re
import sys
import textwrap
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "tests" / "conformance"))


def put(page: str, name: str, text: str) -> None:
    """Replaces what stands between the markers of the page."""
    path = DOCS / page
    pattern = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    made, places = pattern.subn(lambda m: f"{m[1]}{text}\n{m[2]}", path.read_text())
    if places != 1:
        raise SystemExit(f"{page} has {places} places for the table {name!r}, not one")
    path.write_text(made)


def families_table() -> str:
    from zoo import ZOO, build

    import vitreous as vt

    columns = "model, family, output bits, hooks left, residual identity, tokens, attentions, opened, gradients"
    lines = [f"| {columns.replace(', ', ' | ')} |", "|" + " --- |" * 9]
    for variant, (family, *_) in ZOO.items():
        subject = vt.wrap(build(variant))
        laws = [_cell(law) for law in vt.check_laws(subject)]
        if not subject.family.attention:
            laws[4:] = ["none", "", laws[4]]
        blocks = f" of {subject.depth}"
        laws[6] += blocks
        laws[4] += blocks if subject.family.attention else ""
        lines.append(f"| {variant} | {family} | {' | '.join(laws)} |")
    return "\n".join(lines)


def _cell(law) -> str:
    value = (
        f"{law.value:.0e}" if isinstance(law.value, float) and law.value else str(law.value).replace("0.0", "0 exactly")
    )
    return value.replace("bitwise", "the same") if law.holds else f"**broken: {value}**"


def probes_table() -> str:
    """What the bundled models know, beside the controls, from the results that training left."""
    found = json.loads((DOCS.parent / "studies" / "results" / "bundled_models.json").read_text())
    rows = {name: model["probes"] for name, model in found["models"].items()}
    rows |= {"random weights": found["controls"]["random weights"], "pixels": found["controls"]["pixels"]}
    columns = ("main shape, linear", "patch shape, last", "patch colour, last", "patch texture, last")
    lines = ["| | main shape | patch shape | patch colour | patch texture |", "|" + " --- |" * 5]
    for name, scores in rows.items():
        cells = [f"{scores.get(c, scores.get(c.replace('last', 'pixels'))):.2f}" for c in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    text = rows["scenes-text"]
    said = [f"{name} {text[f'{name}, area under the curve']:.2f}" for name in ("shape word", "texture word")]
    recall = text["caption of picture, recall at 1"]
    said.append(f"colour and shape together {text['colour and shape, area under the curve']:.2f}")
    return "\n".join(lines) + (
        f"\n\n`scenes-text` by words alone, area under the curve: {', '.join(said)}. The right caption of 500 is found "
        f"for {recall:.0%} of the pictures."
    )


def scale() -> dict:
    return json.loads((DOCS.parent / "studies" / "results" / "scale.json").read_text())


def plan_table() -> str:
    """Hours of one node, as if it did all of a stage."""
    models = scale()["plan"]["models"]
    rows = {
        "residual streams of all tokens": lambda m: f"{m['bytes'] / 1e12:,.0f} TB",
        "forward pass": lambda m: f"{m['forward_h']:,.1f} h",
        "recording all of it, by a process a GPU": lambda m: f"{m['record_h']:,.0f} h",
        "writing all of it to storage": lambda m: f"{m['write_h']:,.0f} h",
        "residual streams, sub-sampled": lambda m: f"{m['bytes_few'] / 1e12:,.1f} TB",
        "writing the sub-sample": lambda m: f"{m['write_few_h']:,.1f} h",
        "units in all blocks": lambda m: f"{m['units']:,}",
        "splitting all units, on cores": lambda m: f"{m['split_h']:,.1f} h",
        "splitting all units, on GPUs": lambda m: f"{m['split_gpu_h']:,.1f} h",
        "structure of all units, on cores": lambda m: f"{m['structure_h']:,.2f} h",
        "structure, every token's units apart": lambda m: f"{m['structure_by_token_h']:,.1f} h",
        "ncut of all tokens in all blocks, on cores": lambda m: f"{m['ncut_h']:,.0f} h",
    }
    lines = [f"| one node, one stage | {' | '.join(models)} |", "|" + " --- |" * (1 + len(models))]
    return "\n".join(lines + [f"| {said} | {' | '.join(map(cell, models.values()))} |" for said, cell in rows.items()])


def simulation_table() -> str:
    found = scale()["simulate"]
    lines = ["| workers | pieces | even | uneven | with deaths | died |", "|" + " --- |" * 6]
    for count, runs in found["runs"].items():
        shares = " | ".join(f"{run['share_of_ideal']:.0%} of {run['ideal_s']:.1f} s" for run in runs.values())
        lines.append(f"| {count} | {runs['even']['pieces']} | {shares} | {runs['deaths']['died']} |")
    return "\n".join(lines) + (
        f"\n\nWith nothing to do in them one process hands out and takes back {found['pieces_a_second']:,.0f} pieces"
        f" a second (to {next(iter(found['runs']))} workers; not tried with more)."
    )


def subsample_table() -> str:
    found = scale()["subsample"]
    lines = ["| samples | clear copies: clusters, ARI | some about the limit: clusters, ARI |", "| --- | --- | --- |"]
    for n in found["clear"]:
        cells = [f"{found[kind][n]['clusters']}, {found[kind][n]['ari']:.3f}" for kind in ("clear", "doubtful")]
        lines.append(f"| {int(n):,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def command_help() -> str:
    """Help of every command, as plain text."""
    import typer

    from vitreous.cli import app

    root = typer.main.get_command(app)
    parts = []
    for name in ("", *root.commands):
        command = root.commands[name] if name else root
        title = f"vitreous {name}".strip()
        rows = [_option(p) for p in command.params if name or p.name != "help"]
        parts.append(f"## `{title}`\n\n{command.help}\n\n| | |\n| --- | --- |\n" + "\n".join(rows))
    return "\n\n".join(parts)


def _option(parameter) -> str:
    names = parameter.metavar or parameter.name.upper() if parameter.param_type_name == "argument" else ""
    names = names or ", ".join([*parameter.opts, *parameter.secondary_opts])
    default = parameter.default
    shown = f" Default: `{default}`." if default is not None and default is not False and not callable(default) else ""
    return f"| `{names}` | {parameter.help or ''}{shown} |"


def public_names() -> str:
    """Every public name with its signature and the first sentences of what it says of itself, module by module."""
    import vitreous as vt

    rooms: dict[str, list[str]] = {}
    for name in sorted(vt.__all__, key=str.lower):
        rooms.setdefault(vt._PUBLIC[name], []).append(name)
    parts = []
    for module in sorted(rooms):
        parts.append(f"## `vitreous.{module}`")
        parts += [_entry(name, vt.__getattr__(name)) for name in rooms[module]]
    return "\n\n".join(parts)


def _entry(name: str, value) -> str:
    said = inspect.cleandoc(value.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    kind = "class " if inspect.isclass(value) else ""
    if inspect.isclass(value) and issubclass(value, Exception):
        return f"### `{name}`\n\n{said}"
    arguments = [p for n, p in inspect.signature(value).parameters.items() if not n.startswith("_")]
    shown = [re.sub(r"<function (\w+) at \w+>", r"\1", str(p.replace(annotation=p.empty))) for p in arguments]
    star = next((k for k, p in enumerate(arguments) if p.kind is p.KEYWORD_ONLY), None)
    if star is not None:
        shown.insert(star, "*")
    call = f"{kind}vt.{name}({', '.join(shown)})"
    lines = textwrap.wrap(call, 100, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return "\n\n".join((f"### `{name}`", "```text\n" + "\n".join(lines) + "\n```", said))


if __name__ == "__main__":
    put("families.md", "families", families_table())
    put("cli.md", "commands", command_help())
    put("api.md", "names", public_names())
    put("bundled.md", "probes", probes_table())
    put("scale.md", "plan", plan_table())
    put("scale.md", "simulation", simulation_table())
    put("scale.md", "subsample", subsample_table())
