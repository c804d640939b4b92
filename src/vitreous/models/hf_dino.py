"""Hugging Face DINOv2, DINOv2 with registers, and DINOv3 (rotary positions, registers, optionally a gated MLP).

Second alternatives are the names that transformers used before it gave all its vision transformers the same ones.
"""

from dataclasses import replace

from vitreous.models.family import Family, image_only
from vitreous.models.site import Site

HF_DINOV2 = Family(
    name="HF DINOv2",
    source="hf",
    roots=(
        "transformers.models.dinov2.modeling_dinov2.Dinov2Model",
        "transformers.models.dinov2.modeling_dinov2.Dinov2Backbone",
        "transformers.models.dinov2_with_registers.modeling_dinov2_with_registers.Dinov2WithRegistersModel",
        "transformers.models.dinov2_with_registers.modeling_dinov2_with_registers.Dinov2WithRegistersBackbone",
    ),
    blocks="encoder.layer.*",
    block_classes=("Dinov2Layer", "Dinov2WithRegistersLayer"),
    sites={
        "resid.in": Site("{block}", "in"),
        "attn.q": (Site("{block}.attention.q_proj"), Site("{block}.attention.attention.query")),
        "attn.k": (Site("{block}.attention.k_proj"), Site("{block}.attention.attention.key")),
        "attn.v": (Site("{block}.attention.v_proj"), Site("{block}.attention.attention.value")),
        "attn.out": Site("{block}.layer_scale1"),
        "resid.mid": Site("{block}.norm2", "in"),
        "mlp.hidden": (
            Site("{block}.mlp.fc2", "in"),
            Site("{block}.mlp.down_proj", "in"),
            Site("{block}.mlp.weights_out", "in"),
        ),
        "mlp.out": Site("{block}.layer_scale2"),
        "resid.out": Site("{block}"),
    },
    width="norm1.weight",
    mlp=("mlp",),
    norms=("norm1", "norm2"),
    attn="attention",
    heads=("attention.num_attention_heads", "attention.attention.num_attention_heads"),
    norm="layernorm",
    head=("classifier",),
    prefix=(("class", "embeddings.cls_token"), ("register", "embeddings.register_tokens")),
    image_size="config.image_size",
    prepare=image_only,
    examples=("hf:facebook/dinov2-base", "hf:facebook/dinov2-with-registers-base"),
)

HF_DINOV3 = replace(
    HF_DINOV2,
    name="HF DINOv3",
    roots=(
        "transformers.models.dinov3_vit.modeling_dinov3_vit.DINOv3ViTModel",
        "transformers.models.dinov3_vit.modeling_dinov3_vit.DINOv3ViTBackbone",
    ),
    blocks="model.layer.*",
    block_classes=("DINOv3ViTLayer",),
    heads=("attention.num_heads",),
    norm="norm",
    examples=("hf:facebook/dinov3-vits16-pretrain-lvd1689m",),
)
