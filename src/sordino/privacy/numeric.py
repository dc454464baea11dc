"""Privacy loss distributions of events, composed on a lattice that rounds against privacy (dp-accounting).

`sordino.privacy.loss` is imported when it is used: dp-accounting takes a second to load, and exact accounts do without.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache, reduce
from typing import TYPE_CHECKING

import numpy as np

from sordino.errors import InvalidInput, Refused
from sordino.privacy.binomial import log_binomial_pmf
from sordino.privacy.events import DiscreteNoise, FiniteLoss, Gaussian, Laplace, Pure, Sampled, parts_of
from sordino.privacy.gaussian import gaussian_epsilon
from sordino.privacy.sampling import Poisson, WithoutReplacement, WithReplacement
from sordino.privacy.tally import pure_bound
from sordino.types import Event, Relation

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    from sordino.privacy.repeated import RepeatedLoss

_LONGEST_LATTICE = 400_000


def convolutions(leaf: Event) -> int:
    """How many losses make up one release: a coordinate each for integer noise."""
    return sum(count for _, count in leaf.shifts) if isinstance(leaf, DiscreteNoise) else 1


def compose_losses(leaves: Counter[Event], relation: Relation) -> PrivacyLossDistribution:
    """The privacy loss of all leaves together, on the finest lattice that fits."""
    if len(leaves) == 1 and isinstance(leaf := next(iter(leaves)), DiscreteNoise) and leaf.law in _ALPHA_LAWS:
        # Alone on its own lattice, discrete Laplace noise is accounted without rounding.
        return _alpha_lattice_loss(leaf).times(leaves[leaf])
    step = lattice_step(leaves)
    # Far in a tail the library's bounds overflow to infinity, which it handles.
    with np.errstate(over="ignore", invalid="ignore"):
        try:
            parts = [leaf_loss(leaf, relation, step).times(count) for leaf, count in leaves.items()]
            return reduce(lambda left, right: left.compose(right), parts)
        except OverflowError:
            parts_of_all = [part for leaf in leaves for part in parts_of(leaf)]
            noises = [part.noise_multiplier for part in parts_of_all if isinstance(part, Gaussian | Laplace)]
            remedy = "so little noise hides nothing, and its privacy loss leaves what numbers can hold: take more"
            raise InvalidInput("noise_multiplier", min(noises, default=math.inf), remedy) from None


def lattice_step(leaves: Counter[Event]) -> float:
    """The step of a lattice for all leaves: STEP, or a finer one where losses are so small that STEP would blur them.

    Where the loss of one release has the std s, connecting the dots makes epsilon too large by about 0.09 (step / s)^2
    of itself: s / 5 keeps that below half a per cent. A step that is finer still gains little and loses to float64:
    masses are second differences of deltas over the step, and what rounds below zero counts as zero, so that n releases
    together get a mass of about 1 + 2e-16 n s / step^2. Either way the error is against privacy. Where s is large, and
    all dots are connected, s / 400 moves epsilon by 2e-5 of itself at most, and by less than 2e-6 at a delta of 1e-5
    (measured for sampled noise of 0.3 to 5, with 1 to 5000 releases); and a run asks for many numbers of releases on
    one lattice.
    """
    from sordino.privacy.loss import STEP

    # A total of thousands needs no ten-thousandths; one of millions gets a lattice that is rough but fits the memory.
    mean, most = (sum(f(leaf) * count for leaf, count in leaves.items()) for f in (_mean_loss, loss_range))
    total = min(mean + 9 * math.sqrt(2 * mean), most)
    releases = sum(leaves.values())
    s = math.sqrt(2 * mean / releases)
    own_lattice = any(isinstance(leaf, DiscreteNoise) for leaf in leaves)  # integer noise: no mean loss is known
    if s < 5 * STEP and not own_lattice:
        longest = max(total, *map(_sampled_range, leaves)) / _LONGEST_LATTICE
        return min(STEP, max(s / 5, longest, math.sqrt(2e-13 * releases * s)))
    widest = max(loss_range(leaf) for leaf in leaves)
    own = s / 400 if all(_is_gaussian(leaf) for leaf in leaves) else STEP
    return max(
        STEP, own, widest / _LONGEST_LATTICE, min(total / _LONGEST_LATTICE, 100 * STEP), total / 10 / _LONGEST_LATTICE
    )


def _is_gaussian(leaf: Event) -> bool:
    """Whether the loss of a release is that of Gaussian noise, which connects the dots instead of rounding."""
    return isinstance(leaf.event if isinstance(leaf, Sampled) else leaf, Gaussian)


def _sampled_range(leaf: Event) -> float:
    """The largest privacy loss of one release, of which a sample sees a part: log(1 - q + q e^range)."""
    unsampled = loss_range(leaf)
    if not isinstance(leaf, Sampled) or leaf.sampling.sampling_prob >= 1:
        return unsampled
    q = leaf.sampling.sampling_prob
    return float(np.logaddexp(math.log1p(-q), math.log(q) + unsampled))


def loss_range(leaf: Event) -> float:
    """The largest privacy loss of one release, but for a negligible probability: a lattice may end there."""
    match leaf:
        case Sampled(Gaussian(z), WithReplacement() as sampling):
            from sordino.privacy.loss import most_draws

            return gaussian_epsilon(most_draws(sampling) / z, 1e-18)
        case Sampled(inner, _):
            return loss_range(inner)
        case Gaussian(z):
            return gaussian_epsilon(1.0 / z, 1e-18)
        case DiscreteNoise():
            return 0.0
    return pure_bound(leaf)


def _mean_loss(leaf: Event) -> float:
    """Roughly what one release adds to the privacy loss: nothing but the choice of a lattice rests on it."""
    match leaf:
        case DiscreteNoise():
            return 0.0
        case Gaussian(z):
            return z**-2 / 2
        case Sampled(Gaussian(z), Poisson(draws)):
            pass
        case Sampled(Gaussian(z), WithoutReplacement(K, n) | WithReplacement(K, n)):
            draws = K / n
        case _:
            bound = loss_range(leaf)
            return bound * math.tanh(bound / 2)
    q, squared = min(draws, 1.0), (max(draws, 1.0) / z) ** 2
    return min(q * squared, q**2 * math.expm1(min(squared, 700.0))) / 2


@lru_cache(maxsize=8)
def leaf_loss(leaf: Event, relation: Relation, step: float) -> RepeatedLoss:
    """The privacy loss of one release, ready to be repeated."""
    from sordino.privacy.repeated import RepeatedLoss

    return RepeatedLoss(_loss_of(leaf, relation, step))


def _loss_of(leaf: Event, relation: Relation, step: float) -> PrivacyLossDistribution:
    from sordino.privacy import loss

    match leaf:
        case Gaussian(z):
            return loss.gaussian_loss(z, 1.0, relation, step)
        case Laplace(z):
            return loss.laplace_loss(z, 1.0, step)
        case Pure(epsilon):
            return loss.pure_loss(epsilon, step)
        case FiniteLoss(losses, probabilities):
            return loss.rounded_loss(np.array(losses), np.array(probabilities), 0.0, step)
        case DiscreteNoise():
            return _discrete_loss(leaf, step)
        case Sampled(Gaussian(z), Poisson(q)):
            return loss.gaussian_loss(z, q, relation, step)
        case Sampled(Laplace(z), Poisson(q)):
            return loss.laplace_loss(z, q, step)
        case Sampled(Gaussian(z), WithoutReplacement() | WithReplacement() as sampling):
            return loss.fixed_size_gaussian_loss(z, sampling, step)
    raise Refused(f"no accountant is proven for a {leaf.kind} release here", "see the events in sordino.privacy")


_ALPHA_LAWS = ("tdl", "discrete-laplace")


@lru_cache(maxsize=8)
def _alpha_lattice_loss(event: DiscreteNoise) -> RepeatedLoss:
    from sordino.privacy.repeated import RepeatedLoss
    from sordino.privacy.tdl import tdl_loss

    if event.law == "tdl":
        m, alpha = event.parameters
    else:  # untruncated: cut where the tail is far below any delta, and the cut is counted as infinite loss
        (alpha,) = event.parameters
        m = max(k for k, _ in event.shifts) + math.ceil(80 / alpha)
    return RepeatedLoss(tdl_loss(int(m), alpha, event.shifts))


def forget_losses() -> None:
    """Empty the caches."""
    leaf_loss.cache_clear()
    _alpha_lattice_loss.cache_clear()


def _discrete_loss(event: DiscreteNoise, step: float) -> PrivacyLossDistribution:
    """Any integer noise, coordinate by coordinate: loss log p(y) - log p(y - k)."""
    from sordino.privacy.loss import rounded_loss

    support, log_p = _log_pmf(event)
    parts = []
    for k, count in event.shifts:
        k = min(k, len(log_p))  # further apart than the table is wide: nothing in common
        here, there = log_p[k:], log_p[: len(log_p) - k]  # p(y) and p(y - k) where both are on the table
        mass = np.exp(here)
        parts.append(rounded_loss(here - there, mass, max(0.0, 1 - float(mass.sum())), step).self_compose(count))
    if not parts or not support.size:
        return rounded_loss(np.zeros(1), np.ones(1), 0.0, step)
    return reduce(lambda left, right: left.compose(right), parts)


def _log_pmf(event: DiscreteNoise) -> tuple[np.ndarray, np.ndarray]:
    match event.law, event.parameters:
        case "tdl", (m, alpha):
            y = np.arange(-int(m), int(m) + 1)
            weight = -alpha * np.abs(y)
        case "discrete-laplace", (alpha,):
            y = np.arange(-math.ceil(80 / alpha), math.ceil(80 / alpha) + 1)
            weight = -alpha * np.abs(y)
        case "discrete-gaussian", (std,):
            y = np.arange(-math.ceil(13 * std), math.ceil(13 * std) + 1)
            weight = -(y**2) / (2 * std**2)
        case "binomial", (coins,):
            log_p = log_binomial_pmf(int(coins))
            return np.arange(len(log_p)), log_p
        case _:
            laws = "tdl (m, alpha), discrete-laplace (alpha), discrete-gaussian (noise_std), binomial (coins)"
            raise InvalidInput("law", event.law, f"use one of {laws}")
    return y, weight - np.logaddexp.reduce(weight)
