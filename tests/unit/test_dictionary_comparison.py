"""Ways to take a layer apart, side by side: what a row measures, runs that were killed, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from shown import leaves_as_a_table, shows_itself
from torch import nn

import vitreous as vt
from vitreous.dictionary_comparison import hold_out
from vitreous.dictionary_comparison import methods as ways
from vitreous.dictionary_comparison.activations import outputs, same_start
from vitreous.dictionary_comparison.methods import Bench
from vitreous.dictionary_comparison.result import COLUMNS
from vitreous.dictionary_comparison.rows import read_row, save_row
from vitreous.dictionary_comparison.settings import Settings
from vitreous.dictionary_comparison.tapped import put_rows, rows_of, swapped, tapped
from vitreous.errors import SettingsError, StoreError
from vitreous.evidence.monosemanticity import monosemanticity
from vitreous.evidence.stability import effective_rank
from vitreous.subunits.layers import find_layer

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))

SITE = "blocks.-1.mlp.out"
METHODS = ("backbone", "topk", "transcoder", "elude", "random_partition", "any_samples")
JUDGE = np.random.default_rng(5).normal(size=(10, 4)).astype(np.float32)
QUICK = {
    "methods": METHODS, "expansion": 2, "tokens": 6, "steps": 8, "batch_size": 64, "k": 4, "min_cluster_size": 4,
    "top_k": 60, "progress": False,
}  # fmt: skip


def model(classes: int = 7) -> vt.Subject:
    from timm.models.vision_transformer import VisionTransformer

    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = VisionTransformer(
            img_size=32, patch_size=8, embed_dim=16, depth=2, num_heads=2, num_classes=classes, init_values=0.5
        )
    return vt.wrap(module.eval(), name="small")


def some_pictures(count: int = 40, classes: int = 7, seed: int = 0) -> vt.ImageSet:
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    pixels = rng.integers(0, 256, (count, 32, 32, 3), np.uint8)
    pixels[:, :16] = (labels * 30)[:, None, None, None]
    return vt.ImageSet.from_arrays(pixels, labels=labels, classes=[f"c{k}" for k in range(classes)])


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A comparison in a folder, with the model, the pictures it was measured on, and the layer's outputs there."""
    out = tmp_path_factory.mktemp("compared") / "out"
    subject, images = model(), some_pictures()
    found = vt.compare_dictionaries(subject, images, SITE, judge=JUDGE, out=out, **QUICK)
    _, held = hold_out(images, 0.25)
    path = find_layer(subject, SITE).path
    with torch.inference_mode(), vt.capture(subject, [path, f"{path}:in"]) as seen:
        logits = subject([picture.image for picture in held]).numpy()
        y, q = seen[path].numpy(), seen[f"{path}:in"].numpy()
    return found, out, subject, held, y, q, logits


def row_of(found: vt.DictionaryComparison, method: str):
    return next(row for row in found.rows if row.method == method)


def test_what_keeps_the_product_keeps_every_bit(compared):
    found, *_ = compared
    for method in ("backbone", "elude"):
        row = row_of(found, method)
        assert (row.r2, row.layer_difference, row.output_difference) == (1, 0, 0)
        assert row.accuracy == row_of(found, "backbone").accuracy
    control, dictionary = row_of(found, "random_partition"), row_of(found, "topk")
    assert 1 - 1e-9 < control.r2 <= 1 and 0 < control.layer_difference < 1e-5
    assert dictionary.r2 < 0.999 and dictionary.output_difference > 1e-3
    assert row_of(found, "any_samples").r2 is None and row_of(found, "any_samples").accuracy is None


def test_rows_are_what_the_measures_give_on_their_own(compared):
    found, out, subject, held, y, q, logits = compared
    top = found.settings["top"]
    assert top == 10
    backbone = monosemanticity(y, top=top, progress=False)
    np.testing.assert_allclose(row_of(found, "backbone").scores, backbone.scores, atol=1e-5)
    assert row_of(found, "backbone").accuracy == (logits.argmax(1) == held.labels).mean()

    topk = vt.Dictionary.load(out / "made" / "topk-0")
    with torch.no_grad():
        codes = topk.encode(y)
    row = row_of(found, "topk")
    np.testing.assert_allclose(row.scores, monosemanticity(y, codes, top=top, progress=False).scores, atol=1e-5)
    assert row.active == pytest.approx(float((codes > 0).float().mean()) * 32) and row.active <= 4
    assert row.units == 32 and row.expansion == 2 and row.scored == np.isfinite(row.scores).sum()
    assert row.effective_rank == pytest.approx(effective_rank(topk.atoms))
    residual = ((y - topk.decode(codes).numpy()) ** 2).sum() / ((y - y.mean((0, 1))) ** 2).sum()
    assert row.r2 == pytest.approx(1 - residual, abs=1e-5)

    path = find_layer(subject, SITE).path
    with torch.no_grad(), vt.patch(subject, {path: topk.reconstruct}):
        changed = subject([picture.image for picture in held]).numpy()
    assert row.output_difference == pytest.approx(np.abs(changed - logits).max(), rel=1e-4)
    assert row.accuracy == (changed.argmax(1) == held.labels).mean()

    transcoder = vt.Dictionary.load(out / "made" / "transcoder-0")
    with torch.no_grad():
        made = transcoder.reconstruct(q).numpy()
    assert row_of(found, "transcoder").layer_difference == pytest.approx(np.abs(y - made).max(), rel=1e-4)


def test_sub_units_are_those_of_the_finding_without_the_dead(compared):
    found, out, _, _, y, q, _ = compared
    finding = vt.Disentanglement.load(out / "made" / "elude-0")
    row = row_of(found, "elude")
    alive = np.flatnonzero(~finding.dead)
    assert row.units == len(alive) > 16
    parts = finding.subunit_activations(q, alive)
    np.testing.assert_allclose(row.scores, monosemanticity(y, parts, top=10, progress=False).scores, atol=1e-4)
    assert row.said["split"] == finding.expansion and row.said["min_cluster_size"] == 4
    assert row.coherence == 1  # two sub-units of one unit write the same
    assert row.read_rank > row_of(found, "backbone").read_rank
    assert row_of(found, "random_partition").units == np.maximum(finding.counts, 1).sum()


def test_units_that_are_never_above_zero_have_no_score_and_are_not_shown(compared):
    from vitreous.dictionary_comparison.rows import shown_samples, strongest_samples
    from vitreous.dictionary_comparison.watch import Watched

    strongest = np.array([[-1.0, 2, 0, 1]] * 6 + [[-2, 3, 0, -1]] * 6, np.float32)
    strongest[:, 1] += np.arange(12)
    watched = Watched(None, strongest, np.zeros((12, 4), int), strongest.min(0), 1.0, np.zeros(12))
    assert strongest_samples(watched, 5).active.tolist() == [False, True, False, True]
    shown = shown_samples(watched)
    assert shown[1].tolist() == list(range(11, 2, -1))  # strongest first
    assert (shown[[0, 2, 3]] == -1).all()  # never above zero; always zero; above zero in six samples only
    weights = strongest_samples(watched, 12).weights[1]
    assert weights[0] == 1 and weights[-1] == 0 and (np.diff(weights) <= 0).all()


def test_the_judge_and_the_pairs(compared):
    found, _, _, _, y, _, _ = compared
    ranking = found.ranking
    assert set(ranking["methods"]) <= set(METHODS) and "backbone" in ranking["methods"]
    assert ranking["kind"] == "coherence judge" and any("space of the judge" in note for note in found.notes)
    assert found.values("backbone", "rate") == [ranking["rates"][ranking["methods"].index("backbone")]]
    assert sum(ranking["rates"]) == pytest.approx(len(ranking["rates"]) / 2, abs=0.05)  # some are ties
    strongest = y.max(1)
    low = y.min((0, 1))  # weights begin at the smallest activation of any token
    w = (strongest - low) / (strongest.max(0) - low)
    e = JUDGE / np.linalg.norm(JUDGE, axis=1, keepdims=True)
    e = e - e.mean(0)  # what all samples share makes no two of them alike
    e = e / np.linalg.norm(e, axis=1, keepdims=True)
    slow = (((w.T @ e) ** 2).sum(1) - (w**2).sum(0)) / (w.sum(0) ** 2 - (w**2).sum(0))
    np.testing.assert_allclose(row_of(found, "backbone").other_scores, slow, atol=1e-5)


def test_a_judge_of_places_is_asked_at_the_place():
    places = np.random.default_rng(6).normal(size=(10, 17, 5))
    asked = {**QUICK, "methods": ["backbone", "topk"]}
    found = vt.compare_dictionaries(model(), some_pictures(), SITE, judge=places, **asked)
    alike = np.broadcast_to(places[:, :1], places.shape).copy()  # every place as the first one
    of_sample = vt.compare_dictionaries(model(), some_pictures(), SITE, judge=alike, **asked)
    pooled = vt.compare_dictionaries(model(), some_pictures(), SITE, judge=places[:, 0], **asked)
    scores = [row_of(one, "topk").other_scores for one in (found, of_sample, pooled)]
    np.testing.assert_allclose(scores[1], scores[2], atol=1e-5)
    assert np.abs(scores[0] - scores[1]).max() > 0.01
    assert of_sample.ranking["rates"] == pooled.ranking["rates"]


def test_the_table_has_a_line_a_method_and_leaves_out_what_nobody_has(compared, tmp_path):
    found, out, *_ = compared
    lines = found.table().splitlines()
    assert len(found.to_pandas()) == len(found.rows)
    leaves_as_a_table(found, tmp_path)
    shows_itself(found)
    assert [line.split("  ")[0] for line in lines[1:7]] == [
        "backbone", "TopK SAE", "Transcoder", "ELUDe (ours)", "random partition", "any samples",
    ]  # fmt: skip
    assert "loss" not in lines[0] and "accuracy" in lines[0]
    again = vt.DictionaryComparison.load(out)
    assert again.table() == found.table() and json.dumps(again.as_json()) == json.dumps(found.as_json())
    assert (row_of(again, "elude").tops == row_of(found, "elude").tops).all()
    assert [c.key for c in COLUMNS if c not in found.columns] == ["loss"]


# -- runs that were killed, and folders


def without_seconds(found: vt.DictionaryComparison) -> str:
    facts = found.as_json()
    return json.dumps({**facts, "rows": [{**row, "seconds": 0} for row in facts["rows"]]})


def test_a_run_that_was_killed_goes_on_and_finished_rows_are_not_made_again(compared, tmp_path, monkeypatch):
    whole, *_ = compared
    made = []
    real = Bench.make

    def make(self, name):
        if name == "elude" and len(made) == 3:
            made.append("killed")
            raise KeyboardInterrupt
        made.append(name)
        return real(self, name)

    monkeypatch.setattr(Bench, "make", make)
    asked = {**QUICK, "judge": JUDGE, "out": tmp_path / "out"}
    with pytest.raises(KeyboardInterrupt):
        vt.compare_dictionaries(model(), some_pictures(), SITE, **asked)
    assert len(list((tmp_path / "out" / "rows").glob("*.json"))) == 3
    found = vt.compare_dictionaries(model(), some_pictures(), SITE, **asked)
    assert made == ["backbone", "topk", "transcoder", "killed", "elude", "random_partition", "any_samples"]
    assert without_seconds(found) == without_seconds(whole)
    vt.compare_dictionaries(model(), some_pictures(), SITE, **asked)
    assert len(made) == 7  # nothing to do


def test_methods_and_seeds_can_be_added_and_other_settings_cannot(tmp_path):
    subject, images, out = model(), some_pictures(), tmp_path / "out"
    asked = {**QUICK, "out": out, "methods": ["backbone", "topk"]}
    vt.compare_dictionaries(subject, images, SITE, **asked)
    found = vt.compare_dictionaries(subject, images, SITE, **{**asked, "seeds": (0, 3)})
    assert [(row.method, row.seed) for row in found.rows] == [("backbone", 0), ("topk", 0), ("topk", 3)]
    assert (
        len({*found.values("topk", "r2")}) == 2 and "±" in found.cells()[1]["R²"] and "±" not in found.cells()[0]["R²"]
    )
    with pytest.raises(StoreError, match=r"holds a comparison of something else\n  given:    \{'steps': 9\}"):
        vt.compare_dictionaries(subject, images, SITE, **{**asked, "steps": 9})
    with pytest.raises(StoreError, match="holds a comparison of something else"):
        vt.compare_dictionaries(subject, some_pictures(seed=1), SITE, **asked)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(StoreError, match="is not empty and not ours"):
        vt.compare_dictionaries(subject, images, SITE, **{**asked, "out": tmp_path / "mine"})
    with pytest.raises(StoreError, match="a comparison is a folder"):
        vt.compare_dictionaries(subject, images, SITE, **{**asked, "out": tmp_path / "mine" / "letter.txt"})
    (out / "rows" / "topk-0.json").write_text("{")
    with pytest.raises(StoreError, match="not a row that we can read"):
        vt.compare_dictionaries(subject, images, SITE, **asked)
    with pytest.raises(StoreError, match="no comparison here"):
        vt.DictionaryComparison.load(tmp_path)


def test_the_first_seed_chooses_what_is_swept_and_the_others_train_it(tmp_path, monkeypatch):
    """Section E.1: one seed is swept, and its settings are those of all."""
    trained = []
    learn = ways.train_dictionary
    monkeypatch.setattr(ways, "train_dictionary", lambda *a, **k: trained.append(k) or learn(*a, **k))
    asked = {**QUICK, "methods": ["vanilla"], "sweep": "penalty", "out": tmp_path / "out", "steps": 4}
    whole = vt.compare_dictionaries(model(), some_pictures(), SITE, **{**asked, "seeds": (0, 3)})
    first, second = (row.said for row in whole.rows)
    assert [k["seed"] for k in trained] == [3]  # the first is the winner of its sweep itself
    assert trained[0]["penalty"] == first["chosen"]["penalty"] == second["chosen"]["penalty"]
    assert first["of"] == 3 and second["chosen with seed"] == 0
    tried = json.loads((tmp_path / "out" / "made" / "vanilla-chosen.json").read_bytes())["tried"]
    assert len(tried) == 3 and {"penalty", "mse", "l0", "score"} < set(tried[0])


def test_candidates_of_a_sweep_may_be_trained_for_less(tmp_path):
    asked = {**QUICK, "methods": ["topk"], "sweep": "paper", "steps": 4}
    asked |= {"tokens": 4, "batch_size": 32, "sweep_steps": 1}
    short = vt.compare_dictionaries(model(), some_pictures(), SITE, **asked, out=tmp_path / "short")
    (row,) = short.rows
    assert row.said["of"] == 9
    given = {name: row.said["chosen"][name] for name in ("learning_rate", "dead_weight")}
    store = vt.Store.open(tmp_path / "short" / "activations-0")
    y = outputs(find_layer(model(), SITE), store[store.sites[0]])
    alone = vt.train_dictionary(
        y, "topk", expansion=asked["expansion"], k=asked.get("k"), batch_size=row.said["batch_size"],
        epochs=row.said["epochs"], seed=0, progress=False, **given,
    )  # fmt: skip
    again = vt.Dictionary.load(tmp_path / "short" / "made" / "topk-0")
    assert torch.equal(alone.atoms, again.atoms)  # the chosen one is trained for all steps


# -- accuracy


def test_accuracy_is_left_out_with_a_note_where_there_are_no_labels():
    images = some_pictures()
    bare = vt.ImageSet.from_arrays([np.asarray(picture.image) for picture in images])
    asked = {**QUICK, "methods": ["backbone", "topk"]}
    found = vt.compare_dictionaries(model(), bare, SITE, **asked)
    assert found.mean("topk", "accuracy") is None and "accuracy" not in found.table().splitlines()[0]
    assert any("has no labels: accuracy is left out" in note for note in found.notes)
    assert any("the model itself: give another one as judge" in note for note in found.notes)
    with pytest.raises(SettingsError, match="accuracy needs labels"):
        vt.compare_dictionaries(model(), bare, SITE, accuracy="probe", **asked)


def test_a_probe_reads_features_and_a_head_of_ones_own_reads_them_too():
    subject, images = model(classes=0), some_pictures(60)
    asked = {**QUICK, "methods": ["backbone", "topk"]}
    found = vt.compare_dictionaries(subject, images, SITE, **asked)
    assert found.settings["read by"] == "probe"
    train, held = hold_out(images, 0.25)
    from vitreous.evidence.faithfulness import fit_ridge_probe

    with torch.no_grad():
        x, y = (subject([picture.image for picture in part]).numpy() for part in (train, held))
    assert found.mean("backbone", "accuracy") == (fit_ridge_probe(x, train.labels).predict(y) == held.labels).mean()
    weight = torch.randn(16, 7, generator=torch.Generator().manual_seed(0))
    found = vt.compare_dictionaries(subject, images, SITE, head=lambda features: features @ weight, **asked)
    assert found.mean("backbone", "accuracy") == ((y @ weight.numpy()).argmax(1) == held.labels).mean()
    with pytest.raises(SettingsError, match="labels are numbers of the head's classes"):
        vt.compare_dictionaries(subject, images, SITE, head=lambda features: features[:, :3], **asked)
    with pytest.raises(SettingsError, match="small has no head"):
        vt.compare_dictionaries(subject, images, SITE, accuracy="head", **asked)


def test_of_a_language_model_the_next_token_is_read_and_what_all_texts_share_is_left_out():
    from zoo import build

    subject = vt.wrap(build("HF Llama"))
    rng = np.random.default_rng(0)
    lengths = rng.integers(6, 13, 40)
    texts = vt.TextSet.from_ids([[1, *rng.integers(3, 50, n - 1)] for n in lengths])
    assert same_start(texts) == 1
    found = vt.compare_dictionaries(
        subject, texts, SITE, **{**QUICK, "methods": ["backbone", "topk", "elude"], "batch_size": 32, "top_k": 60}
    )
    _, held = hold_out(texts, 0.25)
    right, surprise = [], []
    with torch.no_grad():
        for row, length in zip(held.tokens, held.lengths, strict=True):
            logits = torch.log_softmax(subject(torch.from_numpy(row[None, :length]))[0], -1)
            for at in range(1, length - 1):  # the first token is the same everywhere
                right.append(int(logits[at].argmax()) == row[at + 1])
                surprise.append(-float(logits[at, row[at + 1]]))
    assert found.mean("backbone", "accuracy") == pytest.approx(np.mean(right))
    assert found.mean("elude", "loss") == pytest.approx(np.mean(surprise), rel=1e-5)
    assert row_of(found, "elude").output_difference == 0 and found.ranking is None
    assert found.settings["made from"]["samples"] == 30
    assert any(note == "the first 1 tokens are the same in every text and left out" for note in found.notes)
    assert any("texts have no embedding" in note for note in found.notes)


def test_texts_that_are_all_alike_have_nothing_of_their_own():
    alike = vt.TextSet.from_ids([[1, 2, 3]] * 12)
    with pytest.raises(SettingsError, match="a text is empty but for what every text begins with"):
        same_start(alike)
    with pytest.raises(SettingsError, match="000002"):
        same_start(vt.TextSet.from_ids([[1, 2, 3], [1, 2, 4], [1, 2]]))
    assert same_start(vt.TextSet.from_ids([[1, 2, 3], [1, 2, 4], [1, 5]])) == 1


# -- layers


@pytest.mark.parametrize("site", ["blocks.0.attn.k", "blocks.0.attn.out", "blocks.1.mlp.fc1"])
def test_other_layers_and_parts_of_them(site):
    found = vt.compare_dictionaries(
        model(), some_pictures(), site, **{**QUICK, "methods": ["backbone", "topk", "elude", "random_partition"]}
    )
    assert found.mean("elude", "output_difference") == 0 and found.mean("elude", "r2") == 1
    assert found.mean("random_partition", "r2") > 1 - 1e-9 and found.mean("topk", "output_difference") > 1e-5


@pytest.mark.parametrize(
    ("layer", "x"), [(nn.Linear(4, 6), torch.rand(2, 3, 5, 4)), (nn.Conv2d(4, 6, 1), torch.rand(2, 4, 3, 5))]
)
def test_a_layers_outputs_are_rows_and_go_back_to_their_place(layer, x):
    from dataclasses import replace

    whole = find_layer(layer, "")
    output = layer(x).detach()
    rows = rows_of(whole, output)
    assert rows.shape == (2, 15, 6) and torch.equal(put_rows(whole, output, rows), output)
    part = replace(whole, first=2, count=3)
    new = put_rows(part, output, rows_of(part, output) + 1)
    change = (new - output).transpose(1, -1) if isinstance(layer, nn.Conv2d) else new - output
    torch.testing.assert_close(change.reshape(-1, 6).mean(0), torch.tensor([0.0, 0, 1, 1, 1, 0]))


def test_hooks_see_what_was_and_what_became_of_it_and_leave_no_trace():
    layer = nn.Linear(4, 3)
    found = find_layer(layer, "")
    with tapped(found, swapped(found, lambda q, y: (q[..., :1], 2 * y))) as (seen, codes):
        out = layer(x := torch.rand(2, 5, 4))
        assert torch.equal(seen.after, out) and torch.equal(seen.after, 2 * seen.before)
        assert torch.equal(codes(), x[..., :1])
    assert not layer._forward_hooks
    with pytest.raises(RuntimeError), tapped(found, swapped(found, lambda q, _: (q, None))):
        raise RuntimeError
    assert not layer._forward_hooks


# -- bad input


def test_no_clusters_anywhere_leave_the_backbone():
    asked = {**QUICK, "methods": ["backbone", "elude", "random_partition"], "min_cluster_size": 50}
    found = vt.compare_dictionaries(model(), some_pictures(), SITE, **asked)
    whole, split, control = (row_of(found, name) for name in asked["methods"])
    assert split.said["whole units"] == split.units == control.units == 16 and split.said["noise"] == 1
    np.testing.assert_allclose(split.scores, whole.scores, atol=1e-5)
    np.testing.assert_array_equal(split.tops, whole.tops)


def test_dead_units_and_zero_weights_are_left_out_and_break_nothing():
    subject = model()
    layer = find_layer(subject, SITE).module
    with torch.no_grad():
        layer.weight[3], layer.bias[3] = 0, 0  # never above zero
        layer.weight[5], layer.bias[5] = 0, 1  # always the same
    found = vt.compare_dictionaries(subject, some_pictures(), SITE, **QUICK)
    for method in ("backbone", "elude"):
        row = row_of(found, method)
        assert row.scored < row.units and (row.r2, row.output_difference) == (1, 0)
    assert np.isnan(row_of(found, "backbone").scores[3]) and (row_of(found, "backbone").tops[[3, 5]] == -1).all()
    assert np.isfinite(found.mean("topk", "r2"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_models_are_compared_in_their_own_precision(dtype):
    subject = model()
    half = vt.wrap(subject.module.to(dtype), name="half")
    found = vt.compare_dictionaries(half, some_pictures(), SITE, **QUICK)
    assert (found.mean("elude", "r2"), found.mean("elude", "output_difference")) == (1, 0)
    assert 0.99 < found.mean("random_partition", "r2") <= 1  # rounded to half precision on its way back
    assert all(row.ms is None or np.isfinite(row.ms) for row in found.rows)


def test_more_instances_asked_for_than_there_are():
    with pytest.raises(SettingsError, match="top_k is more than there are instances"):
        vt.compare_dictionaries(model(), some_pictures(), SITE, **{**QUICK, "methods": ["elude"], "top_k": 181})


def test_rows_are_saved_at_the_same_time(compared, tmp_path, monkeypatch):
    """A worker begins to save its row while another is in the middle of saving one."""
    found, *_ = compared
    first, second = found.rows[:2]
    write, waiting = np.savez_compressed, [second]

    def interrupted(path, **arrays):
        write(path, **arrays)
        if waiting:
            save_row(waiting.pop(), tmp_path)

    monkeypatch.setattr(np, "savez_compressed", interrupted)
    save_row(first, tmp_path)
    for row in (first, second):
        np.testing.assert_array_equal(read_row(tmp_path, row.method, row.seed).tops, row.tops)
    assert len(list(tmp_path.iterdir())) == 4


# -- what is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ["topk", "eluded"]}, "nearest:  elude"),
        ({"methods": []}, "no method to compare"),
        ({"evaluate": 1.5}, "a share of the data is held out"),
        ({"evaluate": 0.01}, "10 samples or more on each side"),
        ({"evaluate": "held"}, "samples are pictures or texts"),
        ({"evaluate": vt.TextSet.from_ids([[1, 2]] * 12)}, "small takes image"),
        ({"expansion": 1}, "expansion is more than 1"),
        ({"expansion": "8"}, "expansion is more than 1"),
        ({"expansion": float("inf")}, "expansion is more than 1"),
        ({"steps": 0}, r"steps is a whole number[\s\S]*from 1 on"),
        ({"steps": 2.5}, "steps is a whole number"),
        ({"learning_rate": 0.0}, r"learning_rate is a number[\s\S]*above 0"),
        ({"sweep": "all"}, "no such sweep"),
        ({"sweep_steps": 0}, "sweep_steps is a whole number"),
        ({"accuracy": "zero-shot"}, "no such way to read the model"),
        ({"top": 1}, r"top is a whole number[\s\S]*from 2 on"),
        ({"seeds": ()}, "seeds are whole numbers"),
        ({"seeds": (-1,)}, "seeds are whole numbers"),
        ({"judge": np.ones((3, 4))}, r"floats \(10, channel\)"),
        ({"k": 99}, "k is between 1 and the number of units, 32"),
        ({"k": 0}, "k is a whole number"),
        ({"top_k": 0}, "top_k is a whole number"),
        ({"min_cluster_size": 1}, r"min_cluster_size is a whole number[\s\S]*from 2 on"),
        ({"tokens": 0}, "tokens is a whole number"),
        ({"tokens": "some"}, "tokens is a whole number"),
        ({"tokens": 99}, "tokens"),
    ],
)
def test_what_cannot_be_done_is_refused(change, message):
    with pytest.raises(vt.VitreousError, match=message):
        vt.compare_dictionaries(model(), some_pictures(), SITE, **{**QUICK, "methods": ["topk"], **change})


def test_samples_that_methods_are_made_from_are_no_test_of_them():
    with pytest.raises(SettingsError, match=r"measured on the very samples[\s\S]*hold out"):
        vt.compare_dictionaries(model(), some_pictures(), SITE, **{**QUICK, "evaluate": some_pictures()})


@pytest.mark.parametrize("wrong", [{"accuracy": "head"}, {"k": 99}, {"seeds": (-1,)}, {"top_k": 0}])
def test_a_refusal_does_not_keep_the_folder(tmp_path, wrong):
    """Who follows its remedy comes with other arguments, and nothing was made for the first."""
    subject, images = model(classes=0), some_pictures()
    asked = {**QUICK, "methods": ["backbone"], "out": tmp_path / "out"}
    with pytest.raises(SettingsError):
        vt.compare_dictionaries(subject, images, SITE, **{**asked, **wrong})
    assert len(vt.compare_dictionaries(subject, images, SITE, **asked).rows) == 1


def test_numbers_of_numpy_are_numbers(tmp_path):
    asked = {"methods": ["backbone"], "steps": np.int64(9), "expansion": np.float64(4), "seeds": np.arange(2)}
    found = vt.compare_dictionaries(model(), some_pictures(), SITE, **{**QUICK, **asked, "out": tmp_path / "out"})
    assert type(found.settings["steps"]) is int and found.rows[0].seed == 0
    again = vt.DictionaryComparison.load(tmp_path / "out")
    assert again.settings["steps"] == 9


def test_bare_modules_and_unknown_numbers_are_refused(compared):
    with pytest.raises(SettingsError, match="a model is compared as a subject"):
        vt.compare_dictionaries(nn.Linear(4, 4), some_pictures(), SITE)
    found, *_ = compared
    with pytest.raises(SettingsError, match="this method was not compared"):
        found.values("vanilla", "ms")
    with pytest.raises(SettingsError, match="nearest:  ms"):
        found.values("topk", "mss")


def test_how_many_samples_a_unit_is_judged_by():
    def top_of(samples: int, top: int | None = None) -> int:
        return Settings(SITE, 8, 8, None, None, 1, 1, 1.0, None, "none", None, top, "auto").top_of(samples)

    assert [top_of(n) for n in (6, 500, 10_000, 50_000, 10**6)] == [6, 10, 20, 100, 100]
    assert top_of(500, 30) == 30 and top_of(20, 30) == 20


def test_penalties_are_swept_and_the_best_is_said(tmp_path):
    asked = {**QUICK, "methods": ["vanilla", "archetypal"], "out": tmp_path / "out"}
    found = vt.compare_dictionaries(model(), some_pictures(), SITE, **asked)
    said = row_of(found, "vanilla").said
    assert said["of"] == 3 and said["chosen"]["penalty"] in (1e-3, 5e-3, 2e-2)
    assert vt.Dictionary.load(tmp_path / "out" / "made" / "archetypal-0").config.training["options"]["candidates"] == 32
