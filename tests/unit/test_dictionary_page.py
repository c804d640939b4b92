"""A comparison of dictionaries as a page: what it says in words, also against us, and the command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import vitreous as vt
from vitreous.cli import app
from vitreous.dictionary_comparison import hold_out
from vitreous.dictionary_comparison.rows import Row
from vitreous.errors import SettingsError
from vitreous.views.dictionaries import (
    comparison_scatter,
    comparison_sections,
    comparison_table,
    ranking_table,
    statements,
    unit_pictures,
)

sys.path.insert(0, str(Path(__file__).parent))
from test_report import _parsed

IMAGES = vt.scenes(12, size=32, seed=0)
SETTINGS = {
    "model": {"name": "small", "fingerprint": "a"},
    "judge": None,
    "made from": {"name": "scenes", "fingerprint": "b", "samples": 30},
    "measured on": {"name": "scenes", "fingerprint": "c", "samples": 12},
    "site": "blocks.1.mlp.out",
    "steps": 100,
    "top": 10,
}


def row(method: str, ms: float, r2: float | None = 1.0, units: int = 4, seed: int = 0) -> Row:
    tops = np.stack([np.roll(np.arange(12), k)[:9] for k in range(units)])
    scores = np.linspace(ms - 0.1, ms + 0.1, units)
    scores[0] = np.nan
    faith = {"r2": r2, "layer_difference": 0.0, "accuracy": None, "loss": None, "output_difference": 0.0}
    if r2 is None:
        faith = dict.fromkeys(faith)
    return Row(
        method, seed, units, units - 1, units / 4, 2.0, **faith, ms=ms, ms_other=None, effective_rank=4.0,
        coherence=0.5, read_rank=None, seconds=1.0, tops=tops, scores=scores,
    )  # fmt: skip


def comparison(*rows: Row, ranking: bool = True) -> vt.DictionaryComparison:
    names = list(dict.fromkeys(r.method for r in rows))
    rates = [0.5 + 0.1 * k for k in range(len(names))]
    ranked = {"methods": names, "rates": rates, "ranks": list(range(len(names), 0, -1)), "kind": "coherence judge"}
    ranked["intervals"] = [[rate - 0.1, rate + 0.1] for rate in rates]
    return vt.DictionaryComparison(rows, ranked if ranking else None, SETTINGS, ("a note",))


GOOD = (row("backbone", 0.3), row("topk", 0.5, 0.8), row("elude", 0.6, units=8), row("random_partition", 0.29))


def test_words_say_where_splitting_wins_and_where_it_does_not():
    good = " ".join(statements(comparison(*GOOD, row("any_samples", 0.2, None))))
    assert "output differs by 0" in good and "R² of 0.800 (TopK SAE)" in good
    assert "MS-Score 0.600 against backbone 0.300, random partition 0.290: better than both" in good
    assert "Highest of all: MS-Score: ELUDe (ours) (0.600)" in good
    poor = " ".join(statements(comparison(row("backbone", 0.7), row("elude", 0.6), row("random_partition", 0.6))))
    assert (
        "not better than the backbone and the random partition" in poor and "Highest of all: MS-Score: backbone" in poor
    )
    assert statements(comparison(row("any_samples", 0.2, None), ranking=False)) == ["See the table."]


def test_the_plane_shows_every_method_that_replaces_the_layer():
    found = comparison(
        *GOOD, row("archetypal", 0.9, -0.4), row("any_samples", 0.2, None), row("topk", 0.7, 0.9, seed=1)
    )
    plane = comparison_scatter(found)
    by = {dot.name: dot for dot in plane.dots}
    assert set(by) == {"backbone", "TopK SAE", "ELUDe (ours)", "random partition", "Archetypal SAE (R² -0.40)"}
    assert by["Archetypal SAE (R² -0.40)"].x == 0 and by["ELUDe (ours)"].size == 2
    assert by["TopK SAE"].y == pytest.approx(0.6) and by["TopK SAE"].y_spread == pytest.approx(0.1)
    assert by["backbone"].control and not by["TopK SAE"].control
    assert "at random score 0.200" in plane.caption
    assert comparison_scatter(found, "rate").dots[0].y == 0.5
    with pytest.raises(SettingsError, match="nothing to draw by that name"):
        comparison_scatter(found, "accuracy")


def test_tables_and_units():
    found = comparison(*GOOD)
    table = comparison_table(found)
    assert table.columns[0] == "method" and len(table.rows) == 4 and "accuracy" not in table.columns
    ranked = ranking_table(found)
    assert [cells[0] for cells in ranked.rows] == ["random partition", "ELUDe (ours)", "TopK SAE", "backbone"]
    assert ranking_table(comparison(*GOOD, ranking=False)) is None
    panel = unit_pictures(found, IMAGES, "elude")
    assert len(panel.tiles) == 27 and panel.columns == 9
    assert [tile.alt for tile in panel.tiles[:2]] == [
        "ELUDe (ours), unit 3, sample 9",
        "ELUDe (ours), unit 3, sample 10",
    ]
    assert sum(bool(tile.caption) for tile in panel.tiles) == 3
    hidden = row("topk", 0.5)
    hidden.tops[:] = -1
    assert unit_pictures(comparison(hidden), IMAGES, "topk") is None


def test_sections_without_pictures_and_without_pairs():
    assert [s.name for s in comparison_sections(comparison(*GOOD, ranking=False))] == ["table", "reading"]
    assert [s.name for s in comparison_sections(comparison(*GOOD), IMAGES)] == ["table", "units", "reading"]


def test_the_page_is_the_same_twice_and_pictures_must_be_the_right_ones(tmp_path):
    settings = {**SETTINGS, "measured on": {"name": "scenes", "fingerprint": IMAGES.fingerprint, "samples": 12}}
    found = vt.DictionaryComparison(GOOD, None, settings, ("a note",))
    pages = [vt.dictionary_report(found, tmp_path / name, images=IMAGES) for name in ("one", "two")]
    html = pages[0].read_text()
    assert html == pages[1].read_text()
    _parsed(html)
    for part in ("small, blocks.1.mlp.out", "a note.", "ELUDe (ours)", "Units to look at", "about 100 steps"):
        assert part in html
    assert (tmp_path / "one" / "scatter.png").read_bytes()[:4] == b"\x89PNG"
    assert json.loads((tmp_path / "one" / "run.json").read_text())["status"] == "done"
    with pytest.raises(SettingsError, match="these are not the pictures it was measured on"):
        vt.dictionary_report(found, tmp_path / "three", images=vt.scenes(12, size=32, seed=1))


def run(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_the_command_prints_the_table_writes_the_page_and_goes_on(tmp_path):
    out = tmp_path / "out"
    command = ("compare-dictionaries", "bundled:scenes-text", "scenes:48", "--out", out, "--steps", 4, "--tokens", 4)
    command = (*command, "--methods", "backbone,topk,any_samples", "--batch-size", 64, "--expansion", 2)
    first = run(*command)
    assert first.exit_code == 0, first.output
    assert "TopK SAE" in first.stdout and "faithfulness" in first.stdout and "interpretability" in first.stdout
    assert str(out / "report.html") in first.stderr and (out / "report.html").exists()
    again = json.loads(run(*command, "--json").stdout)
    assert [r["method"] for r in again["rows"]] == ["backbone", "topk", "any_samples"]
    images = vt.scenes(48, size=64, seed=0)
    assert again["settings"]["measured on"]["fingerprint"] == hold_out(images, 0.25)[1].fingerprint
    for change, message in (
        (("--methods", "backbone,topkk"), "nearest:  topk"),
        (("--evaluate", "2"), "a share of the data is held out"),
        (("--evaluate", "no/such/folder"), "no such file or folder"),
        (("--seeds", "all"), "seeds are numbers"),
        (("--steps", "5"), "holds a comparison of something else"),
    ):
        refused = run(*command, *change)
        assert refused.exit_code == 2 and message in refused.stderr, refused.output
