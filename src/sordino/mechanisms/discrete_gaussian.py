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
from sordino.mechanisms._lattice import QuantizedMessages, require_lattice
from sordino.mechanisms._table import Table, centred_table, fold
from sordino.privacy.events import ZeroConcentrated
from sordino.privacy.quantized import Sensitivities, bits_for
from sordino.pytrees import pytree
from sordino.types import Event, Key

_REACH = 9  # stds on the table; beyond lies 1e-18


@pytree
@dataclass(frozen=True)
class DiscreteGaussian(QuantizedMessages):
    """Discrete Gaussian noise of std sigma, in whole numbers, on a quantised vector."""

    noise_std: float = field(metadata={"static": True})  # sigma

    name = "discrete-gaussian"

    def noise_of_sum(self, key: Key, shape: tuple[int, ...], count: int) -> jax.Array:
        return noise_table(self.noise_std, count).draw(key, shape)

    def cost(self, bounds: Sensitivities) -> Event:
        return ZeroConcentrated(bounds.l2**2 / (2 * self.noise_std**2))

    @property
    def symbol_bits(self) -> int:
        """Enough for the levels and the table."""
        return bits_for(self.levels, math.ceil(_REACH * self.noise_std))


def discrete_gaussian(*, levels: int, noise_std: float, bound: float = 1.0) -> DiscreteGaussian:
    """Discrete Gaussian noise of std `noise_std`, counted in quantisation steps (bound / levels)."""
    require_lattice(levels, bound)
    require(0 < noise_std < math.inf, "noise_std", noise_std, "must be finite and positive")
    return DiscreteGaussian(bound, None, levels, None, noise_std)


@lru_cache(maxsize=8)
def noise_table(noise_std: float, count: int) -> Table:
    """The law of the sum of `count` draws of the discrete Gaussian."""
    y = np.arange(-math.ceil(_REACH * noise_std), math.ceil(_REACH * noise_std) + 1)
    weight: NDArray[np.float64] = np.exp(-(y**2) / (2 * noise_std**2))
    return centred_table(fold(weight / weight.sum(), count))
