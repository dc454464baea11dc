"""Normalisation: every vector gets the same length, so only its direction is sent.

normalize_C(v) = C v / ||v||,    0 -> 0
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from sordino.bounding._norm import SensitivityFromLimit, measure, require_bound
from sordino.pytrees import pytree
from sordino.types import BoundInfo, Scalar, Vector


@pytree
@dataclass(frozen=True)
class Normalize(SensitivityFromLimit):
    """C v / ||v||; `clipped` marks the vectors that were longer than C."""

    limit: Scalar  # C

    def __call__(self, vector: Vector) -> tuple[Vector, BoundInfo]:
        v = measure(vector)
        C = jnp.asarray(self.limit, v.vector.dtype) * v.shrink
        return v.unit * (C / v.ratio), v.info(clipped=v.norm > C)


def normalize(C: float) -> Normalize:
    """Give every vector but zero the norm C."""
    require_bound("normalize", C)
    return Normalize(C)
