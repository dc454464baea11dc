"""Zero-concentrated DP and its best known conversion (Canonne, Kamath and Steinke 2020, Proposition 12).

    delta = inf_{a > 1} exp((a - 1)(a rho - epsilon)) / (a - 1) * (1 - 1/a)^a

rho composes by addition. Used where only a concentrated bound is proven: discrete Gaussian noise on vectors, and the
overlap of truncated discrete Laplace noise.
"""

from __future__ import annotations

import math

from scipy.optimize import minimize_scalar

from sordino.errors import require
from sordino.privacy.gaussian import private_side

LARGEST_RHO = 1e12  # beyond it nothing is gained by looking for the best order


def zcdp_delta(epsilon: float, rho: float) -> float:
    """A delta that rho-zCDP implies at this epsilon."""
    if rho == 0:
        return -math.expm1(min(0.0, epsilon))
    if math.isinf(rho):
        return 1.0

    def log_delta(log_order_minus_one: float) -> float:
        a = 1.0 + math.exp(log_order_minus_one)
        return (a - 1) * (a * rho - epsilon) - log_order_minus_one + a * math.log1p(-1 / a)

    best = minimize_scalar(log_delta, bounds=(-20.0, 30.0), method="bounded", options={"xatol": 1e-10})
    return min(1.0, math.exp(min(0.0, float(best.fun))))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """An epsilon that rho-zCDP implies at this delta."""
    require(rho >= 0, "rho", rho, "must not be negative")
    require(0 < delta < 1, "delta", delta, "must lie in (0, 1): concentrated DP never gives delta = 0")
    upper = rho + 2 * math.sqrt(rho * math.log(1 / delta)) + 1.0  # Bun and Steinke 2016, looser
    if rho > LARGEST_RHO:
        return upper
    if zcdp_delta(0.0, rho) <= delta:
        return 0.0
    return private_side(lambda epsilon: delta - zcdp_delta(epsilon, rho), 0.0, upper)


def zcdp_rho(epsilon: float, delta: float) -> float:
    """The largest rho found to imply (epsilon, delta)."""
    require(epsilon > 0, "epsilon", epsilon, "must be positive")
    require(0 < delta < 1, "delta", delta, "must lie in (0, 1): concentrated DP never gives delta = 0")
    return -private_side(lambda negative: delta - zcdp_delta(epsilon, -negative), -(epsilon + 1.0), -0.0)
