"""Sums in float32 that keep what they lose to rounding, so that one term more moves them by hardly more than itself.

A plain running sum does not: one term may carry it over a power of two, and all that is added after rounds differently,
by up to many times that term. Noise is scaled to the term.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class RunningSum(NamedTuple):
    """A sum as two trees: `total`, and `rest`, what that has lost to rounding (nothing of whole numbers)."""

    total: Any
    rest: Any

    @classmethod
    def of(cls, term: Any) -> RunningSum:
        return cls(term, jax.tree.map(jnp.zeros_like, term))

    @classmethod
    def of_each(cls, terms: Any) -> RunningSum:
        """Of all terms along the first axis of the leaves."""
        return cls.of(terms).joined()

    def plus(self, other: RunningSum) -> RunningSum:
        """Of the terms of both."""
        return self._beside(other)._carried()

    def joined(self) -> RunningSum:
        """Of several sums along the first axis: first and second half are added, until one is left."""
        several, count = self, len(jax.tree.leaves(self.total)[0])
        while count > 1:
            half = -(-count // 2)
            front = jax.tree.map(lambda leaf, half=half: leaf[:half], several)
            several = front._beside(jax.tree.map(lambda leaf, half=half: _second_half(leaf, half), several))
            count = half
        return jax.tree.map(lambda leaf: leaf[0], several)

    def value(self) -> Any:
        """The sum, rounded once."""
        return self._carried().total

    def _beside(self, other: RunningSum) -> RunningSum:
        total = jax.tree.map(jnp.add, self.total, other.total)
        lost_here = jax.tree.map(lost, self.total, other.total, total)
        return RunningSum(total, jax.tree.map(lambda a, b, c: a + b + c, self.rest, other.rest, lost_here))

    def _carried(self) -> RunningSum:
        """The rest goes back into the total: left to grow, it would be a plain sum itself."""
        rest = jax.tree.map(lambda leaf: jnp.where(jnp.isfinite(leaf), leaf, 0), self.rest)  # infinite sums have none
        total = jax.tree.map(jnp.add, self.total, rest)
        return RunningSum(total, jax.tree.map(lost, self.total, rest, total))


def rounding_share(terms: int, scalings: int = 1) -> float:
    """By which share of one term's bound C rounding may move a `RunningSum` of n terms further than that term does.

    Its value is the sum as it rounds, off by u = 2^-24 of at most n C, and the same again each time it is scaled and
    where noise is added: (4 + 2 scalings) n u for two neighbours. What `rest` loses, u^2 of what is summed so far at
    every step, comes to less than 2 n u for up to ten million terms.
    """
    return (6 + 2 * scalings) * terms * 2.0**-24


def _second_half(leaf: jax.Array, half: int) -> jax.Array:
    """The second half, padded with a zero to the length of the first."""
    back = leaf[half:]
    return jnp.pad(back, ((0, half - len(back)), *((0, 0) for _ in back.shape[1:])))


def lost(a: jax.Array, b: jax.Array, total: jax.Array) -> jax.Array:
    """a + b - total, exactly: Knuth's two-sum."""
    if not jnp.issubdtype(total.dtype, jnp.floating):
        return jnp.zeros_like(total)
    added = total - a
    return (a - (total - added)) + (b - added)
