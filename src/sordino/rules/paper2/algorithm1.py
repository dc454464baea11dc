"""Noisy MB-SGD for the population risk of alike clients: Theorems 2.1 and 2.2, and the stability behind them."""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

from sordino.errors import require
from sordino.rules.paper2.ensemble import log_at_least_0
from sordino.rules.paper2.given import (
    CONVEX,
    IID,
    NOISE,
    READS,
    SGD,
    SMOOTHED,
    STEPS,
    Answers,
    Batch,
    Delta,
    Dimension,
    Epsilon,
    Known,
    Lipschitz,
    Mu,
    Radius,
    Rate,
    Records,
    Rounds,
    Smooth,
    Total,
    known_of,
)
from sordino.rules.rule import Says, rule


class Steps(NamedTuple):
    """What Algorithm 1 runs with."""

    R: Annotated[int, Says("rounds")]
    K: Annotated[int, Says("records that a client draws in a round")]
    eta: Annotated[float, Says("step size")]
    beta: Annotated[float, Says("smoothness; of the Moreau envelope where the loss is not smooth")]
    noise_std: Annotated[float, Says("the paper's sigma, the largest of all clients")]
    risk: Annotated[float, Says("bound on the excess population risk; strongly convex: up to constant and logarithm")]


@rule(2, "Theorem 2.1, convex", assumes=(IID, CONVEX), erratum=NOISE, methods=SGD, sets=STEPS, reads=READS)
def theorem_2_1_convex(
    *,
    n: Records,
    M: Answers,
    d: Dimension,
    L: Lipschitz,
    D: Radius,
    beta: Smooth,
    epsilon: Epsilon,
    delta: Delta,
    K: Batch = None,
    R: Rounds = None,
    N: Total = None,
    noise_rate: Rate = None,
) -> Steps:
    """Rounds and steps of Algorithm 1, with weights gamma_r = 1/R.

    sigma^2 = 256 L^2 R ln(2.5 R / delta) ln(2 / delta) / (n epsilon)^2,    K >= epsilon n / (4 sqrt(2 R ln(2 / delta)))
    R    = ceil max{(beta D sqrt(M~) / L) s, min{n_min, 1 / (d Xi~)} / K},  s = min{sqrt(n_min), 1 / sqrt(d Xi~)}
    eta  = min{1 / (4 beta), D sqrt(M~) s / (L R)}
    risk <= 272 L D / (sqrt(M~) s)
    """
    known = known_of(n, M, d, L, epsilon, delta, K, N, noise_rate)

    def enough(r: float) -> float:
        M_, dXi = known.spread(r)
        s = min(math.sqrt(known.clients.fewest), 1 / math.sqrt(dXi))
        return max(beta * D * math.sqrt(M_) / L * s, s**2 / known.most)

    R = known.rounds(R, enough)
    M_, dXi = known.spread(R)
    s = min(math.sqrt(known.clients.fewest), 1 / math.sqrt(dXi))
    eta = min(1 / (4 * beta), D * math.sqrt(M_) / (L * R) * s)
    risk = 272 * L * D / (math.sqrt(M_) * s)
    return Steps(R, known.batch(R, s**2), eta, beta, known.noise_std(R), risk)


@rule(2, "Theorem 2.1, strongly convex", assumes=(IID,), erratum=NOISE, methods=SGD, sets=STEPS, reads=READS)
def theorem_2_1_strongly_convex(
    *,
    n: Records,
    M: Answers,
    d: Dimension,
    L: Lipschitz,
    D: Radius,
    beta: Smooth,
    mu: Mu,
    epsilon: Epsilon,
    delta: Delta,
    K: Batch = None,
    R: Rounds = None,
    N: Total = None,
    noise_rate: Rate = None,
) -> Steps:
    """Rounds and steps of Algorithm 1, with weights gamma_r = (1 - mu eta)^-(r + 1).

    R    = ceil max{(8 beta / mu) ln(beta D^2 mu M~ / (d Psi~)), min{n_min, 1 / (d Xi~)} / K},   Psi~ = L^2 Xi~
    eta  = min{1 / (4 beta), ln(max{2, mu^2 D^2 R^2 / (2 (4 L^2 / (M K) + V^2))}) / (mu R)},
    V^2  = d min{Sigma^2 / M', sigma_max^2 / M}
    risk = L^2 (1 / (M n_min) + d Xi~ / M~) / mu
    (R as in the main text; the appendix has L^2 / (d Psi~) for the second term, which is more and not needed.)
    """
    require(mu <= beta, "mu", mu, f"a beta-smooth loss has mu <= beta = {beta:g}")
    known = known_of(n, M, d, L, epsilon, delta, K, N, noise_rate)

    def enough(r: float) -> float:
        M_, dXi = known.spread(r)
        samples = min(known.clients.fewest, 1 / dXi)
        return max(8 * beta / mu * log_at_least_0(beta * D**2 * mu * M_ / (L**2 * dXi)), samples / known.most)

    R = known.rounds(R, enough)
    return _strong(known, R, D, beta, mu)


def _strong(known: Known, R: int, D: float, beta: float, mu: float) -> Steps:
    """eta and the risk of the strongly convex cases."""
    L, M, (M_, dXi) = known.L, known.clients.answering.mean, known.spread(R)
    K = known.batch(R, min(known.clients.fewest, 1 / dXi))
    V2 = 4 * L**2 / (M * K) + known.variance(R)
    eta = min(1 / (4 * beta), math.log(max(2.0, (mu * D * R) ** 2 / (2 * V2))) / (mu * R))
    risk = L**2 / mu * (1 / (M * known.clients.fewest) + dXi / M_)
    return Steps(R, K, eta, beta, known.noise_std(R), risk)


@rule(2, "Theorem 2.2, convex", assumes=(IID, CONVEX), erratum=NOISE, methods=SGD, sets=STEPS | SMOOTHED, reads=READS)
def theorem_2_2_convex(
    *,
    n: Records,
    M: Answers,
    d: Dimension,
    L: Lipschitz,
    D: Radius,
    epsilon: Epsilon,
    delta: Delta,
    K: Batch = None,
    R: Rounds = None,
    N: Total = None,
    noise_rate: Rate = None,
) -> Steps:
    """Algorithm 1 on the Moreau envelope f_beta of a loss that is not smooth.

    beta = (L sqrt(M~) / D) s,   R = ceil(M~ s^2),   s = min{sqrt(n_min), 1 / sqrt(d Xi~)}
    eta as in Theorem 2.1,   risk <= 545 L D / (sqrt(M~) s)
    """
    known = known_of(n, M, d, L, epsilon, delta, K, N, noise_rate)

    def squared(r: float) -> float:
        return min(known.clients.fewest, 1 / known.spread(r)[1])

    R = known.rounds(R, lambda r: known.spread(r)[0] * squared(r))
    M_, s = known.spread(R)[0], math.sqrt(squared(R))
    beta = L * math.sqrt(M_) / D * s
    eta = min(1 / (4 * beta), D * math.sqrt(M_) / (L * R) * s)
    risk = 545 * L * D / (math.sqrt(M_) * s)
    return Steps(R, known.batch(R, s**2), eta, beta, known.noise_std(R), risk)


@rule(2, "Theorem 2.2, strongly convex", assumes=(IID,), erratum=NOISE, methods=SGD, sets=STEPS | SMOOTHED, reads=READS)
def theorem_2_2_strongly_convex(
    *,
    n: Records,
    M: Answers,
    d: Dimension,
    L: Lipschitz,
    D: Radius,
    mu: Mu,
    epsilon: Epsilon,
    delta: Delta,
    K: Batch = None,
    R: Rounds = None,
    N: Total = None,
    noise_rate: Rate = None,
) -> Steps:
    """Algorithm 1 on the Moreau envelope f_beta of a strongly convex loss that is not smooth.

    beta = mu M~ s^2,   s^2 = min{n_min, 1 / (d Xi~)}
    R    = ceil max{8 M~ s^2 ln(beta D^2 mu M~ / (d L^2 Xi~)), s^2 / K},   eta as in Theorem 2.1
    risk = L^2 (1 / (M n_min) + d Xi~ / M~) / mu
    """
    known = known_of(n, M, d, L, epsilon, delta, K, N, noise_rate)

    def smoothing(r: float) -> float:
        M_, dXi = known.spread(r)
        return mu * M_ * min(known.clients.fewest, 1 / dXi)

    def enough(r: float) -> float:
        M_, dXi = known.spread(r)
        beta = smoothing(r)
        samples = min(known.clients.fewest, 1 / dXi)
        return max(8 * beta / mu * log_at_least_0(beta * D**2 * mu * M_ / (L**2 * dXi)), samples / known.most)

    R = known.rounds(R, enough)
    return _strong(known, R, D, smoothing(R), mu)


class Stability(NamedTuple):
    """How far population and empirical risk may lie apart."""

    alpha: Annotated[float, Says("uniform stability: population minus empirical risk is at most this, on average")]


@rule(2, "Lemma D.2, convex", assumes=(IID, CONVEX), methods=SGD, reads=READS)
def lemma_D_2_convex(
    *,
    n: Annotated[int, Says("records of the smallest client")],
    M: Annotated[float, Says("clients that answer, 1 / E(1/M_r)")],
    L: Lipschitz,
    beta: Smooth,
    R: Annotated[int, Says("rounds")],
    eta: Annotated[float, Says("step size")],
) -> Stability:
    """alpha = 2 L^2 R eta / (n M), for steps eta <= 1 / beta."""
    require(eta * beta <= 1, "eta", eta, f"the lemma needs eta <= 1 / beta = {1 / beta:g}")
    return Stability(2 * L**2 * R * eta / (n * M))


@rule(2, "Lemma D.2, strongly convex", assumes=(IID,), methods=SGD, reads=READS)
def lemma_D_2_strongly_convex(
    *,
    n: Annotated[int, Says("records of the smallest client")],
    M: Annotated[float, Says("clients that answer, 1 / E(1/M_r)")],
    L: Lipschitz,
    beta: Smooth,
    mu: Mu,
    eta: Annotated[float, Says("step size")],
) -> Stability:
    """alpha = 4 L^2 / (mu (M n - 1)), for steps eta <= 1 / beta."""
    require(eta * beta <= 1, "eta", eta, f"the lemma needs eta <= 1 / beta = {1 / beta:g}")
    require(n > 1 and M > 1, "n", n, "the lemma needs more than one client and more than one record")
    return Stability(4 * L**2 / (mu * (M * n - 1)))
