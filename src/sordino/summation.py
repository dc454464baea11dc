"""Sums in float32 that keep what they lose to rounding, so that one term more moves them by hardly more than itself.

A plain running sum does not: one term may carry it over a power of two, and all that is added after rounds differently,
by up to many times that term. Noise is scaled to the term.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

__all__ = ["RunningSum", "rounding_share"]


class RunningSum(NamedTuple):
    """Trees of what has been added up, and of what `total` has lost to rounding."""

    total: Any
    rest: Any

    @classmethod
    def of(cls, term: Any) -> RunningSum:
        """A sum of one term; whole numbers lose nothing."""
        return cls(term, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape if _rounds(leaf) else (), leaf.dtype), term))

    def plus(self, term: Any) -> RunningSum:
        """One term more."""
        total = jax.tree.map(jnp.add, self.total, term)
        lost = jax.tree.map(_lost, self.total, term, total)
        return RunningSum(total, jax.tree.map(jnp.add, self.rest, lost))

    def plus_each(self, terms: Any) -> RunningSum:
        """Several, along the first axis of every leaf."""
        return jax.lax.scan(lambda so_far, term: (so_far.plus(term), None), self, terms)[0]

    def value(self) -> Any:
        """The sum, rounded once; what overflowed stays infinite."""
        return jax.tree.map(lambda total, rest: jnp.where(jnp.isfinite(rest), total + rest, total), *self)


def rounding_share(block: int, terms: int) -> float:
    """By which share of one term's bound C rounding may move a sum further than that term does.

    Terms are summed plainly in blocks of b, and blocks by a `RunningSum`; u = 2^-24. One term is in one block, the sum
    of which is off by at most b u of b C, for each of two neighbours: 2 b^2 u. The value is rounded once, u of n C, and
    as often again where it is scaled and where noise is added: 6 n u for two, and a little for errors of errors.
    """
    return (2 * min(block, terms) ** 2 + 8 * terms) * 2.0**-24


def _rounds(leaf: jax.Array) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating))


def _lost(a: jax.Array, b: jax.Array, total: jax.Array) -> jax.Array:
    """a + b - total, exactly: Knuth's two-sum."""
    if not _rounds(total):
        return jnp.zeros((), total.dtype)
    added = total - a
    return (a - (total - added)) + (b - added)
