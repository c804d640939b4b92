"""Hugging Face BERT, and the many sentence encoders in its layout (MiniLM, BGE, E5, GTE)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vitreous.errors import ModelError
from vitreous.models.family import Family
from vitreous.models.site import Site

if TYPE_CHECKING:
    from torch import Tensor, nn


def _ids_without_padding(root: nn.Module, x: Tensor) -> dict[str, Any]:
    """An encoder looks to the right as well, so it is told which tokens only fill up a shorter text."""
    config: Any = root.config
    if config.pad_token_id != 0:
        raise ModelError(
            f"{type(root).__name__} fills up shorter texts with another token than 0, which texts are filled up with",
            given=f"pad_token_id={config.pad_token_id}",
            accepted="pad_token_id=0",
        )
    return {"input_ids": x, "attention_mask": (x != 0).long()}


HF_BERT = Family(
    name="HF BERT",
    source="hf",
    roots=("transformers.models.bert.modeling_bert.BertModel",),
    blocks="encoder.layer.*",
    block_classes=("BertLayer",),
    sites={
        "resid.in": Site("{block}", "in"),
        "attn.q": Site("{block}.attention.self.query"),
        "attn.k": Site("{block}.attention.self.key"),
        "attn.v": Site("{block}.attention.self.value"),
        "attn.out": Site("{block}.attention.output.dropout"),
        "resid.mid": Site("{block}.attention.output.LayerNorm"),
        "mlp.hidden": Site("{block}.output.dense", "in"),
        "mlp.out": Site("{block}.output.dropout"),
        "resid.out": Site("{block}"),
    },
    width="output.LayerNorm.weight",
    mlp=("intermediate", "output.dense"),
    norms=("attention.output.LayerNorm", "output.LayerNorm"),
    normed_stream=True,
    attn="attention",
    heads=("attention.self.num_attention_heads",),
    head=("cls", "classifier", "qa_outputs"),
    modality="text",
    prepare=_ids_without_padding,
    examples=("hf:google-bert/bert-base-uncased", "hf:sentence-transformers/all-MiniLM-L6-v2"),
)
