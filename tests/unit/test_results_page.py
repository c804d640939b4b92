"""The results in the documentation are those of the files, and every function that a page names is there."""

from __future__ import annotations

import importlib
import re
import sys
from collections import Counter
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "studies"))

import paper_claims  # noqa: E402
import results_page  # noqa: E402
from paper_claims import Gap, apart, from_t, repeated, verdict  # noqa: E402


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


@pytest.mark.parametrize(("lens", "last"), [("disentangle", 9), ("align", 10), ("tokens", 23)])
def test_no_equation_of_a_paper_is_left_out(lens, last):
    """The structure paper numbers none of its own. 24 to 26 of the tokens paper are norms and the MLP of any model."""
    (paper,) = (paper for paper in results_page.PAPERS if paper.lens == lens)
    said: set[int] = set()
    for where, _, _ in paper.equations:
        if run := re.fullmatch(r"(\d+) to (\d+)", where):
            said |= set(range(int(run[1]), int(run[2]) + 1))
        else:
            said |= {int(part) for part in where.split(", ") if part.isdigit()}
    assert said == set(range(1, last + 1))


def test_verdicts_are_the_four_words_and_none_is_forgotten():
    known = {paper_claims.HOLDS, paper_claims.PARTLY, paper_claims.NOT, paper_claims.UNTESTED}
    told = [claim.found()[1] for paper in results_page.PAPERS for claim in paper.claims]
    assert set(told) == known  # negative results stay


def test_a_verdict_follows_the_intervals():
    sure, unsure, once, wrong = Gap(0.3, 0.1, 0.5), Gap(0.3, -0.1, 0.7), Gap(0.3), Gap(-0.3, -0.7, 0.1)
    assert verdict(sure, sure) == "holds"
    assert {verdict(sure, unsure), verdict(once), verdict(unsure), verdict(sure, wrong)} == {"holds partly"}
    assert verdict(wrong) == verdict(Gap(0.0), wrong) == "does not hold"


def test_differences_are_taken_draw_by_draw():
    rows, others = [{"ms": 0.5}, {"ms": 0.7}, {"ms": 0.9}], [{"ms": 0.4}, {"ms": 0.6}, {"ms": 0.8}]
    assert paper_claims.mean_of(rows, "ms") == pytest.approx(0.7)
    same = paper_claims.above(rows, others, "ms")
    assert (same.value, same.low, same.high) == pytest.approx((0.1, 0.1, 0.1))  # what draws share takes no part
    backbone = paper_claims.above(rows, others[:1], "ms")
    assert backbone.value == pytest.approx(0.3) and backbone.low < 0 < backbone.high
    assert paper_claims.above(rows[:1], others[:1], "ms").low is None


def test_intervals_are_those_of_the_textbook():
    paired = repeated([1.0, 2.0, 4.0])
    expected = scipy.stats.t.interval(0.95, 2, loc=7 / 3, scale=scipy.stats.sem([1, 2, 4]))
    np.testing.assert_allclose([paired.low, paired.high], expected)
    assert repeated([0.5]) == Gap(0.5) and not repeated([0.5]).sure
    assert apart((3, 2, 4), (1, 0, 2)) == Gap(2, 0, 4)
    assert from_t(0.5, 2.0).low == pytest.approx(0.5 - 1.96 * 0.25) and not from_t(0.5, 1.9).sure
    assert paper_claims.span([0.331, 0.294, 0.377], 100, 1) == "33.1 [29.4, 37.7]"
    assert Gap(0.331, 0.294, 0.377).text(100, 1) == "+33.1 [+29.4, +37.7]"


def test_where_nothing_was_repeated_the_page_says_so_and_no_claim_holds():
    for paper in results_page.PAPERS:
        for said, told in (claim.found() for claim in paper.claims):
            assert told != "holds" or paper_claims.ONCE not in said


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
