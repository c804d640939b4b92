"""Kinds of places beside the object that tell a class, and that the model listens to.

A cue in one place, such as a stamp, is carried everywhere by attention: in late layers no unit and no direction stands
for it. In the middle of the model it still is where it is in the picture, and places can be compared.

    1  pictures to look in: the object is painted over, and tokens of places beside it are taken in the middle
    2  a place tells a class if, among the other pictures that have a place most like it, more are of the class than
       labels dealt to the pictures at random would give (`kernels/nearest_pictures.py`); no model is asked so far
    3  for each class one direction and one threshold find such places again, and neither others nor the object
    4  other pictures: the object painted over, the places that are found are put at the mean of their position, and the
       model runs on; what the class loses is the effect, and labels are exchanged for the test, as for any part

Tests come one after the other, each asked only if the one before raised an alarm: the model as a whole (`overall.py`),
the places of all classes together, those of each class. None of the pictures was looked in. So the chance of any alarm
is at most alpha where nothing beside the object goes with the label.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from vitreous.auditing.effects import log_odds
from vitreous.auditing.heads import Given, Head, check_alpha, check_labels, check_subject, open_head
from vitreous.auditing.objects import Masks, grown_masks
from vitreous.auditing.overall import Overall, overall
from vitreous.auditing.places_off import Places, PlacesOff, fit, prefix_of, put, share_of, tokens_at
from vitreous.auditing.switch import BeforeAfter, logits_of
from vitreous.checks import whole
from vitreous.errors import ImageError, SettingsError
from vitreous.evidence.suspicion import corrected, difference, exchange_test
from vitreous.finding import Finding, columns
from vitreous.images import ImageSet
from vitreous.kernels.nearest_pictures import nearest_pictures
from vitreous.models.subject import Subject

DEALT, SHARE = 50, 0.99  # times that labels are dealt, and the share of places that then tell less
LEAST = 10  # places that a direction is learned from
FREE = 0.5  # of a patch: with less of the object on it, it lies beside the object
PENALTY = 0.01  # C of the logistic regression


@dataclass(frozen=True)
class PlaceRow:
    """Places that tell the class `target`.

    suspicion  log-odds of the class that they add to pictures of the class and not to others, the object painted over
    p, corrected, alarm   as of parts
    learned    how many places the direction was learned from
    fires      share of the places beside the object that are found, in pictures of the class; `elsewhere` in others
    inside     share of the places on the object that are found, in the pictures as they are
    """

    target: int
    suspicion: float
    p: float
    corrected: float
    alarm: bool
    learned: int
    fires: float
    elsewhere: float
    inside: float


@dataclass(frozen=True, eq=False)
class PlacesFinding(Finding):
    """`rows`, most suspicious first; `found` finds their places.

    `maps` (row, picture, place) are scores in the pictures as they are, found above zero. `overall` is the model's own
    test, `together` that of all places at once (never an alarm where `overall` is none), and `left` what is left of
    `overall.suspicion` without them.
    """

    site: str
    classes: tuple[str, ...]
    rows: tuple[PlaceRow, ...]
    found: Places
    maps: np.ndarray
    labels: np.ndarray
    ids: tuple[str, ...]
    accuracy: float
    overall: Overall
    together: Overall
    left: float
    controls: Mapping[str, float]
    settings: Mapping[str, Any]
    head: Head = field(repr=False)
    subject: Subject = field(repr=False)
    images: ImageSet = field(repr=False)

    def __repr__(self) -> str:
        said = "alarm" if self.alarm else "no alarm"
        return f"PlacesFinding({self.site!r}: {said}, p {self.together.p:.4f}; whole model p {self.overall.p:.4f})"

    @property
    def alarm(self) -> bool:
        """Whether the model as a whole, and these places together, speak for the label."""
        return self.together.alarm

    @property
    def alarms(self) -> tuple[PlaceRow, ...]:
        return tuple(row for row in self.rows if row.alarm)

    def facts(self) -> dict[str, Any]:
        found = {"site": self.site, "alarm": self.alarm, "chance": self.together.p, "accuracy": self.accuracy}
        return found | {"chance of the whole model": self.overall.p, "left": self.left}

    def columns_of_rows(self) -> dict[str, Any]:
        """One row a class, most suspicious first."""
        return columns([asdict(row) | {"target": self.classes[row.target]} for row in self.rows])

    @cached_property
    def effect(self) -> BeforeAfter | None:
        """What switching off does to the pictures that were audited; None without an alarm."""
        if not self.alarm:
            return None
        return self.switch_off().before_after(self.subject, self.images, head=self.head)

    def switch_off(self, targets: Sequence[int] | None = None) -> PlacesOff:
        """A patch that puts places at the mean of their position: of these classes, or after an alarm of all."""
        known = [row.target for row in self.rows]
        chosen = list(targets) if targets is not None else known if self.alarm else []
        if not chosen:
            raise SettingsError(
                "nothing to switch off: no place raised an alarm", remedy="name classes by their number"
            )
        if wrong := [c for c in chosen if c not in known]:
            raise SettingsError("no places of this class were found", given=wrong[:5], accepted=[str(c) for c in known])
        names = tuple(self.classes[c] for c in chosen)
        return PlacesOff(self.subject.fingerprint, names, self.found.some([known.index(c) for c in chosen]))


def audit_places(
    subject: Subject,
    images: ImageSet,
    site: str | None = None,
    *,
    masks: Masks,
    look: ImageSet | None = None,
    head: Given = None,
    train: ImageSet | None = None,
    targets: Sequence[int] | None = None,
    rim: int | None = None,
    neighbours: int = 20,
    repeats: int = 10_000,
    alpha: float = 0.05,
    correction: str = "fdr_bh",
    seed: int = 0,
    progress: bool = True,
) -> PlacesFinding:
    """Looks for kinds of places beside the object that tell a class, and tests whether the model listens to them.

    `look` are the pictures that places are learned from, with their own masks: those that the model was trained on will
    do, and show the shortcut best. Without it half of `images` are taken, and the other half is tested. `site` is a
    block's residual stream, by default in the middle. All else is as in `vt.audit`.

    >>> finding = vt.audit_places(subject, held_out, masks="masks", look=training)
    >>> finding.overall, finding.alarms, finding.switch_off().before_after(subject, fair, head=finding.head)
    """
    check_subject(subject)
    check_alpha(alpha)
    whole(1, neighbours=neighbours, repeats=repeats)
    whole(0, seed=seed)
    if masks is None:
        raise SettingsError("places beside the object are found with masks", given=None, accepted='masks="masks"')
    if look is not None and not (isinstance(masks, str) or callable(masks)):
        raise SettingsError("two sets have no masks in common", given=type(masks).__name__, accepted="a name, a model")
    name = _stream(subject, site)
    read, seen = open_head(subject, head, images, train, targets, seed)
    y, names = check_labels(seen)
    where = grown_masks(subject, images, seen, masks, rim, progress)
    assert where is not None
    if look is None:
        first, second = _halves(y, seed)
        look, seen, y, shown, where = seen[first], seen[second], y[second], where[first], where[second]
    else:
        shown = grown_masks(subject, look, look, masks, rim, progress)
    told, known = check_labels(look)
    if known != names:
        raise ImageError("places are looked for in other classes", given=known, accepted=names)
    places, learned = learn(subject, name, look, shown, told, neighbours, seed)
    found = _tested(subject, read, places, seen, where, y, learned, (repeats, alpha, correction, seed))
    said: dict[str, Any] = {"rim": rim, "neighbours": neighbours, "repeats": repeats, "alpha": alpha, "seed": seed}
    said |= {"masks": True, "correction": correction, "head": read.kind, "pictures": len(seen), "looked in": len(look)}
    said |= {"model": subject.name, "data": seen.fingerprint}
    return replace(found, settings=said)


def _stream(subject: Subject, site: str | None) -> str:
    """One site of the residual stream, the middle of the model by default."""
    names = subject.resolve(f"blocks.{max(subject.depth // 2, 1) - 1}.resid.out" if site is None else site)
    if len(names) > 1 or not re.fullmatch(r"blocks\.\d+\.resid\.(in|mid|out)", names[0]):
        raise SettingsError(
            "places are compared at one site of the residual stream", given=site, accepted="such as blocks.3.resid.out"
        )
    return names[0]


def _halves(labels: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Each class in two halves."""
    rng = np.random.default_rng((seed, 11))
    parts: tuple[list[int], list[int]] = ([], [])
    for c in np.unique(labels):
        at = rng.permutation(np.flatnonzero(labels == c))
        parts[0].extend(at[: len(at) // 2].tolist())
        parts[1].extend(at[len(at) // 2 :].tolist())
    return np.sort(parts[0]), np.sort(parts[1])


# -- learning


def learn(
    subject: Subject,
    site: str,
    images: ImageSet,
    masks: np.ndarray | None,
    labels: np.ndarray,
    neighbours: int,
    seed: int,
) -> tuple[Places, dict[int, int]]:
    """The places of each class that has some, and how many each was learned from."""
    assert masks is not None
    tokens, prefix = tokens_at(subject, site, images, masks), prefix_of(subject, site)
    levels = tokens.mean(0)
    beside = share_of(masks, tokens.shape[1], subject) < FREE
    tokens = tokens - levels
    picture = np.nonzero(beside)[0]
    if len(np.unique(picture)) <= neighbours:
        raise ImageError(
            "too few pictures to look for places in",
            given=len(np.unique(picture)),
            accepted=f"more than {neighbours}, the neighbours that each place is compared with",
            remedy="more pictures, or fewer neighbours=; half of the pictures are looked in if there are no others",
        )
    tell = telling(nearest_pictures(tokens[beside], picture, neighbours), labels, seed)
    objects = (tokens_at(subject, site, images) - levels)[~beside]
    fitted = {c: fit(tokens[beside], mine, objects, PENALTY) for c, mine in tell.items() if mine.sum() >= LEAST}
    weight = np.stack([w for w, _ in fitted.values()]) if fitted else np.zeros((0, tokens.shape[-1]), np.float32)
    bias = np.array([b for _, b in fitted.values()], np.float32)
    classes = np.array(list(fitted), np.int64)
    return Places(site, prefix, classes, weight, bias, levels), {c: int(tell[c].sum()) for c in fitted}


def telling(near: np.ndarray, labels: np.ndarray, seed: int) -> dict[int, np.ndarray]:
    """near (place, neighbour) numbers of pictures -> class -> bool (place,): whether it tells the class.

    More neighbours are of the class than of nearly all places have when labels are dealt at random.
    """
    rng = np.random.default_rng((seed, 12))
    dealt = [rng.permutation(labels) for _ in range(DEALT)]
    found = {}
    for c in np.unique(labels).tolist():
        by_luck = np.concatenate([(deal[near] == c).sum(1) for deal in dealt])
        found[c] = (labels[near] == c).sum(1) > np.quantile(by_luck, SHARE)
    return found


# -- testing


def _tested(
    subject: Subject,
    head: Head,
    places: Places,
    images: ImageSet,
    masks: np.ndarray,
    labels: np.ndarray,
    learned: Mapping[int, int],
    asked: tuple[int, float, str, int],
) -> PlacesFinding:
    repeats, alpha, correction, seed = asked

    def odds(some: Places | None) -> np.ndarray:
        with put(subject, some):
            return log_odds(torch.from_numpy(logits_of(subject, head, images, masks))).numpy()

    before = odds(None)
    after = odds(places) if len(places) else before
    each = [(before - odds(places.some([k])))[:, c] for k, c in enumerate(places.classes)]
    whole = overall(before, labels, repeats=repeats, alpha=alpha, seed=seed)
    together = overall(before - after, labels, repeats=repeats, alpha=alpha if whole.alarm else 0.0, seed=seed)
    dealt = np.random.default_rng((seed, 9)).permutation(labels)
    lots = [overall(odds, dealt, repeats=repeats, alpha=alpha, seed=seed).alarm for odds in (before, before - after)]
    tests = _tests(each, places.classes, labels, repeats, correction, seed)
    beside = share_of(masks, len(places.levels), subject) < FREE
    painted = places.scores(tokens_at(subject, places.site, images, masks)) > 0
    maps = places.scores(tokens_at(subject, places.site, images))
    order = np.argsort([-size for size, _, _ in tests], kind="stable")
    rows = []
    for k in order.tolist():
        c, (size, p, safe) = int(places.classes[k]), tests[k]
        mine = (labels == c)[:, None]
        shares = [_share(painted[k], beside & mine), _share(painted[k], beside & ~mine), _share(maps[k] > 0, ~beside)]
        alarm = together.alarm and bool(safe <= alpha and size > 0)
        rows.append(PlaceRow(c, size, p, safe, alarm, learned[c], *shares))
    places, maps = places.some(order), maps[order]
    logits = logits_of(subject, head, images)
    return PlacesFinding(
        site=places.site,
        classes=head.names,
        rows=tuple(rows),
        found=places,
        maps=maps,
        labels=labels,
        ids=images.ids,
        accuracy=float((logits.argmax(1) == labels).mean()),
        overall=whole,
        together=together,
        left=float(difference(after[:, [whole.target]], labels == whole.target)[0]),
        controls={"alarms with shuffled labels": float(all(lots))},
        settings={},
        head=head,
        subject=subject,
        images=images,
    )


def _tests(
    effects: list[np.ndarray], classes: np.ndarray, labels: np.ndarray, repeats: int, correction: str, seed: int
) -> list[tuple[float, float, float]]:
    """Suspicion, p and corrected p of the places of each class; effects (picture,) of each on its own class."""
    if not effects:
        return []
    tests = [
        exchange_test(e[:, None], labels == c, repeats=repeats, seed=seed)
        for e, c in zip(effects, classes, strict=True)
    ]
    p = np.array([p[0] for _, p in tests])
    return [(float(t[0][0]), float(a), float(b)) for t, a, b in zip(tests, p, corrected(p, correction), strict=True)]


def _share(hits: np.ndarray, among: np.ndarray) -> float:
    return float(hits[among].mean()) if among.any() else float("nan")
