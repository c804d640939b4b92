"""Grouped ranks of many columns at once: ordinal ranks over samples, ties by sample, floor(rank * bins / samples).

Slow but easy to read, for one column x of B samples:

    order = np.argsort(x, kind="stable"); rank[order] = np.arange(B); grouped = rank * bins // B

The fast path sorts by radix, least digit first, on 64-bit words that hold a number's bits and its sample: three passes
of eleven bits, the last of which writes bins instead of words.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from vitreous.kernels.numba_threads import start_threads

UNITS = 16  # columns that one thread takes at a time: one cache line of each sample
MASK = np.uint64(2047)  # of a digit of eleven bits


def rank_bins(features: np.ndarray, bins: int, places: np.ndarray | None = None) -> np.ndarray:
    """(sample, unit) of finite numbers -> uint8 (unit, sample), each unit's bins in one piece.

    `places` (sample,) is where each sample's bin is put, for those who want the samples in another order: it is free.
    """
    return _ranked(features, bins, places, np.uint8)


def ordinal_ranks(features: np.ndarray, places: np.ndarray | None = None) -> np.ndarray:
    """(sample, unit) of finite numbers -> float64 (unit, sample): the ranks themselves, as many bins as samples."""
    return _ranked(features, len(features), places, np.float64)


def _ranked(features: np.ndarray, bins: int, places: np.ndarray | None, kind: type) -> np.ndarray:
    samples, units = features.shape
    out: np.ndarray = np.empty((units, samples), kind)
    places = np.arange(samples) if places is None else places
    if features.dtype == np.float64:
        for unit in range(units):
            order = np.argsort(features[:, unit], kind="stable")
            out[unit, places[order]] = np.arange(samples) * bins // samples
    else:
        start_threads()
        _rank_columns(np.ascontiguousarray(features, np.float32), bins, places, out)
    return out


@njit(parallel=True, cache=True, nogil=True)
def _rank_columns(features, bins, places, out):
    samples, units = features.shape
    for block in prange((units + UNITS - 1) // UNITS):
        first = block * UNITS
        many = min(UNITS, units - first)
        columns = np.empty((UNITS, samples), np.float32)
        for k in range(samples):
            for c in range(many):
                columns[c, k] = features[k, first + c] + np.float32(0)  # -0 becomes 0: equal numbers, equal bits
        words, others = np.empty(samples, np.uint64), np.empty(samples, np.uint64)
        counts = np.empty((3, 2048), np.int32)
        for c in range(many):
            _rank_one(columns[c].view(np.uint32), bins, words, others, counts, places, out[first + c])


@njit(cache=True, nogil=True)
def _rank_one(bits, bins, words, others, counts, places, out):
    samples = bits.shape[0]
    top, every = np.uint32(0x80000000), np.uint32(0xFFFFFFFF)
    counts[:] = 0
    for k in range(samples):
        v = bits[k]
        # whole numbers in the order of the floats: sign bit flipped, negative numbers turned over
        key = np.uint64(~v & every) if v & top else np.uint64(v | top)
        words[k] = (key << np.uint64(32)) | np.uint64(k)
        counts[0, np.int64(key & MASK)] += 1
        counts[1, np.int64((key >> np.uint64(11)) & MASK)] += 1
        counts[2, np.int64(key >> np.uint64(22))] += 1
    for number in range(3):
        for digit in range(1, 2048):
            counts[number, digit] += counts[number, digit - 1]
        for digit in range(2047, 0, -1):  # where a digit begins, not where it ends
            counts[number, digit] = counts[number, digit - 1]
        counts[number, 0] = 0
    _move(words, others, counts[0], np.uint64(32))
    _move(others, words, counts[1], np.uint64(43))
    for k in range(samples):
        word = words[k]
        highest = np.int64(word >> np.uint64(54))
        place = np.int64(counts[2, highest])
        counts[2, highest] += 1
        out[places[np.int64(word & np.uint64(0xFFFFFFFF))]] = place * bins // samples


@njit(cache=True, nogil=True)
def _move(words, others, counts, shift):
    """One pass: every word to the next free place of its digit, in the order in which they come."""
    for k in range(words.shape[0]):
        digit = np.int64((words[k] >> shift) & MASK)
        others[counts[digit]] = words[k]
        counts[digit] += 1
