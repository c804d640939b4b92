"""Activations on disk: `Store.open(path)[site]` reads like an array. docs/stores.md describes the files."""

from vitreous.store.lazy import SiteArray as SiteArray
from vitreous.store.manifest import Manifest as Manifest
from vitreous.store.manifest import Shard as Shard
from vitreous.store.manifest import SiteInfo as SiteInfo
from vitreous.store.manifest import read_manifest as read_manifest
from vitreous.store.reader import Problem as Problem
from vitreous.store.reader import Store as Store
