"""Sparse dictionaries that disentanglement is compared with: one row of `KINDS` and one small file each."""

from vitreous.baselines.dictionaries.dictionary import Dictionary as Dictionary
from vitreous.baselines.dictionaries.dictionary import DictionaryConfig as DictionaryConfig
from vitreous.baselines.dictionaries.kinds import KINDS as KINDS
from vitreous.baselines.dictionaries.learning import train_dictionary as train_dictionary
from vitreous.baselines.dictionaries.selection import quality as quality
from vitreous.baselines.dictionaries.selection import sweep as sweep
