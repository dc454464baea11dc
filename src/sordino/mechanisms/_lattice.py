"""What every integer mechanism shares: the unbiased stochastic quantiser, and the way back."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from sordino.errors import require
from sordino.privacy.quantized import Sensitivities, assumed_sensitivities, client_sensitivities
from sordino.types import Bounder, Key, Relation, Scalar, Vector

__all__ = ["dequantize", "quantize", "require_made_for", "sensitivities"]


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


def sensitivities(d: int, levels: int, relation: Relation, mu: float | None) -> Sensitivities:
    """Worst case, or assumed where mu is given."""
    return client_sensitivities(d, levels, relation) if mu is None else assumed_sensitivities(d, levels, mu)


def require_made_for(bounder: Bounder, bound: Scalar, d: int, made_for: int | None = None) -> None:
    """A mechanism's guarantee holds for the bound and the dimension that it was made for, and for no others."""
    given, largest = float(bounder.bound), float(bound)
    remedy = f"the mechanism was made for vectors of norm at most {largest:g}"
    require(given <= largest * (1 + 1e-7), "bound", given, remedy)
    if made_for is not None:
        require(d == made_for, "d", d, f"the mechanism was made for {made_for} coordinates")
