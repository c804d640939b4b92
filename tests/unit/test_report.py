"""One page that needs nothing from outside, says where it comes from, and can be read."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest

from vitreous.errors import SettingsError
from vitreous.provenance import start_run
from vitreous.report import provenance, write_report
from vitreous.views.colours import SERIES, SERIES_DARK
from vitreous.views.panels import (
    Card,
    Curve,
    Fact,
    Group,
    Line,
    Member,
    Meter,
    Overview,
    Pictures,
    Section,
    Statement,
    Table,
    Text,
    Tile,
)

EVIL = "<img src=x onerror=alert(1)> & \"'"
VOID = {"meta", "img", "input", "br", "hr", "link"}
TILE = Tile(np.full((8, 8, 3), 90, np.uint8), "grey", "t", np.eye(8))
CARD = Card("u", "claim", "tag", 1, Meter("AUC", 0.9, 0.5, 0.5, 1), panels=(Pictures("p", (TILE,), 1),))
CURVE = Curve("c", (0.0, 1.0), (Line("m", (1.0, 2.0)),), "x", "y")
GROUPS = (
    Group("All", (CURVE, Table("t", ("a", "b"), ((1, 2),))), columns=3),
    Group("Model", (CARD,), "words", 1),
)
SECTIONS = (
    Section("units", "Units", "What one sees.", GROUPS, short="U"),
    Section("reading", "Reading", "How to.", (Group("", (Text("", ("p",), "code"),)),)),
)


def _overview(text="Units detect stars.", section="units"):
    models, numbers = (Member("one", "a ViT", 0),), (Fact("scenes", "512", "n"),)
    return Overview("A lede.", "Scenes.", models, numbers, (Statement(text, section),), (TILE,))


@pytest.fixture
def run(tmp_path):
    settings = {"scenes": 4, "models": ["a", "b"], "more": {"x": 1}}
    return start_run(tmp_path, "demo", settings, seeds={"seed": 7}, inputs={"one": "ab" * 32}, device="cpu")


def _write(tmp_path, run, **kwargs):
    args = {"title": "A title", "sections": SECTIONS, "overview": _overview(), **kwargs}
    path = write_report(tmp_path / "new", args["title"], args["sections"], run, overview=args["overview"])
    return path.read_text(encoding="utf-8")


class Balance(HTMLParser):
    """Every tag that is opened is closed, in order; ids and links are collected."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.loads = [], [], [], []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if "href" in given else []
        self.loads += [given["src"]] if "src" in given else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes something else"


def _parsed(html):
    parser = Balance()
    parser.feed(html)
    assert parser.open == []
    return parser


def test_the_page_is_whole(tmp_path, run):
    html = _write(tmp_path, run)
    page = _parsed(html)
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    for part in ("A title", "A lede.", "Units detect stars.", "What one sees.", "claim", "code", "512"):
        assert part in html


def test_nothing_is_loaded_from_outside(tmp_path, run):
    html = _write(tmp_path, run)
    page = _parsed(html)
    assert page.loads
    assert all(load.startswith("data:image/") for load in page.loads)
    assert all(link.startswith("#") for link in page.links)
    assert "http:" not in html and "https:" not in html and "@import" not in html and "url(" not in html
    assert "default-src 'none'" in html
    assert "<script" not in html


def test_whatever_is_said_is_escaped(tmp_path, run):
    run.record["settings"]["name"] = EVIL
    groups = (Group(EVIL, (Text(EVIL, (EVIL,)),), EVIL),)
    html = _write(
        tmp_path, run, title=EVIL, sections=(Section("units", EVIL, EVIL, groups, EVIL),), overview=_overview(EVIL)
    )
    assert "<img src=x" not in html
    assert html.count("&lt;img src=x") == 11
    _parsed(html)


def test_the_foot_says_what_made_the_page_but_not_when(tmp_path, run):
    html = _write(tmp_path, run)
    for part in ("ab" * 32, ">seed<", ">7<", ">torch<", ">cpu<", "a, b", "x: 1"):
        assert part in html
    assert run.record["started"] not in html
    assert str(run.record["machine"]["system"]) not in html
    run.record["started"] = "another day"
    assert _write(tmp_path, run) == html


def test_packages_that_are_not_there_are_named(run):
    run.record["versions"]["timm"] = None
    assert provenance(run.record)["tables"]["Versions"]["timm"] == "not installed"


def test_broken_links_are_refused(tmp_path, run):
    with pytest.raises(SettingsError, match="points to a section that is not there"):
        _write(tmp_path, run, overview=_overview(section="unit"))
    with pytest.raises(SettingsError, match="two sections have the same name"):
        _write(tmp_path, run, sections=(SECTIONS[0], SECTIONS[0]))


# -- can it be read


def _light(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one, two):
    high, low = sorted((_light(one), _light(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _palettes():
    css = (files("vitreous") / "templates" / "report.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", css, re.S)
    light, dark, paper = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in blocks)
    return {"light": (light, SERIES), "dark": ({**light, **dark}, SERIES_DARK), "print": ({**light, **paper}, SERIES)}


@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_text_stands_out_from_its_ground(theme):
    names, series = _palettes()[theme]
    texts = {**{name: names[name] for name in ("ink", "soft", "accent")}, **{f"s{i}": c for i, c in enumerate(series)}}
    weak = {
        f"{text} on {ground}": round(_contrast(colour, names[ground]), 2)
        for text, colour in texts.items()
        for ground in ("ground", "paper", "wash")
        if _contrast(colour, names[ground]) < 4.5
    }
    assert not weak
