"""Kernels are made into machine code here, without a GPU: the interpreter forgives what the compiler refuses."""

import pytest

triton = pytest.importorskip("triton")
compiler = pytest.importorskip("triton.compiler")
backend = pytest.importorskip("triton.backends.compiler")

from vitreous.kernels import triton_pairs, triton_tokens  # noqa: E402

HALF = "*bf16"
ATTENTION = {"go": HALF, "A": HALF, "V": HALF, "sums": "*fp32", "out": HALF}
KERNELS = {
    "rows": (triton_tokens._rows, ATTENTION | {"K": HALF, "AV": HALF, "before": "*fp32", "added": "*fp32"}),
    "columns": (triton_tokens._columns, ATTENTION | {"Q": HALF}),
    "times": (triton_tokens._times, {"hidden": HALF, "by": HALF}),
    "onto": (triton_tokens._onto, dict.fromkeys(("out", "g", "y", "unit", "inverse"), HALF)),
    "join": (triton_pairs._join, {"rows": "*u8", "squared": "*i32", "parent": "*i64"}),
}
FIXED = {"TILE": 64, "SIZE": 64, "PRECISION": "tf32", "SEEDS": 8, "ACROSS": 1024, "WIDTH": 1024, "SCALED": True}
FIXED |= {"COLUMNS": 64, "STEP": 256}


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_compiles_for_a_gpu(name, monkeypatch):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # newer releases warn where this is left open
    kernel, pointers = KERNELS[name]
    names = kernel.arg_names
    fixed = {key: value for key, value in FIXED.items() if key in names}
    kinds = {key: pointers.get(key, "constexpr" if key in fixed else "i32") for key in names}
    constants = {(names.index(key),): value for key, value in fixed.items()}
    source = compiler.ASTSource(fn=kernel, signature=kinds, constexprs=constants)
    made = triton.compile(source, target=backend.GPUTarget("cuda", 90, 32))
    assert len(made.asm["ptx"]) > 1000
