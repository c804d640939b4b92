"""Hugging Face ConvNeXt and ConvNeXt V2: a residual stream of pictures, no attention."""

from vitreous.models.family import Family, image_only
from vitreous.models.site import Site

HF_CONVNEXT = Family(
    name="HF ConvNeXt",
    source="hf",
    roots=(
        "transformers.models.convnext.modeling_convnext.ConvNextModel",
        "transformers.models.convnextv2.modeling_convnextv2.ConvNextV2Model",
    ),
    blocks="encoder.stages.*.layers.*",
    block_classes=("ConvNextLayer", "ConvNextV2Layer"),
    sites={
        "resid.in": Site("{block}", "in", layout="NCHW"),
        "mlp.hidden": Site("{block}.pwconv2", "in", layout="NHWC"),
        "mlp.out": Site("{block}.drop_path", layout="NCHW"),
        "resid.out": Site("{block}", layout="NCHW"),
    },
    width="layernorm.weight",
    mlp=("pwconv1", "act", "pwconv2"),
    norms=("layernorm",),
    norm="layernorm",
    head=("classifier",),
    image_size="config.image_size",
    prepare=image_only,
    examples=("hf:facebook/convnext-tiny-224", "hf:facebook/convnextv2-tiny-1k-224"),
)
