"""A vector on the lattice of `privacy.lattice`, with Gaussian noise that is integer noise there."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from sordino.mechanisms._exact_table import ExactTable, exact_table
from sordino.privacy.lattice import DEVIATION, DIGIT_BITS, DIGITS, table_weights
from sordino.types import Key, Scalar, Vector

LOW_BITS = DIGIT_BITS * (DIGITS - 1)  # integers are 2^14 high + low
LARGEST_HIGH = 2.0**30  # beyond 4 million noise stds a coordinate is cut off, which moves no two sums apart


@functools.cache
def _table() -> ExactTable:
    return exact_table(table_weights())


def lattice_noise(key: Key, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Z = 2^14 high + low, the law of round(N(0, S^2)); low is not reduced yet."""
    pairs = [jax.random.split(each) for each in jax.random.split(key, DIGITS)]
    digits = [_table().draw(words, rest, shape) for words, rest in pairs]
    low = jnp.zeros(shape, jnp.int32)
    for digit in digits[1:]:
        low = (low << DIGIT_BITS) + digit
    return digits[0], low


def add_lattice_noise(key: Key, vector: Vector, noise_std: Scalar) -> Vector:
    """g (round(vector / g) + Z) with g = noise_std / S: only the integer in the brackets is released."""
    step = jnp.asarray(noise_std, jnp.float32) * (2.0**LOW_BITS / DEVIATION)  # of the high part: 2^14 g
    scaled = jnp.clip(vector * (1 / step), -LARGEST_HIGH, LARGEST_HIGH)
    high = jnp.round(scaled)
    low = jnp.round((scaled - high) * 2.0**LOW_BITS)  # the difference is exact
    noise_high, noise_low = lattice_noise(key, vector.shape)
    low_sum = low.astype(jnp.int32) + noise_low
    # The sum as one integer has one high and one low part: releasing more of the two would tell more than their sum.
    high_sum = high.astype(jnp.int32) + noise_high + (low_sum >> LOW_BITS)
    low_sum = low_sum & (2**LOW_BITS - 1)
    return step * (high_sum.astype(jnp.float32) + low_sum.astype(jnp.float32) * 2.0**-LOW_BITS)
