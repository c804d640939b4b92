"""The pages on hard data, opened from the file system with the network off."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
from made_site import NASTY, Plan, write_made_site
from opened_page import opened
from PIL import Image

ODD = "#/unit/odd%20model%20(%C3%BC%2C%2050%25)/blocks.3.mlp.out/0"
SCREENS = {
    "#/": "verylongword",
    "#/units": "Units",
    ODD: "named by hand",
    "#/unit/second/blocks.3.mlp.out/3": "",
    "#/map": "Universal space",
    "#/pictures": "Pictures",
    "#/picture/0": "verylongword",
    "#/compare": "Two models",
    "#/about": "About",
    "#/lens/structure": "Structure",
    "#/lens/tokens": "Tokens",
}


def choose(page, name: str, value: str) -> None:
    page.locator(f"label:has(> span:text-is('{name}')) select").select_option(value)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_every_screen_opens_and_fits(chromium, hard_site, width, dark):
    scheme = "dark" if dark else "light"
    for page in opened(
        chromium,
        (hard_site / "index.html").as_uri(),
        viewport={"width": width, "height": 844},
        color_scheme=scheme,
    ):
        for hash, heading in SCREENS.items():
            shown = page.go(hash)
            assert heading in shown.locator("h1").first.inner_text(), hash
            assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{hash} is too wide"
            assert shown.evaluate("window.hurt") is None, f"{hash}: a name was taken for markup"
            ground = shown.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (ground == "rgb(16, 22, 28)") == dark
        assert not page.wrong, page.wrong


def test_nothing_is_asked_from_elsewhere(hard):
    asked: list[str] = []
    hard.page.on("request", lambda request: asked.append(request.url))
    for hash in SCREENS:
        hard.go(hash)
    assert asked
    assert all(url.startswith(("file:", "data:", "blob:")) for url in asked), asked


def test_a_card_shows_all_lenses_with_evidence_and_control(hard):
    page = hard.go(ODD)
    for title in ("What it answers to", "Its sub-units", "Its cluster", "universal space", "strongest tokens"):
        assert page.get_by_role("heading", name=title).count() == 1, title
    assert page.locator("#card-pictures .quantile").count() == 3
    assert page.locator("#card-disentangle .proof .tick").count() == 1, "the control stands beside the claim"
    assert page.get_by_text("no better than the control").count() == 1
    assert page.get_by_text("not measured").count() == 1
    canvas = page.locator("#card-pictures canvas.heat").first
    pixels = "c => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]"
    drawn = sum(alpha > 0 for alpha in canvas.evaluate(pixels)[3::4])
    assert drawn > 100, "the heat is drawn"


def test_forty_sub_units_come_in_two_steps_and_have_links(hard):
    page = hard.go(ODD)
    assert page.locator(".sub").count() == 12
    page.get_by_role("button", name="Show all 40").click()
    assert page.locator(".sub").count() == 40
    page = hard.go(ODD + ".37")
    page.wait_for_selector(".sub.here")
    assert page.locator(".sub.here h3").inner_text() == "Sub-unit 0.37"


def test_missing_lenses_say_why_and_how(hard):
    page = hard.go("#/unit/second/blocks.3.mlp.out/3")
    assert page.get_by_text("Its tokens were not examined.").count() == 1
    assert page.get_by_text("vitreous examine MODEL --out RUN").count() == 1
    page = hard.go("#/lens/tokens")
    assert page.get_by_text("Its folder is damaged").count() == 1


def test_downloads_and_copies(hard, tmp_path):
    page = hard.go(ODD)
    with page.expect_download() as got:
        page.get_by_role("button", name="JSON", exact=True).click()
    got.value.save_as(tmp_path / "card.json")
    card = json.loads((tmp_path / "card.json").read_text())
    assert card["disentangle"]["k"] == 40
    with page.expect_download() as got:
        page.get_by_role("button", name="PNG").click()
    got.value.save_as(tmp_path / "card.png")
    with Image.open(tmp_path / "card.png") as image:
        assert image.width == 1200
        assert image.height > 1000
        assert len(image.convert("RGB").resize((60, 60)).getcolors(3600)) > 200, "pictures are on it"
    page.get_by_role("button", name="Copy Python").first.click()
    page.get_by_text("Python copied").wait_for()


def test_search_finds_and_leads_there(many):
    page = many.go("#/")
    page.keyboard.press("/")
    page.keyboard.type("label 4321")
    page.locator(".hit").first.wait_for()
    assert "label 4321" in page.locator(".hit").first.inner_text()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_function("location.hash === '#/unit/second/blocks.3.mlp.out/2160'")


def test_thousands_of_units_are_filtered_without_drawing_them_all(many):
    page = many.go("#/units")
    page.wait_for_selector(".unit-cell")
    assert page.locator(".unit-cell").count() < 120
    page.get_by_label("Words").fill("label 17")
    page.get_by_text("of 5,000 units").wait_for()
    assert "q=label+17" in page.evaluate("location.hash")
    choose(page, "Order", "order")
    first = page.locator(".unit-cell strong").first.inner_text()
    assert first == "label 17"
    choose(page, "Model", "first")
    page.get_by_label("Words").fill("nothing has this")
    page.get_by_text("Nothing matches").wait_for()
    page.get_by_role("button", name="Clear the filters").click()
    page.get_by_text("5,000 units", exact=True).wait_for()
    page.get_by_role("button", name="Rows").click()
    page.wait_for_selector(".unit-row")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.wait_for_selector("[data-i='4999']")


def test_keys_go_from_unit_to_unit(hard):
    page = hard.go("#/units?sort=order")
    page.wait_for_selector(".unit-cell")
    page.locator("[data-i='0'] a").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.closest('[data-i]').dataset.i") == "1"
    page.keyboard.press("Enter")
    page.wait_for_function("location.hash.includes('/unit/second')")
    page.wait_for_selector(".card-head")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("location.hash.includes('/unit/odd')")
    page.go_back()
    page.wait_for_function("location.hash.includes('/unit/second')")


def test_the_theme_can_be_turned_and_heat_too(hard):
    page = hard.go(ODD)
    page.locator("[data-wish=theme]").click()
    page.locator("[data-wish=theme]").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 22, 28)"
    page.keyboard.press("h")
    page.keyboard.press("h")
    assert "off" in page.locator("[data-wish=heat]").get_attribute("aria-label")


#: Presses the button, and begins to draw the moment it is pressed: no frame is painted in between.
AT_ONCE = """() => new Promise((done) => {
  const button = [...document.querySelectorAll("button")].find((one) => one.textContent.trim() === "Lasso");
  const canvas = document.querySelector(".plot canvas");
  const { x, y, width, height } = canvas.getBoundingClientRect();
  const mouse = (kind, angle, buttons) => canvas.dispatchEvent(new MouseEvent(kind, { bubbles: true, buttons,
    clientX: x + width / 2 + 120 * Math.cos(angle), clientY: y + height / 2 + 120 * Math.sin(angle) }));
  let step = 0;
  const draw = () => {
    if (step++ < 24) { mouse("mousemove", step / 4, 1); setTimeout(draw, 20); }
    else { mouse("mouseup", 6, 0); done(); }
  };
  const watch = new MutationObserver(() => { watch.disconnect(); mouse("mousedown", 0, 1); draw(); });
  watch.observe(button, { attributes: true, attributeFilter: ["aria-pressed"] });
  button.click();
})"""


def test_a_lasso_is_not_lost_on_a_machine_that_paints_late(many):
    page = many.go("#/map")
    page.wait_for_selector("[data-drawn=yes]")
    page.evaluate(AT_ONCE)
    page.wait_for_selector(".chosen li")


def draw_lasso(page, x, y):
    """Around a place, at a hand's speed: the lasso takes a point every 10 ms."""
    page.mouse.move(x + 120, y)
    page.mouse.down()
    for step in range(1, 25):
        page.mouse.move(x + 120 * math.cos(step / 4), y + 120 * math.sin(step / 4))
        page.wait_for_timeout(20)
    page.mouse.up()


def test_the_map_answers_to_hover_and_lasso(many):
    page = many.go("#/map")
    page.wait_for_selector("[data-drawn=yes]")
    box = page.locator(".plot canvas").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    for step in range(40):
        page.mouse.move(x + step, y + step / 2)
        if page.locator(".tip").count():
            break
        page.wait_for_timeout(30)
    page.wait_for_selector(".tip")
    page.wait_for_selector(".plot-lines polyline", state="attached")
    page.get_by_role("button", name="Lasso").click()
    page.get_by_role("button", name="Lasso", pressed=True).wait_for()
    draw_lasso(page, x, y)
    page.wait_for_selector(".chosen li")
    said = page.locator(".atlas-side [role=status]").inner_text()
    assert int(said.split()[0].replace(",", "")) > 1000
    choose(page, "Colour", "concept")
    page.get_by_role("button", name="concept 3").click()
    choose(page, "Trajectories", "groups")
    page.wait_for_function("document.querySelectorAll('.plot-lines circle').length === 16")
    assert not many.wrong, many.wrong


def test_one_unit_one_model(chromium, tmp_path):
    site = write_made_site(tmp_path / "one", Plan(units=1, models=1, pictures=3, points=24, nasty=False))
    for page in opened(chromium, (site / "index.html").as_uri()):
        shown = page.go("#/units")
        shown.get_by_text("1 unit", exact=True).wait_for()
        shown = page.go("#/compare")
        assert shown.get_by_text("There is one model in this run").count() == 1
        shown = page.go("#/map")
        shown.wait_for_selector("[data-drawn=yes]")
        assert not page.wrong, page.wrong


@pytest.mark.parametrize(
    ("file", "hash", "said"),
    [
        ("index", "#/", "could not be opened"),
        ("units", "#/units", "could not be opened"),
        ("cloud", "#/map", "could not be opened"),
        ("lens/align", "#/lens/align", "could not be opened"),
        ("unit/second/blocks.3.mlp.out/0", "#/unit/second/blocks.3.mlp.out/0", "could not be opened"),
    ],
)
@pytest.mark.parametrize("harm", ["missing", "torn"])
def test_a_damaged_site_says_which_file(chromium, hard_site, tmp_path, file, hash, said, harm):
    site = Path(shutil.copytree(hard_site, tmp_path / "site"))
    path = site / "data" / f"{file}.js"
    if harm == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:100])
    for page in opened(chromium, (site / "index.html").as_uri()):
        shown = page.go(hash)
        shown.get_by_text(said).wait_for()
        assert shown.get_by_text(f"data/{file}.js").count() == 1


def test_unknown_addresses_say_so(hard):
    assert hard.go("#/nowhere").get_by_text("There is no such page").count() == 1
    assert hard.go("#/unit/second/blocks.3.mlp.out/99999").get_by_text("has no such unit").count() == 1
    assert hard.go("#/picture/99999").get_by_text("There is no picture 99999").count() == 1
    assert hard.go("#/live").get_by_text("vitreous explore RUN").count() == 1


def test_names_are_shown_as_they_are(hard):
    page = hard.go("#/")
    assert page.locator("h1").inner_text() == NASTY
