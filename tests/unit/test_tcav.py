"""TCAV: a concept that was planted is found where it was planted, and one that means nothing is not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import vitreous as vt
from vitreous.baselines.tcav import TcavFinding, tcav_table

SIZE, CLASSES = 16, 3
QUICK = {"random_sets": 20, "examples": 8, "progress": False}


def planted() -> vt.Subject:
    """Two blocks that only pass on, mean of patches, and class 1 that likes red where class 2 dislikes it."""
    from timm.models.vision_transformer import VisionTransformer

    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = VisionTransformer(
            img_size=SIZE, patch_size=8, embed_dim=16, depth=2, num_heads=2, num_classes=CLASSES, class_token=False,
            global_pool="avg",
        )  # fmt: skip
    with torch.no_grad():
        for block in module.blocks:
            block.attn.proj.weight.zero_()
            block.mlp.fc2.weight.zero_()
        module.patch_embed.proj.weight.mul_(0.1)
        module.patch_embed.proj.weight[0] = 0
        module.patch_embed.proj.weight[0, 0] = 1 / 64  # channel 0 is how red a patch is
        module.pos_embed.zero_()
        module.head.weight.zero_()
        module.head.weight[1, 0], module.head.weight[2, 0] = 1, -1
        module.head.weight[0, 3] = 1
    return vt.wrap(module.eval(), name="planted")


def noise(count: int, seed: int) -> torch.Tensor:
    return 0.5 * torch.randn(count, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(seed))


def red(count: int, seed: int) -> torch.Tensor:
    x = noise(count, seed)
    x[:, 0] += 3
    return x


def by_class(count: int = 12) -> dict[int, torch.Tensor]:
    return {k: noise(count, 10 + k) for k in range(CLASSES)}


def test_a_planted_concept_is_used_by_its_class_and_no_other_way():
    finding = vt.tcav(planted(), by_class(), {"red": red(10, 1), "nothing": noise(10, 2)}, **QUICK)
    assert finding.scores.shape == (2, 2, CLASSES, 20) and finding.scores.dtype == np.float32
    assert finding.layers == ("blocks.0.resid.out", "blocks.1.resid.out")
    mean = finding.scores.mean(-1)
    assert (mean[:, 0, 1] > 0.95).all()  # class 1 rises with red
    assert (mean[:, 0, 2] < 0.05).all()  # class 2 falls
    assert (finding.accuracy[:, 0] > 0.95).all()
    assert (np.abs(finding.accuracy[:, 1] - 0.5) < 0.2).all()


def test_a_concept_that_means_nothing_scores_half_on_average():
    meaningless = {f"noise {k}": noise(10, 100 + k) for k in range(12)}
    finding = vt.tcav(planted(), by_class(), meaningless, sites="blocks.1.resid.out", **QUICK)
    assert abs(finding.scores[:, :, 1:].mean() - 0.5) < 0.1


def test_the_layer_that_holds_the_concept_is_told_apart():
    """The second block wipes out red, and nothing after it depends on what it was."""
    subject = planted()
    concepts = {"red": red(10, 1)}
    before = vt.tcav(subject, by_class(), concepts, **QUICK)
    with torch.no_grad():
        subject.module.head.weight.zero_()
        subject.module.head.weight[1, 5] = 1  # now a channel that red does not touch
    after = vt.tcav(subject, by_class(), concepts, **QUICK)
    assert before.scores[:, 0, 1].mean() > 0.95
    assert abs(after.scores[:, 0, 1].mean() - 0.5) < abs(before.scores[:, 0, 1].mean() - 0.5)


def slow_score(finding_site, subject, classes, concept, k, draws, ridge):
    """One class, one concept: activations by capture, weights by the normal equations, gradients by hand."""
    with torch.no_grad(), vt.capture(subject, finding_site) as rec:
        subject(concept)
        C = rec[finding_site].flatten(1).double().numpy()
        subject(torch.cat(list(classes.values())))
        P = rec[finding_site].flatten(1).double().numpy()
    x = classes[k].clone().requires_grad_()
    with vt.capture(subject, finding_site) as rec:
        (g,) = torch.autograd.grad(subject(x)[:, k].sum(), rec[finding_site])
    G = g.flatten(1).double().numpy()
    scores = []
    for one in draws:
        X, y = np.concatenate([C, P[one]]), np.r_[np.ones(len(C)), -np.ones(len(one))]
        X0, y0 = X - X.mean(0), y - y.mean()
        penalty = ridge * np.square(X0).sum(1).mean()
        w = np.linalg.solve(X0.T @ X0 + penalty * np.eye(X.shape[1]), X0.T @ y0)
        scores.append((G @ w > 0).mean())
    return scores


def test_scores_are_those_of_one_fit_at_a_time(tiny):
    from vitreous.baselines.tcav import _draws

    generator = torch.Generator().manual_seed(5)
    classes = {k: torch.randn(6, 3, 32, 32, generator=generator) for k in (0, 2, 5)}
    concept = torch.randn(5, 3, 32, 32, generator=generator) + 0.3
    site = "blocks.1.resid.out"
    finding = vt.tcav(tiny, classes, {"c": concept}, sites=site, random_sets=6, examples=4, ridge=0.5, progress=False)
    draws = _draws([6, 6, 6], 6, 4, 0)
    for at, k in enumerate(classes):
        expected = slow_score(site, tiny, classes, concept, k, draws[at], 0.5)
        np.testing.assert_allclose(finding.scores[0, 0, at], expected, atol=1e-6)


def test_sets_are_different_reproducible_and_never_of_the_class_itself():
    from vitreous.baselines.tcav import _draws

    draws = _draws([5, 7, 6], 50, 3, seed=1)
    owner = np.repeat([0, 1, 2], [5, 7, 6])
    for k, sets in enumerate(draws):
        assert sets.shape == (50, 3) and len({tuple(s) for s in sets}) == 50
        assert (owner[sets] != k).all() and all(len(set(s)) == 3 for s in sets)
    again, other = _draws([5, 7, 6], 50, 3, seed=1), _draws([5, 7, 6], 50, 3, seed=2)
    assert all((a == b).all() for a, b in zip(draws, again, strict=True))
    assert any((a != b).any() for a, b in zip(draws, other, strict=True))


def test_memory_limits_change_nothing_and_nothing_is_left_behind():
    subject = planted()
    subject.module.train()
    whole = vt.tcav(subject, by_class(), {"red": red(5, 1)}, **QUICK)
    cut = vt.tcav(subject, by_class(), {"red": red(5, 1)}, memory_mb=0, batch_size=5, **QUICK)
    np.testing.assert_array_equal(whole.scores, cut.scores)
    assert subject.hooks == 0 and subject.module.training
    assert all(p.grad is None for p in subject.module.parameters())
    subject.module.requires_grad_(False)
    np.testing.assert_array_equal(vt.tcav(subject, by_class(), {"red": red(5, 1)}, **QUICK).scores, whole.scores)


def test_a_convolutional_model_has_its_gradient(tmp_path):
    import timm

    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = timm.create_model(
            "convnext_atto", depths=(1, 1, 1, 1), dims=(8, 8, 8, 8), num_classes=CLASSES, ls_init_value=0.5
        )
    subject = vt.wrap(module.eval())
    classes = {k: torch.randn(4, 3, 64, 64, generator=torch.Generator().manual_seed(k)) for k in range(2)}
    concept = torch.randn(4, 3, 64, 64, generator=torch.Generator().manual_seed(9)) + 1
    finding = vt.tcav(subject, classes, {"bright": concept}, random_sets=3, examples=3, progress=False)
    assert finding.scores.shape == (4, 1, 2, 3)
    assert len(np.unique(finding.scores)) > 1  # gradients that never came back would make every score 0


def test_concepts_come_from_folders_and_classes_from_labels(tmp_path):
    rng = np.random.default_rng(0)
    for concept in ("banded", "dotted"):
        (tmp_path / concept).mkdir()
        for k in range(3):
            Image.fromarray(rng.integers(0, 255, (SIZE, SIZE, 3), np.uint8)).save(tmp_path / concept / f"{k}.png")
    images = vt.ImageSet.from_arrays(rng.integers(0, 255, (12, SIZE, SIZE, 3), np.uint8), labels=[0, 2] * 6)
    finding = vt.tcav(planted(), images, tmp_path, random_sets=5, examples=3, progress=False)
    assert finding.concepts == ("banded", "dotted") and finding.classes == (0, 2)
    same = vt.tcav(planted(), images, {"banded": tmp_path / "banded"}, random_sets=5, examples=3, progress=False)
    np.testing.assert_array_equal(same.scores[:, 0], finding.scores[:, 0])


@pytest.mark.parametrize(
    ("classes", "concepts", "settings", "says"),
    [
        ({0: noise(4, 0)}, {"a": red(3, 0)}, {}, "too few: class\n  given:    1\n  accepted: 2 or more"),
        (by_class(), {}, {}, "too few: concept"),
        (by_class(), {"a": red(3, 0)[:0]}, {}, "concept 'a' has too few pictures\n  given:    '0 pictures'"),
        ({0: noise(4, 0), 1: noise(0, 0)}, {"a": red(3, 0)}, {}, "class 1 has too few pictures"),
        ({0: noise(4, 0), 9: noise(4, 1)}, {"a": red(3, 0)}, {"examples": 2, "random_sets": 1}, "has no such class"),
        ({"x": noise(4, 0), "y": noise(4, 1)}, {"a": red(3, 0)}, {}, "classes are the model's class numbers"),
        ({0: noise(4, 0), 1: noise(4, 1)}, {"a": red(3, 0)}, {}, "4 pictures of other classes do not give 300"),
        (by_class(), {"a": red(3, 0)}, {"ridge": 0}, "ridge is a number"),
        (by_class(), {"a": red(3, 0)}, {"random_sets": "3"}, "random_sets is a whole number\n  given:    '3'"),
        (
            by_class(),
            {"a": red(3, 0)},
            {"examples": 1},
            "examples is a whole number\n  given:    1\n  accepted: from 2 on",
        ),
        (by_class(), None, {}, r"(?s)pictures by concept are a dictionary, a set or a folder.*None"),
        (by_class(), {"a": red(3, 0)}, {"classifier": 3}, "classifier makes a captum classifier when it is called"),
        (by_class(), {"a": red(3, 0)}, {"memory_mb": "2 GB"}, "memory_mb is a number"),
        (by_class(), {"a": red(3, 0)}, {"random_sets": 0}, "random_sets is a whole number"),
        (by_class(), {"a": red(3, 0)}, {"sites": "blocks.0.attn.pattern"}, "probabilities have no concept vectors"),
        (by_class(), {"a": red(3, 0)}, {"sites": "blocks.7.resid.out"}, "block 7 does not exist"),
    ],
)
def test_what_cannot_be_tested_is_refused(classes, concepts, settings, says):
    with pytest.raises(vt.VitreousError, match=says):
        vt.tcav(planted(), classes, concepts, progress=False, **settings)


def test_what_is_no_classifier_or_no_folder_is_refused(tmp_path):
    subject = planted()
    with pytest.raises(vt.ImageError, match="no pictures in here"):
        vt.tcav(subject, by_class(), tmp_path)
    unlabelled = vt.ImageSet.from_arrays(np.zeros((4, SIZE, SIZE, 3), np.uint8))
    with pytest.raises(vt.ImageError, match="pictures by class need labels"):
        vt.tcav(subject, unlabelled, {"a": red(3, 0)})
    subject.module.head = nn.Identity()
    with pytest.raises(vt.ModelError, match="no classifier on top"):
        vt.tcav(subject, by_class(), {"a": red(3, 0)})


# -- two models


def finding(scores: np.ndarray, **settings) -> TcavFinding:
    layers = tuple(f"blocks.{i}.resid.out" for i in range(len(scores)))
    said = {"random_sets": scores.shape[-1], "examples": 30, "ridge": 1.0, "seed": 0, **settings}
    concepts = tuple(f"c{i}" for i in range(scores.shape[1]))
    return TcavFinding(scores, scores.mean(-1), layers, concepts, tuple(range(scores.shape[2])), said)


def test_the_table_compares_layer_by_layer():
    from scipy.stats import ttest_rel

    rng = np.random.default_rng(0)
    a = rng.random((2, 3, 4, 10))
    b = a.copy()
    b[1] += 0.1 * rng.random((3, 4, 10))
    found = tcav_table(finding(a), finding(b), names=("ViT", "ours"))
    same, more = found.rows
    assert same.difference == 0 and same.p == 1 and same.wins == 0
    assert more.wins == 100 and more.difference == pytest.approx((b[1] - a[1]).mean())
    expected = ttest_rel(b[1].ravel(), a[1].ravel())
    assert more.t == pytest.approx(expected.statistic) and more.p == pytest.approx(expected.pvalue)
    lines = found.table().splitlines()
    assert lines[0].split() == ["layer", "ViT", "ours", "diff", "t", "p", "win", "%"]
    assert lines[2].split()[0] == "blocks.1.resid.out" and lines[2].endswith("100.00")


def test_findings_that_were_not_made_alike_are_not_paired():
    scores = np.random.default_rng(0).random((2, 3, 4, 10))
    with pytest.raises(vt.SettingsError, match="made in different ways"):
        tcav_table(finding(scores), finding(scores, seed=1))
    with pytest.raises(vt.SettingsError, match="made in different ways"):
        tcav_table(finding(scores), finding(scores[:, :2]))
