"""The parts of a run, in the order in which they are made. Each is kept as it is finished; one that is there stays."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import vitreous.examination.files as files
from vitreous.errors import SettingsError, StoreError, VitreousError
from vitreous.examination.classes import WORDED, Classes, find_classes
from vitreous.examination.nearness import near_units
from vitreous.examination.plan import Asked, Plan
from vitreous.examination.profiles import Layer, Profile, profile, similar_units
from vitreous.examination.proof import ms_evidence, perturbation_evidence, stability_evidence
from vitreous.progress import tqdm

if TYPE_CHECKING:
    from PIL.Image import Image

    from vitreous.lenses.disentangle_finding import Disentanglement
    from vitreous.lenses.tokens_finding import TokenMaps
    from vitreous.store import Store

Attempt = Callable[[str, Callable[[], None]], None]
LONGEST, SMALL = 512, 128  # pixels of a kept picture; up to which it is kept without loss
INSTANCES = 8  # patches drawn from each picture for disentangling; more for few pictures
TSNE_SAMPLE = 1000
GROUPS = 20  # concepts on the map of the universal space
LABEL_SHARE, LABEL_MOST = 0.08, 100  # strongest pictures that name a unit: a share of all


class Bench:
    """What the parts share: the plan, and what was made or read already."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.out, self.progress = plan, plan.out, plan.progress
        self._findings: dict[tuple[str, int, str], Disentanglement] = {}

    def store(self, one: Asked) -> Store:
        from vitreous.store import Store

        return Store.open(self.out / files.STORES / one.name)

    def finding(self, one: Asked, block: int, folder: str = files.DISENTANGLE) -> Disentanglement:
        from vitreous.lenses.disentangle_finding import Disentanglement

        key = one.name, block, folder
        if key not in self._findings:
            self._findings[key] = Disentanglement.load(self.out / folder / one.name / str(block))
        return self._findings[key]

    def layer(self, one: Asked, block: int) -> Layer:
        return Layer.of(self.store(one), self.finding(one, block), block)

    def profile(self, one: Asked, block: int) -> Profile:
        return Profile.load(self.out / files.PROFILES / one.name / f"{block}.npz")

    def maps(self, one: Asked, block: int) -> TokenMaps:
        from vitreous.lenses.tokens_finding import TokenMaps

        return TokenMaps.load(self.out / files.TOKENS / one.name / f"{block}.npz")

    def blocks(self) -> list[tuple[Asked, int]]:
        return [(one, block) for one in self.plan.models for block in one.blocks]

    def picture_files(self) -> list[str]:
        return [name for name, _ in self.pictures]

    @cached_property
    def pictures(self) -> list[tuple[str, bytes]]:
        """Names and bytes of all pictures as they are kept."""
        found = []
        for k in tqdm(range(len(self.plan.images)), "pictures", disable=not self.progress, delay=1, leave=False):
            suffix, data = kept_picture(self.plan.images[k].image)
            found.append((f"{k:05d}.{suffix}", data))
        return found

    @cached_property
    def embedded(self) -> np.ndarray:
        """Pictures in the space of the words."""
        from vitreous.labels import embed_pictures

        assert self.plan.towers is not None
        return embed_pictures(self.plan.towers.pictures, self.plan.images, progress=self.progress)


def whole(load: Callable[[Path], Any], path: Path) -> bool:
    """Whether a part is there and can be read; a damaged one is made again."""
    if not path.exists():
        return False
    try:
        load(path)
    except VitreousError:
        return False
    return True


# -- pictures and activations


def kept_picture(image: Image) -> tuple[str, bytes]:
    """A picture at 512 pixels or less: small ones without loss, others as JPEG."""
    from PIL import Image as pil

    picture = image.convert("RGB")
    if max(picture.size) > LONGEST:
        picture.thumbnail((LONGEST, LONGEST), pil.Resampling.LANCZOS)
    file = io.BytesIO()
    small = max(picture.size) <= SMALL
    picture.save(file, "PNG") if small else picture.save(file, "JPEG", quality=90)
    return "png" if small else "jpg", file.getvalue()


def keep_pictures(bench: Bench, attempt: Attempt) -> None:
    del attempt  # without pictures there is nothing to look at
    folder = bench.out / files.PICTURES
    folder.mkdir(exist_ok=True)
    for name, data in bench.pictures:
        path = folder / name
        if not path.is_file() or path.read_bytes() != data:
            path.write_bytes(data)


def keep_activations(bench: Bench, attempt: Attempt) -> None:
    del attempt  # all other parts read these
    from vitreous.recording import record

    plan = bench.plan
    for one in plan.models:
        sites = [f"blocks.{block}.{name}" for block in one.blocks for name in ("mlp.hidden", "mlp.out")]
        sites += ["blocks.*.resid.out"] + (["blocks.*.attn.out"] if one.maps_attention else [])
        folder = bench.out / files.STORES / one.name
        record(one.subject, plan.images, sites, folder, seed=plan.seed, progress=bench.progress)


# -- lenses


def find_structure(bench: Bench, attempt: Attempt) -> None:
    """Clusters of units of the stream, at the first token and a patch in the middle; nearest units besides."""
    from vitreous.lenses.structure import structure
    from vitreous.lenses.structure_finding import StructureFinding

    def make(one: Asked) -> None:
        store = bench.store(one)
        path = bench.out / files.STRUCTURE / f"{one.name}.npz"
        if not whole(StructureFinding.load, path):
            bins = min(100, len(store))
            tokens = structure_tokens(one)
            structure(store, tokens=tokens, bins=bins, progress=bench.progress).save(path)
        near = path.with_name(f"{one.name}-near.npz")
        if not near.exists() or not whole(lambda p: files.read_arrays(p, "nearest units"), near):
            units, distances = near_units(store, StructureFinding.load(path))
            files.write_arrays(near, {}, {"units": units, "distances": distances})

    for one in bench.plan.models:
        attempt(f"{files.STRUCTURE}/{one.name}", lambda one=one: make(one))  # type: ignore[misc]


def structure_tokens(one: Asked) -> list[int]:
    """The first prefix token where there is one, and the patch in the middle."""
    grid = one.subject.grid()
    assert grid is not None
    middle = len(one.subject.prefix) + (grid.rows // 2) * grid.columns + grid.columns // 2
    return [0, middle] if one.subject.prefix else [middle]


def split_units(bench: Bench, attempt: Attempt) -> None:
    """Every examined block, and once more on other patches to see what stays."""
    from vitreous.lenses.disentangle import disentangle

    def make(one: Asked, block: int, folder: str, seed: int) -> None:
        out = bench.out / folder / one.name / str(block)
        store = bench.store(one)
        tokens = store[f"blocks.{block}.mlp.hidden"].shape[1]
        each = min(tokens, max(INSTANCES, -(-4096 // len(store))))
        wanted: Any = {"units": one.units[block].tolist(), "tokens_per_image": each, "seed": seed}
        site = f"blocks.{block}.mlp.out"
        try:
            disentangle(one.subject, store, site, out=out, progress=bench.progress, **wanted)
        except StoreError:  # what is there is damaged
            shutil.rmtree(out, ignore_errors=True)
            disentangle(one.subject, store, site, out=out, progress=bench.progress, **wanted)

    for one, block in bench.blocks():
        for folder, seed in ((files.DISENTANGLE, bench.plan.seed), (files.SECOND, bench.plan.seed + 1)):
            name = f"{folder}/{one.name}/{block}"
            attempt(name, lambda o=one, b=block, f=folder, s=seed: make(o, b, f, s))  # type: ignore[misc]


def align_models(bench: Bench, attempt: Attempt) -> None:
    """One cut over all layers of all models; with responses in the space that they give, else of one width."""
    attempt(files.ALIGN, lambda: _cut(bench))


def _cut(bench: Bench) -> None:
    from vitreous.lenses.align import CHECKPOINT
    from vitreous.lenses.align_colors import colors, group_nodes, spectral_tsne
    from vitreous.lenses.align_cut import Spectral, ncut

    plan, folder = bench.plan, bench.out / files.ALIGN
    path = folder / "map.npz"
    if whole(Spectral.load, folder) and whole(lambda p: files.read_arrays(p, "a map"), path):
        (folder / CHECKPOINT).unlink(missing_ok=True)  # of a run that was killed just before its end
        return
    models = [one for one in plan.models if one.maps_attention]
    if not models:
        raise SettingsError("no model here has attention, whose output is aligned")
    read = None if plan.responses is None else _alignment(bench, models)
    if read is None:
        widths = [one.subject.width for one in models]
        models = [one for one in models if one.subject.width == max(widths, key=widths.count)]
    nodes = {}
    for one in models:
        store, first = bench.store(one), len(one.subject.prefix)
        layers = [site for site in store.sites if site.endswith(".attn.out")]
        nodes[one.name] = {site: np.asarray(store[site][plan.close])[:, first:] for site in layers}
    many = min(plan.eigenvectors, 4 * len(plan.close))
    spectral = ncut(nodes, many, read=read, seed=plan.seed, progress=bench.progress)
    if not np.isfinite(spectral.eigenvectors).all():
        raise SettingsError("the cut is not finite")
    sample: Any = {"n_sample": TSNE_SAMPLE, "seed": plan.seed}
    solid = spectral_tsne(spectral, 3, **sample)
    flat = spectral_tsne(spectral, 2, **sample)
    groups = group_nodes(spectral, n_sample=TSNE_SAMPLE, seed=plan.seed)
    concepts = groups(min(GROUPS, len(groups.merges) + 1)).astype(np.uint8)
    arrays = {"places": flat, "solid": solid, "colours": colors(solid), "concepts": concepts}
    spectral.save(folder)
    files.write_arrays(path, {}, arrays)
    (folder / CHECKPOINT).unlink(missing_ok=True)  # torch's own format; what it was kept for is done


def _alignment(bench: Bench, models: list[Asked]) -> Any:
    from vitreous.lenses.align import align

    plan = bench.plan
    assert plan.responses is not None
    stores = {one.name: bench.store(one) for one in models}
    folder = bench.out / files.ALIGN
    return align(stores, plan.images, plan.responses, out=folder, seed=plan.seed, progress=bench.progress).transform


def map_tokens(bench: Bench, attempt: Attempt) -> None:
    from vitreous.lenses.tokens import token_maps
    from vitreous.lenses.tokens_finding import TokenMaps

    def make(one: Asked) -> None:
        paths = {block: bench.out / files.TOKENS / one.name / f"{block}.npz" for block in one.blocks}
        left = [block for block, path in paths.items() if not whole(TokenMaps.load, path)]
        if not left:
            return
        looked = bench.plan.images[bench.plan.maps_close(one)]
        # all blocks in one pass, also if one is left: a pass of its own would differ in the last bits
        for found in token_maps(one.subject, looked, one.blocks, progress=bench.progress):
            if found.block in left:
                found.save(paths[found.block])

    for one in bench.plan.models:
        attempt(f"{files.TOKENS}/{one.name}", lambda one=one: make(one))  # type: ignore[misc]


# -- units, words, proof


def profile_units(bench: Bench, attempt: Attempt) -> None:
    def make(one: Asked, block: int) -> None:
        path = bench.out / files.PROFILES / one.name / f"{block}.npz"
        if not whole(Profile.load, path):
            profile(bench.layer(one, block), bench.plan.close, progress=bench.progress).save(path)

    for one, block in bench.blocks():
        attempt(f"{files.PROFILES}/{one.name}/{block}", lambda o=one, b=block: make(o, b))  # type: ignore[misc]

    def compare() -> None:
        path = bench.out / files.SIMILAR
        if not whole(lambda p: files.read_arrays(p, "similar units"), path):
            layers = [(bench.layer(one, block), f"blocks.{block}.mlp.hidden") for one, block in bench.blocks()]
            gridded = [(tuple(layer.store.grid(site) or ()), layer) for layer, site in layers]
            units, r = similar_units(gridded, bench.plan.seed)
            files.write_arrays(path, {}, {"units": units, "r": r})

    attempt("similar", compare)


def name_units(bench: Bench, attempt: Attempt) -> None:
    from vitreous.labels import Labels, label

    towers = bench.plan.towers
    count = len(bench.plan.images)
    top = min(LABEL_MOST, max(8, round(LABEL_SHARE * count)))

    def make(one: Asked, block: int) -> None:
        if towers is None:
            raise SettingsError("no words: give towers= that put pictures and words into one space")
        found = bench.profile(one, block)
        for name, maxima in (("units", found.maxima), ("subunits", found.subunit_maxima)):
            path = bench.out / files.LABELS / one.name / str(block) / f"{name}.npz"
            if not whole(Labels.load, path):
                vocabulary, seed = towers.vocabulary, bench.plan.seed
                settings: Any = {"top": top, "seed": seed, "progress": bench.progress}
                label(maxima, bench.embedded, towers.texts, vocabulary, **settings).save(path)

    for one, block in bench.blocks():
        attempt(f"{files.LABELS}/{one.name}/{block}", lambda o=one, b=block: make(o, b))  # type: ignore[misc]


def read_classes(bench: Bench, attempt: Attempt) -> None:
    from vitreous.labels import embed_pictures

    def make(one: Asked) -> None:
        path = bench.out / files.CLASSES / f"{one.name}.npz"
        if whole(Classes.load, path):
            return

        def embed() -> np.ndarray:
            return embed_pictures(one.subject, bench.plan.images, progress=bench.progress)

        found = find_classes(one.subject, bench.plan.images, embed, bench.plan.seed)
        if found is None:
            raise SettingsError(f"no classifier, no labels, and no words ({WORDED} has some)")
        found.save(path)

    for one in bench.plan.models:
        attempt(f"{files.CLASSES}/{one.name}", lambda one=one: make(one))  # type: ignore[misc]


def gather_evidence(bench: Bench, attempt: Attempt) -> None:
    def make(one: Asked, block: int) -> None:
        path = bench.out / files.EVIDENCE / one.name / f"{block}.json"
        if path.exists() and whole(lambda p: files.read_json(p, "evidence"), path):
            return
        plan, layer = bench.plan, bench.layer(one, block)
        found = ms_evidence(layer, block, plan.seed, bench.progress)
        found |= stability_evidence(layer.finding, bench.finding(one, block, files.SECOND))
        if one.maps_attention:
            looked = plan.maps_close(one).tolist()
            maps, profiled = bench.maps(one, block), bench.profile(one, block)
            settings: Any = {"seed": plan.seed, "progress": bench.progress}
            found |= perturbation_evidence(one.subject, plan.images, layer, maps, looked, profiled, **settings)
        files.write_json(path, found)

    for one, block in bench.blocks():
        attempt(f"{files.EVIDENCE}/{one.name}/{block}", lambda o=one, b=block: make(o, b))  # type: ignore[misc]


PARTS: tuple[tuple[str, Callable[[Bench, Attempt], None]], ...] = (
    ("keeping the pictures", keep_pictures),
    ("recording activations", keep_activations),
    ("structure: units that do the same job", find_structure),
    ("disentangle: units split into sub-units", split_units),
    ("align: all layers and models in one space", align_models),
    ("tokens: what each token is made of", map_tokens),
    ("what every unit answers to", profile_units),
    ("words for units", name_units),
    ("classes to steer by", read_classes),
    ("evidence: is it real?", gather_evidence),
)
