"""Layers whose units are split into sub-units: which layers can be, and how it is put into a model and out again."""
