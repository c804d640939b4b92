"""The laws of a family, over the whole table. A new row gets them for free, and is refused without a variant here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import vitreous as vt
from vitreous.laws import example_input
from vitreous.models.families import FAMILIES

sys.path.insert(0, str(Path(__file__).parent))
from zoo import ZOO, build

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", params=list(ZOO))
def case(request):
    family, _, prefix, patches = ZOO[request.param]
    return vt.wrap(build(request.param)), family, prefix, patches


def test_every_row_of_the_table_has_a_variant():
    assert {row.name for row in FAMILIES} == {family for family, *_ in ZOO.values()}


def test_the_laws_hold(case):
    subject, *_ = case
    broken = [law for law in vt.check_laws(subject) if not law.holds]
    assert not broken, broken


def test_the_subject_is_read_from_the_module(case):
    subject, family, prefix, patches = case
    assert subject.family.name == family
    assert len(subject.prefix) == prefix
    if subject.modality == "image":
        assert subject.grid().patches == patches
    assert subject.width == 32
    assert subject.heads == (4 if subject.family.attention else None)
    assert subject.depth == (3 if subject.family.attention else 5)
    assert (subject.norm is None) == subject.family.normed_stream
    modules = dict(subject.module.named_modules())
    for block in subject.blocks:
        parts = (*block.mlp, *block.norms, *([block.attn] if block.attn else []), block.second_linear)
        assert all(part.startswith(block.path) and part in modules for part in parts), parts
        assert type(modules[block.second_linear]).__name__ in ("Linear", "Conv2d", "Conv1D")
        assert len(block.norms) == (2 if subject.family.attention else 1)


def test_all_names_are_the_same(case):
    subject, *_ = case
    inner = {name.split(".", 2)[2] for name in subject.sites}
    full = {"resid.in", "resid.mid", "resid.out", "attn.pattern", "attn.out", "mlp.hidden", "mlp.out"}
    if not subject.family.attention:
        full = {"resid.in", "resid.out", "mlp.hidden", "mlp.out"}
    assert inner - {"attn.q", "attn.k", "attn.v"} == full
    assert len(subject.sites) == subject.depth * len(inner)


@torch.no_grad()
def test_shapes(case):
    subject, _, prefix, patches = case
    x = example_input(subject)
    with vt.capture(subject, subject.sites) as rec:
        subject(x)
    last = [name for name in subject.sites if name.startswith(f"blocks.{subject.depth - 1}.")]
    for name in last:
        if name.endswith("attn.pattern"):
            assert rec[name].shape == (2, 4, prefix + patches, prefix + patches)
        else:
            assert rec[name].shape[:2] == (2, prefix + patches), name
        if ".resid." in name or name.endswith(".out"):
            assert rec[name].shape[2] == 32


@torch.no_grad()
def test_replacing_by_the_same_values_changes_nothing_and_by_others_does(case):
    subject, *_ = case
    x = example_input(subject)
    y = subject(x)
    for name in (n for n in subject.sites if n.startswith("blocks.1.")):
        with vt.patch(subject, {name: lambda value: value}):
            assert torch.equal(subject(x), y), name
        with vt.patch(subject, {name: lambda value: value.clone()}):
            torch.testing.assert_close(subject(x), y, rtol=1e-3, atol=1e-5, msg=name)
        with vt.patch(subject, {name: lambda value: value.flip(1) * 2}):
            assert not torch.allclose(subject(x), y, rtol=1e-6, atol=1e-8), name
    assert torch.equal(subject(x), y)


@torch.no_grad()
def test_a_replaced_middle_is_what_the_block_goes_on_with(case):
    subject, *_ = case
    if not subject.family.attention:
        pytest.skip("no resid.mid without attention")
    x = example_input(subject)
    with vt.patch(subject, {"blocks.1.resid.mid": lambda v: v * 0.5}), vt.capture(subject, "blocks.1.resid.*") as rec:
        subject(x)
    with vt.capture(subject, ["blocks.1.resid.mid", "blocks.1.mlp.out"]) as plain:
        subject(x)
    torch.testing.assert_close(rec["blocks.1.resid.mid"], plain["blocks.1.resid.mid"] * 0.5, rtol=1e-4, atol=1e-6)


def test_the_table_in_the_documentation_is_the_one_that_holds():
    """docs/families.md lists exactly the variants that run here (`make docs` writes its numbers)."""
    page = (ROOT / "docs" / "families.md").read_text()
    rows = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")]
    assert [row for row in rows if row in ZOO] == list(ZOO)
