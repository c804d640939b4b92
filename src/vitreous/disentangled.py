"""A model together with its sub-units, in one folder: Hugging Face's `save_pretrained` and `from_pretrained`.

The folder of a Hugging Face model stays one: `AutoModel.from_pretrained(folder)` opens it as before, for splitting
changes no weight. What is ours lies beside it: `vitreous.json` and a folder `subunits/` for every layer that was split.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.errors import ModelError, SettingsError, StoreError
from vitreous.lenses.disentangle_finding import Disentanglement
from vitreous.models.subject import Subject
from vitreous.preprocess import Preprocess
from vitreous.provenance import json_bytes, replace_file
from vitreous.subjects import load, wrap

if TYPE_CHECKING:
    from torch import nn

    from vitreous.subunits.applied import AppliedSubunits

ABOUT, WEIGHTS, FOLDER = "vitreous.json", "model.safetensors", "subunits"
FORMAT, VERSION = "vitreous disentangled model", 1


@dataclass(frozen=True, eq=False)
class DisentangledModel:
    """A subject with sub-units in one layer or several; outputs are those of the subject, bit for bit.

    >>> vt.DisentangledModel(subject, [finding]).save_pretrained("my-model")
    >>> model = vt.DisentangledModel.from_pretrained("my-model")
    >>> with model.split("blocks.-1.mlp.out").look([3]) as seen:
    ...     model(x)
    """

    subject: Subject
    findings: tuple[Disentanglement, ...]

    def __init__(self, subject: Subject, findings: Sequence[Disentanglement]) -> None:
        object.__setattr__(self, "subject", subject)
        object.__setattr__(self, "findings", tuple(findings))
        sites = [finding.site for finding in self.findings]
        if len(set(sites)) < len(sites):
            raise SettingsError("a layer has one set of sub-units", given=sites)
        for finding in self.findings:  # refuses sub-units of other weights
            self._at_hand(finding)

    def __call__(self, x: Any) -> Any:
        return self.subject(x)

    def __repr__(self) -> str:
        return f"DisentangledModel({self.subject.name}: {', '.join(f.site for f in self.findings)})"

    def split(self, site: str) -> AppliedSubunits:
        """The sub-units at one site, to be looked at or edited."""
        (wanted,) = self.subject.resolve(site)
        for finding in self.findings:
            if finding.site == wanted:
                return self._at_hand(finding)
        raise ModelError("this site was not split", given=site, accepted=[finding.site for finding in self.findings])

    def _at_hand(self, finding: Disentanglement) -> AppliedSubunits:
        from vitreous.subunits.applied import at_hand

        return at_hand(finding, self.subject)

    def save_pretrained(self, folder: str | Path) -> Path:
        """Model, preprocessing and sub-units; a Hugging Face model in its own layout, others as safetensors."""
        from safetensors.torch import save_model

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        root: Any = self.subject.root
        if self.subject.family.source == "hf":
            root.save_pretrained(folder)
            if self.subject.tokenizer is not None:
                self.subject.tokenizer.save_pretrained(folder)
        else:
            save_model(root, str(folder / WEIGHTS))
        for number, finding in enumerate(self.findings):
            finding.save(folder / FOLDER / str(number))
        steps = self.subject.preprocess
        about = {"format": FORMAT, "version": VERSION, "model": self.subject.name, "findings": len(self.findings)}
        about |= {"source": self.subject.family.source, "preprocess": None if steps is None else asdict(steps)}
        replace_file(folder / ABOUT, json_bytes(about))  # last: a folder that has it is whole
        return folder

    @classmethod
    def from_pretrained(cls, folder: str | Path, *, module: nn.Module | None = None) -> DisentangledModel:
        """What `save_pretrained` wrote. A class of your own needs its `module`; the weights come from the folder."""
        folder = Path(folder)
        try:
            about = json.loads((folder / ABOUT).read_bytes())
            if (about["format"], about["version"]) != (FORMAT, VERSION):
                raise KeyError(f"{about['format']} {about['version']}")
            if missing := {"model", "source", "preprocess", "findings"} - set(about):
                raise KeyError(f"no {', '.join(sorted(missing))}")
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise StoreError("no disentangled model here", given=str(folder), remedy="save_pretrained again") from error
        if module is not None:
            _fill(module, folder / WEIGHTS)
            subject = wrap(module.eval(), name=about["model"], preprocess=_steps(about["preprocess"]))
        else:
            subject = _loaded(folder, about)
        findings = [Disentanglement.load(folder / FOLDER / str(n)) for n in range(about["findings"])]
        return cls(subject, findings)


def _fill(module: nn.Module, file: Path) -> None:
    """The weights of a file into a module of the same class and sizes."""
    from safetensors import SafetensorError
    from safetensors.torch import load_model

    try:
        load_model(module, str(file))
    except FileNotFoundError as error:
        raise StoreError("no weights here", given=str(file), remedy="save_pretrained again") from error
    except SafetensorError as error:
        raise StoreError(f"not weights that we can read: {error}", given=str(file)) from error
    except RuntimeError as error:  # PyTorch's, with the names that do not fit
        raise ModelError(f"the module is not the one that was saved: {error}", given=type(module).__name__) from error


def _loaded(folder: Path, about: dict[str, Any]) -> Subject:
    name, steps = about["model"], _steps(about["preprocess"])
    if about["source"] == "hf":
        found = load(f"hf:{folder.resolve()}", device="cpu")
        return wrap(found.root, name=name, preprocess=steps or found.preprocess, tokenizer=found.tokenizer)
    source = name.partition(":")[0]
    if source == "bundled":
        found = load(name, device="cpu")
        _fill(found.root, folder / WEIGHTS)  # perhaps trained further
        return wrap(found.root, name=name, preprocess=steps)
    if source in ("timm", "torchvision"):
        found = load(name, weights=folder / WEIGHTS, device="cpu")
        return wrap(found.root, name=name, preprocess=steps)
    raise ModelError(
        "the model is of a class of your own", given=name, remedy="from_pretrained(folder, module=your_module)"
    )


def _steps(kept: dict[str, Any] | None) -> Preprocess | None:
    return None if kept is None else Preprocess(**kept)
