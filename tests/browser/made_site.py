"""A site made up to be hard on the pages: names that are markup, forty sub-units, missing parts, one unit or many."""

from __future__ import annotations

import base64
import json
import shutil
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

NASTY = '<img src=x onerror="window.hurt=1">&"\'</script><b>' + "verylongword" * 9
SHEET = 16
COLUMNS = (
    "id", "model", "site", "block", "unit", "label", "score", "ms", "control",
    "subunits", "cluster", "dead", "top", "heat", "sublabels",
)  # fmt: skip
PANELS = """<section id="one"><h2>One</h2><figure class="panel prose"><p>Panels from Python.</p></figure></section>
<section id="two"><h2>Two</h2></section>"""


@dataclass(frozen=True)
class Plan:
    units: int = 60
    models: int = 2
    pictures: int = 300
    points: int = 4000
    rows: int = 8
    seed: int = 0
    nasty: bool = True


def text(values: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def put(out: Path, key: str, value: object) -> None:
    path = out / "data" / f"{key}.js"
    path.parent.mkdir(parents=True, exist_ok=True)
    said = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    path.write_text(f"vitreous.put({json.dumps(key)}, {said});\n", encoding="utf-8")


def picture(rng: np.random.Generator) -> Image.Image:
    ground = tuple(int(v) for v in rng.integers(120, 235, 3))
    image = Image.new("RGB", (192, 192), ground)
    draw = ImageDraw.Draw(image)
    for _ in range(3):
        x, y, side = (int(v) for v in rng.integers((0, 0, 30), (150, 150, 80)))
        colour = tuple(int(v) for v in rng.integers(0, 255, 3))
        (draw.ellipse if rng.random() < 0.5 else draw.rectangle)((x, y, x + side, y + side), fill=colour)
    return image


def pictures(out: Path, plan: Plan, rng: np.random.Generator) -> dict:
    (out / "sprites").mkdir(parents=True)
    (out / "pictures").mkdir()
    files, sheets = [], []
    for first in range(0, plan.pictures, SHEET * SHEET):
        held = range(first, min(plan.pictures, first + SHEET * SHEET))
        sheet = Image.new("RGB", (96 * SHEET, 96 * -(-len(held) // SHEET)))
        for place, k in enumerate(held):
            image = picture(rng)
            files.append(f"pictures/{k:04}.png")
            image.save(out / files[-1])
            sheet.paste(image.resize((96, 96)), (96 * (place % SHEET), 96 * (place // SHEET)))
        name = f"sprites/pictures-{len(sheets)}.jpg"
        sheet.save(out / name, quality=80)
        raw = base64.b64encode((out / name).read_bytes()).decode()
        put(out, f"sprite/{len(sheets)}", f"data:image/jpeg;base64,{raw}")
        sheets.append(name)
    names = [f"scene {k:04}" for k in range(plan.pictures)]
    if plan.nasty:
        names[0] = NASTY
    sheet_said = {"size": 96, "columns": SHEET, "rows": SHEET, "files": sheets}
    return {"count": plan.pictures, "names": names, "files": files, "sheet": sheet_said}


def heat(plan: Plan, rng: np.random.Generator) -> str:
    y, x = np.mgrid[: plan.rows, : plan.rows]
    cy, cx = rng.uniform(1, plan.rows - 2, 2)
    bump = np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / 3)
    return text((255 * bump / bump.max()).astype(np.uint8))


def tiles(plan: Plan, rng: np.random.Generator, n: int) -> list[dict]:
    return [
        {
            "picture": int(rng.integers(plan.pictures)),
            "token": int(rng.integers(1, 1 + plan.rows**2)),
            "value": float(rng.uniform(1, 9)),
            "heat": heat(plan, rng),
        }
        for _ in range(n)
    ]


def sub_units(plan: Plan, rng: np.random.Generator, unit_id: str, k: int) -> dict:
    subs = [
        {
            "id": f"{unit_id}.{i}",
            "size": int(rng.integers(5, 900)),
            "inputs": float(rng.random()),
            "dead": k > 5 and i == 4,
            "label": None if i % 3 == 2 else (NASTY if plan.nasty and i == 1 else f"thing {i}"),
            "ms": float(rng.uniform(0.3, 0.9)),
            "control": float(rng.uniform(0.2, 0.4)),
            "tiles": tiles(plan, rng, 6),
            "duplicates": [f"{unit_id}.0"] if i == 3 else [],
        }
        for i in range(k)
    ]
    return {"k": k, "rho": 0.93, "noise": 0.07, "sentence": f"It comes apart into {k}.", "subunits": subs}


def align(plan: Plan, rng: np.random.Generator, models: list[str]) -> dict:
    paths = []
    for model in models:
        steps = rng.normal(0, 0.4, (12, 2)).cumsum(0)
        colours = ["#" + rng.integers(40, 230, 3).astype(np.uint8).tobytes().hex() for _ in range(12)]
        layers = [f"block {b}" for b in range(12)]
        paths.append(
            {"model": model, "layers": layers, "x": steps[:, 0].tolist(), "y": steps[:, 1].tolist(), "colours": colours}
        )
    points = [
        {"picture": int(rng.integers(plan.pictures)), "token": 5 + i, "x": float(x), "y": float(y), "colour": "#c86432"}
        for i, (x, y) in enumerate(rng.normal(0, 0.5, (14, 2)))
    ]
    return {"sentence": "Its patches move from texture to thing.", "paths": paths, "points": points}


def structure(rng: np.random.Generator, unit: int) -> dict:
    mates = [
        {
            "layer": int(rng.integers(2, 11)),
            "block": 3,
            "token": None,
            "channel": int(rng.integers(500)),
            "distance": float(d),
            "id": None,
        }
        for d in np.sort(rng.random(14))
    ]
    anchor = {"layer": 6, "block": 6, "token": None, "channel": unit, "id": None}
    said = "It is one of 15 units over nine layers that answer alike."
    return {
        "cluster": 3,
        "size": 15,
        "anchor": anchor,
        "mates": mates,
        "inefficient": True,
        "span": [2, 10],
        "sentence": said,
    }


def card(
    plan: Plan,
    rng: np.random.Generator,
    unit_id: str,
    site: str,
    block: int,
    unit: int,
    k: int,
    label: str | None,
    models: list[str],
) -> dict:
    counts = (4000 * np.exp(-(np.linspace(-2, 4, 36) ** 2))).astype(int) + rng.integers(0, 6, 36)
    bare = plan.nasty and unit == 3
    keys = ("lens", "claim", "value", "control", "low", "high", "note")
    rows = (
        (None, "Pictures it answers to are alike (MS-Score)", 0.71, 0.31, 0.66, 0.75, "control: pictures at random"),
        ("disentangle", "Sub-units are more alike than the whole", 0.84, 0.71, 0.8, 0.88, None),
        ("tokens", "Without these pixels the answer falls", 0.12, 0.19, None, None, "no better: said plainly"),
        ("structure", "The cluster comes back with other pictures", None, None, None, None, None),
    )
    evidence = [dict(zip(keys, row, strict=True)) for row in rows]
    missing = [
        {
            "lens": "tokens",
            "why": "Its tokens were not examined.",
            "how": "vitreous examine MODEL --out RUN",
        }
    ]
    return {
        "id": unit_id,
        "model": unit_id.rsplit("/", 2)[0],
        "site": site,
        "block": block,
        "unit": unit,
        "dead": unit == 5,
        "claim": "It answers to round teal things on light ground, and to little else.",
        "label": None
        if label is None
        else {"text": label, "score": 0.41, "chance": 0.12, "others": [["blue", 0.33], ["circle", 0.3]]},
        "activation": {
            "edges": np.linspace(-2, 8, 37).tolist(),
            "counts": counts.tolist(),
            "mean": 0.1,
            "std": 1.2,
            "positive": 0.32,
        },
        "rows": [
            {"title": "Strongest", "low": 6.1, "high": 7.9, "tiles": tiles(plan, rng, 12)},
            {"title": "99th percentile", "low": 4.0, "high": 6.1, "tiles": tiles(plan, rng, 8)},
            {"title": "Median", "low": -0.1, "high": 0.1, "tiles": [] if bare else tiles(plan, rng, 8)},
        ],
        "structure": None if bare else structure(rng, unit),
        "disentangle": sub_units(plan, rng, unit_id, k),
        "align": None if bare else align(plan, rng, models),
        "tokens": None
        if bare
        else {"sentence": "The pixels behind its strongest tokens.", "block": 11, "tiles": tiles(plan, rng, 8)},
        "similar": [{"id": unit_id, "r": 0.81, "label": label}, {"id": unit_id, "r": 0.62, "label": None}],
        "evidence": evidence,
        "code": f'import vitreous as vt\n\nrun = vt.open_run("RUN")\ncard = run.card("{unit_id}")\n',
        "missing": missing if bare else [],
    }


def cloud(plan: Plan, rng: np.random.Generator) -> dict:
    n = plan.points
    centres = rng.uniform(-1, 1, (8, 2))
    concept = rng.integers(0, 8, n // 12 + 1)
    node = np.arange(n)
    path = concept[node // 12]
    layer = node % 12
    places = centres[path] * (layer / 11)[:, None] + rng.normal(0, 0.09, (n, 2))
    colour = np.clip(127 + 120 * np.stack([places[:, 0], places[:, 1], 1 - layer / 6], 1), 0, 255).astype(np.uint8)
    return {
        "count": n,
        "x": text(places[:, 0].astype("<f4")),
        "y": text(places[:, 1].astype("<f4")),
        "colour": text(colour),
        "model": text((node // 12 % plan.models).astype(np.uint8)),
        "layer": text(layer.astype(np.uint8)),
        "picture": text((node // 12 % plan.pictures).astype("<u2")),
        "token": text((1 + node // 12 % plan.rows**2).astype("<u2")),
        "concept": text(path.astype(np.uint8)),
        "layers": [f"block {b}" for b in range(12)],
        "concepts": [{"name": NASTY if plan.nasty and i == 2 else f"concept {i}"} for i in range(8)],
    }


def units(out: Path, plan: Plan, rng: np.random.Generator, models: list[str], every_card: bool) -> dict:
    columns: dict[str, list] = {name: [] for name in COLUMNS}
    for i in range(plan.units):
        model, unit = i % len(models), i // len(models)
        block = 3 + unit % 3
        site = f"blocks.{block}.mlp.out"
        label = NASTY if plan.nasty and i == 2 else None if i % 4 == 3 else f"label {i}"
        unit_id = f"{models[model]}/{site}/{unit}"
        k = 40 if plan.nasty and unit == 0 else 1 + i % 4
        row = (
            unit_id,
            model,
            site,
            block,
            unit,
            label,
            None if label is None else float(rng.random()),
            float(rng.uniform(0.3, 0.9)),
            float(rng.uniform(0.2, 0.4)),
            k,
            15 * (i % 2),
            int(unit == 5),
            int(rng.integers(plan.pictures)),
            heat(plan, rng),
            None if k < 2 else ["teal", None],
        )
        for name, value in zip(columns, row, strict=True):
            columns[name].append(value)
        if every_card or i < 12:
            put(out, f"unit/{unit_id}", card(plan, rng, unit_id, site, block, unit, k, label, models))
    return columns


def index(plan: Plan, rng: np.random.Generator, models: list[str], held: dict) -> dict:
    said = [
        {
            "name": name,
            "about": "A small model",
            "series": i,
            "depth": 12,
            "width": 192,
            "rows": plan.rows,
            "columns": plan.rows,
            "prefix": ["CLS"],
            "sites": [],
            "classes": None,
        }
        for i, name in enumerate(models)
    ]
    lenses = [
        {
            "name": name,
            "title": name.capitalize(),
            "sentence": f"What {name} shows.",
            "there": name != "tokens" or not plan.nasty,
            "missing": "Its folder is damaged: tokens/a.npz. Run vitreous examine again.",
        }
        for name in ("structure", "disentangle", "align", "tokens")
    ]
    return {
        "format": "vitreous site",
        "version": 1,
        "title": NASTY if plan.nasty else "What two small models have inside",
        "about": "Written by hand for tests.",
        "models": said,
        "pictures": held,
        "overview": {
            "lede": "A made-up report.",
            "data": f"{plan.pictures} scenes.",
            "numbers": [
                {"label": "units", "value": plan.units, "note": None},
                {"label": "pictures", "value": plan.pictures, "note": "made up"},
            ],
            "statements": [{"text": "Half the units hold more than one thing.", "route": "#/units"}],
            "hero": tiles(plan, rng, 9),
        },
        "lenses": lenses,
        "parts": {"structure": True, "disentangle": True, "align": plan.points > 0, "tokens": not plan.nasty},
        "notes": [
            {
                "id": f"{models[0]}/blocks.3.mlp.out/0",
                "name": "named by hand",
                "comment": "It is a nice one.",
                "when": "2026-11-18",
            }
        ]
        if plan.nasty
        else [],
        "provenance": [
            {
                "run": "RUN",
                "tables": {"Settings": {"seed": 0, "sites": ["blocks.3.mlp.out"]}, "Versions": {"vitreous": "0"}},
            }
        ],
        "python": "import vitreous as vt",
        "downloads": [{"label": "All units (parquet)", "href": "downloads/units.parquet"}],
    }


def write_made_site(out: Path, plan: Plan | None = None, every_card: bool = True) -> Path:
    plan = plan or Plan()
    rng = np.random.default_rng(plan.seed)
    models = [("odd model (ü, 50%)" if plan.nasty else "first"), "second"][: plan.models]
    out.mkdir(parents=True, exist_ok=True)
    app = resources.files("vitreous") / "site" / "app"
    (out / "app").mkdir()
    for name in ("app.js", "app.css", "map.js"):
        shutil.copyfile(str(app / name), out / "app" / name)
    shutil.copyfile(str(app / "index.html"), out / "index.html")
    held = pictures(out, plan, rng)
    put(out, "live", None)
    put(out, "index", index(plan, rng, models, held))
    put(out, "units", units(out, plan, rng, models, every_card))
    put(out, "cloud", cloud(plan, rng))
    for name in ("structure", "disentangle", "align"):
        toc = [{"name": "one", "title": "One"}, {"name": "two", "title": "Two"}]
        put(out, f"lens/{name}", {"title": name, "sentence": "", "html": PANELS, "toc": toc})
    return out
