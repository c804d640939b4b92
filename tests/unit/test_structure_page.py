"""A structure finding as a page, from the library and from the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import vitreous as vt
from vitreous.cli import app
from vitreous.errors import SettingsError
from vitreous.lenses.structure import StructureFinding
from vitreous.views.structure_page import look_at, structure_overview, structure_sections

sys.path.insert(0, str(Path(__file__).parent))
from test_report import _parsed
from test_structure_views import planted


def run(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Two recordings of a random ViT with different weights, 128 scenes each, and one without the residual stream."""
    import torch
    from timm.models.vision_transformer import VisionTransformer

    folder = tmp_path_factory.mktemp("stores")
    images = vt.scenes(128, size=32, seed=0)
    made = {}
    for seed, name in enumerate(("one", "two")):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            module = VisionTransformer(img_size=32, patch_size=8, embed_dim=16, depth=3, num_heads=2, num_classes=0)
        size = vt.Size(32, 32)
        subject = vt.wrap(module.eval(), name=name, preprocess=vt.Preprocess(size, size))
        made[name] = vt.record(subject, images, "blocks.*.resid.out", folder / name, progress=False)
    made["hidden"] = vt.record(subject, images, "blocks.0.mlp.hidden", folder / "hidden", progress=False)
    return made


# -- the page


def test_a_report_holds_the_page_the_finding_and_where_they_come_from(stores, tmp_path):
    finding = vt.structure(stores["one"], tokens=[0, 1], threshold=3, keep_transformed=True, progress=False)
    page = vt.structure_report({"mine": finding}, tmp_path, sources={"mine": stores["one"]}, progress=False)
    assert {p.name for p in tmp_path.iterdir()} == {"report.html", "run.json", "finding.npz"}
    html = page.read_text()
    _parsed(html)
    for part in ("Units that do the same job: mine", "block 2", "Differences", "From activations to grouped ranks"):
        assert part in html
    assert "hide heat maps" not in html  # there are none
    again = StructureFinding.load(tmp_path / "finding.npz")
    np.testing.assert_array_equal(again.labels, finding.labels)
    assert again.transformed is None
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["status"] == "done"
    assert record["settings"]["mine"]["tokens"] == [0, 1]
    assert record["inputs"]["mine, data"] == stores["one"].manifest.data["fingerprint"]
    assert record["notes"]["clusters"]["mine"] == len(finding.sizes)


def test_the_same_finding_gives_the_same_page(stores, tmp_path):
    finding = vt.structure(stores["one"], tokens=[0], keep_transformed=True, progress=False)
    pages = [vt.structure_report({"a": finding}, tmp_path / name, progress=False) for name in ("x", "y")]
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_a_finding_on_its_own_has_tables_and_no_pictures():
    looked = look_at({"a": vt.structure(planted(), progress=False)}, {})
    assert [section.name for section in structure_sections(looked)] == ["clusters", "layers", "reading"]
    raw = look_at({"a": vt.structure(planted(), transform="raw", keep_transformed=True, progress=False)}, {})
    assert "differences" in [section.name for section in structure_sections(raw)]


@pytest.mark.parametrize(
    ("transform", "said"),
    [("raw", "values are taken as they are. Two units are joined if their values differ by less than 0.2 on average"),
     ("rank", "replaced by their ranks over the samples. Two units are joined if their ranks differ"),
     ("normalised_raw", "brought to mean 0 and deviation 1 over the samples. Two units are joined if their values")],
)  # fmt: skip
def test_the_page_says_what_was_compared_and_needs_no_bins_for_it(transform, said, tmp_path):
    x = planted()[:60]  # fewer samples than bins
    finding = vt.structure(x, transform=transform, threshold=0.2, progress=False)
    html = vt.structure_report({"a": finding}, tmp_path, sources={"a": x}, progress=False).read_text()
    assert said in html and f"transform {transform}, threshold 0.2" in html
    assert "100 bins" not in html and "From activations to grouped ranks" not in html


def test_what_is_said_follows_from_the_numbers():
    planted_copies = vt.structure(planted(), progress=False)
    nothing = vt.structure(np.random.default_rng(0).normal(size=(200, 3, 1, 4)).astype(np.float32), progress=False)
    said = [s.text for s in structure_overview(look_at({"a": planted_copies, "b": nothing}, {})).statements]
    assert said[0] == "a: 10 of 40 units in 2 clusters; b: no two units alike."
    assert said[1].startswith("a: 2 of 2 clusters reach over several layers, and 1 are one unit")
    assert said[1].endswith("1 have a gap: what they do vanishes and comes back.")
    assert "a has the most doubles in layer 0: 87.5% of its units are different" in said[2]
    assert "in b no layer does a job twice" in said[2]
    facts = [f.value for f in structure_overview(look_at({"a": planted_copies}, {})).numbers]
    assert facts == ["25.0%", "6", "1"]


def test_models_of_different_depth_share_a_page():
    looked = look_at(
        {"a": vt.structure(planted(), progress=False), "b": vt.structure(planted()[:, :3], progress=False)}, {}
    )
    curves = structure_sections(looked)[1].groups[0].panels
    assert [len(curve.x) for curve in curves] == [5, 5, 3, 3]


def test_a_source_without_a_finding_is_refused(tmp_path):
    with pytest.raises(SettingsError, match="every source belongs to a finding"):
        vt.structure_report({"a": vt.structure(planted(), progress=False)}, tmp_path, sources={"b": planted()})
    with pytest.raises(SettingsError, match="every source belongs to a finding"):
        vt.structure_report({}, tmp_path)


def test_another_store_is_not_taken_for_the_one_of_the_finding(stores, tmp_path):
    finding = vt.structure(stores["one"], tokens=[0], progress=False)
    with pytest.raises(SettingsError, match="not the one of the finding"):
        vt.structure_report({"a": finding}, tmp_path, sources={"a": stores["hidden"]}, progress=False)


# -- the command


def test_the_command_prints_what_the_function_finds(stores):
    shown = run("structure", stores["one"].path, "--threshold", 3)
    assert shown.exit_code == 0, shown.output
    finding = vt.structure(stores["one"], tokens=[0, 1, 2], threshold=3, progress=False)
    assert "one: tokens 0, 1 and 2 of 17; --tokens chooses others" in shown.stderr
    lines = {line.split("  ")[0]: line.split() for line in shown.stdout.splitlines() if line.strip()}
    assert lines["clusters"][-1] == str(len(finding.sizes))
    assert lines["block 1"][-2:] == [f"{finding.differences[1]:.2f}", str(finding.counts[1])]
    assert lines["largest cluster"][-1] == str(finding.largest)


def test_the_command_takes_layers_tokens_and_settings(stores):
    asked = (
        "--layers",
        "0,-1",
        "--tokens",
        "0,5",
        "--bins",
        50,
        "--transform",
        "grouped_rank",
        "--no-keep-nearly-dead",
    )
    facts = json.loads(run("structure", stores["one"].path, *asked, "--json").stdout)["findings"]["one"]
    assert facts["layers"] == ["blocks.0.resid.out", "blocks.2.resid.out"]
    assert facts["tokens"] == [0, 5]
    assert facts["units"] == 2 * 2 * 16
    assert facts["settings"]["bins"] == 50 and facts["settings"]["keep_nearly_dead"] is False
    every = json.loads(run("structure", stores["one"].path, "--tokens", "all", "--json").stdout)["findings"]["one"]
    assert len(every["tokens"]) == 17


def test_the_command_compares_and_writes(stores, tmp_path):
    done = run("structure", stores["one"].path, "--compare", stores["two"].path, "--out", tmp_path, "--json")
    assert done.exit_code == 0, done.output
    assert str(tmp_path / "report.html") in done.stderr
    facts = json.loads(done.stdout)
    assert list(facts["findings"]) == ["one", "two"]
    assert [row["name"] for row in facts["comparison"]["sizes"]] == ["Kolmogorov-Smirnov", "Mann-Whitney U"]
    assert len(facts["comparison"]["layers"]) == 3
    assert {p.name for p in tmp_path.iterdir()} == {"report.html", "run.json", "finding.npz", "finding-2.npz"}
    assert "Is the difference real?" in (tmp_path / "report.html").read_text()
    text = run("structure", stores["one"].path, "--compare", stores["one"].path)
    assert "neither larger" in text.stdout  # nothing differs from itself


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tokens", "0,17"], "no such token"),
        (["--tokens", "few"], "tokens are 'all' or numbers"),
        (["--layers", "3"], "no such layer"),
        (["--layers", "0"], "two or more"),
        (["--layers", "0-2"], "layers are 'all' or numbers"),
        (["--bins", "500"], "bins out of range"),
        (["--bins", "200"], "fewer samples than bins"),
        (["--threshold", "0"], "threshold must be positive"),
        (["--transform", "ranks"], "nearest:  rank"),
        (["--compare", "nowhere"], "nowhere"),
    ],
)
def test_what_is_refused_is_a_message_and_status_2(stores, arguments, message):
    result = run("structure", stores["one"].path, *arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_a_folder_that_is_no_store_and_a_store_without_the_stream_are_refused(stores, tmp_path):
    (tmp_path / "notes.txt").write_text("no store")
    for path, message in ((tmp_path, "manifest"), (stores["hidden"].path, "no blocks.*.resid.out")):
        result = run("structure", path)
        assert result.exit_code == 2, result.output
        assert message in result.stderr and "Traceback" not in result.output
