"""The privacy of truncated Laplace noise on every coordinate, the continuous relative of TDL (paper 0, Remark 2).

    p(y) = e^(-|y| / lambda) / (2 lambda (1 - e^(-A / lambda))),   |y| <= A

(Geng, Ding, Guo, Kumar 2020.) As with TDL (`privacy.tdl`) a coordinate that moves by v leaves the other support with
probability

    tau(v) = P(Y > A - v) = (e^(v / lambda) - 1) / (2 (e^(A / lambda) - 1))           0 <= v <= A

and 1 - tau(2 A - v) up to 2 A. Where both supports overlap its loss is at most v / lambda, so the overlap is
(Delta_1 / lambda)-DP and (Delta_2^2 / (2 lambda^2))-zCDP; leaving it costs delta* = 1 - prod_i (1 - tau(v_i)) in the
worst case. -log(1 - tau) is convex and 0 at 0, so the worst move takes n* = min(d, floor(Delta_1 / Delta_inf))
coordinates by Delta_inf and one more by what is left. For vectors in a ball Delta_inf = Delta_2 and Delta_1 =
sqrt(d) Delta_2; no one move does both, so delta* is an upper bound there.
"""

from __future__ import annotations

import math

from sordino.errors import require
from sordino.privacy.concentrated import zcdp_rho
from sordino.privacy.events import Approximate, ZeroConcentrated

LARGEST_EPSILON = 300  # of a message, whose e^epsilon is a number


def tail(v: float, scale: float, cutoff: float) -> float:
    """tau(v)."""
    if v >= 2 * cutoff:
        return 1.0
    if v > cutoff:
        return 1.0 - tail(2 * cutoff - v, scale, cutoff)
    # (e^(v/l) - 1) / (e^(A/l) - 1), without overflow
    return -math.exp((v - cutoff) / scale) * math.expm1(-v / scale) / (-2 * math.expm1(-cutoff / scale))


def worst_delta(scale: float, cutoff: float, d: int, delta_2: float) -> float:
    """delta* for vectors of d coordinates that move by at most delta_2 in L2."""
    whole = min(d, math.floor(math.sqrt(d)))
    rest = math.sqrt(d) - whole
    log_kept = 0.0
    for v, count in ((delta_2, whole), (rest * delta_2, 1)):
        tau = tail(v, scale, cutoff)
        if tau >= 1:
            return 1.0
        log_kept += count * math.log1p(-tau)
    return -math.expm1(log_kept)


def truncated_laplace_event(scale: float, cutoff: float, d: int, delta_2: float) -> Approximate:
    """What one message costs."""
    overlap = ZeroConcentrated((delta_2 / scale) ** 2 / 2, pure_epsilon=math.sqrt(d) * delta_2 / scale)
    return Approximate(overlap, worst_delta(scale, cutoff, d, delta_2))


def calibrate_truncated_laplace(epsilon: float, delta: float, d: int, delta_2: float) -> tuple[float, float]:
    """(lambda, A) of a message that is (epsilon, delta)-DP: the quieter of the two routes, pure and concentrated.

    A = lambda log(1 + (e^(Delta_2 / lambda) - 1) n / (2 delta)), by the union bound over the n coordinates that move:
    for n = 1 and delta_2 = lambda epsilon that of Geng et al.
    """
    require(0 < epsilon <= LARGEST_EPSILON, "epsilon", epsilon, f"must be positive, and at most {LARGEST_EPSILON}")
    require(0 < delta < 1, "delta", delta, "must lie in (0, 1): truncated noise never gives delta = 0; use laplace")
    delta *= 1 - 1e-9  # rounding must not end above what was asked for
    pure = (math.sqrt(d) * delta_2 / epsilon, delta)
    concentrated = (delta_2 / math.sqrt(2 * zcdp_rho(epsilon, delta / 2)), delta / 2)
    scale, truncation = min(pure, concentrated)
    moved = math.ceil(math.sqrt(d))
    return scale, scale * math.log1p(math.expm1(delta_2 / scale) * moved / (2 * truncation))
