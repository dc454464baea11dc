"""Gaussian noise: c_i = Delta_i + N(0, noise_std^2 I).

The server's statistics of M messages have an exact law with O(d) random numbers. With H orthogonal on the client axis
and first row 1/sqrt(M), the noise of the mean and of everything orthogonal to it are independent:

    sum c_i       = sum Delta_i + N(0, M s^2 I)
    sum ||c_i||^2 = ||sum c_i||^2 / M + R^2 + 2 R g + g^2 + s^2 chi^2_{(M-1) d - 1},   g ~ N(0, s^2)
    R^2           = sum ||Delta_i||^2 - ||sum Delta_i||^2 / M
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from sordino.errors import require, require_drawable
from sordino.privacy import events
from sordino.pytrees import pytree
from sordino.types import Aggregate, Bounder, Key, Relation, Scalar, Vector

__all__ = ["Gaussian", "gaussian"]


@pytree
@dataclass(frozen=True)
class Gaussian:
    """See the module."""

    noise_std: Scalar

    def randomize(self, key: Key, vector: Vector) -> Vector:
        """c = Delta + N(0, noise_std^2 I)."""
        return vector + self.noise_std * jax.random.normal(key, vector.shape, vector.dtype)

    def aggregate(self, key: Key, total: Vector, sum_of_squared_norms: jax.Array, count: int) -> Aggregate:
        """The exact joint law of the sum and of the sum of squared norms of `count` messages."""
        s, M, d = self.noise_std, count, total.shape[0]
        key_mean, key_along, key_rest = jax.random.split(key, 3)
        noisy_total = total + s * jnp.sqrt(1.0 * M) * jax.random.normal(key_mean, total.shape, total.dtype)
        R = jnp.sqrt(jnp.maximum(sum_of_squared_norms - jnp.vdot(total, total) / M, 0.0))
        g = s * jax.random.normal(key_along, (), total.dtype)
        dof = (M - 1.0) * d - 1.0
        chi2 = 2.0 * jax.random.gamma(key_rest, jnp.maximum(dof, 1.0) / 2.0, (), total.dtype)
        around_mean = R**2 + 2 * R * g + g**2 + jnp.where(dof > 0, s**2 * chi2, 0.0)
        # One message is its own mean: there is nothing around it.
        squares = jnp.vdot(noisy_total, noisy_total) / M + jnp.where(M > 1, around_mean, 0.0)
        return Aggregate(noisy_total, squares, squares - M * d * s**2)

    def squared_norm(self, message: Vector) -> jax.Array:
        """||c||^2 - d s^2, whose mean is ||Delta||^2."""
        return jnp.vdot(message, message) - message.shape[0] * self.noise_std**2

    def event(self, bounder: Bounder, relation: Relation, d: int) -> events.Event:
        """noise_multiplier = noise_std / sensitivity."""
        if float(self.noise_std) == 0:
            return events.NonPrivate("the noise std is 0")
        return events.Gaussian(float(self.noise_std) / float(bounder.sensitivity(relation)))

    def bits(self, d: int) -> int:
        """float32 coordinates."""
        return 32 * d


def gaussian(noise_std: float) -> Gaussian:
    """Gaussian noise of this std on every coordinate."""
    require(0 <= noise_std < math.inf, "noise_std", noise_std, "must be finite and not negative")
    if noise_std > 0:  # 0 says that there is no noise
        require_drawable("noise_std", noise_std)
    return Gaussian(noise_std)
