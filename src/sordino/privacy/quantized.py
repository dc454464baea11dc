"""Sensitivities of a quantised vector, and the calibrations of integer noise on it.

The quantiser of QTDL (Algorithm 1, line 3) sends u in [-1, 1]^d to integers Q(u) in {-s, ..., s}^d with E Q(u) = s u.
Coupling its rounding, Q_i = floor(s u_i + U_i) with one U_i, shows |v_i| <= s |u_i - u_i'| + 1 for v = Q(u) - Q(u'):

    Delta_1 <= d + s ||u - u'||_1,   Delta_2 <= sqrt(d) + s ||u - u'||_2,   Delta_inf <= 2 s (s if u' = 0)

`calibrations` lists what integer noise meets (epsilon, delta) for given sensitivities: the paper's Theorem 1, whose
guarantee is false, and the sound ones, the best of which is the default of the mechanism.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import ndtri

from sordino.errors import require
from sordino.privacy import wording
from sordino.privacy.concentrated import zcdp_rho
from sordino.privacy.events import Approximate, Assumed, Claimed, Gaussian, Pure, ZeroConcentrated
from sordino.privacy.gaussian import gaussian_mu
from sordino.privacy.tdl import log_not_worst_delta, tdl_support_for, tdl_variance, theorem_1, worst_delta
from sordino.types import Event, Relation, Unit

_ROUNDING = 2.0**-20
MESSAGE_FAILURE = 1e-6  # how often one whole message may meet the end of its range: costs accuracy, never privacy


@dataclass(frozen=True)
class Sensitivities:
    """How far the integers of one client's message can move between neighbours."""

    d: int
    levels: int  # s
    l1: float
    l2: float
    linf: float
    assumption: str | None = None  # what they rest on where nothing enforces them

    def stated(self, event: Event) -> Event:
        """The event, with the assumption that its sensitivity rests on. Eq. (6) is about one sample inside a client."""
        return event if self.assumption is None else Assumed(self.assumption, event, unit=Unit.RECORD)


@dataclass(frozen=True)
class Calibration:
    """Integer noise for a quantised message: law, range, and what it costs."""

    law: str
    event: Event
    noise_std: float  # in integer units; divide by s for a unit vector
    support: int  # m: the noise, or the output beyond s, stays within +-m
    bits: int  # t, a coordinate
    alpha: float | None = None  # of the (truncated) discrete Laplace laws
    delta: float = 0.0

    def event_under(self, bounds: Sensitivities) -> Event:
        """What the same noise costs under other sensitivities (another relation, say)."""
        if self.law == "gaussian":
            return Gaussian(self.noise_std / bounds.l2)
        assert self.alpha is not None, self.law
        if self.law == "laplace":
            return Pure(self.alpha * bounds.l1)
        honest = _truncated_event(self.alpha, self.support, bounds)
        return Claimed(self.event.claim, honest) if isinstance(self.event, Claimed) else honest


def client_sensitivities(d: int, levels: int, relation: Relation) -> Sensitivities:
    """Worst case over all vectors of norm at most 1: holds without any assumption on the data."""
    _require_shape(d, levels)
    # ||u - u'||_2 <= 2 for replace-one, 1 when u' = 0; the float32 division by the bound may add a few ulps.
    apart = relation.sensitivity_factor * (1 + _ROUNDING)
    l1, l2 = d + apart * levels * math.sqrt(d), math.sqrt(d) + apart * levels
    return Sensitivities(d, levels, l1, l2, relation.sensitivity_factor * levels)


def assumed_sensitivities(d: int, levels: int, mu: float) -> Sensitivities:
    """The paper's eq. (6): Delta_1 = 2 d + mu s sqrt(d), Delta_inf = 2 + mu s, Delta_2 = 2 sqrt(d) + mu s.

    Its Theorem 3 derives them only with high probability over the data, for a fixed model: nothing enforces them.
    """
    _require_shape(d, levels)
    require(mu > 0, "mu", mu, "must be positive; leave it out for the worst case that needs no assumption")
    assumption, root = wording.assume_paper_sensitivities(mu), math.sqrt(d)
    return Sensitivities(d, levels, 2 * d + mu * levels * root, 2 * root + mu * levels, 2 + mu * levels, assumption)


def bits_for(levels: int, support: int) -> int:
    """t = ceil(log2(2 (s + m) + 1)), eq. (7)."""
    return (2 * (levels + support)).bit_length()


def theorem_1_calibration(bounds: Sensitivities, epsilon: float) -> Calibration:
    """The paper's calibration, with the delta that it really has."""
    alpha, m = theorem_1(epsilon, bounds.l1, bounds.linf)
    log_kept = log_not_worst_delta(m, alpha, bounds.d, bounds.l1, bounds.linf)
    event = Claimed(wording.claim_of_theorem_1(epsilon, bounds.d, log_kept), _truncated_event(alpha, m, bounds))
    noise_std, true_delta = math.sqrt(tdl_variance(m, alpha)), -math.expm1(log_kept)
    return Calibration("theorem-1", event, noise_std, m, bits_for(bounds.levels, m), alpha, true_delta)


def sound_tdl_calibration(bounds: Sensitivities, epsilon: float, delta: float) -> Calibration:
    """TDL noise whose truncation is paid for.

    Where both supports overlap a coordinate is (alpha k)-indistinguishable, so the overlap is (alpha Delta_1)-DP and
    (alpha^2 Delta_2^2 / 2)-zCDP; leaving it costs the worst truncation delta*. Of the two routes the quieter is taken.
    """
    concentrated = (math.sqrt(2 * zcdp_rho(epsilon, delta / 2)) / bounds.l2, delta / 2)
    pure = (epsilon / bounds.l1, delta)
    alpha, truncation = max(concentrated, pure)
    m = tdl_support_for(truncation, alpha, bounds.d, bounds.l1, bounds.linf)
    event, noise_std = _truncated_event(alpha, m, bounds), math.sqrt(tdl_variance(m, alpha))
    return Calibration("truncated-laplace", event, noise_std, m, bits_for(bounds.levels, m), alpha, delta)


def discrete_laplace_calibration(bounds: Sensitivities, epsilon: float) -> Calibration:
    """Untruncated discrete Laplace noise, alpha = epsilon / Delta_1: pure epsilon-DP.

    The *output* is clamped or wrapped to t bits afterwards, which is post-processing and costs no privacy.
    """
    alpha = epsilon / bounds.l1
    # P(|Y| > m) = 2 e^(-alpha (m + 1)) / (1 + e^-alpha), for d coordinates together at most MESSAGE_FAILURE.
    m = math.ceil(math.log(2 * bounds.d / (MESSAGE_FAILURE * (1 + math.exp(-alpha)))) / alpha)
    noise_std = math.sqrt(2 * math.exp(-alpha) / math.expm1(-alpha) ** 2)
    return Calibration("laplace", Pure(epsilon), noise_std, m, bits_for(bounds.levels, m), alpha)


def wrapped_gaussian_calibration(bounds: Sensitivities, epsilon: float, delta: float) -> Calibration:
    """Gaussian noise rounded to whole numbers, output wrapped modulo 2^t.

    Q(u) is a whole number, so rounding Q(u) + N(0, sigma^2) is post-processing of the Gaussian mechanism: the exact
    Gaussian curve holds in any dimension, which is proven for no other discrete Gaussian.
    """
    mu = gaussian_mu(epsilon, delta)
    sigma = bounds.l2 / mu
    m = math.ceil(-float(ndtri(MESSAGE_FAILURE / (2 * bounds.d))) * sigma)
    return Calibration("gaussian", Gaussian(1 / mu), sigma, m, bits_for(bounds.levels, m), delta=delta)


def calibrations(bounds: Sensitivities, epsilon: float, delta: float) -> list[Calibration]:
    """The sound calibrations for (epsilon, delta), quietest first; with delta = 0 only the pure one."""
    require(epsilon > 0, "epsilon", epsilon, "must be positive")
    require(0 <= delta < 1, "delta", delta, "must lie in [0, 1)")
    found = [discrete_laplace_calibration(bounds, epsilon)]
    if delta > 0:
        found += [wrapped_gaussian_calibration(bounds, epsilon, delta), sound_tdl_calibration(bounds, epsilon, delta)]
    return sorted(found, key=lambda calibration: calibration.noise_std)


NOISE_LAWS = ("best", "gaussian", "truncated-laplace", "laplace", "theorem-1")


def calibrate_quantized(bounds: Sensitivities, epsilon: float, delta: float, noise: str = "best") -> Calibration:
    """The calibration of the named noise law, or the best sound one."""
    require(noise in NOISE_LAWS, "noise", noise, "use one of " + ", ".join(NOISE_LAWS))
    if noise == "theorem-1":
        return theorem_1_calibration(bounds, epsilon)
    found = [each for each in calibrations(bounds, epsilon, delta) if noise in ("best", each.law)]
    require(bool(found), "delta", delta, f"noise {noise!r} needs delta > 0; for delta = 0 use noise 'laplace'")
    return found[0]


def _truncated_event(alpha: float, m: int, bounds: Sensitivities) -> Event:
    overlap = ZeroConcentrated((alpha * bounds.l2) ** 2 / 2, pure_epsilon=alpha * bounds.l1)
    return Approximate(overlap, worst_delta(m, alpha, bounds.d, bounds.l1, bounds.linf))


def _require_shape(d: int, levels: int) -> None:
    require(d >= 1, "dim", d, "a vector has at least one coordinate")
    require(levels >= 1, "levels", levels, "quantisation needs at least one level")
