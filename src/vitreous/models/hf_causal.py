"""Hugging Face causal language models: the Llama layout (Llama, Mistral, Qwen 2 and 3) and GPT-2."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vitreous.models.family import Family
from vitreous.models.site import Site

if TYPE_CHECKING:
    from torch import Tensor, nn


def _ids(root: nn.Module, x: Tensor) -> dict[str, Any]:  # noqa: ARG001
    return {"input_ids": x, "use_cache": False}


HF_LLAMA = Family(
    name="HF Llama",
    source="hf",
    roots=(
        "transformers.models.llama.modeling_llama.LlamaModel",
        "transformers.models.mistral.modeling_mistral.MistralModel",
        "transformers.models.qwen2.modeling_qwen2.Qwen2Model",
        "transformers.models.qwen3.modeling_qwen3.Qwen3Model",
    ),
    blocks="layers.*",
    block_classes=("LlamaDecoderLayer", "MistralDecoderLayer", "Qwen2DecoderLayer", "Qwen3DecoderLayer"),
    sites={
        "resid.in": Site("{block}", "in"),
        "attn.q": Site("{block}.self_attn.q_proj"),
        "attn.k": Site("{block}.self_attn.k_proj"),
        "attn.v": Site("{block}.self_attn.v_proj"),
        "attn.out": Site("{block}.self_attn"),
        "resid.mid": Site("{block}.post_attention_layernorm", "in"),
        "mlp.hidden": Site("{block}.mlp.down_proj", "in"),
        "mlp.out": Site("{block}.mlp"),
        "resid.out": Site("{block}"),
    },
    width="input_layernorm.weight",
    mlp=("mlp",),
    norms=("input_layernorm", "post_attention_layernorm"),
    attn="self_attn",
    heads=("self_attn.config.num_attention_heads",),
    norm="norm",
    head=("lm_head",),
    modality="text",
    prepare=_ids,
    examples=("hf:meta-llama/Llama-3.2-1B", "hf:Qwen/Qwen3-0.6B"),
)

HF_GPT2 = replace(
    HF_LLAMA,
    name="HF GPT-2",
    roots=("transformers.models.gpt2.modeling_gpt2.GPT2Model",),
    blocks="h.*",
    block_classes=("GPT2Block",),
    sites={
        "resid.in": Site("{block}", "in"),
        "attn.q": Site("{block}.attn.c_attn", part=(0, 3)),
        "attn.k": Site("{block}.attn.c_attn", part=(1, 3)),
        "attn.v": Site("{block}.attn.c_attn", part=(2, 3)),
        "attn.out": Site("{block}.attn"),
        "resid.mid": Site("{block}.ln_2", "in"),
        "mlp.hidden": Site("{block}.mlp.c_proj", "in"),
        "mlp.out": Site("{block}.mlp"),
        "resid.out": Site("{block}"),
    },
    width="ln_1.weight",
    norms=("ln_1", "ln_2"),
    attn="attn",
    heads=("attn.num_heads",),
    norm="ln_f",
    examples=("hf:openai-community/gpt2",),
)
