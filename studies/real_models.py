"""The trained models in the real data folder, as subjects, for studies, benchmarks and tests on real data.

PYTHONPATH=src python studies/real_models.py DATA     loads each, checks its laws and a number that is known of it
"""

from __future__ import annotations

import json
import math
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import vitreous as vt
from vitreous.models.weights import put_weights, read_state

TINY_IMAGENET = {"mean": (0.4802, 0.4481, 0.3975), "std": (0.2770, 0.2691, 0.2821)}


def dinov2s_saliency(data: Path, device: str = "auto") -> vt.Subject:
    """ViT-S/14 in DINOv2's layout, trained to predict saliency. Any multiple of 14 pixels; 224 by default."""
    subject = vt.load(
        "timm:vit_small_patch14_dinov2",
        weights=data / "weights" / "dinov2s_saliency_fp16.safetensors",
        device=device,
        dynamic_img_size=True,
    )
    assert subject.preprocess is not None
    return vt.wrap(subject.module, name="dinov2s_saliency", preprocess=subject.preprocess.at(224))


def tin_vit(data: Path, objective: str) -> vt.Subject:
    """ViT of 64 pixels and 12 blocks, trained on Tiny ImageNet: objective text, contrast or mae."""
    from timm.models.vision_transformer import VisionTransformer

    module = VisionTransformer(
        img_size=64, patch_size=8, embed_dim=256, depth=12, num_heads=4, num_classes=0, global_pool="token"
    )
    put_weights(module, read_state(data / "weights" / f"tin-vit-{objective}.safetensors"), objective)
    size = vt.Size(64, 64)
    steps = vt.Preprocess(size, size, **TINY_IMAGENET, source="data README")
    return vt.wrap(module.eval(), name=f"tin-vit-{objective}", preprocess=steps)


def stories15m(data: Path) -> vt.Subject:
    """A causal language model of 15 M parameters, trained on TinyStories; llama2.c's layout put into Hugging Face's."""
    from safetensors import safe_open
    from transformers import LlamaConfig, LlamaForCausalLM

    path = data / "weights" / "stories15M_int8.safetensors"
    with safe_open(path, "pt") as stored:
        said = json.loads(stored.metadata()["config"])
    config = LlamaConfig(
        hidden_size=said["dim"],
        intermediate_size=said["hidden"],
        num_hidden_layers=said["layers"],
        num_attention_heads=said["heads"],
        num_key_value_heads=said["kv_heads"],
        vocab_size=said["vocab"],
        max_position_embeddings=said["max_seq"],
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )
    module = LlamaForCausalLM(config)
    module.load_state_dict(_llama_names(read_state(path), said["heads"]))
    pieces = np.load(data / "weights" / "stories15M_tokenizer.npz")
    return vt.wrap(module.eval(), name="stories15M", tokenizer=Pieces(pieces))


def _llama_names(state: dict[str, torch.Tensor], heads: int) -> dict[str, torch.Tensor]:
    """llama2.c rotates neighbouring channels, Hugging Face the two halves of a head: rows are reordered."""
    parts = {
        "attention.wq": "self_attn.q_proj",
        "attention.wk": "self_attn.k_proj",
        "attention.wv": "self_attn.v_proj",
        "attention.wo": "self_attn.o_proj",
        "feed_forward.w1": "mlp.gate_proj",
        "feed_forward.w2": "mlp.down_proj",
        "feed_forward.w3": "mlp.up_proj",
        "attention_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
    }
    renamed = {}
    for name, value in state.items():
        if name.endswith(("wq.weight", "wk.weight")):
            rows, columns = value.shape
            value = value.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)
        for old, new in parts.items():
            name = name.replace(old, new)
        renamed[f"model.{name.replace('tok_embeddings', 'embed_tokens')}"] = value
    renamed["lm_head.weight"] = renamed["model.embed_tokens.weight"]
    return renamed


class Pieces:
    """Byte-pair tokens as llama2.c merges them: the best neighbouring pair first, raw bytes where all fails."""

    def __init__(self, stored: Any) -> None:
        raw, offsets = stored["pieces"].tobytes(), stored["offsets"]
        self.pieces = [raw[a:b] for a, b in pairwise(offsets)]
        self.scores = stored["scores"]
        self.index = {piece: i for i, piece in enumerate(self.pieces) if not 3 <= i <= 258}

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for letter in f" {text}":
            piece = letter.encode()
            ids += [self.index[piece]] if piece in self.index else [byte + 3 for byte in piece]
        while True:
            pairs = [(self.pieces[a] + self.pieces[b], k) for k, (a, b) in enumerate(pairwise(ids))]
            known = [(self.scores[self.index[p]], -k) for p, k in pairs if p in self.index]
            if not known:
                return [1, *ids]
            k = -max(known)[1]
            ids[k : k + 2] = [self.index[self.pieces[ids[k]] + self.pieces[ids[k + 1]]]]

    def decode(self, ids: list[int]) -> str:
        return b"".join(bytes([i - 3]) if 3 <= i <= 258 else self.pieces[i] for i in ids if i > 2).decode(
            errors="replace"
        )

    def __call__(self, texts: list[str], **_: Any) -> dict[str, torch.Tensor]:
        rows = [torch.tensor(self.encode(text)) for text in texts]
        return {"input_ids": nn.utils.rnn.pad_sequence(rows, batch_first=True)}


@torch.no_grad()
def perplexity(subject: vt.Subject, text: str) -> float:
    ids = subject.inputs(text)
    logits = subject(ids)
    return math.exp(nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:]))


def main(data: Path) -> None:
    for subject in (dinov2s_saliency(data), *(tin_vit(data, o) for o in ("text", "contrast", "mae")), stories15m(data)):
        broken = [law for law in vt.check_laws(subject) if not law.holds]
        print(subject, "all laws hold" if not broken else broken)
    opening = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park."
    print("stories15M, perplexity of an opening:", round(perplexity(stories15m(data), opening), 2))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
