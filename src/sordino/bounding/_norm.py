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
product with it; the rounding of the bound comes on top: at most 5 eps in either case. With

    m = ceil(k / 4) + 8

a vector of computed norm <= (1 - x eps) C therefore has an exact norm <= (1 - x eps + m eps) C, and so has u times
(1 - x eps) C / r: x = m would do.

*Checking a message.* Whoever is given a vector and a bound measures q = ||v (1/C)||^2 by rows, in one pass: what
overflows is too long, and what underflows cannot be seen beside 1. Each coordinate carries the errors of the
reciprocal (2 eps on GPUs), of its product and its square, and the bound those of its own product (sqrt(2) C, of a
message in two halves) and of its rounding. Together

    | q / (||v|| / C)^2 - 1 | <= (k / 2 + 9) eps,    so that    q <= 1 - 2 m eps    proves    ||v|| <= C,

with 7 eps left for terms of second order, which are below 1e-3 eps. A bounder must leave room for that: its vectors
have exact norms <= (1 - x eps + m eps) C and pass if 2 x >= 2 m + (k' / 2 + 9) + 2 m'. Here k' and m' belong to the
message, which may be twice as long as what was bounded: k' <= k + 32, m' <= m + 8. Hence

    shrink = 1 - (3 m + 12) eps

A vector that leaves a bounder passes the check with certainty, alone or as one of two halves under sqrt(2) C, and one
that is longer than C is caught with certainty. The price is 2.2e-5 of the bound at d = 10^6 in float32.

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


def surely_within(vector: Vector, limit: Scalar) -> jax.Array:
    """Whether the exact norm is proven to be at most `limit`: so is all that leaves a bounder, and nothing longer."""
    share = vector * (1 / jnp.asarray(limit, vector.dtype))
    within: jax.Array = sum_by_rows(share * share) <= 1.0 - 2 * _margin(vector.size, vector.dtype)
    return within  # a NaN is not


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


def _margin(d: int, dtype: np.dtype[np.floating[Any]]) -> float:
    """m eps. One minus a whole number of eps has no rounding error of its own."""
    return (math.ceil(additions(d) / 4) + 8) * float(np.finfo(dtype).eps)


def _shrink(d: int, dtype: np.dtype[np.floating[Any]]) -> float:
    return 1.0 - 3 * _margin(d, dtype) - 12 * float(np.finfo(dtype).eps)
