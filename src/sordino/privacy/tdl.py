"""The exact law and the exact privacy of truncated discrete Laplace (TDL) noise.

    P(Y = y) = e^(-alpha |y|) / Z,  y in {-m, ..., m},  Z = 1 + 2 (1 - e^(-alpha m)) / (e^alpha - 1)

(Das, Hashemi, Sanghavi, Dhillon: "DP-NormFedAvg", eq. 3.) For neighbours that differ by an integer shift v, the
loss of a coordinate that moves by k is a multiple of alpha, and infinite with probability

    tau_k = P(Y > m - k)

so delta(epsilon) follows exactly from an integer convolution, and for epsilon >= alpha ||v||_1 it is
1 - prod_i (1 - tau_|v_i|). Theorem 1 of the paper bounds the wrong set and claims 2^-d; its true delta is near 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sordino.errors import require
from sordino.privacy.gaussian import least_whole

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

_DIRECT_SUM = 10**7  # up to this m sums are taken term by term
_LATTICE = 2**25  # the longest exact convolution; longer ones are rounded up to a coarser lattice


def tdl_normalizer(m: int, alpha: float) -> float:
    """Z."""
    _require_tdl(m, alpha)
    return 2.0 * m + 1 if alpha == 0 else 1 - 2 * math.expm1(-alpha * m) / math.expm1(alpha)


def tdl_pmf(m: int, alpha: float) -> NDArray[np.float64]:
    """P(Y = y) for y = -m, ..., m."""
    weight = np.exp(-alpha * np.abs(np.arange(-m, m + 1, dtype=np.float64)))
    return weight / tdl_normalizer(m, alpha)


def tdl_variance(m: int, alpha: float) -> float:
    """E[Y^2] in integer units (s = 1); summed, since the closed form of Lemma 1 cancels for small alpha."""
    _require_tdl(m, alpha)
    if m <= _DIRECT_SUM or alpha * m < 1:
        y = np.arange(1, m + 1, dtype=np.float64)
        return float(2 * np.sum(y * y * np.exp(-alpha * y)) / tdl_normalizer(m, alpha))
    a, tail = math.exp(-alpha), math.exp(-alpha * m)
    top = 2 * a * (1 + a - tail * (m * (1 - a) + 1) ** 2 - tail * a)
    return top / ((1 - a) ** 2 * ((1 - a) + 2 * a * (1 - tail)))


def tdl_tail(k: int, m: int, alpha: float) -> float:
    """tau_k = P(Y > m - k): the probability that a coordinate which moves by k leaves the other support."""
    _require_tdl(m, alpha)
    if k <= 0:
        return 0.0
    if k > 2 * m:
        return 1.0
    if k > m:
        return 1.0 - tdl_tail(2 * m + 1 - k, m, alpha)
    if alpha == 0:
        return k / (2 * m + 1)
    return -math.exp(-alpha * (m - k)) * math.expm1(-alpha * k) / (math.expm1(alpha) * tdl_normalizer(m, alpha))


def shift_counts(shift: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Group an integer shift vector as ((|v_i|, how many), ...), zeros left out."""
    return tuple(sorted(Counter(abs(int(k)) for k in shift if k != 0).items()))


def tdl_loss(m: int, alpha: float, shifts: Iterable[tuple[int, int]]) -> PrivacyLossDistribution:
    """The privacy loss of TDL noise for `count` coordinates that move by k each; exact on the lattice of alpha."""
    from sordino.privacy.loss import lattice_loss

    shifts = tuple((k, count) for k, count in shifts if k > 0 and count > 0)
    if any(k > 2 * m for k, _ in shifts):  # the supports do not meet
        return lattice_loss(1.0, 0, np.zeros(1), 1.0)
    if not shifts or alpha == 0:  # uniform noise: the loss is zero or infinite
        log_kept = math.fsum(count * math.log1p(-tdl_tail(k, m, alpha)) for k, count in shifts)
        return lattice_loss(1.0, 0, np.array([math.exp(log_kept)]), -math.expm1(log_kept))
    length = 2 * sum(k * count for k, count in shifts) + 1
    coarse = 2 ** max(0, math.ceil(math.log2(length / _LATTICE)))
    parts = [_coordinate_loss(k, m, alpha, coarse).self_compose(count, 0) for k, count in shifts]
    return reduce(lambda left, right: left.compose(right, 0), parts)


def tdl_delta(epsilon: float, m: int, alpha: float, shifts: Iterable[tuple[int, int]]) -> float:
    """delta(epsilon) for these shifts."""
    return float(np.clip(tdl_loss(m, alpha, shifts).get_delta_for_epsilon(epsilon), 0.0, 1.0))


def log_not_worst_delta(m: int, alpha: float, d: int, delta_1: float, delta_inf: float) -> float:
    """log(1 - delta*), where delta* is the worst delta at epsilon = alpha Delta_1 over all allowed shifts.

    -log(1 - tau_k) is convex in k and 0 at 0, so the worst shift moves n* = min(d, floor(Delta_1 / Delta_inf))
    coordinates by Delta_inf and one more by what is left.
    """
    k_worst = int(delta_inf)  # a shift is a whole number
    n_worst = min(d, int(delta_1 // k_worst))
    rest = min(int(delta_1 - n_worst * k_worst), k_worst) if n_worst < d else 0
    total = 0.0
    for k, count in ((k_worst, n_worst), (rest, 1)):
        tau = tdl_tail(k, m, alpha)
        if tau >= 1 and count:
            return -math.inf
        total += count * math.log1p(-tau)
    return total


def worst_delta(m: int, alpha: float, d: int, delta_1: float, delta_inf: float) -> float:
    """delta*, see `log_not_worst_delta`."""
    return -math.expm1(log_not_worst_delta(m, alpha, d, delta_1, delta_inf))


def tdl_support_for(delta: float, alpha: float, d: int, delta_1: float, delta_inf: float) -> int:
    """The least m whose worst delta is at most `delta`."""
    remedy = "must lie in (0, 1): a truncated law never gives delta = 0; use discrete Laplace"
    require(0 < delta < 1, "delta", delta, remedy)
    return least_whole(
        lambda m: worst_delta(m, alpha, d, delta_1, delta_inf) <= delta, max(1, math.ceil(int(delta_inf) / 2))
    )


def theorem_1(epsilon: float, delta_1: float, delta_inf: float) -> tuple[float, int]:
    """(alpha, m) as the paper's Theorem 1 sets them. There is no valid guarantee at these values.

    alpha = epsilon / Delta_1,   m = ceil(-(Delta_1 / epsilon) log(1 - (e^(epsilon / Delta_1) - 1) Delta_inf))
    """
    require(epsilon > 0, "epsilon", epsilon, "must be positive")
    limit = delta_1 / (math.e * delta_inf)
    remedy = f"Theorem 1 is stated for epsilon < Delta_1/(e Delta_inf) = {limit:.6g}: ask for less"
    require(epsilon < limit, "epsilon", epsilon, remedy)
    alpha = epsilon / delta_1
    return alpha, math.ceil(-math.log1p(-math.expm1(alpha) * delta_inf) / alpha)


def _coordinate_loss(k: int, m: int, alpha: float, coarse: int) -> PrivacyLossDistribution:
    """One coordinate that moves by k: loss alpha (|y - k| - |y|) for y in [k - m, m], infinite with tau_k."""
    from sordino.privacy.loss import lattice_loss

    y = np.arange(k - m, m + 1)
    index = np.abs(y - k) - np.abs(y)
    mass = np.exp(-alpha * np.abs(y)) / tdl_normalizer(m, alpha)
    index = -(-index // coarse)  # rounded up
    lower = int(index.min())
    return lattice_loss(alpha * coarse, lower, np.bincount(index - lower, weights=mass), tdl_tail(k, m, alpha))


def _require_tdl(m: int, alpha: float) -> None:
    require(m >= 1, "m", m, "the support {-m, ..., m} needs m >= 1")
    require(0 <= alpha < math.inf, "alpha", alpha, "must be finite and not negative")
