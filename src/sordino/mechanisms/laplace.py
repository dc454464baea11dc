"""Laplace noise on every coordinate: pure DP by the L1 sensitivity, which is sqrt(d) times the L2 bound.

A Laplace variable is a difference of two exponentials, so the sum of M of them is a difference of two Gamma(M).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax

from sordino.errors import require, require_drawable
from sordino.privacy import events
from sordino.pytrees import pytree
from sordino.types import Aggregate, Bounder, Key, Relation, Scalar, Vector

__all__ = ["Laplace", "laplace"]


@pytree
@dataclass(frozen=True)
class Laplace:
    """See the module."""

    noise_scale: Scalar  # b; the std is sqrt(2) b

    def randomize(self, key: Key, vector: Vector) -> Vector:
        """c = Delta + Laplace(b)^d."""
        return vector + self.noise_scale * jax.random.laplace(key, vector.shape, vector.dtype)

    def aggregate(self, key: Key, total: Vector, sum_of_squared_norms: jax.Array, count: int) -> Aggregate:
        """The exact law of the sum; its joint law with the squared norms is not known."""
        key_up, key_down = jax.random.split(key)
        up = jax.random.gamma(key_up, 1.0 * count, total.shape, total.dtype)
        down = jax.random.gamma(key_down, 1.0 * count, total.shape, total.dtype)
        return Aggregate(total + self.noise_scale * (up - down), None)

    def event(self, bounder: Bounder, relation: Relation, d: int) -> events.Event:
        """noise_multiplier = b / L1 sensitivity."""
        if float(self.noise_scale) == 0:
            return events.NonPrivate("the noise scale is 0")
        return events.Laplace(float(self.noise_scale) / (math.sqrt(d) * float(bounder.sensitivity(relation))))

    def bits(self, d: int) -> int:
        """float32 coordinates."""
        return 32 * d


def laplace(noise_scale: float) -> Laplace:
    """Laplace noise of this scale on every coordinate."""
    require(0 <= noise_scale < math.inf, "noise_scale", noise_scale, "must be finite and not negative")
    if noise_scale > 0:  # 0 says that there is no noise
        require_drawable("noise_scale", noise_scale)
    return Laplace(noise_scale)
