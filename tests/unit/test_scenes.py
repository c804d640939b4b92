"""The scenes: masks, attributes and pixels must tell the same story, and the story must not be too easy."""

from __future__ import annotations

import colorsys
import hashlib
import pickle
from itertools import pairwise

import numpy as np
import pytest

from vitreous.errors import SettingsError
from vitreous.scenery import ATTRIBUTES, Scene, render_scene, scenes, vocabulary
from vitreous.scenery.draws import Draws
from vitreous.scenery.layout import MIN_VISIBLE, lay_out
from vitreous.scenery.palette import COLOURS
from vitreous.scenery.shapes import SHAPES, distance
from vitreous.scenery.textures import BACKGROUND_TEXTURES


@pytest.fixture(scope="module")
def many() -> list[Scene]:
    return [render_scene(3, index) for index in range(500)]


def test_attributes_follow_from_the_masks(many: list[Scene]) -> None:
    for scene in many[:100]:
        assert scene.instances.max() == len(scene.objects)
        for depth, thing in enumerate(scene.objects):
            owned = scene.instances == depth + 1
            rows, columns = np.nonzero(owned)
            assert thing.depth == depth
            assert thing.pixels == len(rows) > 0
            assert thing.box == (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
            assert (scene.mask[owned] == 1 + ATTRIBUTES["shape"].index(thing.shape)).all()
        assert (scene.mask[scene.instances == 0] == 0).all()


def test_every_pixel_clear_of_edges_belongs_to_the_nearest_outline_around_it() -> None:
    size, clear = 96, 1.0
    line = np.arange(size) + 0.5
    x, y = np.meshgrid(line, line)
    for index in range(40):
        scene = render_scene(4, index, size)
        layout = lay_out(Draws(4, index), (3, 6))
        fields = [
            distance(o.shape, x - o.x * size, y - o.y * size, o.radius * size, o.rotation) for o in layout.objects
        ]
        sure = np.all([np.abs(field) > clear for field in fields], axis=0)
        owner = np.zeros((size, size), int)
        for number, field in enumerate(fields, start=1):
            owner[field < 0] = number
        assert sure.mean() > 0.6
        np.testing.assert_array_equal(scene.instances[sure], owner[sure])


def test_visible_share_compares_with_the_whole_object() -> None:
    line = (np.arange(-200, 712) + 0.5) / 8
    x, y = np.meshgrid(line, line)
    for index in range(10):
        scene = render_scene(5, index)
        for thing in scene.objects:
            across, down = x - thing.centre[0], y - thing.centre[1]
            area = (distance(thing.shape, across, down, thing.radius, thing.rotation) < 0).sum() / 64
            assert thing.visible == pytest.approx(min(thing.pixels / area, 1), abs=0.06)


def test_objects_hide_each_other_but_never_too_much(many: list[Scene]) -> None:
    shares = np.array([thing.visible for scene in many for thing in scene.objects])
    assert shares.min() > MIN_VISIBLE - 0.06
    assert (shares < 0.9).mean() > 0.2
    assert min(thing.pixels for scene in many for thing in scene.objects) >= 24


def test_every_name_appears(many: list[Scene]) -> None:
    for attribute, names in ATTRIBUTES.items():
        seen = {thing[attribute] for scene in many for thing in scene.about()["objects"]}
        assert seen == set(names)
    assert {scene.background_texture for scene in many} == set(BACKGROUND_TEXTURES)
    assert {scene.background_colour for scene in many} == set(COLOURS)
    assert {scene.label for scene in many} == set(range(len(SHAPES)))
    assert {len(scene.objects) for scene in many} == {3, 4, 5, 6}
    assert len(SHAPES) >= 10 and len(COLOURS) >= 8 and len(ATTRIBUTES["texture"]) >= 6 and len(BACKGROUND_TEXTURES) >= 6


def test_colour_names_mean_the_hue_that_is_seen(many: list[Scene]) -> None:
    means: dict[str, list[np.ndarray]] = {name: [] for name in COLOURS}
    for scene in many:
        for thing in scene.objects:
            means[thing.colour].append(scene.image[scene.instances == thing.depth + 1].mean(0))
    for name, region in COLOURS.items():
        hue, saturation, _ = colorsys.rgb_to_hsv(*np.mean(means[name], axis=0) / 255)
        if name == "white":
            assert saturation < 0.1
        else:
            off = (hue - sum(region.hue) / 2 + 0.5) % 1 - 0.5
            assert abs(off) < 0.03, name
            assert saturation > 0.25, name
        assert np.std(means[name], axis=0).max() > 8, f"{name} is a constant"


def test_maps_of_attributes(many: list[Scene]) -> None:
    scene = many[0]
    np.testing.assert_array_equal(scene.map("shape"), scene.mask)
    colours = scene.map("colour")
    for thing in scene.objects:
        where = scene.instances == thing.depth + 1
        assert (colours[where] == 1 + ATTRIBUTES["colour"].index(thing.colour)).all()
    with pytest.raises(SettingsError, match=r"no such attribute\n  given:    'color'\n.*\n  nearest:  colour"):
        scene.map("color")


def test_captions_name_every_object_most_visible_first(many: list[Scene]) -> None:
    words = set(vocabulary())
    assert len(words) == len(vocabulary())
    for scene in many[:50]:
        caption = scene.caption
        assert set(caption.replace(",", "").split()) <= words
        ordered = sorted(scene.objects, key=lambda thing: (-thing.pixels, -thing.depth))
        places = [caption.index(thing.phrase) for thing in ordered]
        assert all(a <= b for a, b in pairwise(places))
        assert caption.startswith(f"a {scene.main.phrase}")
        assert ATTRIBUTES["shape"][scene.label] == scene.main.shape
        assert caption.endswith(f"{scene.background_colour} {scene.background_texture} background")
    assert any(" on an orange " in scene.caption for scene in many)


def test_the_set_holds_what_single_scenes_hold() -> None:
    images = scenes(6, size=48, seed=11, objects=(1, 3), first=2)
    assert len(images) == 6
    assert images.classes == tuple(SHAPES)
    assert images.mask_classes == ("background", *SHAPES)
    for k, picture in enumerate(images):
        scene = render_scene(11, 2 + k, 48, (1, 3))
        assert picture.id == f"scene-11-{2 + k:06d}"
        np.testing.assert_array_equal(np.asarray(picture.image), scene.image)
        np.testing.assert_array_equal(picture.mask, scene.mask)
        np.testing.assert_array_equal(picture.instances, scene.instances)
        np.testing.assert_array_equal(picture.boxes, [thing.box for thing in scene.objects])
        assert picture.label == scene.label
        assert picture.about["caption"] == scene.caption
        assert [thing["colour"] for thing in picture.about["objects"]] == [thing.colour for thing in scene.objects]


def test_the_bytes_are_those_of_every_other_machine() -> None:
    """Only exactly rounded arithmetic and raw generator words are used, so this holds for any numpy and processor."""
    whole = hashlib.sha256()
    for index, size in ((0, 64), (1, 64), (2, 64), (3, 96), (4, 33), (2**40, 64)):
        scene = render_scene(0, index, size)
        for part in (scene.image, scene.mask, scene.instances):
            whole.update(np.ascontiguousarray(part).tobytes())
        whole.update(scene.caption.encode())
    assert whole.hexdigest() == "59d74f7b6e2a7be2663099a2c947bfa77235062b16cc797f105749db077abdb0"


def test_a_scene_survives_the_way_to_another_process() -> None:
    scene = render_scene(1, 2)
    again = pickle.loads(pickle.dumps(scene))
    np.testing.assert_array_equal(again.image, scene.image)
    assert again.objects == scene.objects


def test_colour_clusters_do_not_find_the_objects(many: list[Scene]) -> None:
    """k-means on pixel colours, told the number of layers; each object may choose its best cluster afterwards."""
    generator = np.random.default_rng(0)
    best = []
    for scene in many[:40]:
        cluster = _k_means(scene.image.reshape(-1, 3).astype(float), len(scene.objects) + 1, generator)
        for depth in range(len(scene.objects)):
            owned = scene.instances.ravel() == depth + 1
            both = [((owned & (cluster == c)).sum(), (owned | (cluster == c)).sum()) for c in range(cluster.max() + 1)]
            best.append(max(shared / joined for shared, joined in both))
    assert np.mean(best) < 0.45


def test_nearest_pixels_do_not_know_the_label(many: list[Scene]) -> None:
    pixels = np.stack([scene.image for scene in many]).reshape(len(many), -1).astype(np.float32)
    labels = np.array([scene.label for scene in many])
    apart = (pixels[400:] ** 2).sum(1)[:, None] - 2 * pixels[400:] @ pixels[:400].T + (pixels[:400] ** 2).sum(1)
    assert (labels[:400][apart.argmin(1)] == labels[400:]).mean() < 0.25


def _k_means(points: np.ndarray, k: int, generator: np.random.Generator) -> np.ndarray:
    centres = points[generator.choice(len(points), k, replace=False)]
    nearest = np.zeros(len(points), int)
    for _ in range(10):
        nearest = ((points[:, None] - centres) ** 2).sum(-1).argmin(1)
        centres = np.stack([points[nearest == c].mean(0) if (nearest == c).any() else centres[c] for c in range(k)])
    return nearest


@pytest.mark.parametrize("name", SHAPES)
def test_distance_fields_fill_their_reach_and_have_slope_one_at_the_edge(name: str) -> None:
    line = (np.arange(800) + 0.5) / 250 - 1.6
    x, y = np.meshgrid(line, line)
    field = SHAPES[name].distance(x, y)
    farthest = np.sqrt(x * x + y * y)[field < 0].max()
    assert SHAPES[name].reach - 0.08 < farthest <= SHAPES[name].reach
    assert 1.7 < (field < 0).mean() * 3.2**2 < 2.4, "shapes are of about the same area"
    down, across = np.gradient(field, 1 / 250)
    slope = np.sqrt(down**2 + across**2)[np.abs(field) < 0.02]
    assert np.median(slope) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"n": 0}, "not a number of scenes\n  given:    {'n': 0, 'first': 0}\n  accepted: n >= 1 and first >= 0"),
        ({"n": 1, "first": -1}, "not a number of scenes"),
        ({"n": 1, "size": 16}, "scenes are not drawn at this size\n  given:    16\n  accepted: 32 to 512 pixels"),
        ({"n": 1, "size": 513}, "scenes are not drawn at this size"),
        ({"n": 1, "seed": -1}, r"the seed of a scene is out of range\n  given:    -1"),
        ({"n": 1, "objects": (4, 2)}, r"not a range of numbers of objects\n  given:    \(4, 2\)"),
        ({"n": 1, "objects": (0, 2)}, "not a range"),
        ({"n": 1, "objects": (2, 9)}, r"accepted: \(fewest, most\) with 1 <= fewest <= most <= 8"),
    ],
)
def test_refusals(arguments: dict, text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        scenes(**arguments)


def test_an_index_below_zero_is_refused() -> None:
    with pytest.raises(SettingsError, match="the index of a scene is out of range\n  given:    -1"):
        render_scene(0, -1)


@pytest.mark.parametrize("wrong", [{"n": "5"}, {"n": 2.0}, {"n": 2, "size": "64"}, {"n": 2, "seed": 1.5}])
def test_numbers_of_another_type_are_refused(wrong: dict) -> None:
    with pytest.raises(SettingsError, match=r"number"):
        scenes(**wrong)
