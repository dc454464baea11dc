"""The cases of `experiments.paper2.slopes`: a theorem, a problem, a method for it, and values of n, M, d and epsilon.

Rounds and the smoothing follow from the theorem's own rule (`sordino.rules.paper2`), with the noise of the accountant:
that of clients who use all of their records in every round, sigma^2 = (2 L z / n)^2 R, in which z is the noise
multiplier of one release at (epsilon, delta). Batches of 8 records need nearly the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sordino as so
from sordino.privacy.gaussian import gaussian_noise_multiplier
from sordino.rules import paper2

DELTA = 1e-5
Setting = Mapping[str, float]  # n, M, d, epsilon


@dataclass(frozen=True)
class Chosen:
    """What a rule chose: rounds, and beta of the Moreau envelope where the loss is smoothed."""

    rounds: int
    smoothing: float | None = None


@dataclass(frozen=True)
class Case:
    """A theorem, a problem and a method for it."""

    name: str
    loss: dict[str, Any]  # options of the linear task
    method: Callable[..., Any]
    settings: dict[str, Any]
    choose: Callable[[Setting], Chosen]
    base: Setting  # where all but one quantity stay
    values: Mapping[str, tuple[float, ...]]
    theory: Mapping[str, float]
    trust: str = "local"
    clients: int | None = None  # N, where M of N answer; M if left out
    population: bool = False  # the population risk, over data sets; else the empirical, over noise


RIDGE, LOGIT = {"loss": "ridge", "l2": 0.5}, {"loss": "logit", "l2": 0.5}
ABSOLUTE, HINGE = {"loss": "absolute", "noise": 0.01}, {"loss": "hinge", "noise": 0.01}
D, L, MU, BETA, BATCH = 1.5, 1.0, 0.5, 10.0, 8
BALL = {"lipschitz": L, "radius": D, "feature_bound": 1.0, "batch_size": BATCH}
STRONGLY, STAGES = BALL | {"mu": MU}, BALL | {"mu": MU, "multi_stage": True}
SGD, AC_SA = so.noisy_mb_sgd, so.accelerated_mb_sgd

# Algorithm 2's rounds are stated up to a constant. A stage that halves the gap takes 4 sqrt(2 beta / mu) rounds, which
# is 4 sqrt(2) / ln 2 times sqrt(beta / mu) ln 2; the convex form reaches 4 beta D^2 / R^2, a fourth of D V / sqrt(R)
# with 4 times sqrt(beta D / (V / sqrt(R))).
STAGES_FACTOR, CONVEX_FACTOR = 4 * math.sqrt(2) / math.log(2), 4.0


def known(setting: Setting) -> dict[str, Any]:
    """The arguments that most rules share, with the noise of the accountant."""
    n, epsilon = int(setting["n"]), setting["epsilon"]
    rate = (2 * gaussian_noise_multiplier(epsilon, DELTA) / n) ** 2
    sizes = {"n": n, "M": int(setting["M"]), "d": int(setting["d"]), "K": BATCH}
    return sizes | {"L": L, "D": D, "epsilon": epsilon, "delta": DELTA, "noise_rate": rate}


def sgd_strong(beta: float) -> Callable[[Setting], Chosen]:
    """Theorem 2.1, strongly convex."""
    return lambda s: Chosen(paper2.theorem_2_1_strongly_convex(beta=beta, mu=MU, **known(s)).R)


def sgd_convex(s: Setting) -> Chosen:
    """Theorem 2.1, convex, on an envelope of fixed smoothness."""
    return Chosen(paper2.theorem_2_1_convex(beta=BETA, **known(s)).R, BETA)


def sgd_envelope(s: Setting) -> Chosen:
    """Theorem 2.2: beta and R."""
    steps = paper2.theorem_2_2_convex(**known(s))
    return Chosen(steps.R, steps.beta)


def accelerated_strong(s: Setting) -> Chosen:
    """Theorem D.1, strongly convex, in stages."""
    steps = paper2.theorem_D_1_strongly_convex(beta=0.25 + MU, mu=MU, **known(s))
    return Chosen(math.ceil(STAGES_FACTOR * steps.R))


def accelerated_convex(s: Setting) -> Chosen:
    """Theorem D.1, convex, on an envelope of fixed smoothness."""
    return Chosen(math.ceil(CONVEX_FACTOR * paper2.theorem_D_1_convex(beta=BETA, **known(s)).R), BETA)


def accelerated_envelope(s: Setting) -> Chosen:
    """Theorem 2.4: beta and R."""
    steps = paper2.theorem_2_4_convex(**known(s))
    return Chosen(math.ceil(CONVEX_FACTOR * steps.R), steps.beta)


def one_pass(s: Setting) -> Chosen:
    """Theorem 2.3: as many rounds as records."""
    return Chosen(int(s["n"]), BETA)


def one_pass_strong(s: Setting) -> Chosen:
    """Theorem 2.3, strongly convex."""
    return Chosen(int(s["n"]))


def shuffled(s: Setting) -> Chosen:
    """Theorem 4.1, convex, with M = N."""
    sizes = {"n": int(s["n"]), "N": int(s["M"]), "M": int(s["M"]), "d": int(s["d"])}
    steps = paper2.theorem_4_1_convex(L=L, D=D, beta=1.0, epsilon=s["epsilon"], delta=DELTA, **sizes)
    return Chosen(steps.R, 1.0)


EPSILONS, DIMENSIONS = (0.5, 1.0, 2.0), (5, 10, 20)
STRONG_BASE = {"n": 200, "M": 20, "d": 10, "epsilon": 1.0}
STRONG_VALUES = {"n": (100, 200, 400), "M": (10, 20, 40), "d": DIMENSIONS, "epsilon": EPSILONS}
BASE = {"n": 100, "M": 40, "d": 10, "epsilon": 1.0}
VALUES = {"n": (50, 100, 200), "M": (20, 40, 80), "d": DIMENSIONS, "epsilon": EPSILONS}
PASS_BASE = {"n": 500, "M": 40, "d": 10, "epsilon": 4.0}
PASS_VALUES = {"n": (250, 500, 1000), "M": (20, 40, 80), "d": DIMENSIONS, "epsilon": (2.0, 4.0, 8.0)}
STRONG = {"n": -2.0, "M": -1.0, "d": 1.0, "epsilon": -2.0}
CONVEX = {"n": -1.0, "M": -0.5, "d": 0.5, "epsilon": -1.0}
PASS_STRONG = {"n": -1.0, "M": -1.0, "d": 1.0, "epsilon": -2.0}
PASS_CONVEX = {"n": -0.5, "M": -0.5, "d": 0.5, "epsilon": -1.0}
ONCE, SPREAD = {"one_pass": True, "batch_size": 1}, {"spread": 0.5}


CASES = (
    Case("Theorem 2.1, convex: MB-SGD, smoothed absolute loss", ABSOLUTE, SGD, BALL, sgd_convex, BASE, VALUES, CONVEX),
    Case(
        "Theorem 2.4, convex: AC-SA, absolute loss", ABSOLUTE, AC_SA, BALL, accelerated_envelope, BASE, VALUES, CONVEX
    ),
    Case(
        "Theorem D.1, convex: AC-SA, smoothed absolute loss",
        ABSOLUTE,
        AC_SA,
        BALL,
        accelerated_convex,
        BASE,
        VALUES,
        CONVEX,
    ),
    Case(
        "Theorem 2.1, convex, M of 80 answer: MB-SGD, smoothed absolute loss",
        ABSOLUTE,
        SGD,
        BALL,
        sgd_convex,
        BASE,
        {"M": (10, 20, 40)},
        {"M": -0.5},
        clients=80,
    ),
    Case(
        "Theorem 2.1, strongly convex, M of 80 answer: MB-SGD, ridge",
        RIDGE,
        SGD,
        STRONGLY,
        sgd_strong(1.5),
        STRONG_BASE,
        {"M": (10, 20, 40)},
        {"M": -1.0},
        clients=80,
    ),
    Case(
        "Theorem 2.3, strongly convex: one pass, ridge, different clients",
        RIDGE | SPREAD,
        AC_SA,
        STAGES | ONCE,
        one_pass_strong,
        PASS_BASE,
        PASS_VALUES,
        PASS_STRONG,
    ),
    Case(
        "Theorem D.1, strongly convex: multi-stage AC-SA, L2 logistic",
        LOGIT,
        AC_SA,
        STAGES,
        accelerated_strong,
        STRONG_BASE,
        STRONG_VALUES,
        STRONG,
    ),
    Case(
        "Theorem 2.1, strongly convex: MB-SGD, ridge",
        RIDGE,
        SGD,
        STRONGLY,
        sgd_strong(1.5),
        STRONG_BASE,
        STRONG_VALUES,
        STRONG,
    ),
    Case("Theorem 2.2, convex: MB-SGD, absolute loss", ABSOLUTE, SGD, BALL, sgd_envelope, BASE, VALUES, CONVEX),
    Case(
        "Theorem 2.3, convex: one pass, smoothed absolute loss, different clients",
        ABSOLUTE | SPREAD,
        AC_SA,
        BALL | ONCE,
        one_pass,
        PASS_BASE,
        PASS_VALUES,
        PASS_CONVEX,
    ),
    Case(
        "Theorem 2.1, privacy for free (d / epsilon^2 < n), population risk: MB-SGD, ridge",
        RIDGE,
        SGD,
        STRONGLY,
        sgd_strong(1.5),
        STRONG_BASE | {"d": 5, "epsilon": 6.0},
        {"n": (100, 200, 400), "M": (10, 20, 40), "epsilon": (3.0, 6.0, 12.0)},
        {"n": -1.0, "M": -1.0, "epsilon": 0.0},
        population=True,
    ),
    Case(
        "Theorem 2.1, convex, population risk: MB-SGD, smoothed absolute loss",
        ABSOLUTE,
        SGD,
        BALL,
        sgd_convex,
        BASE,
        {"n": (50, 100, 200), "M": (20, 40, 80)},
        CONVEX,
        population=True,
    ),
    Case(
        "Theorem 2.1, strongly convex, population risk: MB-SGD, ridge",
        RIDGE,
        SGD,
        STRONGLY,
        sgd_strong(1.5),
        STRONG_BASE | {"epsilon": 0.25},
        {"n": (100, 200, 400), "M": (10, 20, 40)},
        STRONG,
        population=True,
    ),
    Case(
        "Theorem 4.1, convex, shuffled: MB-SGD, smoothed absolute loss",
        ABSOLUTE,
        SGD,
        BALL | {"batch_size": 1},
        shuffled,
        {"n": 1, "M": 900, "d": 10, "epsilon": 1.0},
        {"M": (450, 900, 1800), "epsilon": (0.5, 1.0, 2.0)},
        {"M": -1.0, "d": 0.5, "epsilon": -1.0},
        trust="shuffle",
    ),
    Case("Theorem 2.2, convex: MB-SGD, hinge loss", HINGE, SGD, BALL, sgd_envelope, BASE, VALUES, CONVEX),
)

# Why a slope is not the theorem's, by the beginning of the case's name and the quantity.
WHY: dict[tuple[str, str], str] = {}
