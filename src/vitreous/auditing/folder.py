"""The folder of an audit: its findings, and how the model and the pictures are opened again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vitreous.auditing.finding import FILE, AuditFinding
from vitreous.auditing.sweep import AuditSweep
from vitreous.datasets import LAYOUTS
from vitreous.datasets.spoken import spoken_pictures
from vitreous.errors import StoreError
from vitreous.examination.files import read_json, write_json
from vitreous.images import ImageSet
from vitreous.models.subject import Subject

ABOUT, FORMAT, VERSION = "audit.json", "vitreous audit folder", 1
AGAIN = "run the same `vitreous audit` again"


@dataclass(frozen=True)
class AuditAbout:
    """What `audit.json` says. `off` are the parts of the patch, (site, id); `alpha` was shared by all `sites`."""

    model: str
    weights: str | None
    settings: Mapping[str, Any]
    data: str
    split: str | None
    seed: int
    alpha: float
    sites: tuple[str, ...]
    off: tuple[tuple[str, int], ...]

    def folder(self, out: Path, site: str) -> Path:
        return folder_of(out, self.sites, site)

    def save(self, out: Path) -> None:
        write_json(out / ABOUT, {"format": FORMAT, "version": VERSION, **asdict(self)})

    @classmethod
    def load(cls, out: str | Path) -> AuditAbout:
        found = read_json(Path(out) / ABOUT, "audit", AGAIN)
        try:
            if (found.pop("format"), found.pop("version")) != (FORMAT, VERSION):
                raise KeyError(FORMAT)
            off = tuple((str(site), int(number)) for site, number in found.pop("off"))
            said = cls(**found | {"sites": tuple(map(str, found["sites"])), "off": off})
            if not said.sites or any(site.startswith(".") or set(site) & set("/\\") for site in said.sites):
                raise ValueError("sites")
        except (LookupError, TypeError, ValueError, AttributeError):
            raise StoreError("not an audit of this version", given=ABOUT, remedy=AGAIN) from None
        return said

    def subject(self, device: str = "auto") -> Subject:
        from vitreous.subjects import load

        return load(self.model, weights=self.weights, device=device, **self.settings)

    def pictures(self, subject: Subject) -> ImageSet:
        """All pictures that were named; some of them may have trained a probe."""
        size = min(subject.preprocess.size) if subject.preprocess else 64
        return spoken_pictures(self.data, size, self.split, "skip", self.seed)


def folder_of(out: Path, sites: Sequence[str], site: str) -> Path:
    """Where the finding of a site lies: in the folder itself if there is one site."""
    return out if len(sites) == 1 else out / site


def lasting(data: str) -> str:
    """The same pictures said from any folder: paths become whole ones."""
    kind, colon, rest = data.partition(":")
    if colon and kind == "scenes":
        return data
    return f"{kind}:{Path(rest).resolve()}" if colon and kind in LAYOUTS else str(Path(data).resolve())


def read_audit(out: str | Path) -> AuditSweep:
    """The findings of a folder without the model and the pictures."""
    about = AuditAbout.load(out)
    return AuditSweep(tuple(AuditFinding.load(about.folder(Path(out), site)) for site in about.sites))


def open_audit(out: str | Path, subject: Subject) -> AuditSweep:
    """The findings with the model and the pictures, so that patches can be measured; other pictures are refused."""
    about = AuditAbout.load(out)
    every = about.pictures(subject)
    ids = AuditFinding.load(about.folder(Path(out), about.sites[0])).ids
    if missing := sorted(set(ids) - set(every.ids)):
        raise StoreError("pictures that were audited are gone", given=missing[:3], remedy=AGAIN)
    images = every[list(ids)]
    found = [AuditFinding.load(about.folder(Path(out), site), subject=subject, images=images) for site in about.sites]
    if any(one.settings["data"] != images.fingerprint or one.ids != images.ids for one in found):
        raise StoreError("the pictures are not those that were audited", given=FILE, remedy=AGAIN)
    return AuditSweep(tuple(found))
