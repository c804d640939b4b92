"""The results in the documentation are those of the files, and every function that a page names is there."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from functools import reduce
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "studies"))

import paper_claims  # noqa: E402
import results_page  # noqa: E402


@pytest.mark.parametrize("name", results_page.pages())
def test_pages_are_what_the_files_say(name):
    assert (ROOT / "docs" / name).read_text() == results_page.pages()[name], "run `make studies`"


def test_every_equation_has_its_function():
    for paper in results_page.PAPERS:
        for _, _, where in paper.equations:
            module, name = where.split(":")
            found = reduce(
                lambda holder, part: holder.__dict__[part],
                name.split("."),
                importlib.import_module(f"vitreous.{module}"),
            )
            assert found is not None, where


def test_verdicts_are_the_four_words_and_none_is_forgotten():
    known = {paper_claims.HOLDS, paper_claims.PARTLY, paper_claims.NOT, paper_claims.UNTESTED}
    told = [claim.found()[1] for paper in results_page.PAPERS for claim in paper.claims]
    assert set(told) == known  # negative results stay


def test_a_verdict_follows_the_numbers():
    assert paper_claims.verdict(True, True) == "holds"
    assert paper_claims.verdict(True, False) == "holds partly"
    assert paper_claims.verdict(False, False) == "does not hold"
    assert paper_claims.span([0.331, 0.294, 0.377], 100, 1) == "33.1 [29.4, 37.7]"


def test_figures_and_tables_are_there():
    for paper in results_page.PAPERS:
        files = [file for file, _ in paper.figures] + [f"{claim.page}.md" for claim in paper.claims if claim.page]
        assert all((paper_claims.RESULTS / file).exists() for file in files)


def test_the_readme_counts_the_verdicts_right():
    counted = Counter(claim.found()[1] for paper in results_page.PAPERS for claim in paper.claims)
    holds, partly, fails, untested = (
        counted[name] for name in (paper_claims.HOLDS, paper_claims.PARTLY, paper_claims.NOT, paper_claims.UNTESTED)
    )
    said = f"Of {counted.total()} claims of the four papers {holds} hold here, {partly} in part, {fails} do not, "
    assert said + f"and {untested} cannot" in (ROOT / "README.md").read_text()
