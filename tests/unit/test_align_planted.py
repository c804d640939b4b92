"""Planted truth: scenes, regions that answer to known things in them, and models that hold these things somewhere."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_mutual_info_score

import vitreous as vt
from vitreous.evidence.oracle import patch_classes
from vitreous.scenery.planted import REGIONS, attribute_maps

ATTRIBUTES = ("shape", "colour", "background")
GRID = (8, 8)


@pytest.fixture(scope="module")
def world():
    """Two models, two layers each, that hold what lies in a patch in channels of their own; a simulated brain."""
    images = vt.scenes(360, size=32, seed=5)
    generator = np.random.default_rng(0)
    maps = {name: attribute_maps(images, name) for name in ATTRIBUTES}
    things = np.concatenate([patch_classes(m, GRID)[..., 1:] / 16 for m in maps.values()], 2)
    models = {
        model: {
            f"layer {n}": (
                things @ generator.standard_normal((things.shape[2], 40))
                + 0.1 * generator.standard_normal((*things.shape[:2], 40))
            ).astype(np.float32)
            for n in range(2)
        }
        for model in ("one", "two")
    }
    responses = vt.scene_responses(images, seed=1)
    settings = {"width": 40, "epochs": 80, "patience": 30, "lr": 5e-3, "lambda_eigen": 0.0, "progress": False}
    return images, models, maps, responses, vt.align(models, None, responses, **settings)


def test_maps_say_what_is_where_and_regions_answer_to_it(world):
    images, _, maps, responses, _ = world
    about = images[3].about
    assert (maps["shape"][3] == images[3].mask).all()
    front = len(about["objects"])
    assert (maps["colour"][3][images[3].instances == front] > 0).all()
    assert ((maps["background"][3] > 0) == (images[3].instances == 0)).all()
    assert list(responses.rois) == list(REGIONS) and responses.repeats.shape == (360, 4, 48)
    again = vt.scene_responses(images, seed=1)
    np.testing.assert_array_equal(again.values, responses.values)
    shares = np.stack([(maps["colour"] == v).mean((1, 2)) for v in range(1, 11)], 1)
    fit = np.linalg.lstsq(np.c_[shares, np.ones(360)], responses.values[:, responses.rois["colour"]], rcond=None)[0]
    left = responses.values[:, responses.rois["colour"]] - np.c_[shares, np.ones(360)] @ fit
    assert left.var() < 0.05


def test_regions_are_recovered_up_to_their_ceiling_and_the_one_that_is_noise_is_not(world):
    *_, alignment = world
    rows = {row["region"]: row for row in alignment.records()}
    for name in ATTRIBUTES:
        assert rows[name]["ceiling"] > 0.9 and rows[name]["R2"] > 0.6, rows
    assert rows["nothing"]["R2"] < 0.1 and rows["nothing"]["ceiling"] < 0.3, rows


def test_what_speaks_for_a_region_segments_what_the_region_answers_to(world):
    _, models, maps, _, alignment = world
    only = {"one": {"layer 1": models["one"]["layer 1"]}}
    readings = {roi: alignment.reader(roi) for roi in ATTRIBUTES}
    table = np.array(
        [
            [
                found.best
                for found in vt.segmentation_by_layer(only, maps[what], readings, progress=False).scores.values()
            ]
            for what in ATTRIBUTES
        ]
    )
    assert (table.argmax(1) == np.arange(3)).all(), table  # each attribute is told best by its own region


def test_concepts_of_the_shared_space_are_the_planted_ones_in_both_models(world):
    _, models, maps, _, alignment = world
    spectral = vt.ncut(models, 20, read=alignment.reader("colour"), progress=False)
    groups = vt.group_nodes(spectral)(14)
    truth = patch_classes(maps["colour"], GRID).argmax(2)
    clear = (patch_classes(maps["colour"], GRID).max(2) > 12) & (truth > 0)  # the ground has no colour to be told by
    found = {key: spectral.of(*key, groups) for key in spectral.blocks}
    scores = {key: adjusted_mutual_info_score(truth[clear], part[clear]) for key, part in found.items()}
    assert min(scores.values()) > 0.5, scores
    a, b = (found[model, "layer 1"][clear] for model in ("one", "two"))
    assert adjusted_mutual_info_score(a, b) > 0.5 and (a == b).mean() > 0.6, (
        a == b
    ).mean()  # one number in both models


def test_only_scenes_can_be_asked():
    plain = vt.ImageSet.from_arrays(np.zeros((2, 32, 32, 3), np.uint8))
    with pytest.raises(vt.SettingsError, match="only scenes know"):
        vt.scene_responses(plain)
    with pytest.raises(vt.SettingsError, match=r"(?s)no such attribute.*shape"):
        attribute_maps(vt.scenes(2, size=32), "smell")
    with pytest.raises(vt.SettingsError, match="at least two repeats"):
        vt.scene_responses(vt.scenes(2, size=32), repeats=1)
    with pytest.raises(vt.SettingsError, match=r"'noise': -1\.0"):
        vt.scene_responses(vt.scenes(2, size=32), noise=-1.0)
