"""What a sampler adds is counted: events as they are drawn, plans on the lattice, and what their certificates say."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import pytest

import sordino as so
from sordino.algorithms.fedavg import FedAvg
from sordino.errors import InvalidInput, Refused
from sordino.privacy import lattice
from sordino.privacy.accountants import account_of, epsilon_of
from sordino.privacy.events import (
    Approximate,
    Composed,
    Drawn,
    Gaussian,
    Pure,
    Repeated,
    Sampled,
    as_ideal,
    event_from_json,
    event_to_json,
)
from sordino.privacy.sampling import Poisson
from sordino.pytrees import pytree
from sordino.tasks import Population
from sordino.types import Draws, Observer, Relation

ROUGH = Drawn(Gaussian(1.0), excess=1e-3, failure=1e-6)


def test_excess_goes_to_epsilon_and_failure_to_delta():
    ideal = account_of(Repeated(Gaussian(1.0), 10))
    drawn, failure = account_of(Repeated(ROUGH, 10)), 1 - (1 - 1e-6) ** 10
    assert drawn.epsilon(1e-4) == pytest.approx(ideal.epsilon((1e-4 - failure) * math.exp(-1e-2)) + 1e-2, rel=1e-9)
    assert drawn.delta(5.0) == pytest.approx(failure + math.exp(1e-2) * ideal.delta(5.0 - 1e-2), rel=1e-6)
    assert drawn.epsilon(1e-6) == math.inf  # ten releases fail more often than that
    assert drawn.delta(0.0) >= ideal.delta(0.0)


@pytest.mark.parametrize(
    ("event", "ideal"),
    [
        (Sampled(ROUGH, Poisson(0.1)), Sampled(Gaussian(1.0), Poisson(0.1))),
        (Sampled(Composed((ROUGH, ROUGH)), Poisson(0.1)), Sampled(Composed((Gaussian(1.0),) * 2), Poisson(0.1))),
        (Sampled(Drawn(Pure(0.5), 1e-3, 1e-6), Poisson(0.1)), Sampled(Pure(0.5), Poisson(0.1))),
        (
            Sampled(Composed((Drawn(Pure(0.5), 1e-3, 1e-6), Pure(0.1))), Poisson(0.1)),
            Sampled(Composed((Pure(0.5), Pure(0.1))), Poisson(0.1)),
        ),
    ],
)
def test_a_secret_sample_amplifies_the_noise_and_not_what_its_sampler_adds(event, ideal):
    samplers = 2 if isinstance(event.event, Composed) and event.event.events[1] == ROUGH else 1
    delta = 1e-4
    left = (delta - (1 - (1 - 1e-6) ** (20 * samplers))) * math.exp(-20 * samplers * 1e-3)
    expected = epsilon_of(Repeated(ideal, 20), left) + 20 * samplers * 1e-3
    assert epsilon_of(Repeated(event, 20), delta) == pytest.approx(expected, rel=1e-9)


def test_what_a_sampler_adds_grows_the_failures_of_its_release_too():
    """A release that fails with probability 0.1, drawn by a sampler that may double every probability."""
    event = Drawn(Approximate(Pure(0.0), 0.1), excess=2 * math.log(2), failure=0.0)
    assert account_of(event).delta(2 * math.log(2)) >= 0.2
    assert account_of(event).epsilon(0.15) == math.inf


def test_the_ideal_event_keeps_its_unit_and_relation():
    event = so.gaussian(1.0, sampler="lattice").event(so.clip(1.0), Relation.ADD_REMOVE, 10)
    assert as_ideal(event).relation is Relation.ADD_REMOVE
    with pytest.raises(Refused, match="replace-one"):
        epsilon_of(as_ideal(event), 1e-5, Relation.REPLACE_ONE)


def test_a_drawn_event_survives_the_ledger():
    event = lattice.drawn(1.3, 10**6)
    assert event_from_json(event_to_json(event)) == event


def test_the_sampler_adds_next_to_nothing_to_a_large_model():
    """A million parameters and a thousand rounds: less than 1e-9 of delta and 1e-3 of epsilon, by far."""
    for z in (0.35, 1.0, 30.0):
        event = lattice.drawn(z, 10**6)
        assert 1000 * event.excess < 1e-12
        assert 1000 * event.failure < 1e-20
        ideal = account_of(Repeated(Gaussian(z), 1000))
        assert account_of(Repeated(event, 1000)).epsilon(1e-6) == pytest.approx(ideal.epsilon(1e-6), rel=1e-12)


@dataclass(frozen=True)
class Silent(FedAvg):
    """Pays for its side scalars, and lets them go without noise."""

    def side_noise_std(self):
        return None


def test_a_side_scalar_without_noise_is_refused():
    made = so.fedavg(local_steps=1, local_lr=0.1, bound=so.adaptive_clip(0.5, indicator_noise_std=5.0))
    silent = pytree(Silent)(*(getattr(made, field.name) for field in fields(made)))
    with pytest.raises(InvalidInput, match="side_noise_std"):
        so.plan(silent, rounds=2, noise_multiplier=1.0).resolve(Population(10, 100))


FEDAVG = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(0.5))
ADAPTIVE = so.fedavg(local_steps=1, local_lr=0.1, bound=so.adaptive_clip(0.5, indicator_noise_std=5.0))
FEDEXP = so.fedexp(local_steps=1, local_lr=0.1, bound=so.clip(0.5))


@pytest.mark.parametrize("method", [FEDAVG, ADAPTIVE, FEDEXP])
@pytest.mark.parametrize("cohort", ["full", "poisson:0.2"])
def test_calibrated_lattice_noise_meets_its_target(method, cohort):
    plan = so.plan(method, rounds=30, cohort=cohort, epsilon=3.0, delta=1e-5)
    certificate = plan.resolve(Population(10_000, 1000)).certificate
    epsilon = certificate.total(Observer.MODEL_USER).epsilon
    assert certificate.draws is Draws.LATTICE
    assert 3.0 * (1 - 1e-4) < epsilon <= 3.0


@pytest.mark.parametrize("relation", Relation)
def test_a_noise_multiplier_is_that_of_the_lattice(relation):
    """The noise is a little larger than without rounding, and its multiplier what was asked for."""
    plan = so.plan(FEDAVG, rounds=1, noise_multiplier=2.0, delta=1e-6, relation=str(relation))
    resolved = plan.resolve(Population(10**6, 1000))
    sensitivity = 0.5 * relation.sensitivity_factor
    assert resolved.summary["noise_multiplier"] == pytest.approx(2.0, rel=1e-12)
    assert resolved.summary["noise_multiplier"] >= 2.0
    assert 1.0005 < resolved.mechanism.noise_std / (2.0 * sensitivity) < 1.01


@pytest.mark.parametrize(
    ("options", "draws"),
    [
        ({"noise_multiplier": 1.0}, Draws.LATTICE),
        ({"noise_multiplier": 1.0, "sampler": "lattice"}, Draws.LATTICE),
        ({"noise_multiplier": 1.0, "sampler": "float32"}, Draws.FLOAT32),
        ({"noise_multiplier": 1.0, "mechanism": "laplace"}, Draws.FLOAT32),
        ({"noise_multiplier": 1.0, "trust": "local"}, Draws.SIMULATED_MESSAGES),
        ({"message_epsilon": 1.0, "levels": 8, "mechanism": "qtdl", "noise": "laplace"}, Draws.FLOAT32),
        ({"mechanism": "none"}, Draws.NONE),
    ],
)
def test_a_certificate_says_how_noise_is_drawn(options, draws):
    certificate = so.plan(FEDAVG, rounds=2, **options).resolve(Population(10, 100)).certificate
    assert certificate.draws is draws
    assert certificate.to_json()["draws"] == draws
    assert so.privacy.Certificate.from_json(certificate.to_json()) == certificate


def test_records_are_protected_by_simulated_messages():
    method = so.noisy_mb_sgd(lipschitz=1.0, radius=10.0, smoothness=1.0)
    sizes = tuple([50] * 4)
    plan = so.plan(method, rounds=2, noise_multiplier=1.0, trust="local")
    assert plan.resolve(Population(10, 4, sizes=sizes)).certificate.draws is Draws.SIMULATED_MESSAGES


def test_a_large_epsilon_takes_the_least_noise_that_is_proven():
    resolved = so.plan(FEDAVG, rounds=1, epsilon=1000.0, delta=1e-5).resolve(Population(10, 100))
    assert resolved.summary["noise_multiplier"] == pytest.approx(lattice.LEAST_MULTIPLIER, rel=1e-9)
    assert resolved.certificate.total(Observer.MODEL_USER).epsilon < 100
    with pytest.raises(InvalidInput, match="noise_multiplier"):
        so.plan(FEDAVG, rounds=1, noise_multiplier=0.1, delta=1e-5).resolve(Population(10, 100))
