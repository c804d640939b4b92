"""vitreous makes transformers transparent. `import vitreous as vt`; nothing is imported until it is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from vitreous.attention import open_attention as open_attention
    from vitreous.auditing import AuditFinding as AuditFinding
    from vitreous.auditing import SwitchOff as SwitchOff
    from vitreous.auditing import audit as audit
    from vitreous.auditing.places import PlacesFinding as PlacesFinding
    from vitreous.auditing.places import audit_places as audit_places
    from vitreous.auditing.places_off import PlacesOff as PlacesOff
    from vitreous.auditing.sweep import audit_sites as audit_sites
    from vitreous.axes import Grid as Grid
    from vitreous.axes import Size as Size
    from vitreous.baselines.chefer import chefer as chefer
    from vitreous.baselines.dictionaries import Dictionary as Dictionary
    from vitreous.baselines.dictionaries import train_dictionary as train_dictionary
    from vitreous.baselines.gradcam import gradcam as gradcam
    from vitreous.baselines.gradcam import gradcams as gradcams
    from vitreous.baselines.kmeans_features import kmeans_segments as kmeans_segments
    from vitreous.baselines.kmeans_features import patch_features as patch_features
    from vitreous.baselines.masks import input_labels as input_labels
    from vitreous.baselines.masks import input_masks as input_masks
    from vitreous.baselines.masks import object_masks as object_masks
    from vitreous.baselines.mobile_sam import MobileSam as MobileSam
    from vitreous.baselines.rollout import attention_rollout as attention_rollout
    from vitreous.baselines.rollout import raw_attention as raw_attention
    from vitreous.baselines.tcav import tcav as tcav
    from vitreous.baselines.tcav import tcav_table as tcav_table
    from vitreous.datasets import dataset as dataset
    from vitreous.datasets.algonauts import algonauts as algonauts
    from vitreous.dictionary_comparison import DictionaryComparison as DictionaryComparison
    from vitreous.dictionary_comparison import compare_dictionaries as compare_dictionaries
    from vitreous.disentangled import DisentangledModel as DisentangledModel
    from vitreous.engine import open_engine as open_engine
    from vitreous.errors import EngineError as EngineError
    from vitreous.errors import ImageError as ImageError
    from vitreous.errors import JudgeError as JudgeError
    from vitreous.errors import ModelError as ModelError
    from vitreous.errors import SettingsError as SettingsError
    from vitreous.errors import SiteError as SiteError
    from vitreous.errors import StoreError as StoreError
    from vitreous.errors import VitreousError as VitreousError
    from vitreous.examination import Examination as Examination
    from vitreous.examination import examine as examine
    from vitreous.examination import open_run as open_run
    from vitreous.familiar import run_with_cache as run_with_cache
    from vitreous.familiar import run_with_hooks as run_with_hooks
    from vitreous.finding import Finding as Finding
    from vitreous.hooks import capture as capture
    from vitreous.hooks import patch as patch
    from vitreous.images import ImageSet as ImageSet
    from vitreous.judges.chat import ChatJudge as ChatJudge
    from vitreous.judges.coherence import coherence_rank as coherence_rank
    from vitreous.judges.grids import top_pictures as top_pictures
    from vitreous.judges.llm_rank import llm_rank as llm_rank
    from vitreous.kernels.split_weights import split_weights as split_weights
    from vitreous.labels import Labels as Labels
    from vitreous.labels import label as label
    from vitreous.laws import check_laws as check_laws
    from vitreous.lenses.align import ChannelAlign as ChannelAlign
    from vitreous.lenses.align import align as align
    from vitreous.lenses.align_atlas import Atlas as Atlas
    from vitreous.lenses.align_atlas import atlas as atlas
    from vitreous.lenses.align_atlas import layer_transitions as layer_transitions
    from vitreous.lenses.align_colors import Concepts as Concepts
    from vitreous.lenses.align_colors import Groups as Groups
    from vitreous.lenses.align_colors import colors as colors
    from vitreous.lenses.align_colors import concepts as concepts
    from vitreous.lenses.align_colors import group_nodes as group_nodes
    from vitreous.lenses.align_colors import spectral_tsne as spectral_tsne
    from vitreous.lenses.align_colors import trajectories as trajectories
    from vitreous.lenses.align_colors import transitions as transitions
    from vitreous.lenses.align_cut import Spectral as Spectral
    from vitreous.lenses.align_cut import ncut as ncut
    from vitreous.lenses.align_likeness import slot_cosines as slot_cosines
    from vitreous.lenses.align_segmentation import colors_by_region as colors_by_region
    from vitreous.lenses.align_segmentation import region_means as region_means
    from vitreous.lenses.align_segmentation import segmentation_by_layer as segmentation_by_layer
    from vitreous.lenses.disentangle import Disentanglement as Disentanglement
    from vitreous.lenses.disentangle import disentangle as disentangle
    from vitreous.lenses.structure import StructureFinding as StructureFinding
    from vitreous.lenses.structure import grouped_ranks as grouped_ranks
    from vitreous.lenses.structure import structure as structure
    from vitreous.lenses.structure import unit_clusters as unit_clusters
    from vitreous.lenses.structure_comparison import compare as compare
    from vitreous.lenses.tokens import TokenMaps as TokenMaps
    from vitreous.lenses.tokens import token_maps as token_maps
    from vitreous.lenses.tokens_learned import SelfConsistency as SelfConsistency
    from vitreous.lenses.tokens_segments import Segments as Segments
    from vitreous.lenses.tokens_segments import object_mask as object_mask
    from vitreous.lenses.tokens_segments import segment as segment
    from vitreous.lenses.tokens_text import ContextScores as ContextScores
    from vitreous.lenses.tokens_text import context_scores as context_scores
    from vitreous.models.family import Family as Family
    from vitreous.models.site import Site as Site
    from vitreous.models.subject import Subject as Subject
    from vitreous.pages import align_report as align_report
    from vitreous.pages import audit_report as audit_report
    from vitreous.pages import cut_report as cut_report
    from vitreous.pages import dictionary_report as dictionary_report
    from vitreous.pages import disentangle_report as disentangle_report
    from vitreous.pages import structure_report as structure_report
    from vitreous.preprocess import Preprocess as Preprocess
    from vitreous.recording import record as record
    from vitreous.responses import Responses as Responses
    from vitreous.scenery import scenes as scenes
    from vitreous.scenery.planted import scene_responses as scene_responses
    from vitreous.site import write_site as write_site
    from vitreous.steering import steer as steer
    from vitreous.store import Store as Store
    from vitreous.subjects import load as load
    from vitreous.subjects import wrap as wrap
    from vitreous.texts import TextSet as TextSet
    from vitreous.training.run import train as train
    from vitreous.training.structure_loss import StructureLoss as StructureLoss

#: Public name -> the module that holds it.
_PUBLIC = {
    "Atlas": "lenses.align_atlas",
    "AuditFinding": "auditing",
    "ChannelAlign": "lenses.align",
    "ChatJudge": "judges.chat",
    "Concepts": "lenses.align_colors",
    "ContextScores": "lenses.tokens_text",
    "Dictionary": "baselines.dictionaries",
    "DictionaryComparison": "dictionary_comparison",
    "DisentangledModel": "disentangled",
    "Disentanglement": "lenses.disentangle",
    "EngineError": "errors",
    "Examination": "examination",
    "Family": "models.family",
    "Finding": "finding",
    "Grid": "axes",
    "Groups": "lenses.align_colors",
    "ImageError": "errors",
    "ImageSet": "images",
    "JudgeError": "errors",
    "MobileSam": "baselines.mobile_sam",
    "Labels": "labels",
    "ModelError": "errors",
    "PlacesFinding": "auditing.places",
    "PlacesOff": "auditing.places_off",
    "Preprocess": "preprocess",
    "Responses": "responses",
    "Segments": "lenses.tokens_segments",
    "SelfConsistency": "lenses.tokens_learned",
    "SettingsError": "errors",
    "Site": "models.site",
    "SiteError": "errors",
    "Size": "axes",
    "Spectral": "lenses.align_cut",
    "Store": "store",
    "StoreError": "errors",
    "StructureFinding": "lenses.structure",
    "StructureLoss": "training.structure_loss",
    "Subject": "models.subject",
    "SwitchOff": "auditing",
    "TextSet": "texts",
    "TokenMaps": "lenses.tokens",
    "VitreousError": "errors",
    "algonauts": "datasets.algonauts",
    "align": "lenses.align",
    "align_report": "pages",
    "atlas": "lenses.align_atlas",
    "attention_rollout": "baselines.rollout",
    "audit": "auditing",
    "audit_places": "auditing.places",
    "audit_sites": "auditing.sweep",
    "audit_report": "pages",
    "capture": "hooks",
    "check_laws": "laws",
    "chefer": "baselines.chefer",
    "coherence_rank": "judges.coherence",
    "colors": "lenses.align_colors",
    "colors_by_region": "lenses.align_segmentation",
    "compare": "lenses.structure_comparison",
    "compare_dictionaries": "dictionary_comparison",
    "concepts": "lenses.align_colors",
    "cut_report": "pages",
    "context_scores": "lenses.tokens_text",
    "dataset": "datasets",
    "dictionary_report": "pages",
    "disentangle": "lenses.disentangle",
    "examine": "examination",
    "disentangle_report": "pages",
    "gradcam": "baselines.gradcam",
    "gradcams": "baselines.gradcam",
    "group_nodes": "lenses.align_colors",
    "grouped_ranks": "lenses.structure",
    "input_labels": "baselines.masks",
    "input_masks": "baselines.masks",
    "kmeans_segments": "baselines.kmeans_features",
    "label": "labels",
    "layer_transitions": "lenses.align_atlas",
    "llm_rank": "judges.llm_rank",
    "load": "subjects",
    "ncut": "lenses.align_cut",
    "object_mask": "lenses.tokens_segments",
    "object_masks": "baselines.masks",
    "open_attention": "attention",
    "open_engine": "engine",
    "open_run": "examination",
    "patch": "hooks",
    "patch_features": "baselines.kmeans_features",
    "raw_attention": "baselines.rollout",
    "record": "recording",
    "region_means": "lenses.align_segmentation",
    "run_with_cache": "familiar",
    "run_with_hooks": "familiar",
    "scene_responses": "scenery.planted",
    "scenes": "scenery",
    "segment": "lenses.tokens_segments",
    "segmentation_by_layer": "lenses.align_segmentation",
    "slot_cosines": "lenses.align_likeness",
    "spectral_tsne": "lenses.align_colors",
    "split_weights": "kernels.split_weights",
    "steer": "steering",
    "structure": "lenses.structure",
    "train": "training.run",
    "structure_report": "pages",
    "tcav": "baselines.tcav",
    "tcav_table": "baselines.tcav",
    "token_maps": "lenses.tokens",
    "top_pictures": "judges.grids",
    "train_dictionary": "baselines.dictionaries",
    "trajectories": "lenses.align_colors",
    "transitions": "lenses.align_colors",
    "unit_clusters": "lenses.structure",
    "wrap": "subjects",
    "write_site": "site",
}

__all__ = [*_PUBLIC]


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'vitreous' has no attribute {name!r}")
    value = importlib.import_module(f"vitreous.{_PUBLIC[name]}").__dict__[name]
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
