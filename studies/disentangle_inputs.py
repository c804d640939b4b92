"""Models, pictures and texts of the disentanglement studies, and other models that judge what comes out.

Pictures are those of the real data folder. Stories are written by stories15M itself, because no text comes with it.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import vitreous as vt
from backbone_inputs import minilm, photographs, tiny_imagenet
from real_models import dinov2s_saliency, stories15m, tin_vit
from vitreous.evidence.directions import directions
from vitreous.models.weights import read_state

DOGS, CATS = range(151, 269), range(281, 286)  # ImageNet's classes


@dataclass(frozen=True, eq=False)
class Case:
    """A model, samples to take its layers apart with, others to measure on, and another model to judge by.

    `judge` is that model, or its embeddings (sample, position, channel) of the same places. `head` reads classes from
    the model's output where its labels need one of their own.
    """

    name: str
    subject: vt.Subject
    train: vt.ImageSet | vt.TextSet
    evaluate: vt.ImageSet | vt.TextSet
    judge: vt.Subject | np.ndarray | None
    judged_by: str
    head: Callable[[Tensor], Tensor] | None
    said: str

    def embeddings(self) -> np.ndarray:
        """The judge's embeddings of the evaluation samples, their mean taken away."""
        if isinstance(self.judge, vt.Subject):
            with torch.inference_mode():
                found = self.judge([picture.image for picture in self.evaluate]).numpy()
        else:
            assert self.judge is not None
            found = self.judge
        rows = directions(found.reshape(-1, found.shape[-1]))
        return (rows - rows.mean(0)).reshape(found.shape)


def tin_case(data: Path, objective: str = "text", small: bool = False) -> Case:
    """tin-vit on Tiny ImageNet's validation pictures and, unless `small`, one ImageNet picture a class.

    The judge is the model of another objective. Classes of the text model are read by their names' embeddings.
    """
    pictures, labels = tiny_imagenet(data, 2000)
    order = np.random.default_rng(0).permutation(len(pictures))
    evaluate = 300 if small else 500
    held, seen = np.sort(order[:evaluate]), np.sort(order[500 : 1700 if small else None])
    more = [] if small else list(photographs(data, 1000))
    name = "tiny_imagenet_val" + (" + imagenet_sample" if more else "")
    train = vt.ImageSet.from_arrays([pictures[k] for k in seen] + more, name=name)
    fresh = vt.ImageSet.from_arrays([pictures[k] for k in held], labels=labels[held], name="tiny_imagenet_val")
    subject, judge = tin_vit(data, objective), tin_vit(data, "contrast" if objective == "text" else "text")
    also = " and 1,000 of ImageNet" if more else ""
    said = f"{len(seen):,} validation pictures of Tiny ImageNet{also}; measured on {len(held):,} others"
    head = _class_texts(data) if objective == "text" else None
    return Case(subject.name, subject, train, fresh, judge, judge.name, head, said)


def _class_texts(data: Path) -> Callable[[Tensor], Tensor]:
    state = read_state(data / "weights" / "tin-vit-text.safetensors")
    weight, bias, classes = (state[name].float() for name in ("text_proj.weight", "text_proj.bias", "text_classes"))
    return lambda out: torch.nn.functional.normalize(out.float().cpu() @ weight.T + bias, dim=-1) @ classes.T


def dino_case(data: Path, size: int = 112, evaluate: int = 300) -> Case:
    """dinov2s_saliency on ImageNet pictures and pets, labelled cat, dog or neither.

    At 112 pixels it has 8 x 8 patches, as the text model of Tiny ImageNet has, which judges the same patches.
    """
    whole = dinov2s_saliency(data, device="cpu")
    assert whole.preprocess is not None
    subject = vt.wrap(whole.module, name=whole.name, preprocess=whole.preprocess.at(size))
    pictures, labels = _animals(data)
    order = np.random.default_rng(0).permutation(len(pictures))
    parts = []
    for index in (np.sort(order[evaluate:]), np.sort(order[:evaluate])):
        chosen = [pictures[k] for k in index]
        parts.append(
            vt.ImageSet.from_arrays(
                chosen, labels=labels[index], classes=("cat", "dog", "neither"), name="imagenet_sample + pets"
            )
        )
    said = f"{len(parts[0]):,} pictures of imagenet_sample and pets at {size} pixels; measured on {evaluate} others"
    judge = same_places(tin_vit(data, "text"), subject, parts[1])
    return Case(subject.name, subject, parts[0], parts[1], judge, "tin-vit-text, same patches", None, said)


@torch.inference_mode()
def same_places(judge: vt.Subject, subject: vt.Subject, images: vt.ImageSet) -> np.ndarray:
    """The judge's tokens (sample, position, channel) of what the subject sees; both cut it into as many patches."""
    steps = subject.preprocess
    assert steps is not None and judge.grid() == subject.grid() and judge.prefix == subject.prefix
    found = []
    with vt.capture(judge, "blocks.-1.resid.out", stop=True) as seen:
        for _, x in images.batches(steps, 32):
            raw = (x.transpose(0, 2, 3, 1) * steps.std + steps.mean).clip(0, 1)
            judge([Image.fromarray((255 * picture).round().astype(np.uint8)) for picture in raw])
            found.append(seen["blocks.-1.resid.out"].numpy())
    return np.concatenate(found)


def _animals(data: Path) -> tuple[list[Image.Image], np.ndarray]:
    """1,000 pictures of ImageNet, one a class, and 259 pets: 0 for cats, 1 for dogs, 2 for neither."""
    pictures = list(photographs(data, 1000))
    labels = [0 if k in CATS else 1 if k in DOGS else 2 for k in range(len(pictures))]
    with zipfile.ZipFile(data / "pets" / "pets.zip") as archive:
        listed = {row["name"]: row["species"] for row in csv.DictReader(io.TextIOWrapper(archive.open("index.csv")))}
        for name in sorted(n for n in archive.namelist() if n.startswith("images/") and n.endswith(".jpg")):
            pictures.append(Image.open(io.BytesIO(archive.read(name))).convert("RGB"))
            labels.append({"cat": 0, "dog": 1}[listed[Path(name).stem]])
    return pictures, np.array(labels)


# -- texts

STORIES = Path(__file__).parent / "results" / "disentangle_stories.npz"
STORY = 96  # tokens


def story_case(data: Path, evaluate: int = 100) -> Case:
    """stories15M on stories that it wrote."""
    subject = stories15m(data)
    if not STORIES.exists():
        write_stories(subject, 400)
    ids = np.load(STORIES)["ids"].astype(np.int64)
    train, held = (vt.TextSet.from_ids(part, name="stories") for part in (ids[evaluate:], ids[:evaluate]))
    said = f"{len(train)} stories of {STORY} tokens that it wrote itself; measured on {len(held)} others"
    return Case(subject.name, subject, train, held, None, "", None, said)


@torch.inference_mode()
def write_stories(subject: vt.Subject, count: int, seed: int = 0) -> None:
    """Draws stories at temperature 1, a token after the other, and keeps them. None may end: they fill their tokens."""
    generator = torch.Generator().manual_seed(seed)
    ids, past = torch.ones(count, 1, dtype=torch.long), None
    for _ in range(STORY - 1):
        out = subject.module(input_ids=ids[:, -1:], past_key_values=past, use_cache=True)
        past, logits = out.past_key_values, out.logits[:, -1]
        logits[:, :3] = -torch.inf
        chances = logits.softmax(-1).cumsum(-1)
        drawn = torch.rand(len(ids), 1, generator=generator) * chances[:, -1:]
        ids = torch.cat([ids, torch.searchsorted(chances, drawn)], 1)
    np.savez_compressed(STORIES, ids=ids.numpy().astype(np.uint16), seed=seed)


@torch.inference_mode()
def contexts(case: Case, folder: Path, words: int = 12) -> np.ndarray:
    """float32 (story, token, channel): what MiniLM makes of the last tokens up to each one, as a sentence."""
    reader, tokenizer = minilm(folder), case.subject.tokenizer
    assert isinstance(case.evaluate, vt.TextSet)
    texts = [
        tokenizer.decode(row[max(0, at - words + 1) : at + 1].tolist()).strip() or "."
        for row in case.evaluate.tokens
        for at in range(len(row))
    ]
    found = []
    for k in range(0, len(texts), 256):
        given = reader.tokenizer(texts[k : k + 256], return_tensors="pt", padding=True)
        out = reader.module(**given).last_hidden_state
        mask = given["attention_mask"][..., None]
        found.append((out * mask).sum(1) / mask.sum(1))
    return torch.cat(found).reshape(*case.evaluate.tokens.shape, -1).numpy()
