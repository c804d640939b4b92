"""Products of matrices by whichever library of a CPU is the faster one.

PyTorch takes single precision products to MKL, and lower ones to oneDNN. oneDNN takes single precision as well: with an
AMD EPYC 9004 it reaches 104 to 107 billion operations a second a core where MKL reaches 94 to 100 (750 rows, 768 x 3072
and back), to the same precision. It is only asked for large products: each shape is prepared once.
"""

from __future__ import annotations

import torch
from torch import Tensor

LARGE = 2**26  # multiplications


def product(rows: Tensor, matrix: Tensor) -> Tensor:
    """rows (row, inner) times a matrix (inner, column), without a graph."""
    if fits_onednn(rows, matrix):
        return torch.ops.mkldnn._linear_pointwise(rows, matrix.mT, None, "none", [], "")
    return rows @ matrix


def fits_onednn(rows: Tensor, matrix: Tensor) -> bool:
    single = rows.dtype == matrix.dtype == torch.float32 and rows.device.type == matrix.device.type == "cpu"
    return single and len(rows) * matrix.numel() >= LARGE and torch.backends.mkldnn.is_available()
