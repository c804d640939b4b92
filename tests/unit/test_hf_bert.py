"""BERT: padding is masked, the stream goes through the norms, and a replaced middle is what both branches get."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import vitreous as vt
from vitreous.errors import ModelError
from vitreous.models.hf_bert import HF_BERT

SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "vocab_size": 30,
    "initializer_range": 0.5,
}


@pytest.fixture
def module():
    from transformers import BertConfig, BertModel

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return BertModel(BertConfig(**SMALL)).eval()


def test_padding_changes_nothing_for_the_tokens_before_it(module, tmp_path):
    subject = vt.wrap(module)
    rows = [[5, 7, 9], [5, 7, 9, 11, 13, 2]]
    texts = vt.TextSet.from_ids(rows)
    store = vt.record(subject, texts, "blocks.*.resid.out", tmp_path / "s", dtype="float32", progress=False)
    stored = np.asarray(store["blocks.1.resid.out"][:])
    for k, row in enumerate(rows):
        with torch.no_grad(), vt.capture(subject, "blocks.1.resid.out") as rec:
            subject(torch.tensor([row]))
        np.testing.assert_allclose(stored[k, : len(row)], rec["blocks.1.resid.out"][0], rtol=1e-4, atol=1e-5)


def test_without_the_mask_padding_would_matter(module):
    alone, filled = torch.tensor([[5, 7, 9]]), torch.tensor([[5, 7, 9, 0, 0]])
    with torch.no_grad():
        plain = module(input_ids=filled).last_hidden_state[:, :3]
        assert (plain - module(input_ids=alone).last_hidden_state).abs().max() > 0.1


def test_an_encoder_with_other_padding_is_refused_by_name():
    from transformers import RobertaConfig, RobertaModel

    with pytest.raises(ModelError, match="RobertaModel fills up shorter texts with another token than 0") as error:
        vt.wrap(RobertaModel(RobertaConfig(**{**SMALL, "max_position_embeddings": 40})).eval())
    assert "pad_token_id=1" in str(error.value)


def test_the_identity_needs_the_norms(module):
    with pytest.raises(ModelError, match="not its residual stream"):
        vt.wrap(module, family=replace(HF_BERT, normed_stream=False))
    identity = vt.check_laws(vt.wrap(module))[2]
    assert identity.says == "norm(norm(resid.in + attn.out) + mlp.out) = resid.out"
    assert identity.value == 0


@torch.no_grad()
def test_a_replaced_middle_reaches_mlp_and_skip_exactly(module):
    subject = vt.wrap(module)
    block = module.encoder.layer[1]
    x = torch.tensor([[5, 7, 9, 11]])
    new = torch.randn(1, 4, 16, generator=torch.Generator().manual_seed(1))
    with vt.patch(subject, {"blocks.1.resid.mid": lambda _: new}), vt.capture(subject, "blocks.1.resid.out") as rec:
        subject(x)
    assert torch.equal(rec["blocks.1.resid.out"], block.output(block.intermediate(new), new))
