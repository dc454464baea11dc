"""Rules of paper 0. Das, Hashemi, Sanghavi and Dhillon: DP-NormFedAvg: Normalizing Client Updates.

What the paper claims of privacy is false (its Theorem 1 has delta near 1, its Theorem 2 amplifies by a sample that the
server sees), so rules here are about convergence and bits, and m is that of the noise which a plan really adds. Only
Corollary 3.1's own noise is computed as printed, for each client, with the delta that it really has.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

from sordino.errors import require
from sordino.privacy.published import qtdl_theorem_2_epsilon_0
from sordino.privacy.quantized import bits_for
from sordino.privacy.tdl import tdl_variance, theorem_1, worst_delta
from sordino.rules.rule import Says, assumed, rule

Smooth = Annotated[float, assumed("every record's loss is L-smooth")]
Quasar = Annotated[float, assumed("every client's objective is zeta-quasar-convex; 1 if it is star-convex", most=1)]
Distance = Annotated[float, assumed("||w_0 - w*||")]
Minimisers = Annotated[float, assumed("mean over clients of ||w_i* - w*||: 0 if they share a minimiser", zero=True)]
Growth = Annotated[float, assumed("||grad l(x, w)|| <= rho ||grad f_i(w)||, f_i of the population, all x; above 1")]
Levels = Annotated[int, Says("quantisation levels s")]
NoiseLevels = Annotated[int, Says("m of the noise, which lives on -m, ..., m")]
Dimension = Annotated[int, Says("number of parameters")]
Rounds = Annotated[int, Says("rounds K")]
Cohort = Annotated[int, Says("clients a round")]

NO_PRIVACY = (
    "The theorem's privacy is false and left out: truncated noise of m < 2.5 Delta_inf has delta near 1, and 2r/n "
    "amplifies by a sample that the server sees. Step sizes and the bound hold for the m of any unbiased noise."
)
GROWTH = (
    "The probability is 1 - 4 (rho^2 - 1) / n_i, not 1 - 4 (rho - 1) / n_i: eq. (103) drops a square. It is over the "
    "data and for one w, so these are no sensitivities of differential privacy."
)


class NormFedAvg(NamedTuple):
    """What DP-NormFedAvg runs with."""

    E: Annotated[int, Says("local steps")]
    gamma: Annotated[float, Says("d (1 + 4 m^2) / (4 s^2), a bound on the variance of a message")]
    eta: Annotated[float, Says("local learning rate eta_k")]
    beta: Annotated[float, Says("server learning rate beta_k")]
    gradient_norm: Annotated[float, Says("bound on min_k E ||grad f(w_k)||")]


@rule(
    0,
    "Theorem 2",
    assumes=("every client's objective has a minimiser",),
    erratum=NO_PRIVACY,
    methods=("fedavg",),
    sets={"algorithm.local_lr": "eta", "algorithm.server_lr": "beta", "algorithm.local_steps": "E"},
    reads={"K": "run.rounds", "s": "privacy.levels"},
    needs={"bound.normalize": 1.0},
)
def theorem_2(
    *,
    d: Dimension,
    s: Levels,
    m: NoiseLevels,
    r: Cohort,
    K: Rounds,
    L: Smooth,
    zeta: Quasar,
    distance: Distance,
    minimisers: Minimisers = 0.0,
) -> NormFedAvg:
    """DP-NormFedAvg on smooth quasar-convex objectives.

    gamma = d (1 + 4 m^2) / (4 s^2),   E = sqrt(K)
    eta   = zeta / (4 L E sqrt(1 + gamma / r)),   beta = (4 L ||w_0 - w*|| / zeta) eta
    min_k E ||grad f(w_k)|| <= (3 L ||w_0 - w*|| / zeta) (E / K + 1 / E) sqrt(1 + gamma / r)
                               + (6 L / zeta) mean_i ||w_i* - w*||

    With E = sqrt(K) the bracket is 2 / sqrt(K), as in the theorem; E is rounded to a whole number.
    """
    E = max(1, round(math.sqrt(K)))
    gamma = d * (1 + 4 * m**2) / (4 * s**2)
    spread = math.sqrt(1 + gamma / r)
    eta = zeta / (4 * L * E * spread)
    bound = 3 * L * distance / zeta * (E / K + 1 / E) * spread + 6 * L / zeta * minimisers
    return NormFedAvg(E, gamma, eta, 4 * L * distance / zeta * eta, bound)


class FedAvg(NamedTuple):
    """What FedAvg runs with."""

    c: Annotated[float, Says("c-bar")]
    eta: Annotated[float, Says("local learning rate eta_k")]
    squared_gradient_norm: Annotated[float, Says("bound on min_k E ||grad f(w_k)||^2")]


@rule(
    0,
    "Theorem 4",
    assumes=("every client's objective has a minimiser", "messages are neither bounded nor noisy"),
    methods=("fedavg",),
    sets={"algorithm.local_lr": "eta"},
    reads={"K": "run.rounds", "E": "algorithm.local_steps", "n": "task.clients"},
)
def theorem_4(
    *,
    n: Annotated[int, Says("number of clients, at least 2")],
    r: Cohort,
    K: Rounds,
    E: Annotated[int, Says("local steps")],
    L: Smooth,
    zeta: Quasar,
    distance: Distance,
    squared_minimisers: Annotated[float, assumed("mean over clients of ||w_i* - w*||^2", zero=True)] = 0.0,
) -> FedAvg:
    """FedAvg without privacy on smooth quasar-convex objectives.

    c   = max{4, 2 + 23 (n - r) / (r (n - 1)), 64 n (r - 1) / (r (n - 1))},   eta = zeta / (c L E)
    min_k E ||grad f(w_k)||^2 <= (32 c L^2 / zeta^2) (||w_0 - w*||^2 / K + mean_i ||w_i* - w*||^2)
    """
    require(n >= 2, "n", n, "the theorem divides by n - 1: use at least 2 clients")
    require(r <= n, "r", r, f"there are only {n} clients: use at most as many")
    c = max(4.0, 2 + 23 * (n - r) / (r * (n - 1)), 64 * n * (r - 1) / (r * (n - 1)))
    return FedAvg(c, zeta / (c * L * E), 32 * c * L**2 / zeta**2 * (distance**2 / K + squared_minimisers))


class Error(NamedTuple):
    """How far a message is from the update."""

    squared_error: Annotated[float, Says("bound on E ||M(u) - u||^2 of a unit vector u")]


@rule(0, "Theorem 1, error", erratum="The theorem's privacy is false; its error holds for any m and alpha.")
def theorem_1_error(
    *,
    d: Dimension,
    s: Levels,
    m: NoiseLevels,
    alpha: Annotated[float, Says("rate of the noise, exp(-alpha |y|); 0 is the uniform law", zero=True)],
) -> Error:
    """The error of QTDL: E ||M(u) - u||^2 <= d / (4 s^2) + d V(m, alpha), V the variance of the noise over s."""
    return Error(d / (4 * s**2) + d * tdl_variance(m, alpha) / s**2)


class Sensitivities(NamedTuple):
    """Of a quantised unit vector, if the data behave."""

    Delta_1: Annotated[float, Says("in the L1 norm, in steps of 1/s")]
    Delta_inf: Annotated[float, Says("in the maximum norm")]
    failure: Annotated[float, Says("probability, over the data, that they do not hold")]


@rule(0, "Theorem 3", assumes=("every record's loss is L-smooth",), erratum=GROWTH)
def theorem_3(
    *, d: Dimension, s: Levels, n: Annotated[int, Says("records of the client")], rho: Growth
) -> Sensitivities:
    """What one record changes, with high probability over the data, where no record's gradient is far above the mean.

    Delta_1 <= 2 d + 15 e^(1/4) rho s sqrt(d) / n,   Delta_inf <= 2 + 15 e^(1/4) rho s / n
    for n >= 15 e^(1/4) rho / 2, but for probability 4 (rho^2 - 1) / n
    """
    step = _growth(rho, n)
    return Sensitivities(2 * d + step * s * math.sqrt(d) / n, 2 + step * s / n, min(1.0, 4 * (rho**2 - 1) / n))


def _growth(rho: float, n: int) -> float:
    require(rho > 1, "rho", rho, "the assumption needs rho > 1")
    step = 15 * math.exp(0.25) * rho
    require(n >= step / 2, "n", n, f"the theorem needs at least {math.ceil(step / 2)} records: use as many")
    return step


class Bits(NamedTuple):
    """What privacy adds to the length of messages."""

    bits: Annotated[int, Says("extra bits a coordinate of the paper's noise, whose privacy is false")]
    real_bits: Annotated[int, Says("extra bits a coordinate of noise with the given m; 0 where m is left out")]
    round_bits: Annotated[int, Says("C_1: the paper's extra bits of a round, r d times as many, at s = sqrt(d)")]
    cpsgd_bits: Annotated[int, Says("C_2: those of cpSGD, which hides only the sum, at s = sqrt(d), at least")]


@rule(0, "Corollary 3.1", assumes=("every record's loss is L-smooth",), erratum=NO_PRIVACY + " " + GROWTH)
def corollary_3_1(
    *,
    d: Dimension,
    s: Levels,
    n: Annotated[int, Says("records of every client")],
    r: Cohort,
    rho: Growth,
    m: Annotated[int | None, Says("m of the noise that is really added, for its own extra bits")] = None,
) -> Bits:
    """Extra bits a coordinate, and those of a round beside cpSGD's.

    bits = ceil(log2(1 + 6/s + 50 rho / n)),   real_bits = ceil(log2(2 (s + m) + 1)) - ceil(log2(2 s + 1))
    C_1  = r d ceil(log2(1 + 6 / sqrt(d) + 50 rho / n)),   C_2 = r d ceil(log2(1 + sqrt(d) / r))
    """
    _growth(rho, n)
    real = 0 if m is None else math.ceil(math.log2(2 * (s + m) + 1)) - math.ceil(math.log2(2 * s + 1))
    C_1 = r * d * math.ceil(math.log2(1 + 6 / math.sqrt(d) + 50 * rho / n))
    C_2 = r * d * math.ceil(math.log2(1 + math.sqrt(d) / r))
    return Bits(math.ceil(math.log2(1 + 6 / s + 50 * rho / n)), real, C_1, C_2)


class ClientNoise(NamedTuple):
    """The paper's noise of one client."""

    mu: Annotated[float, Says("privacy.mu of this client: 15 e^(1/4) rho / n; a plan's one mu is the largest")]
    epsilon_0: Annotated[float, Says("epsilon that a message is calibrated to")]
    alpha: Annotated[float, Says("alpha_i of its truncated discrete Laplace noise")]
    m: Annotated[int, Says("m_i of this noise")]
    bits: Annotated[int, Says("t of eq. (7)")]
    delta: Annotated[float, Says("delta that a message really has at epsilon_0, if the sensitivities hold")]


@rule(0, "Corollary 3.1, noise", assumes=("every record's loss is L-smooth",), erratum=NO_PRIVACY + " " + GROWTH)
def corollary_3_1_noise(
    *,
    d: Dimension,
    s: Levels,
    n: Annotated[int, Says("records n_i of this client")],
    rho: Growth,
    K: Rounds,
    epsilon: Annotated[float, Says("epsilon of Theorem 2")],
    delta: Annotated[float, Says("delta of Theorem 2, below 1", most=1)],
) -> ClientNoise:
    """alpha_i and m_i of a client with n_i records, as Theorem 2 sets them with Theorem 3's sensitivities.

    epsilon_0 = epsilon / (8 sqrt(2 K log(1/delta))),   alpha_i = epsilon_0 / Delta_1
    m_i = ceil(-log(1 - (e^alpha_i - 1) Delta_inf) / alpha_i),   t_i = ceil(log2(2 (s + m_i) + 1))

    Clients with fewer records get more noise.
    """
    bounds = theorem_3(d=d, s=s, n=n, rho=rho)
    epsilon_0 = qtdl_theorem_2_epsilon_0(epsilon, K, delta)
    alpha, m = theorem_1(epsilon_0, bounds.Delta_1, bounds.Delta_inf)
    true_delta = worst_delta(m, alpha, d, bounds.Delta_1, bounds.Delta_inf)
    return ClientNoise(_growth(rho, n) / n, epsilon_0, alpha, m, bits_for(s, m), true_delta)
