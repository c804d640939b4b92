"""All units as tables for other programs: parquet and JSON."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vitreous.provenance import json_bytes

if TYPE_CHECKING:
    from vitreous.site.several import Gathered

LEFT_OUT = ("heat",)  # for the eye, not for a table


def downloads(gathered: Gathered) -> Iterator[tuple[str, str, bytes]]:
    """(label, path below the site, bytes) of each file."""
    columns = {key: values for key, values in gathered.columns.items() if key not in LEFT_OUT}
    names = [name for name, _, _ in gathered.models]
    columns["model"] = [names[k] for k in columns["model"]]
    pictures = gathered.picture_names
    columns["top"] = [pictures[k] for k in columns["top"]]
    yield "All units (parquet)", "downloads/units.parquet", parquet(columns)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    yield "All units (JSON)", "downloads/units.json", json_bytes(rows)


def parquet(columns: dict[str, list]) -> bytes:
    """A table of one row a unit; the types do not depend on what happens to be missing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"score": pa.float64(), "ms": pa.float64(), "control": pa.float64(), "dead": pa.bool_()}
    kinds |= {name: pa.int64() for name in ("block", "unit", "subunits", "cluster")}
    kinds |= {"sublabels": pa.list_(pa.string())}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in columns])
    values = columns | {"dead": [bool(v) for v in columns["dead"]]}
    file = io.BytesIO()
    pq.write_table(pa.table(values, schema=schema), file, compression="zstd")
    return file.getvalue()
