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
def digit_table() -> ExactTable:
    """The table of one digit of Z."""
    return exact_table(table_weights())


def lattice_noise(key: Key, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Z = 2^14 high + low, the law of round(N(0, S^2)); low is not reduced yet."""
    pairs = [jax.random.split(each) for each in jax.random.split(key, DIGITS)]
    digits = [digit_table().draw(words, rest, shape) for words, rest in pairs]
    low = jnp.zeros(shape, jnp.int32)
    for digit in digits[1:]:
        low = (low << DIGIT_BITS) + digit
    return digits[0], low


def add_lattice_noise(key: Key, vector: Vector, noise_std: Scalar) -> Vector:
    """g (round(vector / g) + Z) with g = noise_std / S: only the integer in the brackets is released."""
    step = lattice_step(noise_std)
    high, low = round_to_lattice(vector, step)
    noise_high, noise_low = lattice_noise(key, vector.shape)
    return read_lattice(high + noise_high, low + noise_low, step)


def lattice_step(noise_std: Scalar) -> jax.Array:
    """2^14 g, the value of the high part."""
    return jnp.asarray(noise_std, jnp.float32) * (2.0**LOW_BITS / DEVIATION)


def round_to_lattice(vector: Vector, step: jax.Array) -> tuple[jax.Array, jax.Array]:
    """round(vector / g) as 2^14 high + low, low within +-2^13."""
    scaled = jnp.clip(vector * (1 / step), -LARGEST_HIGH, LARGEST_HIGH)
    high = jnp.round(scaled)
    low = jnp.round((scaled - high) * 2.0**LOW_BITS)  # the difference is exact
    return high.astype(jnp.int32), low.astype(jnp.int32)


def read_lattice(high: jax.Array, low: jax.Array, step: jax.Array) -> Vector:
    """The float32 number for 2^14 high + low.

    It depends on that integer alone: low is brought into [0, 2^14) first, since two parts would tell more than their
    sum does.
    """
    high, low = high + (low >> LOW_BITS), low & (2**LOW_BITS - 1)
    return step * (high.astype(jnp.float32) + low.astype(jnp.float32) * 2.0**-LOW_BITS)
