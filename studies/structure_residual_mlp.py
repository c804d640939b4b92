"""Section D.4 and Figure 7: does a plain residual network drop a feature and make it again later?

32 linear layers of 32 units with residual connections learn the paper's spiral (appendix B.1). Each unit is looked at
on a grid of 50 x 50 points; where it belongs to a cluster, leaves it and comes back layers later, it is ringed. The
same is counted before training, and in networks of other seeds.

PYTHONPATH=src python studies/structure_residual_mlp.py     writes results/structure_residual_mlp.json, .md and .png
"""

from __future__ import annotations

import json
from math import pi
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from tqdm.auto import tqdm

import vitreous as vt
from paper_claims import repeated
from structure_ablation_tables import table
from vitreous.render import to_png
from vitreous.views.structure_network import network_maps, returns

RESULTS = Path(__file__).parent / "results"
POINTS, TEST_POINTS, SIDE = 16_384, 4_096, 50
WIDTH, DEPTH = 32, 32
EPOCHS, BATCH, RATE, DECAY, SEED = 8, 512, 3e-3, 0.125, 42
SEEDS = (SEED, *range(11))


def spiral(points: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Two arms, the second a quarter turn ahead: points (point, 2) and classes (point,), half of each."""
    phi = 2 * pi * torch.rand(points, generator=generator)
    label = torch.arange(points) % 2
    radius, angle = phi / (2 * pi), phi + label * pi / 2
    return torch.stack([radius * torch.sin(angle), radius * torch.cos(angle)], 1), label


def grid(side: int = SIDE) -> torch.Tensor:
    """Points (side * side, 2) of [-1, 1]², row by row from the lower left corner."""
    steps = torch.linspace(-1, 1, side)
    y, x = torch.meshgrid(steps, steps, indexing="ij")
    return torch.stack([x.ravel(), y.ravel()], 1)


class ResidualNetwork(nn.Module):
    """h <- h + tanh(W h + b), `DEPTH` times, between a linear layer from the plane and one to the classes."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(2, WIDTH)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))
        self.out = nn.Linear(WIDTH, 2)

    def stream(self, points: torch.Tensor) -> list[torch.Tensor]:
        """The hidden units (point, unit) after every layer."""
        hidden, every = self.into(points), []
        for layer in self.layers:
            hidden = hidden + torch.tanh(layer(hidden))
            every.append(hidden)
        return every

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        return self.out(self.stream(points)[-1])

    @property
    def weights(self) -> np.ndarray:
        """(layer - 1, to, from): what a layer adds to its units from those of the layer before."""
        return torch.stack([layer.weight for layer in self.layers][1:]).detach().numpy()


def train(model: nn.Module, generator: torch.Generator) -> float:
    """Trains in place; gives the accuracy on new points."""
    points, labels = spiral(POINTS, generator)
    optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * -(-POINTS // BATCH))
    for _ in range(EPOCHS):
        for part in torch.randperm(POINTS, generator=generator).split(BATCH):
            loss = nn.functional.cross_entropy(model(points[part]), labels[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    points, labels = spiral(TEST_POINTS, generator)
    with torch.no_grad():
        return float((model(points).argmax(1) == labels).float().mean())


@torch.no_grad()
def activations(model: ResidualNetwork) -> np.ndarray:
    """(sample, layer, token, channel) on the grid; a network without tokens has one."""
    return torch.stack(model.stream(grid()), 1)[:, :, None].numpy()


def facts(finding: vt.StructureFinding) -> dict[str, object]:
    back = returns(finding)
    return {
        "units": finding.labels.size,
        "units in clusters": int((finding.labels >= 0).sum()),
        "clusters": len(finding.sizes),
        "largest cluster": finding.largest,
        "inefficient clusters": int(finding.inefficient.sum()),
        "units that come back": [
            {"unit": r.channel, "leaves after layer": r.before, "is back at layer": r.after} for r in back
        ],
    }


def one_seed(seed: int) -> tuple[ResidualNetwork, np.ndarray, dict[str, Any]]:
    """A network, trained; what its units do on the grid; and what is counted before and after training."""
    torch.manual_seed(seed)
    model = ResidualNetwork()
    before = facts(vt.structure(activations(model), progress=False))
    accuracy = train(model, torch.Generator().manual_seed(seed))
    features = activations(model)
    after = facts(vt.structure(features, progress=False))
    return model, features, {"accuracy": accuracy, "before training": before, "after training": after}


def counted(seed: int, found: dict[str, Any]) -> dict[str, Any]:
    """A row of the table: numbers alone."""
    names = ("units in clusters", "clusters", "largest cluster", "inefficient clusters")
    row: dict[str, Any] = {"seed": seed, "accuracy": found["accuracy"]}
    for when in ("before training", "after training"):
        row[when] = {name: found[when][name] for name in names}
        row[when]["units that come back"] = len(found[when]["units that come back"])
    return row


def write_table(result: dict[str, Any]) -> str:
    rows = result["seeds"]
    head = ("seed", "accuracy, %", "come back, before", "after", "skip layers, before", "after", "in clusters", "after")
    lines = []
    for row in rows:
        old, new = row["before training"], row["after training"]
        pairs = [(old[n], new[n]) for n in ("units that come back", "inefficient clusters", "units in clusters")]
        lines.append((row["seed"], f"{100 * row['accuracy']:.2f}", *(value for pair in pairs for value in pair)))
    back = np.array([line[2:4] for line in lines], float)
    said = "; ".join(
        f"{when} training {interval.text(digits=1).replace('+', '')}"
        for when, interval in zip(("before", "after"), map(repeated, back.T.tolist()), strict=True)
    )
    return (
        "# Units that come back, in a network of 32 residual layers (Figure 7)\n\n"
        "Written by `python studies/structure_residual_mlp.py`. 32 linear layers of 32 units learn the spiral; a unit "
        "comes back if it is in a cluster, leaves it for a layer or more, and is in it again. The picture shows seed "
        f"{SEED}.\n\nUnits that come back, mean over {len(rows)} networks with Student's 95 % interval: {said}; "
        f"after less before {repeated((back[:, 1] - back[:, 0]).tolist()).text(digits=1)}.\n\n"
        + table(head, lines)
        + "\n![units](structure_residual_mlp.png)\n"
    )


def main() -> None:
    rows, shown = [], {}
    for seed in tqdm(SEEDS, "networks"):
        model, features, found = one_seed(seed)
        rows.append(counted(seed, found))
        if seed == SEED:
            shown = found
            finding = vt.structure(features, progress=False)
            panel = network_maps(
                finding, features, model.weights, grid=(SIDE, SIDE), title="32 residual layers on the spiral"
            )
            (RESULTS / "structure_residual_mlp.png").write_bytes(to_png(panel, width=16, dpi=100))
    result = {
        "settings": {
            "layers": DEPTH, "width": WIDTH, "points": POINTS, "grid": [SIDE, SIDE], "epochs": EPOCHS, "batch": BATCH,
            "rate": RATE, "weight decay": DECAY, "seed": SEED, "bins": 100, "threshold": 1.0,
        },
        **shown,
        "seeds": rows,
    }  # fmt: skip
    (RESULTS / "structure_residual_mlp.json").write_text(json.dumps(result, indent=1) + "\n")
    (RESULTS / "structure_residual_mlp.md").write_text(write_table(result))


if __name__ == "__main__":
    main()
