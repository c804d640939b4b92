"""Words for units: the formula of the twin, planted words, chance, files, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import vitreous as vt
from reference import dissect as twin
from vitreous.evidence import dissect
from vitreous.evidence.directions import directions
from vitreous.labels import embed_pictures, read_vocabulary

WORDS = ("red", "green", "blue", "striped", "dotted", "round", "thing")


def planted(seed: int = 0, pictures: int = 400):
    """Pictures with two of six properties each, in a space where every word has its direction; units that follow one.

    The seventh word, "thing", fits every picture.
    """
    rng = np.random.default_rng(seed)
    texts = np.linalg.qr(rng.normal(size=(16, 7)))[0].T
    has = np.zeros((pictures, 6), bool)
    for row in has:
        row[rng.permutation(6)[:2]] = True
    images = has @ texts[:6] + 1.2 * texts[6] + 0.1 * rng.normal(size=(pictures, 16))
    tokens = 0.3 * rng.normal(size=(pictures, 4, 6))
    tokens[np.arange(pictures), rng.integers(0, 4, pictures)] += 3 * has
    return tokens.astype(np.float32), images.astype(np.float32), texts.astype(np.float32)


def quiet(*args, **kwargs):
    return vt.label(*args, **{"progress": False, "top": 40, **kwargs})


@pytest.mark.parametrize("prior", ["units", "random"])
@pytest.mark.parametrize(("weight", "block"), [(0.0, 512), (1.0, 3), (0.6, 3)])
def test_it_is_the_formula(monkeypatch, prior, weight, block):
    rng = np.random.default_rng(1)
    images, texts = directions(rng.normal(size=(30, 8))), directions(rng.normal(size=(7, 8)))
    tops, others = (np.array([rng.permutation(30)[:11] for _ in range(n)]) for n in (5, 12))
    monkeypatch.setattr(dissect, "TEXTS", block)
    monkeypatch.setattr(dissect, "HELD", 70)
    how = {"temperature": 4.0, "membership": (0.99, 0.8)}
    found = dissect.best_texts(images, texts, tops, others, keep=7, weight=weight, prior=prior, **how)
    units, random = (twin.likelihoods(images, texts, sets, *how.values()) for sets in (tops, others))
    wanted = twin.scores(units, units if prior == "units" else random, weight)
    np.testing.assert_array_equal(found.texts, np.argsort(-wanted, axis=1, kind="stable"))
    np.testing.assert_allclose(found.scores, -np.sort(-wanted, axis=1), rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(found.chance, twin.chances(units, random, found.texts[:, 0]))
    assert len(set(found.chance)) > 1


@pytest.mark.parametrize("prior", ["units", "random"])
def test_planted_words_are_found(prior):
    activations, images, texts = planted()
    noise = np.random.default_rng(5).normal(size=(400, 4, 20)).astype(np.float32)
    found = quiet(np.concatenate([activations, noise], 2), images, texts, WORDS, prior=prior)
    assert found.names[:6] == WORDS[:6]
    assert (found.chance[:6] < 0.01).all() and np.median(found.chance[6:]) > 0.2
    assert found.units("blue").tolist()[0] == 2 and found.units("blue", chance=0.01).tolist() == [2]
    assert found[2][0][0] == "blue" and found[2][0][1] == found.scores[2, 0]
    assert found.settings["prior"] == prior and found.settings["pictures"] == 400


def test_what_fits_everything_names_nothing():
    activations, images, texts = planted()
    plain = quiet(activations, images, texts, WORDS, prior_weight=0.0)
    assert "thing" in plain.names
    assert "thing" not in quiet(activations, images, texts, WORDS).names


def test_the_published_prior_gives_a_word_to_the_unit_that_it_fits_best():
    """Two detectors of the same property: over the units, the weaker one loses its name."""
    activations, images, texts = planted()
    rng = np.random.default_rng(3)
    weak = activations[..., :1] + rng.normal(size=(400, 4, 1)).astype(np.float32)
    both = np.concatenate([activations, weak], 2)
    published = quiet(both, images, texts, WORDS, prior="units", temperature=30.0)
    assert published.names[0] == "red" != published.names[6]
    assert published.scores.max() <= np.log(7) + 1e-3  # where scores end
    assert quiet(both, images, texts, WORDS, temperature=30.0).names == (*WORDS[:6], "red")


def test_a_unit_alone_is_compared_with_random_pictures():
    activations, images, texts = planted()
    one = activations[..., 4:5]
    assert quiet(one, images, texts, WORDS).names == ("dotted",)
    with pytest.raises(vt.SettingsError, match=r'common to all\n  given:    \'1 of 1\'\n  remedy:   prior="random"'):
        quiet(one, images, texts, WORDS, prior="units")


def test_dead_units_have_no_name():
    activations, images, texts = planted()
    activations[..., 1] = -1
    activations[..., 3] = 2
    found = quiet(activations, images, texts, WORDS, prior="units")
    assert found.names == ("red", None, "blue", None, "dotted", "round")
    assert found[1] == () and np.isnan(found.chance[[1, 3]]).all() and (found.indices[1] == -1).all()
    without = quiet(activations[..., [0, 2, 4, 5]], images, texts, WORDS, prior="units")
    np.testing.assert_allclose(found.scores[[0, 2, 4, 5]], without.scores, atol=1e-3)  # they are not part of the prior


def test_tensors_functions_and_files(tmp_path):
    activations, images, texts = planted()
    whole = quiet(activations, images, texts, WORDS)
    path = tmp_path / "words.txt"
    path.write_text("\ufeff" + "\n\n".join(WORDS) + "  \n", "utf-8")
    asked = []

    def tower(words):
        asked.extend(words)
        return torch.tensor([texts[WORDS.index(word)].tolist() for word in words])

    other = quiet(torch.tensor(activations), torch.tensor(images), tower, path)
    np.testing.assert_array_equal(other.indices, whole.indices)
    np.testing.assert_allclose(other.scores, whole.scores, atol=1e-3)
    assert asked == list(WORDS) and read_vocabulary(path) == WORDS
    scaled = quiet(activations, 7 * images, 1e-3 * texts, WORDS)  # lengths do not count
    np.testing.assert_allclose(scaled.scores, whole.scores, atol=1e-3)


def test_pictures_are_embedded_in_batches():
    images = vt.ImageSet.from_arrays(np.random.default_rng(0).integers(0, 255, (10, 8, 8, 3), dtype=np.uint8))

    def mean_colour(pictures):
        assert len(pictures) <= 4
        return torch.stack([torch.tensor(np.array(p), dtype=torch.float32).mean((0, 1)) for p in pictures])

    found = embed_pictures(mean_colour, images, batch_size=4, progress=False)
    np.testing.assert_allclose(found, [np.array(p.image).mean((0, 1)) for p in images], rtol=1e-5)


def test_saved_labels_come_back_and_damaged_ones_do_not(tmp_path):
    activations, images, texts = planted()
    found = quiet(activations, images, texts, WORDS)
    path = tmp_path / "deep" / "labels.npz"
    found.save(path)
    again = vt.Labels.load(path)
    assert again.vocabulary == WORDS and dict(again.settings) == json.loads(json.dumps(found.settings))
    for name in ("indices", "scores", "chance", "pictures"):
        np.testing.assert_array_equal(again.__dict__[name], found.__dict__[name])
    whole = path.read_bytes()
    for damaged in (whole[:-30], whole[:100], b"", b"words"):
        path.write_bytes(damaged)
        with pytest.raises(vt.StoreError, match="not labels of this version"):
            vt.Labels.load(path)
    with pytest.raises(vt.StoreError, match="no labels here"):
        vt.Labels.load(tmp_path / "nothing.npz")


def test_same_seed_same_numbers():
    given = planted()
    a, b, c = (quiet(*given, WORDS, random_sets=20, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(a.chance, b.chance)
    assert (a.scores != c.scores).any()


def test_what_is_refused(tmp_path):
    activations, images, texts = planted()
    broken = images.copy()
    broken[3, 2] = np.nan
    wrong = [
        ((activations, images, texts, ()), "a vocabulary needs words\n  given:    '0 of them'"),
        ((activations, images, texts, ("", "red")), "a vocabulary needs words"),
        ((activations, images, texts, ("red", "red")), "comes twice in the vocabulary\n  given:    'red'"),
        ((activations[1:], images, texts, WORDS), "of the same pictures\n  given:    '399 and 400 pictures'"),
        ((activations, images, texts[1:], WORDS), "one embedding\n  given:    '6 embeddings for 7 words'"),
        ((activations, images[:, 1:], texts, WORDS), "lie in one space\n  given:    '15 and 16 channels'"),
        ((activations, broken, texts, WORDS), "NaN or infinity\n  given:    'picture 3'"),
        ((activations, images, texts * np.inf, WORDS), "NaN or infinity\n  given:    'word 0'"),
        ((activations * np.nan, images, texts, WORDS), "activations hold NaN"),
        ((activations[:, 0, 0], images, texts, WORDS), "activations are"),
        ((activations * 0, images, texts, WORDS), "too few units with a changing activation"),
        ((activations, images, texts, tmp_path / "none.txt"), "no vocabulary file here"),
    ]
    for given, message in wrong:
        with pytest.raises(vt.SettingsError, match=message):
            quiet(*given)
    settings = [
        ({"top": 401}, "as many pictures as are shown must be there"),
        ({"top": 0}, "top is a whole number\n  given:    0\n  accepted: from 1 on"),
        ({"keep": "3"}, "keep is a whole number\n  given:    '3'"),
        ({"seed": -1}, "seed is a whole number"),
        ({"prior": "flat"}, "no such prior\n  given:    'flat'\n  accepted: units, random"),
        ({"temperature": 0}, "temperature is above 0"),
        ({"temperature": "10"}, "temperature is above 0"),
        ({"membership": (1.0, 0.9)}, "membership falls from below 1"),
        ({"membership": (0.9,)}, "membership falls from below 1"),
    ]
    for setting, message in settings:
        with pytest.raises(vt.SettingsError, match=message):
            quiet(activations, images, texts, WORDS, **setting)
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(vt.SettingsError, match="a vocabulary needs words"):
        read_vocabulary(tmp_path / "empty.txt")
    (tmp_path / "latin.txt").write_bytes("grün".encode("latin-1"))
    with pytest.raises(vt.SettingsError, match="UTF-8 text"):
        read_vocabulary(tmp_path / "latin.txt")
    with pytest.raises(
        vt.SettingsError, match=r"not a word of the vocabulary\n  given:    'rod'\n(.|\n)*nearest:  .*red"
    ):
        quiet(activations, images, texts, WORDS).units("rod")


@pytest.mark.data
def test_a_real_pair_names_planted_units(data_root, monkeypatch):
    """Units that are on for the pictures of one class get its name, out of 200, from towers that are right every other
    time about a single picture."""
    from safetensors.torch import load_file

    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "studies"))
    from labels_scenes import tiny_imagenet
    from real_models import tin_vit

    stored = load_file(data_root / "weights" / "tin-vit-text.safetensors")
    weight, bias, texts = (stored[k].float() for k in ("text_proj.weight", "text_proj.bias", "text_classes"))
    images = tiny_imagenet(data_root)
    images = images[np.flatnonzero(images.labels < 40)]
    eyes = tin_vit(data_root, "text")
    seen = embed_pictures(lambda pictures: eyes(pictures) @ weight.T + bias, images, progress=False)
    units = (images.labels[:, None] == np.arange(40)).astype(np.float32)
    found = quiet(units, seen, texts, images.classes, top=10)
    named = np.mean([name == images.classes[k] for k, name in enumerate(found.names)])
    assert named > 0.8 and (found.chance < 0.02).mean() > 0.8
