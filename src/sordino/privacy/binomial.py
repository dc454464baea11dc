"""Binomial noise (Agarwal, Suresh, Yu, Kumar, McMahan 2018, "cpSGD"): N fair coins, centred, on integer vectors.

`cpsgd_epsilon` is their Theorem 1. Its leading term is the classical Gaussian formula, which holds only for small
epsilon, so the figure is a published claim. What we certify instead is proven for every epsilon: with
x = (2 y - 1)/(N + 1) the log-ratio of neighbouring masses is -2 artanh(x) = -2 x - e(x), where
|e(x)| <= (2/3) |x|^3 / (1 - x^2), and the centred binomial is sub-Gaussian with variance N/4. Inside |y_i| <= B the
loss of an integer shift v is therefore that of a (2 ||v||_2^2 / (N + 1))-zCDP mechanism plus at most
||v||_1 e(x_B), and outside lies little mass.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sordino.errors import require
from sordino.privacy.events import Approximate, ZeroConcentrated
from sordino.privacy.gaussian import least_whole
from sordino.privacy.quantized import Sensitivities, bits_for
from sordino.types import Event


def cpsgd_epsilon(coins: int, bounds: Sensitivities, delta: float, p: float = 0.5) -> float:
    """epsilon as cpSGD's Theorem 1 claims it for N coins (a claim, not a guarantee)."""
    require(0 < p < 1, "p", p, "must lie in (0, 1)")
    require(0 < delta < 1, "delta", delta, "must lie in (0, 1)")
    variance = coins * p * (1 - p)
    needed = _least_variance(bounds, delta)
    least = math.ceil(needed / (p * (1 - p)))
    remedy = f"Theorem 1 of cpSGD needs N p (1 - p) >= {needed:.6g}, that is N >= {least}"
    require(variance >= needed, "coins", coins, remedy)
    b_p = 2 / 3 * (p**2 + (1 - p) ** 2) + (1 - 2 * p)
    c_p = math.sqrt(2) * (3 * p**3 + 3 * (1 - p) ** 3 + 2 * p**2 + 2 * (1 - p) ** 2)
    c_p = 2.5 if p == 0.5 else c_p  # the authors round 2.475 up
    d_p = 4 / 3 * (p**2 + (1 - p) ** 2)
    log_1_25, log_10 = math.log(1.25 / delta), math.log(10 / delta)
    gaussian = bounds.l2 * math.sqrt(2 * log_1_25) / math.sqrt(variance)
    second = (bounds.l2 * c_p * math.sqrt(log_10) + bounds.l1 * b_p) / (variance * (1 - delta / 10))
    third = bounds.linf * (2 / 3 * log_1_25 + d_p * math.log(20 * bounds.d / delta) * log_10) / variance
    return gaussian + second + third


def _least_variance(bounds: Sensitivities, delta: float) -> float:
    return max(23 * math.log(10 * bounds.d / delta), 2 * bounds.linf)


def cpsgd_coins(epsilon: float, bounds: Sensitivities, delta: float, p: float = 0.5) -> int:
    """The least N for which cpSGD's Theorem 1 claims (epsilon, delta)."""
    require(0 < epsilon < math.inf, "epsilon", epsilon, "must be positive and finite")
    require(0 < delta < 1, "delta", delta, "must lie in (0, 1)")
    least = math.ceil(_least_variance(bounds, delta) / (p * (1 - p)))
    return least_whole(lambda coins: cpsgd_epsilon(coins, bounds, delta, p) <= epsilon, least)


def binomial_event(coins: int, bounds: Sensitivities, failure: float) -> Event:
    """What N fair coins on each coordinate certify; `failure` is the delta spent on the tails."""
    require(coins >= 1, "coins", coins, "must be at least 1")
    require(0 < failure < 1, "delta", failure, "must lie in (0, 1)")
    # Hoeffding: Bin(N, 1/2) leaves N/2 +- B in one of d coordinates with probability at most `failure`.
    B = math.sqrt(coins * math.log(2 * bounds.d / failure) / 2)
    x_B = (2 * (B + bounds.linf) + 1) / (coins + 1)
    require(x_B < 1, "coins", coins, "too few coins for this sensitivity and delta: raise N")
    extra = bounds.l1 * (2 / 3) * x_B**3 / (1 - x_B**2)
    return Approximate(ZeroConcentrated(2 * bounds.l2**2 / (coins + 1), extra), failure)


def paper_binomial_bits(levels: int, coins: int) -> int:
    """t as the paper counts it, with m = N."""
    return bits_for(levels, coins)


def binomial_bits(levels: int, coins: int) -> int:
    """t as it is: N coins, centred, reach N/2 to either side."""
    return bits_for(levels, math.ceil(coins / 2))


def log_binomial_pmf(coins: int) -> NDArray[np.float64]:
    """log P of heads minus N/2 (N even), centred, out to 13 stds; accurate to 10^12 coins.

    By log p(y)/p(y - 1) = -2 artanh((2 y - 1)/(N + 1)), since the factorials of 10^10 cancel.
    """
    half = min(coins // 2, math.ceil(6.5 * math.sqrt(coins)))
    y = np.arange(-half, half + 1)
    weight = np.concatenate([[0.0], np.cumsum(-2 * np.arctanh((2 * y[1:] - 1) / (coins + 1)))])
    return np.asarray(weight - np.logaddexp.reduce(weight))
