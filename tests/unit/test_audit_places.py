"""The audit of places: what is near is near, a planted corner is found and switched off, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from corner_network import network, pictures, trained
from shown import leaves_as_a_table, shows_itself
from tests.reference.places import nearest, put_at_level, whole_test

import vitreous as vt
from vitreous.auditing.overall import overall
from vitreous.auditing.places import telling
from vitreous.auditing.places_off import Places, tokens_at
from vitreous.kernels.nearest_pictures import ROWS, nearest_pictures

QUICK = {"repeats": 500, "neighbours": 10, "progress": False}
EARLY = {"site": "blocks.0.resid.in"} | QUICK  # of two blocks the first takes the corner to the class token


@pytest.fixture(scope="module")
def planted():
    """A network that reads the corner; places are learned from training pictures and tested on others."""
    train = pictures(600, 1)[0]
    subject = trained(train)
    images, _ = pictures(80, 2)
    finding = vt.audit_places(subject, images, masks="masks", look=train[list(range(160))], **EARLY)
    return subject, images, finding


# -- the numbers


def test_nearest_pictures_are_those_of_the_twin(monkeypatch):
    rng = np.random.default_rng(0)
    picture = np.sort(rng.choice([0, 1, 3, 4, 8, 9], 60))
    tokens = rng.normal(size=(60, 7)) + 2
    expected = nearest(tokens, picture, 4)
    np.testing.assert_array_equal(nearest_pictures(tokens, picture, 4), expected)
    monkeypatch.setattr("vitreous.kernels.nearest_pictures.ROWS", 7)
    np.testing.assert_array_equal(nearest_pictures(tokens, picture, 4), expected)
    assert ROWS > 60
    with pytest.raises(vt.SettingsError, match="other pictures"):
        nearest_pictures(tokens, picture, 6)
    with pytest.raises(vt.SettingsError, match="rising order"):
        nearest_pictures(tokens, picture[::-1], 2)


def test_places_that_are_found_are_put_at_their_level_and_others_keep_their_bits():
    rng = np.random.default_rng(1)
    levels, weight = rng.normal(size=(9, 5)).astype(np.float32), rng.normal(size=(2, 5)).astype(np.float32)
    bias = np.array([-1.0, -2.0], np.float32)
    places = Places("blocks.0.resid.out", 1, np.arange(2), weight, bias, levels)
    x = torch.randn(6, 10, 5, generator=torch.Generator().manual_seed(0))
    moved = places.moved(x)
    assert torch.equal(moved, put_at_level(x, 1, weight, bias, levels))
    found = (places.scores(x[:, 1:].numpy()) > 0).any(0)
    assert 5 < found.sum() < 50
    assert torch.equal(moved[:, 1:][torch.from_numpy(~found)], x[:, 1:][torch.from_numpy(~found)])
    with pytest.raises(vt.SettingsError, match="another size"):
        places.moved(x[:, :7])


def test_the_whole_models_test_is_the_exchange_of_labels():
    rng = np.random.default_rng(2)
    labels = np.arange(40) % 2
    odds = rng.normal(size=40) + 0.6 * labels
    found = overall(np.stack([-odds, odds], 1), labels, repeats=5000, alpha=0.05, seed=0)
    size, p = whole_test(odds, labels, 5000, 3)
    assert found.suspicion == pytest.approx(size) and found.p == pytest.approx(p, abs=0.012)
    turned = overall(np.stack([odds, -odds], 1), labels, repeats=500, alpha=0.05, seed=0)
    assert turned.suspicion == pytest.approx(-size) and not turned.alarm  # the other way round is no shortcut


def test_of_many_classes_the_one_that_tells_is_named_and_the_test_corrected():
    rng = np.random.default_rng(3)
    labels = np.arange(60) % 3
    odds = rng.normal(size=(60, 3))
    odds[:, 2] += 3.0 * (labels == 2)
    found = overall(odds, labels, repeats=300, alpha=0.05, seed=0)
    assert found.target == 2 and found.alarm and found.p == pytest.approx(3 / 301)
    alarms = sum(overall(rng.normal(size=(60, 3)), labels, repeats=200, alpha=0.05, seed=k).alarm for k in range(100))
    assert alarms <= 11  # 5 expected; more than 11 of 100 happens less than once in 200 times


def test_a_place_tells_a_class_if_its_neighbours_are_of_it():
    labels = np.r_[np.zeros(30, int), np.ones(30, int)]
    rng = np.random.default_rng(0)
    near = np.stack([rng.choice(60, 10, replace=False) for _ in range(200)])
    near[:20] = np.stack([rng.choice(np.arange(30, 60), 10, replace=False) for _ in range(20)])
    found = telling(near, labels, 0)
    assert found[1][:20].all() and found[1][20:].mean() < 0.05
    assert not found[0][:20].any() and found[0].mean() < 0.05


# -- what was planted is found


def test_the_planted_corner_is_found_without_being_told(planted, tmp_path):
    _, _, finding = planted
    leaves_as_a_table(finding, tmp_path)
    shows_itself(finding)
    assert finding.alarm and finding.overall.alarm and finding.together.suspicion > 0
    assert finding.rows[0].alarm and finding.controls["alarms with shuffled labels"] == 0
    light = [row.target for row in finding.rows].index(1)
    hit = finding.maps[light] > 0
    assert hit[finding.labels == 1, 0].mean() > 0.9  # the corner is the first place
    assert hit[finding.labels == 0].mean() < 0.1 and hit[:, 1:].mean() < 0.1


def test_switched_off_the_model_listens_to_the_corner_no_more(planted):
    subject, _, finding = planted
    fair, corner = pictures(200, 3, cue=0.5)
    x = subject.inputs([picture.image for picture in fair])

    def reliance() -> float:
        with torch.no_grad():
            odds = subject(x).diff(dim=1)[:, 0].numpy()
        return float(odds[corner].mean() - odds[~corner].mean())

    before, patch = reliance(), finding.switch_off()
    with patch.on(subject):
        after = reliance()
    assert before > 1 and abs(after) < 0.4 * before
    assert reliance() == before and subject.hooks == 0
    assert abs(finding.left) < 0.5 * finding.overall.suspicion
    lying = vt.ImageSet.from_arrays(
        np.stack([np.asarray(picture.image) for picture in fair]), labels=corner.astype(int), classes=("dark", "light")
    )
    table = patch.before_after(subject, lying, head=finding.head)  # labelled by the corner, which it cannot tell now
    assert table["all pictures"][1] < table["all pictures"][0] - 0.2


def test_the_page_shows_where_the_places_are(planted, tmp_path):
    subject, images, finding = planted
    parts = vt.audit(subject, images, masks="masks", split=False, confirm=0, repeats=300, progress=False)
    page = vt.audit_report(parts, tmp_path, places=finding, shown=1).read_text()
    assert "Places beside the object speak for a class" in page and "Places that tell &#39;light&#39;" in page
    assert f"{finding.overall.suspicion:.2f} log-odds are left" in page and " found</" in page
    assert vt.PlacesOff.load(tmp_path / "places.safetensors").names == finding.switch_off().names
    assert (
        finding.effect is finding.effect
        and finding.effect.rows == finding.switch_off().before_after(subject, finding.images, head=finding.head).rows
    )


def test_places_that_were_read_before_are_not_found_and_the_whole_model_says_so(planted):
    subject, images, _ = planted
    finding = vt.audit_places(subject, images, "blocks.-1.resid.out", masks="masks", look=pictures(160, 9)[0], **QUICK)
    assert finding.overall.alarm and not finding.alarm
    assert finding.left == pytest.approx(finding.overall.suspicion, rel=1e-3)


def test_a_network_that_never_saw_a_cue_raises_no_alarm():
    train = pictures(400, 5, cue=None)[0]
    subject = trained(train)
    finding = vt.audit_places(
        subject, pictures(80, 6, cue=None)[0], masks="masks", look=train[list(range(120))], **EARLY
    )
    assert not finding.alarm and not finding.alarms
    with pytest.raises(vt.SettingsError, match="no place raised an alarm"):
        finding.switch_off()


def test_a_corner_that_the_network_does_not_listen_to_raises_no_alarm():
    """Places that tell the label are there, and nothing is lost without them."""
    subject = trained(pictures(400, 5, cue=None)[0])
    finding = vt.audit_places(subject, pictures(80, 6)[0], masks="masks", look=pictures(120, 7)[0], **EARLY)
    assert len(finding.rows) and finding.rows[0].learned > 20
    assert not finding.alarm


def test_without_pictures_to_look_in_half_of_them_are_taken(planted):
    subject, _, _ = planted
    finding = vt.audit_places(subject, pictures(160, 8)[0], masks="masks", **EARLY)
    assert len(finding.labels) == 80 and finding.settings["looked in"] == 80 and finding.alarm


def test_the_audit_of_parts_says_the_whole_models_test(planted, tmp_path):
    subject, images, _ = planted
    asked = {"split": False, "confirm": 0, "repeats": 300, "progress": False}
    finding = vt.audit(subject, images, masks="masks", **asked)
    assert finding.overall.alarm and finding.overall.target == 1
    finding.save(tmp_path)
    assert vt.AuditFinding.load(tmp_path).overall == finding.overall
    assert vt.audit(subject, images, **asked).overall is None
    sweep = vt.audit_sites(subject, images, ["blocks.0.mlp.out", "blocks.1.mlp.out"], masks="masks", **asked)
    assert sweep.overall == finding.overall


# -- the patch, and bad input


def test_a_patch_on_disk_does_the_same_and_refuses_other_weights(planted, tmp_path):
    subject, images, finding = planted
    patch = finding.switch_off()
    leaves_as_a_table(patch, tmp_path)
    shows_itself(patch)
    patch.save(tmp_path / "places.safetensors")
    loaded = vt.PlacesOff.load(tmp_path / "places.safetensors")
    x = subject.inputs([picture.image for picture in images[:4]])
    with patch.on(subject):
        expected = subject(x)
    with loaded.on(subject):
        assert torch.equal(subject(x), expected)
    with pytest.raises(vt.ModelError, match="not those that were audited"), loaded.on(vt.wrap(network(seed=9))):
        pass
    (tmp_path / "places.safetensors").write_bytes(b"torn")
    with pytest.raises(vt.StoreError, match="not a patch of places"):
        vt.PlacesOff.load(tmp_path / "places.safetensors")
    with pytest.raises(vt.SettingsError, match="no places of this class"):
        finding.switch_off([7])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"masks": None}, "found with masks"),
        ({"masks": [np.ones((32, 32), bool)] * 24, "look": "same"}, "no masks in common"),
        ({"neighbours": 40}, r"too few pictures to look[^$]*fewer neighbours="),
        ({"look": "other"}, "other classes"),
        ({"neighbours": 0}, "neighbours is a whole number"),
        ({"repeats": "9"}, "repeats is a whole number"),
        ({"alpha": 2}, "alpha lies between"),
        ({"site": "head"}, "one site of the residual stream"),
        ({"site": "blocks.*.resid.out"}, "one site of the residual stream"),
        ({"site": "blocks.0.mlp.hidden"}, "one site of the residual stream"),
        ({"site": "blocks.9.resid.out"}, "blocks.9.resid.out"),
    ],
)
def test_wrong_settings_are_refused_by_name(asked, message):
    images, _ = pictures(24, 0)
    sets = {"same": images, "other": pictures(24, 0, classes=("a", "b"))[0]}
    asked = {"masks": "masks"} | asked | ({"look": sets[asked["look"]]} if "look" in asked else {})
    with pytest.raises(vt.VitreousError, match=message):
        vt.audit_places(vt.wrap(network()), images, **QUICK | asked)


def test_tokens_are_those_of_the_site_without_the_prefix():
    subject, images = vt.wrap(network()), pictures(4, 0)[0]
    with torch.no_grad(), vt.capture(subject, "blocks.0.resid.out") as seen:
        subject(subject.inputs([picture.image for picture in images]))
    expected = seen["blocks.0.resid.out"][:, 1:].numpy()
    np.testing.assert_allclose(tokens_at(subject, "blocks.0.resid.out", images), expected, atol=1e-5)
