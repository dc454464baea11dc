"""The papers' own noise formulas, by name.

They are here so that a published number can be computed again, never as the default. Each is either valid in a stated
range and refused outside it, or false, in which case its docstring says what it honestly gives, or refused altogether.
None of them makes a guarantee: account what they return.
"""

from __future__ import annotations

import math
from typing import NoReturn

from sordino.errors import Refused, require


def classical_gaussian_noise(epsilon: float, delta: float) -> float:
    """sqrt(2 ln(1.25 / delta)) / epsilon, the noise multiplier of Dwork and Roth: valid for epsilon <= 1 only."""
    _require_budget(epsilon, delta)
    if epsilon > 1:
        raise Refused(
            f"the classical Gaussian formula is proven for epsilon <= 1, got {epsilon:g}",
            "use the exact calibration (calibrate_gaussian)",
        )
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def one_pass_classical_noise(epsilon: float, delta: float) -> float:
    """sigma / L = sqrt(8 ln(1.25 / delta)) / epsilon (paper 2, Theorem 2.3): sensitivity 2 L, epsilon <= 1 only."""
    return 2 * classical_gaussian_noise(epsilon, delta)


def minibatch_theorem_2_1(n: int, rounds: int, batch: int, epsilon: float, delta: float) -> float:
    """sigma / L = sqrt(256 R ln(2.5 R / delta) ln(2 / delta)) / (n epsilon) (paper 2, Theorem 2.1).

    True, and 5 to 26 times more noise than needed. Valid for epsilon <= ln(2 / delta) and K >= K_min.
    """
    _require_budget(epsilon, delta)
    if epsilon > math.log(2 / delta):
        raise Refused(
            f"Theorem 2.1 needs epsilon <= ln(2/delta) = {math.log(2 / delta):.6g}, got {epsilon:g}",
            "calibrate numerically (without-replacement sampling, replace-one)",
        )
    least = minibatch_theorem_2_1_least_batch(n, rounds, epsilon, delta)
    if batch < least:
        raise Refused(
            f"Theorem 2.1 needs a batch K >= {least:.6g}, got {batch}",
            f"use K = {math.ceil(least)} or calibrate numerically",
        )
    return math.sqrt(256 * rounds * math.log(2.5 * rounds / delta) * math.log(2 / delta)) / (n * epsilon)


def minibatch_theorem_2_1_least_batch(n: int, rounds: int, epsilon: float, delta: float) -> float:
    """K_min = epsilon n / (4 sqrt(2 R ln(2 / delta)))."""
    _require_budget(epsilon, delta)
    return epsilon * n / (4 * math.sqrt(2 * rounds * math.log(2 / delta)))


def minibatch_acg16() -> NoReturn:
    """Paper 2's "alternative noise of [ACG+16]", sigma^2 = 8 L^2 R ln(1/delta) / (n epsilon)^2: false, refused."""
    raise Refused(
        "the [ACG+16] form of the mini-batch noise is false (linear losses show epsilon >= 5.5 where 1 is claimed)",
        "calibrate numerically, or use Theorem 2.1",
    )


def fedavg_eq_5(q: float, rounds: int, share: float, epsilon: float, delta: float) -> float:
    """z = (r/n) sqrt(q K log(1 / delta)) / epsilon of paper 3's eq. (5), on the sum of messages of norm <= C.

    The paper writes sigma^2 = q K C^2 log(1/delta) / (n epsilon)^2, of the average over r of n clients, and leaves its
    constant q open: no q is right for all settings. With q = 1, r/n = 0.2, K = 200, (5, 1e-5) epsilon is 7.80. Account
    it as Repeated(Sampled(Gaussian(z), Poisson(r/n)), K).
    """
    _require_budget(epsilon, delta)
    require(0 < q < math.inf, "q", q, "must be positive and finite")
    return share * math.sqrt(q * rounds * math.log(1 / delta)) / epsilon


def normec_noise(messages: int, epsilon: float, delta: float) -> float:
    """sigma = sqrt(K log(1 / delta)) / epsilon, on messages of norm <= 1 (paper 4, Section 5).

    The claimed epsilon is false: at K = 300, (8, 1e-5) it gives 12.27 (zero-out) or 30.52 (replace-one) locally.
    Account it as Repeated(Gaussian(sigma / sensitivity), K).
    """
    _require_budget(epsilon, delta)
    return math.sqrt(messages * math.log(1 / delta)) / epsilon


def qtdl_theorem_2_epsilon_0(epsilon: float, rounds: int, delta: float) -> float:
    """eps_0 = epsilon / (8 sqrt(2 K log(1 / delta))), the per-round level of paper 0's Theorem 2.

    The theorem amplifies after composing, against a server that sees the sample: no valid guarantee follows from it.
    """
    _require_budget(epsilon, delta)
    return epsilon / (8 * math.sqrt(2 * rounds * math.log(1 / delta)))


def _require_budget(epsilon: float, delta: float) -> None:
    require(epsilon > 0, "epsilon", epsilon, "must be positive")
    require(0 < delta < 1, "delta", delta, "must lie in (0, 1)")
