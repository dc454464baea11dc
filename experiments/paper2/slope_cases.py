"""The cases of `experiments.paper2.slopes`: a theorem, a problem, a method for it, and values of n, M, d and epsilon.

Rounds and the smoothing follow from the theorem's own rule (`sordino.rules.paper2`). K = n: all records of a client
count in every round, which the theorems allow. The noise is that of the accountant, sigma^2 = (2 L z / n)^2 R with the
noise multiplier z of one release at (epsilon, delta), or the theorem's printed one where a case says so. Behind a
shuffler K = 1 and the noise is that of the amplification; which record a client draws is left out, since its variance
is less than 1e-4 of the noise's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sordino as so
from experiments.paper2.coordinates import Loss
from sordino.privacy.gaussian import gaussian_noise_multiplier
from sordino.rules import paper2
from sordino.rules.paper2.ensemble import Answering

DELTA, L = 1e-5, 1.0
BETA = 200.0  # of the absolute loss that a theorem for smooth losses speaks of
MU = 0.5
SPREAD = 0.3  # one pass: of every two clients one sees + more often by this much, and one less often
Setting = Mapping[str, float]  # n, M, d, epsilon


@dataclass(frozen=True)
class Chosen:
    """What a rule chose: rounds, and beta of the loss or of its envelope; None where the loss is smooth by itself."""

    rounds: int
    beta: float | None = None


@dataclass(frozen=True)
class Case:
    """A theorem, a problem and a method for it."""

    name: str
    loss: Loss
    choose: Callable[[Loss, Setting], Chosen]
    base: Setting  # where all but one quantity stay
    values: Mapping[str, tuple[float, ...]]
    theory: Mapping[str, float]
    method: Callable[..., Any] = so.noisy_mb_sgd
    options: Mapping[str, Any] = field(default_factory=dict)
    risks: tuple[str, ...] = ("empirical",)
    draws: str = "all"  # records of a round: all, next (one pass), some (all of some clients)
    trust: str = "local"
    clients: int | None = None  # N, where M of N answer; M if left out
    calibration: str = "numeric"
    smooth: bool = False  # whether risk is that of the envelope, as the theorem speaks of a smooth loss
    q: float | None = None  # of the one problem, where risk does not depend on it; else the worst of a grid

    def key(self) -> str:
        """A short name for files and commands."""
        kept = "".join(c if c.isalnum() or c == "." else " " for c in self.name)
        return "-".join(kept.split())


ABSOLUTE, HINGE, RIDGE, LOGIT = (
    Loss("absolute", 1.5),
    Loss("hinge", 1.0),
    Loss("ridge", 0.5, MU),
    Loss("logit", 1.5, MU),
)
HINGE_L2 = Loss("hinge", 1.0, MU)

# Algorithm 2's rounds are stated up to a constant. A stage that halves the gap takes 4 sqrt(2 beta / mu) rounds, which
# is 4 sqrt(2) / ln 2 = 8.2 times sqrt(beta / mu) ln 2; ten times as many let the last stages average their noise. The
# convex form reaches 4 beta D^2 / R^2, a fourth of D V / sqrt(R) with 4 times sqrt(beta D / (V / sqrt(R))).
STAGES_FACTOR, CONVEX_FACTOR = 40 * math.sqrt(2) / math.log(2), 4.0


def noise_multiplier(epsilon: float) -> float:
    """z of one release."""
    return gaussian_noise_multiplier(epsilon, DELTA)


def known(loss: Loss, setting: Setting, *, printed: bool = False) -> dict[str, Any]:
    """The arguments that most rules share, with the noise of the accountant, or the printed one."""
    n, epsilon = int(setting["n"]), setting["epsilon"]
    sizes = {"n": n, "M": int(setting["M"]), "d": int(setting["d"]), "K": n}
    rate = {} if printed else {"noise_rate": (2 * noise_multiplier(epsilon) / n) ** 2}
    return sizes | {"L": L, "D": loss.D, "epsilon": epsilon, "delta": DELTA} | rate


def beta_of(loss: Loss) -> float:
    """Smoothness of a record's loss with the regulariser."""
    return (loss.curvature() or 0.0) + loss.mu


def sgd_convex(loss: Loss, s: Setting) -> Chosen:
    """Theorem 2.1, convex, of a loss of fixed smoothness."""
    return Chosen(paper2.theorem_2_1_convex(beta=BETA, **known(loss, s)).R, BETA)


def sgd_convex_printed(loss: Loss, s: Setting) -> Chosen:
    """The same with the theorem's own noise."""
    return Chosen(paper2.theorem_2_1_convex(beta=BETA, **known(loss, s, printed=True)).R, BETA)


def sgd_strong(loss: Loss, s: Setting) -> Chosen:
    """Theorem 2.1, strongly convex."""
    return Chosen(paper2.theorem_2_1_strongly_convex(beta=beta_of(loss), mu=loss.mu, **known(loss, s)).R)


def sgd_envelope(loss: Loss, s: Setting) -> Chosen:
    """Theorem 2.2: beta and R."""
    steps = paper2.theorem_2_2_convex(**known(loss, s))
    return Chosen(steps.R, steps.beta)


def sgd_envelope_strong(loss: Loss, s: Setting) -> Chosen:
    """Theorem 2.2, strongly convex: beta and R."""
    steps = paper2.theorem_2_2_strongly_convex(mu=loss.mu, **known(loss, s))
    return Chosen(steps.R, steps.beta)


def accelerated_convex(loss: Loss, s: Setting) -> Chosen:
    """Theorem D.1, convex, of a loss of fixed smoothness."""
    return Chosen(math.ceil(CONVEX_FACTOR * paper2.theorem_D_1_convex(beta=BETA, **known(loss, s)).R), BETA)


def accelerated_strong(loss: Loss, s: Setting) -> Chosen:
    """Theorem D.1, strongly convex, in stages."""
    steps = paper2.theorem_D_1_strongly_convex(beta=beta_of(loss), mu=loss.mu, **known(loss, s))
    return Chosen(math.ceil(STAGES_FACTOR * steps.R))


def accelerated_envelope(loss: Loss, s: Setting) -> Chosen:
    """Theorem 2.4: beta and R."""
    steps = paper2.theorem_2_4_convex(**known(loss, s))
    return Chosen(math.ceil(CONVEX_FACTOR * steps.R), steps.beta)


def one_pass(loss: Loss, s: Setting) -> Chosen:
    """Theorem 2.3: as many rounds as records."""
    return Chosen(int(s["n"]), BETA if loss.name == "absolute" else None)


def shuffled(loss: Loss, s: Setting) -> Chosen:
    """Theorem 4.1, convex, with M = N."""
    sizes = {"n": int(s["n"]), "N": int(s["M"]), "M": int(s["M"]), "d": int(s["d"])}
    steps = paper2.theorem_4_1_convex(L=L, D=loss.D, beta=BETA, epsilon=s["epsilon"], delta=DELTA, **sizes)
    return Chosen(steps.R, BETA)


def shuffled_strong(loss: Loss, s: Setting) -> Chosen:
    """Theorem 4.1, strongly convex, with M = N."""
    sizes = {"n": int(s["n"]), "N": int(s["M"]), "M": int(s["M"]), "d": int(s["d"])}
    steps = paper2.theorem_4_1_strongly_convex(
        L=L, D=loss.D, beta=beta_of(loss), mu=loss.mu, epsilon=s["epsilon"], delta=DELTA, **sizes
    )
    return Chosen(steps.R)


def answering(case: Case, M: int) -> tuple[str, Answering]:
    """The cohort, and the law of M_r: uniform from half of M to one and a half, where not all answer."""
    if case.clients is None:
        return "full", Answering((M,))
    low, high = M // 2, M + M // 2
    return f"unreliable:{low}-{high}", Answering(tuple(range(low, high + 1)))


BASE = {"n": 400, "M": 1600, "d": 20, "epsilon": 0.25}
VALUES = {
    "n": (100, 200, 400, 800),
    "M": (400, 800, 1600, 3200),
    "d": (5, 10, 20, 40),
    "epsilon": (0.0625, 0.125, 0.25, 0.5),
}
MORE = {"n": 1000, "M": 100, "d": 20, "epsilon": 2.0}
MORE_VALUES = {
    "n": (250, 500, 1000, 2000, 4000),
    "M": (25, 50, 100, 200, 400),
    "d": (20, 40, 80, 160),
    "epsilon": (0.5, 1.0, 2.0, 4.0),
}
PASS = {"n": 1000, "M": 400, "d": 10, "epsilon": 2.0}
PASS_VALUES = {
    "n": (250, 500, 1000, 2000),
    "M": (100, 200, 400, 800),
    "d": (5, 10, 20, 40),
    "epsilon": (0.5, 1.0, 2.0, 4.0),
}
PASS_MORE = {"n": 4000, "M": 1600, "d": 10, "epsilon": 2.0}
PASS_MORE_VALUES = {
    "n": (1000, 2000, 4000, 8000),
    "M": (400, 800, 1600, 3200),
    "d": (10, 20, 40, 80),
    "epsilon": (0.5, 1.0, 2.0, 4.0),
}
# Behind a shuffler noise falls with M from some thousands of messages on, and the risk leaves the ball's limit with it.
SHUFFLED = {"n": 1, "M": 64_000, "d": 5, "epsilon": 1.0}
SHUFFLED_VALUES = {
    "n": (1, 2, 4),
    "M": (32_000, 64_000, 128_000, 256_000),
    "d": (5, 10, 20, 40),
    "epsilon": (0.5, 1.0, 2.0),
}
# Algorithm 2 needs so few rounds that the sizes may be larger.
LARGE = {"n": 400, "M": 6400, "d": 20, "epsilon": 0.25}
LARGE_VALUES = VALUES | {"M": (1600, 3200, 6400, 12800), "d": (10, 20, 40, 80)}
STRONG = {"n": -2.0, "M": -1.0, "d": 1.0, "epsilon": -2.0}
CONVEX = {"n": -1.0, "M": -0.5, "d": 0.5, "epsilon": -1.0}
BOTH, STAGES, ONCE = ("population", "empirical"), {"multi_stage": True}, {"one_pass": True, "batch_size": 1}
ACCELERATED: dict[str, Any] = {"method": so.accelerated_mb_sgd}

CASES = (
    Case(
        "Theorem 2.1, convex: MB-SGD, smoothed absolute loss",
        ABSOLUTE,
        sgd_convex,
        BASE,
        VALUES,
        CONVEX,
        risks=BOTH,
        smooth=True,
    ),
    Case("Theorem 2.1, strongly convex: MB-SGD, ridge", RIDGE, sgd_strong, BASE, VALUES, STRONG, risks=BOTH, q=0.5),
    Case("Theorem 2.2, convex: MB-SGD, absolute loss", ABSOLUTE, sgd_envelope, BASE, VALUES, CONVEX, risks=BOTH),
    Case("Theorem 2.2, convex: MB-SGD, hinge loss", HINGE, sgd_envelope, BASE, VALUES, CONVEX, risks=BOTH),
    Case(
        "Theorem 2.2, strongly convex: MB-SGD, L2 hinge loss",
        HINGE_L2,
        sgd_envelope_strong,
        {"n": 200, "M": 400, "d": 20, "epsilon": 0.25},
        {
            "n": (50, 100, 200, 400),
            "M": (100, 200, 400, 800),
            "d": (5, 10, 20, 40),
            "epsilon": (0.0625, 0.125, 0.25, 0.5),
        },
        STRONG,
        risks=BOTH,
        q=0.5,
    ),
    Case(
        "Theorem D.1, convex: AC-SA, smoothed absolute loss",
        ABSOLUTE,
        accelerated_convex,
        LARGE,
        LARGE_VALUES,
        CONVEX,
        smooth=True,
        **ACCELERATED,
    ),
    Case(
        "Theorem D.1, strongly convex: multi-stage AC-SA, L2 logistic",
        LOGIT,
        accelerated_strong,
        MORE,
        MORE_VALUES,
        STRONG,
        options=STAGES,
        q=0.5,
        **ACCELERATED,
    ),
    Case(
        "Theorem 2.4, convex: AC-SA, absolute loss",
        ABSOLUTE,
        accelerated_envelope,
        LARGE,
        LARGE_VALUES,
        CONVEX,
        **ACCELERATED,
    ),
    Case(
        "Theorem 2.4, convex: AC-SA, hinge loss",
        HINGE,
        accelerated_envelope,
        LARGE,
        LARGE_VALUES,
        CONVEX,
        **ACCELERATED,
    ),
    Case(
        "Theorem 2.3, convex: one pass, smoothed absolute loss, different clients",
        ABSOLUTE,
        one_pass,
        PASS,
        PASS_VALUES,
        {"n": -0.5, "M": -0.5, "d": 0.5, "epsilon": -1.0},
        options=ONCE,
        risks=("population",),
        draws="next",
        smooth=True,
        **ACCELERATED,
    ),
    Case(
        "Theorem 2.3, strongly convex: one pass, ridge, different clients",
        RIDGE,
        one_pass,
        PASS_MORE,
        PASS_MORE_VALUES,
        {"n": -1.0, "M": -1.0, "d": 1.0, "epsilon": -2.0},
        options=ONCE | STAGES,
        risks=("population",),
        draws="next",
        q=0.5,
        **ACCELERATED,
    ),
    Case(
        "Theorem 2.1, convex, the printed noise: MB-SGD, smoothed absolute loss",
        ABSOLUTE,
        sgd_convex_printed,
        {"n": 1600, "M": 400, "d": 20, "epsilon": 6.0},
        {"n": (800, 1600, 3200), "M": (200, 400, 800), "d": (10, 20, 40), "epsilon": (3.0, 6.0, 12.0)},
        CONVEX,
        risks=BOTH,
        calibration="theorem-2.1",
        smooth=True,
    ),
    Case(
        "Theorem 2.1, convex, privacy for free: MB-SGD, smoothed absolute loss",
        ABSOLUTE,
        sgd_convex,
        {"n": 400, "M": 100, "d": 5, "epsilon": 8.0},
        {"n": (100, 200, 400, 800), "M": (25, 50, 100, 200), "d": (5, 10, 20), "epsilon": (4.0, 8.0, 12.0)},
        {"n": -0.5, "M": -0.5, "d": 0.0, "epsilon": 0.0},
        risks=("population",),
        smooth=True,
    ),
    Case(
        "Theorem 2.1, strongly convex, privacy for free: MB-SGD, ridge",
        RIDGE,
        sgd_strong,
        {"n": 48_000, "M": 100, "d": 20, "epsilon": 8.0},
        {
            "n": (12_000, 24_000, 48_000, 96_000),
            "M": (25, 50, 100, 200),
            "d": (20, 40, 80),
            "epsilon": (4.0, 8.0, 12.0),
        },
        {"n": -1.0, "M": -1.0, "d": 0.0, "epsilon": 0.0},
        risks=("population",),
        q=0.5,
    ),
    Case(
        "Theorem 2.1, convex, M of 128 answer: MB-SGD, smoothed absolute loss",
        ABSOLUTE,
        sgd_convex,
        {"n": 1600, "M": 40, "d": 20, "epsilon": 0.25},
        {"M": (10, 20, 40, 80)},
        {"M": -0.5},
        risks=BOTH,
        draws="some",
        clients=128,
        smooth=True,
    ),
    Case(
        "Theorem 2.1, strongly convex, M of 128 answer: MB-SGD, ridge",
        RIDGE,
        sgd_strong,
        {"n": 1600, "M": 40, "d": 20, "epsilon": 0.25},
        {"M": (10, 20, 40, 80)},
        {"M": -1.0},
        risks=BOTH,
        draws="some",
        clients=128,
        q=0.5,
    ),
    Case(
        "Theorem 4.1, convex, shuffled: MB-SGD, smoothed absolute loss",
        ABSOLUTE,
        shuffled,
        SHUFFLED,
        SHUFFLED_VALUES,
        {"n": -1.0, "M": -1.0, "d": 0.5, "epsilon": -1.0},
        risks=BOTH,
        trust="shuffle",
        smooth=True,
    ),
    Case(
        "Theorem 4.1, strongly convex, shuffled: MB-SGD, ridge",
        RIDGE,
        shuffled_strong,
        SHUFFLED,
        SHUFFLED_VALUES,
        {"n": -2.0, "M": -2.0, "d": 1.0, "epsilon": -2.0},
        risks=BOTH,
        trust="shuffle",
        q=0.5,
    ),
)

# Why a slope holds neither the theorem's exponent nor its bound's, as measured besides; by the beginning of the case's
# name and the quantity.
SOFT = (
    "The larger the noise beside the labels D / (2 sqrt(d)), the less of the bound is the risk: at sqrt(d) / D times "
    "the bound of 0.02 to 0.03, 0.06 and 0.17 it is 0.51 to 0.53, 0.46 to 0.49 and 0.38 of it where noise sets the "
    "step."
)
STEP = (
    "At {} the theorem's step 1 / (4 beta) binds, which leaves less noise; at the other values the noise sets the step."
)
DRIFT = "The risk rises slowly from 0.69 to 0.74 of the bound as noise falls, which so narrow an interval shows."
REST = (
    "The error of sampling is a thirty-fifth of the theorem's L^2 / (mu M n) here, so what is left of the noise counts "
    "for more than in the bound: a seventh of the risk at epsilon = 4."
)
WHY: dict[tuple[str, str], str] = {
    ("Theorem 2.1, convex: MB-SGD", "d"): (
        "The theorem's step 1 / (4 beta) binds: four fifths of the risk are there without any noise, and that part has "
        "the slope 0.48."
    ),
    ("Theorem D.1, convex", "d"): (
        "Over d = 80, 160, 320 and 640 the slope is 0.40 +- 0.02: the risk rises from 0.47 of the bound at d = 10 to "
        "0.59 at 80 and falls to 0.47 at 640. What makes 80 the hardest of this family is open."
    ),
    ("Theorem 2.4, convex: AC-SA, absolute loss", "d"): (
        "What is left without noise, by smoothing and few rounds, grows from a tenth of the risk at d = 10 to over a "
        "quarter at 80. Over d = 80, 160, 320 and 640 the slope is 0.49 +- 0.02."
    ),
    ("Theorem 2.4, convex: AC-SA, hinge loss", "n"): DRIFT,
    ("Theorem 2.4, convex: AC-SA, hinge loss", "epsilon"): DRIFT,
    ("Theorem 2.3, strongly convex", "epsilon"): (
        "Stages are whole: the last, whose noise counts, has 81, 63, 52 and 70 % of the rounds, and the longer it is "
        "the less of the bound is the risk, 0.46, 0.56, 0.62 and 0.51."
    ),
    **{("Theorem 2.1, convex, the printed noise", name): SOFT for name in ("n", "M", "d")},
    ("Theorem 2.1, convex, the printed noise", "epsilon"): STEP.format("epsilon = 12"),
    **{("Theorem 2.1, strongly convex, privacy for free", name): REST for name in ("n", "epsilon")},
    ("Theorem 2.1, strongly convex, privacy for free", "d"): REST + " The curvature mu + 1 / d falls besides.",
    ("Theorem 2.1, convex, M of 128 answer", "M"): "The interval ends 0.003 from the theorem's exponent.",
    ("Theorem 4.1, convex", "n"): STEP.format("n = 1"),
    ("Theorem 4.1, convex", "d"): SOFT,
    ("Theorem 4.1, strongly convex", "epsilon"): "The risk rises slowly from 0.09 to 0.11 of the bound.",
}
