"""Constants of PrivUnit and ScalarDP (Bhowmick et al. 2018; DP-FedEXP, Algorithms 3 to 5), in float64 on the host.

PrivUnit draws V uniformly from the cap {<v, u> >= gamma} with probability p = e^eps0 / (1 + e^eps0), else from the
rest of the sphere, and sends V/m. (Algorithm 3 prints "w.p. gamma": a misprint, biased if taken at its word.) With
q = P(<V, u> >= gamma) for V uniform, the direction is exactly (eps0 + log((1 - q)/q))-DP, and

    A = exp[ (d-1)/2 log(1 - gamma^2) - log(d - 1) - log B(1/2, (d-1)/2) ],   m = A (p/q - (1-p)/(1-q))

makes it unbiased. ScalarDP rounds the norm to one of k + 1 values, k = ceil(e^(eps2/3)) (Algorithm 4 prints
e^ceil(eps2/3), which is no whole number), and sends it through randomised response.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.optimize import brentq
from scipy.special import betaincc, betainccinv, betaln, expit

from sordino.errors import Refused, require
from sordino.privacy.events import FiniteLoss

GAMMA_RULES = ("exact", "condition-1", "condition-2")


@dataclass(frozen=True)
class PrivUnitConstants:
    """What Algorithm 3 needs: cap probability p, threshold gamma, scale m; q is the cap's share of the sphere."""

    d: int
    p: float
    gamma: float
    q: float
    m: float
    epsilon: float  # of the direction, exactly

    @property
    def event(self) -> FiniteLoss:
        """The worst pair is u' = -u: the caps are disjoint, and a draw lies in u's, in the other or in neither."""
        other_cap = (1 - self.p) * self.q / (1 - self.q)
        return FiniteLoss((self.epsilon, 0.0, -self.epsilon), (self.p, 1 - self.p - other_cap, other_cap))


@dataclass(frozen=True)
class ScalarDPConstants:
    """What Algorithms 4 and 5 need: k, a, b and the constants of the variance bound c1 r^2 + c2 r + c3."""

    k: int
    a: float
    b: float
    c1: float
    c2: float
    c3: float
    epsilon: float
    bound: float  # C = r_max

    @property
    def truth_prob(self) -> float:
        """P(J^ = J) of the randomised response."""
        return 1 / (1 + self.k * math.exp(-self.epsilon))

    @property
    def sign_recoverable(self) -> bool:
        """Whether |r^| tells the sign of r^: not when 2 b is (nearly) whole, as at eps2 = log 4 or log 9."""
        return abs(2 * self.b - round(2 * self.b)) > 1e-3

    @property
    def event(self) -> FiniteLoss:
        """Randomised response over k + 1 values."""
        truth = self.truth_prob
        lie = truth * math.exp(-self.epsilon)
        return FiniteLoss((self.epsilon, 0.0, -self.epsilon), (truth, 1 - truth - lie, lie))


def privunit_constants(d: int, eps0: float, eps1: float, gamma: str = "exact") -> PrivUnitConstants:
    """Constants for dimension d; `gamma` names the rule: the exact threshold, or one of the sufficient conditions."""
    require(d >= 2, "dim", d, "PrivUnit needs at least 2 coordinates")
    require(0 < eps0 <= 20, "eps0", eps0, "must lie in (0, 20]: beyond it 53 random bits do not reach")
    require(0 < eps1 <= 50, "eps1", eps1, "must lie in (0, 50]")
    gamma = "condition-1" if gamma == "sufficient" else gamma
    require(gamma in GAMMA_RULES, "gamma", gamma, "use one of " + ", ".join(GAMMA_RULES))
    half = (d - 1) / 2
    p = float(expit(eps0))
    if gamma == "exact":
        q = float(expit(-eps1))
        threshold = math.sqrt(float(betainccinv(0.5, half, 2 * q)))
    else:
        threshold = _condition_1(d, eps1) if gamma == "condition-1" else _condition_2(d, eps1)
        q = float(betaincc(0.5, half, threshold**2)) / 2
    require(threshold < 1, "eps1", eps1, f"no cap of a sphere in {d} dimensions is as small as this needs: lower it")
    log_A = half * math.log1p(-(threshold**2)) - math.log(d - 1) - float(betaln(0.5, half))
    m = math.exp(log_A) * (p / q - (1 - p) / (1 - q))
    epsilon = eps0 + math.log((1 - q) / q)
    if epsilon > eps0 + eps1 * (1 + 1e-9):
        reason = f"gamma by {gamma} at d = {d} gives the direction epsilon {epsilon:.6g}, more than eps0 + eps1"
        raise Refused(reason, "use gamma = exact")
    return PrivUnitConstants(d, p, threshold, q, m, epsilon)


def scalar_dp_constants(eps2: float, bound: float = 1.0) -> ScalarDPConstants:
    """Constants for norms in [0, bound]."""
    require(0 < eps2 <= 20, "eps2", eps2, "must lie in (0, 20]: beyond it 32 random bits do not reach")
    require(0 < bound < math.inf, "bound", bound, "must be positive and finite: it is the largest norm C")
    C, k = bound, math.ceil(math.exp(eps2 / 3))
    e, e_minus_1 = math.exp(eps2), math.expm1(eps2)
    c1 = (k + 1) / e_minus_1
    spread = (2 * k + 1) * (e + k) / (6 * k * e_minus_1) - (k + 1) / (4 * e_minus_1)
    return ScalarDPConstants(
        k=k,
        a=(e + k) / e_minus_1 * C / k,
        b=k * (k + 1) / (2 * (e + k)),
        c1=c1,
        c2=-c1 * C,
        c3=(c1 + 1) * C**2 / (4 * k**2) + c1 * C**2 * spread,
        epsilon=eps2,
        bound=C,
    )


def _condition_1(d: int, eps1: float) -> float:
    """gamma <= tanh(eps1 / 2) sqrt(pi / (2 (d - 1)))."""
    if d == 2:
        raise Refused("the first sufficient condition is false at d = 2", "use gamma = exact")
    return math.tanh(eps1 / 2) * math.sqrt(math.pi / (2 * (d - 1)))


def _condition_2(d: int, eps1: float) -> float:
    """eps1 >= 1/2 log d + log 6 - (d-1)/2 log(1 - gamma^2) + log gamma, gamma >= sqrt(2/d): the largest such gamma."""

    def slack(gamma: float) -> float:
        cap = -(d - 1) / 2 * math.log1p(-(gamma**2))
        return eps1 - (0.5 * math.log(d) + math.log(6) + cap + math.log(gamma))

    least = math.sqrt(2 / d)
    if least >= 1 or slack(least) < 0:
        reason = f"the second sufficient condition has no solution at d = {d}, eps1 = {eps1:g}"
        raise Refused(reason, "use gamma = exact")
    return float(brentq(slack, least, 1 - 1e-12)) * (1 - 1e-12)
