"""QTDL: quantise a bounded vector to whole numbers and add whole noise (Das et al., "DP-NormFedAvg", Algorithm 1).

    line 3   Q(u_i) = b_i/s w.p. p_i, else (b_i + 1)/s,    u_i in [b_i/s, (b_i + 1)/s],  p_i = 1 - (u_i s - b_i)
    line 4   M(u_i) = Q(u_i) + eta_i,                      eta_i ~ noise / s

The paper draws eta from the truncated discrete Laplace law and calibrates it by its Theorem 1, whose guarantee is
false; that is noise = "theorem-1", always labelled so. The sound laws are "laplace" (untruncated, pure DP),
"truncated-laplace" (truncation paid for) and "gaussian" (rounded, exact Gaussian curve); the default is the quietest.
Untruncated noise leaves a finite range, so the *output* is wrapped modulo 2^t: post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from sordino.errors import InvalidInput, require
from sordino.mechanisms._lattice import QuantizedMessages, QuantizedRequest, require_lattice, sensitivities
from sordino.mechanisms._table import LARGEST_TABLE, Table, centred_table, fold, table
from sordino.mechanisms.request import NoiseContext
from sordino.privacy.quantized import Calibration, Sensitivities, calibrate_quantized
from sordino.privacy.tdl import tdl_pmf
from sordino.pytrees import pytree
from sordino.types import Event, Key, Relation

_DIGIT = 2**16
_WIDEST_TABLE = 2.0**12  # stds whose table stays in the cache


@pytree
@dataclass(frozen=True)
class Qtdl(QuantizedMessages):
    """Integer noise of a calibrated law on a quantised vector."""

    calibration: Calibration = field(metadata={"static": True})

    name = "qtdl"

    def add_noise(self, key: Key, integers: jax.Array) -> jax.Array:
        """Line 4, in whole numbers, wrapped modulo 2^t around zero: the symbols that travel."""
        noisy = integers + _noise(key, self.calibration, integers.shape)
        half = 2 ** (self.calibration.bits - 1)
        return ((noisy + half) & (2 * half - 1)) - half

    def noise_of_sum(self, key: Key, shape: tuple[int, ...], count: int) -> jax.Array:
        """One draw from the `count`-fold noise.

        Exact for truncated noise. For the others up to the event that a message meets the end of its range, which
        the calibration keeps below 1e-6 a message.
        """
        return _folded(self.calibration, count).draw(key, shape)

    def cost(self, bounds: Sensitivities) -> Event:
        return self.calibration.event_under(bounds)

    @property
    def symbol_bits(self) -> int:
        return self.calibration.bits


def qtdl(
    *,
    d: int,
    levels: int,
    epsilon: float,
    delta: float = 0.0,
    noise: str = "best",
    relation: Relation = Relation.REPLACE_ONE,
    bound: float = 1.0,
    mu: float | None = None,
) -> Qtdl:
    """QTDL for vectors of d coordinates and norm at most `bound`, each message (epsilon, delta)-DP under `relation`.

    `mu` replaces the worst-case sensitivities by the paper's eq. (6), which nothing enforces.
    """
    require_lattice(levels, bound)
    require(0 < epsilon < math.inf, "epsilon", epsilon, "must be finite and positive")
    calibration = calibrate_quantized(sensitivities(d, levels, relation, mu), epsilon, delta, noise)
    if calibration.bits > 31:
        raise InvalidInput("levels", levels, f"{calibration.bits} bits a coordinate do not fit int32: use fewer levels")
    return Qtdl(bound, d, levels, mu, calibration)


@dataclass(frozen=True)
class QtdlRequest(QuantizedRequest):
    """[privacy] mechanism = "qtdl".

    Args:
      noise: the law: "best", "gaussian", "truncated-laplace", "laplace" or "theorem-1".
    """

    noise: str | None = None

    name = "qtdl"

    def calibrate(self, context: NoiseContext) -> Qtdl:
        assert self.message_epsilon is not None
        assert self.levels is not None
        return qtdl(
            d=context.d,
            levels=self.levels,
            epsilon=self.message_epsilon,
            delta=self.message_delta or 0.0,
            noise=self.noise or "best",
            relation=context.relation,
            bound=float(context.bound.limit),
            mu=self.mu,
        )


def _noise(key: Key, calibration: Calibration, shape: tuple[int, ...]) -> jax.Array:
    if calibration.law == "gaussian":
        return _rounded_gaussian(key, calibration.noise_std, shape)
    assert calibration.alpha is not None
    if calibration.law == "laplace":
        return _discrete_laplace(key, calibration.alpha, shape)
    return _tdl_table(calibration.support, calibration.alpha).draw(key, shape)


def _rounded_gaussian(key: Key, std: float, shape: tuple[int, ...]) -> jax.Array:
    """round(N(0, std^2)). A float32 normal has 2^23 values: times a large std it would leave most integers out.

    Noise too wide for a small table is a multiple of some 2^k plus noise of std 16 * 2^k, which fills the gaps: up to
    e^(-2 pi^2 16^2) the sum is N(0, std^2) plus a uniform number within 2^(k-1), rounded, and so a little noisier.
    """
    if std <= _WIDEST_TABLE:
        return _rounded_gaussian_table(std).draw(key, shape)
    coarse = 2 ** math.ceil(math.log2(std / _WIDEST_TABLE))
    key_coarse, key_fine = jax.random.split(key)
    multiples = _rounded_gaussian_table(math.sqrt(std**2 - (16 * coarse) ** 2) / coarse).draw(key_coarse, shape)
    return coarse * multiples + _rounded_gaussian(key_fine, 16.0 * coarse, shape)


def _discrete_laplace(key: Key, alpha: float, shape: tuple[int, ...]) -> jax.Array:
    """P(Y = y) ~ e^(-alpha |y|), in two digits: Y = 2^16 carry + digit, or its mirror -1 - Y where carry < 0."""
    key_columns, key_digit, key_carry = jax.random.split(key, 3)
    digit_table, carry_table = _laplace_tables(alpha)
    columns = jax.random.bits(key_columns, shape, jnp.uint32)  # 16 bits for each of the two tables of 2^16 columns
    digit = digit_table.split(key_digit, columns % _DIGIT)
    carry = carry_table.split(key_carry, columns // _DIGIT)
    return _DIGIT * carry + jnp.where(carry < 0, _DIGIT - 1 - digit, digit)


@lru_cache(maxsize=8)
def _rounded_gaussian_table(std: float) -> Table:
    return centred_table(_rounded_gaussian_pmf(std))


@lru_cache(maxsize=8)
def _laplace_tables(alpha: float) -> tuple[Table, Table]:
    """Of digit, P ~ e^(-alpha digit), and of carry = k or -1 - k, P ~ e^(-alpha 2^16 k) and e^-alpha times as much."""
    digit = np.exp(-alpha * np.arange(_DIGIT))
    up = np.exp(-alpha * _DIGIT * np.arange(_DIGIT // 2))
    return table(0, digit), table(-len(up), np.concatenate([math.exp(-alpha) * up[::-1], up]))


@lru_cache(maxsize=8)
def _tdl_table(m: int, alpha: float) -> Table:
    return centred_table(tdl_pmf(m, alpha))


@lru_cache(maxsize=8)
def _folded(calibration: Calibration, count: int) -> Table:
    return centred_table(fold(_noise_pmf(calibration), count))


def _noise_pmf(calibration: Calibration) -> NDArray[np.float64]:
    """The law of one noise, centred, on an odd number of integers."""
    if calibration.law == "gaussian":
        return _rounded_gaussian_pmf(calibration.noise_std)
    assert calibration.alpha is not None
    m = calibration.support if calibration.law != "laplace" else math.ceil(45 / calibration.alpha)
    if m > LARGEST_TABLE:
        raise InvalidInput("noise", calibration.law, "its sum is too wide for a table: set transcript = true")
    return tdl_pmf(m, calibration.alpha)


def _rounded_gaussian_pmf(std: float) -> NDArray[np.float64]:
    """P(round(N(0, std^2)) = y), out to 9 stds."""
    reach = math.ceil(9 * std)
    upper = ndtr((np.arange(-reach, 0) + 0.5) / std)  # from the left tail, where differences do not cancel
    half = np.diff(upper, prepend=0.0)
    return np.concatenate([half, [1 - 2 * half.sum()], half[::-1]])
