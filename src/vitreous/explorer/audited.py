"""An audit with its model alive: what is suspicious, and what the model decides when some of it is switched off."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.auditing.folder import ABOUT, AuditAbout, open_audit, read_audit
from vitreous.auditing.switch import BeforeAfter, logits_of
from vitreous.errors import SettingsError, VitreousError
from vitreous.explorer.album import KEPT_SIDE, NotThereError, seen_box
from vitreous.explorer.answers import as_json, eight_bits, sized, text_of
from vitreous.explorer.workers import Flight, Worker
from vitreous.views.audit_cards import direction, part_maps
from vitreous.views.audit_page import MEANS, SHOULD, answer, limits_of, of_whole

if TYPE_CHECKING:
    from vitreous.auditing.finding import AuditFinding, AuditRow
    from vitreous.auditing.sweep import AuditSweep
    from vitreous.auditing.switch import SwitchOff
    from vitreous.explorer.cache import Cache
    from vitreous.models.subject import Subject

FOLDER = "audit"  # of a run, where an audit is looked for
LISTED = 100  # first rows that a page is sent; alarms and what the patch switches off are sent all
TILES = 6  # pictures of a part
SHOWN = 400  # changed decisions that a page is sent

Which = Sequence[tuple[str, int]]  # parts, each by its site and its id there


def audit_folder(run: Path, given: str | Path | None) -> Path | None:
    """The folder that was asked for, or the one in the run; None where there is neither."""
    if given is not None:
        return Path(given)
    return run / FOLDER if (run / FOLDER / ABOUT).is_file() else None


class Audited:
    """The audited model has a thread of its own, and is patched only in there."""

    def __init__(self, folder: Path, cache: Cache, device: str = "auto") -> None:
        self.folder = folder
        self.worker = Worker(lambda: AuditAbout.load(folder).subject(device), cache)
        self._live: AuditSweep | None = None
        self._before: np.ndarray | None = None
        self._seen, self._all = 0, 0  # pictures that the latest switch has decided, and that it has to

    def close(self) -> None:
        self.worker.close()

    def missing(self) -> str | None:
        """Why the audit cannot be read; None if it can."""
        try:
            len(self.sweep.rows)
        except VitreousError as error:
            return str(error)
        return None

    @cached_property
    def sweep(self) -> AuditSweep:
        """The findings as they lie in the folder, without the model."""
        return read_audit(self.folder)

    # -- what was found

    def about(self) -> bytes:
        said, sweep = AuditAbout.load(self.folder), self.sweep
        first = sweep.findings[0]
        off = set(said.off)
        rows = enumerate(sweep.rows)
        listed = [(site, row) for k, (site, row) in rows if k < LISTED or row.alarm or (site, row.id) in off]
        whole = of_whole(sweep.overall, first.classes, len(sweep.alarms))
        return as_json(
            {
                "model": str(first.settings["model"]),
                "data": "/".join(said.data.split("/")[-2:]),
                "sites": list(said.sites),
                "pictures": len(first.labels),
                "accuracy": first.accuracy,
                "classes": list(first.classes),
                "basis": first.basis,
                "answer": f"{answer(sweep)} {whole}".strip(),
                "means": MEANS[first.basis],
                "limits": list(limits_of(sweep)),
                "groups": "given" if first.groups is not None else "proposed",
                "controls": [control for finding in sweep.findings for control in _controls(finding)],
                "off": [{"site": site, "id": number} for site, number in said.off],
                "parts": len(sweep.rows),
                "alarms": len(sweep.alarms),
                "rows": [_row(site, row) for site, row in listed],
            }
        )

    def patch(self, which: Which) -> SwitchOff:
        """Refused unless all these parts were tested."""
        return self.sweep.patch(which)

    # -- the model at work

    def ready(self) -> Flight:
        """The findings with the model and the pictures."""
        return self.worker.ask(("audit", "ready"), lambda subject: (self._opened(subject), 0))

    def part(self, site: str, number: int) -> Flight:
        """The pictures where a part speaks loudest, and where in them it answers."""
        self.patch([(site, number)])

        def work(subject: Subject) -> tuple[bytes, int]:
            return sized(_part_answer(self._opened(subject)[site], number))

        return self.worker.ask(("audit", "part", site, number), work)

    def switch(self, which: Which) -> Flight:
        """Decisions before and after; with no parts, as the model is."""
        chosen = tuple(sorted(which))
        patch = self.patch(chosen) if chosen else None

        def work(subject: Subject) -> tuple[bytes, int]:
            sweep = self._opened(subject)
            first = sweep.findings[0]
            if first.head is None or first.images is None:
                raise SettingsError("the head of this audit was given as a function and is not in the folder")
            self._seen, self._all = 0, len(first.images) * ((self._before is None) + (patch is not None))
            if self._before is None:
                self._before = logits_of(subject, first.head, first.images, seen=self._count)
            after = self._before
            if patch is not None:
                with patch.on(subject):
                    after = logits_of(subject, first.head, first.images, seen=self._count)
            return sized(_switch_answer(sweep, self._before, after, len(chosen)))

        return self.worker.ask(("audit", "switch", chosen), work)

    def progress(self) -> dict[str, Any]:
        """How far the switch is that is being worked on, or was last; answered while the model works."""
        return {"loaded": self.worker.loaded, "done": self._seen, "total": self._all}

    def _count(self, pictures: int) -> None:
        self._seen += pictures

    def _opened(self, subject: Subject) -> AuditSweep:
        """Only called by the model's own thread."""
        if self._live is None:
            self._live = open_audit(self.folder, subject)
        return self._live


def picture_png(sweep: AuditSweep, number: int) -> bytes:
    """An audited picture, cut as the model sees it."""
    images, subject = sweep.findings[0].images, sweep.findings[0].subject
    assert images is not None and subject is not None and subject.preprocess is not None
    if not number < len(images):
        raise NotThereError("no such picture", given=number, accepted=f"0 to {len(images) - 1}")
    image = images[number].image
    image = image.crop(seen_box(subject.preprocess, image))
    image.thumbnail((KEPT_SIDE, KEPT_SIDE))
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=1)
    return file.getvalue()


def _row(site: str, row: AuditRow) -> dict[str, Any]:
    said = {name: _plain(value) for name, value in asdict(row).items()}
    return said | {"site": site, "name": row.name, "kind": row.kind}


def _controls(finding: AuditFinding) -> list[dict[str, Any]]:
    return [
        {"site": finding.site, "name": name, "value": _plain(value), "should": SHOULD.get(name, "")}
        for name, value in finding.controls.items()
    ]


def _part_answer(finding: AuditFinding, number: int) -> bytes:
    from torch import from_numpy

    subject, images = finding.subject, finding.images
    assert subject is not None and images is not None and subject.preprocess is not None
    at = next(k for k, row in enumerate(finding.rows) if row.id == number)
    some = np.argsort(-finding.effects[:, at], kind="stable")[:TILES]
    x = from_numpy(np.stack([np.asarray(subject.preprocess(images[k].image)) for k in some.tolist()]))
    sign = direction(finding, at)
    heat = part_maps(finding, at, x) * sign
    tiles = [
        {
            "picture": picture,
            "name": finding.ids[picture],
            "true": int(finding.labels[picture]),
            "adds": _plain(float(finding.effects[picture, at])),
            "heat": text_of(eight_bits(one, float(heat.max()))),
        }
        for picture, one in zip(some.tolist(), heat, strict=True)
    ]
    return as_json({"rows": heat.shape[1], "columns": heat.shape[2], "strong": sign > 0, "tiles": tiles})


def _switch_answer(sweep: AuditSweep, before: np.ndarray, after: np.ndarray, parts: int) -> bytes:
    first, groups = sweep.findings[0], sweep.groups
    if not np.isfinite(after).all():
        raise SettingsError("with these parts switched off the model's output is not finite", remedy="fewer parts")
    table = BeforeAfter.of(before, after, first.labels, first.classes, groups)
    was, now = before.argmax(1), after.argmax(1)
    changed = np.flatnonzero(was != now)
    decisions = [
        {"picture": k, "name": first.ids[k], "true": int(first.labels[k]), "group": str(groups[k])}
        | {"before": int(was[k]), "after": int(now[k])}
        for k in changed[:SHOWN].tolist()
    ]
    rows = [{"what": what, "pictures": n, "before": old, "after": new} for what, n, old, new in table.rows]
    said = {"parts": parts, "rows": rows, "pictures": table.pictures, "changed": table.changed}
    said |= {"mended": table.mended, "broken": table.broken, "shift": table.shift, "decisions": decisions}
    return as_json(said)


def _plain(value: Any) -> Any:
    """JSON has no NaN: what was not measured is null."""
    return None if isinstance(value, float) and not np.isfinite(value) else value
