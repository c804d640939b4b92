"""The audit's page as people use it: tick, flip the switch, look at what changed, save the patch."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opened_page import Opened, opened, served
from playwright.sync_api import expect
from typer.testing import CliRunner

import vitreous as vt
from vitreous.auditing.folder import read_audit
from vitreous.cli import app

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from audited_folder import MODEL, QUICK, write_pictures


@pytest.fixture(scope="module")
def audit(tmp_path_factory) -> Path:
    made = write_pictures(tmp_path_factory.mktemp("audited"))
    asked = [MODEL, made / "pictures", "--masks", made / "masks", "--groups", made / "groups.csv", *QUICK]
    found = CliRunner().invoke(app, ["audit", *map(str, asked), "--out", str(made / "audit")])
    assert found.exit_code == 0, found.output
    return made / "audit"


@pytest.fixture(scope="module")
def link(run, audit) -> Iterator[str]:
    yield from served(run, "--audit", audit)


@pytest.fixture
def site(chromium, link) -> Iterator[Opened]:
    for page in opened(chromium, link, offline=False):
        page.page.set_default_timeout(60_000)  # the first question loads the model
        yield page


def test_parts_are_switched_off_and_the_switch_tells_before_from_after(site, audit, tmp_path):
    alarms = len(read_audit(audit).alarms)
    page = site.go("#/")
    page.get_by_role("link", name="Audit").click()
    page.wait_for_selector(f"[data-parts='{alarms}'][aria-busy=false]")
    assert page.locator(".suspect.off").count() == alarms
    expect(page.locator(".suspect").first.locator("canvas")).to_have_count(6)  # maps lie on the pictures
    switch = page.get_by_role("switch")
    expect(switch).to_have_attribute("aria-checked", "true")
    after = page.locator(".before-after").inner_text()
    switch.focus()
    page.keyboard.press("Space")
    expect(switch).to_have_attribute("aria-checked", "false")
    assert page.locator(".before-after").inner_text() != after
    page.keyboard.press("s")
    expect(switch).to_have_attribute("aria-checked", "true")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save this patch").click()
    saved.value.save_as(tmp_path / "patch.safetensors")
    assert len(vt.SwitchOff.load(tmp_path / "patch.safetensors")) == alarms
    page.get_by_role("button", name="None").click()
    page.wait_for_selector("[data-parts='0'][aria-busy=false]")
    page.get_by_text("Nothing is switched off").wait_for()
    page.locator(".suspect input").first.check()
    page.wait_for_selector("[data-parts='1'][aria-busy=false]")
    page.get_by_role("button", name="All alarms").click()
    page.wait_for_selector(f"[data-parts='{alarms}'][aria-busy=false]")
    assert page.get_by_text("alarms with shuffled labels").count() == 1
    assert not site.wrong, site.wrong


def test_while_the_model_looks_again_a_bar_says_how_far_it_is(site):
    page, held = site.go("#/audit"), []
    page.wait_for_selector("[data-parts][aria-busy=false]")
    assert page.get_by_role("progressbar").count() == 0
    page.route("**/api/audit/switch", lambda route: held.append(route))  # it asks for a function of its own
    page.get_by_role("button", name="None").click()
    bar = page.get_by_role("progressbar", name="Pictures that the model has decided again")
    expect(bar).to_be_visible()
    expect(page.locator(".working")).to_contain_text(re.compile("of (40|80) pictures"))  # before is looked at once
    held[0].continue_()
    page.wait_for_selector("[data-parts='0'][aria-busy=false]")
    expect(bar).to_have_count(0)
    assert not site.wrong, site.wrong


def test_it_fits_a_telephone(chromium, link):
    for page in opened(chromium, link, offline=False, viewport={"width": 390, "height": 800}):
        shown = page.go("#/audit")
        shown.wait_for_selector("[data-parts]")
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert not page.wrong, page.wrong


def test_an_audit_that_cannot_be_read_says_why(chromium, run, tmp_path):
    (tmp_path / "audit.json").write_text("{")
    for link in served(run, "--audit", tmp_path):
        for page in opened(chromium, link, offline=False):
            shown = page.go("#/audit")
            shown.get_by_text("The audit could not be opened").wait_for()
            shown.get_by_text("audit cannot be read").wait_for()
