"""What holds of segment, region and token scores for every label map."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from vitreous.evidence.itiou import image_itiou, token_classes
from vitreous.evidence.perturbation import deletion, insertion
from vitreous.evidence.regions import covering, match_boundaries
from vitreous.evidence.segments import over_dataset, per_image

FAST = {"repeats": 2}
shapes = st.tuples(st.integers(1, 6), st.integers(1, 6))


@st.composite
def labelled(draw, pictures: int = 2):
    """Segments and classes of a few pictures of one shape; the first pixel of each is labelled."""
    shape = draw(shapes)
    segments = [draw(arrays(np.int64, shape, elements=st.integers(-1, 4))) for _ in range(pictures)]
    truths = [draw(arrays(np.int64, shape, elements=st.sampled_from([0, 1, 2, 255]))) for _ in range(pictures)]
    for truth in truths:
        truth[0, 0] = 0
    return segments, truths


@settings(max_examples=60, deadline=None)
@given(labelled(), st.permutations(range(5)))
def test_names_of_segments_do_not_matter(given_, order):
    segments, truths = given_
    names = np.array([*order, -1])
    renamed = [names[part] for part in segments]
    for score in (per_image, over_dataset):
        before, after = (score(part, truths, classes=3) for part in (segments, renamed))
        assert before.accuracy(**FAST).value == after.accuracy(**FAST).value


@settings(max_examples=60, deadline=None)
@given(labelled())
def test_pairing_in_every_picture_is_never_worse_than_pairing_once(given_):
    segments, truths = given_
    each, once = per_image(segments, truths), over_dataset(segments, truths)
    assert each.pooled_accuracy(**FAST).value >= once.accuracy(**FAST).value - 1e-12
    assert 0 <= once.miou(**FAST).value <= 1 and 0 <= each.miou(**FAST).value <= 1
    assert each.pixels.sum() == once.pixels.sum() == sum((t != 255).sum() for t in truths)


@settings(max_examples=60, deadline=None)
@given(labelled())
def test_the_truth_itself_is_perfect(given_):
    _, truths = given_
    for score in (per_image, over_dataset):
        assert score(truths, truths).miou(**FAST).value == 1


@settings(max_examples=60, deadline=None)
@given(labelled(), st.floats(0, 1))
def test_regions_match_themselves_and_more_with_more_tolerance(given_, tolerance):
    (ours, theirs), _ = given_
    assert covering(ours, [ours]) == 1
    same = match_boundaries(ours, [ours], tolerance=0)
    assert same.right == same.ours == same.found == same.theirs
    strict, loose = (match_boundaries(ours, [theirs], tolerance=t) for t in (tolerance / 2, tolerance))
    assert strict.found <= loose.found <= min(loose.ours, loose.theirs)
    back = match_boundaries(theirs, [ours], tolerance=tolerance)
    assert back.found == loose.found  # a matching has two ends


@settings(max_examples=40, deadline=None)
@given(labelled(1), st.integers(0, 2**32 - 1))
def test_token_scores_are_shares_and_do_not_depend_on_the_order_of_thresholds(given_, seed):
    _, (truth,) = given_
    maps = np.random.default_rng(seed).random((truth.size, *truth.shape))
    classes = token_classes(truth, truth.shape)
    taus = np.array([0.1, 0.9, 0.4])
    scores, chance, _ = image_itiou(maps, truth, classes, thresholds=taus)
    turned, _, _ = image_itiou(maps, truth, classes, thresholds=taus[::-1])
    np.testing.assert_array_equal(scores, turned[::-1])
    assert ((scores >= 0) & (scores <= 1)).all() and 0 < chance <= 1


@settings(max_examples=30, deadline=None)
@given(arrays(np.float64, (1, 2, 3), elements=st.floats(0, 1, width=16)), st.integers(0, 99))
def test_taking_away_and_putting_back_meet_at_both_ends(values, seed):
    x = np.random.default_rng(seed).random((1, 1, 4, 6)).astype(np.float32)

    def score(pictures, which):
        return np.asarray(pictures, np.float64).sum((1, 2, 3))

    gone, back = (f(score, x, values, seed=seed, progress=False).values[0] for f in (deletion, insertion))
    np.testing.assert_allclose(gone + back, x.sum(dtype=np.float64), rtol=1e-5)
    assert (np.diff(gone) <= 1e-6).all()
