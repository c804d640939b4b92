"""vitreous makes transformers transparent. `import vitreous as vt`."""

__version__ = "0.1.0.dev0"
