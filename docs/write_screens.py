"""Takes the pictures of every screen that docs/screens.md shows.

    python docs/write_screens.py RUN      RUN is a folder that `vitreous demo` wrote

The report of the run is written afresh and opened from the file system; live screens come from its explorer. Hard cases
(forty sub-units, long names, one unit, damage) are made up, as in tests/browser.
"""

from __future__ import annotations

import argparse
import io
import math
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

import vitreous as vt

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "browser"), str(ROOT / "benchmarks")]
from browser_flags import FLAGS, find_chromium  # noqa: E402
from made_site import Plan, write_made_site  # noqa: E402

from pages import served  # noqa: E402

SCREENS = ROOT / "docs" / "screens"
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


def keep(page: Page, name: str, whole: bool = False) -> None:
    page.wait_for_timeout(700)
    shot = Image.open(io.BytesIO(page.screenshot(full_page=whole)))
    if whole:
        shot = shot.crop((0, 0, shot.width, min(shot.height, 4 * shot.width)))
    shot.convert("RGB").save(SCREENS / f"{name}.webp", quality=72, method=6)


def open_page(browser: Browser, size: dict, dark: bool = False) -> Page:
    page = browser.new_context(viewport=size, color_scheme="dark" if dark else "light").new_page()
    page.set_default_timeout(90_000)
    return page


def go(page: Page, base: str, hash: str) -> None:
    page.goto(f"{base}{hash}")
    page.wait_for_selector("main h1, .state h2")


def best_unit(run: Path) -> str:
    """A named unit with a few sub-units: the card to begin with."""
    found = vt.open_run(run)
    for model, block, unit in found.unit_ids:
        labels, finding = found.labels(model, block), found.disentanglement(model, block)
        sure = labels.chance[finding.units.tolist().index(unit)] <= 0.05
        if sure and 2 <= len(finding.subunits(unit)) <= 6:
            return f"{model}/blocks.{block}.mlp.out/{unit}"
    raise SystemExit("no named unit with sub-units")


def report(browser: Browser, base: str, card: str) -> None:
    pages = {"overview": "#/", "units": "#/units", "card": f"#/unit/{card}", "map": "#/map", "pictures": "#/pictures"}
    pages |= {"picture": "#/picture/3", "compare": "#/compare", "about": "#/about"}
    pages |= {f"lens-{name}": f"#/lens/{name}" for name in ("structure", "disentangle", "align", "tokens")}
    for size, dark, after in ((WIDE, False, ""), (WIDE, True, "-dark"), (NARROW, False, "-390")):
        page = open_page(browser, size, dark)
        for name, hash in pages.items():
            if after and name in ("pictures", "picture", "about", "lens-structure", "lens-disentangle", "lens-tokens"):
                continue
            go(page, base, hash)
            if name == "map":
                page.wait_for_selector("[data-drawn=yes]")
            keep(page, f"{name}{after}", whole=name == "card" or bool(after == "-390" and name == "overview"))
        if not after:
            lasso(page)
            keep(page, "map-lasso")
            go(page, base, "#/units?q=nothing+has+this")
            keep(page, "units-empty")
        page.context.close()


def lasso(page: Page) -> None:
    page.goto(page.url.split("#")[0] + "#/map")
    page.wait_for_selector("[data-drawn=yes]")
    page.locator("label:has(> span:text-is('Colour')) select").select_option("concept")
    page.get_by_role("button", name="Lasso").click()
    box = page.locator(".plot canvas").bounding_box()
    x, y = box["x"] + 0.6 * box["width"], box["y"] + 0.6 * box["height"]
    page.mouse.move(x + 90, y)
    page.mouse.down()
    for step in range(1, 26):
        page.mouse.move(x + 90 * math.cos(step / 4), y + 90 * math.sin(step / 4))
    page.mouse.up()
    page.wait_for_selector(".chosen li")


def live(browser: Browser, link: str, card: str) -> None:
    model = card.split("/")[0]
    for size, dark, after in ((WIDE, False, ""), (WIDE, True, "-dark"), (NARROW, False, "-390")):
        page = open_page(browser, size, dark)
        go(page, link, f"#/live/3?model={model}")
        page.wait_for_selector(".depth")
        hover(page, 0.45, 0.45)
        page.wait_for_selector(".stage canvas[data-shown^='scenes']", state="attached")
        page.wait_for_timeout(2500)
        keep(page, f"live-maps{after}")
        if after:
            page.context.close()
            continue
        go(page, link, f"#/live/3?model={model}&tab=segments")
        page.wait_for_selector(".segment-list li")
        keep(page, "live-segments")
        go(page, link, f"#/live/0?model={model}&tab=neighbours")
        page.wait_for_selector(".stage img")
        hover(page, 0.45, 0.45)
        page.mouse.down()
        page.mouse.up()
        page.wait_for_selector(".neighbours li")
        keep(page, "live-neighbours")
        go(page, link, f"#/live/3?tab=steer&unit={card}")
        page.locator(".steer-sub input[type=range]").first.fill("10")
        page.wait_for_selector(".pair-maps canvas")
        keep(page, "live-steering")
        go(page, link, f"#/unit/{card}")
        page.get_by_role("button", name="Rename or comment").click()
        keep(page, "live-rename")
        go(page, link, "#/compare")
        page.wait_for_selector(".stage img")
        hover(page, 0.45, 0.45)
        page.wait_for_timeout(2500)
        keep(page, "live-compare")
        page.context.close()


def hover(page: Page, across: float, down: float) -> None:
    stage = page.locator(".stage").first
    stage.scroll_into_view_if_needed()
    box = stage.bounding_box()
    page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"])


def hard(browser: Browser, folder: Path) -> None:
    base = (write_made_site(folder / "hard") / "index.html").as_uri()
    page = open_page(browser, WIDE)
    go(page, base, "#/unit/odd%20model%20(%C3%BC%2C%2050%25)/blocks.3.mlp.out/0")
    page.get_by_role("button", name="Show all 40").click()
    keep(page, "hard-forty-sub-units", whole=True)
    go(page, base, "#/unit/odd%20model%20(%C3%BC%2C%2050%25)/blocks.4.mlp.out/1")
    keep(page, "hard-long-name")
    go(page, base, "#/unit/second/blocks.3.mlp.out/3")
    page.locator(".lacking").first.scroll_into_view_if_needed()
    keep(page, "hard-missing-lenses")
    (folder / "hard" / "data" / "units.js").unlink()
    go(page, base, "#/about")
    page.reload()
    go(page, base, "#/units")
    keep(page, "hard-damaged")
    one = write_made_site(folder / "one", Plan(units=1, models=1, pictures=3, points=24, nasty=False))
    go(page, (one / "index.html").as_uri(), "#/units")
    keep(page, "hard-one-unit")
    page.context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--card", help="unit to show, MODEL/SITE/UNIT", default=None)
    args = parser.parse_args()
    SCREENS.mkdir(exist_ok=True)
    card = args.card or best_unit(args.run)
    with sync_playwright() as play, tempfile.TemporaryDirectory() as folder:
        browser = play.chromium.launch(executable_path=find_chromium(), args=list(FLAGS))
        hard(browser, Path(folder))
        written = vt.write_site(vt.open_run(args.run), Path(folder) / "report", progress=False)
        report(browser, written.as_uri(), card)
        with served(args.run) as link:
            live(browser, link, card)
        browser.close()


if __name__ == "__main__":
    main()
