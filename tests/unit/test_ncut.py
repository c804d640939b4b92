"""Normalized cut: three routes against the formula, planted groups, stores, bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.reference.ncut import carried, cut, subspace_error

import vitreous as vt
from vitreous.kernels import ncut as kernel
from vitreous.lenses.align_cut import one_ahead
from vitreous.lenses.align_nodes import open_nodes


def planted(count: int, channels: int = 24, groups: int = 5, spread: float = 0.4, seed: int = 0):
    """Nodes around random directions, and which."""
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((groups, channels))
    which = generator.integers(0, groups, count)
    return (centres[which] + spread * generator.standard_normal((count, channels))).astype(np.float32), which


def halves(rows: torch.Tensor):
    return lambda: iter(rows.split(len(rows) // 2 + 1))


def test_the_exact_route_is_the_formula():
    rows, _ = planted(60)
    values, vectors = cut(rows, 7)
    found = vt.ncut(rows, 7)
    assert found.method == "exact"
    np.testing.assert_allclose(found.eigenvalues, values, atol=1e-6)
    np.testing.assert_allclose(np.abs((found.eigenvectors * vectors).sum(0)), 1, atol=1e-5)


def test_the_first_eigenvector_is_the_root_of_the_degrees_and_its_value_is_one():
    rows, _ = planted(300)
    for method in ("exact", "low_rank"):
        found = vt.ncut(rows, 5, method=method, n_sample=None if method == "exact" else 200)
        assert found.eigenvalues[0] == pytest.approx(1, abs=1e-4)
        assert (found.eigenvectors[:, 0] > 0).all()


def test_low_rank_with_all_nodes_as_landmarks_is_exact():
    rows = kernel.unit_rows(torch.from_numpy(planted(150)[0]))
    exact = kernel.exact_cut(rows, 8)
    low = kernel.low_rank_cut(halves(rows), rows, 8, 150)
    assert subspace_error(exact.vectors.numpy(), low.vectors.numpy()) < 1e-6
    torch.testing.assert_close(low.values, exact.values, atol=1e-5, rtol=0)


def test_low_rank_is_much_nearer_to_the_exact_answer_than_the_papers_route():
    rows, _ = planted(3000, channels=64, groups=8, spread=0.8)
    exact = vt.ncut(rows, 8, method="exact").eigenvectors
    low = vt.ncut(rows, 8, method="low_rank").eigenvectors
    theirs = vt.ncut(rows, 8, method="paper", n_sample=750, k=32).eigenvectors
    errors = subspace_error(exact, low), subspace_error(exact, theirs)
    assert errors[0] < 1e-2 and errors[0] < errors[1] / 20, errors
    np.testing.assert_allclose(low.T @ low, np.eye(8), atol=1e-3)


@pytest.mark.parametrize("channels", [24, 200])
def test_the_length_of_a_node_does_not_count_and_pieces_may_be_of_any_size(channels, monkeypatch):
    """Both ways into the low-rank route: straight to the landmarks, and through few directions."""
    rows = torch.from_numpy(planted(700, channels, spread=0.05)[0])
    landmarks = kernel.unit_rows(rows[::7])
    assert (kernel._few_directions(landmarks) is None) == (channels == 24)
    whole = kernel.low_rank_cut(lambda: iter([kernel.unit_rows(rows)]), landmarks, 4, 40)
    monkeypatch.setattr(kernel, "STEP", 33)
    scaled = rows * torch.linspace(0.1, 9, 700)[:, None]
    parts = kernel.low_rank_cut(lambda: iter(scaled.split([1, 499, 200])), landmarks, 4, 40)
    torch.testing.assert_close(parts.vectors, whole.vectors, atol=1e-4, rtol=0)
    torch.testing.assert_close(parts.place(scaled[:50]), whole.vectors[:50], atol=1e-4, rtol=0)


def test_eigenvectors_of_a_large_matrix_are_those_of_a_dense_solver(monkeypatch):
    rows = torch.from_numpy(planted(400, spread=0.7)[0])
    dense = kernel.exact_cut(rows, 6)
    monkeypatch.setattr(kernel, "SOLVED_DENSE", 100)
    iterated = kernel.exact_cut(rows, 6)
    torch.testing.assert_close(iterated.values, dense.values, atol=1e-8, rtol=0)
    torch.testing.assert_close(iterated.vectors, dense.vectors, atol=1e-5, rtol=0)


def test_the_papers_route_takes_another_affinity_by_its_own_order():
    rows = torch.from_numpy(planted(60)[0])
    falling = kernel.paper_cut(lambda: iter([rows]), rows[:30], 3, 5, lambda cosines: (1 - cosines).exp())
    rising = kernel.paper_cut(lambda: iter([rows]), rows[:30], 3, 5)
    same = kernel.paper_cut(lambda: iter([rows]), rows[:30], 3, 5, lambda cosines: (cosines - 1).exp())
    torch.testing.assert_close(rising.vectors, same.vectors)
    assert not torch.allclose(rising.vectors, falling.vectors, atol=1e-3)


def test_the_papers_route_is_equation_4():
    rows, _ = planted(80)
    sample = kernel.unit_rows(torch.from_numpy(rows[:30]))
    found = kernel.paper_cut(halves(kernel.unit_rows(torch.from_numpy(rows))), sample, 4, 6)
    own = kernel.exact_cut(sample, 4).vectors.numpy()
    for n in (0, 31, 79):
        np.testing.assert_allclose(found.vectors[n], carried(rows[n], rows[:30], own, 6), atol=1e-5)


@pytest.mark.parametrize("method", ["exact", "low_rank", "paper"])
def test_planted_groups_are_found_and_new_nodes_are_placed_beside_their_like(method):
    rows, which = planted(600, spread=0.3)
    found = vt.ncut(rows[:500], 5, method=method, n_sample=None if method == "exact" else 120, k=10)
    placed = found.transform(rows[500:])
    unit = found.eigenvectors / np.linalg.norm(found.eigenvectors, axis=1, keepdims=True)
    centres = np.stack([unit[which[:500] == g].mean(0) for g in range(5)])
    assert ((unit @ centres.T).argmax(1) == which[:500]).mean() > 0.99
    assert ((placed @ centres.T).argmax(1) == which[500:]).mean() > 0.99
    if method != "paper":
        np.testing.assert_allclose(found.transform(rows[:500]), found.eigenvectors, atol=1e-4)


def test_the_same_seed_gives_the_same_bytes_and_another_does_not():
    rows, _ = planted(5000)
    one, again = vt.ncut(rows, 4, seed=3), vt.ncut(rows, 4, seed=3)
    assert one.method == "low_rank" and one.eigenvectors.tobytes() == again.eigenvectors.tobytes()
    assert one.eigenvectors.tobytes() != vt.ncut(rows, 4, seed=4).eigenvectors.tobytes()


def test_few_directions_are_used_only_where_they_are_enough():
    generator = np.random.default_rng(0)
    low = generator.standard_normal((400, 12)) @ generator.standard_normal((12, 256))
    full = generator.standard_normal((400, 256))
    assert kernel._few_directions(kernel.unit_rows(torch.from_numpy(low))) is not None
    assert kernel._few_directions(kernel.unit_rows(torch.from_numpy(full))) is None


def test_identical_nodes_and_zero_nodes_do_no_harm():
    rows, _ = planted(40)
    rows[1], rows[2] = rows[0], 0
    found = vt.ncut(rows, 5)
    assert np.isfinite(found.eigenvectors).all()
    np.testing.assert_allclose(found.eigenvectors[0], found.eigenvectors[1], atol=1e-6)


@pytest.mark.parametrize("method", ["exact", "low_rank", "paper"])
def test_two_identical_nodes_have_one_place_by_every_route(method):
    rows, _ = planted(60)
    rows[1] = rows[0]
    found = vt.ncut(rows, 5, method=method, n_sample=None if method == "exact" else 30, k=7)
    assert found.eigenvectors.shape == (60, 5) and np.isfinite(found.eigenvectors).all()
    np.testing.assert_allclose(found.eigenvectors[0], found.eigenvectors[1], atol=1e-6)


def test_a_graph_of_too_low_a_rank_is_refused_instead_of_cut_short():
    rows = np.ones((40, 8), np.float32)
    with pytest.raises(vt.SettingsError, match=r"(?s)too alike.*5 eigenvectors, a graph of rank 1.*n_sample"):
        vt.ncut(rows, 5, method="low_rank", n_sample=20)
    assert vt.ncut(rows, 5).eigenvectors.shape == (40, 5)


def test_no_new_nodes_have_no_places_and_settings_say_how_many_neighbours_there_were():
    found = vt.ncut(planted(60)[0], 5, method="paper", n_sample=30, k=100)
    assert found.transform(np.zeros((0, 24))).shape == (0, 5) and found.settings["k"] == 30


def test_reading_ahead_changes_nothing_and_hands_on_errors():
    def parts():
        yield from (np.full(2, n) for n in range(3))
        raise vt.SettingsError("cannot be read")

    found = one_ahead(parts())
    assert [int(next(found)[0]) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(vt.SettingsError, match="cannot be read"):
        next(found)
    assert list(one_ahead(iter(()))) == []


def first_eight(features, model, layer):
    assert (model, layer) in {(m, f"blocks.{n}.attn.out") for m in ("text", "mae") for n in (0, 1)}
    return features[..., :8]


def test_nodes_of_stores_are_read_in_the_order_of_models_layers_pictures_and_patches(tmp_path):
    images = vt.scenes(6, size=64, seed=1)
    stores = {
        name: vt.record(
            vt.load(f"bundled:scenes-{name}"), images, ["blocks.0.attn.out", "blocks.1.attn.out"], out=tmp_path / name
        )
        for name in ("text", "mae")
    }
    nodes = open_nodes(stores)
    whole = np.concatenate([piece for piece in nodes.pieces(100)])
    expected = np.concatenate(
        [
            np.asarray(store[site], np.float32)[:, len(store.prefix) :].reshape(-1, nodes.channels)
            for store in stores.values()
            for site in store.sites
        ]
    )
    np.testing.assert_array_equal(whole, expected)
    places = np.array([5, 1000, 0, len(nodes) - 1, 5])
    np.testing.assert_array_equal(nodes.take(places), expected[places])
    found = vt.ncut(stores, 4, progress=False)
    assert found.of("mae", "blocks.1.attn.out").shape == (6, 64, 4)
    halved = vt.ncut(stores, 4, progress=False, read=first_eight)
    assert halved.settings["channels"] == 8
    with pytest.raises(vt.SettingsError, match=r"(?s)no such layer.*text blocks.0.attn.out"):
        found.of("text", "blocks.9.attn.out")
    with pytest.raises(vt.SettingsError, match="no such sites"):
        vt.ncut(stores, sites="blocks.*.mlp.out")


def test_a_store_is_never_read_whole(tmp_path, monkeypatch):
    from vitreous.store.lazy import SiteArray

    images = vt.scenes(20, size=64, seed=1)
    store = vt.record(vt.load("bundled:scenes-text"), images, ["blocks.0.attn.out"], out=tmp_path, progress=False)
    real, most = SiteArray.__getitem__, []

    def watched(self, key):
        found = real(self, key)
        most.append(len(found))
        return found

    monkeypatch.setattr(SiteArray, "__getitem__", watched)
    monkeypatch.setattr(SiteArray, "__array__", lambda *_, **__: pytest.fail("the whole array was asked for"))
    monkeypatch.setattr("vitreous.lenses.align_cut.PIECE", 4 * 64)
    assert len(vt.ncut({"text": store}, 3, method="low_rank", n_sample=20, progress=False)) == 20 * 64
    assert max(most) <= 20 and most.count(4) >= 5  # landmarks from any picture, then four pictures at a time


@pytest.mark.parametrize("method", ["exact", "low_rank", "paper"])
def test_a_saved_cut_is_the_same_and_places_new_nodes_alike(method, tmp_path):
    rows, _ = planted(200)
    found = vt.ncut(rows[:150].reshape(15, 10, -1), 3, method=method, n_sample=None if method == "exact" else 60)
    found.save(tmp_path)
    again = vt.Spectral.load(tmp_path)
    np.testing.assert_array_equal(again.of(), found.of())
    assert again.of().shape == (15, 10, 3) and again.settings == found.settings
    if method == "paper":
        with pytest.raises(vt.SettingsError, match=r"(?s)cannot place new nodes.*exact and low_rank"):
            again.transform(rows)
    else:
        np.testing.assert_allclose(again.transform(rows[150:]), found.transform(rows[150:]), atol=1e-6)
        own = vt.ncut(rows[:150], 3, affinity=lambda cosines: (2 * cosines - 2).exp())
        own.save(tmp_path)
        with pytest.raises(vt.SettingsError, match="affinity own"):
            vt.Spectral.load(tmp_path).transform(rows)


@pytest.mark.parametrize("name", ["placer.npz", "eigenvectors.npy", "spectral.json"])
def test_a_damaged_cut_is_refused(tmp_path, name):
    vt.ncut(planted(50)[0], 3).save(tmp_path)
    whole = (tmp_path / name).read_bytes()
    for data in (b"PK nothing", b"", whole[: len(whole) // 2], whole[:-30]):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(vt.SettingsError, match="not a saved cut"):
            vt.Spectral.load(tmp_path)
    (tmp_path / name).write_bytes(whole)
    np.save(tmp_path / "eigenvectors.npy", np.ones((9, 3), np.float32))
    with pytest.raises(vt.SettingsError, match="not a saved cut"):
        vt.Spectral.load(tmp_path)


def test_bad_input_is_refused_with_what_to_do():
    rows, _ = planted(30)
    for wrong, match in (
        ({"n_eig": 30}, "fewer eigenvectors than nodes"),
        ({"method": "magic"}, "unknown method"),
        ({"affinity": "rbf"}, "unknown affinity"),
        ({"method": "low_rank", "n_sample": 31, "n_eig": 3}, "n_sample lies between"),
        ({"method": "low_rank", "affinity": lambda c: 1 - c, "n_eig": 3}, r"(?s)no kernel.*paper"),
        ({"tokens": "some"}, "unknown choice of tokens"),
        ({"n_eig": 3.5}, "n_eig is a whole number"),
        ({"n_eig": 0}, r"(?s)n_eig is a whole number.*from 1 on"),
        ({"n_eig": 3, "n_sample": 31}, r"(?s)n_sample lies between.*4 to 30"),  # all pairs would be solved
        ({"n_eig": 3, "affinity": lambda c: float(c.mean())}, r"(?s)an affinity gives a tensor.*float"),
        ({"method": "paper", "n_eig": 3, "n_sample": 31}, r"(?s)n_sample lies between.*4 to 30"),
        ({"method": "paper", "n_eig": 3, "k": 0}, r"(?s)k is a whole number.*from 1 on"),
        ({"n_eig": 3, "seed": -1}, "seed is a whole number"),
        ({"n_eig": 3, "device": "abacus"}, r"(?s)no such device.*cpu"),
        ({"n_eig": 3, "affinity": lambda c: c}, r"(?s)a number from 0 on for every cosine.*smallest -0"),
        ({"n_eig": 3, "affinity": lambda c: c[:1]}, r"(?s)a number from 0 on for every cosine.*\(1, 30\)"),
        ({"n_eig": 3, "affinity": lambda c: 0 * c}, "leaves nodes without neighbours"),
    ):
        with pytest.raises(vt.SettingsError, match=match):
            vt.ncut(rows, **wrong)
    patches = rows.reshape(5, 6, 24)
    for read in (lambda f, *_: f[:, :2], lambda f, *_: f.mean(2), lambda f, *_: np.full(f.shape, "a"), lambda *_: None):
        with pytest.raises(vt.SettingsError, match=r"(?s)read= gives numbers.*for \(1, 6, 24\)"):
            vt.ncut(patches, 3, read=read)
    found = vt.ncut(rows, 3)
    with pytest.raises(vt.SettingsError, match=r"(?s)new nodes are not finite.*\(2, 24\)"):
        found.transform(np.full((2, 24), np.inf))
    rows[3, 0] = np.nan
    for method in ("exact", "low_rank"):
        with pytest.raises(vt.SettingsError, match=r"(?s)not finite.*row 3"):
            vt.ncut(rows, 3, method=method)
    for nothing in (np.array(["a", "b"]), rows[:0]):
        with pytest.raises(vt.SettingsError, match="features are numbers"):
            vt.ncut(nothing, 3)
    with pytest.raises(vt.SettingsError, match="other channels"):
        vt.ncut(planted(30)[0], 3).transform(np.zeros((2, 5)))
