"""The one table of model families. A row here is all that registers one; the conformance tests then run on it."""

from vitreous.models.family import Family
from vitreous.models.hf_bert import HF_BERT
from vitreous.models.hf_causal import HF_GPT2, HF_LLAMA
from vitreous.models.hf_clip import HF_CLIP, HF_SIGLIP, HF_SIGLIP2
from vitreous.models.hf_convnext import HF_CONVNEXT
from vitreous.models.hf_dino import HF_DINOV2, HF_DINOV3
from vitreous.models.hf_vit import HF_MAE, HF_VIT
from vitreous.models.timm_convnext import TIMM_CONVNEXT
from vitreous.models.timm_vit import TIMM_VIT, TIMM_VIT_POST
from vitreous.models.torchvision_vit import TORCHVISION_VIT

#: Picture families first: of a model with a vision tower and a language model, the tower is the subject.
FAMILIES: tuple[Family, ...] = (
    TIMM_VIT,
    TIMM_VIT_POST,
    TIMM_CONVNEXT,
    TORCHVISION_VIT,
    HF_VIT,
    HF_MAE,
    HF_DINOV2,
    HF_DINOV3,
    HF_CLIP,
    HF_SIGLIP,
    HF_SIGLIP2,
    HF_CONVNEXT,
    HF_LLAMA,
    HF_GPT2,
    HF_BERT,
)
