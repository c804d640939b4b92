"""What every finding can do, asked of one."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as parquet

from vitreous.finding import Finding


def leaves_as_a_table(finding: Finding, folder: Path) -> None:
    """The same rows as a data frame and as parquet, with the facts."""
    frame = finding.to_pandas()
    assert len(frame) and len(frame.columns) > 1
    table = parquet.read_table(finding.to_parquet(folder / "deep" / "table.parquet"))
    assert table.num_rows == len(frame) and table.column_names == list(frame.columns)
    about = json.loads(table.schema.metadata[b"vitreous"])
    assert about["kind"] == type(finding).__name__ and about["facts"]


def shows_itself(finding: Finding) -> None:
    """In a notebook: its name, its facts, its pictures, its first rows; no script, nothing from the network."""
    page = finding._repr_html_()
    assert type(finding).__name__ in page and "<script" not in page and "http" not in page
    assert page.count("<table>") == page.count("</table>") == 2
    assert page.count("data:image/png") == len(finding.thumbnails()[:6])
