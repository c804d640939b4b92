"""The command `vitreous`. Each command is a thin layer over one public function; results go to standard output."""

# in the order in which --help shows them
from vitreous.cli import recording  # isort: skip
from vitreous.cli import lenses  # isort: skip
from vitreous.cli import subunits  # isort: skip
from vitreous.cli import dictionaries  # isort: skip
from vitreous.cli import align  # isort: skip
from vitreous.cli import tokens  # isort: skip
from vitreous.cli import audit  # isort: skip
from vitreous.cli import training  # isort: skip
from vitreous.cli import reports  # isort: skip
from vitreous.cli import explore  # isort: skip
from vitreous.cli.options import app

__all__ = [
    "align",
    "app",
    "audit",
    "dictionaries",
    "explore",
    "lenses",
    "recording",
    "reports",
    "subunits",
    "tokens",
    "training",
]
