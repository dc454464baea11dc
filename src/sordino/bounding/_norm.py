"""The L2 norm of a vector, with an error bound that holds on every backend, and what all bounders share.

    s = min(max_i |v_i|, 2^126),    u = v / s,    r = ||u||,    ||v|| = s r

so that nothing overflows or underflows: |u_i| <= 4 and 1 <= r <= 4 sqrt(d). (Compilers may divide by s
as a product with 1/s, which beyond 2^126 is flushed to zero.) A bounder writes its result as u times a
number, which keeps the coordinates of huge and of tiny vectors alike.

*Exactness.* r^2 is summed by rows of 64, then the sums by rows of 64, and so on; between the levels stands a barrier,
without which compilers merge them into one sum of any order. Whatever the order in a row of n numbers, each of them
meets at most n - 1 additions (zeros that fill it up change nothing). With k the sum of these over the levels, and eps
the distance from 1 to the next number,

    | r / ||u|| - 1 | <= (k + 1) eps / 4 + 2 eps,

the last term for a square root that is off by two units in the last place, as on GPUs. To this a vector that
passes unchanged adds its division v / s, and one that is scaled adds the quotient in its factor and the
product with it; the rounding of the bound comes on top: at most 5 eps in either case. Hence

    shrink = 1 - (k / 4 + 8) eps

pays for everything, with room for squares that underflow: a vector of computed norm <= shrink C has an exact
norm <= C, and so has u times shrink C / r. The price is 7e-6 of the bound at d = 10^6 in float32.

Coordinates below the smallest normal number may be flushed to zero by the hardware. A vector with no larger
one counts as zero; beside a larger one they cannot be seen against bounds from `SMALLEST_BOUND` up.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from sordino.errors import require
from sordino.types import BoundInfo, Relation, Scalar, Vector

SMALLEST_BOUND, LARGEST_BOUND = 1e-30, 1e30  # far enough from the ends of float32 for the analysis above
_ROW = 64  # numbers that are summed in any order


class Measured(NamedTuple):
    """A vector taken apart: v = 0, u = 0, s = r = 1 where it was zero or not finite."""

    vector: Vector  # v
    scale: jax.Array  # s
    unit: Vector  # u
    ratio: jax.Array  # r
    norm: jax.Array  # s r; infinite where v was not finite
    dropped: jax.Array  # bool: v held NaN or infinity
    shrink: float  # the factor that makes a computed bound hold exactly

    def info(self, clipped: jax.Array) -> BoundInfo:
        """Report what bounding did: a dropped vector does not also count as clipped."""
        return BoundInfo(self.norm, clipped & ~self.dropped, self.dropped)


class _HasLimit(Protocol):
    @property
    def limit(self) -> Scalar: ...


class SensitivityFromLimit:
    """A sum of vectors of norm <= limit moves by at most `limit` for every vector that differs."""

    def sensitivity(self: _HasLimit, relation: Relation) -> Scalar:
        """How far, in L2, the sum over clients can move between neighbours under `relation`."""
        return relation.sensitivity_factor * self.limit


def measure(vector: Vector) -> Measured:
    """Take a vector apart into s, u and r."""
    vector = jnp.asarray(vector)
    _require_shape(vector)
    # Of every coordinate: XLA's maximum of a long vector may pass over a NaN.
    finite = jnp.all(jnp.isfinite(vector))
    largest = jnp.max(jnp.abs(jnp.where(finite, vector, 0.0)), initial=0.0)
    tiny = np.finfo(vector.dtype).tiny  # the smallest normal number
    usable = finite & (largest >= tiny)
    vector = jnp.where(usable, vector, 0.0)
    scale = jnp.where(usable, jnp.minimum(largest, 1 / tiny), 1.0)
    unit = vector / scale
    length = jnp.sqrt(sum_by_rows(unit * unit))
    norm = jnp.where(finite, scale * length, jnp.inf)
    ratio = jnp.where(usable, length, 1.0)
    return Measured(vector, scale, unit, ratio, norm, ~finite, _shrink(vector.size, vector.dtype))


def require_bound(field: str, value: float) -> None:
    """Raise unless vectors can be bounded by this value."""
    remedy = f"a norm bound must be a number from {SMALLEST_BOUND:g} to {LARGEST_BOUND:g}"
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    require(number and SMALLEST_BOUND <= value <= LARGEST_BOUND, field, value, remedy)


def _require_shape(vector: jax.Array) -> None:
    require(vector.ndim == 1, "vector.shape", vector.shape, "ravel the update into one axis before bounding it")
    wide = vector.dtype in (jnp.float32, jnp.float64)
    require(wide, "vector.dtype", str(vector.dtype), "cast to float32, which holds norms to a few parts in a million")


def sum_by_rows(x: jax.Array) -> jax.Array:
    """The sum of a vector, in which every number meets at most `additions(d)` additions."""
    for _ in _levels(x.size):
        rows = jnp.pad(x, (0, -x.size % _ROW)).reshape(-1, _ROW)
        x = jax.lax.optimization_barrier(jnp.sum(rows, axis=1))
    return jnp.sum(x)  # of at most one number


def _levels(d: int) -> list[int]:
    """How many numbers are left at each level."""
    left = []
    while d > 1:
        left.append(d)
        d = -(-d // _ROW)
    return left


def additions(d: int) -> int:
    return sum(min(left, _ROW) - 1 for left in _levels(d))


def _shrink(d: int, dtype: np.dtype[np.floating[Any]]) -> float:
    # A whole number of eps below 1 has no rounding error of its own.
    return 1.0 - (math.ceil(additions(d) / 4) + 8) * float(np.finfo(dtype).eps)
