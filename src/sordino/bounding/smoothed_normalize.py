"""Smoothed normalisation: nearly the direction of long vectors, nearly a multiple of short ones.

    normalize_alpha(v) = v / (alpha + ||v||)
                       = u / (alpha / s + r),    v = s u, ||u|| = r

The norm of the result is below 1, and alpha = 0 gives plain normalisation to 1. The second line is the one
computed: alpha / s overflows only where the result itself would be below the smallest normal number.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from sordino.bounding._norm import LARGEST_BOUND, SensitivityFromLimit, measure
from sordino.errors import require
from sordino.pytrees import pytree
from sordino.types import BoundInfo, Scalar, Vector


@pytree
@dataclass(frozen=True)
class SmoothedNormalize(SensitivityFromLimit):
    """v / (alpha + ||v||); `clipped` marks the vectors that were made shorter."""

    alpha: Scalar

    @property
    def limit(self) -> float:
        """1, the largest norm of a result."""
        return 1.0

    def __call__(self, vector: Vector) -> tuple[Vector, BoundInfo]:
        v = measure(vector)
        alpha = jnp.asarray(self.alpha, v.vector.dtype)
        bounded = v.unit * (v.shrink / (alpha / v.scale + v.ratio))
        return bounded, v.info(clipped=alpha + v.norm > 1.0)


def smoothed_normalize(alpha: float) -> SmoothedNormalize:
    """Divide every vector by alpha plus its norm."""
    remedy = f"must be a number from 0, which is plain normalisation to norm 1, to {LARGEST_BOUND:g}"
    require(0 <= alpha <= LARGEST_BOUND, "smoothed_normalize", alpha, remedy)
    return SmoothedNormalize(alpha)
