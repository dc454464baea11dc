"""No noise: the message as it is. Not private, and every certificate says so."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from sordino.privacy import events
from sordino.pytrees import pytree
from sordino.types import Aggregate, Bounder, Key, Relation, Vector

__all__ = ["NoNoise", "none"]


@pytree
@dataclass(frozen=True)
class NoNoise:
    """See the module."""

    def randomize(self, key: Key, vector: Vector) -> Vector:
        """c = Delta."""
        return vector

    def aggregate(self, key: Key, total: Vector, sum_of_squared_norms: jax.Array, count: int) -> Aggregate:
        """The statistics themselves."""
        return Aggregate(total, sum_of_squared_norms, sum_of_squared_norms)

    def squared_norm(self, message: Vector) -> jax.Array:
        """||c||^2 itself."""
        return jnp.vdot(message, message)

    def event(self, bounder: Bounder, relation: Relation, d: int) -> events.Event:
        """epsilon is infinite."""
        return events.NonPrivate()

    def bits(self, d: int) -> int:
        """float32 coordinates."""
        return 32 * d


def none() -> NoNoise:
    """No noise."""
    return NoNoise()
