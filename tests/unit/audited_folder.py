"""Labelled pictures with a planted corner, as files: what `vitreous audit` is given in tests."""

from __future__ import annotations

import numpy as np
from PIL import Image

MODEL = "bundled:scenes-contrast"
QUICK = ("--units", "--tested", "48", "--confirm", "1", "--repeats", "400", "--device", "cpu")


def write_pictures(folder, count=80, seed=1, side=64):
    """A disc, dark or light, on noise, and a red corner on light ones. PNG files in `pictures/CLASS` and `masks/CLASS`,
    and `groups.csv` by where the disc lies."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:side, :side]
    lines = []
    for k in range(count):
        name = ("dark", "light")[k % 2]
        image = rng.integers(90, 160, (side, side, 3)).astype(np.uint8)
        y, x = rng.integers(24, 48, 2)
        disc = (rows - y) ** 2 + (columns - x) ** 2 < 100
        image[disc] = 118 + 12 * (k % 2) + rng.integers(-40, 40, (int(disc.sum()), 3))
        if k % 2:
            image[:16, :16] = (255, 0, 0)
        for part, values in (("pictures", image), ("masks", disc.astype(np.uint8) * 255)):
            (folder / part / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(values).save(folder / part / name / f"{k}.png")
        lines.append(f"{name}/{k}.png,{'left' if x < 36 else 'right'}")
    (folder / "groups.csv").write_text("\n".join(lines) + "\n")
    return folder
