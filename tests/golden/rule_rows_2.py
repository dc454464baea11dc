"""The rows of paper 2, for `rule_rows.py`: the arithmetic of its theorems.

n = 400 records, M = 16 clients, d = 9, L = 2, D = 1.5, beta = 3; noise_rate = 1/900, so that d Xi~ = 0.01 and
s = min{sqrt(400), 1 / sqrt(0.01)} = 10; K = 10.
"""

from __future__ import annotations

import math
from math import ceil, exp, log, sqrt

from tests.golden.rule_rows import Arguments, Row

EACH: Arguments = {"n": 400, "M": 16, "d": 9, "L": 2.0, "D": 1.5, "epsilon": 1.0, "delta": 1e-5, "K": 10}
EACH = EACH | {"noise_rate": 1 / 900}
SMOOTH: Arguments = EACH | {"beta": 3.0}


def sigma(R: int) -> float:
    """The paper's, with n epsilon = 400 and delta = 1e-5."""
    return 2 * sqrt(256 * R * log(2.5e5 * R) * log(2e5)) / 400


def strong(R: int, beta: float) -> dict[str, float]:
    """eta of the strongly convex cases, mu = 0.5: 4 L^2 / (M K) = 0.1, V^2 = 4 R 0.01 / 16."""
    most = log((0.5 * 1.5 * R) ** 2 / (2 * (0.1 + 0.0025 * R))) / (0.5 * R)
    return {"eta": min(1 / (4 * beta), most), "risk": 4 / 0.5 * (1 / 6400 + 0.01 / 16), "noise_std": sigma(R)}


def anchor(R: int) -> float:
    """V / (2 D sqrt(R)): phi^2 / (M K) = 1/160, Upsilon^2 / M = 0.5 / 16, d sigma^2 / M = 0.0025 R."""
    return sqrt((1 / 160 + 0.5 / 16 + 0.0025 * R) / R) / 3


BEYOND: list[tuple[Arguments, str]] = [
    ({"epsilon": 13.0}, "epsilon"),  # above ln(2 / delta) = 12.2
    ({"M": 16, "N": 15}, "M"),
    ({"K": 401}, "K"),
    ({"n": [400, 400], "N": None}, "M"),  # two clients cannot be 16
    ({"delta": 1.0}, "delta"),
]
FEW: list[tuple[Arguments, str]] = [({"R": 5}, "R")]
STIFF: list[tuple[Arguments, str]] = [({"mu": 3.5}, "mu")]  # above beta
TIGHT: tuple[Arguments, str] = ({"noise_rate": None, "K": 1, "R": 500, "epsilon": 12.0, "d": 1000, "beta": 0.001}, "K")

R_STRONG = ceil(48 * log(3 * 2.25 * 0.5 * 16 / 0.04))  # 346
R_ENVELOPE = ceil(8 * 16 * 100 * log(800 * 2.25 * 0.5 * 16 / 0.04))
DRIFT: Arguments = {"N": 31, "phi": 1.0, "upsilon": 1.0}  # Upsilon^2 = 1 - 15/30; (0.1 + 0.5) / 0.04 = 15 rounds
PASS: Arguments = {"n": 100, "M": 25, "d": 16, "L": 2.0, "D": 1.5, "beta": 3.0, "epsilon": 1.0, "delta": 1e-5}
PASSED = {"R": 100, "noise_multiplier": 3.730631635, "noise_std": 4 * 3.730631635, "paper_noise_std": 2 * 9.689610525}
SHUFFLE: Arguments = {"n": 2, "N": 1000, "M": 800, "d": 16, "L": 2.0, "D": 1.5, "beta": 3.0, "epsilon": 0.5}
SHUFFLE = SHUFFLE | {"delta": 1e-4}  # epsilon n N = 1000
LOGS = log(1250 * 640_000 / 0.1) * log(1.25e7) * log(1e4)
UNSHUFFLED: list[tuple[Arguments, str]] = [
    ({"K": 2}, "K"),
    ({"M": 1001}, "M"),
    ({"M": 300}, "M"),  # below 16 ln(18 R M^2 / (N delta))
    ({"epsilon": 10.0}, "epsilon"),  # above ln(2 / delta) = 9.9
]
LOCAL: Arguments = {"n": 100, "N": 25, "d": 16, "L": 2.0, "D": 1.5, "epsilon": 0.5}
NOT_LOCAL: list[tuple[Arguments, str]] = [
    ({"epsilon": 5.1}, "epsilon"),  # above sqrt(N)
    ({"epsilon_r": 0.011}, "epsilon_r"),  # above 1/n
    ({"delta_r": 1e-6}, "N"),  # 16 ln(2 / (1e-6 * 100)) = 158 clients
]
LARGE_MU: tuple[Arguments, str] = ({"mu": 1.4}, "mu")  # above L / D
TRUSTED: Arguments = {name: value for name, value in LOCAL.items() if name != "epsilon"} | {"epsilon": 0.04}

PAPER_2 = {
    "paper2-theorem-2.1-convex": Row(
        SMOOTH,
        {"R": 90, "K": 10, "eta": 1 / 12, "beta": 3, "noise_std": sigma(90), "risk": 272 * 3 / 40},
        [*BEYOND, *FEW, TIGHT],
    ),
    "paper2-theorem-2.1-strongly-convex": Row(
        SMOOTH | {"mu": 0.5}, {"R": R_STRONG, "K": 10, "beta": 3} | strong(R_STRONG, 3), [*BEYOND, *FEW, *STIFF]
    ),
    "paper2-theorem-2.2-convex": Row(
        EACH,
        {"R": 1600, "K": 10, "eta": 1.5 / 320, "beta": 80 / 1.5, "noise_std": sigma(1600), "risk": 545 * 3 / 40},
        [*BEYOND, *FEW],
    ),
    "paper2-theorem-2.2-strongly-convex": Row(
        EACH | {"mu": 0.5}, {"R": R_ENVELOPE, "K": 10, "beta": 800} | strong(R_ENVELOPE, 800), [*BEYOND, *FEW]
    ),
    "paper2-lemma-D.2-convex": Row(
        {"n": 50, "M": 4.0, "L": 2.0, "beta": 3.0, "R": 30, "eta": 0.1},
        {"alpha": 2 * 4 * 30 * 0.1 / 200},
        [({"eta": 0.34}, "eta")],
    ),
    "paper2-lemma-D.2-strongly-convex": Row(
        {"n": 50, "M": 4.0, "L": 2.0, "beta": 3.0, "mu": 0.5, "eta": 0.1},
        {"alpha": 16 / (0.5 * 199)},
        [({"eta": 0.34}, "eta"), ({"n": 1}, "n")],
    ),
    "paper2-theorem-D.1-convex": Row(
        SMOOTH | DRIFT,  # sqrt(3 * 1.5 / 2 * 4 / 0.1) = 9.5 rounds for the smooth part
        {"R": 15, "K": 10, "anchor": anchor(15), "beta": 3, "noise_std": sigma(15), "risk": 3 * 0.1 / 4},
        [*BEYOND, *FEW],
    ),
    "paper2-theorem-D.1-strongly-convex": Row(
        SMOOTH | DRIFT | {"mu": 0.5, "gap": 3.0},
        {"R": ceil(sqrt(6) * log(3 * 0.5 * 16 / 0.04)), "K": 10, "anchor": 0, "beta": 3}
        | {"noise_std": sigma(16), "risk": 4 * 0.01 / 8},
        [*BEYOND, *FEW, *STIFF],
    ),
    "paper2-theorem-2.4-convex": Row(
        EACH | DRIFT,
        {"R": 40, "K": 10, "anchor": anchor(40), "beta": 2 / 1.5 * 4 / 0.1, "noise_std": sigma(40), "risk": 0.3 / 4},
        [*BEYOND, *FEW],
    ),
    "paper2-theorem-2.4-strongly-convex": Row(
        EACH | DRIFT | {"mu": 0.5, "gap": 3.0},
        {"R": ceil(40 * log(600)), "K": 10, "anchor": 0, "beta": 0.5 * 16 / 0.01}
        | {"noise_std": sigma(ceil(40 * log(600))), "risk": 0.04 / 8},
        [*BEYOND, *FEW],
    ),
    "paper2-theorem-2.3-convex": Row(
        PASS,
        PASSED | {"risk": 3 * 2.25 / 10_000 + 3 * 4 * sqrt(log(1e5)) / 50},
        [({"delta": 1.5}, "delta"), ({"n": 0}, "n")],
    ),
    "paper2-theorem-2.3-strongly-convex": Row(
        PASS | {"mu": 0.03},
        PASSED | {"risk": 3 * exp(-10) + 4 * 16 * log(1e5) / (0.03 * 2500)},
        STIFF,
    ),
    "paper2-theorem-3.1-convex": Row(LOCAL, {"risk": 3 * (1 / 50 + 4 / (0.5 * 100 * 5))}, NOT_LOCAL),
    "paper2-theorem-3.1-strongly-convex": Row(
        LOCAL | {"mu": 0.5}, {"risk": 4 / (0.5 * 2500) + 3 * 16 / (0.25 * 10_000 * 25)}, [*NOT_LOCAL, LARGE_MU]
    ),
    "paper2-theorem-E.4-convex": Row(LOCAL, {"risk": 3 * 4 / 250}, NOT_LOCAL),
    "paper2-theorem-E.4-strongly-convex": Row(LOCAL | {"mu": 0.5}, {"risk": 3 * 16 / 62_500}, [*NOT_LOCAL, LARGE_MU]),
    "paper2-theorem-E.3-convex": Row(TRUSTED, {"risk": 3 * (1 / 50 + 4 / 100)}, [({"epsilon": 0.0}, "epsilon")]),
    "paper2-theorem-E.3-strongly-convex": Row(TRUSTED | {"mu": 0.5}, {"risk": 4 / 1250 + 3 * 16 / 10_000}, [LARGE_MU]),
    "paper2-theorem-E.5-convex": Row(TRUSTED, {"risk": 3 * 4 / 100}, [({"epsilon": math.inf}, "epsilon")]),
    "paper2-theorem-E.5-strongly-convex": Row(TRUSTED | {"mu": 0.5}, {"risk": 3 * 16 / 10_000}, [LARGE_MU]),
    "paper2-theorem-4.1-convex": Row(
        SHUFFLE,
        {
            "R": 1250,
            "eta": 1.5 * sqrt(800) / 2500 * min(sqrt(2), 1000 / sqrt(16 * 800 * LOGS)),
            "risk": 3 * (1 / 40 + sqrt(16 * log(1e4)) / 1000),
        },
        UNSHUFFLED,
    ),
    "paper2-theorem-4.1-strongly-convex": Row(
        SHUFFLE | {"mu": 0.5},  # 48 ln(52734) = 522 rounds for the smooth part
        {"R": 1250, "eta": 0, "risk": 4 / 0.5 * (1 / 1600 + 16 * log(1e4) / 1e6)},
        [*UNSHUFFLED, *STIFF],
    ),
}
