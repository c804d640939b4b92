"""timm's ConvNeXt and ConvNeXt V2: a residual stream of pictures, no attention."""

from vitreous.models.family import Family
from vitreous.models.site import Site

TIMM_CONVNEXT = Family(
    name="timm ConvNeXt",
    source="timm",
    roots=("timm.models.convnext.ConvNeXt",),
    blocks="stages.*.blocks.*",
    block_classes=("ConvNeXtBlock",),
    sites={
        "resid.in": Site("{block}", "in", layout="NCHW"),
        "mlp.hidden": Site("{block}.mlp.fc2", "in", layout="linear"),
        "mlp.out": Site("{block}.drop_path", layout="NCHW"),
        "resid.out": Site("{block}", layout="NCHW"),
    },
    width="norm.weight",
    mlp=("mlp",),
    norms=("norm",),
    norm="head.norm",
    head=("head.fc",),
    examples=("timm:convnext_tiny", "timm:convnextv2_tiny"),
)
