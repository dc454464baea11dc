"""Truncated Laplace noise: its law, its exact privacy in one and two coordinates, and what a plan promises with it."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special
from scipy.integrate import quad

import sordino as so
from sordino.errors import InvalidInput
from sordino.mechanisms import truncated_laplace
from sordino.privacy import delta_of, epsilon_of
from sordino.privacy.events import NonPrivate
from sordino.privacy.truncated_laplace import (
    calibrate_truncated_laplace,
    tail,
    truncated_laplace_event,
    worst_delta,
)
from sordino.tasks import Population
from sordino.types import Observer, Relation

ALPHA = 1e-5  # of a false alarm; keys are fixed


def density(y, scale, cutoff):
    inside = np.abs(y) <= cutoff
    return np.where(inside, np.exp(-np.abs(y) / scale) / (2 * scale * -np.expm1(-cutoff / scale)), 0.0)


def distribution(y, scale, cutoff):
    half = -np.expm1(-np.minimum(np.abs(y), cutoff) / scale) / (-2 * np.expm1(-cutoff / scale))
    return 0.5 + np.sign(y) * half


@pytest.mark.parametrize(("scale", "cutoff"), [(0.7, 5.0), (1.0, 0.5), (3.0, 2.0)])
def test_the_noise_has_its_law_and_no_other(scale, cutoff):
    noise = np.asarray(truncated_laplace(scale, cutoff).randomize(jax.random.key(0), jnp.zeros(200_000)), np.float64)
    assert np.max(np.abs(noise)) <= cutoff

    def p_value(*law):
        F = np.sort(distribution(noise, *law))
        n = len(F)
        return special.kolmogorov(math.sqrt(n) * max(np.max(np.arange(1, n + 1) / n - F), np.max(F - np.arange(n) / n)))

    assert p_value(scale, cutoff) > ALPHA
    for wrong in ((scale, 1.05 * cutoff), (scale * 1.5, cutoff)):
        assert p_value(*wrong) < ALPHA or (wrong[0] == scale and distribution(-cutoff, *wrong) < 1e-3)


@pytest.mark.parametrize("v", [0.0, 0.3, 1.9, 2.5, 3.9, 5.0])
def test_a_tail_is_the_integral_of_the_density(v):
    scale, cutoff = 0.8, 2.0
    expected = quad(density, max(cutoff - v, -cutoff), cutoff, (scale, cutoff), points=[0.0])[0]
    assert tail(v, scale, cutoff) == pytest.approx(expected, abs=1e-9)


def test_in_one_dimension_the_end_of_the_noise_is_that_of_geng():
    """lambda = Delta / epsilon and A = lambda log(1 + (e^epsilon - 1) / (2 delta)): by hand for Delta = epsilon = 1."""
    scale, cutoff = calibrate_truncated_laplace(1.0, 0.01, 1, 1.0)
    assert scale == pytest.approx(1.0)
    assert cutoff == pytest.approx(math.log(1 + (math.e - 1) / 0.02), rel=1e-8)
    assert worst_delta(scale, cutoff, 1, 1.0) == pytest.approx(0.01, rel=1e-8)


def exact_delta(epsilon, scale, cutoff, moves):
    """The hockey-stick divergence of the noise from the noise moved by `moves`, on a fine grid of cells."""
    edges = np.linspace(-cutoff - 2, cutoff + 2, 4001)
    laws = [np.diff(distribution(edges, scale, cutoff))] * len(moves)
    moved = [np.diff(distribution(edges - v, scale, cutoff)) for v in moves]
    p, q = laws[0], moved[0]
    for other, other_moved in zip(laws[1:], moved[1:], strict=True):
        p, q = np.outer(p, other).ravel(), np.outer(q, other_moved).ravel()
    return float(np.sum(np.maximum(p - math.exp(epsilon) * q, 0)))


@pytest.mark.parametrize(("scale", "cutoff"), [(0.8, 3.0), (2.0, 4.0)])
@pytest.mark.parametrize("epsilon", [0.2, 0.5, 1.25])
@pytest.mark.parametrize("moves", [(1.0,), (1.0, 0.0), (0.6, 0.8), (math.sqrt(0.5), math.sqrt(0.5))])
def test_what_is_promised_holds_exactly(scale, cutoff, epsilon, moves):
    event = truncated_laplace_event(scale, cutoff, len(moves), 1.0)
    promised = delta_of(event, epsilon)
    found = exact_delta(epsilon, scale, cutoff, moves)
    assert found <= promised + 1e-9
    assert found > 0


def test_beyond_the_pure_epsilon_only_the_truncation_is_left():
    """For one coordinate the promise is exact there."""
    scale, cutoff = 0.8, 3.0
    event = truncated_laplace_event(scale, cutoff, 1, 1.0)
    found = exact_delta(1 / scale, scale, cutoff, (1.0,))
    assert (
        delta_of(event, 1 / scale)
        == pytest.approx(found, rel=1e-2)
        == pytest.approx(tail(1.0, scale, cutoff), rel=1e-2)
    )


@pytest.mark.parametrize("d", [1, 7, 1000, 10**6])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (1.0, 1e-5), (10.0, 1e-6)])
def test_a_calibration_meets_what_is_asked_for(d, epsilon, delta):
    scale, cutoff = calibrate_truncated_laplace(epsilon, delta, d, 2.0)
    assert epsilon_of(truncated_laplace_event(scale, cutoff, d, 2.0), delta) <= epsilon * (1 + 1e-9)
    less = truncated_laplace_event(0.7 * scale, cutoff, d, 2.0)
    assert epsilon_of(less, delta) > epsilon


def test_supports_that_do_not_meet_promise_nothing():
    event = truncated_laplace(1.0, 0.9).event(so.clip(1.0), Relation.REPLACE_ONE, 1)
    assert isinstance(event, NonPrivate)


@pytest.mark.parametrize("trust", ["local", "central"])
def test_a_plan_with_it(trust):
    method = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(0.5))
    asked = {"message_epsilon": 0.5, "message_delta": 1e-6}
    plan = so.plan(method, rounds=4, mechanism="truncated_laplace", trust=trust, delta=1e-4, **asked)
    certificate = plan.resolve(Population(50, 100)).certificate
    observer = Observer.SERVER if trust == "local" else Observer.MODEL_USER
    (one,) = [g for g in certificate.guarantees if g.observer is observer and g.scope == "one round"]
    assert one.epsilon <= 0.5
    assert 0.5 < certificate.total(observer).epsilon < 4 * 0.5
    with pytest.raises(InvalidInput, match="message_delta"):
        so.plan(method, rounds=4, mechanism="truncated_laplace", trust=trust, message_epsilon=0.5)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, 301.0])
def test_an_epsilon_that_no_noise_has_is_refused(epsilon):
    with pytest.raises(InvalidInput, match="epsilon"):
        calibrate_truncated_laplace(epsilon, 1e-5, 3, 1.0)
