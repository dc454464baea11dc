"""Draws from an integer law, accurate to 2^-32 a column, by Walker's alias method: one uniform column, one comparison.

The table is built once on the host in float64; a draw costs two random words and two look-ups, whatever the law. Its
length is a power of two, so that a column is some bits of a random word, without the bias of a remainder.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from sordino.errors import InvalidInput
from sordino.pytrees import pytree
from sordino.types import Key

LARGEST_TABLE = 2**23


@pytree
@dataclass(frozen=True)
class Table:
    """P(first + i) for i = 0, ..., n - 1, as n = 2^k columns of equal mass that are each split between two values."""

    first: jax.Array
    keep: jax.Array  # uint32[n]: column i keeps its own value when a random word lies below this
    alias: jax.Array  # int32[n]

    def draw(self, key: Key, shape: tuple[int, ...]) -> jax.Array:
        key_column, key_split = jax.random.split(key)
        column = jax.random.bits(key_column, shape, jnp.uint32) & (self.keep.shape[0] - 1)
        return self.split(key_split, column)

    def split(self, key: Key, column: jax.Array) -> jax.Array:
        """The value of each uniform column: its own or its alias."""
        own = jax.random.bits(key, column.shape, jnp.uint32) < self.keep[column]
        return self.first + jnp.where(own, column.astype(jnp.int32), self.alias[column])


def table(first: int, pmf: NDArray[np.float64]) -> Table:
    """The alias table of a law on {first, first + 1, ...}; sweeps light columns against heavy ones without a loop."""
    if len(pmf) > LARGEST_TABLE:
        remedy = f"a table holds at most {LARGEST_TABLE} values: use fewer levels or less noise"
        raise InvalidInput("noise support", len(pmf), remedy)
    n = 1 << (len(pmf) - 1).bit_length()
    height = np.zeros(n)  # the columns beyond the law stay empty: they keep nothing of their own
    height[: len(pmf)] = pmf * (n / pmf.sum())
    light, heavy = np.flatnonzero(height < 1), np.flatnonzero(height >= 1)
    missing, surplus = np.cumsum(1 - height[light]), np.cumsum(height[heavy] - 1)
    keep, alias = height.copy(), np.arange(n)
    if light.size and heavy.size:
        # A light column takes what it lacks from the heavy one at which the sweep stands when its turn comes.
        before = np.concatenate([[0.0], missing[:-1]])
        # At a tie that is the one just emptied, as `emptied_by` below has it too.
        giver = np.minimum(np.searchsorted(surplus, before, side="left"), heavy.size - 1)
        alias[light] = heavy[giver]
        # A heavy column that gave more than its surplus is topped up by the next heavy one.
        emptied_by = np.minimum(np.searchsorted(missing, surplus, side="right"), light.size - 1)
        keep[heavy] = np.clip(1 - (missing[emptied_by] - surplus), 0.0, 1.0)
        alias[heavy[:-1]] = heavy[1:]
    threshold = np.minimum(np.clip(keep, 0.0, 1.0) * 2.0**32, 2.0**32 - 1).astype(np.uint32)
    # A column of full height must never point elsewhere, whatever the last random word is.
    alias = np.where(threshold == 2**32 - 1, np.arange(n), alias)
    with jax.ensure_compile_time_eval():  # tables are cached: they must not hold tracers
        return Table(jnp.int32(first), jnp.asarray(threshold), jnp.asarray(alias, jnp.int32))


def centred_table(pmf: NDArray[np.float64]) -> Table:
    """The alias table of a law on an odd number of integers around zero."""
    return table(-(len(pmf) // 2), pmf)


def fold(pmf: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """The law of the sum of `count` independent draws from a centred table of odd length, tails below 1e-18 cut off."""
    half = len(pmf) // 2
    if count == 1 or half == 0:
        return pmf
    reach = min(half * count, max(half, _reach(pmf, count)))
    if reach > LARGEST_TABLE:
        raise InvalidInput("count", count, "the law of the sum is too wide for a table: set transcript = true")
    # Zero comes first, so that phases stay small; what wraps around lies beyond the reach.
    wrapped = np.fft.ifftshift(np.pad(pmf, reach - half))
    whole: NDArray[np.float64] = np.fft.irfft(np.fft.rfft(wrapped) ** count, n=2 * reach + 1)
    return np.maximum(np.fft.fftshift(whole), 0.0)


def _reach(pmf: NDArray[np.float64], count: int) -> int:
    """Chernoff for a symmetric law: from here on P(S > y) <= e^(count K(t) - t y) <= 1e-18, K the cumulant function."""
    y, log_tail = np.arange(len(pmf)) - len(pmf) // 2, 18 * math.log(10)
    gaussian_t = math.sqrt(2 * log_tail / (count * float(y**2 @ pmf)))
    with np.errstate(divide="ignore"):
        log_pmf = np.log(pmf)
    tilts = [gaussian_t / 2**i for i in range(6)]
    return math.ceil(min((count * float(logsumexp(log_pmf + t * y)) + log_tail) / t for t in tilts))
