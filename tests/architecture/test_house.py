"""What keeps the house clear: the tail of sizes, the import graph, and one place to register a thing."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "vitreous"
FILES = sorted(SOURCE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text()) for path in FILES}

LONGEST = {ast.FunctionDef: 60, ast.AsyncFunctionDef: 60, ast.ClassDef: 250}
LONGEST_FILE = 400
PROBES_PER_1000_LINES = 2

#: Rooms from the cellar up. A module imports from its own floor and from lower ones only.
FLOORS = (
    {"axes", "checks", "errors"},
    {
        "engine",
        "finding",
        "in_order",
        "memory",
        "mirrors",
        "places",
        "preprocess",
        "progress",
        "provenance",
        "notes",
        "kernels",
        "evidence",
    },
    {"images", "models", "responses", "texts"},
    {"datasets", "scenery", "attention", "hooks"},
    {"doctor", "familiar", "laws", "store"},
    {"subjects", "recording", "subunits"},
    {
        "baselines",
        "dictionary_comparison",
        "disentangled",
        "estimators",
        "judges",
        "labels",
        "lenses",
        "steering",
        "towers",
        "training",
    },
    {"examination"},
    {"auditing", "cards"},
    {"views"},
    {"render"},
    {"report"},
    {"pages", "site"},
    {"demo"},
    {"explorer"},
    {"cli"},
    {"__main__"},
)


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path, everywhere: bool = True) -> set[str]:
    """Our own modules that this file imports; also inside functions, unless told otherwise. Types do not count."""
    tree = TREES[path]
    guarded = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree) if everywhere else tree.body:
        if node in guarded:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vitreous"):
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("vitreous.")}
    return found & {name_of(p) for p in FILES}


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_functions_classes_and_files_stay_readable():
    long = []
    for path, tree in TREES.items():
        if (lines := len(path.read_text().splitlines())) > LONGEST_FILE:
            long.append(f"{path.name}: {lines} lines")
        for node in ast.walk(tree):
            if type(node) in LONGEST and (length := node.end_lineno - node.lineno + 1) > LONGEST[type(node)]:
                long.append(f"{path.name}:{node.lineno} {node.name}: {length} lines")
    assert not long, long


def test_code_does_not_ask_what_an_object_happens_to_have():
    asked = sum(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("hasattr", "getattr")
        for tree in TREES.values()
        for node in ast.walk(tree)
    )
    lines = sum(len(path.read_text().splitlines()) for path in FILES)
    assert asked <= PROBES_PER_1000_LINES * lines / 1000, f"{asked} in {lines} lines"


def test_every_room_stands_on_a_floor():
    rooms = {room(name_of(path)) for path in FILES} - {""}
    assert not rooms - set().union(*FLOORS), rooms - set().union(*FLOORS)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_point_one_way(path):
    floor = {name: i for i, names in enumerate(FLOORS) for name in names}
    mine = room(name_of(path))
    if not mine:
        return  # the package itself only names what is public
    upward = [m for m in imports(path) if room(m) and floor[room(m)] > floor[mine]]
    assert not upward, f"{name_of(path)} imports {upward} from above"


def test_there_is_no_import_cycle():
    graph = {name_of(path): imports(path) - {name_of(path)} for path in FILES}
    done: set[str] = set()

    def walk(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail, name])
        if name not in done:
            for other in graph[name]:
                walk(other, (*trail, name))
            done.add(name)

    for name in graph:
        walk(name, ())


def test_there_is_no_drawer():
    names = {p.stem for p in FILES} | {p.name for p in SOURCE.rglob("*") if p.is_dir()}
    assert not names & {"utils", "util", "helpers", "common", "misc", "tools"}


def test_the_source_package_holds_what_tests_read():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["sdist"]
    asked = {"tests"}
    for path in (ROOT / "tests").rglob("*.py"):
        asked |= set(re.findall(r'ROOT / "(\w[\w.]*)', path.read_text()))
    there = {f"/{name}" for name in asked - {"pyproject.toml"} if (ROOT / name).exists()}
    assert there <= set(settings["include"]), there - set(settings["include"])


def test_importing_does_no_work():
    script = (
        "import sys, random; state = random.getstate(); import vitreous as vt;"
        "heavy = {'torch', 'numpy', 'PIL', 'timm', 'transformers', 'matplotlib', 'typer'} & set(sys.modules);"
        "assert not heavy, heavy; assert random.getstate() == state; assert 'load' in dir(vt)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_public_names_are_there_and_are_no_modules():
    script = (
        "import types, importlib, vitreous as vt;"
        "[importlib.import_module(f'vitreous.{m}') for m in set(vt._PUBLIC.values())];"
        "wrong = [n for n in vt.__all__ if isinstance(getattr(vt, n), types.ModuleType)]; assert not wrong, wrong"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_type_checkers_are_told_the_same_public_names():
    tree = TREES[SOURCE / "__init__.py"]
    (guarded,) = (node for node in tree.body if isinstance(node, ast.If))
    told = {alias.asname: node.module for node in guarded.body for alias in node.names}
    table = next(n for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "_PUBLIC")
    assert told == {name: f"vitreous.{module}" for name, module in ast.literal_eval(table.value).items()}


def test_the_tree_in_the_guide_is_the_tree():
    shown = [
        line.split()[0] for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines() if line.startswith("      ")
    ]
    real = {p.name + ("/" if p.is_dir() else "") for p in SOURCE.iterdir() if not p.name.startswith(("_", "py."))}
    assert {name for name in shown if not name.startswith("_")} == real
