"""All four lenses over a few models and one set of pictures, kept in one folder: `examine` and `open_run`."""

from vitreous.examination.opened import Examination as Examination
from vitreous.examination.opened import open_run as open_run
from vitreous.examination.work import examine as examine
