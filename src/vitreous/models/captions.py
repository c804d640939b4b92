"""The small text tower of `scenes-text`: captions and short phrases to the space its class token was trained against.

It ships beside the picture tower so that units and directions can be named by words.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.errors import ModelError, SettingsError

LONGEST = 40
"""Words in the longest caption that the tower has places for."""


class CaptionTower(nn.Module):
    """Word embeddings and a few transformer layers, mean over words; beside them the picture's way into the same space.

    `words` are the vocabulary; id 0 stands for no word. Both `text` and `image` return unit vectors, whose dot product
    says how well a text fits a picture.
    """

    def __init__(
        self,
        words: Sequence[str],
        width: int = 80,
        layers: int = 2,
        heads: int = 5,
        image_width: int = 128,
        channels: int = 128,
    ) -> None:
        super().__init__()
        self.words = tuple(words)
        self.settings = {
            "width": width,
            "layers": layers,
            "heads": heads,
            "image_width": image_width,
            "channels": channels,
        }
        self._ids = {word: number for number, word in enumerate(self.words, start=1)}
        self.embedding = nn.Embedding(len(self.words) + 1, width, padding_idx=0)
        self.places = nn.Parameter(torch.randn(LONGEST, width) * 0.05)
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.text_projection = nn.Linear(width, channels, bias=False)
        self.image_projection = nn.Linear(image_width, channels, bias=False)
        self.caption_scale = nn.Parameter(torch.tensor(2.5))
        self.phrase_scale = nn.Parameter(torch.tensor(2.5))
        self.phrase_bias = nn.Parameter(torch.tensor(-4.0))
        with torch.no_grad():
            self.embedding.weight.mul_(0.1)

    def tokens(self, texts: Sequence[str]) -> Tensor:
        """int64 (text, word), 0 after the end. Commas and capitals do not count; unknown words are refused."""
        rows = [text.lower().replace(",", " ").split() for text in texts]
        for row in rows:
            unknown = next((word for word in row if word not in self._ids), None)
            if unknown is not None:
                raise SettingsError("the text tower does not know a word", given=unknown, accepted=self.words)
            if not 1 <= len(row) <= LONGEST:
                raise SettingsError(
                    "a text of a length that the tower cannot take", given=len(row), accepted=f"1 to {LONGEST} words"
                )
        out = torch.zeros(len(rows), max((len(row) for row in rows), default=1), dtype=torch.int64)
        for k, row in enumerate(rows):
            out[k, : len(row)] = torch.tensor([self._ids[word] for word in row])
        return out

    def text(self, tokens: Tensor) -> Tensor:
        """Token ids (text, word) -> unit vectors (text, channel)."""
        there = tokens > 0
        x = self.embedding(tokens) + self.places[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, there)
        weight = there.unsqueeze(-1).to(x.dtype)
        pooled = (self.norm(x) * weight).sum(1) / weight.sum(1)
        return F.normalize(self.text_projection(pooled).float(), dim=-1)

    def image(self, class_tokens: Tensor) -> Tensor:
        """Class tokens after the last norm (sample, image_width) -> unit vectors (sample, channel)."""
        return F.normalize(self.image_projection(class_tokens).float(), dim=-1)

    def forward(self, class_tokens: Tensor, texts: Sequence[str]) -> Tensor:
        """How likely each text is true of each picture, as logits (sample, text)."""
        words = self.text(self.tokens(texts).to(class_tokens.device))
        return self.image(class_tokens) @ words.T * self.phrase_scale.exp() + self.phrase_bias


class _Block(nn.Module):
    """A pre-norm transformer layer over words."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor, there: Tensor) -> Tensor:
        count, words, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(count, words, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=there[:, None, None, :])
        x = x + self.proj(mixed.transpose(1, 2).reshape(count, words, width))
        return x + self.mlp(self.norm2(x))


def load_captions(path: str | Path) -> CaptionTower:
    """The text tower that lies in a `scenes-text` weight file, in float32, ready to be asked."""
    from safetensors import safe_open

    with safe_open(path, "pt") as stored:
        config = json.loads(stored.metadata()["config"])
        if "text" not in config:
            raise ModelError(
                "no text tower in this weight file", given=Path(path).name, accepted="the file of scenes-text"
            )
        state = {k.removeprefix("text."): stored.get_tensor(k).float() for k in stored.keys() if k.startswith("text.")}
    tower = CaptionTower(config["text"]["words"], **config["text"]["settings"])
    tower.load_state_dict(state)
    return tower.eval()
