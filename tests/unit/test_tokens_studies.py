"""Parts of the token studies that could quietly go wrong: thresholds, sizes, log-probabilities, and the quick runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "studies"))


def test_otsu_cuts_between_two_heaps():
    from tokens_cuts import otsu

    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(0, 0.3, 900), rng.normal(5, 0.3, 100)])
    assert 1.2 < otsu(values) < 3.8


def test_pixels_are_cut_by_colour_where_asked_and_by_place_otherwise():
    from tokens_cuts import by_pixels
    from tokens_inputs import Shown

    pixels = np.zeros((60, 80, 3), np.uint8)
    pixels[::, 20:40] = 255  # a stripe off the middle
    shown = Shown("a", Image.fromarray(pixels))
    cut = by_pixels(shown, [2], colour=True)[2]
    assert cut.shape == (60, 80) and (cut[:, 25:35] != cut[0, 0]).all() and (cut[:, 50:] == cut[0, 0]).all()
    place = by_pixels(shown, [2], colour=False)[2]
    assert abs((place == place[0, 0]).mean() - 0.5) < 0.1


@pytest.mark.parametrize(("size", "grid"), [((481, 321), (7, 10)), ((321, 481), (10, 7)), ((300, 300), (8, 8))])
def test_grids_have_the_shape_of_the_picture(size, grid):
    from timm.models.vision_transformer import VisionTransformer

    from tokens_inputs import size_for

    module = VisionTransformer(
        img_size=28, patch_size=14, embed_dim=32, depth=1, num_heads=4, num_classes=0, dynamic_img_size=True
    )
    subject = vt.wrap(module.eval(), name="dinov2s_saliency")
    found = size_for(subject, Image.new("RGB", size), 70)
    assert subject.grid(found) == grid
    other = vt.wrap(module, name="another")
    assert size_for(other, Image.new("RGB", size), 70) == (28, 28)


def test_methods_are_compared_in_the_same_pictures():
    """Pictures differ more than methods do: apart the intervals overlap, in pairs the difference is sure."""
    from tokens_segments import paired, table_of_pairs

    easy = np.linspace(0.1, 0.9, 9)
    shifts = {"tokens, sum": 0.0, "better": 0.03, "as good": np.where(np.arange(9) % 2, 0.03, -0.03)}
    shifts |= {"tokens, unit sum": 0.02, "tokens, learned": 0.05}
    result = {
        name: {"per image": {"mIoU of each": (easy + by).tolist()}, "over the data set": {}}
        for name, by in shifts.items()
    }
    paired(result)
    value, low, high = result["better"]["per image"]["mIoU more than the sum"]
    assert value == pytest.approx(0.03) and low == pytest.approx(0.03) and high == pytest.approx(0.03)
    assert table_of_pairs(result)[2] == "| better | **+3.0 [+3.0, +3.0]** |"
    assert "**" not in table_of_pairs(result)[3] and len(table_of_pairs(result)) == 7
    assert table_of_pairs(result)[-1] == "| tokens, learned, more than the unit sum | **+3.0 [+3.0, +3.0]** |"


def test_a_method_is_measured_again_beside_the_others_of_the_same_pictures(tmp_path):
    from tokens_segments import REFERENCE, TAUGHT, write

    def scores(value):
        return {"per image": {"mIoU": [value] * 3, "accuracy": [value] * 3, "mIoU of each": [value - 0.1, value + 0.1]}}

    old = {REFERENCE: scores(0.4), "kept before": {"per image": {"mIoU": [0.3] * 3, "accuracy": [0.3] * 3}}}
    write(tmp_path, "net", "pets", 2, 12, old | {TAUGHT: scores(0.5)})
    write(tmp_path, "net", "pets", 2, 128, {TAUGHT: scores(0.7)}, partly=True)
    page = (tmp_path / "tokens_segments.md").read_text()
    assert "2 pictures; w was learned from 128." in page and "| kept before | 30.0 [30.0, 30.0]" in page
    assert f"| {TAUGHT} | **+30.0 [+30.0, +30.0]** |" in page and "| kept before | +" not in page
    write(tmp_path, "net", "pets", 2, 999, {REFERENCE: scores(0.6)}, partly=True)  # w is not learned anew
    page = (tmp_path / "tokens_segments.md").read_text()
    assert "learned from 128." in page and f"| {TAUGHT} | **+10.0 [+10.0, +10.0]** |" in page
    with pytest.raises(SystemExit, match="nothing was measured on 3 pictures of pets with net"):
        write(tmp_path, "net", "pets", 3, 128, {TAUGHT: scores(0.7)}, partly=True)


def test_what_was_computed_is_kept_whole_or_not_at_all(tmp_path):
    from tokens_inputs import kept

    def killed():
        raise KeyboardInterrupt

    path = tmp_path / "deep" / "a, b.npz"
    with pytest.raises(KeyboardInterrupt):
        kept(path, killed)
    assert kept(path, lambda: {"x": np.arange(3)})["x"].tolist() == [0, 1, 2]
    assert kept(path, killed)["x"].tolist() == [0, 1, 2] and [p.name for p in path.parent.iterdir()] == ["a, b.npz"]


@pytest.mark.data
def test_w_is_learned_from_pictures_that_nothing_is_measured_on(data_root):
    from tokens_inputs import COLLECTIONS, unmeasured

    assert "imagenet_sample" not in COLLECTIONS
    few, more = unmeasured(data_root, 2), unmeasured(data_root, 3)
    assert len(more) == 3 and all(np.array_equal(a, b) for a, b in zip(few, more, strict=False))
    with pytest.raises(SystemExit, match="from 1 to 1000 pictures, not from 1001"):
        unmeasured(data_root, 1001)


def test_areas_are_means_over_pictures_and_compared_in_the_same_ones():
    """Tokens of one picture are no samples of their own: three pictures of ten tokens each give three numbers."""
    from tokens_perturbation import TOKENS, area, areas_of, table_areas

    pictures = np.repeat([0.2, 0.5, 0.8], TOKENS)
    shares = np.linspace(0, 1, 5)

    def drawn(shift):
        return {"shares": shares} | {
            kind: np.repeat(pictures[:, None] + shift, 5, 1) for kind in ("deletion", "insertion")
        }

    assert area(shares, drawn(0)["deletion"]) == pytest.approx([0.2, 0.5, 0.8])
    found = areas_of({"tokens, sum": drawn(0), "worse": drawn(0.1)})
    assert found["worse"]["pictures"] == 3 and found["worse"]["deletion"]["value"] == pytest.approx(0.6)
    assert found["worse"]["deletion"]["high"] - found["worse"]["deletion"]["low"] > 0.4
    gap = found["worse"]["deletion, more than the sum"]
    assert gap["low"] == pytest.approx(0.1) and gap["high"] == pytest.approx(0.1)
    lines = table_areas(found)
    assert lines[0] == "3 pictures." and "**+0.100 [+0.100, +0.100]**" in lines[-1] and "**" not in lines[-2]


def test_blocks_are_compared_with_the_one_before_and_other_maps_with_the_sum():
    from tokens_layers import BLOCKS, TAUS, pairs
    from vitreous.evidence.itiou import InitialTokenIoU

    def scored(value):
        images = np.full((4, len(TAUS)), value)
        images[:, 0] += 0.5  # the best threshold
        return InitialTokenIoU(np.array(TAUS), images, np.zeros(4), np.ones(4, int))

    found = {f"objects, block {b}": scored(0.01 * b) for b in BLOCKS} | {"objects, energy": scored(0.2)}
    assert pairs(found, "objects, block 0") == {}
    steps = pairs(found, "objects, block 11")
    assert steps["more than the block before, at 0.2"] == pytest.approx([0.02] * 3)
    others = pairs(found, "objects, energy")
    assert set(others) == {"more than the sum, at 0.2", "more than the sum, at best"}
    assert others["more than the sum, at best"] == pytest.approx([0.09] * 3)


def test_tables_are_put_between_their_marks_and_words_stay(tmp_path):
    from tokens_inputs import put_tables

    page = tmp_path / "page.md"
    put_tables(page, {"a": ["| 1 |"], "b, c": ["| 2 |"]})
    page.write_text("# Words\n\n" + page.read_text())
    put_tables(page, {"a": ["| \\1 |"], "new": ["| 3 |"]})
    text = page.read_text()
    assert text.startswith("# Words") and "| \\1 |" in text and "| 1 |" not in text
    assert "| 2 |" in text and text.index("<!-- table: new -->") < text.index("| 3 |")


@pytest.fixture
def llama() -> vt.Subject:
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                max_position_embeddings=32,
            )
        )  # fmt: skip
    return vt.wrap(module.eval(), name="a small llama")


def test_the_log_probability_of_a_summary_is_that_of_its_words_one_by_one(llama):
    from tokens_language import Read, log_probability

    text = Read((1, 7, 9, 30, 12, 5), (8, 2, 33))
    kept = [np.arange(6), np.array([0, 2, 3]), np.array([0, 1, 2, 4, 5])]
    found = log_probability(llama, text, kept, batch=2)
    for part, value in zip(kept, found, strict=True):
        ids, total = [text.context[k] for k in part], 0.0
        for word in text.summary:
            with torch.no_grad():
                total += float(llama(torch.tensor([ids]))[0, -1].log_softmax(-1)[word])
            ids.append(word)
        assert value == pytest.approx(total, abs=1e-4)


def test_scores_are_of_the_context_and_words_that_were_asked_are_not_asked_again(llama, monkeypatch):
    import tokens_language
    from tokens_language import SCORES, Asked, Read

    text = Read((1, 7, 9, 30, 12, 5), (8, 2, 33))
    for name, score in SCORES.items():
        if "middle" not in name:  # there are two blocks here
            found = score(llama, text)
            assert found.shape == (6,) and np.isfinite(found).all(), name
    asked, kept = Asked(llama), [np.arange(6), np.array([0, 1, 4])]
    first = asked(text, kept)
    assert len(asked.known) == 2
    asked_of = []

    def watched(subject, text, kept):
        asked_of.extend(kept)
        return [-1.0] * len(kept)

    monkeypatch.setattr(tokens_language, "log_probability", watched)
    assert asked(text, kept) == first and not asked_of
    assert asked(text, [*kept, np.array([0, 2])]) == [*first, -1.0] and len(asked_of) == 1


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("study", ["segments", "perturbation", "layers", "depth", "language"])
def test_studies_run_in_short(study, data_root, tmp_path):
    script = ROOT / "studies" / f"tokens_{study}.py"
    command = [sys.executable, script, "--data", data_root, "--work", tmp_path / "work", "--out", tmp_path, "--quick"]
    subprocess.run([str(part) for part in command], check=True)
    assert (tmp_path / f"tokens_{study}.md").stat().st_size > 200
