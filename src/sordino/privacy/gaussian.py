"""The exact Gaussian mechanism (Balle and Wang 2018) and its composition (Dong, Roth and Su 2019).

    delta_G(epsilon, mu) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)

mu is the sensitivity over the noise std, the inverse of the noise multiplier. Gaussian releases compose exactly:
mu^2 = sum mu_i^2. Every root is returned on the private side.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable

from scipy.optimize import brentq
from scipy.special import erf, erfcx, log_ndtr, ndtr

from sordino.errors import require

_ROOT_2 = math.sqrt(2)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """delta_G(epsilon, mu), the least delta of the Gaussian mechanism at this epsilon (which may be negative)."""
    if mu == 0.0:
        return -math.expm1(min(0.0, epsilon))
    if math.isinf(mu):
        return 1.0
    a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    # Three ways to write the same difference, each where it does not cancel; e^epsilon phi(b) = phi(a).
    if a <= 0:
        near, far = float(erfcx(-a / _ROOT_2)), float(erfcx(-b / _ROOT_2))
        delta = math.exp(-a * a / 2) * (near - far + 4e-15 * near) / 2  # with what a small difference may have lost
    elif abs(epsilon) < 0.5:
        delta = float(erf(a / _ROOT_2) - erf(b / _ROOT_2)) / 2 - math.expm1(epsilon) * float(ndtr(b))
    else:
        delta = float(ndtr(a)) - math.exp(epsilon + float(log_ndtr(b)))
    return min(1.0, max(sys.float_info.min, delta))  # never 0: Gaussian noise is not pure DP


def gaussian_epsilon(mu: float, delta: float) -> float:
    """epsilon_G(mu, delta), the least epsilon >= 0 with delta_G(epsilon, mu) <= delta."""
    require(mu >= 0, "mu", mu, "the sensitivity over the noise std must not be negative")
    require(delta == 0 or 1e-300 <= delta < 1, "delta", delta, "must be 0 or lie in [1e-300, 1)")
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    if delta == 0 or math.isinf(mu):
        return math.inf
    # delta_G(epsilon) <= Phi(mu/2 - epsilon/mu) <= exp(-(epsilon/mu - mu/2)^2 / 2), so this upper end is private.
    upper = mu * (mu / 2 + math.sqrt(2 * math.log(1 / delta))) + 1.0
    return private_side(lambda epsilon: delta - gaussian_delta(epsilon, mu), 0.0, upper)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu with delta_G(epsilon, mu) <= delta."""
    require(0 <= epsilon < 1e12, "epsilon", epsilon, "must lie in [0, 1e12)")
    require(1e-300 <= delta < 1, "delta", delta, "must lie in [1e-300, 1): Gaussian noise never gives delta = 0")
    upper = 2 * math.sqrt(2 * epsilon) + 1.0
    while gaussian_delta(epsilon, upper) <= delta:
        upper *= 2.0
    return -private_side(lambda negative: delta - gaussian_delta(epsilon, -negative), -upper, -0.0)


def gaussian_noise_multiplier(epsilon: float, delta: float) -> float:
    """Noise std over sensitivity that meets (epsilon, delta) exactly: the analytic calibration."""
    return 1.0 / gaussian_mu(epsilon, delta)


def compose_mu(mus: Iterable[float]) -> float:
    """mu of the joint release of independent Gaussian releases (a vector and a step size, or many rounds)."""
    return math.hypot(*mus)


def private_side(slack: Callable[[float], float], public: float, private: float, tolerance: float = 1e-15) -> float:
    """Root of an increasing `slack` between a point that is not private (< 0) and one that is (>= 0).

    The root is then moved towards `private` by as little as it takes for `slack` to be >= 0 there.
    """
    root = float(brentq(slack, public, private, xtol=tolerance, rtol=8.9e-16, maxiter=500))
    step = max(math.ulp(root), tolerance / 8)
    while slack(root) < 0:
        root, step = min(root + step, private), 2 * step
    return root


def least_whole(enough: Callable[[int], bool], start: int) -> int:
    """The least whole number from `start` on, found by doubling and halving, that is `enough`; all above it are too."""
    if enough(start):
        return start
    low, high = start, 2 * start
    while not enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
