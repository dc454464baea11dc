"""Sums of whole numbers with a share of discrete Gaussian noise from every client, modulo 2^b.

Kairouz, Liu and Steinke 2021, "The distributed discrete Gaussian mechanism for federated learning with secure
aggregation". n honest clients hold integer vectors x_i, and y_i has independent coordinates of the discrete Gaussian
N_Z(0, s^2), P(y) proportional to e^(-y^2 / 2s^2). Seen is sum_i (x_i + y_i) modulo 2^b.

*Cost.* If neighbours move the sum by at most Delta in L2, every Renyi divergence of order a is at most xi + a rho with

    rho  = Delta^2 / (2 n s^2)
    xi   = min(d, Delta^2) T_n
    T_n  = sum_{k=1}^{n-1} log(theta_3(q_k) / theta_4(q_k)),   q_k = e^(-2 pi^2 s^2 k / (k+1))

docs/secure_aggregation.md has the proof. log(theta_3 / theta_4) is about 4 q, so T_n lies below the paper's
tau = 10 sum_k q_k, and since a > 1 its bound sqrt(Delta^2/(n s^2) + 2 tau d) follows.

*Rounding.* A vector of norm c is divided by the step g and each coordinate rounded down or up at random, without bias,
again and again until the result has a squared norm of at most

    R^2 = min{(c/g + sqrt(d))^2,  (c/g)^2 + d/4 + sqrt(2 log(1/beta)) (c/g + sqrt(d)/2)}

which it has with a probability of at least 1 - beta each time. What is sent has norm at most R, whatever happens: R, or
2R under replace-one, is the sensitivity.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from sordino.errors import InvalidInput, require, require_count
from sordino.privacy.calibration import CostOfNoise, Target
from sordino.privacy.events import ZeroConcentrated
from sordino.types import Relation

BETA = math.exp(-0.5)  # at most so often a rounding is rejected; the paper's value
SPREAD = 6.0  # stds of a coordinate of the sum that fit into half of the modulus
FINEST = 2.0**14  # steps of the lattice within the bound: squared norms stay below 2^31
LARGEST_SHARE = 2.0**14  # std of one client's noise: its table stays small
LARGEST_LOSS = 0.25  # by which rounding may lengthen a vector
BITS = (4, 30)
LARGEST_SUM = 10**7  # clients whose T_n is computed term by term


def padded(d: int) -> int:
    """The next power of two: a Hadamard matrix of this size exists."""
    return 1 << (d - 1).bit_length()


@functools.lru_cache(maxsize=4096)
def width_of_sum(share_std: float, shares: int) -> float:
    """T_n: log of the law of n shares over N_Z(0, n s^2) varies over the integers by no more than this."""
    require(share_std > 0, "share_std", share_std, "must be positive")
    require(1 <= shares <= LARGEST_SUM, "shares", shares, f"must lie between 1 and {LARGEST_SUM:,}")
    k = np.arange(1, shares, dtype=np.float64)
    exponent = 2 * math.pi**2 * share_std**2 * k / (k + 1)
    remedy = f"a share of noise has a std of {share_std:.2g} steps, and the law of so little is not analysed: use more"
    require(shares == 1 or exponent[0] >= 0.5, "noise_multiplier", share_std, remedy)
    upper, lower = np.zeros_like(exponent), np.zeros_like(exponent)
    for j in range(1, 12):  # theta_3 and theta_4, minus 1; the first term left out is below e^-72
        term = 2 * np.exp(-(j**2) * exponent)
        upper, lower = upper + term, lower + (-1) ** j * term
    total = float(np.sum(np.log1p(upper) - np.log1p(lower)))
    return total * (1 + 1e-9)  # more than floating point can have lost


def rounded_norm_squared(scaled_bound: float, d: int, beta: float = BETA) -> int:
    """R^2 as a whole number, for vectors of norm c/g = `scaled_bound` and d coordinates."""
    c, root = scaled_bound, math.sqrt(d)
    likely = c**2 + d / 4 + math.sqrt(2 * math.log(1 / beta)) * (c + root / 2)
    return math.floor(min((c + root) ** 2, likely))


def secure_sum_event(sensitivity: float, share_std: float, honest: int, d: int) -> ZeroConcentrated:
    """What one sum of d coordinates costs, with the shares of `honest` clients, all in steps of the lattice."""
    moved = min(float(d), sensitivity**2)
    return ZeroConcentrated(sensitivity**2 / (2 * honest * share_std**2), moved * width_of_sum(share_std, honest))


def least_multiplier(target: Target, cost: CostOfNoise) -> float:
    """The least noise multiplier that meets the target; xi is nearly always nothing, and `cost` knows it."""
    z = target.least(lambda z: ZeroConcentrated(1 / (2 * z**2)))
    return z if target.epsilon_of(cost(z)) <= target.epsilon else target.least(cost)


@dataclass(frozen=True)
class Shares:
    """Who adds noise: of `clients` messages at least `fewest` arrive, all but `colluding` of them with secret noise."""

    clients: int
    fewest: int
    colluding: int = 0

    @property
    def honest(self) -> int:
        """Shares of noise that are there in the worst case."""
        return self.fewest - self.colluding


def shares_of(clients: int, fewest: int, dropouts: float, colluding: int) -> Shares:
    """The shares where, of the `fewest` clients that are asked at least, a share of `dropouts` may not answer."""
    require(clients >= 1, "clients", clients, "must be at least 1")
    require(0 <= dropouts < 1, "dropouts", dropouts, "must lie in [0, 1)")
    require(colluding >= 0, "colluding", colluding, "must not be negative")
    survivors = fewest - math.floor(dropouts * fewest)
    remedy = f"at least {survivors} clients answer in a round: fewer of them may collude"
    require(colluding < survivors, "colluding", colluding, remedy)
    return Shares(clients, survivors, colluding)


@dataclass(frozen=True)
class Lattice:
    """How vectors of norm at most `bound` become integers of b bits, and the noise of each client."""

    bits: int  # b
    d: int  # coordinates after padding
    step: float  # g
    norm_squared: int  # R^2
    share_std: float  # s, in steps

    @property
    def norm(self) -> float:
        """R."""
        return math.sqrt(self.norm_squared)

    def event(self, relation: Relation, honest: int) -> ZeroConcentrated:
        """What the sum of one round costs, with the shares of `honest` clients."""
        return secure_sum_event(relation.sensitivity_factor * self.norm, self.share_std, honest, self.d)

    def noise_std(self, honest: int) -> float:
        """The std of all honest noise together, in the units of the vectors."""
        return math.sqrt(honest) * self.share_std * self.step

    def lengthened(self, bound: float) -> float:
        """By which share rounding may lengthen a vector."""
        return self.norm * self.step / bound - 1


@functools.lru_cache(maxsize=4096)
def lattice_for(
    noise_multiplier: float, *, bits: int, d: int, bound: float, relation: Relation, shares: Shares
) -> Lattice:
    """The finest lattice whose sums fit into b bits, with noise of this multiplier in the worst case.

    A coordinate of a rotated sum has a variance of at most (n c)^2 / d from vectors that all agree, n g^2 / 4 from
    rounding and n s^2 g^2 from noise: SPREAD of its stds fit. Sums that are larger wrap around, which costs accuracy
    and no privacy.
    """
    low, high = BITS
    require(low <= bits <= high, "bits", bits, f"must lie between {low} and {high}")
    usable = 0 < noise_multiplier < math.inf
    require(usable, "noise_multiplier", noise_multiplier, "must be a positive, finite number")
    require_count(d, "d")
    dim, n = padded(d), shares.clients
    require(dim <= 2**24, "d", d, "sums of shares have at most 2^24 coordinates: use a smaller model")

    def lattice(log_step: float) -> Lattice:
        step = bound * math.exp(log_step)
        norm_squared = rounded_norm_squared(bound / step, dim)
        moved = relation.sensitivity_factor * math.sqrt(norm_squared)
        share = noise_multiplier * moved / math.sqrt(shares.honest)
        while moved**2 / (2 * shares.honest * share**2) > 1 / (2 * noise_multiplier**2):
            share = math.nextafter(share, math.inf)
        return Lattice(bits, dim, step, norm_squared, share)

    def fits(each: Lattice) -> bool:
        agreeing, noisy = (n * bound / each.step) ** 2 / dim, n * (each.share_std**2 + 0.25)
        within = SPREAD * math.sqrt(agreeing + noisy) <= 2 ** (bits - 1) - 1
        return within and each.share_std <= LARGEST_SHARE

    finest, coarsest = -math.log(FINEST), 0.0
    if fits(lattice(finest)):
        return lattice(finest)
    for _ in range(60):
        middle = (finest + coarsest) / 2
        finest, coarsest = (finest, middle) if fits(lattice(middle)) else (middle, coarsest)
    found = lattice(coarsest)
    if not fits(found) or found.lengthened(bound) > LARGEST_LOSS:
        remedy = (
            f"too coarse for sums of {n} messages of {dim} coordinates with this noise: use more bits, or less noise"
        )
        raise InvalidInput("bits", bits, remedy)
    return found
