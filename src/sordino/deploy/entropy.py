"""Noise of a deployment, drawn on the host from random words of the operating system, in whole numbers.

A simulation draws all its noise from one key. A node that talks to others has none: each of its random words is asked
of the operating system when it is needed, and is used once. `privacy.lattice` and `privacy.host_noise` prove how far
the laws below are from those that accountants know.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from typing import TypeAlias

import jax
import numpy as np
from numpy.typing import NDArray

from sordino.errors import require
from sordino.keys import key_of
from sordino.mechanisms._exact_table import ExactTable, exact_table
from sordino.mechanisms._lattice_gaussian import digit_table
from sordino.privacy.host_noise import (
    MOST_TOSSED,
    coin_weights,
    digit_thresholds,
    laplace_digits,
    rounded_gaussian_steps,
)
from sordino.privacy.lattice import DEVIATION, DIGIT_BITS, DIGITS, THRESHOLD_WORDS
from sordino.privacy.quantized import Calibration

Words: TypeAlias = Callable[[tuple[int, ...]], NDArray[np.uint32]]  # independent uniform words of this shape
Integers: TypeAlias = NDArray[np.int64]

LOWEST, HIGHEST = -(2**31), 2**31 - 1  # of a message's integers, 512 noise stds from zero
_FURTHEST = 2.0**60  # of a vector in lattice steps, before noise
_AT_ONCE = 2**18  # coordinates whose words are in memory


def os_words(shape: tuple[int, ...]) -> NDArray[np.uint32]:
    """Random words of the operating system."""
    return np.frombuffer(os.urandom(4 * math.prod(shape)), np.uint32).reshape(shape)


def key_from(words: Words) -> jax.Array:
    """A fresh key, for random numbers that no law has to hold for exactly: samples of records, and PrivUnit."""
    high, low = (int(word) for word in words((2,)))
    return key_of(high << 32 | low)


# --- The lattice -----------------------------------------------------------------------------------------------------


def spacing(noise_std: float) -> float:
    """g = noise_std / S in float64: a node and its server compute the same."""
    require(0 < noise_std < math.inf, "noise_std", noise_std, "must be finite and positive")
    return float(noise_std) / DEVIATION


def lattice_integers(words: Words, vector: NDArray[np.float32], noise_std: float) -> NDArray[np.int32]:
    """round(vector / g) + Z with Z = round(N(0, S^2)), cut to the range of int32.

    The cut reads the noisy integer alone: it is post-processing, which moves no two inputs apart.
    """
    return np.clip(_noisy(words, vector, noise_std), LOWEST, HIGHEST).astype(np.int32)


def read_integers(integers: NDArray[np.integer], noise_std: float) -> NDArray[np.float32]:
    """The numbers that lattice integers stand for."""
    return (integers.astype(np.float64) * spacing(noise_std)).astype(np.float32)


def with_lattice_noise(words: Words, total: NDArray[np.float32], noise_std: float) -> NDArray[np.float32]:
    """A sum, or a scalar beside it, with the server's noise."""
    noisy = _noisy(words, np.atleast_1d(total), noise_std)
    return read_integers(noisy, noise_std).reshape(np.shape(total))


def _noisy(words: Words, vector: NDArray[np.float32], noise_std: float) -> Integers:
    exact = np.asarray(vector, np.float64)
    # Bounders leave finite vectors. Another one would have no neighbours within its bound: it counts as zero.
    exact = exact if np.all(np.isfinite(exact)) else np.zeros_like(exact)
    steps = np.clip(np.rint(exact / spacing(noise_std)), -_FURTHEST, _FURTHEST)  # a cut moves no two vectors apart
    return steps.astype(np.int64) + lattice_noise(words, len(exact))


def lattice_noise(words: Words, count: int) -> Integers:
    """Z of so many coordinates: three digits, each from the table whose law is proven."""
    noise = np.zeros(count, np.int64)
    for _ in range(DIGITS):
        noise = (noise << DIGIT_BITS) + draw(words, digit_table(), count)
    return noise


# --- Whole noise on quantised vectors --------------------------------------------------------------------------------


def quantize(words: Words, vector: NDArray[np.float32], levels: int, bound: float) -> Integers:
    """s u_i, u = vector / bound, rounded down or up to a whole number so that its mean is s u_i up to 2^-32.

    Sensitivities rest on the same words for both neighbours, not on their law.
    """
    exact = np.asarray(vector, np.float64)
    exact = exact if np.all(np.isfinite(exact)) else np.zeros_like(exact)
    scaled = levels * np.clip(exact / float(bound), -1.0, 1.0)
    down = np.floor(scaled)
    return down.astype(np.int64) + (words(scaled.shape) < (scaled - down) * 2.0**32)


def quantized_noise(words: Words, calibration: Calibration, count: int) -> Integers:
    """Noise of a calibrated law; discrete Laplace noise is right modulo 2^t, which is all that travels."""
    if calibration.law == "gaussian":
        steps = rounded_gaussian_steps(calibration.noise_std)
        return (lattice_noise(words, count) + steps // 2) // steps
    assert calibration.alpha is not None
    thresholds, support = _thresholds(calibration.alpha, laplace_digits(calibration)), calibration.support
    noise = geometric(words, thresholds, count) - geometric(words, thresholds, count)
    if calibration.law == "truncated-laplace":
        while (beyond := np.flatnonzero(np.abs(noise) > support)).size:
            again = geometric(words, thresholds, beyond.size) - geometric(words, thresholds, beyond.size)
            noise[beyond] = again
    return noise


def coin_noise(words: Words, coins: int, count: int) -> Integers:
    """Heads of N fair coins, minus N/2."""
    if coins > MOST_TOSSED:
        return draw(words, _coin_table(coins), count)
    whole, rest = divmod(coins, 32)
    tossed = words((whole + 1, count))
    last = tossed[-1] & np.uint32((1 << rest) - 1)
    heads = np.bitwise_count(tossed[:-1]).sum(axis=0, dtype=np.int64) + np.bitwise_count(last)
    return heads.astype(np.int64) - coins // 2


# --- Draws with thresholds of 256 bits -------------------------------------------------------------------------------


def draw(words: Words, table: ExactTable, count: int) -> Integers:
    """Independent draws from a table."""
    parts = [_draw(words, table, min(_AT_ONCE, count - start)) for start in range(0, count, _AT_ONCE)]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _draw(words: Words, table: ExactTable, count: int) -> Integers:
    column = words((count,)) & np.uint32(table.columns - 1)
    below = _below(words, table.keep, column)
    return np.where(below, table.own[column], table.other[column]).astype(np.int64)


def geometric(words: Words, thresholds: NDArray[np.uint32], count: int) -> Integers:
    """sum_j 2^j [digit j], each digit 1 with its own probability; `thresholds` is [word, digit]."""
    number = np.zeros(count, np.int64)
    for j in range(thresholds.shape[1]):
        number += _below(words, thresholds, np.full(count, j, np.uint32)).astype(np.int64) << j
    return number


def _below(words: Words, thresholds: NDArray[np.uint32], column: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Whether fresh 256-bit numbers lie below the thresholds of their columns; later words are drawn only for ties."""
    first, limit = words(column.shape), thresholds[0][column]
    below, undecided = first < limit, np.flatnonzero(first == limit)
    for later in thresholds[1:]:
        if not undecided.size:
            break
        word, limit = words(undecided.shape), later[column[undecided]]
        below[undecided] = word < limit
        undecided = undecided[word == limit]
    return below


@functools.lru_cache(maxsize=8)
def _coin_table(coins: int) -> ExactTable:
    return exact_table(coin_weights(coins))


@functools.lru_cache(maxsize=8)
def _thresholds(alpha: float, digits: int) -> NDArray[np.uint32]:
    whole = digit_thresholds(alpha, digits)
    shifts = [32 * (THRESHOLD_WORDS - 1 - i) for i in range(THRESHOLD_WORDS)]
    return np.array([[(each >> shift) & 0xFFFFFFFF for each in whole] for shift in shifts], np.uint32)
