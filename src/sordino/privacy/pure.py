"""Optimal composition of pure DP (Kairouz, Oh and Viswanath 2015).

The worst epsilon_0-DP mechanism is randomised response, whose loss is +-epsilon_0; k of them have the loss
(2 j - k) epsilon_0 with j ~ Bin(k, e^epsilon_0 / (1 + e^epsilon_0)), so that

    delta(epsilon) = sum_j P(j) (1 - e^(epsilon - (2 j - k) epsilon_0))_+
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit
from scipy.stats import binom

from sordino.errors import MOST_ROUNDS, require
from sordino.privacy.gaussian import private_side


def pure_delta(epsilon: float, epsilon_0: float, count: int) -> float:
    """delta of `count` releases that are epsilon_0-DP each, at this total epsilon."""
    j = np.arange(count + 1)
    loss = (2.0 * j - count) * epsilon_0
    above = loss > epsilon
    mass = binom.pmf(j[above], count, expit(epsilon_0))
    return float(min(1.0, np.sum(mass * -np.expm1(epsilon - loss[above]))))


def require_releases(count: int) -> None:
    """Refuse to compose more releases than a run can have rounds."""
    require(0 <= count <= MOST_ROUNDS, "rounds", count, f"must lie between 0 and {MOST_ROUNDS:,}")


def pure_epsilon(epsilon_0: float, count: int, delta: float) -> float:
    """The least epsilon of `count` releases that are epsilon_0-DP each, at this delta."""
    require(epsilon_0 >= 0, "epsilon_0", epsilon_0, "must not be negative")
    require_releases(count)
    require(0 <= delta < 1, "delta", delta, "must lie in [0, 1)")
    total = count * epsilon_0
    if math.isinf(total):
        return math.inf
    if delta == 0:
        return total
    if pure_delta(0.0, epsilon_0, count) <= delta:
        return 0.0
    return private_side(lambda epsilon: delta - pure_delta(epsilon, epsilon_0, count), 0.0, total)


def subsampled_pure_epsilon(epsilon_0: float, sampling_prob: float) -> float:
    """log(1 + q (e^epsilon_0 - 1)): a pure release on a secret sample (Poisson add/remove, fixed size replace-one)."""
    require(0 < sampling_prob <= 1, "sampling_prob", sampling_prob, "must lie in (0, 1]")
    if sampling_prob == 1:
        return epsilon_0
    return float(np.logaddexp(math.log1p(-sampling_prob), math.log(sampling_prob) + epsilon_0))
