"""The universal space as bytes for the map: a JSON head that says what follows, then plain arrays."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import numpy as np

from vitreous.site.cloud import cloud_arrays

if TYPE_CHECKING:
    from vitreous.examination import Examination

ALIGNED = 8  # bytes: arrays begin at a multiple, so that they can be read in place


def cloud_bytes(examination: Examination) -> bytes:
    """Four bytes little-endian: length of the head. The head: what `cloud.js` holds, and where each array lies."""
    head, arrays = cloud_arrays(examination)
    parts, listed, offset = [], [], 0
    for name, array in arrays.items():
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        data = little.tobytes()
        listed.append({"name": name, "dtype": array.dtype.name, "offset": offset, "bytes": len(data)})
        padding = -len(data) % ALIGNED
        parts += [data, b"\0" * padding]
        offset += len(data) + padding
    said = json.dumps({**head, "arrays": listed}, allow_nan=False).encode()
    said += b" " * (-(len(said) + 4) % ALIGNED)
    return struct.pack("<I", len(said)) + said + b"".join(parts)
