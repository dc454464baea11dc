"""Draws for cohorts whose work grows with the cohort, not with the population: distinct numbers, a binomial count.

n is the population. Uniform words of 32 bits are all that is drawn, and integers all that is computed, so that
every device draws alike.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sordino.types import Key

SMALL = 2**16  # up to so many clients `jax.random.randint` is uniform within n / 2^64; beyond, within n / 2^32 alone
WORDS = 3  # of 32 bits for a count
_BITS = 256  # of the weights that a count's law is made of
_NEGLIGIBLE = 140  # weights below 2^-140 of the largest are left out


def distinct(key: Key, size: int, clients: int) -> jax.Array:
    """`size` different numbers below `clients`, uniformly and in random order, in O(size) when few are wanted."""
    if 4 * size > clients:
        return jax.random.permutation(key, clients)[:size]
    # Draw with replacement and keep the first of each value: the first `size` values are a uniform sample without
    # replacement. A draw repeats an earlier one with probability below size/clients <= 1/4, so that the draws hold too
    # few values less than once in 10^20 rounds. Of the words of a large population a share is thrown away.
    kept = 1.0 if clients <= SMALL else 1 - 2**32 % clients / 2**32
    draws = math.ceil((size + math.ceil(size / 2) + 40) / kept)
    value = _uniform(key, draws, clients)
    order = jnp.argsort(value, stable=True)
    repeated = (value == clients).at[order[1:]].max(value[order[1:]] == value[order[:-1]])
    first = jnp.argsort(repeated, stable=True)[:size]
    return value[first]


def _uniform(key: Key, draws: int, clients: int) -> jax.Array:
    """Independent uniform numbers below `clients`; `clients` itself stands for a word that is thrown away."""
    if clients <= SMALL:
        return jax.random.randint(key, (draws,), 0, clients)
    # The remainder of a word favours small numbers, by one part in 4,000 for a million clients, unless the words of
    # the last, incomplete stretch of n are thrown away.
    word = jax.random.bits(key, (draws,), jnp.uint32)
    whole = word < jnp.uint32(2**32 - 2**32 % clients) if 2**32 % clients else jnp.ones(draws, bool)
    return jnp.where(whole, word % jnp.uint32(clients), jnp.uint32(clients)).astype(jnp.int32)


def binomial(key: Key, clients: int, q: int, most: int) -> jax.Array:
    """How many of `clients` come, each with probability q / 2^32, independently; `most` stands for all above."""
    least, thresholds = binomial_thresholds(clients, q, most)
    words = jax.random.bits(key, (WORDS,), jnp.uint32)
    reached = jnp.ones(thresholds.shape[1], bool)
    for word, threshold in zip(words[::-1], thresholds[::-1], strict=True):  # as one number, first word first
        reached = (word > threshold) | ((word == threshold) & reached)
    return least + jnp.sum(reached, dtype=jnp.int32)


@functools.lru_cache
def binomial_thresholds(clients: int, q: int, most: int) -> tuple[int, NDArray[np.uint32]]:
    """(m_0, T) with count = m_0 + #{i: U >= T_i} for U uniform below 2^96, T_i = 2^96 P(count <= m_0 + i) in words.

    Whole numbers throughout: w_{m+1} / w_m = (n - m) q / ((m + 1) (2^32 - q)) from the mode on. All roundings together
    change a probability by less than 2^-90.
    """
    there, away = q, 2**32 - q
    mode = (clients + 1) * q >> 32
    top = 1 << _BITS
    up, down = [top], []
    m = mode
    while m < clients and up[-1] > top >> _NEGLIGIBLE:
        up.append(up[-1] * (clients - m) * there // ((m + 1) * away))
        m += 1
    weight, least = top, mode
    while least > 0 and weight > top >> _NEGLIGIBLE:
        weight = weight * least * away // ((clients - least + 1) * there)
        down.append(weight)
        least -= 1
    weights = [*reversed(down), *up]
    total, so_far, thresholds = sum(weights), 0, []
    for weight in weights[: max(0, most - least)]:
        so_far += weight
        thresholds.append(min((so_far << 32 * WORDS) // total, 2 ** (32 * WORDS) - 1))
    shifts = [32 * (WORDS - 1 - i) for i in range(WORDS)]
    return least, np.array([[each >> shift & 0xFFFFFFFF for each in thresholds] for shift in shifts], np.uint32)
