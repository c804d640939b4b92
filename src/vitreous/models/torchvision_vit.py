"""torchvision's VisionTransformer. Its attention is one fused module, so queries, keys and values are no sites."""

from vitreous.models.family import Family
from vitreous.models.site import Site

TORCHVISION_VIT = Family(
    name="torchvision ViT",
    source="torchvision",
    roots=("torchvision.models.vision_transformer.VisionTransformer",),
    blocks="encoder.layers.*",
    block_classes=("EncoderBlock",),
    sites={
        "resid.in": Site("{block}", "in"),
        "attn.out": Site("{block}.dropout"),
        "resid.mid": Site("{block}.ln_2", "in"),
        "mlp.hidden": Site("{block}.mlp.3", "in"),
        "mlp.out": Site("{block}.mlp"),
        "resid.out": Site("{block}"),
    },
    width="ln_1.weight",
    mlp=("mlp",),
    norms=("ln_1", "ln_2"),
    attn="self_attention",
    heads=("self_attention.num_heads",),
    norm="encoder.ln",
    head=("heads",),
    prefix=(("class", "class_token"),),
    image_size="image_size",
    examples=("torchvision:vit_b_16", "torchvision:vit_l_16"),
)
