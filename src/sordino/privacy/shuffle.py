"""Amplification by shuffling, for any local randomiser (Feldman, McMillan and Talwar 2021, "Hiding among the clones").

n clients each send one eps0-DP message and a shuffler permutes them. The closed form is their Theorem 3.1. The
numeric bound is the exact hockey-stick divergence of their reduction: with C ~ Bin(n - 1, e^-eps0), A ~ Bin(C, 1/2),
B ~ Bernoulli(e^eps0 / (1 + e^eps0)),

    (A + B, C - A + 1 - B)   against   (A + 1 - B, C - A + B)

Clients with several records (Lowy and Razaviyayn, Theorem E.2). One record moves its own client's message by (eps0,
delta0), but hides among messages of clients whose records are all others. Let any two messages be (eps1, delta1) apart:
by group privacy of n records (n eps0, n e^((n-1) eps0) delta0), or by what is known of the mechanism. Then another
client's message is a clone with probability e^-eps1 in place of e^-eps0, and B is as before. The paper's equation (41)
is the closed form of this. To delta belongs (e^epsilon + 1) times the distance in total variation; the printed theorem
leaves the factor out. Rounds compose one by one, so messages may depend on all that was sent in earlier rounds.

The sharper bound of the same authors' 2023 paper is not offered: by their own erratum (arXiv 2208.04591) it holds for a
special class of randomisers only, which Gaussian noise and PrivUnit are not in.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import expit
from scipy.stats import binom

from sordino.errors import Refused, require
from sordino.privacy.gaussian import private_side

LARGEST_EPS0 = 700  # whose e^eps0 is a number


class Apart(NamedTuple):
    """How far the messages of any two clients are apart: (eps1, delta1), whatever their records are."""

    epsilon: float
    delta: float = 0.0


def apart_by_groups(eps0: float, delta0: float, records: int) -> Apart:
    """(n eps0, n e^((n - 1) eps0) delta0), where one of n records moves a message by (eps0, delta0)."""
    require(records >= 1, "records", records, "a client has at least one record")
    group = records * math.exp(min((records - 1) * eps0, 700.0)) * delta0 if delta0 > 0 else 0.0
    return Apart(records * eps0, min(1.0, group))


def closed_form_limit(n: int, delta: float) -> float:
    """The largest eps0, or eps1 of clients with several records, of the closed form: log(n / (16 log(2 / delta)))."""
    ratio = n / (16 * math.log(2 / delta))
    return math.log(ratio) if ratio > 0 else -math.inf


def shuffle_epsilon_closed(eps0: float, n: int, delta: float, apart: float | None = None) -> float:
    """Closed form, with `apart` = eps1 equation (41); eps0, which always holds, where the theorem does not reach."""
    _require_shuffle(eps0, n, delta)
    eps1 = _eps1(eps0, apart)
    if eps1 > closed_form_limit(n, delta):
        return eps0
    e = math.exp(eps1)
    spread = 8 * math.sqrt(e * math.log(4 / delta) / n) + 8 * e / n
    return min(eps0, math.log1p(math.expm1(eps0) / (math.exp(eps0) + 1) * spread))


def shuffle_delta(epsilon: float, eps0: float, n: int, apart: float | None = None) -> float:
    """Numeric: the exact divergence of the reduction at this epsilon; `apart` is eps1, eps0 if left out.

    Given C = c the number of zeros is A + B against A + 1 - B; the ratio of their laws grows with that number, so the
    divergence is a difference of two binomial tails for each c.
    """
    _require_shuffle(eps0, n, 0.5)
    if epsilon >= eps0:
        return 0.0
    clones = math.exp(-_eps1(eps0, apart))
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


def shuffle_epsilon(
    eps0: float, n: int, delta: float, delta0: float = 0.0, method: str = "numeric", *, apart: Apart | None = None
) -> float:
    """epsilon of n shuffled messages at `delta`, each (eps0, delta0)-DP; never more than eps0.

    `apart` is how far two clients' messages are apart, where that is more than (eps0, delta0): a client of several
    records. The messages are those of such clients within total variation n (delta1 + e^-eps1 delta0 / 2), which adds
    (e^epsilon + 1) times as much to delta.
    """
    _require_shuffle(eps0, n, delta)
    require(0 <= delta0 < 1, "delta0", delta0, "must lie in [0, 1)")
    eps1, delta1 = apart or Apart(eps0, delta0)
    _eps1(eps0, eps1)
    require(delta0 <= delta1 <= 1, "apart", delta1, "two clients' messages are at least as far apart as one record's")
    if method == "fmt23":
        raise Refused(
            "the 2023 shuffle bound holds for a special class of randomisers only, by its authors' erratum",
            "use the 2021 bound: method closed or numeric",
        )
    require(method in ("closed", "numeric"), "method", method, "use closed or numeric")
    if method == "closed":
        limit = closed_form_limit(n, delta)
        if eps1 > limit:
            name = "eps0" if apart is None else "eps1"
            raise Refused(
                f"the closed form needs {name} <= log(n / (16 log(2/delta))) = {limit:.6g}, got {name} = {eps1:g}",
                "use method numeric, more clients, or claim eps0 without amplification",
            )
        if delta1 == 0:
            return shuffle_epsilon_closed(eps0, n, delta, eps1)

    def slack(epsilon: float) -> float:
        left = delta - (math.exp(epsilon) + 1) * n * (delta1 + math.exp(-eps1) / 2 * delta0)
        if method == "numeric":
            return left - shuffle_delta(epsilon, eps0, n, eps1)
        return epsilon - shuffle_epsilon_closed(eps0, n, left, eps1) if left > 0 else -1.0

    top = eps0 * (1 - 1e-12)
    if slack(top) < 0 and delta1 == 0:
        return eps0
    if slack(top) < 0:
        raise Refused(
            f"with delta0 = {delta1:g} shuffling {n} messages certifies nothing at delta = {delta:g}",
            "lower delta0 (it is multiplied by n), or claim the local guarantee without amplification",
        )
    return 0.0 if slack(0.0) >= 0 else private_side(slack, 0.0, top, tolerance=1e-10)


def _eps1(eps0: float, apart: float | None) -> float:
    if apart is None:
        return eps0
    require(eps0 <= apart, "apart", apart, f"two clients' messages are at least as far apart as one record's {eps0:g}")
    return apart


def _require_shuffle(eps0: float, n: int, delta: float) -> None:
    require(0 < eps0 <= LARGEST_EPS0, "eps0", eps0, f"must be positive, and at most {LARGEST_EPS0}")
    require(n >= 1, "n", n, "shuffling needs at least one client")
    require(0 < delta < 1, "delta", delta, "must lie in (0, 1)")
