"""How fast the pages are, measured in Chromium: maps under the mouse, the index of units, the map of a million patches.

    python benchmarks/pages.py RUN           RUN is a folder that `vitreous examine` or `vitreous demo` wrote

Hover: from the browser's time stamp of the mouse event to the frame after the map of that token was painted, with the
maps of the block already in the page. New picture and new block: from the change to the frame after the map of the
token under the resting mouse was painted; the explorer computes all maps of the block in between. Nothing is kept from
before: the server starts fresh and every picture is new to it. The index is opened from the file system with the
network off: from the start of the navigation to the frame in which the first units with their heat stand on the page.
The map is drawn without a graphics card. There is no peer to compare with: no other tool shows this.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "browser"))
from browser_flags import FLAGS, find_chromium  # noqa: E402
from made_site import Plan, write_made_site  # noqa: E402

WATCH = """() => {
  window.taken = []; window.began = 0;
  addEventListener("pointermove", (event) => { window.began = event.timeStamp; }, true);
  const canvas = document.querySelector(".stage canvas");
  new MutationObserver(() => {
    if (!canvas.dataset.shown) return;
    const began = window.began, shown = canvas.dataset.shown;
    requestAnimationFrame(() => window.taken.push([shown, performance.now() - began]));
  }).observe(canvas, { attributes: true, attributeFilter: ["data-shown"] });
}"""

FRAMES = """() => {
  window.frames = [];
  let last = performance.now();
  const tick = (now) => { window.frames.push(now - last); last = now; requestAnimationFrame(tick); };
  requestAnimationFrame(tick);
}"""
SLIDE = """const slider = document.querySelector('.bench-left input[type=range]');
  slider.value = {}; slider.dispatchEvent(new Event('input', {{bubbles: true}}));"""


@contextmanager
def served(run: Path) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(run, Path(folder) / "run")
        command = [sys.executable, "-c", "from vitreous.cli import app; app()", "explore", str(copy), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
            for line in server.stdout or ():
                if found := re.search(r"http://127\.0\.0\.1:\d+/", line):
                    yield found[0]
                    break
            server.terminate()


def summary(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    spread = {
        "median": statistics.median(ordered),
        "p95": ordered[int(0.95 * (len(ordered) - 1))],
        "count": len(ordered),
    }
    return {name: round(value, 1) for name, value in spread.items()}


def measured(page: Page, change: str, shown: str) -> float:
    """Milliseconds from a change of the address or the slider until its map is painted."""
    page.evaluate(f"() => {{ window.taken = []; window.began = performance.now(); {change} }}")
    page.wait_for_function("start => window.taken.some(([shown]) => shown.startsWith(start))", arg=shown)
    return page.evaluate("start => window.taken.find(([shown]) => shown.startsWith(start))[1]", shown)


def hover(browser: Browser, link: str, model: str, pictures: int) -> dict[str, dict[str, float]]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(60_000)
    page.goto(f"{link}#/live/0?model={model}")
    page.wait_for_selector(".stage canvas")
    box = page.locator(".stage").bounding_box()
    page.mouse.move(box["x"] + 40, box["y"] + 40)
    page.wait_for_selector(".stage canvas[data-shown^='scenes']", state="attached")
    page.evaluate(WATCH)
    moved = []
    for step in range(200):
        page.evaluate("() => { window.taken = []; }")
        x, y = (0.03 + 0.125 * (step * 3 % 8)), (0.03 + 0.125 * (step * 5 // 8 % 8))
        page.mouse.move(box["x"] + (x + 0.05) * box["width"], box["y"] + (y + 0.05) * box["height"])
        page.wait_for_timeout(20)
        moved += [time for _, time in page.evaluate("() => window.taken")]
    depth = int(page.locator(".bench-left input[type=range]").get_attribute("max")) + 1
    new_picture, new_block = [], []
    for k in range(1, pictures):
        new_picture.append(measured(page, f"location.hash = '#/live/{k}?model={model}';", f"{model} {k} {depth - 1}"))
        if k % 2:
            new_block.append(measured(page, SLIDE.format(depth - 3), f"{model} {k} {depth - 3}"))
            measured(page, SLIDE.format(depth - 1), f"{model} {k} {depth - 1}")
    page.close()
    return {"hover": summary(moved), "new picture": summary(new_picture), "new block": summary(new_block)}


def opened_index(browser: Browser, folder: Path, units: int) -> dict[str, float]:
    site = write_made_site(folder, Plan(units=units, pictures=1000, nasty=False), every_card=False)
    times = []
    for _ in range(7):
        context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
        page = context.new_page()
        page.goto(f"{(site / 'index.html').as_uri()}#/units")
        page.wait_for_selector(".unit-cell canvas")
        times.append(page.evaluate("() => new Promise((done) => requestAnimationFrame(() => done(performance.now())))"))
        context.close()
    return summary(times)


def opened_map(browser: Browser, folder: Path, points: int) -> dict[str, float]:
    site = write_made_site(folder, Plan(units=10, pictures=1000, points=points, nasty=False))
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(120_000)
    page.goto(f"{(site / 'index.html').as_uri()}#/map")
    page.wait_for_selector("[data-drawn=yes]")
    drawn = page.evaluate("() => performance.now()")
    box = page.locator(".plot canvas").bounding_box()
    page.evaluate(FRAMES)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    for step in range(30):
        page.mouse.wheel(0, -40 if step < 15 else 40)
        page.wait_for_timeout(30)
    frames = page.evaluate("() => window.frames.slice(2)")
    page.close()
    return {"open": round(drawn, 0), "frame while zooming": summary(frames)["median"], "points": points}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--model", default="scenes-text")
    parser.add_argument("--pictures", type=int, default=20)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "pages.json")
    args = parser.parse_args()
    with sync_playwright() as play, tempfile.TemporaryDirectory() as folder:
        browser = play.chromium.launch(executable_path=find_chromium(), args=list(FLAGS))
        parts = {
            "index of 1,000 units": lambda: opened_index(browser, Path(folder) / "index", 1000),
            "map of 1,000,000 patches": lambda: opened_map(browser, Path(folder) / "map", 1_000_000),
        }
        with served(args.run) as link:
            found: dict = hover(browser, link, args.model, args.pictures)
        for name, values in found.items():
            print(f"{name:28} {values}", flush=True)
        for name, part in parts.items():
            found[name] = part()
            print(f"{name:28} {found[name]}", flush=True)
        found["machine"] = f"{os.cpu_count()} cores, {platform.machine()}, software WebGL"
        browser.close()
    args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
