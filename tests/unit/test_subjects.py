from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import vitreous as vt
from vitreous.errors import ModelError, SettingsError
from vitreous.models import sources
from vitreous.models.families import FAMILIES
from vitreous.subjects import skeleton

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))
from zoo import build

X = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def test_timm_and_hugging_face_list_the_same_sites(tmp_path):
    build("HF DINOv2").save_pretrained(tmp_path)
    ours = vt.load("timm:vit_small_patch14_dinov2", weights="random", depth=3)
    theirs = vt.load(f"hf:{tmp_path}")
    assert ours.sites == theirs.sites
    assert len(ours.sites) == 30


def test_random_weights_are_the_same_at_every_call_and_leave_the_generator_alone():
    torch.manual_seed(3)
    untouched = torch.get_rng_state()
    one = vt.load("timm:vit_tiny_patch16_224", weights="random", depth=1, device="cpu")
    assert torch.equal(torch.get_rng_state(), untouched)
    torch.manual_seed(4)
    two = vt.load("timm:vit_tiny_patch16_224", weights="random", depth=1, device="cpu")
    assert one.fingerprint == two.fingerprint


def test_a_saved_folder_loads_with_its_head_and_gives_the_same_numbers(tmp_path):
    module = build("HF DINOv2")
    module.save_pretrained(tmp_path)
    subject = vt.load(f"hf:{tmp_path}")
    assert isinstance(subject.head, nn.Linear)
    assert torch.equal(subject(X), vt.wrap(module)(X))
    assert subject.fingerprint == vt.wrap(module).fingerprint
    assert subject.dtype == torch.float32


def test_what_a_checkpoint_lacks_is_said(tmp_path):
    module = build("HF DINOv2")
    module.dinov2.save_pretrained(tmp_path)
    config = module.config
    config.architectures = ["Dinov2ForImageClassification"]
    config.save_pretrained(tmp_path)
    (note,) = vt.load(f"hf:{tmp_path}").notes
    assert note.startswith("random, not in the checkpoint: classifier.bias, classifier.weight")


def test_a_configuration_that_names_no_class_gives_the_bare_model(tmp_path):
    import json

    module = build("HF DINOv2")
    module.dinov2.save_pretrained(tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())
    del said["architectures"]
    (tmp_path / "config.json").write_text(json.dumps(said))
    subject = vt.load(f"hf:{tmp_path}")
    assert type(subject.module).__name__ == "Dinov2Model" and subject.notes == ()
    said["architectures"] = ["MyOwnModel"]
    (tmp_path / "config.json").write_text(json.dumps(said))
    assert type(vt.load(f"hf:{tmp_path}").module).__name__ == "Dinov2Model"


def test_a_half_precision_checkpoint_is_widened_unless_asked_otherwise(tmp_path):
    build("HF ViT").half().save_pretrained(tmp_path)
    assert vt.load(f"hf:{tmp_path}").dtype == torch.float32
    assert vt.load(f"hf:{tmp_path}", dtype="bfloat16").dtype == torch.bfloat16


def test_the_vision_tower_inside_a_larger_model(tmp_path):
    module = build("HF LLaVA-OneVision's tower")
    module.save_pretrained(tmp_path)
    subject = vt.load(f"hf:{tmp_path}")
    assert type(subject.module).__name__ == "SiglipVisionModel"
    assert torch.equal(subject(X), vt.wrap(module.model.vision_tower)(X))


def test_pictures_of_another_size_get_interpolated_positions():
    for variant in ("HF ViT", "HF CLIP vision", "HF SigLIP", "HF DINOv2", "HF DINOv3", "HF ViT-MAE", "HF SigLIP 2"):
        subject = vt.wrap(build(variant))
        x = torch.randn(1, 3, 48, 64)
        with torch.no_grad(), vt.capture(subject, "blocks.-1.resid.out", stop=True) as rec:
            subject(x)
        assert rec["blocks.-1.resid.out"].shape[1] == len(subject.prefix) + 48, variant
        assert subject.grid((48, 64)) == (6, 8)


def test_a_masked_autoencoder_sees_every_patch_in_order_and_stays_as_it_was():
    module = build("HF ViT-MAE")
    subject = vt.wrap(module)
    ratio = module.config.mask_ratio
    with torch.no_grad():
        assert torch.equal(subject(X), subject(X)), "no random masking"
        changed = X.clone()
        changed[:, :, :8, 8:16] += 1
        with vt.capture(subject, "blocks.0.resid.in") as rec:
            subject(X)
            before = rec["blocks.0.resid.in"]
            subject(changed)
    moved = (before - rec["blocks.0.resid.in"]).abs().amax((0, 2)) > 0
    assert moved.nonzero().flatten().tolist() == [2], "class token, then patches row by row"
    assert module.config.mask_ratio == ratio == 0.75


def test_siglip_2_cuts_patches_as_its_own_processor_does():
    from transformers.models.siglip2.image_processing_siglip2 import convert_image_to_patches

    subject = vt.wrap(build("HF SigLIP 2"))
    ours = subject.family.prepare(subject.root, X)["pixel_values"][0]
    theirs = convert_image_to_patches(X[0], 8)
    assert torch.equal(ours, theirs)


def test_grid_shrinks_through_a_convnext():
    subject = vt.wrap(build("timm ConvNeXt"))
    assert [subject.grid((64, 96), block=b) for b in range(5)] == [(16, 24), (8, 12), (4, 6), (4, 6), (2, 3)]
    assert [b.width for b in subject.blocks] == [8, 16, 24, 24, 32]


def test_weights_from_a_file_with_a_prefix_and_more_than_is_needed(tmp_path):
    from safetensors.torch import save_file

    source = vt.load("timm:vit_tiny_patch16_224", weights="random", depth=2, num_classes=0)
    state = {f"backbone.{k}": v.half().contiguous() for k, v in source.module.state_dict().items()}
    save_file({**state, "decoder.w": torch.zeros(3)}, tmp_path / "w.safetensors")
    subject = vt.load("timm:vit_tiny_patch16_224", weights=tmp_path / "w.safetensors", depth=2, num_classes=0)
    assert torch.equal(subject.module.blocks[1].mlp.fc1.weight, source.module.blocks[1].mlp.fc1.weight.half().float())
    assert subject.notes == ("w.safetensors: not used: decoder.w",)
    torch.save({"model": source.module.state_dict()}, tmp_path / "w.pth")
    again = vt.load("timm:vit_tiny_patch16_224", weights=tmp_path / "w.pth", depth=2, num_classes=0)
    assert again.fingerprint == source.fingerprint


def test_weights_that_do_not_fit_are_refused_by_name(tmp_path):
    source = vt.load("timm:vit_tiny_patch16_224", weights="random", depth=2, num_classes=0)
    state = source.module.state_dict()
    torch.save({k: v for k, v in state.items() if "blocks.1" not in k}, tmp_path / "short.pth")
    with pytest.raises(ModelError, match=r"missing: blocks\.1\.norm1\.weight.* and 8 more"):
        vt.load("timm:vit_tiny_patch16_224", weights=tmp_path / "short.pth", depth=2, num_classes=0)
    torch.save(state, tmp_path / "full.pth")
    with pytest.raises(ModelError, match=r"of another shape: pos_embed: \(1, 197, 192\) for \(1, 17, 192\)"):
        vt.load("timm:vit_tiny_patch16_224", weights=tmp_path / "full.pth", depth=2, num_classes=0, img_size=64)
    (tmp_path / "cut.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{")
    with pytest.raises(ModelError, match="damaged"):
        vt.load("timm:vit_tiny_patch16_224", weights=tmp_path / "cut.safetensors")
    (tmp_path / "cut.pth").write_bytes((tmp_path / "full.pth").read_bytes()[:1000])
    with pytest.raises(ModelError, match="cannot be read as plain tensors"):
        vt.load("timm:vit_tiny_patch16_224", weights=tmp_path / "cut.pth")
    with pytest.raises(ModelError, match=r"accepted: cut\.pth, cut\.safetensors, full\.pth, short\.pth"):
        vt.load("timm:vit_tiny_patch16_224", weights=tmp_path / "none.pth")


class Opener:
    def __reduce__(self):
        return (open, ("somewhere", "w"))


def test_a_pickle_that_holds_code_is_not_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"w": Opener()}, tmp_path / "evil.pth")
    with pytest.raises(ModelError, match="files that hold code are not opened"):
        vt.load("timm:vit_tiny_patch16_224", weights=tmp_path / "evil.pth")
    assert not (tmp_path / "somewhere").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vit_b_16", "accepted: torchvision:vit_b_16"),
        ("tim:vit_b", "unknown source 'tim'"),
        ("timm:vit_smal_patch14_dinov2", "nearest:  vit_small_patch14_dinov2"),
        ("torchvision:swin_t", "of no family that vitreous knows"),
        ("torchvision:vit_b16", "nearest:  vit_b_16"),
        ("hf:./nothing/here", "no such folder"),
        ("bundled:scene-text", "nearest:  scenes-text"),
        ("timm:", "unknown source"),
    ],
)
def test_wrong_names_are_answered_with_the_right_ones(name, message):
    with pytest.raises(ModelError) as error:
        vt.load(name)
    assert message in str(error.value)


def test_what_cannot_be_fetched_says_what_to_do(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match=r"weights= .* takes a local file"):
        vt.load("hf:nobody/nothing")


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(ModelError, match=r"holds no config\.json"):
        vt.load(f"hf:{tmp_path}")
    (tmp_path / "config.json").write_text("{not json")
    with pytest.raises(ModelError, match="cannot be loaded"):
        vt.load(f"hf:{tmp_path}")
    with pytest.raises(ModelError, match="a model name needs its source"):
        vt.load(str(tmp_path))


def test_unsupported_architectures_are_refused_with_what_is_missing():
    import timm
    from timm.models.vision_transformer import ParallelScalingBlock, VisionTransformer

    swin = timm.create_model("swin_tiny_patch4_window7_224", depths=(1, 1), embed_dim=24, num_heads=(2, 2))
    with pytest.raises(ModelError, match="SwinTransformer is not supported: attention runs in shifted windows"):
        vt.wrap(swin)
    side_by_side = VisionTransformer(
        img_size=32, patch_size=8, embed_dim=32, depth=1, num_heads=4, block_fn=ParallelScalingBlock
    )
    with pytest.raises(ModelError, match="attention and MLP run side by side"):
        vt.wrap(side_by_side)
    with pytest.raises(ModelError, match=r"Sequential is not supported: of no known family"):
        vt.wrap(nn.Sequential(nn.Linear(2, 2)))
    with pytest.raises(ModelError, match="nearest:  timm ViT"):
        vt.wrap(swin, family="tim ViT")


class MyBlock(nn.Module):
    """Somebody's own block with timm's names; `wrong` forgets one residual connection."""

    def __init__(self, wrong: bool) -> None:
        super().__init__()
        from timm.layers import Mlp
        from timm.models.vision_transformer import Attention

        self.norm1, self.norm2 = nn.LayerNorm(32), nn.LayerNorm(32)
        self.attn, self.mlp = Attention(32, 4), Mlp(32, 64)
        self.drop_path1, self.drop_path2 = nn.Identity(), nn.Identity()
        self.wrong = wrong

    def forward(self, x):
        x = x + self.drop_path1(self.attn(self.norm1(x)))
        return self.drop_path2(self.mlp(self.norm2(x))) + (0 if self.wrong else x)


class MyModel(nn.Module):
    def __init__(self, wrong: bool = False) -> None:
        super().__init__()
        from timm.layers import PatchEmbed

        self.patch_embed = PatchEmbed(32, 8, embed_dim=32)
        self.blocks = nn.ModuleList([MyBlock(wrong), MyBlock(wrong)])

    def forward(self, x):
        x = self.patch_embed(x)
        for block in self.blocks:
            x = block(x)
        return x


def test_a_model_of_your_own_is_known_by_its_layout_and_held_to_the_law():
    subject = vt.wrap(MyModel().eval())
    assert subject.family.name == "timm ViT" and subject.prefix == () and subject.grid() == (4, 4)
    assert all(law.holds for law in vt.check_laws(subject))
    with pytest.raises(ModelError, match="but not its residual stream"):
        vt.wrap(MyModel(wrong=True).eval())


def test_a_family_of_your_own():
    from dataclasses import replace

    row = next(f for f in FAMILIES if f.name == "timm ViT")
    subject = vt.wrap(MyModel().eval(), family=replace(row, name="mine"))
    assert subject.family.name == "mine"


def test_devices_and_dtypes_are_checked():
    with pytest.raises(SettingsError, match="accepted: auto, cpu, cuda, mps"):
        vt.load("timm:vit_tiny_patch16_224", weights="random", device="gpu")
    if not torch.cuda.is_available():
        with pytest.raises(SettingsError, match="no cuda on this machine"):
            vt.load("timm:vit_tiny_patch16_224", weights="random", device="cuda")
    with pytest.raises(SettingsError, match="unknown dtype"):
        vt.load("timm:vit_tiny_patch16_224", weights="random", dtype="float8")


def test_inputs_in_every_form(tiny):
    from PIL import Image

    picture = Image.new("L", (50, 40), 128)
    assert tiny.inputs(picture).shape == (1, 3, 32, 32)
    assert tiny(X.numpy()).shape == (2, 7)
    with pytest.raises(SettingsError, match=r"\(sample, colour, row, column\)"):
        tiny(X[0])
    words = vt.wrap(build("HF GPT-2"))
    with pytest.raises(SettingsError, match="has no tokenizer"):
        words("once upon a time")
    assert words(torch.zeros(1, 5, dtype=torch.long)).shape == (1, 5, 50)


@pytest.mark.parametrize("given", [None, 3, [], "a.png", [[1, 2]]], ids=str)
def test_what_is_no_picture_is_refused(tiny, given):
    with pytest.raises(SettingsError, match="takes pictures"):
        tiny.inputs(given)


@pytest.mark.parametrize("given", [None, 3, [], ["a", 3], [[1, 2]]], ids=str)
def test_what_is_no_text_is_refused(given):
    with pytest.raises(SettingsError, match="takes text"):
        vt.wrap(build("HF GPT-2")).inputs(given)


@torch.no_grad()
@pytest.mark.parametrize(
    "settings", [{"pad_token": "[PAD]"}, {"pad_token": "[PAD]", "padding_side": "left"}, {}], ids=str
)
def test_a_text_is_the_same_beside_longer_ones(settings):
    """Tokenizers fill up where their authors wanted, or cannot at all; a causal model must never see it."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"[PAD]": 3, "a": 1, "b": 2, "c": 4}, unk_token="[PAD]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    subject = vt.wrap(build("HF Llama"), tokenizer=PreTrainedTokenizerFast(tokenizer_object=words, **settings))
    both = subject.inputs(["a b", "a b c c"])
    assert both.tolist() == [[1, 2, 0, 0], [1, 2, 4, 4]]
    torch.testing.assert_close(subject(both)[0, :2], subject(["a b"])[0])


def test_fingerprints_tell_models_apart(tiny):
    from timm.models.vision_transformer import VisionTransformer

    before = tiny.fingerprint
    tiny.module.head.weight.data[0, 0] += 1
    assert tiny.fingerprint != before, "changed in place"
    kinds = [{}, {"num_heads": 2}, {"act_layer": nn.ReLU}, {"num_classes": 3}]
    found = set()
    for settings in kinds:
        torch.manual_seed(0)
        small = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 1, "num_heads": 4, **settings}
        found.add(vt.wrap(VisionTransformer(**small).eval()).fingerprint)
    assert len(found) == len(kinds)
    eager, again = build("HF Llama"), build("HF Llama")
    eager.config.rope_parameters["rope_theta"] = 5.0
    assert vt.wrap(eager).fingerprint != vt.wrap(again).fingerprint, "a setting without weights"


def test_preprocessing_comes_from_the_source():
    subject = vt.load("timm:vit_small_patch14_dinov2", weights="random", depth=1, img_size=224)
    assert subject.preprocess.size == (224, 224) and subject.preprocess.resize == 224
    assert subject.preprocess.source == "timm's data configuration"
    subject = vt.load("torchvision:vit_b_32", weights="random")
    assert subject.preprocess.size == (224, 224) and subject.preprocess.resize == 256
    assert vt.wrap(build("HF ViT")).preprocess.source.startswith("assumed")


def test_hugging_face_preprocessing_in_its_forms():
    from vitreous.models.hf_preprocess import from_config

    clip = from_config(
        {
            "size": {"shortest_edge": 224},
            "crop_size": {"height": 224, "width": 224},
            "do_center_crop": True,
            "resample": 3,
        }
    )
    assert (clip.size, clip.resize, clip.interpolation) == ((224, 224), 224, "bicubic")
    vit = from_config({"size": 384, "resample": 2, "image_mean": [0.1] * 3, "image_std": [0.2] * 3})
    assert (vit.size, vit.resize, vit.mean) == ((384, 384), (384, 384), (0.1, 0.1, 0.1))
    convnext = from_config({"size": {"shortest_edge": 224}, "crop_pct": 0.875})
    assert (convnext.size, convnext.resize) == ((224, 224), 256)
    assert from_config({"size": {"shortest_edge": 384}, "crop_pct": 1.0}).resize == (384, 384)
    raw = from_config({"size": {"height": 32, "width": 48}, "do_normalize": False})
    assert (raw.mean, raw.std) == ((0.0,) * 3, (1.0,) * 3)
    with pytest.raises(ModelError, match="form that is not known"):
        from_config({"size": {"longest_edge": 100}})


def test_every_source_is_listed_and_lists():
    assert set(sources.SOURCES) == {"timm", "hf", "torchvision", "bundled"}
    assert "vit_b_16" in sources.SOURCES["torchvision"].names()
    assert "vit_small_patch14_dinov2" in sources.SOURCES["timm"].names()


def test_the_examples_of_a_family_are_of_that_family():
    for row in FAMILIES:
        for name in row.examples:
            if row.source != "hf":  # those need a hub
                assert skeleton(name).family.name == row.name, name


@pytest.mark.slow
def test_every_listed_name_of_timm_loads_or_is_refused_with_what_is_missing():
    refused = {}
    for name in sources.SOURCES["timm"].names():
        try:
            assert skeleton(f"timm:{name}").grid().patches > 0
        except ModelError as error:
            refused[name] = str(error).splitlines()[0]
    assert all("side by side" in reason for reason in refused.values()), refused
    assert len(refused) <= 10


@pytest.mark.parametrize("block", [8, -9, "1", 1.0, None])
def test_a_block_that_is_none_is_refused(block):
    with pytest.raises(vt.SettingsError, match="no such block"):
        vt.load("bundled:scenes-mae", device="cpu").block_number(block)


def test_blocks_are_counted_from_both_ends():
    subject = vt.load("bundled:scenes-mae", device="cpu")
    last = subject.depth - 1
    assert [subject.block_number(block) for block in (0, last, -1, -subject.depth)] == [0, last, last, 0]
