"""Epsilons that are small because single releases cost next to nothing: tight, and never below the truth."""

from __future__ import annotations

import math
from collections import Counter

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp
from dp_accounting.pld import privacy_loss_distribution
from scipy.optimize import brentq

from sordino.privacy.accountants import account_of, epsilon_of
from sordino.privacy.events import Gaussian, Repeated, Sampled
from sordino.privacy.gaussian import gaussian_delta
from sordino.privacy.loss import fixed_size_gaussian_loss
from sordino.privacy.numeric import lattice_step
from sordino.privacy.sampling import Poisson, WithoutReplacement, WithReplacement
from sordino.types import Relation

# (noise multiplier, sampling probability, rounds, delta). A lattice of 1e-4 gave up to twenty times the epsilon.
POISSON = [
    (1.0, 1e-3, 1, 1e-5),
    (1.0, 1e-5, 1000, 1e-7),
    (4.0, 1e-4, 100, 1e-6),
    (10.0, 1e-3, 1000, 1e-5),
    (20.0, 1e-5, 10_000, 1e-6),
    (50.0, 1e-2, 1000, 1e-5),
    (1e4, 0.1, 1, 1e-6),
    (3000.0, 0.5, 10_000, 1e-6),
]


def tight_poisson(z, q, rounds, delta):
    """dp-accounting on a lattice that is ten times finer than the loss of one release."""
    step = min(3e-5, max(q / z / 10, 4e-8))
    loss = privacy_loss_distribution.from_gaussian_mechanism(z, value_discretization_interval=step, sampling_prob=q)
    return loss.self_compose(rounds).get_epsilon_for_delta(delta)


@pytest.mark.parametrize(("z", "q", "rounds", "delta"), POISSON)
def test_small_epsilons_of_poisson_samples_are_tight(z, q, rounds, delta):
    event = Repeated(Sampled(Gaussian(z), Poisson(q)), rounds)
    tight = tight_poisson(z, q, rounds, delta)
    assert 0.9995 * tight <= epsilon_of(event, delta) <= 1.01 * tight  # the finer lattice is above the truth too
    moments = rdp.RdpAccountant(orders=[1 + x / 10 for x in range(1, 100, 3)] + [*range(11, 3000, 40)])
    moments.compose(dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z)), rounds)
    assert epsilon_of(event, delta) <= moments.get_epsilon(delta)
    assert account_of(event).delta(tight) == pytest.approx(delta, rel=0.05)


def exact_once(z, sampling, delta):
    """One release about a sample: delta(e) = q H_a(1/z), a = 1 + (e^e - 1) / q, or a mixture over the draws."""
    n, K = sampling.population, sampling.sample_size
    if isinstance(sampling, WithoutReplacement):
        q, draws = K / n, {1: K / n}
    else:
        q = 1 - (1 - 1 / n) ** K
        draws = {k: math.comb(K, k) * (1 / n) ** k * (1 - 1 / n) ** (K - k) for k in range(1, 12)}

    def excess(epsilon):
        order = math.log1p(math.expm1(epsilon) / q)
        return sum(p * gaussian_delta(order, k / z) for k, p in draws.items()) - delta

    return brentq(excess, 0, 5, xtol=1e-16, rtol=1e-13)


FIXED = [
    (WithoutReplacement(10, 10_000), 5.0, 1e-6),
    (WithoutReplacement(1, 100_000), 2.0, 1e-7),
    (WithReplacement(10, 10_000), 5.0, 1e-6),
    (WithReplacement(3, 50_000), 2.0, 1e-7),
]


@pytest.mark.parametrize(
    ("sampling", "z", "delta"), [FIXED[0], *(pytest.param(*each, marks=pytest.mark.slow) for each in FIXED[1:])]
)
def test_small_epsilons_of_samples_of_a_fixed_size_are_tight(sampling, z, delta):
    once, exact = Sampled(Gaussian(z), sampling), exact_once(z, sampling, delta)
    assert (1 - 1e-9) * exact <= epsilon_of(once, delta, Relation.REPLACE_ONE) <= 1.01 * exact
    step = lattice_step(Counter({once: 500})) / 3
    finer = fixed_size_gaussian_loss(z, sampling, step).self_compose(500).get_epsilon_for_delta(10 * delta)
    found = epsilon_of(Repeated(once, 500), 10 * delta, Relation.REPLACE_ONE)
    assert 0.9995 * finer <= found <= 1.01 * finer


@pytest.mark.parametrize("q", [0.01, 0.1])
def test_epsilon_falls_with_the_noise_where_the_lattice_becomes_finer(q):
    """A calibration looks for the noise by halving intervals."""
    noise = np.geomspace(5 * q / 5e-3, 5 * q / 5e-5, 25)  # one release's loss from 1e-3 down to 1e-5
    found = [epsilon_of(Repeated(Sampled(Gaussian(float(z)), Poisson(q)), 300), 1e-5) for z in noise]
    assert np.all(np.diff(found) < 0)
