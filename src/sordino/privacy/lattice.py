"""Gaussian noise that is really released: integers on a lattice, from a sampler whose distance to its law is proven.

A sum x is rounded to the lattice of spacing g = noise_std / S and gets integer noise Z, the law of a Gaussian of
deviation S rounded to integers:

    y = g (k + Z),    k = round(x / g),    Z = round(N(0, S^2)),    S about 2^22

k is whole, so k + Z = round(k + N(0, S^2)) is post-processing of Gaussian noise on k: the exact Gaussian curve holds.
Rounding moves each coordinate of two sums apart by at most g, the sums by at most g sqrt(d) more than before. With
Delta the sensitivity of the exact sum and `rounding` the share of it that float32 arithmetic adds,

    noise multiplier = noise_std / ((1 + rounding) Delta + g sqrt(d))        2 g sqrt(d) under replace-one

*The sampler.* Z = 2^14 A + 2^7 B + C for three draws from one table of the discrete Gaussian p(a) ~ exp(-a^2/2s^2),
|a| < 16 s, s = 2^8, with 256-bit thresholds. Every integer within 15 S has its probability up to a factor e^+-ETA; an
output lies outside with probability `failure` at most. So a release that is (epsilon, delta)-DP with the exact law is

    (epsilon + 2 d ETA, e^(2 d ETA) delta + failure)-DP as drawn,    failure = 8 d Phi(-(15 - 1 / noise multiplier))

docs/noise.md has the proofs. At d = 10^6, 1,000 rounds and noise multiplier 1 that adds 2e-14 to epsilon and 7e-35 to
delta.
"""

from __future__ import annotations

import math
from fractions import Fraction

from scipy.special import ndtr

from sordino.errors import InvalidInput
from sordino.privacy.events import Drawn, Gaussian
from sordino.types import Event, Relation

DIGITS = 3  # draws a coordinate
DIGIT_BITS = 7  # 2^7 = 128 between one digit and the next
TABLE_STD = 256  # s
REACH = 16 * TABLE_STD - 1  # largest digit
THRESHOLD_WORDS = 8  # of 32 bits
DEVIATION = math.sqrt(TABLE_STD**2 * sum(4 ** (DIGIT_BITS * i) for i in range(DIGITS)) - 1 / 12)  # S
ETA = 1e-23  # of one coordinate
CLAIMED_REACH = 15.0  # in units of S
LEAST_MULTIPLIER = 0.15  # with less noise, `failure` is no longer negligible, and epsilon is above 40 in one release
COARSEST = 0.5  # share of the noise multiplier's inverse that rounding may take
SCALE_ROUNDING = 2.0**-21  # relative error of the spacing as float32 arithmetic has it, the same for all neighbours


def lattice_multiplier(noise_multiplier: float, d: int, relation: Relation, rounding: float = 0.0) -> float:
    """The noise multiplier on the lattice of noise that has this one without it.

    Args:
      noise_multiplier: noise std over the sensitivity of the sum in exact arithmetic.
      d: coordinates of the sum.
      relation: replace-one pays for the rounding of two sums, since a Poisson sample holds neither, one or the other of
        the clients that are exchanged, and the accountant gives each of them half of the sensitivity.
      rounding: share of the sensitivity by which sums in floating point may move further.
    """
    return 1 / ((1 + rounding + SCALE_ROUNDING) / noise_multiplier + _rounded(d, relation))


def noise_std_for(
    noise_multiplier: float, sensitivity: float, d: int, relation: Relation, rounding: float = 0.0
) -> float:
    """The std whose noise multiplier on the lattice is the given one, or a hair more."""
    instead = "or sampler = float32, whose certificate describes ideal noise only"
    if noise_multiplier < LEAST_MULTIPLIER:
        remedy = f"the law of lattice noise is proven from {LEAST_MULTIPLIER} on: use more noise, {instead}"
        raise InvalidInput("noise_multiplier", noise_multiplier, remedy)
    left = 1 / noise_multiplier - _rounded(d, relation)
    if left < (1 - COARSEST) / noise_multiplier:
        remedy = f"so much noise on {d} coordinates needs a finer lattice than there is: use less noise, {instead}"
        raise InvalidInput("noise_multiplier", noise_multiplier, remedy)
    std = (1 + rounding + SCALE_ROUNDING) / left * sensitivity
    while lattice_multiplier(std / sensitivity, d, relation, rounding) < noise_multiplier:
        std = math.nextafter(std, math.inf)
    return std


def _rounded(d: int, relation: Relation) -> float:
    """What rounding to the lattice adds to the inverse of a noise multiplier."""
    return relation.sensitivity_factor * math.sqrt(d) / DEVIATION


def drawn(noise_multiplier: float, d: int) -> Event:
    """The cost of a release with this noise multiplier on the lattice, as it is drawn."""
    distance = CLAIMED_REACH - 1 / noise_multiplier
    failure = min(1.0, 8 * d * float(ndtr(-distance)))
    return Drawn(Gaussian(noise_multiplier), 2 * d * ETA, failure)


def table_weights(precision: int = 512) -> list[int]:
    """exp(-a^2 / (2 s^2)) 2^precision for a = 0, ..., REACH, by r^(a^2) = r^((a-1)^2) r^(2a-1) in whole numbers.

    Each product is rounded down by less than 1 of 2^precision: after 2 REACH of them a weight, at least 2^(precision -
    185), is right to 2^-300.
    """
    r = exp_of_minus(Fraction(1, 2 * TABLE_STD**2), precision)
    r_squared, odd_power, weight, weights = r * r >> precision, r, 1 << precision, []
    for _ in range(REACH + 1):
        weights.append(weight)
        weight, odd_power = weight * odd_power >> precision, odd_power * r_squared >> precision
    return weights


def exp_of_minus(x: Fraction, precision: int) -> int:
    """e^-x for 0 <= x < 1, times 2^precision: the series, term by term in whole numbers with guard bits."""
    guarded = precision + 64
    term, total, n = 1 << guarded, 0, 0
    while term:
        total += -term if n % 2 else term
        n += 1
        term = term * x.numerator // (x.denominator * n)
    return total >> 64
