"""Responses on the surface of a brain; without nilearn a message with the line that installs it."""

from __future__ import annotations

import builtins

import numpy as np
import pytest

import vitreous as vt
from vitreous.views.brain import FSAVERAGE5, brain_pictures, surface_values


def test_responses_lie_where_their_vertices_are():
    vertices = np.array([[0, 3], [1, 3], [1, 3], [0, FSAVERAGE5], [0, 7]])
    found = surface_values(np.array([1.0, 2.0, 4.0, 9.0, np.nan]), vertices)
    assert found.shape == (2, FSAVERAGE5)
    assert found[0, 3] == 1 and found[1, 3] == 3 and np.isfinite(found).sum() == 2


def test_without_nilearn_it_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.startswith("nilearn"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(vt.SettingsError, match=r'(?s)need nilearn.*pip install "vitreous\[brain\]".*region_bars'):
        brain_pictures(np.ones(1), np.zeros((1, 2), int))


def test_vertices_that_do_not_fit_are_refused():
    with pytest.raises(vt.SettingsError, match="a value and a vertex"):
        brain_pictures(np.ones(3), np.zeros((2, 2), int))
    for wrong in (np.zeros((2, 2), int), np.full((3, 2), 2), np.zeros((3, 2))):
        with pytest.raises(vt.SettingsError, match="vertices are a hemisphere"):
            vt.Responses(np.eye(3), vertices=wrong)
    kept = vt.Responses(np.eye(3), vertices=np.array([[0, 1], [1, 2], [1, 163_841]]))
    np.testing.assert_array_equal(kept[:2].vertices, kept.vertices)


@pytest.mark.slow
def test_the_surface_is_inside_the_package_and_coarse_vertices_come_first():
    nilearn = pytest.importorskip("nilearn")
    from nilearn import datasets, surface

    mesh = datasets.fetch_surf_fsaverage("fsaverage5")
    assert str(mesh["infl_left"]).startswith(str(nilearn.__path__[0]))
    faces = surface.load_surf_mesh(mesh["sphere_left"]).faces
    degree = np.bincount(faces.ravel())
    assert len(degree) == FSAVERAGE5 and (degree[:12] == 5).all() and (degree[12:] == 6).all()
    vertices = np.stack([np.repeat([0, 1], FSAVERAGE5), np.tile(np.arange(FSAVERAGE5), 2)], 1)
    panel = brain_pictures(np.repeat([1.0, -1.0], FSAVERAGE5), vertices, views=("lateral",))
    left, right = (tile.image.astype(int) for tile in panel.tiles)
    assert (left[..., 0] - left[..., 2]).max() > 50 and (right[..., 2] - right[..., 0]).max() > 50
    assert (left[..., 2] - left[..., 0]).max() < 10  # nothing blue where all is above 0
