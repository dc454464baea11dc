"""What integer noise costs as a deployed node draws it, and the whole numbers that its samplers compare.

    rounded Gaussian    round(Z / m), Z from `lattice`: m k + Z is Gaussian noise on the lattice, the rest reads it
    discrete Laplace    the difference of two geometric numbers, modulo 2^t
    binomial            up to 1,024 coins, tossed; beyond, a table of 256-bit thresholds out to 16 stds

*Geometric numbers.* Of G with P(G = g) ~ e^(-alpha g) the binary digits are independent, digit j is 1 with probability
p_j = 1 / (1 + e^(alpha 2^j)). So G modulo 2^t is t digits, and no tail is cut. A threshold of 256 bits is rounded down
by less than 2^-256. With alpha 2^(t-1) <= 110 every p_j is above 2^-160, so each digit has its probabilities up to a
factor e^(+-2^-95), and 2 t d digits theirs up to a factor e^(+-2 t d 2^-95).

*Truncated Laplace noise* is drawn again while it lies beyond m. With J digits, 2^J >= 2 m and alpha 2^J >= 64, what the
digits above J would have added to the probability of a value is a share of e^(-2 alpha (2^J - m)) <= e^-64 at most.

*Binomial noise.* Weights follow from each other by whole-number recurrence with 512 bits. Beyond 1,024 coins those
within 15 stds are above 2^-175 of the largest, so a threshold's rounding, and the mass of the tails, change their
probability by a factor e^(+-2^-78) at most. An output of either neighbour lies further than 15 stds from the other
with the probability that Hoeffding's inequality gives.
"""

from __future__ import annotations

import math
from fractions import Fraction

from sordino.errors import InvalidInput, Refused, require
from sordino.privacy.binomial import binomial_event
from sordino.privacy.events import Drawn
from sordino.privacy.lattice import DEVIATION, LEAST_MULTIPLIER, THRESHOLD_WORDS, drawn, exp_of_minus
from sordino.privacy.quantized import Calibration, Sensitivities
from sordino.types import Event

DIGIT_ERROR = 2.0**-95  # relative, of the probability of one binary digit
LARGEST_EXPONENT = 110.0  # alpha 2^j of the highest digit
TAIL_EXPONENT = 64.0  # alpha 2^J, beyond which digits of truncated noise are left out
FINEST = 8  # least number of lattice steps in one whole number: noise grows by at most 1/8
MOST_TOSSED = 1024  # coins that are tossed one by one
MOST_COINS = 2**28  # whose table has 2^18 columns
COIN_ERROR = 2.0**-78  # relative, of one value of the table
PRECISION = 1024  # bits


def rounded_gaussian_steps(noise_std: float) -> int:
    """m: lattice steps in one whole number, so that round(Z / m) has a std of at least `noise_std`."""
    steps = math.floor(DEVIATION / noise_std)
    remedy = f"a lattice holds noise of up to {DEVIATION / FINEST:.0f} whole numbers: use fewer levels or less noise"
    require(steps >= FINEST, "noise_std", noise_std, remedy)
    return steps


def drawn_quantized(calibration: Calibration, bounds: Sensitivities) -> Event:
    """The cost of a message of quantised coordinates with this noise, as a node draws it."""
    d = bounds.d
    if calibration.law == "gaussian":
        z = DEVIATION / rounded_gaussian_steps(calibration.noise_std) / bounds.l2
        remedy = f"the law of lattice noise is proven from noise multiplier {LEAST_MULTIPLIER} on: ask for less epsilon"
        require(z >= LEAST_MULTIPLIER, "message_epsilon", z, remedy)
        return drawn(z, d)
    if calibration.law == "laplace":
        apart = 2 * laplace_digits(calibration) * DIGIT_ERROR
        return Drawn(calibration.event_under(bounds), 2 * d * apart, 0.0)
    if calibration.law == "truncated-laplace":
        apart = 2 * laplace_digits(calibration) * DIGIT_ERROR + math.exp(-TAIL_EXPONENT)
        return Drawn(calibration.event_under(bounds), 2 * d * 2 * apart, 0.0)  # twice, since the law is normalised anew
    raise Refused(
        f"the guarantee that the noise {calibration.law} was published with is false",
        "deploy noise = best, gaussian, truncated-laplace or laplace",
    )


def drawn_coins(coins: int, bounds: Sensitivities, failure: float) -> Event:
    """The cost of a message with the noise of N fair coins a coordinate, as a node draws it."""
    ideal = binomial_event(coins, bounds, failure)
    if coins <= MOST_TOSSED:
        return ideal
    require(coins <= MOST_COINS, "coins", coins, f"a table holds up to {MOST_COINS} coins: use less noise")
    room = 7.5 - bounds.linf / math.sqrt(coins)  # 15 stds are 7.5 sqrt(N)
    require(room > 0, "coins", coins, "too few coins for this sensitivity: raise N")
    return Drawn(ideal, 2 * bounds.d * COIN_ERROR, min(1.0, 8 * bounds.d * math.exp(-2 * room**2)))


def laplace_digits(calibration: Calibration) -> int:
    """Binary digits of the two geometric numbers: all that travel, or for truncated noise all that matter."""
    assert calibration.alpha is not None
    if calibration.law == "laplace":
        digits = calibration.bits
    else:
        reach = max(2 * calibration.support, TAIL_EXPONENT / calibration.alpha)
        digits = math.ceil(math.log2(reach))
    remedy = "so much less noise than the range of a message is not proven: use fewer levels, or noise gaussian"
    proven = calibration.alpha * 2.0 ** (digits - 1) <= LARGEST_EXPONENT and digits <= 62
    require(proven, "levels", digits, remedy)
    return digits


def digit_thresholds(alpha: float, digits: int) -> list[int]:
    """floor(2^256 / (1 + e^(alpha 2^j))) for j = 0, ..., digits - 1."""
    exact, halvings = Fraction(alpha), 0
    while exact >= 1:
        exact, halvings = exact / 2, halvings + 1
    power = exp_of_minus(exact, PRECISION)
    for _ in range(halvings):
        power = power * power >> PRECISION
    thresholds = []
    for _ in range(digits):
        thresholds.append((power << 32 * THRESHOLD_WORDS) // ((1 << PRECISION) + power))
        power = power * power >> PRECISION
    return thresholds


def coin_weights(coins: int, precision: int = 512) -> list[int]:
    """P(N/2 + y heads) / P(N/2 heads) 2^precision for y = 0, ..., 8 sqrt(N), which is 16 stds."""
    if coins % 2 or coins <= MOST_TOSSED:
        raise InvalidInput("coins", coins, f"a table is for an even number above {MOST_TOSSED}")
    half, weight, weights = coins // 2, 1 << precision, []
    for y in range(math.isqrt(64 * coins) + 1):
        weights.append(weight)
        weight = weight * (half - y) // (half + y + 1)
    return weights
