"""The structure loss, and training with it."""
