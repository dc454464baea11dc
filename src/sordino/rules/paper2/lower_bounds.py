"""What no algorithm without a trusted server can beat: Theorems 3.1 and E.4, and E.3 and E.5 for a trusted one.

They hold up to logarithms of delta_r, n and N, for algorithms all of whose clients answer in every round (M = N), for
the worst loss and the worst data: a given problem may be easier.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

from sordino.errors import require
from sordino.rules.paper2.given import CONVEX, IID, Dimension, Lipschitz, Mu, Radius
from sordino.rules.rule import Says, rule

Clients = Annotated[int, Says("number of clients; all answer in every round")]
Size = Annotated[int, Says("records of every client")]
Local = Annotated[float, Says("epsilon of every record against the server")]
Central = Annotated[float, Says("epsilon of every record against a user of the model")]
OneRound = Annotated[float | None, Says("epsilon of one round, if known; it must be at most 1/n")]
OneDelta = Annotated[float | None, Says("delta of one round, if known", below=1)]

COMPOSITIONAL = "the algorithm is sequentially interactive, or its rounds' epsilons compose as sqrt(sum epsilon_r^2)"
SYMMETRIC = "the algorithm treats all clients alike"


class LowerBound(NamedTuple):
    """Of the worst problem."""

    risk: Annotated[float, Says("excess risk of the worst problem, up to a constant and logarithms")]


def _private(epsilon: float, n: int, N: int, epsilon_r: float | None, delta_r: float | None) -> None:
    most = math.sqrt(N)
    require(epsilon <= most, "epsilon", epsilon, f"the theorem needs epsilon <= sqrt(N) = {most:.6g}")
    remedy = f"the theorem needs at most 1/n = {1 / n:.6g} in one round"
    require(epsilon_r is None or epsilon_r <= 1 / n, "epsilon_r", epsilon_r, remedy)
    if delta_r is not None:
        least = 16 * math.log(2 / (delta_r * n))
        require(least <= N, "N", N, f"the theorem needs at least {math.ceil(least)} clients for this delta_r")


@rule(2, "Theorem 3.1, convex", assumes=(IID, CONVEX, COMPOSITIONAL))
def theorem_3_1_convex(
    *,
    n: Size,
    N: Clients,
    d: Dimension,
    L: Lipschitz,
    D: Radius,
    epsilon: Local,
    epsilon_r: OneRound = None,
    delta_r: OneDelta = None,
) -> LowerBound:
    """Population risk without a trusted server.

    risk = L D (1 / sqrt(N n) + min{1, sqrt(d) / (epsilon n sqrt(N))})
    """
    _private(epsilon, n, N, epsilon_r, delta_r)
    return LowerBound(L * D * (1 / math.sqrt(N * n) + min(1, math.sqrt(d) / (epsilon * n * math.sqrt(N)))))


@rule(2, "Theorem 3.1, strongly convex", assumes=(IID, COMPOSITIONAL))
def theorem_3_1_strongly_convex(
    *,
    n: Size,
    N: Clients,
    d: Dimension,
    L: Lipschitz,
    D: Radius,
    mu: Mu,
    epsilon: Local,
    epsilon_r: OneRound = None,
    delta_r: OneDelta = None,
) -> LowerBound:
    """Population risk of strongly convex losses without a trusted server.

    risk = L^2 / (mu n N) + L D min{1, d / (epsilon^2 n^2 N)},    L >= mu D
    """
    _strong(L, D, mu)
    _private(epsilon, n, N, epsilon_r, delta_r)
    return LowerBound(L**2 / (mu * n * N) + L * D * min(1, d / (epsilon**2 * n**2 * N)))


@rule(2, "Theorem E.4, convex", assumes=(CONVEX, COMPOSITIONAL, SYMMETRIC))
def theorem_E_4_convex(
    *,
    n: Size,
    N: Clients,
    d: Dimension,
    L: Lipschitz,
    D: Radius,
    epsilon: Local,
    epsilon_r: OneRound = None,
    delta_r: OneDelta = None,
) -> LowerBound:
    """Empirical risk without a trusted server.

    risk = L D min{1, sqrt(d) / (epsilon n sqrt(N))}
    """
    _private(epsilon, n, N, epsilon_r, delta_r)
    return LowerBound(L * D * min(1, math.sqrt(d) / (epsilon * n * math.sqrt(N))))


@rule(2, "Theorem E.4, strongly convex", assumes=(COMPOSITIONAL, SYMMETRIC))
def theorem_E_4_strongly_convex(
    *,
    n: Size,
    N: Clients,
    d: Dimension,
    L: Lipschitz,
    D: Radius,
    mu: Mu,
    epsilon: Local,
    epsilon_r: OneRound = None,
    delta_r: OneDelta = None,
) -> LowerBound:
    """Empirical risk of strongly convex losses without a trusted server.

    risk = L D min{1, d / (epsilon^2 n^2 N)},    L >= mu D
    """
    _strong(L, D, mu)
    _private(epsilon, n, N, epsilon_r, delta_r)
    return LowerBound(L * D * min(1, d / (epsilon**2 * n**2 * N)))


@rule(2, "Theorem E.3, convex", assumes=(IID, CONVEX))
def theorem_E_3_convex(*, n: Size, N: Clients, d: Dimension, L: Lipschitz, D: Radius, epsilon: Central) -> LowerBound:
    """Population risk with a trusted server, which sees all records.

    risk = L D (1 / sqrt(N n) + min{1, sqrt(d) / (epsilon n N)})
    """
    return LowerBound(L * D * (1 / math.sqrt(N * n) + min(1, math.sqrt(d) / (epsilon * n * N))))


@rule(2, "Theorem E.3, strongly convex", assumes=(IID,))
def theorem_E_3_strongly_convex(
    *, n: Size, N: Clients, d: Dimension, L: Lipschitz, D: Radius, mu: Mu, epsilon: Central
) -> LowerBound:
    """Population risk of strongly convex losses with a trusted server.

    risk = L^2 / (mu n N) + L D min{1, d / (epsilon n N)^2},    L >= mu D
    """
    _strong(L, D, mu)
    return LowerBound(L**2 / (mu * n * N) + L * D * min(1, d / (epsilon * n * N) ** 2))


@rule(2, "Theorem E.5, convex", assumes=(CONVEX,))
def theorem_E_5_convex(*, n: Size, N: Clients, d: Dimension, L: Lipschitz, D: Radius, epsilon: Central) -> LowerBound:
    """Empirical risk with a trusted server.

    risk = L D min{1, sqrt(d) / (epsilon n N)}
    """
    return LowerBound(L * D * min(1, math.sqrt(d) / (epsilon * n * N)))


@rule(2, "Theorem E.5, strongly convex")
def theorem_E_5_strongly_convex(
    *, n: Size, N: Clients, d: Dimension, L: Lipschitz, D: Radius, mu: Mu, epsilon: Central
) -> LowerBound:
    """Empirical risk of strongly convex losses with a trusted server.

    risk = L D min{1, d / (epsilon n N)^2},    L >= mu D
    """
    _strong(L, D, mu)
    return LowerBound(L * D * min(1, d / (epsilon * n * N) ** 2))


def _strong(L: float, D: float, mu: float) -> None:
    require(mu * D <= L, "mu", mu, f"the theorem needs mu D <= L: use at most {L / D:.6g}")
