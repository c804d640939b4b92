"""Trains the three small ViTs that ship with the package, on scenes, under three objectives, and probes what they know.

    PYTHONPATH=src python studies/bundled_models.py all --out DIR

    scenes-text      contrast with captions, whether short phrases are true of the picture, and words place by place
    scenes-mae       predict the pixels of 48 of 64 patches from the other 16
    scenes-contrast  two views of one picture agree, as a whole and place by place; no labels

Writes one safetensors file a model (float16, settings and results in its metadata) and results.json. Scenes are drawn
by all cores first and stay on the device as uint8. `--seconds` shortens training where the device is slow; the number
of steps that were really made is recorded, and `--steps` with that number repeats the run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from timm.layers import trunc_normal_
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn

import vitreous.scenery
from scene_probes import (
    GRID,
    PATCH,
    PROBED,
    SIDE,
    WIDTH,
    WORDS,
    Data,
    draw_all,
    mean_and_std,
    probe_pixels,
    probe_text,
    probe_vit,
)
from vitreous.models import captions
from vitreous.models.captions import CaptionTower
from vitreous.scenery import ATTRIBUTES

ARCHITECTURE: dict[str, Any] = {
    "img_size": 64,
    "patch_size": 8,
    "embed_dim": 128,
    "depth": 8,
    "num_heads": 4,
    "mlp_ratio": 3,
    "num_classes": 0,
    "global_pool": "token",
    "class_token": True,
}
TRAIN_SEED, PROBE_SEED = 20_000, 30_000


# ------------------------------------------------------------------------------------------------------ augmentation


class View(NamedTuple):
    """Pictures in [0, 1] and where each was cut: the original is centre + half * (flip, 1) * position, in [-1, 1]."""

    images: Tensor
    half: Tensor
    centre: Tensor
    flip: Tensor


def uniform(count: int, low: float, high: float, generator: torch.Generator) -> Tensor:
    return torch.rand(count, device=generator.device, generator=generator) * (high - low) + low


def cut(images: Tensor, low: float, high: float, generator: torch.Generator) -> View:
    """A random square of relative side low to high from each picture, at full size, mirrored half the time."""
    count = len(images)
    half = uniform(count, low, high, generator)
    room = (1 - half).abs().unsqueeze(1)
    centre = torch.stack([uniform(count, -1, 1, generator) for _ in range(2)], 1) * room
    flip = uniform(count, -1, 1, generator).sign()
    theta = torch.zeros(count, 2, 3, device=images.device)
    theta[:, 0, 0], theta[:, 1, 1], theta[:, :, 2] = half * flip, half, centre
    where = F.affine_grid(theta, [count, 3, SIDE, SIDE], align_corners=False)
    pixels = F.grid_sample(images.float() / 255, where, padding_mode="reflection", align_corners=False)
    return View(pixels, half, centre, flip)


def recolour(pixels: Tensor, strength: float, hue: float, generator: torch.Generator) -> Tensor:
    """Brightness, contrast, saturation, hue turned by up to `hue` radians: one linear map a picture; some blurred."""
    count = len(pixels)
    gain, contrast = (uniform(count, 1 - 0.4 * strength, 1 + 0.4 * strength, generator) for _ in range(2))
    vivid = uniform(count, 1 - 0.8 * strength, 1 + 0.4 * strength, generator)[:, None, None]
    turn = uniform(count, -hue, hue, generator)[:, None, None]
    grey = torch.full((3, 3), 1 / 3, device=pixels.device)
    spin = torch.tensor([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]], device=pixels.device) / math.sqrt(3)
    eye = torch.eye(3, device=pixels.device)
    colour = grey + ((eye - grey) * turn.cos() + spin * turn.sin()) * vivid
    mean = pixels.mean((1, 2, 3), keepdim=True)
    out = torch.einsum("ncd,ndhw->nchw", colour, (pixels - mean) * contrast[:, None, None, None] + mean)
    tap = torch.tensor([1.0, 2.0, 1.0], device=pixels.device) / 4
    kernel = torch.outer(tap, tap).expand(3, 1, 3, 3)
    soft = F.conv2d(F.pad(out, (1, 1, 1, 1), mode="replicate"), kernel, groups=3)
    mix = uniform(count, -1, 1, generator).clamp(min=0)[:, None, None, None] * strength
    return ((out + (soft - out) * mix) * gain[:, None, None, None]).clamp(0, 1)


# -------------------------------------------------------------------------------------------------------- objectives


def exact(like: Tensor) -> torch.autocast:
    """Full precision inside: pictures and logits need more than the eight bits of bfloat16."""
    return torch.autocast(like.device.type, enabled=False)


def both_ways(first: Tensor, second: Tensor, scale: Tensor | float) -> Tensor:
    """Each row of one side has to find its partner among all rows of the other; unit vectors (sample, channel)."""
    with exact(first):
        logits = first @ second.T * scale
    same = torch.arange(len(logits), device=logits.device)
    return (F.cross_entropy(logits, same) + F.cross_entropy(logits.T, same)) / 2


class Objective(nn.Module):
    """A ViT, what is trained beside it, and a loss over scenes number `chosen`."""

    def __init__(self, mean: list[float], std: list[float]) -> None:
        super().__init__()
        self.vit = VisionTransformer(**ARCHITECTURE)
        self.register_buffer("mean", torch.tensor(mean)[:, None, None])
        self.register_buffer("std", torch.tensor(std)[:, None, None])

    def normal(self, pixels: Tensor) -> Tensor:
        return (pixels - self.mean) / self.std

    def forward(self, data: Data, chosen: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        """Named parts of the loss; their sum is minimised."""
        raise NotImplementedError


class TextObjective(Objective):
    """Captions against pictures of the batch (softmax both ways); phrases against the truth of the picture (sigmoid);
    and, of each patch, which shape, colour and texture words are true of what is there (softmax over the words)."""

    def __init__(self, mean: list[float], std: list[float], phrases: int = 512) -> None:
        super().__init__(mean, std)
        self.text = CaptionTower(WORDS, image_width=WIDTH)
        self.phrases = phrases
        words = ["background", *(word for name in PROBED for word in ATTRIBUTES[name])]
        self.register_buffer("place_words", self.text.tokens(words))

    def phrase_tokens(self, things: Tensor, generator: torch.Generator) -> Tensor:
        """Random parts of what describes random things in the batch: `red star`, `green woven background`."""
        flat = things.reshape(-1, 4)
        flat = flat[flat[:, 3] > 0]
        rows = flat[torch.randint(len(flat), (self.phrases,), device=flat.device, generator=generator)]
        keep = torch.rand(self.phrases, 4, device=flat.device, generator=generator) < 0.45
        one = torch.randint(1, 4, (self.phrases, 1), device=flat.device, generator=generator)
        return rows * keep.scatter(1, one, True)

    def here(self, tokens: Tensor, patches: Tensor) -> Tensor:
        """Words against places: tokens (scene, patch, channel), patches as in `Data`. Background is a shape, but a
        common one: it counts little; it has no colour and texture of its own here."""
        said = self.text.text(self.place_words)
        with exact(tokens):
            fits = (self.text.image(tokens.float()) @ said.T * self.text.phrase_scale.exp()).flatten(0, 1)
        true = patches.flatten(0, 1).long()
        shape, colour, texture = fits.split(
            [1 + len(ATTRIBUTES["shape"]), *(len(ATTRIBUTES[n]) for n in PROBED[1:])], 1
        )
        rare = torch.ones(shape.shape[1], device=fits.device)
        rare[0] = 0.1
        return (
            2 * F.cross_entropy(shape, true[:, 0], rare)
            + F.cross_entropy(colour, true[:, 1] - 1, ignore_index=-1)
            + F.cross_entropy(texture, true[:, 2] - 1, ignore_index=-1)
        )

    def forward(self, data: Data, chosen: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        images, patches = data.images[chosen], data.patches[chosen]
        mirrored = uniform(len(images), -1, 1, generator) > 0
        images = torch.where(mirrored[:, None, None, None], images.flip(-1), images)
        grid = patches.unflatten(1, (GRID, GRID))
        patches = torch.where(mirrored[:, None, None, None], grid.flip(2), grid).flatten(1, 2)
        with exact(images):
            pixels = recolour(images.float() / 255, 0.35, 0.05, generator)
        tokens = self.vit.forward_features(self.normal(pixels))
        seen = self.text.image(tokens[:, 0])
        caption = both_ways(
            seen, self.text.text(data.captions[chosen].long()), self.text.caption_scale.clamp(max=4.6).exp()
        )
        things = data.things[chosen].long()
        phrase = self.phrase_tokens(things, generator)
        true = ((phrase[None, :, None] == 0) | (phrase[None, :, None] == things[:, None])).all(-1).any(-1)
        said = self.text.text(phrase.gather(1, (phrase == 0).int().argsort(stable=True, dim=1)))
        with exact(seen):
            fits = seen @ said.T * self.text.phrase_scale.exp() + self.text.phrase_bias
        phrases = 8 * F.binary_cross_entropy_with_logits(fits, true.float())
        return {"caption": caption, "phrase": phrases, "place": self.here(tokens[:, 1:], patches)}


class MaskedObjective(Objective):
    """Masked autoencoder: normalised pixels of the hidden patches, through a light decoder that is thrown away."""

    def __init__(self, mean: list[float], std: list[float], keep: int = GRID * GRID // 4, width: int = 96) -> None:
        super().__init__(mean, std)
        self.keep = keep
        self.enter = nn.Linear(WIDTH, width)
        self.hidden = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros(1, 1 + GRID * GRID, width))
        self.decoder = nn.Sequential(*(Block(width, 4, 3, qkv_bias=True) for _ in range(2)), nn.LayerNorm(width))
        self.leave = nn.Linear(width, PATCH * PATCH * 3)
        trunc_normal_(self.hidden, std=0.02)
        trunc_normal_(self.places, std=0.02)

    def forward(self, data: Data, chosen: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        with exact(data.images):
            pixels = self.normal(cut(data.images[chosen], 0.6, 1.0, generator).images)
        count, patches = len(pixels), GRID * GRID
        order = torch.rand(count, patches, device=pixels.device, generator=generator).argsort(1)
        shown = order[:, : self.keep, None]
        vit = self.vit
        x = (vit.patch_embed(pixels) + vit.pos_embed[:, 1:]).gather(1, shown.expand(-1, -1, WIDTH))
        start = (vit.cls_token + vit.pos_embed[:, :1]).expand(count, -1, -1)
        x = self.enter(vit.norm(vit.blocks(torch.cat([start, x], 1))))
        full = self.hidden.to(x.dtype).expand(count, patches, -1)
        full = full.scatter(1, shown.expand(-1, -1, x.shape[2]), x[:, 1:])
        guess = self.leave(self.decoder(torch.cat([x[:, :1], full], 1) + self.places))[:, 1:].float()
        target = (
            pixels.reshape(count, 3, GRID, PATCH, GRID, PATCH).permute(0, 2, 4, 3, 5, 1).reshape(count, patches, -1)
        )
        target = (target - target.mean(-1, keepdim=True)) / (target.var(-1, keepdim=True) + 1e-4).sqrt()
        error = (guess - target).square().mean(-1).gather(1, order[:, self.keep :])
        return {"pixels": error.mean()}


class ContrastObjective(Objective):
    """Two views: class tokens of one picture agree among other pictures, patch tokens of one place among others."""

    def __init__(self, mean: list[float], std: list[float], temperature: float = 0.15) -> None:
        super().__init__(mean, std)
        self.temperature = temperature
        self.whole, self.local = (
            nn.Sequential(nn.Linear(WIDTH, 384), nn.GELU(), nn.Linear(384, WIDTH)) for _ in range(2)
        )

    def agreement(self, first: Tensor, second: Tensor) -> Tensor:
        first, second = (F.normalize(side.float(), dim=-1) for side in (first, second))
        return both_ways(first, second, 1 / self.temperature)

    def forward(self, data: Data, chosen: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        images = data.images[chosen]
        with exact(images):
            one, two = (cut(images, 0.55, 1.0, generator) for _ in range(2))
            both = torch.cat([recolour(view.images, 1.0, math.pi, generator) for view in (one, two)])
        tokens = self.vit.forward_features(self.normal(both))
        whole = self.whole(tokens[:, 0]).chunk(2)
        maps = self.local(tokens[:, 1:]).float().transpose(1, 2).reshape(len(both), WIDTH, GRID, GRID).chunk(2)
        places = torch.rand(len(images), 4, 2, device=images.device, generator=generator) * 1.6 - 0.8
        mirror = [torch.stack([view.flip, torch.ones_like(view.flip)], 1)[:, None] for view in (one, two)]
        original = one.centre[:, None] + one.half[:, None, None] * mirror[0] * places
        there = (original - two.centre[:, None]) / two.half[:, None, None] * mirror[1]
        seen = [
            F.grid_sample(m, at[:, :, None], align_corners=False)[..., 0]
            for m, at in zip(maps, (places, there), strict=True)
        ]
        inside = (there.abs() < 0.95).all(-1)
        first, second = (found.transpose(1, 2)[inside] for found in seen)
        most = 2 * len(images)
        return {"whole": self.agreement(*whole), "places": self.agreement(first[:most], second[:most])}


#: Objective, learning rate, and its share of the time.
OBJECTIVES: dict[str, tuple[type[Objective], float, float]] = {
    "scenes-text": (TextObjective, 1e-3, 2.6),
    "scenes-mae": (MaskedObjective, 1.5e-3, 0.8),
    "scenes-contrast": (ContrastObjective, 1e-3, 1.0),
}


# ---------------------------------------------------------------------------------------------------------- training


def groups(model: nn.Module) -> list[dict[str, Any]]:
    """Weight decay for matrices only."""
    flat = {p for name, p in model.named_parameters() if p.ndim < 2 or "places" in name or "pos_embed" in name}
    return [
        {"params": [p for p in model.parameters() if p not in flat], "weight_decay": 0.05},
        {"params": [p for p in model.parameters() if p in flat], "weight_decay": 0.0},
    ]


def train(model: Objective, data: Data, rate: float, limit: float, args: argparse.Namespace) -> dict[str, Any]:
    """AdamW, a short warm-up, cosine to zero; bfloat16 on the device. Returns steps, seconds and the last losses."""
    cuda = args.device == "cuda"
    generator = torch.Generator(args.device).manual_seed(args.seed)
    optimiser = torch.optim.AdamW(groups(model), lr=rate, betas=(0.9, 0.98), fused=cuda)
    steps, step, settled, timed = args.steps, 0, 20, 60
    if cuda:
        torch._dynamo.config.suppress_errors = True  # what cannot be compiled runs as it is
        model.vit.blocks.compile()
        if isinstance(model, TextObjective):
            model.text.text = torch.compile(model.text.text, dynamic=False)
    begun = warm = time.perf_counter()
    kept: dict[str, list[Tensor]] = {}
    while step < steps:
        if step == timed and limit:
            each = (time.perf_counter() - warm) / (timed - settled)
            steps = min(steps, max(2 * timed, int((limit - (time.perf_counter() - begun)) / each)))
        part = min(1.0, (step + 1) / min(400, 0.1 * steps + 1)) * 0.5 * (1 + math.cos(math.pi * step / steps))
        for group in optimiser.param_groups:
            group["lr"] = rate * part
        chosen = torch.randint(len(data.images), (args.batch,), device=args.device, generator=generator)
        with torch.autocast(args.device, torch.bfloat16, enabled=cuda):
            losses = model(data, chosen, generator)
        optimiser.zero_grad(set_to_none=True)
        sum(losses.values()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        for name, value in losses.items():
            kept.setdefault(name, []).append(value.detach())
        step += 1
        if step in (settled, timed) and cuda:
            torch.cuda.synchronize()
        if step == settled:
            warm = time.perf_counter()
        if step % max(1, steps // 10) == 0:
            shown = ", ".join(f"{name} {torch.stack(v[-50:]).mean():.4f}" for name, v in kept.items())
            print(f"  step {step}/{steps}  {time.perf_counter() - begun:.0f} s  {shown}", flush=True)
    last = {name: round(torch.stack(v[-200:]).mean().item(), 5) for name, v in kept.items()}
    if wrong := [name for name, value in last.items() if not math.isfinite(value)]:
        raise SystemExit(f"{wrong} became NaN or infinite within {step} steps: a lower rate")
    return {"steps": step, "seconds": round(time.perf_counter() - begun, 1), "losses": last}


def save(name: str, model: Objective, config: dict[str, Any], out: Path) -> Path:
    """float16 tensors under `vit.` and, where there is a text tower, `text.`; the settings as JSON in the metadata."""
    from safetensors.torch import save_file

    shipped = {"vit": model.vit} | ({"text": model.text} if isinstance(model, TextObjective) else {})
    tensors = {
        f"{part}.{key}": value.detach().to("cpu", torch.float16).contiguous()
        for part, module in shipped.items()
        for key, value in module.state_dict().items()
    }
    if isinstance(model, TextObjective):
        config = config | {"text": {"words": list(WORDS), "settings": model.text.settings}}
    path = out / f"{name}.safetensors"
    save_file(tensors, path, metadata={"config": json.dumps(config, sort_keys=True)})
    return path


def code_hash() -> str:
    """Of everything that decides what the weights become, so that a file names the code that made it."""
    here = Path(__file__).parent
    parts = [here / "bundled_models.py", here / "scene_probes.py", Path(captions.__file__)]
    parts += sorted(Path(vitreous.scenery.__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", choices=["all", *OBJECTIVES])
    parser.add_argument("--out", type=Path, required=True, help="folder for weights and results.json")
    parser.add_argument("--scenes", type=int, default=160_000, help="scenes to train on")
    parser.add_argument("--probe-scenes", type=int, default=6_000, help="other scenes, two thirds to fit probes on")
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--seconds", type=float, default=100, help="time to train one model, about; 0: no limit")
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=min(16, os.cpu_count() or 1), help="processes that draw scenes")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    names = list(OBJECTIVES) if args.model == "all" else [args.model]
    path = args.out / "results.json"
    if path.exists() and (others := sorted(set(json.loads(path.read_text())["models"]) - set(names))):
        raise SystemExit(f"{path} holds {others}, which would be lost: another --out")
    begun = time.perf_counter()
    data, held = (draw_all(*of, args.workers) for of in ((TRAIN_SEED, args.scenes), (PROBE_SEED, args.probe_scenes)))
    drawn = hashlib.sha256(data.images[:64].numpy().tobytes()).hexdigest()
    seconds = time.perf_counter() - begun
    many = args.scenes + args.probe_scenes
    print(f"{many} scenes in {seconds:.1f} s with {args.workers} processes, first 64: {drawn[:16]}", flush=True)
    data, held = (Data(*(part.to(args.device) for part in whole)) for whole in (data, held))
    mean, std = mean_and_std(data.images)
    settings = {key: value for key, value in vars(args).items() if key not in ("out", "model", "workers")}
    results: dict[str, Any] = {
        "settings": settings,
        "draw": {"seconds": round(seconds, 1), "first_64_sha256": drawn},
        "environment": {
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu",
        },
        "code_sha256": code_hash(),
        "controls": {"pixels": probe_pixels(held)},
        "models": {},
    }
    for name in names:
        torch.manual_seed(args.seed)
        kind, rate, share = OBJECTIVES[name]
        model = kind(mean, std).to(args.device)
        if not results["controls"].get("random weights"):
            results["controls"]["random weights"] = probe_vit(model.vit, model.normal, held)
        print(f"{name}: {sum(p.numel() for p in model.vit.parameters()):,} parameters", flush=True)
        made = train(model, data, rate, share * args.seconds, args)
        for weights in model.parameters():
            weights.data = weights.data.half().float()  # what ships is what is probed
        vit = VisionTransformer(**ARCHITECTURE).to(args.device)
        vit.load_state_dict(model.vit.state_dict())
        found = probe_vit(vit, model.normal, held)
        if isinstance(model, TextObjective):
            tower = CaptionTower(WORDS, image_width=WIDTH).to(args.device)
            tower.load_state_dict(model.text.state_dict())
            found |= probe_text(vit, tower, model.normal, held)
        config = {"architecture": ARCHITECTURE, "mean": mean, "std": std, "objective": kind.__doc__, "seed": args.seed}
        config |= {"learning_rate": rate, "batch": args.batch, "scenes": args.scenes, "training": made, "probes": found}
        path = save(name, model, config | {"code_sha256": results["code_sha256"]}, args.out)
        results["models"][name] = {"training": made, "probes": found, "bytes": path.stat().st_size}
        print(f"  {path.name} {path.stat().st_size:,} bytes  {json.dumps(found)}", flush=True)
        (args.out / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    print(f"controls {json.dumps(results['controls'])}\ndone in {time.perf_counter() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
