"""Every rule's numbers by hand: the arithmetic of its theorem for one set of arguments, and what it must refuse.

`test_rules.py` compares them, and demands a row for every registered rule.
"""

from __future__ import annotations

import math
from math import ceil, exp, log, log2, sqrt
from typing import NamedTuple

Arguments = dict[str, object]


class Row(NamedTuple):
    """Arguments, the theorem's numbers for them, and changes of the arguments with the field that is then refused."""

    arguments: Arguments
    expected: dict[str, float]
    refused: list[tuple[Arguments, str]]


# --- Paper 0 ---------------------------------------------------------------------------------------------------------

GAMMA_0 = 20 * (1 + 4 * 9) / (4 * 16)  # d (1 + 4 m^2) / (4 s^2), d = 20, m = 3, s = 4: 11.5625
SPREAD_0 = sqrt(1 + 11.5625 / 5)
C_4 = max(4, 2 + 23 * (10 - 5) / (5 * 9), 64 * 10 * 4 / (5 * 9))  # n = 10, r = 5: 56.89
GROWTH = 15 * exp(0.25) * 2  # rho = 2
EPSILON_0 = 5 / (8 * sqrt(2 * 50 * log(1e3)))
DELTA_1 = 200 + GROWTH * 8 * 10 / 500
TDL_3 = [exp(-EPSILON_0 / DELTA_1 * abs(y)) for y in range(-3, 4)]
TAIL = sum(TDL_3[-2:]) / sum(TDL_3)  # P(Y > 1): what a shift by 2 moves out of the support
TDL = {-1: exp(-0.5), 0: 1.0, 1: exp(-0.5)}  # m = 1, alpha = 0.5: weights of the noise

PAPER_0 = {
    "paper0-theorem-2": Row(
        {"d": 20, "s": 4, "m": 3, "r": 5, "K": 100, "L": 2.0, "zeta": 0.5, "distance": 3.0, "minimisers": 0.25},
        {
            "E": 10,
            "gamma": GAMMA_0,
            "eta": 0.5 / (4 * 2 * 10 * SPREAD_0),
            "beta": 4 * 2 * 3 / 0.5 * 0.5 / (4 * 2 * 10 * SPREAD_0),
            "gradient_norm": 6 * 2 * 3 / (0.5 * 10) * SPREAD_0 + 6 * 2 / 0.5 * 0.25,
        },
        [({"zeta": 1.5}, "zeta"), ({"L": -1.0}, "L"), ({"minimisers": math.nan}, "minimisers")],
    ),
    "paper0-theorem-4": Row(
        {"n": 10, "r": 5, "K": 50, "E": 4, "L": 2.0, "zeta": 0.5, "distance": 3.0, "squared_minimisers": 0.1},
        {
            "c": C_4,
            "eta": 0.5 / (C_4 * 2 * 4),
            "squared_gradient_norm": 32 * C_4 * 4 / 0.25 * (9 / 50 + 0.1),
        },
        [({"n": 1, "r": 1}, "n"), ({"r": 11}, "r")],
    ),
    "paper0-theorem-1-error": Row(
        {"d": 20, "s": 4, "m": 1, "alpha": 0.5},
        {"squared_error": 20 / 64 + 20 * (TDL[-1] + TDL[1]) / sum(TDL.values()) / 16},
        [({"m": 0}, "m"), ({"alpha": -0.1}, "alpha")],
    ),
    "paper0-theorem-3": Row(
        {"d": 100, "s": 8, "n": 500, "rho": 2.0},
        {
            "Delta_1": 200 + GROWTH * 8 * 10 / 500,
            "Delta_inf": 2 + GROWTH * 8 / 500,
            "failure": 4 * (4 - 1) / 500,  # the square that eq. (103) drops
        },
        [({"rho": 1.0}, "rho"), ({"n": 19}, "n")],  # 15 e^(1/4) = 19.26
    ),
    "paper0-corollary-3.1": Row(
        {"d": 10_000, "s": 100, "n": 1000, "r": 25, "rho": 2.0, "m": 150},
        {
            "bits": ceil(log2(1 + 0.06 + 0.1)),
            "real_bits": ceil(log2(2 * 250 + 1)) - ceil(log2(201)),  # 9 - 8
            "round_bits": 25 * 10_000 * ceil(log2(1 + 0.06 + 0.1)),
            "cpsgd_bits": 25 * 10_000 * ceil(log2(1 + 100 / 25)),
        },
        [({"rho": 0.9}, "rho"), ({"n": 19}, "n")],
    ),
    "paper0-corollary-3.1-noise": Row(
        {"d": 100, "s": 8, "n": 500, "rho": 2.0, "K": 50, "epsilon": 5.0, "delta": 1e-3},
        {
            "mu": GROWTH / 500,
            "epsilon_0": EPSILON_0,
            "alpha": EPSILON_0 / DELTA_1,
            "m": 3,  # -log(1 - (e^alpha - 1) 2.61631) / alpha = 2.6167
            "bits": 5,  # 2 (8 + 3) + 1 = 23 values
            "delta": 1 - (1 - TAIL) ** 100,  # every coordinate moves by 2, the whole part of 2.616: near 1
        },
        [({"n": 19}, "n"), ({"delta": 1.0}, "delta"), ({"epsilon": 5e4}, "epsilon")],
    ),
}

# --- Paper 1 ---------------------------------------------------------------------------------------------------------

# L = 2, tau = 10, G = 3: eta_l = 0.5 / 480, eta_l tau = 1 / 96; T = 50, gap = 4, eta_g = 2, sigma_g^2 = 0.5
FEDEXP = {"d": 400, "M": 100, "T": 50, "tau": 10, "L": 2.0, "G": 3.0, "gap": 4.0, "sigma_g2": 0.5, "q": 2.0}
FEDEXP = FEDEXP | {"eta_g": 2.0, "share": 0.5}
MOVE = 1 / 96
COMMON_1 = {
    "eta_l": 0.5 / (24 * 2 * 10),
    "C": 3 / 96,
    "T_1": 4 / (50 * 2 * MOVE),
    "T_2": (2 * MOVE) ** 2 * 0.5,
    "T_3": 2 * MOVE * 0.5,
}
REFUSED_1: list[tuple[Arguments, str]] = [
    ({"share": 1.0}, "share"),  # eta_l = 1 / (24 L tau) is excluded
    ({"q": 0.5}, "q"),
    ({"q": 11.0}, "q"),  # above sqrt(M)
    ({"eta_g": 0.9}, "eta_g"),
]

PAPER_1 = {
    "paper1-theorem-4.5": Row(
        FEDEXP | {"sigma": 0.1},
        COMMON_1 | {"T_4": 2 * 0.01 * 4 / MOVE * (4 + 2), "step_noise_std": 0},
        REFUSED_1,
    ),
    "paper1-theorem-4.6": Row(
        FEDEXP | {"sigma": 0.1},
        COMMON_1 | {"T_4": 2 * 0.01 * 4 / MOVE * 4, "step_noise_std": 400 * 0.01 / 100},
        REFUSED_1,
    ),
    "paper1-theorem-D.2": Row(
        FEDEXP,
        COMMON_1 | {"T_4": 2 * (3 / 96) ** 2 * 4 / MOVE * (4 + 0.1), "step_noise_std": 0},
        REFUSED_1,
    ),
}

# --- Paper 3 ---------------------------------------------------------------------------------------------------------

# rho = 0.1, L = 2, E = 4, C-hat = 3, ||w_0 - w*|| = 1.5, so gamma = 3; max Delta* = 0.25: 4 sqrt(0.5) = 2.83 <= 3
CONVEX_3 = {"rho": 0.1, "L": 2.0, "E": 4, "C_hat": 3.0, "distance": 1.5, "largest_gap": 0.25}
A_3 = 3 * (2 * 2.25 / 3 + 3 / 2) * 0.1
REFUSED_3: list[tuple[Arguments, str]] = [
    ({"C_hat": 2.8}, "C_hat"),  # below 2.83
    ({"alpha": 0.9}, "alpha"),
    ({"E": 6}, "E"),  # above 1 / (2 rho)
    ({"rho": 1.0}, "rho"),
]
LONGER: list[tuple[Arguments, str]] = [({"C_hat": 2.8}, "C_hat"), ({"K": 4}, "K")]  # 2 gamma / (C-hat E rho) = 5

PAPER_3 = {
    "paper3-definition-5": Row(
        {"q": 2.0, "d": 100, "n": 1000, "epsilon": 2.0, "delta": 1e-5},
        {"rho": sqrt(200 * log(1e5)) / 2000},
        [({"n": 10}, "epsilon"), ({"delta": 1.0}, "delta")],
    ),
    "paper3-definition-5-noise": Row(
        {"noise_multiplier": 2.0, "r": 100, "d": 400, "K": 100},
        {"rho": 0.02 * 2},
        [({"noise_multiplier": 50.0}, "noise_multiplier"), ({"K": 0}, "K")],
    ),
    "paper3-theorem-2": Row(
        CONVEX_3 | {"mean_gap": 0.2, "alpha": 1.0},
        {
            "eta": 0.1 / 4,
            "K": ceil(2 * 3 / (3 * 4) / 0.01),  # 50
            "C": 12,
            "initialization": A_3,
            "heterogeneity": 1.5 * 4 * 0.2 * 0.1,
        },
        REFUSED_3,
    ),
    "paper3-theorem-4": Row(
        CONVEX_3 | {"alpha": 1.0},
        {"eta": 0.1 / 4, "K": 50, "C": 12, "initialization": A_3, "heterogeneity": 9 / 4 * 4 * 0.1},
        REFUSED_3,
    ),
    "paper3-theorem-5": Row(
        CONVEX_3 | {"mean_gap": 0.2, "K": 200},
        {
            "eta": 3 / (3 * 2 * 4 * 200 * 0.1),
            "K": 200,
            "C": 12,
            "initialization": A_3,
            "heterogeneity": 0.1 * 1.1 * 0.2,  # a = 2 * 3 / (3 * 200 * 0.1)
        },
        LONGER,
    ),
    "paper3-theorem-6": Row(
        CONVEX_3 | {"K": 200},
        {
            "eta": 3 / (3 * 2 * 4 * 200 * 0.1),
            "K": 200,
            "C": 12,
            "initialization": A_3,
            "heterogeneity": 3 * 3 / (2 * 200 * 0.1),
        },
        LONGER,
    ),
    "paper3-theorem-3": Row(
        {"rho": 0.1, "E": 4, "C_hat": 3.0, "distance": 1.5, "mean_gap": 0.2},
        {"risk": (3 * 1.5 + 4 * 0.2) * 0.1},
        [({"E": 6}, "E")],
    ),
    "paper3-proposition-1": Row(
        {"rho": 0.1, "L": 2.0, "G": 3.0, "lambda_": 1.0, "distance": 1.5, "mean_gap": 0.02, "largest_gap": 0.1, "E": 3},
        {
            "C_hat": 3 * (1 - 11 * 2 * 0.1 / 64 / 4),
            "best_steps": 5,  # 0.02 lies below the threshold
            "threshold": 11 / 48 * 3 * 1.5 * 0.1 / 4,  # 0.0258
            "risk": (2 * 3 * 1.5 + 6 * 3 / 5 * (0.02 - 11 / 48 * 3 * 1.5 * 0.1 / 4)) * 0.1,
        },
        [({"lambda_": 2.5}, "lambda_"), ({"E": 6}, "E"), ({"largest_gap": 0.4}, "C_hat")],
    ),
}

# --- Paper 4 ---------------------------------------------------------------------------------------------------------

# alpha = 1, beta = 0.5, R = 3, L_max = 2, gap = 4, K + 1 = 64
EC = {"alpha": 1.0, "beta": 0.5, "R": 3.0, "L_max": 2.0, "gap": 4.0, "rounds": 64}
GAMMA_4 = 0.5 * 3 / (4 * 2)
BOUND_4 = 4 / (GAMMA_4 * 64) + 6 + GAMMA_4
# At alpha = 0.01, R = 0.1 and beta = 0.1 < alpha + R: (0.316 - 0.1)^2 = 0.0468 above 0.1 (1 - 0.1 / 0.11) = 0.0091.
THROWN: Arguments = {"alpha": 0.01, "beta": 0.1, "R": 0.1}
REFUSED_4: list[tuple[Arguments, str]] = [({"beta": 4.0}, "beta"), (THROWN, "beta"), ({"rounds": 0}, "rounds")]
U = sqrt(2 * 4 * 0.05) * 2  # corollary 2: sigma = 4, K + 1 = 64, n = 100, d = 16: A = 4 / 80
BETA_0 = sqrt(2 * 4 / (0.05 * 4))
SLOW = 0.5 * 3 / (2 * (2 + 3))  # C.1.1: beta_0 = 0.5, D = 3, alpha = 2

PAPER_4 = {
    "paper4-theorem-1": Row(EC, {"gamma": GAMMA_4, "gradient_norm": BOUND_4}, REFUSED_4),
    "paper4-theorem-2": Row(
        EC | {"n": 25, "d": 100, "noise_std": 0.1},
        {"gamma": GAMMA_4, "gradient_norm": BOUND_4 + 2 * 0.5 * 8 * 10 / 5 * 0.1},  # with d, which Lemma 5 drops
        REFUSED_4,
    ),
    "paper4-theorem-3": Row(
        EC,
        {
            "gamma": 0.5 * 3 / (4 * (3 + 4) * 2),
            "gradient_norm": sqrt(2 * 4 / (0.5 * 3 / (4 * 7 * 2) * 64) + 9),
        },
        REFUSED_4,
    ),
    "paper4-theorem-4": Row(
        EC | {"sigma": 5.0},
        {
            "gamma": 0.5 * 3 / (2 * 4 * 2),
            "b": ceil(4 * 5 * 4 / (0.5 * 3)),  # 54, with the beta that the theorem drops
            "gradient_norm": 4 / (0.5 * 3 / 16 * 64) + 2 * (5 / 54 + 3) + 0.5 * 3 / 16,
        },
        REFUSED_4,
    ),
    "paper4-corollary-1": Row(
        {"alpha": 1.0, "beta": 0.5, "D": 3.0, "L_max": 2.0, "gap": 4.0, "rounds": 64},
        {
            "gamma": 0.5 * 3 / (2 * 4) / 8,
            "beta": 0.5,
            "R": 3 / 8,
            "gradient_norm": (2 * 4 / (0.5 * 3) * 4 + 6 + 0.5 * 3 / (2 * 4)) / 8,
        },
        [({"beta": 1.0}, "beta")],
    ),
    "paper4-section-C.1.1": Row(
        {"alpha": 2.0, "beta_0": 0.5, "D": 3.0, "L_max": 2.0, "gap": 4.0, "rounds": 64}
        | {"n": 25, "d": 100, "noise_std": 0.1},
        {
            "gamma": SLOW / 32,
            "beta": 0.5 / 16,
            "R": 3 / 2,
            "gradient_norm": (4 / SLOW + 6 + 2 * 0.5 * 0.1 * 2) / 2 + SLOW / 32,
        },
        [({"alpha": 1.0}, "alpha"), ({"beta_0": 1.1}, "beta_0")],
    ),
    "paper4-corollary-2": Row(
        {"L_max": 2.0, "gap": 4.0, "rounds": 64, "n": 100, "d": 16, "noise_std": 4.0},
        {
            "gamma": BETA_0 / 64 / 4,
            "beta": BETA_0 / 64,
            "alpha": U,
            "gradient_norm": 2 * 8 / BETA_0 + 2 * U + 2 * BETA_0 * 0.05 * 4 + BETA_0 / 64 / 4,
        },
        [({"rounds": 1, "noise_std": 0.001}, "beta")],
    ),
    "paper4-appendix-B.3": Row(
        {"L_max": 2.0, "gap": 4.0, "rounds": 64, "C_1": 3.0, "L": 0.5},
        {"tau": 2 / 1 * 2, "gradient_norm": (2 * 4 / 4 + sqrt((1 + 3 / 4) * 9)) / 8},
        [({"C_1": 0.0}, "C_1"), ({"gap": math.inf}, "gap")],
    ),
}
