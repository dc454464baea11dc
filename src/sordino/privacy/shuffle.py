"""Amplification by shuffling, for any local randomiser (Feldman, McMillan and Talwar 2021, "Hiding among the clones").

n clients each send one eps0-DP message and a shuffler permutes them. The closed form is their Theorem 3.1. The
numeric bound is the exact hockey-stick divergence of their reduction: with C ~ Bin(n - 1, e^-eps0), A ~ Bin(C, 1/2),
B ~ Bernoulli(e^eps0 / (1 + e^eps0)),

    (A + B, C - A + 1 - B)   against   (A + 1 - B, C - A + B)

The sharper bound of the same authors' 2023 paper is not offered: by their own erratum (arXiv 2208.04591) it holds for a
special class of randomisers only, which Gaussian noise and PrivUnit are not in.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit
from scipy.stats import binom

from sordino.errors import Refused, require
from sordino.privacy.gaussian import private_side

LARGEST_EPS0 = 700  # whose e^eps0 is a number


def closed_form_limit(n: int, delta: float) -> float:
    """The largest eps0 for which the closed form is proven: log(n / (16 log(2 / delta)))."""
    ratio = n / (16 * math.log(2 / delta))
    return math.log(ratio) if ratio > 0 else -math.inf


def shuffle_epsilon_closed(eps0: float, n: int, delta: float) -> float:
    """Closed form; eps0 itself, which always holds, where the theorem does not reach."""
    _require_shuffle(eps0, n, delta)
    if eps0 > closed_form_limit(n, delta):
        return eps0
    e = math.exp(eps0)
    spread = 8 * math.sqrt(e * math.log(4 / delta) / n) + 8 * e / n
    return min(eps0, math.log1p(math.expm1(eps0) / (e + 1) * spread))


def shuffle_delta(epsilon: float, eps0: float, n: int) -> float:
    """Numeric: the exact divergence of the reduction at this epsilon.

    Given C = c the number of zeros is A + B against A + 1 - B; the ratio of their laws grows with that number, so the
    divergence is a difference of two binomial tails for each c.
    """
    _require_shuffle(eps0, n, 0.5)
    if epsilon >= eps0:
        return 0.0
    clones = math.exp(-eps0)
    # Outside this window C has a mass of at most 2e-20 by Bernstein's inequality, counted as lost.
    log_tail = math.log(1e20)
    width = math.sqrt(2 * log_tail * (n - 1) * clones * (1 - clones)) + log_tail
    c = np.arange(max(0, math.floor((n - 1) * clones - width)), min(n - 1, math.ceil((n - 1) * clones + width)) + 1)
    lost = 2e-20 if c.size < n else 0.0
    p = float(expit(eps0))
    # P(j | c) = p b(j - 1) + (1 - p) b(j) and Q(j | c) swaps them, with b = Bin(c, 1/2) and b(j-1)/b(j) = j/(c-j+1):
    # P > e^epsilon Q  <=>  (p - e^eps (1-p)) j > (e^eps p - (1-p)) (c - j + 1).
    # 1 - p = p e^-eps0 is lost beside 1 for a large eps0, so nothing is subtracted from 1 here.
    gain, loss = -p * math.expm1(epsilon - eps0), p * (math.expm1(epsilon) - math.expm1(-eps0))
    j = c + 2 - np.ceil((c + 1) * (gain / (gain + loss)))  # the smallest number of zeros that favours P
    # The sum of P - e^epsilon Q from j on: gain P(A >= j - 1) - loss P(A >= j), where gain - loss = 1 - e^epsilon.
    more, less = gain * binom.pmf(j - 1, c, 0.5), math.expm1(epsilon) * binom.sf(j - 1, c, 0.5)
    rounding = 1e-12 + 1e-15 * math.sqrt(n)  # of binomial laws, relative
    divergence = np.maximum(more - less, 0.0) + rounding * (more + less)
    return float(min(1.0, lost + np.sum(binom.pmf(c, n - 1, clones) * divergence)))


def shuffle_epsilon(eps0: float, n: int, delta: float, delta0: float = 0.0, method: str = "numeric") -> float:
    """epsilon of n shuffled messages at `delta`, each (eps0, delta0)-DP; never more than eps0.

    For delta0 > 0 the theorem adds (e^epsilon + 1)(1 + e^-eps0 / 2) n delta0 to delta.
    """
    _require_shuffle(eps0, n, delta)
    require(0 <= delta0 < 1, "delta0", delta0, "must lie in [0, 1)")
    if method == "fmt23":
        raise Refused(
            "the 2023 shuffle bound holds for a special class of randomisers only, by its authors' erratum",
            "use the 2021 bound: method closed or numeric",
        )
    require(method in ("closed", "numeric"), "method", method, "use closed or numeric")
    if method == "closed":
        limit = closed_form_limit(n, delta)
        if eps0 > limit:
            raise Refused(
                f"the closed form needs eps0 <= log(n / (16 log(2/delta))) = {limit:.6g}, got eps0 = {eps0:g}",
                "use method numeric, more clients, or claim eps0 without amplification",
            )
        if delta0 == 0:
            return shuffle_epsilon_closed(eps0, n, delta)

    def slack(epsilon: float) -> float:
        left = delta - (math.exp(epsilon) + 1) * (1 + math.exp(-eps0) / 2) * n * delta0
        if method == "numeric":
            return left - shuffle_delta(epsilon, eps0, n)
        return epsilon - shuffle_epsilon_closed(eps0, n, left) if left > 0 else -1.0

    top = eps0 * (1 - 1e-12)
    if slack(top) < 0 and delta0 == 0:
        return eps0
    if slack(top) < 0:
        raise Refused(
            f"with delta0 = {delta0:g} shuffling {n} messages certifies nothing at delta = {delta:g}",
            "lower delta0 (it is multiplied by n), or claim the local guarantee without amplification",
        )
    return 0.0 if slack(0.0) >= 0 else private_side(slack, 0.0, top, tolerance=1e-10)


def _require_shuffle(eps0: float, n: int, delta: float) -> None:
    require(0 < eps0 <= LARGEST_EPS0, "eps0", eps0, f"must be positive, and at most {LARGEST_EPS0}")
    require(n >= 1, "n", n, "shuffling needs at least one client")
    require(0 < delta < 1, "delta", delta, "must lie in (0, 1)")
