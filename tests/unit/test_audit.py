"""The audit: exact where the way is linear, quiet where nothing is wrong, and it finds what was planted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from corner_network import network, pictures, trained
from shown import leaves_as_a_table, shows_itself
from tests.reference.audit import every_exchange, lost_without, mates

import vitreous as vt
from vitreous.auditing import CONTROLLED, BeforeAfter, _parts, _random_parts
from vitreous.auditing.effects import Effects, Parts, measure
from vitreous.auditing.heads import Head
from vitreous.auditing.ranking import OUTSIDE, Evidence, Setting, rank
from vitreous.auditing.sweep import AuditSweep
from vitreous.evidence.suspicion import corrected, exchange_test
from vitreous.kernels.fill_holes import fill_holes
from vitreous.subunits.layers import find_layer

QUICK = {"repeats": 200, "progress": False}


@pytest.fixture(scope="module")
def planted():
    """A network that reads the corner, its audit, and pictures whose corner says nothing."""
    subject = trained(pictures(600, 1)[0])
    images, _ = pictures(200, 2)
    finding = vt.audit(subject, images, masks="masks", disentanglement=None, confirm=2, repeats=1000, progress=False)
    return subject, images, finding


# -- the numbers


def test_effects_on_a_linear_way_are_what_is_lost_without_the_part():
    subject = vt.wrap(network(final_norm=False))
    images, _ = pictures(12, 0)
    layer = find_layer(subject, "blocks.-1.mlp.out")
    parts, _ = _parts(layer, None)
    head = Head("own", ("dark", "light"), lambda out: out)
    found = measure(subject, head, layer, parts, images, prefix=1)
    levels = found.levels(images.labels)
    x = subject.inputs([picture.image for picture in images])
    slow = lost_without(subject, head.read, layer, parts, levels, x, 1)
    np.testing.assert_allclose(found.beyond(levels), slow, atol=2e-5)
    logits = lost_without(subject, head.read, layer, parts, levels, x, 1, of_logits=True)
    np.testing.assert_allclose(found.added(levels), logits, atol=2e-5)
    assert found.linear


def test_contributions_to_three_classes_are_what_is_really_lost_where_the_way_is_linear():
    images, _ = pictures(24, 0)
    arrays = np.stack([np.asarray(picture.image) for picture in images])
    three = vt.ImageSet.from_arrays(arrays, labels=np.arange(24) % 3, classes=["a", "b", "c"])
    asked = {"split": False, "tested": 6, "confirm": 6} | QUICK
    net = network(3, final_norm=False)
    net.blocks[-1].mlp.fc2.weight.data *= 1000
    finding = vt.audit(vt.wrap(net), three, **asked)
    at = [row.id for row in finding.rows]
    assert finding.every.exact and len(finding.every) == 32
    np.testing.assert_allclose(finding.every.contributions[at], finding.every.taken_out[at], atol=2e-5)
    assert np.abs(finding.every.contributions[at]).max() > 5e-3
    elsewhere = vt.audit(vt.wrap(network(3)), three, **asked | {"confirm": 0})
    assert not elsewhere.every.exact and np.isnan(elsewhere.every.taken_out).all()


@pytest.mark.parametrize("settings", [{}, {"global_pool": "avg", "class_token": False}])
def test_effects_elsewhere_are_so_to_first_order(settings):
    subject = vt.wrap(network(3, **settings))
    images, _ = pictures(12, 0)
    layer = find_layer(subject, "blocks.0.mlp.out")
    parts, _ = _parts(layer, None)
    head = Head("own", ("a", "b", "c"), lambda out: out)
    prefix = len(subject.prefix)
    found = measure(subject, head, layer, parts, images, prefix=prefix)
    levels = found.levels(images.labels)
    x = subject.inputs([picture.image for picture in images])
    slow = lost_without(subject, head.read, layer, parts, levels, x, prefix)
    assert np.corrcoef(found.beyond(levels).ravel(), slow.ravel())[0, 1] > 0.99
    assert not found.linear


def test_a_level_is_that_of_all_classes_alike_however_many_pictures_they_have():
    means, nothing = np.random.default_rng(0).normal(size=(8, 3, 2)), np.zeros(0)
    found = Effects(nothing, nothing, means, nothing, nothing, nothing, nothing)
    expected = (means[:6].mean(0) + means[6:].mean(0)) / 2
    np.testing.assert_allclose(found.levels(np.array([0] * 6 + [1] * 2)), expected)


def test_exchanges_agree_with_all_of_them():
    rng = np.random.default_rng(0)
    effects, member = rng.normal(size=(10, 3)), np.arange(10) < 4
    effects[:4, 0] += 1.5
    observed, p = exchange_test(effects, member, repeats=20_000)
    expected, exact = every_exchange(effects, member)
    np.testing.assert_allclose(observed, expected)
    np.testing.assert_allclose(p, exact, atol=0.012)


def test_exchanges_stay_within_strata():
    strata = np.repeat([0, 1], 20)
    effects = np.where(strata == 1, 5.0, 0.0)[:, None]  # explained by the strata alone
    member = np.r_[np.arange(20) < 5, np.arange(20) < 15]
    assert exchange_test(effects, member, repeats=500)[1][0] < 0.01
    assert exchange_test(effects, member, strata=strata, repeats=500)[1][0] == 1


def test_no_alarm_more_often_than_alpha_where_labels_say_nothing():
    rng, alarms = np.random.default_rng(1), 0
    for trial in range(100):
        e = rng.normal(size=(60, 4)) @ rng.normal(size=(4, 30)) + 0.3 * rng.normal(size=(60, 30))
        evidence = Evidence(np.stack([-e, e], -1), rng.permutation(60) % 2, None, OUTSIDE)
        parts = Parts(np.arange(30), np.zeros((30, 1)), np.zeros(30), np.ones(30, bool))
        ranked = rank(evidence, parts, Setting(30, 300, 0.05, "fdr_bh", trial))
        alarms += bool((ranked.corrected <= 0.05).any())
    assert alarms <= 10  # 5 expected at most; more than 10 of 100 happens once in 90 times


def test_corrections_are_those_of_statsmodels():
    assert np.allclose(corrected(np.array([[0.01, 0.04]]), "bonferroni"), [[0.02, 0.08]])
    with pytest.raises(vt.SettingsError, match="no such correction"):
        corrected(np.array([0.1]), "luck")


def test_painting_over_keeps_the_rest_and_hides_the_outline():
    x = torch.rand(3, 3, 33, 20)
    x[1] = 0.5
    holes = torch.zeros(3, 33, 20, dtype=torch.bool)
    holes[:2, 5:20, 3:15] = True
    holes[2] = True
    filled = fill_holes(x, holes)
    assert torch.equal(filled[0][:, ~holes[0]], x[0][:, ~holes[0]])
    assert torch.allclose(filled[1], x[1])  # one colour stays one colour
    assert torch.allclose(filled[2], x[2].mean((1, 2), keepdim=True).expand(3, 33, 20))
    assert torch.isfinite(filled).all()


# -- what was planted is found


def test_the_planted_corner_is_found_and_switched_off(planted):
    subject, _, finding = planted
    fair, corner = pictures(200, 3, cue=0.5)
    first = finding.rows[0]
    assert first.alarm and first.suspicion > 0 and np.isfinite(first.ablation)
    assert finding.basis == OUTSIDE and finding.controls["alarms with shuffled labels"] == 0
    active = np.stack([finding.activations[finding.labels == c, 0] for c in (0, 1)])
    assert abs(np.diff(active.mean(1))[0]) > active.std(1).max()  # it tells corners from none
    sweep = vt.audit_sites(subject, finding.images, masks="masks", confirm=0, **QUICK)
    x = subject.inputs([picture.image for picture in fair])

    def reliance() -> float:
        """How far the corner moves the log-odds of light, whatever the disc is."""
        with torch.no_grad():
            odds = subject(x).diff(dim=1)[:, 0].numpy()
        return float(odds[corner].mean() - odds[~corner].mean())

    before = reliance()
    with sweep.switch_off(measure=False).on(subject):
        after = reliance()
    assert before > 1 and after < 0.7 * before


def test_suspicion_of_a_unit_is_that_of_its_parts_together(planted):
    _, _, finding = planted
    assert all(row.kind == "sub-unit" or row.of_unit == pytest.approx(row.suspicion, rel=1e-4) for row in finding.rows)


def test_a_network_that_never_saw_a_cue_raises_no_alarm():
    subject = trained(pictures(400, 5, cue=None)[0])
    finding = vt.audit(subject, pictures(120, 6, cue=None)[0], masks="masks", split=False, confirm=0, **QUICK)
    assert not finding.alarms
    with pytest.raises(vt.SettingsError, match="no part raised an alarm"):
        finding.switch_off()


def test_groups_stand_in_for_masks(planted, tmp_path):
    subject, _, _ = planted
    images, corner = pictures(160, 7, cue=0.7)
    finding = vt.audit(subject, images, groups=np.where(corner, "corner", "none"), split=False, confirm=0, **QUICK)
    assert finding.basis == "between groups" and finding.alarms
    assert abs(finding.rows[0].group_selectivity - 0.5) > 0.2
    assert "worst group" in str(finding.switch_off(finding.rows[:1]).effect)
    every, row = finding.every, finding.rows[0]
    assert every.groups == ("corner", "none") and len(every) == 32 and every.classes == ("dark", "light")
    active = finding.activations[:, 0]
    for names, told in ((finding.labels.astype(str), every.selectivity), (finding.groups, every.by_group)):
        for k, name in enumerate(np.unique(names)):
            with_it, without = active[names == name], active[names != name]
            slow = np.mean(np.sign(with_it[:, None] - without)) / 2 + 0.5
            assert told[row.id, k] == pytest.approx(slow, abs=1e-6)
    assert every.agreement[row.id, row.target] == row.agreement and row.agreement > 0
    assert {"class", "group", "agreement"} <= set(every.to_pandas().columns)
    leaves_as_a_table(every, tmp_path)
    shows_itself(every)


def test_proposed_groups_follow_the_corner(planted):
    subject, _, _ = planted
    images, corner = pictures(160, 8, cue=0.7)
    finding = vt.audit(subject, images, masks="masks", split=False, confirm=0, **QUICK)
    agree = ((finding.propose_groups() == "with") == corner).mean()
    assert max(agree, 1 - agree) > 0.8


def test_proposed_groups_of_a_map_follow_the_corner(planted):
    subject, _, _ = planted
    images, corner = pictures(160, 8, cue=0.7)
    finding = vt.audit(subject, images, masks="masks", split=False, confirm=0, **QUICK)
    with vt.capture(subject, "blocks.1.resid.out") as seen, torch.no_grad():
        subject(subject.inputs([picture.image for picture in images]))
    cut = vt.ncut(seen["blocks.1.resid.out"][:, 1:].numpy(), n_eig=10, progress=False)
    concepts = vt.group_nodes(cut)(8).reshape(160, 16)
    agree = ((finding.propose_groups(concepts=concepts) == "with") == corner).mean()
    assert max(agree, 1 - agree) > 0.9
    for wrong in (concepts[:3], concepts.astype(float), concepts[0]):
        with pytest.raises(vt.SettingsError, match="whole numbers"):
            finding.propose_groups(concepts=wrong)


def test_all_alarms_together_show_the_corner(planted, tmp_path):
    subject, _, _ = planted
    images, corner = pictures(160, 8, cue=0.7)
    sites = ["blocks.0.mlp.out", "blocks.1.mlp.out"]
    sweep = vt.audit_sites(subject, images, sites, masks="masks", split=False, confirm=0, **QUICK)
    slow = np.zeros(160)
    for site, row in sweep.alarms:
        slow += sweep[site].suspected[:, sweep[site].rows.index(row)] * (1 if row.target == 1 else -1)
    together = sweep.together(1)
    np.testing.assert_allclose(together, slow, atol=1e-5)
    np.testing.assert_allclose(sweep.together(0), -slow, atol=1e-5)
    order = np.argsort(-together)
    assert corner[order[:20]].mean() >= 0.9 and corner[order[-20:]].mean() <= 0.1  # of all it is half
    assert "All alarms together" in vt.audit_report(sweep, tmp_path, shown=1).read_text()
    with pytest.raises(vt.SettingsError, match="no such class"):
        sweep.together(2)


def test_a_table_says_what_was_lost():
    old, new = np.array([[2.0, 0], [2, 0], [0, 2], [2, 0]]), np.array([[0.0, 2], [2, 0], [0, 2], [0, 2]])
    table = BeforeAfter.of(old, new, np.array([0, 0, 1, 1]), ("a", "b"), None)
    assert table.lost == (("class a", 0.5),)
    assert "lost: class a (50.0 points); log-odds of the right class" in str(table)
    same = BeforeAfter.of(old, old, np.array([0, 0, 1, 1]), ("a", "b"), None)
    assert same.lost == () and "no class and no group lost accuracy" in str(same)


def test_without_masks_the_finding_says_what_it_cannot_tell(planted):
    subject, images, _ = planted
    assert vt.audit(subject, images, split=False, confirm=0, **QUICK).basis == "the whole picture"


def test_rows_are_told_their_label_and_their_mates(planted, tmp_path):
    subject, images, _ = planted
    split = vt.disentangle(
        subject, images, "blocks.-1.mlp.out", tokens_per_image=4, top_k=80, min_cluster_size=20, progress=False
    )
    rng = np.random.default_rng(0)
    spoken = rng.normal(size=(len(images), 6)), rng.normal(size=(5, 6))
    labels = vt.label(rng.random((len(images), len(split))), *spoken, list("abcde"), top=10, progress=False)
    copied = rng.normal(size=(120, 3, 1, 32)).astype(np.float32)
    copied[:, 0, 0, :20] = copied[:, 1, 0, 31:11:-1] * 2  # twenty units of the last block have a mate in the first
    copied[:, 2, 0, 4] = copied[:, 1, 0, 31]
    structure = vt.structure(copied, progress=False)
    asked = {"disentanglement": split, "masks": "masks", "confirm": 0} | QUICK
    finding = vt.audit(subject, images, labels=labels, structure=structure, **asked)
    assert any(row.mates for row in finding.rows) and not all(row.mates for row in finding.rows)
    for row in finding.rows:
        assert row.mates == mates(structure, 1, row.unit)
        assert row.label == labels.names[int(split.subunits(row.unit)[row.part or 0])]
    page = vt.audit_report(finding, tmp_path, shown=40).read_text()
    first = next(row for row in finding.rows[:40] if row.mates)
    assert f"The same concept in other layers: {first.mates[0]}" in page
    assert f"Part {finding.alarms[0].name}: {finding.alarms[0].label}" in page
    assert vt.AuditFinding.load(tmp_path).rows[0].mates == finding.rows[0].mates
    for wrong in ({"labels": replace(labels, indices=labels.indices[1:])}, {"labels": "x"}, {"structure": "x"}):
        with pytest.raises(vt.SettingsError, match=r"one for each sub-unit|is what vt"):
            vt.audit(subject, images, **asked | wrong)


def test_the_control_is_the_most_that_the_same_units_give_when_they_are_split_by_lot(planted):
    subject, images, _ = planted
    asked = {"tokens_per_image": 4, "top_k": 80, "min_cluster_size": 20, "progress": False}
    split = vt.disentangle(subject, images, "blocks.-1.mlp.out", **asked)
    finding = vt.audit(subject, images, disentanglement=split, confirm=0, **QUICK)
    units = sorted({row.unit for row in finding.rows[:CONTROLLED] if row.part is not None})
    parts, layer = _random_parts(split, units, 0), find_layer(subject, finding.site)
    for unit in units:
        mine = parts.weight[parts.owner == unit]
        whole = layer.matrix()[0][unit]
        np.testing.assert_allclose(mine.sum(0), whole, atol=1e-6)
        assert len(mine) == len(split.subunits(unit)) > 1
        assert ((np.abs(mine) > 0).sum(0) == (whole != 0)).all()  # every input goes to one part
    head = Head("own", ("dark", "light"), lambda out: out)
    found = measure(subject, head, layer, parts, images, prefix=1)
    e = found.beyond(found.levels(images.labels))[..., 1]
    most = (e[images.labels == 1].mean(0) - e[images.labels == 0].mean(0)).max()
    assert finding.controls["random sub-units, largest"] == pytest.approx(most, rel=1e-4)


# -- the patch


def test_a_patch_moves_its_units_alone_and_leaves_no_trace(planted):
    subject, images, finding = planted
    x = subject.inputs([picture.image for picture in images[:4]])
    before = subject(x)
    patch = finding.switch_off(finding.rows[:1])
    path = finding.layer["path"]
    with vt.capture(subject, path) as seen:
        subject(x)
    with patch.on(subject), vt.capture(subject, path) as changed:
        subject(x)
    other = np.setdiff1d(np.arange(32), patch.layers[0].units)
    assert not torch.equal(changed[path], seen[path])
    assert torch.equal(changed[path][..., other], seen[path][..., other])
    assert torch.equal(subject(x), before) and subject.hooks == 0
    with pytest.raises(vt.SettingsError, match="not on"):
        patch.remove(subject)


def test_a_part_is_not_switched_off_twice(planted, tmp_path):
    """Twice, it would end as far beyond its level as it was before it."""
    subject, images, finding = planted
    x = subject.inputs([picture.image for picture in images[:4]])
    before, patch = subject(x), finding.patch(finding.rows[:2])
    patch.save(tmp_path / "patch.safetensors")
    again, one = vt.SwitchOff.load(tmp_path / "patch.safetensors"), finding.patch(finding.rows[:1])
    undivided = vt.audit(subject, images, split=False, masks="masks", confirm=0, **QUICK)
    unit = undivided.patch([row for row in undivided.rows if row.unit == finding.rows[0].unit])
    for second in (patch, again, one, unit):
        with pytest.raises(vt.SettingsError, match=r"(?s)switched off twice.*remove"), (patch + second).on(subject):
            pass
        with patch.on(subject), pytest.raises(vt.SettingsError, match="switched off twice"):
            second.apply(subject)
        assert subject.hooks == 0 and torch.equal(subject(x), before)
    with finding.patch(finding.rows[:2]).on(subject):
        expected = subject(x)
    with (one + finding.patch(finding.rows[1:2])).on(subject):  # two parts of one layer, and none of them twice
        torch.testing.assert_close(subject(x), expected)


def test_a_patch_on_disk_does_the_same_and_refuses_other_weights(planted, tmp_path):
    subject, images, finding = planted
    patch = finding.switch_off(finding.rows[:3])
    patch.save(tmp_path / "patch.safetensors")
    loaded = vt.SwitchOff.load(tmp_path / "patch.safetensors")
    x = subject.inputs([picture.image for picture in images[:4]])
    with patch.on(subject):
        expected = subject(x)
    with loaded.on(subject.module):
        assert torch.equal(subject(x), expected)
    with pytest.raises(vt.ModelError, match="not those that were audited"):
        loaded.apply(vt.wrap(network(seed=9)))
    (tmp_path / "patch.safetensors").write_bytes(b"torn")
    with pytest.raises(vt.StoreError, match="not a patch"):
        vt.SwitchOff.load(tmp_path / "patch.safetensors")


def test_a_finding_on_disk_is_the_same(planted, tmp_path):
    subject, images, finding = planted
    finding.save(tmp_path)
    loaded = vt.AuditFinding.load(tmp_path, subject=subject, images=images)
    for name in ("names", "contributions", "taken_out", "selectivity", "by_group", "outside", "agreement"):
        np.testing.assert_array_equal(vars(loaded.every)[name], vars(finding.every)[name])
    assert (loaded.every.exact, loaded.every.classes) == (finding.every.exact, finding.every.classes)
    assert loaded.rows[0].name == finding.rows[0].name and loaded.records(1)[0]["target"] in ("dark", "light")
    chosen = [row.id for row in finding.rows[:2]]
    assert loaded.switch_off(chosen).effect == finding.switch_off(chosen).effect
    assert vt.AuditFinding.load(tmp_path).switch_off(chosen).before is None
    np.testing.assert_array_equal(loaded.masks, finding.masks)
    sweep, again = (AuditSweep((one, one)) for one in (finding, loaded))
    assert again._left(loaded) == sweep._left(finding)  # so as many parts are switched off as before
    unlabelled = vt.ImageSet.from_arrays(np.stack([np.asarray(picture.image) for picture in images]))
    with pytest.raises(vt.ImageError, match="an audit needs labelled pictures"):
        vt.AuditFinding.load(tmp_path, subject=subject, images=unlabelled)
    (tmp_path / "audit.npz").write_bytes(b"torn")
    with pytest.raises(vt.StoreError, match="audit cannot be read"):
        vt.AuditFinding.load(tmp_path)


# -- heads


def test_a_model_without_a_head_gets_a_probe_and_is_audited_on_other_pictures():
    subject = vt.load("bundled:scenes-contrast")
    images, _ = pictures(80, 1)
    finding = vt.audit(subject, images, masks="masks", split=False, confirm=0, **QUICK)
    assert finding.settings["head"] == "probe" and len(finding.labels) == 40


@pytest.mark.parametrize("asked", [{"groups": ["a"] * 3}, {"masks": [np.ones((32, 32), bool)] * 3}])
def test_layers_are_told_as_many_masks_and_groups_as_pictures(asked):
    with pytest.raises(vt.ImageError, match=r"(?s)for each picture.*3.*40"):
        vt.audit_sites(vt.load("bundled:scenes-contrast"), pictures(40, 1)[0], "blocks.-1.mlp.out", **asked, **QUICK)


def test_a_head_that_is_not_linear_is_audited_too():
    subject = vt.load("bundled:scenes-contrast")
    torch.manual_seed(0)
    head = torch.nn.Sequential(torch.nn.Linear(128, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    finding = vt.audit(subject, pictures(24, 1)[0], head=head, split=False, confirm=1, **QUICK)
    assert np.isfinite(finding.rows[0].ablation) and finding.settings["head"] == "given"


def test_boxes_and_mask_models_stand_in_for_masks():
    images, _ = pictures(12, 0)
    rng = np.random.default_rng(0)
    corners = [(*rng.integers(0, 12, 2), *rng.integers(16, 32, 2)) for _ in images]
    drawn = np.zeros((12, 32, 32), bool)
    for mask, (x0, y0, x1, y1) in zip(drawn, corners, strict=True):
        mask[y0:y1, x0:x1] = True
    arrays = np.stack([np.asarray(picture.image) for picture in images])
    about = {"labels": images.labels, "classes": images.classes, "boxes": [np.array([box]) for box in corners]}
    boxed, subject = vt.ImageSet.from_arrays(arrays, **about), vt.wrap(network())

    def model(batch):
        return [drawn[[np.array_equal(known, pixels) for known in arrays].index(True)] for pixels in batch]

    given = ("boxes", list(drawn), model)
    found = [vt.audit(subject, boxed, masks=masks, split=False, confirm=0, **QUICK) for masks in given]
    assert all(one.basis == OUTSIDE and str(one.records()) == str(found[0].records()) for one in found)
    assert np.array_equal(found[0].masks, found[1].masks) and np.array_equal(found[0].masks, found[2].masks)


def test_masks_grow_by_their_rim():
    images, _ = pictures(12, 0)
    asked = {"masks": "masks", "split": False, "confirm": 0} | QUICK
    subject = vt.wrap(network())
    exact, wide, usual = (vt.audit(subject, images, rim=rim, **asked).masks for rim in (0, 3, None))
    slow = np.zeros_like(exact)
    for k, y, x in np.argwhere(exact):
        slow[k, max(0, y - 3) : y + 4, max(0, x - 3) : x + 4] = True
    assert np.array_equal(wide, slow)
    assert exact.sum() < usual.sum() < wide.sum()  # a pixel at this size


# -- bad input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": None, "classes": None}, "labelled pictures"),
        ({"labels": [0] * 12}, "there is one"),
        ({"labels": [0] * 10 + [1] * 2}, "4 pictures or more"),
    ],
)
def test_sets_that_say_nothing_are_refused(change, message):
    images, _ = pictures(12, 0)
    arrays = np.stack([np.asarray(picture.image) for picture in images])
    asked = {"labels": images.labels, "classes": ("a", "b")} | change
    with pytest.raises(vt.ImageError, match=message):
        vt.audit(vt.wrap(network()), vt.ImageSet.from_arrays(arrays, **asked), **QUICK)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"masks": [np.ones((8, 8), bool)] * 12}, "another size"),
        ({"masks": [np.ones((32, 32), bool)] * 3}, "one mask a picture"),
        ({"masks": [np.zeros((32, 32), bool)] * 12}, "both the object and the rest"),
        ({"masks": [np.full((32, 32), 7)] * 12}, "not of 0 and 1"),
        ({"masks": "masks", "rim": -1}, "rim is a number of pixels"),
        ({"groups": ["a"]}, "one group a picture"),
        ({"head": "guess"}, "unknown head"),
        ({"head": (np.zeros((3, 2)), np.zeros(3))}, "a linear head"),
        ({"head": (np.zeros((2, 2)),)}, "a linear head"),
        ({"head": (np.zeros((2, 7)), np.zeros(2))}, r"(?s)for other channels.*\(2, 7\).*2"),
        ({"head": (np.full((2, 2), np.nan), np.zeros(2))}, "of finite numbers"),
        ({"head": (np.full((2, 2), "a"), np.zeros(2))}, "of finite numbers"),
        ({"groups": ["a"] * 12}, r"(?s)compared with each other.*there is one"),
        ({"targets": [0, 7]}, "one output of the model"),
        ({"site": "blocks.0.mlp.hidden"}, "not the output of one linear layer"),
        ({"head": 3}, "unknown head"),
        ({"targets": ["a", "b"]}, "targets are whole numbers"),
        ({"alpha": 2.0}, "alpha lies between"),
        ({"alpha": "0.05"}, "alpha lies between"),
        ({"tested": "3"}, "tested is a whole number"),
        ({"repeats": 1.5}, "repeats is a whole number"),
        ({"correction": "luck"}, "no such correction"),
    ],
)
def test_wrong_settings_are_refused_by_name(asked, message):
    with pytest.raises(vt.VitreousError, match=message):
        vt.audit(vt.wrap(network()), pictures(12, 0)[0], split=False, **QUICK | asked)


def test_a_head_with_other_classes_asks_for_targets():
    with pytest.raises(vt.SettingsError, match="has 5 classes and the pictures 2"):
        vt.audit(vt.wrap(network(5)), pictures(12, 0)[0], split=False, **QUICK)
    finding = vt.audit(vt.wrap(network(5)), pictures(12, 0)[0], targets=[3, 1], split=False, **QUICK)
    assert finding.classes == ("dark", "light")


def test_a_model_that_carries_hooks_is_refused(planted):
    subject, images, finding = planted
    with finding.switch_off(finding.rows[:1]).on(subject), pytest.raises(vt.SettingsError, match="carries hooks"):
        vt.audit(subject, images, split=False, **QUICK)
