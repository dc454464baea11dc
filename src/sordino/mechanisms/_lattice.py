"""What every integer mechanism shares: the unbiased stochastic quantiser, and the way back."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from sordino.types import Key, Scalar, Vector

__all__ = ["dequantize", "quantize"]


def quantize(key: Key, vector: Vector, levels: int, bound: Scalar) -> jax.Array:
    """Q(u) for u = vector / bound: s u_i is rounded down or up to a whole number so that E Q(u) = s u. int32[d]."""
    scaled = levels * jnp.clip(vector / bound, -1.0, 1.0)
    b = jnp.floor(scaled)
    # scaled - b is exact in floating point; adding the uniform number to `scaled` would lose its low bits.
    up = jax.random.uniform(key, vector.shape, vector.dtype) < scaled - b
    return b.astype(jnp.int32) + up.astype(jnp.int32)


def dequantize(integers: jax.Array, levels: int, bound: Scalar) -> Vector:
    """The vector that the integers stand for."""
    return integers.astype(jnp.float32) * (bound / levels)
