from __future__ import annotations

import json
from dataclasses import fields, replace

import numpy as np
import pytest

import vitreous as vt
from vitreous.errors import StoreError
from vitreous.lenses.structure import TRANSFORMS


def activations(seed: int = 0) -> np.ndarray:
    """(sample, layer, token, channel): two copies of one unit in later layers, a pair, one dead, two nearly dead."""
    x = np.random.default_rng(seed).normal(size=(300, 3, 2, 5)).astype(np.float32)
    x[:, 1, 0, 2] = np.exp(x[:, 0, 0, 2])
    x[:, 2, 1, 0] = 3 * x[:, 0, 0, 2] + 1
    x[:, 2, 0, 4] = x[:, 0, 1, 1] + 0.001 * x[:, 0, 0, 0]
    x[:, 1, 1, 1] = 4
    x[:, 1, 1, 2] = np.arange(300) < 2
    x[:, 2, 1, 2] = np.arange(300) < 3
    return x


def chain() -> np.ndarray:
    """Units each near the one before it, and the last far from the first."""
    steps = np.cumsum(np.random.default_rng(0).normal(0, 0.012, size=(2000, 16)), 1)
    return (np.random.default_rng(1).normal(size=(2000, 1)) + steps).reshape(2000, 4, 1, 4)


def test_mean_size_counts_units_on_their_own_and_no_dead_ones():
    found = vt.structure(activations())
    # 30 units, one dead; clusters of 3, 2 and the nearly dead 2; 22 on their own
    assert sorted(found.sizes.tolist()) == [2, 2, 3]
    assert sorted(found.group_sizes.tolist()) == [1] * 22 + [2, 2, 3]
    assert found.counted.sum() == 29 == found.group_sizes.sum()
    assert found.mean_size == 29 / 25


def test_units_that_were_left_out_are_in_no_group():
    found = vt.structure(activations(), keep_nearly_dead=False)
    assert sorted(found.group_sizes.tolist()) == [1] * 22 + [2, 3]
    assert found.mean_size == 27 / 24 and found.counts.sum() == 22 + 2 + 3


def test_copies_follow_their_anchors():
    found = vt.structure(activations(), keep_nearly_dead=False)
    units, anchors, distances = found.copies
    assert units.tolist() == [[1, 0, 2], [2, 0, 4], [2, 1, 0]]
    assert anchors.tolist() == [[0, 0, 2], [0, 1, 1], [0, 0, 2]]
    assert distances[0] == distances[2] == 0 and 0 < distances[1] < 1
    assert np.isnan(found.to_anchor[found.labels < 0]).all() and not np.isnan(found.to_anchor[found.labels >= 0]).any()
    np.testing.assert_array_equal(found.to_anchor[tuple(found.anchors.T)], 0)


def test_a_copy_of_a_copy_can_be_far_from_the_anchor():
    found = vt.structure(chain())
    assert found.sizes.tolist() == [16]
    near = vt.grouped_ranks(chain().reshape(2000, 16)).astype(int)
    expected = np.abs(near[:, 1:] - near[:, :1]).mean(0)
    np.testing.assert_allclose(found.copies.distances, expected, rtol=1e-12)
    assert expected[0] < 1 < expected[-1]


def test_without_clusters_there_are_no_copies():
    found = vt.structure(np.random.default_rng(0).normal(size=(200, 2, 1, 5)))
    assert [part.shape for part in found.copies] == [(0, 3), (0, 3), (0,)]
    assert found.mean_size == 1.0 and found.group_sizes.tolist() == [1] * 10


# -- on disk


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("everything", [False, True])
def test_a_saved_finding_comes_back(tmp_path, transform, everything):
    found = vt.structure(activations(), transform=transform, distances=everything, keep_transformed=everything)
    found.save(tmp_path / "new" / "finding.npz")
    back = vt.StructureFinding.load(tmp_path / "new" / "finding.npz")
    for field in fields(found):
        one, other = found.__dict__[field.name], back.__dict__[field.name]
        assert type(one) is type(other), field.name
        np.testing.assert_array_equal(one, other, err_msg=field.name)
        if isinstance(one, np.ndarray):
            assert one.dtype == other.dtype, field.name
    assert [m.tolist() for m in back.clusters] == [m.tolist() for m in found.clusters]
    assert back.mean_size == found.mean_size


def test_the_same_finding_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        vt.structure(activations(), keep_transformed=True).save(tmp_path / name)
    vt.StructureFinding.load(tmp_path / "a").save(tmp_path / "c")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()
    assert {p.name for p in tmp_path.iterdir()} == {"a", "b", "c"}, "no draft is left behind"


def test_the_settings_can_be_read_without_us(tmp_path):
    vt.structure(activations(), threshold=0.5).save(tmp_path / "f.npz")
    with np.load(tmp_path / "f.npz", allow_pickle=False) as file:
        about = json.loads(file["about"].tobytes())
    assert about["settings"]["threshold"] == 0.5 and about["layers"] == ["layer 0", "layer 1", "layer 2"]


def test_a_failed_save_leaves_the_old_file(tmp_path):
    found = vt.structure(activations())
    found.save(tmp_path / "f.npz")
    before = (tmp_path / "f.npz").read_bytes()
    unsaveable = replace(found, settings={**found.settings, "source": object()})
    with pytest.raises(TypeError):
        unsaveable.save(tmp_path / "f.npz")
    assert (tmp_path / "f.npz").read_bytes() == before


def test_no_file_and_foreign_files_are_refused(tmp_path):
    with pytest.raises(StoreError, match="no structure finding here"):
        vt.StructureFinding.load(tmp_path / "nothing.npz")
    with pytest.raises(StoreError, match="not a structure finding"):
        vt.StructureFinding.load(tmp_path)
    (tmp_path / "text").write_text("hello")
    np.savez(tmp_path / "other.npz", labels=np.zeros(3))
    np.savez(tmp_path / "odd.npz", about=np.frombuffer(b"[1, 2]", np.uint8))
    np.save(tmp_path / "one.npy", np.zeros(3))
    np.savez(tmp_path / "pickle.npz", about=np.array([{"a": 1}], object))
    for name in ("text", "other.npz", "odd.npz", "one.npy", "pickle.npz"):
        with pytest.raises(StoreError, match="not a structure finding"):
            vt.StructureFinding.load(tmp_path / name)


def test_files_of_later_versions_or_with_parts_that_do_not_fit_are_refused(tmp_path):
    vt.structure(activations(), keep_transformed=True).save(tmp_path / "f.npz")
    with np.load(tmp_path / "f.npz") as file:
        arrays = dict(file)
    about = json.loads(arrays["about"].tobytes())
    later = np.frombuffer(json.dumps({**about, "version": 9}).encode(), np.uint8)
    np.savez(tmp_path / "later.npz", **{**arrays, "about": later})
    with pytest.raises(StoreError, match="of another version\n  given:    9\n  accepted: 1"):
        vt.StructureFinding.load(tmp_path / "later.npz")
    for name, part in {
        "dead": arrays["dead"][:1],
        "labels": arrays["labels"][:, :1],
        "transformed": arrays["dead"],
    }.items():
        np.savez(tmp_path / "made.npz", **{**arrays, name: part})
        with pytest.raises(StoreError, match="do not fit together"):
            vt.StructureFinding.load(tmp_path / "made.npz")
    bare = np.frombuffer(json.dumps({**about, "settings": {}}).encode(), np.uint8)
    np.savez(tmp_path / "made.npz", **{**arrays, "about": bare})
    with pytest.raises(StoreError, match="not a structure finding"):
        vt.StructureFinding.load(tmp_path / "made.npz")
    del arrays["differences"]
    np.savez(tmp_path / "made.npz", **arrays)
    with pytest.raises(StoreError, match="not a structure finding"):
        vt.StructureFinding.load(tmp_path / "made.npz")


def test_damage_is_noticed_wherever_it_is(tmp_path):
    found = vt.structure(activations())
    found.save(tmp_path / "f.npz")
    whole = (tmp_path / "f.npz").read_bytes()
    wrong = 0
    for at in range(0, len(whole), 7):
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]):
            (tmp_path / "bad.npz").write_bytes(damaged)
            try:
                back = vt.StructureFinding.load(tmp_path / "bad.npz")
            except StoreError:
                wrong += 1
            else:  # a byte that nobody reads, such as a date
                np.testing.assert_array_equal(back.labels, found.labels)
                np.testing.assert_array_equal(back.differences, found.differences)
                assert back.settings == found.settings
    assert wrong > 0.9 * 2 * len(range(0, len(whole), 7))
