"""Rules of paper 4. Shulgin et al.: alpha-NormEC, error compensation with smoothed normalization.

R = max_i ||grad f_i(x^0) - g_i^0|| and f(x^0) - f^inf are measured on private data unless they are bounds that hold for
all data: a run file that computes them from data must say so.

beta / (alpha + R) < 1, as printed, does not keep ||grad f_i(x^k) - g_i^k|| <= R: a memory nearer to its gradient
than beta - alpha is thrown past it, by up to (sqrt(beta) - sqrt(alpha))^2. The rules ask for what the proofs use,
t |1 - beta / (alpha + t)| <= R (1 - beta / (alpha + R)) for all t <= R, which beta <= alpha implies.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

from sordino.errors import require
from sordino.rules.rule import Says, assumed, rule

Alpha = Annotated[float, Says("alpha of the smoothed normalization")]
Beta = Annotated[float, Says("beta, how much of a message enters the memories")]
Distance = Annotated[float, assumed("R = max_i ||grad f_i(x^0) - g_i^0||, or a bound on it")]
Smoothest = Annotated[float, assumed("L_max: every client's loss is L_i-smooth with L_i <= L_max")]
Smooth = Annotated[float | None, assumed("the mean loss is L-smooth; L_max if left out")]
Gap = Annotated[float, assumed("f(x^0) - f^inf, or a bound on it")]
Updates = Annotated[int, Says("K + 1, the number of rounds")]
NoiseStd = Annotated[float, Says("std of the noise on one message, each coordinate", zero=True)]
Clients = Annotated[int, Says("number of clients")]
Dimension = Annotated[int, Says("number of parameters")]
Start = Annotated[float, Says("D: memories start at distance R = D (K + 1)^-power from the gradients")]

OVERSHOOT = (
    "beta / (alpha + R) < 1 is not enough where beta > alpha: with alpha = 0, R = 1 and beta = 0.9 an error of 0.01 "
    "becomes 0.89, and the step 0.9 / L_max adds 0.9. The rule also asks for "
    "(sqrt(beta) - sqrt(alpha))^2 <= R (1 - beta / (alpha + R))."
)
DIMENSION = "Lemma 5 has sigma^2 / n for the noise, which per coordinate is d sigma^2 / n: the rule has d."
EF, READS = ("error_feedback",), {"beta": "algorithm.beta", "rounds": "run.rounds"}
ALPHA = READS | {"alpha": "bound.smoothed_normalize"}
SETS = {"algorithm.server_lr": "gamma"}
# Every client sends one gradient in every round; without batch_size it is that of all its records.
ONE_GRADIENT = {"algorithm.local_steps": 1, "run.cohort": "full"}
EXACT = ONE_GRADIENT | {"algorithm.batch_size": False}
NORMALIZED, PLAIN = (EXACT | {"algorithm.server_normalization": normalized} for normalized in (True, False))
NORMALIZED_BATCHES = ONE_GRADIENT | {"algorithm.server_normalization": True}


class Step(NamedTuple):
    """What alpha-NormEC runs with."""

    gamma: Annotated[float, Says("server step size gamma")]
    gradient_norm: Annotated[float, Says("bound on min_k E ||grad f(x^k)||")]


def _settles(alpha: float, beta: float, R: float) -> None:
    """Refuse betas with which an error of at most R may grow above it."""
    require(beta < alpha + R, "beta", beta, f"the theorem needs beta < alpha + R = {alpha + R:.6g}")
    thrown = (math.sqrt(beta) - math.sqrt(alpha)) ** 2 if beta > alpha else 0.0
    remedy = f"memories overshoot their gradients: use beta <= alpha = {alpha:g}, or a beta nearer to it"
    require(thrown <= R * (1 - beta / (alpha + R)), "beta", beta, remedy)


def _bound(gap: float, gamma: float, rounds: int, R: float, L: float) -> float:
    return gap / (gamma * rounds) + 2 * R + L / 2 * gamma


def _drift(beta: float, rounds: int, d: int, noise_std: float, n: int) -> float:
    return 2 * beta * math.sqrt(rounds * d / n) * noise_std


@rule(4, "Theorem 1", erratum=OVERSHOOT, methods=EF, sets=SETS, reads=ALPHA, needs=NORMALIZED)
def theorem_1(
    *, alpha: Alpha, beta: Beta, R: Distance, L_max: Smoothest, gap: Gap, rounds: Updates, L: Smooth = None
) -> Step:
    """alpha-NormEC with server normalization, without noise.

    beta / (alpha + R) < 1,   gamma = beta R / ((alpha + R) L_max)
    min_k ||grad f(x^k)|| <= (f(x^0) - f^inf) / (gamma (K + 1)) + 2 R + L gamma / 2
    """
    _settles(alpha, beta, R)
    gamma = beta * R / ((alpha + R) * L_max)
    return Step(gamma, _bound(gap, gamma, rounds, R, L or L_max))


@rule(4, "Theorem 2", erratum=OVERSHOOT + " " + DIMENSION, methods=EF, sets=SETS, reads=ALPHA, needs=NORMALIZED)
def theorem_2(
    *,
    alpha: Alpha,
    beta: Beta,
    R: Distance,
    L_max: Smoothest,
    gap: Gap,
    rounds: Updates,
    n: Clients,
    d: Dimension,
    noise_std: NoiseStd,
    L: Smooth = None,
) -> Step:
    """DP-alpha-NormEC with server normalization.

    gamma as in Theorem 1,   min_k E ||grad f(x^k)|| <= the bound of Theorem 1 + 2 beta sqrt((K + 1) d / n) sigma
    """
    _settles(alpha, beta, R)
    gamma = beta * R / ((alpha + R) * L_max)
    return Step(gamma, _bound(gap, gamma, rounds, R, L or L_max) + _drift(beta, rounds, d, noise_std, n))


@rule(
    4,
    "Theorem 3",
    erratum=OVERSHOOT
    + " The bound of Theorem 1, which is printed for it, rests on steps of length gamma and is false: one client, "
    "f = x^2 / 2, x^0 = 0.1, alpha = 1, beta = 0.5 and R = 0.0001 have a gradient of 0.037 after 2002 rounds, where it "
    "says 0.0055. The rule has the one of gradient descent with an error of at most R. (Lemma 3 prints "
    "R + sqrt(2 L) sqrt(L_max) where its proof has (R + sqrt(2 L Delta)) L_max.)",
    methods=EF,
    sets=SETS,
    reads=ALPHA,
    needs=PLAIN,
)
def theorem_3(
    *,
    alpha: Alpha,
    beta: Beta,
    R: Distance,
    L_max: Smoothest,
    gap: Annotated[float, assumed("Delta >= f(x) - f^inf for all x")],
    rounds: Updates,
    L: Smooth = None,
) -> Step:
    """alpha-NormEC without server normalization, without noise.

    gamma = beta R / ((alpha + R) (R + sqrt(2 L Delta)) L_max)
    min_k ||grad f(x^k)|| <= sqrt(2 (f(x^0) - f^inf) / (gamma (K + 1)) + R^2)
    """
    _settles(alpha, beta, R)
    smooth = L or L_max
    gamma = beta * R / ((alpha + R) * (R + math.sqrt(2 * smooth * gap)) * L_max)
    return Step(gamma, math.sqrt(2 * gap / (gamma * rounds) + R**2))


class Stochastic(NamedTuple):
    """What alpha-NormEC with batches runs with."""

    gamma: Annotated[float, Says("server step size gamma")]
    b: Annotated[int, Says("least number of records a gradient")]
    gradient_norm: Annotated[float, Says("bound on min_k ||grad f(x^k)||")]


@rule(
    4,
    "Theorem 4",
    erratum=OVERSHOOT
    + " b >= 4 sigma (alpha + R) / R lacks a factor 1 / beta: Lemma 4 needs 2 sigma / b + L_max gamma <= beta R / "
    "(alpha + R). The rule has b >= 4 sigma (alpha + R) / (beta R).",
    methods=EF,
    sets=SETS | {"algorithm.batch_size": "b"},
    reads=ALPHA,
    needs=NORMALIZED_BATCHES,
)
def theorem_4(
    *,
    alpha: Alpha,
    beta: Beta,
    R: Distance,
    L_max: Smoothest,
    gap: Gap,
    rounds: Updates,
    sigma: Annotated[float, assumed("a gradient of b records is always within sigma / b of the client's")],
    L: Smooth = None,
) -> Stochastic:
    """alpha-NormEC on batches of b records, with server normalization, without noise.

    b >= 4 sigma (alpha + R) / (beta R),   gamma = beta R / (2 (alpha + R) L_max)
    min_k ||grad f(x^k)|| <= (f(x^0) - f^inf) / (gamma (K + 1)) + 2 (sigma / b + R) + L gamma / 2
    """
    _settles(alpha, beta, R)
    b = max(1, math.ceil(4 * sigma * (alpha + R) / (beta * R)))
    gamma = beta * R / (2 * (alpha + R) * L_max)
    return Stochastic(gamma, b, _bound(gap, gamma, rounds, R, L or L_max) + 2 * sigma / b)


class Started(NamedTuple):
    """What alpha-NormEC runs with, and where its memories start."""

    gamma: Annotated[float, Says("server step size gamma")]
    beta: Annotated[float, Says("beta")]
    R: Annotated[float, Says("distance of the memories from the gradients at the start")]
    gradient_norm: Annotated[float, Says("bound on min_k E ||grad f(x^k)||")]


STARTED = SETS | {"algorithm.beta": "beta"}


@rule(
    4,
    "Corollary 1",
    erratum="Eq. (15) takes beta = (L_max (alpha + D) / D) sqrt(2 (f(x^0) - f^inf) / L), which is seldom below alpha "
    "as the corollary demands: the rule takes the given beta and refuses beta >= alpha.",
    methods=EF,
    sets=SETS,
    reads=ALPHA,
    needs=NORMALIZED,
)
def corollary_1(
    *, alpha: Alpha, beta: Beta, D: Start, L_max: Smoothest, gap: Gap, rounds: Updates, L: Smooth = None
) -> Started:
    """The rate 1 / sqrt(K) without noise, for memories that start at R = D / sqrt(K + 1).

    gamma = beta D / (L_max (alpha + D) sqrt(K + 1)),   beta < alpha
    min_k ||grad f(x^k)|| <= [(f(x^0) - f^inf) / S + 2 D + L S / 2] / sqrt(K + 1),   S = beta D / (L_max (alpha + D))
    """
    require(beta < alpha, "beta", beta, f"the corollary needs beta < alpha = {alpha:g}")
    root = math.sqrt(rounds)
    step = beta * D / (L_max * (alpha + D))
    return Started(step / root, beta, D / root, (gap / step + 2 * D + (L or L_max) / 2 * step) / root)


@rule(
    4,
    "Section C.1.1",
    erratum=OVERSHOOT + " Its constant C_1 drops the 1 / sqrt(n) of the noise and, with Lemma 5, the dimension.",
    methods=EF,
    sets=STARTED,
    reads={"rounds": "run.rounds", "alpha": "bound.smoothed_normalize"},
    needs=NORMALIZED,
)
def section_C_1_1(
    *,
    alpha: Alpha,
    beta_0: Annotated[float, Says("beta_0 in (0, 1]", most=1)],
    D: Start,
    L_max: Smoothest,
    gap: Gap,
    rounds: Updates,
    n: Clients,
    d: Dimension,
    noise_std: NoiseStd,
    L: Smooth = None,
) -> Started:
    """The rate K^(-1/6) with noise that does not depend on K.

    R = D (K + 1)^(-1/6),   beta = beta_0 (K + 1)^(-2/3),   gamma = A (K + 1)^(-5/6)
    A = beta_0 D / (L_max (alpha + D)),   C_1 = (f(x^0) - f^inf) / A + 2 D + 2 beta_0 sigma sqrt(d / n)
    min_k E ||grad f(x^k)|| <= C_1 (K + 1)^(-1/6) + L A (K + 1)^(-5/6) / 2
    """
    require(alpha > 1, "alpha", alpha, "the choice needs alpha > 1")
    A = beta_0 * D / (L_max * (alpha + D))
    R, beta, gamma = D * rounds ** (-1 / 6), beta_0 * rounds ** (-2 / 3), A * rounds ** (-5 / 6)
    _settles(alpha, beta, R)
    slow = (gap / A + 2 * D + 2 * beta_0 * noise_std * math.sqrt(d / n)) * rounds ** (-1 / 6)
    return Started(gamma, beta, R, slow + (L or L_max) / 2 * gamma)


class Utility(NamedTuple):
    """The choices of the utility bound."""

    gamma: Annotated[float, Says("server step size gamma")]
    beta: Annotated[float, Says("beta")]
    alpha: Annotated[float, Says("alpha, which is also the R that the memories must start at")]
    gradient_norm: Annotated[float, Says("bound on min_k E ||grad f(x^k)||")]


@rule(
    4,
    "Corollary 2",
    erratum="Its sigma = sqrt((K + 1) log(1/delta)) / epsilon does not give (epsilon, delta): the rule takes the noise "
    "of the plan instead, A = sigma / sqrt((K + 1) n). "
    + DIMENSION
    + " With it beta_0 has A sqrt(d) where the paper has A.",
    methods=EF,
    sets=STARTED,
    reads={"rounds": "run.rounds"},
    needs=NORMALIZED,
)
def corollary_2(
    *,
    L_max: Smoothest,
    gap: Gap,
    rounds: Updates,
    n: Clients,
    d: Dimension,
    noise_std: Annotated[float, Says("std of the noise on one message, each coordinate")],
    L: Smooth = None,
) -> Utility:
    """The utility bound d^(1/4) for noise that grows with sqrt(K + 1).

    A = sigma / sqrt((K + 1) n),   U = sqrt(L_max (f(x^0) - f^inf) A) d^(1/4)
    alpha = R = U,   beta = beta_0 / (K + 1),   beta_0 = sqrt(L_max (f(x^0) - f^inf) / (A sqrt(d)))
    gamma = beta R / ((alpha + R) L_max)
    min_k E ||grad f(x^k)|| <= 2 L_max (f(x^0) - f^inf) / beta_0 + 2 R + 2 beta_0 A sqrt(d) + L gamma / 2
                             = 6 U + L gamma / 2
    """
    A = noise_std / math.sqrt(rounds * n)
    R = math.sqrt(L_max * gap * A) * d**0.25
    beta = math.sqrt(L_max * gap / (A * math.sqrt(d))) / rounds
    _settles(R, beta, R)
    gamma = beta / (2 * L_max)
    return Utility(gamma, beta, R, 6 * R + (L or L_max) / 2 * gamma)


class Clip21(NamedTuple):
    """Clip21's threshold."""

    tau: Annotated[float, Says("clip tau")]
    gradient_norm: Annotated[float, Says("bound on min_k ||grad f(x^k)||")]


@rule(4, "Appendix B.3", methods=EF, sets={"bound.clip": "tau"}, reads={"rounds": "run.rounds"}, needs=EXACT)
def appendix_B_3(
    *,
    L_max: Smoothest,
    gap: Gap,
    rounds: Updates,
    C_1: Annotated[float, assumed("max_i ||grad f_i(x^0)||")],
    L: Smooth = None,
) -> Clip21:
    """Clip21's tau with which its first term is that of gradient descent (Theorem 5.6 of Khirirat et al., as cited).

    tau = L_max sqrt(f(x^0) - f^inf) / sqrt(2 L),   C_2 = max{max(L, L_max) (f(x^0) - f^inf), C_1^2}
    min_k ||grad f(x^k)|| <= [L_max (f(x^0) - f^inf) / tau + sqrt((1 + C_1 / tau) C_2)] / sqrt(K + 1)
    """
    smooth = L or L_max
    tau = L_max / math.sqrt(2 * smooth) * math.sqrt(gap)
    C_2 = max(max(smooth, L_max) * gap, C_1**2)
    return Clip21(tau, (L_max * gap / tau + math.sqrt((1 + C_1 / tau) * C_2)) / math.sqrt(rounds))
