"""Privacy loss distributions on a lattice, built for dp-accounting's composition.

For neighbours with laws P and Q the loss is L = log(P/Q) under P, and

    delta(epsilon) = P(L = inf) + E (1 - e^(epsilon - L))_+

A lattice holds it at multiples of a step, rounded up where it does not fall on one: pessimistic, never optimistic.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from dp_accounting.pld.privacy_loss_distribution import NeighborRel, PrivacyLossDistribution
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr
from scipy.stats import binom

from sordino.privacy.gaussian import gaussian_epsilon
from sordino.privacy.sampling import WithoutReplacement, WithReplacement
from sordino.types import Relation

STEP = 1e-4  # connect-the-dots errs by O(STEP^2) a release: five digits after a thousand rounds


def lattice_loss(step: float, lower: int, mass: ArrayLike, infinite: float) -> PrivacyLossDistribution:
    """Loss (lower + i) step with probability mass[i], and infinite with the rest: exact, for a symmetric pair."""
    pmf = pld_pmf.DensePLDPmf(step, lower, np.asarray(mass, dtype=np.float64), infinite, True)
    return PrivacyLossDistribution(pmf)


def rounded_loss(
    losses: NDArray[np.float64], mass: NDArray[np.float64], infinite: float, step: float = STEP
) -> PrivacyLossDistribution:
    """Any finite list of losses, each rounded up to the lattice."""
    # A loss that is a multiple of the step up to float noise is not pushed to the next one by that noise.
    index = np.ceil(np.round(losses / step, 9)).astype(np.int64)
    lower = int(index.min()) if index.size else 0
    binned = np.bincount(index - lower, weights=mass) if index.size else np.zeros(1)
    return lattice_loss(step, lower, binned, infinite)


def pure_loss(epsilon: float, step: float = STEP) -> PrivacyLossDistribution:
    """Randomised response: the worst epsilon-DP release."""
    p = 1 / (1 + math.exp(-epsilon))
    return rounded_loss(np.array([-epsilon, epsilon]), np.array([1 - p, p]), 0.0, step)


def laplace_loss(noise_multiplier: float, sampling_prob: float = 1.0, step: float = STEP) -> PrivacyLossDistribution:
    """One coordinate of Laplace noise that moves by the whole L1 sensitivity."""
    return privacy_loss_distribution.from_laplace_mechanism(
        noise_multiplier, value_discretization_interval=step, sampling_prob=sampling_prob
    )


def gaussian_loss(
    noise_multiplier: float, sampling_prob: float, relation: Relation, step: float = STEP
) -> PrivacyLossDistribution:
    """Gaussian noise on a Poisson sample (or on everybody, for 1), whose worst pairs are known for each relation."""
    if relation is Relation.REPLACE_ONE and sampling_prob < 1:
        return privacy_loss_distribution.from_gaussian_mechanism(
            2 * noise_multiplier,  # dp-accounting states it relative to one record's norm, half of the sensitivity
            value_discretization_interval=step,
            sampling_prob=sampling_prob,
            neighboring_relation=NeighborRel.REPLACE_ONE,
        )
    both = (AdjacencyType.REMOVE, AdjacencyType.ADD) if sampling_prob < 1 else (AdjacencyType.REMOVE,)
    return PrivacyLossDistribution(*(_poisson_gaussian(noise_multiplier, sampling_prob, way, step) for way in both))


def _poisson_gaussian(noise_multiplier: float, q: float, way: AdjacencyType, step: float) -> pld_pmf.PLDPmf:
    """As `from_gaussian_mechanism` has it, at all points of the lattice at once.

    A loss e of the sample is a loss log(1 + (e^e - 1) / q) without sampling where a unit is taken away, and
    -log(1 + (e^-e - 1) / q) where one is added; beyond them all, or nothing, is lost.
    """
    law = GaussianPrivacyLoss(noise_multiplier, sampling_prob=q, adjacency_type=way)
    tail = law.privacy_loss_tail()
    least, most = law.privacy_loss(tail.upper_x_truncation), law.privacy_loss(tail.lower_x_truncation)
    lower, upper = math.floor(least / step), math.ceil(most / step)
    epsilon = (np.arange(lower, upper + 1) * step).astype(np.float64)
    sign = 1.0 if way is AdjacencyType.REMOVE else -1.0
    unsampled = epsilon
    if q < 1:
        shifted = sign * epsilon + math.log(1 / q)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            unsampled = sign * (shifted + np.log1p(-np.exp(math.log(1 / q - 1) - shifted)))
    cutoff = (0.0 if sign > 0 else 1.0) - 0.5 - np.where(np.isfinite(unsampled), unsampled, 0.0) * noise_multiplier**2
    delta = law.mu_upper_cdf(cutoff) - np.exp(epsilon + law.mu_lower_log_cdf(cutoff))
    beyond = -np.expm1(epsilon) if sign > 0 else np.zeros_like(epsilon)
    delta = np.clip(np.where(np.isfinite(unsampled), delta, beyond), 0.0, 1.0)
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, lower, upper, delta)


def fixed_size_gaussian_loss(
    noise_multiplier: float, sampling: WithoutReplacement | WithReplacement, step: float = STEP
) -> PrivacyLossDistribution:
    """Gaussian noise on a fixed-size sample under replace-one (Balle, Barthe and Gaboardi 2018).

    With H_a(mu) the Gaussian hockey-stick divergence of order a and mu_1 = 1 / noise_multiplier,

        without replacement  delta(e') = q H_a(mu_1),                       q = K/n
        with replacement     delta(e') = sum_k Bin(K, 1/n)(k) H_a(k mu_1),  q = 1 - (1 - 1/n)^K
        a = 1 + (e^e' - 1) / q

    for e' >= 0, and by symmetry delta(e') = 1 - e^e' + e^e' delta(-e') below.
    """
    K, n = sampling.sample_size, sampling.population
    mu_1 = 1.0 / noise_multiplier
    if isinstance(sampling, WithoutReplacement):
        q, draws = K / n, [(1, K / n)]
    else:
        q, draws = -math.expm1(K * math.log1p(-1 / n)) if n > 1 else 1.0, _draws(K, n)
    dropped = max(0.0, q - math.fsum(probability for _, probability in draws))  # counted as infinite loss

    def profile(epsilon: NDArray[np.float64]) -> NDArray[np.float64]:
        small = np.minimum(epsilon, 1.0)  # beyond it e^epsilon is kept out of the range of overflow
        large = epsilon + np.log1p((q - 1) * np.exp(-epsilon)) - math.log(q)
        log_a = np.where(epsilon <= 1, np.log1p(np.expm1(small) / q), large)
        return np.asarray(dropped + sum(probability * _hockey_stick(log_a, k * mu_1) for k, probability in draws))

    unsampled = gaussian_epsilon(draws[-1][0] * mu_1, 1e-18)
    top = np.logaddexp(math.log1p(-q) if q < 1 else -np.inf, math.log(q) + unsampled)  # log(1 - q + q e^unsampled)
    return _connect_the_dots(profile, float(top), step)


def _draws(K: int, n: int) -> list[tuple[int, float]]:
    """(k, probability that one record is drawn k >= 1 times in K draws from n), but for tails below 1e-16."""
    first, last = (int(edge(1e-16, K, 1 / n)) for edge in (binom.ppf, binom.isf))
    return [(k, float(binom.pmf(k, K, 1 / n))) for k in range(max(1, first), max(1, last) + 1)]


def most_draws(sampling: WithReplacement) -> int:
    """How often one record is drawn, but for a probability that does not matter."""
    return _draws(sampling.sample_size, sampling.population)[-1][0]


def _hockey_stick(log_order: NDArray[np.float64], mu: float) -> NDArray[np.float64]:
    """`gaussian_delta` over an array."""
    upper = np.exp(log_ndtr(mu / 2 - log_order / mu))
    return np.maximum(0.0, upper - np.exp(log_order + log_ndtr(-mu / 2 - log_order / mu)))


def _connect_the_dots(
    profile: Callable[[NDArray[np.float64]], NDArray[np.float64]], top: float, step: float
) -> PrivacyLossDistribution:
    """The tightest lattice loss whose profile lies above a symmetric one (Doroshenko et al. 2022)."""
    upper = max(1, math.ceil(top / step))
    epsilon: NDArray[np.float64] = np.arange(upper + 1.0) * step
    positive = profile(epsilon)
    negative = -np.expm1(-epsilon[1:]) + np.exp(-epsilon[1:]) * positive[1:]
    deltas = np.clip(np.concatenate([negative[::-1], positive]), 0.0, 1.0)
    return PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, -upper, upper, np.minimum.accumulate(deltas))
    )
