"""Draws from a symmetric integer law whose probabilities are known as whole numbers, exact to 2^-256 of a column.

Walker's alias method, as in `_table`, with thresholds of eight words: the column is some bits of one random word, and
the next word decides between its two values, but for one draw in 2^32 that hits the first word of the threshold. Only
then are the other seven compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sordino.privacy.lattice import THRESHOLD_WORDS
from sordino.types import Key

Words = Callable[[], jax.Array]  # uint32[THRESHOLD_WORDS - 1, ...]: further words of every draw


@dataclass(frozen=True)
class ExactTable:
    """n = 2^k columns of equal mass, each split between two values. NumPy arrays: a program holds them as constants."""

    columns: int  # n
    own: NDArray[np.int32]  # the value of each column
    other: NDArray[np.int32]  # its second value
    keep: NDArray[np.uint32]  # [word, column]: a column keeps its own value where the random words lie below these

    def draw(self, key_words: Key, key_rest: Key, shape: tuple[int, ...]) -> jax.Array:
        """Independent draws; `key_rest` gives the words that are hardly ever needed."""
        column, first = jax.random.bits(key_words, (2, *shape), jnp.uint32)

        def rest() -> jax.Array:
            return jax.random.bits(key_rest, (THRESHOLD_WORDS - 1, *shape), jnp.uint32)

        return self.split(column & (self.columns - 1), first, rest)

    def split(self, column: jax.Array, first: jax.Array, rest: Words) -> jax.Array:
        """The value of each uniform column, by the first word, and where that is not enough by the rest."""
        threshold = jnp.asarray(self.keep[0])[column]

        def decided_late() -> jax.Array:
            below, equal = first < threshold, first == threshold
            for word, keep in zip(rest(), self.keep[1:], strict=True):
                threshold_word = jnp.asarray(keep)[column]
                below, equal = below | (equal & (word < threshold_word)), equal & (word == threshold_word)
            return below

        below = jax.lax.cond(jnp.any(first == threshold), decided_late, lambda: first < threshold)
        return jnp.where(below, jnp.asarray(self.own)[column], jnp.asarray(self.other)[column])


def exact_table(weights: Sequence[int]) -> ExactTable:
    """The table of the law P(a) = P(-a) ~ weights[|a|], in whole numbers throughout."""
    values = list(range(1 - len(weights), len(weights)))
    n = 1 << (len(values) - 1).bit_length()
    height = [weights[abs(value)] * n for value in values] + [0] * (n - len(values))  # in units of total / n
    values += [0] * (n - len(values))  # columns beyond the law keep nothing of their own
    capacity = sum(height) // n
    other = list(values)
    light = [i for i in range(n) if height[i] < capacity]
    heavy = [i for i in range(n) if height[i] >= capacity]
    while light and heavy:
        poor, rich = light.pop(), heavy[-1]
        other[poor] = values[rich]
        height[rich] -= capacity - height[poor]
        if height[rich] < capacity:
            light.append(heavy.pop())
    bits = 32 * THRESHOLD_WORDS
    # A full column has the same value twice, so that its threshold does not matter.
    keep = [min((each << bits) // capacity, (1 << bits) - 1) for each in height]
    words = [[(each >> (bits - 32 * (i + 1))) & 0xFFFFFFFF for each in keep] for i in range(THRESHOLD_WORDS)]
    return ExactTable(n, np.array(values, np.int32), np.array(other, np.int32), np.array(words, np.uint32))
