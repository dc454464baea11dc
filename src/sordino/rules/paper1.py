"""Rules of paper 1. DP-FedEXP: FedEXP's step size under differential privacy.

The theorems hold up to constants that the paper does not state, with probability 1 - T exp(-c q^2) for an unstated c.
Their terms tell how the error scales, not how large it is.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

from sordino.errors import require
from sordino.rules.rule import Says, assumed, rule

Smooth = Annotated[float, assumed("every client's loss is L-smooth")]
Lipschitz = Annotated[float, assumed("every client's loss is G-Lipschitz")]
Diversity = Annotated[float, assumed("mean over clients of ||grad f_i - grad F||^2 is at most sigma_g^2", zero=True)]
Gap = Annotated[float, assumed("F(w_0) - F*")]
Dimension = Annotated[int, Says("number of parameters")]
Clients = Annotated[int, Says("clients a round")]
Rounds = Annotated[int, Says("rounds")]
LocalSteps = Annotated[int, Says("local steps")]
Noise = Annotated[float, Says("std of the noise on one client's message", zero=True)]
Confidence = Annotated[float, Says("q, from 1 to sqrt(M): the terms hold but for probability T exp(-c q^2)")]
Share = Annotated[float, Says("eta_l as a share of 1 / (24 L tau), which the theorem excludes", below=1)]
Acceleration = Annotated[float, Says("mean of the global step size eta_g over rounds, at least 1")]

CONSTANTS = "The theorem leaves its constants open, so the terms are orders of magnitude."
STEP_NOISE = (
    CONSTANTS + " sigma_xi = d sigma^2 / M is called negligible: with sigma = 5 C / sqrt(M) its release has "
    "mu_xi = M / (25 d) a round, which at M = 10,000 and d = 500 triples epsilon. The plan accounts for it."
)
READS = {"T": "run.rounds", "tau": "algorithm.local_steps", "M": "task.clients"}
SETS = {"algorithm.local_lr": "eta_l", "bound.clip": "C"}


class Exp(NamedTuple):
    """What DP-FedEXP runs with, and how its error scales."""

    eta_l: Annotated[float, Says("local learning rate")]
    C: Annotated[float, Says("clip, at which nothing is clipped")]
    T_1: Annotated[float, Says("error of the start, (F(w_0) - F*) / (T eta_g eta_l tau)")]
    T_2: Annotated[float, Says("error of the clients' drift, (eta_l L tau sigma_g)^2")]
    T_3: Annotated[float, Says("error of the global variance, eta_l L tau sigma_g^2")]
    T_4: Annotated[float, Says("error of privacy")]
    step_noise_std: Annotated[float, Says("sigma_xi of the release behind the step size; 0 where there is none")]


def _exp(
    eta_share: float,
    L: float,
    G: float,
    tau: int,
    T: int,
    M: int,
    gap: float,
    sigma_g2: float,
    q: float,
    eta_g: float,
    privacy: float,
    step_noise: float = 0.0,
) -> Exp:
    require(1 <= q <= math.sqrt(M), "q", q, f"the theorem needs 1 <= q <= sqrt(M) = {math.sqrt(M):.6g}")
    require(eta_g >= 1, "eta_g", eta_g, "FedEXP's step size is at least 1")
    eta_l = eta_share / (24 * L * tau)
    move = eta_l * tau
    T_4 = L * q**2 / move * privacy
    return Exp(
        eta_l, move * G, gap / (T * eta_g * move), (L * move) ** 2 * sigma_g2, L * move * sigma_g2, T_4, step_noise
    )


@rule(1, "Theorem 4.5", erratum=CONSTANTS, methods=("fedexp",), sets=SETS, reads=READS)
def theorem_4_5(
    *,
    d: Dimension,
    M: Clients,
    T: Rounds,
    tau: LocalSteps,
    L: Smooth,
    G: Lipschitz,
    gap: Gap,
    sigma_g2: Diversity,
    sigma: Noise,
    q: Confidence = 1.0,
    eta_g: Acceleration = 1.0,
    share: Share = 0.99,
) -> Exp:
    """LDP-FedEXP with Gaussian noise.

    eta_l < 1 / (24 L tau),   C = eta_l tau G
    min_t ||grad F(w_t)||^2 <= O(T_1 + T_2 + T_3 + T_4),   T_4 = (L sigma^2 q^2 / (eta_l tau)) (d/M + sqrt(d/M))
    """
    return _exp(share, L, G, tau, T, M, gap, sigma_g2, q, eta_g, sigma**2 * (d / M + math.sqrt(d / M)))


@rule(1, "Theorem 4.6", erratum=STEP_NOISE, methods=("fedexp",), sets=SETS, reads=READS)
def theorem_4_6(
    *,
    d: Dimension,
    M: Clients,
    T: Rounds,
    tau: LocalSteps,
    L: Smooth,
    G: Lipschitz,
    gap: Gap,
    sigma_g2: Diversity,
    sigma: Annotated[float, Says("sigma: the noise on the mean has std sigma / sqrt(M)", zero=True)],
    q: Confidence = 1.0,
    eta_g: Acceleration = 1.0,
    share: Share = 0.99,
) -> Exp:
    """CDP-FedEXP.

    eta_l < 1 / (24 L tau),   C = eta_l tau G,   sigma_xi = d sigma^2 / M
    min_t ||grad F(w_t)||^2 <= O(T_1 + T_2 + T_3 + T_4),   T_4 = (L sigma^2 q^2 / (eta_l tau)) d/M
    """
    step_noise = d * sigma**2 / M
    return _exp(share, L, G, tau, T, M, gap, sigma_g2, q, eta_g, sigma**2 * d / M, step_noise)


@rule(1, "Theorem D.2", erratum=CONSTANTS, methods=("fedexp",), sets=SETS, reads=READS)
def theorem_D_2(
    *,
    d: Dimension,
    M: Clients,
    T: Rounds,
    tau: LocalSteps,
    L: Smooth,
    G: Lipschitz,
    gap: Gap,
    sigma_g2: Diversity,
    q: Confidence = 1.0,
    eta_g: Acceleration = 1.0,
    share: Share = 0.99,
) -> Exp:
    """LDP-FedEXP with PrivUnit, for epsilon_1 and epsilon_2 of order 1; the proof has C in the place of sigma.

    eta_l < 1 / (24 L tau),   C = eta_l tau G
    min_t ||grad F(w_t)||^2 <= O(T_1 + T_2 + T_3 + T_4),   T_4 = (L C^2 q^2 / (eta_l tau)) (d/M + 1 / sqrt(M))
    """
    C = share * G / (24 * L)
    return _exp(share, L, G, tau, T, M, gap, sigma_g2, q, eta_g, C**2 * (d / M + 1 / math.sqrt(M)))
