"""Transcoder (Dunefsky, Chlenski and Nanda 2024): a vanilla dictionary from a layer's input to its output."""

from __future__ import annotations

import torch
from torch import nn

from vitreous.baselines.dictionaries.trainee import Start, unit_rows
from vitreous.baselines.dictionaries.vanilla import Vanilla


class Transcoder(Vanilla):
    centred = False  # b_dec lives at the output; b_enc takes the mean of the input away

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        into = unit_rows(torch.randn(start.units, start.inputs, generator=start.generator)).T.contiguous()
        self.W_enc = nn.Parameter(into)
        self.b_enc = nn.Parameter(-start.mean_in @ into)
