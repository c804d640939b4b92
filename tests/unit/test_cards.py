"""Concept cards: plain data that says what the lenses found, and what is missing."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

import vitreous as vt
from vitreous.cards import Deck, unit_id

PARTS = {"id", "model", "site", "block", "unit", "dead", "claim", "label", "activation", "rows", "structure",
         "disentangle", "align", "tokens", "similar", "evidence", "code", "missing"}  # fmt: skip


@pytest.fixture(scope="module")
def deck(examined):
    return Deck(examined)


@pytest.fixture(scope="module")
def cards(deck):
    return list(deck.cards())


def test_every_unit_has_a_card_with_every_part_and_a_sentence(deck, cards):
    assert len(cards) == len(deck) == 16
    for card in cards:
        assert set(card) == PARTS
        json.dumps(card, allow_nan=False)
        assert card["missing"] == []
        assert card["claim"].endswith(".")
        for lens in ("structure", "disentangle", "align", "tokens"):
            assert card[lens]["sentence"].endswith(".")
        assert card["id"] == unit_id(card["model"], card["block"], card["unit"])


def test_tiles_point_at_the_patch_that_is_brightest(examined, cards):
    grid = examined.models[0].grid
    for card in cards:
        for tile in card["rows"][0]["tiles"]:
            heat = np.frombuffer(base64.b64decode(tile["heat"]), np.uint8)
            assert len(heat) == grid.patches
            if heat.max() > 0:
                assert heat[tile["token"] - 1] == heat.max()  # one prefix token
        assert card["rows"][0]["tiles"][0]["value"] == card["rows"][0]["high"]


def test_the_histogram_counts_every_patch(cards):
    for card in cards:
        assert sum(card["activation"]["counts"]) == 24 * 16
        assert len(card["activation"]["edges"]) == len(card["activation"]["counts"]) + 1


def test_subunits_are_those_of_the_disentanglement(examined, cards):
    for card in cards:
        finding = examined.disentanglement(card["model"], card["block"])
        mine = finding.subunits(card["unit"])
        assert len(card["disentangle"]["subunits"]) == len(mine)
        assert [one["size"] for one in card["disentangle"]["subunits"]] == finding.sizes[mine].tolist()
        assert [one["id"] for one in card["disentangle"]["subunits"]] == [f"{card['id']}.{k}" for k in range(len(mine))]


def test_a_unit_is_linked_to_its_channel_of_the_stream(examined, deck):
    """A cluster is planted over (block, channel): the cards of its members name each other and the anchor."""
    from dataclasses import replace

    finding = examined.structure("first")
    units = examined.disentanglement("first", 1).units
    labels = np.full_like(finding.labels, -1)
    labels[0, 1, 3] = labels[1, 1, units[0]] = labels[2, 1, 7] = 0
    away = np.full_like(finding.to_anchor, np.nan)
    away[0, 1, 3], away[1, 1, units[0]], away[2, 1, 7] = 0, 0.5, 0.25
    sheet = replace(deck.sheet("first", 1), structure=replace(finding, labels=labels, to_anchor=away))
    from vitreous.cards.lenses import structure_part

    found = structure_part(sheet, int(units[0]))
    assert (found["cluster"], found["size"], found["span"]) == (0, 3, [0, 2])
    assert (found["anchor"]["block"], found["anchor"]["channel"]) == (0, 3)
    assert [(m["block"], m["channel"], m["distance"]) for m in found["mates"]] == [(0, 3, 0), (2, 7, 0.25)]
    assert not found["inefficient"]
    assert structure_part(sheet, int(units[1]))["cluster"] is None


def test_the_code_on_a_card_runs(cards, examined):
    """Copied from the card, beside the run folder."""
    last = cards[-1]["code"].rstrip()
    script = last.replace("\nhidden @", "\nresult = hidden @") + "\nassert result.shape == (4, 17)"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=examined.folder.parent)


def test_controls_stand_beside_the_numbers(cards):
    lenses = {row["lens"] for card in cards for row in card["evidence"]}
    assert {"disentangle", "tokens", "words"} <= lenses
    for card in cards:
        for row in card["evidence"]:
            assert row["value"] is not None and row["control"] is not None and row["note"]
            if row["lens"] == "words":  # more is better, as in every other row
                assert (row["value"] >= row["control"]) == ("sure enough" in row["note"])


@pytest.mark.parametrize(
    ("gone", "lens", "left_out"),
    [
        ("structure/first.npz", "structure", "structure"),
        ("tokens/first/1.npz", "tokens", "tokens"),
        ("align/map.npz", "align", "align"),
        ("disentangle/first/1/disentanglement.json", "disentangle", "disentangle"),
        ("profiles/first/1.npz", "pictures", "activation"),
        ("evidence/first/1.json", "evidence", None),
        ("labels/first/1/units.npz", "words", "label"),
    ],
)
def test_a_card_says_what_is_missing_and_shows_the_rest(examined, tmp_path, gone, lens, left_out):
    shutil.copytree(examined.folder, tmp_path / "run", copy_function=shutil.copy)
    (tmp_path / "run" / gone).write_bytes(b"cut short")
    run = vt.open_run(tmp_path / "run")
    card = Deck(run).card("first", 1, run.settings["units"]["first/1"][0])
    (said,) = [one for one in card["missing"] if one["lens"] == lens]
    assert "damaged" in said["why"] and "again" in said["how"] and str(tmp_path) not in said["why"]
    if left_out is not None:
        assert not card[left_out]
    assert card["similar"]


def test_columns_are_the_cards(deck, cards):
    columns = deck.columns()
    assert columns["id"] == [card["id"] for card in cards]
    assert columns["subunits"] == [len(card["disentangle"]["subunits"]) for card in cards]
    assert columns["top"] == [card["rows"][0]["tiles"][0]["picture"] for card in cards]
    assert {len(values) for values in columns.values()} == {16}


@pytest.mark.slow
def test_known_concepts_get_their_pictures_and_their_names(tmp_path):
    """Units of scenes-text whose truth is known: from pictures to card it is kept, on scenes that chose nothing."""
    truth = {98: "marbled", 102: "faded", 111: "ring"}
    images = vt.scenes(256, size=64, seed=11)
    asked = {"blocks": [7], "units": list(truth), "close": 16, "progress": False, "device": "cpu"}
    run = vt.examine("bundled:scenes-text", images, tmp_path / "run", **asked)
    owners = [[owner_words(images[k], patch) for patch in range(64)] for k in range(len(images))]
    for unit, word in truth.items():
        card = Deck(run).card("scenes-text", 7, unit)
        assert card["label"]["text"] == word and word in card["claim"]
        strongest = [word in owners[tile["picture"]][tile["token"] - 1] for tile in card["rows"][0]["tiles"]]
        weakest = [word in owners[tile["picture"]][tile["token"] - 1] for tile in card["rows"][-1]["tiles"]]
        usual = np.mean([word in words for picture in owners for words in picture])
        assert np.mean(strongest) > 0.6 > 0.25 > usual
        assert np.mean(weakest) < np.mean(strongest)


def owner_words(picture, patch):
    """Shape, colour and texture of what owns most of a patch of a scene."""
    row, column = divmod(patch, 8)
    inside = picture.instances[8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
    numbers, counts = np.unique(inside, return_counts=True)
    words = {o["depth"] + 1: (o["shape"], o["colour"], o["texture"]) for o in picture.about["objects"]}
    return words.get(int(numbers[counts.argmax()]), ())
