"""Discrete Gaussian noise on a quantised vector (Canonne, Kamath and Steinke 2020).

    Q(u) as in QTDL;   M(u) = Q(u) + Y / s,   P(Y = y) proportional to e^(-y^2 / (2 sigma^2)), y whole

Proven for vectors is rho-zCDP with rho = Delta_2^2 / (2 sigma^2), the same as for continuous noise; the exact Gaussian
curve is not (QTDL's noise "gaussian" has it). One coordinate alone can be accounted exactly: `events.DiscreteNoise`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import jax
import numpy as np
from numpy.typing import NDArray

from sordino.errors import require
from sordino.mechanisms._lattice import dequantize, quantize, require_made_for
from sordino.mechanisms._packing import PackedIntegers
from sordino.mechanisms._table import Table, fold, table
from sordino.privacy import events
from sordino.privacy.quantized import bits_for, client_sensitivities
from sordino.pytrees import pytree
from sordino.types import Aggregate, Event, Key, Limited, Mechanism, Message, Relation, Scalar, Vector

__all__ = ["DiscreteGaussian", "discrete_gaussian"]

_REACH = 9  # stds on the table; beyond lies 1e-18


@pytree
@dataclass(frozen=True)
class DiscreteGaussian(Mechanism):
    """See the module."""

    bound: Scalar
    levels: int = field(metadata={"static": True})  # s
    noise_std: float = field(metadata={"static": True})  # sigma, in whole numbers

    name = "discrete-gaussian"

    def encode(self, key: Key, vector: Vector) -> jax.Array:
        """Q(u), in whole numbers."""
        return quantize(key, vector, self.levels, self.bound)

    def read(self, sent: jax.Array) -> Vector:
        """The vector that symbols, or a sum of symbols, stand for."""
        return dequantize(sent, self.levels, self.bound)

    def message(self, key: Key, vector: Vector) -> Message:
        """M(u), in whole numbers."""
        key_quantize, key_noise = jax.random.split(key)
        noise = _noise_table(self.noise_std, 1).draw(key_noise, vector.shape)
        return Message(self.encode(key_quantize, vector) + noise)

    def aggregate(self, key: Key, total: jax.Array, sum_of_squared_norms: jax.Array | None, count: int) -> Aggregate:
        """The law of the sum, given the sum of the encoded vectors: one draw from the `count`-fold noise."""
        return Aggregate(self.read(total + _noise_table(self.noise_std, count).draw(key, total.shape)))

    def randomize_sum(self, key: Key, total: jax.Array, scale: Scalar = 1.0) -> Vector:
        """The server's noise falls on a sum of integers as on one message."""
        return self.aggregate(key, total, None, 1).sum

    def event(self, bounder: Limited, relation: Relation, d: int) -> Event:
        """rho-zCDP."""
        require_made_for(bounder, self.bound, d)
        l2 = client_sensitivities(d, self.levels, relation).l2
        return events.ZeroConcentrated(l2**2 / (2 * self.noise_std**2))

    def bits(self, d: int) -> int:
        """Enough for the levels and the table."""
        return self.wire.t * d

    @property
    def wire(self) -> PackedIntegers:
        """Symbols wide enough for the levels and the table."""
        return PackedIntegers(bits_for(self.levels, math.ceil(_REACH * self.noise_std)))


def discrete_gaussian(*, levels: int, noise_std: float, bound: float = 1.0) -> DiscreteGaussian:
    """Discrete Gaussian noise of std `noise_std`, counted in quantisation steps (bound / levels)."""
    require(isinstance(levels, int) and levels >= 1, "levels", levels, "must be a whole number, at least 1")
    require(0 < noise_std < math.inf, "noise_std", noise_std, "must be finite and positive")
    require(0 < bound < math.inf, "bound", bound, "must be finite and positive")
    return DiscreteGaussian(bound, levels, noise_std)


@lru_cache(maxsize=8)
def _noise_table(noise_std: float, count: int) -> Table:
    pmf = fold(_noise_pmf(noise_std), count)
    with jax.ensure_compile_time_eval():
        return table(-(len(pmf) // 2), pmf)


def _noise_pmf(noise_std: float) -> NDArray[np.float64]:
    y = np.arange(-math.ceil(_REACH * noise_std), math.ceil(_REACH * noise_std) + 1)
    weight: NDArray[np.float64] = np.exp(-(y**2) / (2 * noise_std**2))
    return weight / weight.sum()
