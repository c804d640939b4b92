"""Ways to take a layer apart, measured side by side on the same activations: Table 2 of the disentanglement paper."""

from vitreous.dictionary_comparison.compare import compare_dictionaries as compare_dictionaries
from vitreous.dictionary_comparison.compare import hold_out as hold_out
from vitreous.dictionary_comparison.result import DictionaryComparison as DictionaryComparison
