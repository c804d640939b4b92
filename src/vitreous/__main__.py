"""`python -m vitreous` is the command `vitreous`."""

from vitreous.cli import app

app()
