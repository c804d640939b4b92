"""Grad-CAM++ against a twin from the equations, on every family that classifies, and against its known traps."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import vitreous as vt
from vitreous.baselines.gradcam import CamFinding

sys.path.insert(0, str(Path(__file__).parents[1]))
from conformance.zoo import ZOO
from reference.gradcam import activations_and_gradient, slow_gradcam

CLASSIFIERS = (
    "timm ViT",
    "timm ViT, no class token",
    "timm ViT, LayerScale, 4 registers",
    "timm ViT, registers only",
    "timm ViT, wide pictures",
    "timm DeiT, distilled",
    "timm DINOv3",
    "timm ViT, norm after",
    "timm ConvNeXt",
    "timm ConvNeXt V2",
    "torchvision ViT",
    "HF ViT",
    "HF DeiT",
    "HF DINOv2",
    "HF ConvNeXt",
)


def subject_of(name: str) -> vt.Subject:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return vt.wrap(ZOO[name][1]().eval(), name=name)


def pictures(subject: vt.Subject, count: int = 3) -> torch.Tensor:
    return torch.randn(count, 3, *subject.preprocess.size, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def gap():
    """A ViT that averages its patches, so that the last block's patches reach the logits."""
    return subject_of("timm ViT, registers only")


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_maps_are_those_of_the_equations_for_every_family(name):
    subject = subject_of(name)
    x = pictures(subject)
    finding = vt.gradcam(subject, x, targets=1, progress=False, batch_size=2)
    assert finding.maps.shape == (3, *subject.grid()) and finding.maps.dtype == np.float32
    A, g = activations_and_gradient(subject, finding.site, x, 1)
    np.testing.assert_allclose(finding.maps, slow_gradcam(A, g, subject.grid()), rtol=2e-3, atol=1e-9)
    assert finding.maps.max() > 0 and (finding.targets == 1).all()


def test_a_class_token_is_followed_to_the_last_place_where_patches_matter():
    subject = subject_of("timm ViT")
    finding = vt.gradcam(subject, pictures(subject), progress=False)
    assert finding.site == "blocks.2.resid.in"
    assert "patches after block 2 do not reach it" in finding.notes[0]
    earlier = vt.gradcam(subject, pictures(subject), block=1, progress=False)
    assert earlier.site == "blocks.1.resid.out" and earlier.notes == ()
    np.testing.assert_allclose(finding.maps, earlier.maps, rtol=1e-4)  # the same place


def test_averaged_patches_are_read_after_the_last_block(gap):
    finding = vt.gradcam(gap, pictures(gap), progress=False)
    assert finding.site == "blocks.2.resid.out" and finding.notes == ()


@pytest.mark.parametrize("name", ["timm ViT, registers only", "timm ViT"])
@pytest.mark.parametrize("targets", [None, [2, 0, 1]])
def test_one_pass_gives_the_maps_of_both_methods(name, targets):
    subject = subject_of(name)
    x = pictures(subject)
    found = vt.gradcams(subject, x, targets, batch_size=2, progress=False)
    assert list(found) == ["Grad-CAM++", "Grad-CAM"]
    for method, plus_plus in (("Grad-CAM++", True), ("Grad-CAM", False)):
        alone = vt.gradcam(subject, x, targets, plus_plus=plus_plus, batch_size=2, progress=False)
        assert alone.maps.any() and (found[method].maps == alone.maps).all()
        assert (found[method].targets == alone.targets).all() and (found[method].predicted == alone.predicted).all()
        assert (found[method].site, found[method].notes) == (alone.site, alone.notes)
        assert found[method].settings == alone.settings and alone.settings["plus_plus"] is plus_plus
    assert (found["Grad-CAM++"].maps != found["Grad-CAM"].maps).any()


@pytest.mark.parametrize("methods", [[], ["Grad-CAM+"]])
def test_methods_that_do_not_exist_are_named(gap, methods):
    with pytest.raises(vt.SettingsError, match="no such method"):
        vt.gradcams(gap, pictures(gap), methods=methods, progress=False)


def test_plain_gradcam_averages_the_gradient(gap):
    x = pictures(gap)
    finding = vt.gradcam(gap, x, targets=2, plus_plus=False, progress=False)
    A, g = activations_and_gradient(gap, finding.site, x, 2)
    expected = np.maximum(np.einsum("sc,spc->sp", g.mean(1), A), 0).reshape(finding.maps.shape)
    np.testing.assert_allclose(finding.maps, expected, rtol=1e-3, atol=1e-9)


def test_the_class_matters_and_the_predicted_one_is_the_default(gap):
    x = pictures(gap)
    best = gap(x).argmax(-1).numpy()
    finding = vt.gradcam(gap, x, progress=False)
    assert (finding.targets == best).all() and (finding.predicted == best).all()
    each = vt.gradcam(gap, x, targets=best, progress=False, batch_size=1)
    np.testing.assert_allclose(finding.maps, each.maps, rtol=1e-4, atol=1e-8)
    other = vt.gradcam(gap, x, targets=(best + 1) % 7, progress=False)
    assert not np.allclose(finding.maps, other.maps, rtol=1e-2)
    assert (other.predicted == best).all()


def test_a_planted_patch_is_found():
    """The class is the first colour of the mean patch, and only the patch at row 1, column 2 has any."""
    subject = subject_of("timm ViT, no class token")
    module = subject.module
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        for norm in (m for m in module.modules() if isinstance(m, torch.nn.LayerNorm)):
            norm.weight.fill_(1)
        module.patch_embed.proj.weight[0, 0] = 1 / 64
        module.head.weight[4, 0] = 1
    x = torch.zeros(1, 3, 32, 32)
    x[0, 0, 8:16, 16:24] = 1
    maps = vt.gradcam(subject, x, targets=4, progress=False).maps[0]
    assert np.unravel_index(maps.argmax(), maps.shape) == (1, 2)
    assert maps[1, 2] > 0 and np.count_nonzero(maps) == 1


def test_the_module_is_left_as_it_was(gap):
    gap.module.train()
    gap.module.blocks[0].eval()
    modes = [m.training for m in gap.module.modules()]
    with torch.no_grad():  # a gradient is formed inside all the same
        vt.gradcam(gap, pictures(gap), progress=False)
    assert gap.hooks == 0
    assert all(p.grad is None and p.requires_grad for p in gap.module.parameters())
    assert [m.training for m in gap.module.modules()] == modes


def test_a_frozen_model_is_explained_all_the_same(gap):
    free = vt.gradcam(gap, pictures(gap), progress=False).maps
    gap.module.requires_grad_(False)
    np.testing.assert_array_equal(vt.gradcam(gap, pictures(gap), progress=False).maps, free)


def test_scaling_and_resizing(gap):
    finding = vt.gradcam(gap, pictures(gap), progress=False)
    scaled = finding.scaled
    np.testing.assert_allclose(scaled.min((1, 2)), 0)
    np.testing.assert_allclose(scaled.max((1, 2)), 1)
    assert finding.at().shape == (3, 32, 32) and finding.at((10, 20)).shape == (3, 10, 20)
    assert finding.at().max() <= 1
    np.testing.assert_allclose(finding.at(scale=False).max(), finding.maps.max(), rtol=0.2)
    np.testing.assert_allclose(finding.at((4, 4)), scaled, rtol=1e-5, atol=1e-7)
    flat = CamFinding(np.full((1, 2, 2), 3.0, np.float32), *[np.zeros(1, int)] * 2, "", (4, 4), {})
    assert not flat.scaled.any()


def test_pictures_may_come_as_a_set_a_list_or_one(gap):
    images = vt.scenes(3, size=32, seed=4)
    maps = vt.gradcam(gap, images, targets=0, progress=False, batch_size=2).maps
    listed = [picture.image for picture in images]
    np.testing.assert_allclose(vt.gradcam(gap, listed, targets=0, progress=False).maps, maps, rtol=1e-4, atol=1e-8)
    one = vt.gradcam(gap, listed[0], targets=0, progress=False).maps
    np.testing.assert_allclose(one, maps[:1], rtol=1e-4, atol=1e-8)


def test_another_size_of_pictures_gives_another_grid():
    subject = subject_of("timm ConvNeXt")
    x = torch.randn(1, 3, 96, 160, generator=torch.Generator().manual_seed(0))
    finding = vt.gradcam(subject, x, progress=False)
    assert finding.maps.shape == (1, 3, 5) and finding.size == (96, 160)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"targets": 7}, "the model has no such class\n  given:    7\n  accepted: 0 to 6"),
        ({"targets": -1}, "the model has no such class\n  given:    -1"),
        ({"targets": [0, 1]}, r"one class, or one for each sample\n  given:    \(2,\)\n  accepted: \(3,\)"),
        ({"targets": 0.5}, "classes are whole numbers"),
        ({"block": 3}, "no such block\n  given:    3\n  accepted: -3 to 2"),
        ({"batch_size": 0}, "batch_size is at least 1"),
        ({"batch_size": "3"}, "batch_size is at least 1\n  given:    '3'"),
        ({"plus_plus": "no"}, "plus_plus is True or False"),
        ({"eps": -1.0}, "eps is a number"),
        ({"eps": float("nan")}, "eps is a number"),
        ({"size": (0, 3)}, r"a size is \(height, width\)\n  given:    \(0, 3\)"),
        ({"size": 5}, r"a size is \(height, width\)\n  given:    5"),
    ],
)
def test_what_cannot_be_asked_is_refused(gap, settings, says):
    with pytest.raises(vt.SettingsError, match=says):
        vt.gradcam(gap, pictures(gap), progress=False, **settings)


def test_no_pictures_are_refused(gap):
    with pytest.raises(vt.SettingsError, match="no pictures were given"):
        vt.gradcam(gap, [], progress=False)


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        (None, "pictures are an image set"),
        ("folder", r"pictures are an image set.*\n  given:    'folder'\n  remedy:   vt.ImageSet.open"),
        (np.zeros((3, 32, 32, 3), np.uint8), r"bytes have not been prepared.*\n  given:    'uint8 \(3, 32, 32, 3\)'"),
        (torch.zeros(3, 3, 32, 32, dtype=torch.uint8), "bytes have not been prepared"),
    ],
)
def test_what_are_no_pictures_is_refused(gap, inputs, says):
    with pytest.raises(vt.SettingsError, match=says):
        vt.gradcam(gap, inputs, progress=False)


def test_a_module_that_was_not_opened_is_refused(gap):
    with pytest.raises(vt.SettingsError, match=r"the model is a subject(?s:.*)vt.wrap\(module\)"):
        vt.gradcam(gap.module, pictures(gap))


def test_what_is_no_classifier_is_refused(gap):
    with pytest.raises(vt.ModelError, match="has no classifier on top"):
        vt.gradcam(subject_of("HF DINOv2, SwiGLU"), torch.zeros(1, 3, 32, 32))
    gap.module.reset_classifier(0)
    with pytest.raises(vt.ModelError, match="has no classifier on top"):
        vt.gradcam(gap, pictures(gap))
    with pytest.raises(vt.ModelError, match="HF GPT-2 takes text"):
        vt.gradcam(subject_of("HF GPT-2"), "some words")


def test_a_head_of_zeros_is_refused(gap):
    torch.nn.init.zeros_(gap.module.head.weight)
    with pytest.raises(vt.ModelError, match="depends on a patch here"):
        vt.gradcam(gap, pictures(gap), progress=False)


def test_a_backbone_with_ones_own_head_is_a_classifier(gap):
    gap.module.reset_classifier(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        own = torch.nn.Sequential(gap.module, torch.nn.Linear(32, 5))
    finding = vt.gradcam(vt.wrap(own.eval()), pictures(gap), targets=4, progress=False)
    assert finding.maps.shape == (3, 4, 4)


def test_maps_of_a_trained_model_lie_on_what_the_word_means():
    """Colour words of the bundled model: the map of a colour that is there lies on objects of that colour."""
    from vitreous.evidence.pointing import energy_point_game
    from vitreous.models.bundled import load_words

    backbone, words = vt.load("bundled:scenes-text", device="cpu"), load_words()
    colours = ("red", "green", "blue", "white")

    class ByWords(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.words = backbone.module, words

        def forward(self, x):
            return self.words(self.net(x), colours)

    subject = vt.wrap(ByWords().eval(), preprocess=backbone.preprocess)
    images = vt.scenes(20, size=64, seed=5)
    asked = []
    for k, picture in enumerate(images):
        for c, colour in enumerate(colours):
            own = [1 + o["depth"] for o in picture.about["objects"] if o["colour"] == colour]
            if own and not any(k == other for other, _, _ in asked):
                asked.append((k, c, np.isin(picture.instances, own)))
    at, targets, masks = (np.array(part) for part in zip(*asked, strict=True))
    cams = vt.gradcam(subject, images[at], targets, plus_plus=False, progress=False).at()
    elsewhere = energy_point_game(np.roll(cams, 1, axis=0), masks).mean()
    assert len(at) > 10 and energy_point_game(cams, masks).mean() > 3 * elsewhere
