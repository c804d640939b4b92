"""The same numbers as the packages that people use: grad-cam, quantus, captum, and MobileSAM's own predictor."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import vitreous as vt
from vitreous.baselines.tcav import _draws
from vitreous.evidence.pointing import energy_point_game, point_game

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]
SAM = Path(os.environ.get("VITREOUS_MOBILE_SAM", Path(__file__).parents[2] / ".carry" / "mobile_sam"))


@pytest.fixture
def gap() -> vt.Subject:
    """A ViT that averages its patches; its logits are spread, since grad-cam divides by max + 1e-7."""
    from timm.models.vision_transformer import VisionTransformer

    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = VisionTransformer(
            img_size=32, patch_size=8, embed_dim=32, depth=3, num_heads=4, num_classes=7, reg_tokens=2,
            class_token=False, global_pool="avg",
        )  # fmt: skip
    with torch.no_grad():
        module.head.weight.mul_(300)
    return vt.wrap(module.eval())


def noise(count: int, seed: int, shift: float = 0.0) -> torch.Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(seed)) + shift


@pytest.mark.parametrize("plus_plus", [True, False])
@pytest.mark.parametrize("block", [-1, 0])
def test_maps_are_those_of_grad_cam(gap, plus_plus, block):
    package = pytest.importorskip("pytorch_grad_cam")
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    def reshape(tokens):
        return tokens[:, 2:].reshape(len(tokens), 4, 4, -1).permute(0, 3, 1, 2)

    x = noise(5, 1)
    finding = vt.gradcam(gap, x, targets=[0, 1, 2, 3, 6], block=block, plus_plus=plus_plus, progress=False)
    method = package.GradCAMPlusPlus if plus_plus else package.GradCAM
    layer = gap.module.blocks[block]
    with method(model=gap.module, target_layers=[layer], reshape_transform=reshape) as cam:
        theirs = cam(input_tensor=x, targets=[ClassifierOutputTarget(k) for k in finding.targets])
    ours = finding.at()
    low, high = (edge(ours, axis=(1, 2), keepdims=True) for edge in (np.min, np.max))
    np.testing.assert_allclose((ours - low) / (high - low), theirs, atol=2e-4)
    assert theirs.std() > 0.1


def test_point_game_and_energy_are_those_of_quantus():
    quantus = pytest.importorskip("quantus")
    rng = np.random.default_rng(0)
    cams = rng.random((40, 8, 8))
    masks = rng.random((40, 8, 8)) < 0.4
    given = {"model": torch.nn.Identity(), "x_batch": np.zeros((40, 1, 8, 8)), "y_batch": np.zeros(40, int)}
    given |= {"a_batch": cams[:, None], "s_batch": masks[:, None]}
    plain = {"abs": False, "normalise": False, "disable_warnings": True, "display_progressbar": False}
    np.testing.assert_array_equal(point_game(cams, masks), np.array(quantus.PointingGame(**plain)(**given), float))
    energy = quantus.RelevanceMassAccuracy(**plain)(**given)
    np.testing.assert_allclose(energy_point_game(cams, masks), energy, rtol=1e-6)


def ridge_classifier(ridge: float):
    """Ours, one fit at a time, as captum wants its classifiers."""
    from captum.concept import Classifier

    class Ridge(Classifier):
        def __init__(self) -> None:
            pass

        def train_and_eval(self, dataloader, **_):
            x, y = (torch.cat(part).double() for part in zip(*dataloader, strict=True))
            self.found = sorted(y.unique().long().tolist())
            x, y = x - x.mean(0), torch.where(y == self.found[0], 1.0, -1.0).double()
            penalty = ridge * x.square().sum(1).mean()
            K = x @ x.T + penalty * torch.eye(len(x)).double()
            w = x.T @ torch.linalg.solve(K, y - y.mean())
            self.w = torch.stack([w, -w]).float()

        def weights(self):
            return self.w

        def classes(self):
            return self.found

    return Ridge


def test_scores_are_those_of_captum_with_the_same_classifier(gap, tmp_path):
    pytest.importorskip("captum")
    from captum.concept import TCAV, Concept

    classes, repeats, examples = {k: noise(6, 10 + k) for k in (0, 3, 5)}, 4, 5
    concepts = {"bright": noise(6, 20, 0.5), "dark": noise(4, 21, -0.5)}
    settings = {"random_sets": repeats, "examples": examples, "ridge": 0.5, "progress": False}
    finding = vt.tcav(gap, classes, concepts, **settings)
    slow = vt.tcav(gap, classes, concepts, classifier=ridge_classifier(0.5), **settings)
    np.testing.assert_allclose(slow.scores, finding.scores, atol=1e-6)
    assert np.isnan(slow.accuracy).all() and finding.scores.std() > 0.1

    pool = torch.cat(list(classes.values()))
    draws = _draws([6, 6, 6], repeats, examples, 0)
    layers = [f"blocks.{i}" for i in range(3)]
    for at, k in enumerate(classes):
        made = TCAV(gap.module, layers, classifier=ridge_classifier(0.5)(), save_path=str(tmp_path / str(k)))
        for c, (name, pictures) in enumerate(concepts.items()):
            concept = Concept(100 * c, name, [pictures])
            others = [Concept(1000 * (c + 1) + r, f"random {r}", [pool[draws[at][r]]]) for r in range(repeats)]
            found = made.interpret(classes[k], [[concept, other] for other in others], target=k)
            theirs = [[found[f"{concept.id}-{o.id}"][layer]["sign_count"][0] for o in others] for layer in layers]
            np.testing.assert_allclose(finding.scores[:, c, at], np.array(theirs), atol=1e-6)


def test_captums_own_classifier_agrees_about_a_clear_concept(gap):
    """Theirs comes from unseeded descent on two thirds of the examples, so only what is clear can be compared."""
    pytest.importorskip("captum")
    from captum.concept._utils.classifier import DefaultClassifier

    classes = {k: noise(15, 10 + k) for k in (0, 3, 5)}
    concepts = {"bright": noise(40, 20, 3.0)}
    settings = {"random_sets": 20, "examples": 20, "sites": "blocks.0.resid.out", "progress": False}
    ours = vt.tcav(gap, classes, concepts, **settings).scores.mean(-1).ravel()
    theirs = vt.tcav(gap, classes, concepts, classifier=DefaultClassifier, **settings).scores.mean(-1).ravel()
    clear = np.abs(ours - 0.5) > 0.45
    assert clear.sum() >= 2 and ((ours > 0.5) == (theirs > 0.5))[clear].all()


def test_masks_are_those_of_mobile_sams_own_predictor():
    if not (SAM / "mobile_sam.pt").is_file():
        pytest.skip("no MobileSAM: set VITREOUS_MOBILE_SAM to a folder with mobile_sam/ and mobile_sam.pt")
    import timm

    sam = vt.MobileSam(SAM, prompt="box")
    entered = type(timm.create_model("tiny_vit_5m_224")).__module__
    assert entered == "timm.models.tiny_vit"  # MobileSAM's own import would put its encoder in timm's table
    sys.path.insert(0, str(SAM))
    from mobile_sam import SamPredictor

    scene = np.array(vt.scenes(1, size=96, seed=2)[0].image)
    pictures = [scene, scene[:64]]
    predictor = SamPredictor(sam.module)
    for mask, picture in zip(sam(pictures), pictures, strict=True):
        predictor.set_image(np.ascontiguousarray(picture))
        height, width = picture.shape[:2]
        masks, rated, _ = predictor.predict(box=np.array([width, height, width, height]) * [0.1, 0.1, 0.9, 0.9])
        assert (mask == masks[rated.argmax()]).mean() > 0.98 and 0.02 < mask.mean() < 0.98
