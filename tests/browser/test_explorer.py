"""The explorer as people use it: a real run, live models, a real server."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from opened_page import Opened, opened, served
from playwright.sync_api import Page

import vitreous as vt

PICTURE = "5"


@pytest.fixture(scope="session")
def link(run) -> Iterator[str]:
    yield from served(run)


@pytest.fixture
def site(chromium, link) -> Iterator[Opened]:
    for page in opened(chromium, link, offline=False):
        page.page.set_default_timeout(60_000)  # the first question loads the model
        yield page


@pytest.fixture(scope="session")
def split(run) -> str:
    """A unit with sub-units to steer."""
    finding = vt.open_run(run).disentanglement("scenes-text", 7)
    return f"scenes-text/blocks.7.mlp.out/{int(finding.units[finding.counts.argmax()])}"


def drawn(page: Page, selector: str) -> list[int]:
    """How opaque the canvas is, pixel by pixel."""
    pixels = "c => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]"
    return page.locator(selector).first.evaluate(pixels)[3::4]


def point(page: Page, across: float, down: float) -> None:
    stage = page.locator(".stage").first
    stage.scroll_into_view_if_needed()
    box = stage.bounding_box()
    page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"])


def shown(page: Page) -> str:
    page.wait_for_selector(".stage canvas[data-shown^='scenes']", state="attached")
    return page.locator(".stage canvas").first.get_attribute("data-shown")


def test_the_token_under_the_mouse_shows_its_map(site):
    page = site.go(f"#/live/{PICTURE}?model=scenes-text")
    point(page, 0.05, 0.05)
    assert shown(page) == f"scenes-text {PICTURE} 7 1", "the first patch comes after the class token"
    first = drawn(page, ".stage canvas")
    point(page, 0.95, 0.95)
    page.wait_for_selector(f".stage canvas[data-shown='scenes-text {PICTURE} 7 64']", state="attached")
    assert drawn(page, ".stage canvas") != first
    page.locator(".bench-left input[type=range]").fill("2")
    page.wait_for_selector(f".stage canvas[data-shown='scenes-text {PICTURE} 2 64']", state="attached")
    page.locator(".stage").focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector(f".stage canvas[data-shown='scenes-text {PICTURE} 2 63']", state="attached")
    page.get_by_role("button", name="class").hover()
    page.wait_for_selector(f".stage canvas[data-shown='scenes-text {PICTURE} 2 0']", state="attached")
    assert not site.wrong, site.wrong


def test_a_picture_can_be_dropped_in(site, tmp_path):
    vt.scenes(1, size=64, seed=99)[0].image.save(tmp_path / "my own.png")
    page = site.go("#/live")
    page.locator("input[type=file]").set_input_files(tmp_path / "my own.png")
    page.wait_for_function("location.hash.startsWith('#/live/u')")
    point(page, 0.5, 0.5)
    assert shown(page).startswith("scenes-text u")
    page.locator(".film-cell img").first.wait_for()  # the map may be there before the small picture
    assert page.locator(".film-cell img").count() == 1
    (tmp_path / "broken.png").write_bytes(b"this is no picture")
    page.locator("input[type=file]").set_input_files(tmp_path / "broken.png")
    page.locator(".toast.bad").wait_for()


def test_a_picture_is_dropped_by_the_mouse(site):
    file = io.BytesIO()
    vt.scenes(1, size=64, seed=98)[0].image.save(file, "PNG")
    page = site.go("#/live")
    page.locator("input[type=file]").wait_for(state="attached")
    carried = page.evaluate_handle(
        """(text) => {
            const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
            const carried = new DataTransfer();
            carried.items.add(new File([bytes], "dropped.png", { type: "image/png" }));
            return carried;
        }""",
        base64.b64encode(file.getvalue()).decode(),
    )
    for kind in ("dragenter", "dragover", "drop"):
        page.dispatch_event("body", kind, {"dataTransfer": carried})
    page.wait_for_function("location.hash.startsWith('#/live/u')")
    point(page, 0.5, 0.5)
    assert shown(page).startswith("scenes-text u")


def test_segments_follow_the_slider(site):
    page = site.go(f"#/live/{PICTURE}?tab=segments")
    canvas = page.locator(".stage canvas[data-shown]")
    canvas.wait_for(state="attached")
    before = int(canvas.get_attribute("data-shown"))
    assert 3 <= before <= 6, "the class token may be a segment of its own"
    page.get_by_label("Number of segments").fill("2")
    page.wait_for_function("before => document.querySelector('.stage canvas').dataset.shown < before", arg=str(before))
    assert page.locator(".segment-list li").count() == int(canvas.get_attribute("data-shown")) <= 2


def test_a_click_on_a_patch_finds_its_neighbours(site, run):
    seen = vt.open_run(run).pictures.close[0]
    page = site.go(f"#/live/{seen}?tab=neighbours")
    page.get_by_text("Click a patch").wait_for()
    point(page, 0.3, 0.3)
    page.mouse.down()
    page.mouse.up()
    page.wait_for_selector(".neighbours li")
    found = page.locator(".neighbours li").count()
    assert found >= 4
    assert page.locator(".neighbours .box").count() == found, "each shows which patch it is"


def test_steering_moves_the_classes_and_the_map(site, split):
    page = site.go(f"#/live/{PICTURE}?tab=steer&unit={split}")
    page.wait_for_selector(".steer-sub")
    page.locator(".steer-sub input[type=range]").first.fill("10")
    page.wait_for_selector(".classes li")
    assert page.locator(".pair-maps canvas").count() == 2
    assert "the output moved by" in page.locator(".steer-result").inner_text()
    page.get_by_role("button", name="Back to × 1").click()
    page.get_by_text("Move a slider").wait_for()


def test_a_label_is_renamed_kept_and_undone(site, split, run):
    page = site.go(f"#/unit/{split}")
    before = page.locator("h1").inner_text()
    page.get_by_role("button", name="Rename or comment").click()
    page.get_by_label("Name").fill("<b>teal</b> things")
    page.get_by_label("Comment").fill("seen on every table")
    page.get_by_role("button", name="Keep").click()
    page.wait_for_function("document.querySelector('h1').innerText.includes('<b>teal</b> things')")
    assert "teal" in (run / "notes.jsonl").read_text()
    page.reload()
    page.get_by_text("seen on every table").wait_for()
    page.get_by_role("button", name="Change name or comment").click()
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("seen on every table").wait_for()
    page.get_by_role("button", name="Change name or comment").click()
    page.get_by_role("button", name="Remove").click()
    page.wait_for_function("before => document.querySelector('h1').innerText === before", arg=before)
    assert not site.wrong, site.wrong


def test_long_work_shows_its_progress_and_stops(site):
    page = site.go("#/live/0?model=scenes-mae")
    page.get_by_role("button", name="Compute the maps of all 20 pictures").click()
    page.wait_for_selector("progress")
    page.get_by_role("button", name="Stop").click()
    page.get_by_text(re.compile("Stopped after|All maps were computed")).wait_for()


def test_two_models_share_one_mouse(site):
    page = site.go("#/compare/scenes-text/scenes-mae")
    page.wait_for_selector(".stage")
    point(page, 0.4, 0.4)
    for model in ("scenes-text", "scenes-mae"):
        page.wait_for_selector(f".stage canvas[data-shown^='{model} 0 7']", state="attached")
    places = [
        text.split()[-1] for text in page.locator(".stage canvas").evaluate_all("all => all.map(c => c.dataset.shown)")
    ]
    assert places[0] == places[1]


def test_every_screen_of_the_served_run(site, split):
    for hash in ("#/", "#/units", f"#/unit/{split}", "#/map", "#/pictures", "#/picture/3", "#/compare", "#/about"):
        page = site.go(hash)
        assert page.locator("main h1").count() == 1, hash
    page = site.go("#/map")
    page.wait_for_selector("[data-drawn=yes]")
    for lens in ("structure", "disentangle", "align", "tokens"):
        page = site.go(f"#/lens/{lens}")
        page.wait_for_selector(".vt-panels .panel")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert not site.wrong, site.wrong


def test_the_written_report_opens_from_the_file_system(chromium, run, split, tmp_path):
    written = vt.write_site(vt.open_run(run), tmp_path / "report", progress=False)
    for page in opened(chromium, written.as_uri()):
        shown = page.go(f"#/unit/{split}")
        assert shown.locator(".quantile").count() >= 2
        assert shown.locator("#card-disentangle .sub").count() >= 1
        shown = page.go("#/map")
        shown.wait_for_selector("[data-drawn=yes]")
        assert not page.wrong, page.wrong
    written = vt.write_site(vt.open_run(run), tmp_path / "mail", single_file=True, progress=False)
    alone = shutil.copy(written, tmp_path / "alone.html")
    for page in opened(chromium, Path(alone).as_uri()):
        shown = page.go("#/lens/structure")
        shown.wait_for_selector(".vt-panels .panel")
        shown = page.go("#/units")
        shown.locator(".unit-cell").first.click()
        shown.wait_for_selector(".card-head")
        shown = page.go("#/map")
        shown.get_by_text("The short version does not hold").wait_for()


def test_a_damaged_run_still_opens_and_says_what_is_missing(chromium, run, split, tmp_path):
    harmed = Path(shutil.copytree(run, tmp_path / "run"))
    shutil.rmtree(harmed / "tokens")
    for path in (harmed / "align").iterdir():
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    written = vt.write_site(vt.open_run(harmed), tmp_path / "report", progress=False)
    index = json.loads((written.parent / "data" / "index.js").read_text().split(", ", 1)[1].rstrip().rstrip(");"))
    assert not index["parts"]["align"]
    for page in opened(chromium, written.as_uri()):
        shown = page.go(f"#/unit/{split}")
        assert shown.locator(".lacking").count() >= 2
        assert shown.locator("#card-disentangle .sub").count() >= 1
        shown = page.go("#/map")
        shown.get_by_text("This run has no universal space").wait_for()
        shown = page.go("#/lens/tokens")
        shown.get_by_text("This run does not hold it").wait_for()
        assert not page.wrong, page.wrong
