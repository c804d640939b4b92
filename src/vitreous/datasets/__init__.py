"""Data sets in the folders that their authors publish: `vt.dataset("voc2012", root, split="val")`.

Nothing is downloaded: most of these are for research only and want their terms to be accepted by a person.
"""

from vitreous.datasets.table import LAYOUTS as LAYOUTS
from vitreous.datasets.table import Layout as Layout
from vitreous.datasets.table import dataset as dataset
