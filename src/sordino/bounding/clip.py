"""Clipping: shorten long vectors (Abadi et al. 2016; Geyer, Klein and Nabi 2017).

clip_C(v) = v min(1, C / ||v||)
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from sordino.bounding._norm import SensitivityFromLimit, measure, require_bound
from sordino.pytrees import pytree
from sordino.types import BoundInfo, Scalar, Vector


@pytree
@dataclass(frozen=True)
class Clip(SensitivityFromLimit):
    """v min(1, C / ||v||); a vector inside the ball is returned bit for bit."""

    limit: Scalar  # C

    def __call__(self, vector: Vector) -> tuple[Vector, BoundInfo]:
        v = measure(vector)
        C = jnp.asarray(self.limit, v.vector.dtype) * v.shrink
        inside = v.norm <= C
        bounded = jnp.where(inside, v.vector, v.unit * (C / v.ratio))
        return bounded, v.info(clipped=~inside)


def clip(C: float) -> Clip:
    """Shorten every vector longer than C to norm C."""
    require_bound("clip", C)
    return Clip(C)
