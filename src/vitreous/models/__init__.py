"""Subjects: models under study, and where their parts are."""
