"""Small random-weight configurations of the real classes: at least one for every row of the table of families."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
}
WORDS = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 50,
}


def _timm_vit(**settings: Any) -> nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    small = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 3, "num_heads": 4, "num_classes": 7}
    return VisionTransformer(**{**small, **settings})


def _timm(name: str, **settings: Any) -> nn.Module:
    import timm

    return timm.create_model(name, **settings)


def _timm_post() -> nn.Module:
    from timm.models.vision_transformer import ResPostBlock

    return _timm_vit(block_fn=ResPostBlock, init_values=1.0)


def _timm_gated() -> nn.Module:
    from timm.layers import SwiGLUPacked

    return _timm_vit(qk_norm=True, mlp_layer=SwiGLUPacked)


def _timm_unfused() -> nn.Module:
    model = _timm_vit()
    for block in model.blocks:
        block.attn.fused_attn = False
    return model


def _torchvision(**settings: Any) -> nn.Module:
    from torchvision.models import VisionTransformer

    small = {"image_size": 32, "patch_size": 8, "num_layers": 3, "num_heads": 4, "hidden_dim": 32, "mlp_dim": 48}
    model = VisionTransformer(**small, num_classes=7, **settings)
    nn.init.normal_(model.heads.head.weight, std=0.1)  # torchvision starts its head at zero
    return model


def _hf(model: str, config: str, **settings: Any) -> nn.Module:
    import transformers

    return getattr(transformers, model)(getattr(transformers, config)(**settings))


def _hf_eager(model: str, config: str, **settings: Any) -> nn.Module:
    module = _hf(model, config, **settings)
    module.set_attn_implementation("eager")
    return module


def _llava() -> nn.Module:
    vision = {"model_type": "siglip_vision_model", **SMALL}
    text = {"model_type": "qwen2", **WORDS}
    return _hf("LlavaOnevisionForConditionalGeneration", "LlavaOnevisionConfig", vision_config=vision, text_config=text)


def _clip_both() -> nn.Module:
    return _hf("CLIPModel", "CLIPConfig", vision_config=SMALL, text_config=BERT)


STAGES = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1], "image_size": 64}
DINOV2 = {**{k: v for k, v in SMALL.items() if k != "intermediate_size"}, "mlp_ratio": 2}
SIGLIP2 = {**{k: v for k, v in SMALL.items() if k != "image_size"}, "num_patches": 16}
GPT2 = {"n_embd": 32, "n_layer": 3, "n_head": 4, "vocab_size": 50, "n_positions": 64}
BERT = {k: v for k, v in WORDS.items() if k != "num_key_value_heads"}
EVA = {"embed_dim": 32, "depth": 3, "num_heads": 4, "img_size": 32, "patch_size": 8, "num_classes": 7}

#: variant -> (family name, how to build it, prefix tokens, patches)
ZOO: dict[str, tuple[str, Callable[[], nn.Module], int, int]] = {
    "timm ViT": ("timm ViT", _timm_vit, 1, 16),
    "timm ViT, no class token": ("timm ViT", partial(_timm_vit, class_token=False, global_pool="avg"), 0, 16),
    "timm ViT, LayerScale, 4 registers": ("timm ViT", partial(_timm_vit, init_values=0.1, reg_tokens=4), 5, 16),
    "timm ViT, registers only": (
        "timm ViT",
        partial(_timm_vit, class_token=False, reg_tokens=1, global_pool="avg"),
        1,
        16,
    ),
    "timm ViT, qk-norm, SwiGLU": ("timm ViT", _timm_gated, 1, 16),
    "timm ViT, attention not fused": ("timm ViT", _timm_unfused, 1, 16),
    "timm ViT, wide pictures": ("timm ViT", partial(_timm_vit, img_size=(32, 64)), 1, 32),
    "timm DeiT, distilled": (
        "timm ViT",
        partial(_timm, "deit_tiny_distilled_patch16_224", depth=3, embed_dim=32, num_heads=4, img_size=64),
        2,
        16,
    ),
    "timm DINOv2": (
        "timm ViT",
        partial(_timm, "vit_small_patch14_dinov2", depth=3, embed_dim=32, num_heads=4, img_size=56, init_values=0.1),
        1,
        16,
    ),
    "timm EVA-02, separate qkv": ("timm ViT", partial(_timm, "eva02_tiny_patch14_224", qkv_fused=False, **EVA), 1, 16),
    "timm DINOv3": ("timm ViT", partial(_timm, "vit_small_patch16_dinov3", init_values=0.1, **EVA), 5, 16),
    "timm ViT, norm after": ("timm ViT (norm after)", _timm_post, 1, 16),
    "timm ConvNeXt": (
        "timm ConvNeXt",
        partial(_timm, "convnext_atto", depths=(1, 1, 2, 1), dims=(8, 16, 24, 32), ls_init_value=0.5, num_classes=7),
        0,
        49,
    ),
    "timm ConvNeXt V2": (
        "timm ConvNeXt",
        partial(_timm, "convnextv2_tiny", depths=(1, 1, 2, 1), dims=(8, 16, 24, 32), num_classes=7),
        0,
        49,
    ),
    "torchvision ViT": ("torchvision ViT", _torchvision, 1, 16),
    "HF ViT": ("HF ViT", partial(_hf, "ViTForImageClassification", "ViTConfig", **SMALL), 1, 16),
    "HF ViT, eager attention": ("HF ViT", partial(_hf_eager, "ViTForImageClassification", "ViTConfig", **SMALL), 1, 16),
    "HF DeiT": ("HF ViT", partial(_hf, "DeiTForImageClassification", "DeiTConfig", **SMALL), 2, 16),
    "HF ViT-MAE": ("HF ViT-MAE", partial(_hf, "ViTMAEModel", "ViTMAEConfig", **SMALL), 1, 16),
    "HF DINOv2": (
        "HF DINOv2",
        partial(_hf, "Dinov2ForImageClassification", "Dinov2Config", **DINOV2, layerscale_value=0.3),
        1,
        16,
    ),
    "HF DINOv2, SwiGLU": (
        "HF DINOv2",
        partial(_hf, "Dinov2Model", "Dinov2Config", **DINOV2, use_swiglu_ffn=True),
        1,
        16,
    ),
    "HF DINOv2, 4 registers": (
        "HF DINOv2",
        partial(_hf, "Dinov2WithRegistersModel", "Dinov2WithRegistersConfig", **DINOV2, num_register_tokens=4),
        5,
        16,
    ),
    "HF DINOv3": (
        "HF DINOv3",
        partial(_hf, "DINOv3ViTModel", "DINOv3ViTConfig", **SMALL, num_register_tokens=2, layerscale_value=0.3),
        3,
        16,
    ),
    "HF DINOv3, gated MLP": (
        "HF DINOv3",
        partial(_hf, "DINOv3ViTModel", "DINOv3ViTConfig", **SMALL, num_register_tokens=4, use_gated_mlp=True),
        5,
        16,
    ),
    "HF CLIP vision": ("HF CLIP vision", partial(_hf, "CLIPVisionModel", "CLIPVisionConfig", **SMALL), 1, 16),
    "HF CLIP, both towers": ("HF CLIP vision", _clip_both, 1, 16),
    "HF SigLIP": ("HF SigLIP", partial(_hf, "SiglipVisionModel", "SiglipVisionConfig", **SMALL), 0, 16),
    "HF SigLIP 2": (
        "HF SigLIP 2 (NaFlex)",
        partial(_hf, "Siglip2VisionModel", "Siglip2VisionConfig", **SIGLIP2),
        0,
        784,
    ),
    "HF LLaVA-OneVision's tower": ("HF SigLIP", _llava, 0, 16),
    "HF ConvNeXt": (
        "HF ConvNeXt",
        partial(_hf, "ConvNextForImageClassification", "ConvNextConfig", **STAGES, layer_scale_init_value=0.5),
        0,
        4,
    ),
    "HF ConvNeXt V2": ("HF ConvNeXt", partial(_hf, "ConvNextV2Model", "ConvNextV2Config", **STAGES), 0, 4),
    "HF Llama": ("HF Llama", partial(_hf, "LlamaForCausalLM", "LlamaConfig", **WORDS), 0, 12),
    "HF Llama, eager attention": ("HF Llama", partial(_hf_eager, "LlamaForCausalLM", "LlamaConfig", **WORDS), 0, 12),
    "HF Qwen 3, qk-norm": ("HF Llama", partial(_hf, "Qwen3ForCausalLM", "Qwen3Config", head_dim=8, **WORDS), 0, 12),
    "HF GPT-2": ("HF GPT-2", partial(_hf, "GPT2LMHeadModel", "GPT2Config", **GPT2), 0, 12),
    "HF BERT": ("HF BERT", partial(_hf, "BertModel", "BertConfig", **BERT), 0, 12),
    "HF BERT, eager attention": ("HF BERT", partial(_hf_eager, "BertModel", "BertConfig", **BERT), 0, 12),
    "HF BERT, masked words": ("HF BERT", partial(_hf, "BertForMaskedLM", "BertConfig", **BERT), 0, 12),
}


def build(variant: str) -> nn.Module:
    """The variant's module, the same every time, in evaluation mode.

    Libraries start some weights near zero, where every law holds for nothing; here each matrix has a say.
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = ZOO[variant][1]().eval()
        for parameter in module.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
    return module
