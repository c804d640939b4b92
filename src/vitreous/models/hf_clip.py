"""Hugging Face CLIP vision, SigLIP and SigLIP 2, alone or as the vision tower of a larger model (LLaVA-OneVision)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vitreous.axes import Grid, Size
from vitreous.models.family import Family
from vitreous.models.hf_vit import any_size
from vitreous.models.site import Site

if TYPE_CHECKING:
    from torch import Tensor, nn

HF_CLIP = Family(
    name="HF CLIP vision",
    source="hf",
    roots=("transformers.models.clip.modeling_clip.CLIPVisionModel",),
    blocks="encoder.layers.*",
    block_classes=("CLIPEncoderLayer",),
    sites={
        "resid.in": Site("{block}", "in"),
        "attn.q": Site("{block}.self_attn.q_proj"),
        "attn.k": Site("{block}.self_attn.k_proj"),
        "attn.v": Site("{block}.self_attn.v_proj"),
        "attn.out": Site("{block}.self_attn"),
        "resid.mid": Site("{block}.layer_norm2", "in"),
        "mlp.hidden": Site("{block}.mlp.fc2", "in"),
        "mlp.out": Site("{block}.mlp"),
        "resid.out": Site("{block}"),
    },
    width="layer_norm1.weight",
    mlp=("mlp",),
    norms=("layer_norm1", "layer_norm2"),
    attn="self_attn",
    heads=("self_attn.num_heads",),
    norm="post_layernorm",
    head=("classifier", "visual_projection"),
    prefix=(("class", "embeddings.class_embedding"),),
    image_size="config.image_size",
    prepare=any_size,
    examples=("hf:openai/clip-vit-base-patch32",),
)

HF_SIGLIP = replace(
    HF_CLIP,
    name="HF SigLIP",
    roots=("transformers.models.siglip.modeling_siglip.SiglipVisionModel",),
    block_classes=("SiglipEncoderLayer",),
    prefix=(),
    examples=("hf:google/siglip-base-patch16-224", "hf:google/siglip2-base-patch16-224"),
)


def _patches(root: nn.Module, x: Tensor) -> dict[str, Any]:
    """NaFlex models take pictures already cut: (sample, patch, row x column x colour)."""
    import torch

    p: Any = root.config.patch_size  # type: ignore[union-attr]
    n, c, h, w = x.shape
    rows, columns = h // p, w // p
    cut = x[:, :, : rows * p, : columns * p].reshape(n, c, rows, p, columns, p)
    return {
        "pixel_values": cut.permute(0, 2, 4, 3, 5, 1).reshape(n, rows * columns, p * p * c),
        "pixel_attention_mask": torch.ones(n, rows * columns, dtype=torch.long, device=x.device),
        "spatial_shapes": torch.tensor([[rows, columns]] * n, device=x.device),
    }


def _patch_grid(root: nn.Module, size: Size, block: str) -> Grid:  # noqa: ARG001
    p: Any = root.config.patch_size  # type: ignore[union-attr]
    return Grid(size.height // p, size.width // p)


HF_SIGLIP2 = replace(
    HF_SIGLIP,
    name="HF SigLIP 2 (NaFlex)",
    roots=("transformers.models.siglip2.modeling_siglip2.Siglip2VisionModel",),
    block_classes=("Siglip2EncoderLayer",),
    image_size=None,
    prepare=_patches,
    grid=_patch_grid,
    examples=("hf:google/siglip2-base-patch16-naflex",),
)
