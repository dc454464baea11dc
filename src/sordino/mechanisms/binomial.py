"""Binomial noise on a quantised vector (Agarwal et al. 2018, "cpSGD"): N fair coins a coordinate, minus N/2.

    line 3   Q(u_i) as in QTDL
    line 4   M(u_i) = Q(u_i) + (Bin(N, 1/2) - N/2) / s

The sum of M messages' noise is Bin(M N, 1/2) - M N/2 exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import jax
import numpy as np

from sordino.errors import require
from sordino.mechanisms._lattice import QuantizedMessages, QuantizedRequest, require_lattice, sensitivities
from sordino.mechanisms._table import Table, centred_table
from sordino.mechanisms.request import NoiseContext
from sordino.privacy.binomial import binomial_bits, binomial_event, cpsgd_coins, log_binomial_pmf
from sordino.privacy.quantized import Sensitivities
from sordino.pytrees import pytree
from sordino.types import Event, Key, Relation

USUAL_DELTA = 1e-6  # of a message


@pytree
@dataclass(frozen=True)
class Binomial(QuantizedMessages):
    """N fair coins of noise on a quantised vector."""

    coins: int = field(metadata={"static": True})  # N, even
    failure: float = field(metadata={"static": True})  # delta that a message spends on the tails

    name = "binomial"

    def noise_of_sum(self, key: Key, shape: tuple[int, ...], count: int) -> jax.Array:
        return _coins_table(self.coins * count).draw(key, shape)

    def cost(self, bounds: Sensitivities) -> Event:
        """The proven concentrated bound, not cpSGD's Theorem 1."""
        return binomial_event(self.coins, bounds, self.failure)

    @property
    def symbol_bits(self) -> int:
        """t = ceil(log2(2 (s + N/2) + 1)) (the paper counts N for N/2)."""
        return binomial_bits(self.levels, self.coins)


def binomial(
    *,
    d: int,
    levels: int,
    coins: int | None = None,
    epsilon: float | None = None,
    delta: float = USUAL_DELTA,
    relation: Relation = Relation.REPLACE_ONE,
    bound: float = 1.0,
    mu: float | None = None,
) -> Binomial:
    """Binomial noise of `coins` coins, or of as many as cpSGD's Theorem 1 asks for at (epsilon, delta).

    Theorem 1's epsilon is a claim; `event` says what the coins certify.
    """
    require_lattice(levels, bound)
    require(0 < delta < 1, "delta", delta, "must lie in (0, 1)")
    require((coins is None) != (epsilon is None), "coins", coins, "give either coins or epsilon")
    bounds = sensitivities(d, levels, relation, mu)
    if coins is None:
        assert epsilon is not None
        coins = cpsgd_coins(epsilon, bounds, delta)
    require(isinstance(coins, int) and coins >= 2, "coins", coins, "must be a whole number, at least 2")
    return Binomial(bound, d, levels, mu, coins + coins % 2, delta / 10)


@dataclass(frozen=True)
class BinomialRequest(QuantizedRequest):
    """[privacy] mechanism = "binomial": the coins that cpSGD's Theorem 1 asks for."""

    name = "binomial"

    def calibrate(self, context: NoiseContext) -> Binomial:
        assert self.levels is not None
        return binomial(
            d=context.d,
            levels=self.levels,
            epsilon=self.message_epsilon,
            relation=context.relation,
            bound=float(context.bound.limit),
            mu=self.mu,
            delta=USUAL_DELTA if self.message_delta is None else self.message_delta,
        )


@lru_cache(maxsize=8)
def _coins_table(coins: int) -> Table:
    return centred_table(np.exp(log_binomial_pmf(coins)))
