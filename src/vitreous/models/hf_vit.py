"""Hugging Face ViT, DeiT and ViT-MAE: one block layout, three roots."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vitreous.models.family import Family
from vitreous.models.site import Site

if TYPE_CHECKING:
    from torch import Tensor, nn


def any_size(root: nn.Module, x: Tensor) -> dict[str, Any]:
    """Asks for interpolated positions when the picture is not of the size that the positions were made for."""
    size: Any = root.config.image_size  # type: ignore[union-attr]
    native = (size, size) if isinstance(size, int) else tuple(size)
    return (
        {"pixel_values": x} if tuple(x.shape[-2:]) == native else {"pixel_values": x, "interpolate_pos_encoding": True}
    )


HF_VIT = Family(
    name="HF ViT",
    source="hf",
    roots=("transformers.models.vit.modeling_vit.ViTModel", "transformers.models.deit.modeling_deit.DeiTModel"),
    blocks="layers.*",
    block_classes=("ViTLayer", "DeiTLayer"),
    sites={
        "resid.in": Site("{block}", "in"),
        "attn.q": Site("{block}.attention.q_proj"),
        "attn.k": Site("{block}.attention.k_proj"),
        "attn.v": Site("{block}.attention.v_proj"),
        "attn.out": Site("{block}.attention"),
        "resid.mid": Site("{block}.layernorm_after", "in"),
        "mlp.hidden": Site("{block}.mlp.fc2", "in"),
        "mlp.out": Site("{block}.mlp"),
        "resid.out": Site("{block}"),
    },
    width="layernorm_before.weight",
    mlp=("mlp",),
    norms=("layernorm_before", "layernorm_after"),
    attn="attention",
    heads=("attention.num_attention_heads",),
    norm="layernorm",
    head=("classifier", "cls_classifier"),
    prefix=(("class", "embeddings.cls_token"), ("distillation", "embeddings.distillation_token")),
    image_size="config.image_size",
    prepare=any_size,
    examples=("hf:google/vit-base-patch16-224", "hf:facebook/deit-base-distilled-patch16-224"),
)


def _all_patches(root: nn.Module, x: Tensor) -> dict[str, Any]:
    """A masked autoencoder shuffles its patches by random noise; rising noise keeps them in order."""
    import torch

    inputs = any_size(root, x)
    patch: Any = root.config.patch_size  # type: ignore[union-attr]
    count = (x.shape[-2] // patch) * (x.shape[-1] // patch)
    noise = torch.arange(count, device=x.device, dtype=torch.float32).expand(x.shape[0], -1)
    return {**inputs, "noise": noise}


HF_MAE = replace(
    HF_VIT,
    name="HF ViT-MAE",
    roots=("transformers.models.vit_mae.modeling_vit_mae.ViTMAEModel",),
    block_classes=("ViTMAELayer",),
    head=(),
    prefix=(("class", "embeddings.cls_token"),),
    prepare=_all_patches,
    during={"mask_ratio": 0.0},
    examples=("hf:facebook/vit-mae-base",),
)
