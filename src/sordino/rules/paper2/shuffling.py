"""Noisy MB-SGD behind a shuffler: Theorem 4.1."""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

from sordino.errors import require
from sordino.rules.paper2.ensemble import log_at_least_0
from sordino.rules.paper2.given import (
    CONVEX,
    IID,
    READS,
    RUN,
    SGD,
    SHUFFLED,
    Dimension,
    Lipschitz,
    Mu,
    Radius,
    Smooth,
)
from sordino.rules.rule import Says, rule


class Shuffled(NamedTuple):
    """What Algorithm 1 behind a shuffler runs with."""

    R: Annotated[int, Says("rounds")]
    eta: Annotated[float, Says("step size; 0 for the strongly convex case, which leaves it open")]
    risk: Annotated[float, Says("excess population risk, up to a constant and logarithms")]


BEHIND = {"privacy.trust": "shuffle"}
SHUFFLE = (
    'The constant of the theorem\'s sigma is not stated, so this rule gives no noise: trust = "shuffle" calibrates it. '
    "The proof is for K = 1 alone, and R is at least n^2 N^2 epsilon^2 / M."
)


@rule(
    2,
    "Theorem 4.1, convex",
    assumes=(IID, CONVEX),
    erratum=SHUFFLE,
    methods=SGD,
    sets=SHUFFLED,
    reads=READS,
    needs=BEHIND,
)
def theorem_4_1_convex(
    *,
    n: Annotated[int, Says("records of every client")],
    N: Annotated[int, Says("number of clients")],
    M: Annotated[int, Says("clients that answer in a round")],
    d: Dimension,
    L: Lipschitz,
    D: Radius,
    beta: Smooth,
    epsilon: Annotated[float, Says("epsilon of every record behind the shuffler")],
    delta: Annotated[float, Says("delta", below=1)],
    K: Annotated[int, Says("records that a client draws in a round: 1")] = 1,
) -> Shuffled:
    """Rounds and step of Algorithm 1 behind a shuffler.

    s    = epsilon n N,   ln3 = ln(R M^2 / (N delta)) ln(R / delta) ln(1 / delta)
    R    = ceil max{s^2 / M, N / M, min{n, s^2 / (d M)}, (beta D / L) min{sqrt(n M), s / sqrt(d)}}
    eta  = min{1 / (4 beta), (D sqrt(M) / (L R)) min{sqrt(n), s / sqrt(d M ln3)}}
    risk = L D (1 / sqrt(n M) + sqrt(d ln(1 / delta)) / (epsilon n N))
    """
    size = epsilon * n * N
    optimised = beta * D / L * min(math.sqrt(n * M), size / math.sqrt(d))
    R = _shuffled_rounds(n, N, M, d, epsilon, delta, K, optimised)
    logs = math.log(R * M**2 / (N * delta)) * math.log(R / delta) * math.log(1 / delta)
    eta = min(1 / (4 * beta), D * math.sqrt(M) / (L * R) * min(math.sqrt(n), size / math.sqrt(d * M * logs)))
    return Shuffled(R, eta, L * D * (1 / math.sqrt(n * M) + math.sqrt(d * math.log(1 / delta)) / size))


@rule(
    2, "Theorem 4.1, strongly convex", assumes=(IID,), erratum=SHUFFLE, methods=SGD, sets=RUN, reads=READS, needs=BEHIND
)
def theorem_4_1_strongly_convex(
    *,
    n: Annotated[int, Says("records of every client")],
    N: Annotated[int, Says("number of clients")],
    M: Annotated[int, Says("clients that answer in a round")],
    d: Dimension,
    L: Lipschitz,
    D: Radius,
    beta: Smooth,
    mu: Mu,
    epsilon: Annotated[float, Says("epsilon of every record behind the shuffler")],
    delta: Annotated[float, Says("delta", below=1)],
    K: Annotated[int, Says("records that a client draws in a round: 1")] = 1,
) -> Shuffled:
    """Rounds of Algorithm 1 behind a shuffler.

    s    = epsilon n N
    R    = ceil max{s^2 / M, N / M, (8 beta / mu) ln(mu beta (D s)^2 / (d L^2)), min{n, s^2 / (d M)}}
    risk = L^2 (1 / (n M) + d ln(1 / delta) / (epsilon n N)^2) / mu
    """
    require(mu <= beta, "mu", mu, f"a beta-smooth loss has mu <= beta = {beta:g}")
    size = epsilon * n * N
    optimised = 8 * beta / mu * log_at_least_0(mu * beta * (D * size) ** 2 / (d * L**2))
    R = _shuffled_rounds(n, N, M, d, epsilon, delta, K, optimised)
    return Shuffled(R, 0.0, L**2 / mu * (1 / (n * M) + d * math.log(1 / delta) / size**2))


def _shuffled_rounds(n: int, N: int, M: int, d: int, epsilon: float, delta: float, K: int, optimised: float) -> int:
    size = epsilon * n * N
    require(K == 1, "K", K, "the theorem is proven for one record a round: use 1")
    require(M <= N, "M", M, f"there are only {N} clients: at most as many answer")
    limit = math.log(2 / delta)
    require(epsilon <= limit, "epsilon", epsilon, f"the theorem needs epsilon <= ln(2/delta) = {limit:.6g}")
    R = math.ceil(max(size**2 / M, N / M, optimised, min(n, size**2 / (d * M))))
    least = 16 * math.log(18 * R * M**2 / (N * delta))
    require(least <= M, "M", M, f"the theorem needs at least {math.ceil(least)} messages in a round: use as many")
    return R
