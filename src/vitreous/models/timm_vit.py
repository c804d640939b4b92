"""timm's vision transformers: plain, DINOv2, registers, LayerScale, EVA and DINOv3 (rotary positions, gated MLP)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vitreous.axes import Grid, Size
from vitreous.errors import SettingsError
from vitreous.models.family import Family
from vitreous.models.site import Site

if TYPE_CHECKING:
    from torch import nn


def _grid(root: nn.Module, size: Size, block: str) -> Grid:  # noqa: ARG001
    embed: Any = root.patch_embed
    _refuse_size(embed, size)
    return Grid(*embed.dynamic_feat_size(tuple(size)))


def _refuse_size(embed: Any, size: Size) -> None:
    """What timm would say by an assertion, in the middle of a forward pass."""
    if embed.img_size is None or tuple(size) == tuple(embed.img_size) or min(size) < min(embed.patch_size):
        return
    if embed.strict_img_size:
        raise SettingsError(
            "this model takes pictures of one size",
            given=tuple(size),
            accepted=str(tuple(embed.img_size)),
            remedy="load it with dynamic_img_size=True",
        )
    if not embed.dynamic_img_pad and any(n % p for n, p in zip(size, embed.patch_size, strict=True)):
        raise SettingsError(
            "sides of pictures are whole numbers of patches",
            given=tuple(size),
            accepted=f"{embed.patch_size} pixels each",
        )


TIMM_VIT = Family(
    name="timm ViT",
    source="timm",
    roots=("timm.models.vision_transformer.VisionTransformer", "timm.models.eva.Eva"),
    blocks="blocks.*",
    block_classes=("Block", "EvaBlock"),
    sites={
        "resid.in": Site("{block}", "in"),
        "attn.q": (Site("{block}.attn.qkv", part=(0, 3)), Site("{block}.attn.q_proj")),
        "attn.k": (Site("{block}.attn.qkv", part=(1, 3)), Site("{block}.attn.k_proj")),
        "attn.v": (Site("{block}.attn.qkv", part=(2, 3)), Site("{block}.attn.v_proj")),
        "attn.out": Site("{block}.drop_path1"),
        "resid.mid": Site("{block}.norm2", "in"),
        "mlp.hidden": Site("{block}.mlp.fc2", "in"),
        "mlp.out": Site("{block}.drop_path2"),
        "resid.out": Site("{block}"),
    },
    width="norm1.weight",
    mlp=("mlp",),
    norms=("norm1", "norm2"),
    attn="attn",
    heads=("attn.num_heads",),
    norm="norm",
    head=("head",),
    prefix=(("class", "cls_token"), ("distillation", "dist_token"), ("register", "reg_token")),
    image_size="patch_embed.img_size",
    grid=_grid,
    examples=("timm:vit_small_patch14_dinov2", "timm:vit_base_patch14_reg4_dinov2", "timm:eva02_tiny_patch14_224"),
)

#: x + norm(f(x)) instead of x + f(norm(x)).
TIMM_VIT_POST = replace(
    TIMM_VIT,
    name="timm ViT (norm after)",
    block_classes=("ResPostBlock", "EvaBlockPostNorm"),
    sites={**TIMM_VIT.sites, "resid.mid": Site("{block}.mlp", "in")},
    examples=("timm:vit_base_patch16_rpn_224",),
)
