"""Rules of paper 3. Das et al.: On the convergence of DP-FedAvg, clipping against normalization.

All theorems are in terms of rho = sqrt(q d log(1/delta)) / (n epsilon), with the constant q of eq. (5) open. That
equation is no calibration (q = 1 gives 7.80 for a claimed 5), so `definition_5_noise` has rho from the noise of a plan,
and rho enters step sizes and rounds alone.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

from sordino.errors import require
from sordino.rules.rule import Says, assumed, rule

Smooth = Annotated[float, assumed("every client's objective is convex and L-smooth")]
Distance = Annotated[float, assumed("||w_0 - w*||")]
LargestGap = Annotated[float, assumed("max over clients of Delta_i* = f_i(w*) - min f_i", zero=True)]
MeanGap = Annotated[float, assumed("mean over clients of Delta_i*", zero=True)]
LocalSteps = Annotated[int, Says("local steps E")]
Rho = Annotated[float, Says("rho, the price of privacy: definition-5-noise computes it", below=1)]
PerStep = Annotated[float, Says("C-hat = C / E, the bound of an update over its local steps")]
Gamma = Annotated[float | None, Says("gamma, free; L ||w_0 - w*|| if left out, which makes term A least")]
Alpha = Annotated[float, Says("alpha, free, at least 1: more rounds, less effect of heterogeneity")]

OPEN_Q = "q of eq. (5) is open: rho from epsilon and q is for comparison. It never sets any noise."
SETS = {
    "algorithm.local_lr": "eta",
    "algorithm.server_lr": "eta",
    "run.rounds": "K",
}
CLIP, NORMALIZE = {"bound.clip": "C"}, {"bound.normalize": "C"}
READS = {"E": "algorithm.local_steps"}
FEDAVG = ("fedavg",)


class PriceOfPrivacy(NamedTuple):
    """The key quantity."""

    rho: Annotated[float, Says("rho; the theorems need rho < 1")]


@rule(3, "Definition 5", erratum=OPEN_Q)
def definition_5(
    *,
    q: Annotated[float, assumed("q: the constant of the moments accountant, which nobody has stated")],
    d: Annotated[int, Says("number of parameters")],
    n: Annotated[int, Says("number of clients")],
    epsilon: Annotated[float, Says("epsilon")],
    delta: Annotated[float, Says("delta", below=1)],
) -> PriceOfPrivacy:
    """rho = sqrt(q d log(1/delta)) / (n epsilon), as printed."""
    rho = math.sqrt(q * d * math.log(1 / delta)) / (n * epsilon)
    require(rho < 1, "epsilon", epsilon, f"the theorems need rho < 1, and here it is {rho:.6g}: use more clients")
    return PriceOfPrivacy(rho)


@rule(3, "Definition 5, of the noise", erratum="Stands for eq. (5), whose constant q is open.")
def definition_5_noise(
    *,
    noise_multiplier: Annotated[float, Says("std of the noise on the sum over C, as `sordino plan` prints it")],
    r: Annotated[int, Says("clients that a round plans with")],
    d: Annotated[int, Says("number of parameters")],
    K: Annotated[int, Says("rounds")],
) -> PriceOfPrivacy:
    """rho = (z / r) sqrt(d / K): the printed one where (z C / r)^2 = sigma^2 = q K C^2 log(1/delta) / (n epsilon)^2."""
    rho = noise_multiplier / r * math.sqrt(d / K)
    require(rho < 1, "noise_multiplier", noise_multiplier, f"the theorems need rho < 1, and here it is {rho:.6g}")
    return PriceOfPrivacy(rho)


class Steps(NamedTuple):
    """What DP-FedAvg and DP-NormFedAvg run with."""

    eta: Annotated[float, Says("local and server learning rate, eta_k = beta_k")]
    K: Annotated[int, Says("rounds")]
    C: Annotated[float, Says("clip, or length of normalized updates")]
    initialization: Annotated[float, Says("term A, the effect of the start")]
    heterogeneity: Annotated[float, Says("term B, the effect of different clients; of normalization without 1/||u||")]


def _allowed(rho: float, C_hat: float, L: float, E: int, alpha: float, largest_gap: float) -> None:
    least = 4 * math.sqrt(L * largest_gap)
    require(least <= C_hat, "C_hat", C_hat, f"the theorem needs C-hat >= 4 sqrt(L max Delta*) = {least:.6g}")
    require(alpha >= 1, "alpha", alpha, "the theorem needs alpha >= 1")
    require(alpha / (2 * rho) >= E, "E", E, f"the theorem needs E <= alpha / (2 rho) = {alpha / (2 * rho):.6g}")


def _initialization(C_hat: float, L: float, distance: float, gamma: float, rho: float) -> float:
    return C_hat * (L * distance**2 / gamma + gamma / L) * rho


@rule(3, "Theorem 2", erratum=OPEN_Q, methods=FEDAVG, sets=SETS | CLIP, reads=READS)
def theorem_2(
    *,
    rho: Rho,
    L: Smooth,
    E: LocalSteps,
    C_hat: PerStep,
    distance: Distance,
    largest_gap: LargestGap,
    mean_gap: MeanGap,
    alpha: Alpha = 1.0,
    gamma: Gamma = None,
) -> Steps:
    """DP-FedAvg with clipping on convex objectives.

    C-hat >= 4 sqrt(L max Delta*),   E <= alpha / (2 rho),   C = C-hat E
    eta = rho / (2 alpha L),   K = (2 alpha gamma / (C-hat E)) / rho^2, rounded up
    A = C-hat (L ||w_0 - w*||^2 / gamma + gamma / L) rho,   B = (3 E / (2 alpha)) mean Delta* rho
    """
    _allowed(rho, C_hat, L, E, alpha, largest_gap)
    gamma = L * distance if gamma is None else gamma
    K = math.ceil(2 * alpha * gamma / (C_hat * E * rho**2))
    A = _initialization(C_hat, L, distance, gamma, rho)
    return Steps(rho / (2 * alpha * L), K, C_hat * E, A, 1.5 * E / alpha * mean_gap * rho)


@rule(3, "Theorem 4", erratum=OPEN_Q, methods=FEDAVG, sets=SETS | NORMALIZE, reads=READS)
def theorem_4(
    *,
    rho: Rho,
    L: Smooth,
    E: LocalSteps,
    C_hat: PerStep,
    distance: Distance,
    largest_gap: LargestGap,
    alpha: Alpha = 1.0,
    gamma: Gamma = None,
) -> Steps:
    """DP-NormFedAvg on convex objectives, with the choices of Theorem 2.

    B_2 = E[mean_i 1(||u_i|| <= C-hat E) {C-hat^2 / (2 alpha L) + (C-hat E / ||u_i||) Delta_i* rho E / alpha^2} E] rho
        here without its second part, which holds the unknown ||u_i||
    """
    _allowed(rho, C_hat, L, E, alpha, largest_gap)
    gamma = L * distance if gamma is None else gamma
    K = math.ceil(2 * alpha * gamma / (C_hat * E * rho**2))
    A = _initialization(C_hat, L, distance, gamma, rho)
    return Steps(rho / (2 * alpha * L), K, C_hat * E, A, C_hat**2 / (2 * alpha * L) * E * rho)


def _any_rounds(
    rho: float, L: float, E: int, C_hat: float, K: int, gamma: float, largest_gap: float
) -> tuple[float, float]:
    """eta, and a = 2 gamma / (C-hat K rho), for K of the user's choice."""
    least = 4 * math.sqrt(L * largest_gap)
    require(least <= C_hat, "C_hat", C_hat, f"the theorem needs C-hat >= 4 sqrt(L max Delta*) = {least:.6g}")
    fewest = 2 * gamma / (C_hat * E * rho)
    require(fewest < K, "K", K, f"the theorem needs K > 2 gamma / (C-hat E rho) = {fewest:.6g}: use more rounds")
    return gamma / (C_hat * L * E * K * rho), 2 * gamma / (C_hat * K * rho)


@rule(3, "Theorem 5", erratum=OPEN_Q, methods=FEDAVG, sets=SETS | CLIP, reads=READS | {"K": "run.rounds"})
def theorem_5(
    *,
    rho: Rho,
    L: Smooth,
    E: LocalSteps,
    K: Annotated[int, Says("rounds")],
    C_hat: PerStep,
    distance: Distance,
    largest_gap: LargestGap,
    mean_gap: MeanGap,
    gamma: Gamma = None,
) -> Steps:
    """DP-FedAvg with clipping for any number of rounds.

    eta = gamma / (C-hat L E K rho),   K > 2 gamma / (C-hat E rho),   a = 2 gamma / (C-hat K rho)
    A as in Theorem 2,   B = a (1 + a) mean Delta*
    """
    gamma = L * distance if gamma is None else gamma
    eta, a = _any_rounds(rho, L, E, C_hat, K, gamma, largest_gap)
    return Steps(eta, K, C_hat * E, _initialization(C_hat, L, distance, gamma, rho), a * (1 + a) * mean_gap)


@rule(3, "Theorem 6", erratum=OPEN_Q, methods=FEDAVG, sets=SETS | NORMALIZE, reads=READS | {"K": "run.rounds"})
def theorem_6(
    *,
    rho: Rho,
    L: Smooth,
    E: LocalSteps,
    K: Annotated[int, Says("rounds")],
    C_hat: PerStep,
    distance: Distance,
    largest_gap: LargestGap,
    gamma: Gamma = None,
) -> Steps:
    """DP-NormFedAvg for any number of rounds.

    eta and K as in Theorem 5,   B_2 = gamma C-hat / (L K rho), without its part in the unknown ||u_i||
    """
    gamma = L * distance if gamma is None else gamma
    eta, _ = _any_rounds(rho, L, E, C_hat, K, gamma, largest_gap)
    A = _initialization(C_hat, L, distance, gamma, rho)
    return Steps(eta, K, C_hat * E, A, gamma * C_hat / (L * K * rho))


class Order(NamedTuple):
    """How the error scales."""

    risk: Annotated[float, Says("mean_i min{f_i - f_i(w*), (C-hat / L) ||grad f_i||}, up to a constant")]


@rule(3, "Theorem 3", erratum=OPEN_Q, methods=FEDAVG)
def theorem_3(*, rho: Rho, E: LocalSteps, C_hat: PerStep, distance: Distance, mean_gap: MeanGap) -> Order:
    """Theorem 2 with gamma of order L ||w_0 - w*|| and alpha of order 1: (C-hat ||w_0 - w*|| + E mean Delta*) rho."""
    require(1 / (2 * rho) >= E, "E", E, f"the theorem needs E <= 1 / (2 rho) = {1 / (2 * rho):.6g}, up to a constant")
    return Order((C_hat * distance + E * mean_gap) * rho)


class ManySteps(NamedTuple):
    """Many local steps, or one."""

    C_hat: Annotated[float, Says("C-hat at which nothing is clipped")]
    best_steps: Annotated[int, Says("E with the smaller bound: 1, or the most that is allowed")]
    threshold: Annotated[float, Says("mean Delta* below which many local steps are better")]
    risk: Annotated[float, Says("bound of eq. (11) on E f(w) - f(w*), at the given E")]


@rule(3, "Proposition 1", erratum=OPEN_Q, methods=FEDAVG, sets={"algorithm.local_steps": "best_steps"})
def proposition_1(
    *,
    rho: Rho,
    L: Smooth,
    G: Annotated[float, assumed("every client's objective is G-Lipschitz")],
    lambda_: Annotated[float, assumed("lambda: ||grad f_i(w - eta grad f_i) - grad f_i|| >= eta lambda ||grad f_i||")],
    distance: Distance,
    mean_gap: MeanGap,
    largest_gap: LargestGap = 0.0,
    E: LocalSteps = 1,
) -> ManySteps:
    """How many local steps: the clip falls with E, the effect of heterogeneity rises.

    C-hat = G (1 - (11 (E - 1) rho / 64) lambda^2 / L^2),   E <= 1 / (2 rho)
    risk <= (2 G ||w_0 - w*|| + (6 E / 5) (mean Delta* - threshold)) rho    (11)
    threshold = (11 / 48) G ||w_0 - w*|| rho lambda^2 / L^2: below it E = 1 / (2 rho) is best, else E = 1
    """
    require(lambda_ <= L, "lambda_", lambda_, f"an L-smooth loss has lambda <= L = {L:g}")
    ratio = (lambda_ / L) ** 2
    C_hat = G * (1 - 11 * (E - 1) * rho / 64 * ratio)
    _allowed(rho, C_hat, L, E, 1.0, largest_gap)
    threshold = 11 / 48 * G * distance * rho * ratio
    most = max(1, math.floor(1 / (2 * rho)))
    risk = (2 * G * distance + 6 * E / 5 * (mean_gap - threshold)) * rho
    return ManySteps(C_hat, most if mean_gap < threshold else 1, threshold, risk)
