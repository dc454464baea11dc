"""Training loss and gradient norms as private releases: their values by hand, their noise, and their price."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sordino as so
from sordino.errors import InvalidInput
from sordino.mechanisms import gaussian
from sordino.rounds.turns import ServerKeys, server_turn
from sordino.tasks import Population
from sordino.types import Aggregate, Observer, PlanContext, Relation, Trust
from tests.golden.test_fedexp import ETA, TAU, W0, X, Y, run
from tests.toys import rules_for, toy

B = 1.5
USUAL = {"local_steps": TAU, "local_lr": ETA}


def metric(name, bound=B, noise_std=0.5):
    return {"name": name, "bound": bound, "noise_std": noise_std}


def losses(w):
    return [0.5 * np.mean((x @ w - y) ** 2) for x, y in zip(X, Y, strict=True)]


def norms(w):
    return [np.linalg.norm(x.T @ (x @ w - y) / len(y)) for x, y in zip(X, Y, strict=True)]


@pytest.mark.parametrize(("name", "by_hand", "B"), [("loss", losses, 1.0), ("gradient-norm", norms, 1.6)])
def test_without_noise_it_is_the_mean_of_capped_values(name, by_hand, B):
    values = by_hand(W0)
    assert max(values) > B > min(values)  # the cap takes part
    _, _, info = run(so.fedavg(**USUAL, private_metric=metric(name, B)), 1)
    (told,) = info.server
    assert float(told[0]) == pytest.approx(np.mean(np.minimum(values, B)), rel=1e-5)


def test_the_noise_has_its_scale():
    method = so.fedavg(**USUAL, bound=so.clip(1.0), private_metric=metric("loss", noise_std=3.0))
    method = method.resolve(PlanContext(2, 10, 10.0, trust=Trust.CENTRAL, mechanism=gaussian(1e-6)))
    rules, state = rules_for(method, 10, Trust.CENTRAL, gaussian(1e-6)), method.init_server(jnp.zeros(2))
    total = Aggregate(jnp.zeros(2), side=jnp.float32(8.0), cohort=10)
    keys = jax.random.split(jax.random.key(1), 4000)
    told = jax.vmap(lambda key: server_turn(rules, ServerKeys(key, key, key), state, total)[1].method.private_loss)(
        keys
    )
    assert np.mean(told) == pytest.approx(0.8, abs=0.02)
    assert np.std(told) == pytest.approx(0.3, rel=0.06)


@pytest.mark.parametrize(
    ("cohort", "relation", "moved"),
    [("full", "add-remove", 1), ("full", "replace-one", 1), ("poisson:0.5", "replace-one", 2)],
)
def test_its_price_is_in_the_certificate(cohort, relation, moved):
    method = so.fedavg(**USUAL, bound=so.clip(1.0), private_metric=metric("loss", noise_std=6.0))
    plan = so.plan(method, rounds=9, cohort=cohort, noise_multiplier=2.0, relation=relation, sampler="float32")
    resolved = plan.resolve(Population(2, 100))
    event = resolved.method.side_event(Relation.parse(relation))
    assert event.noise_multiplier == pytest.approx(6.0 / (moved * B))
    if cohort == "full":
        mu = 3 * math.hypot(1 / 2.0, B / 6.0)
        total = resolved.certificate.total(Observer.MODEL_USER)
        assert total.epsilon == pytest.approx(so.epsilon_of(so.events.Gaussian(1 / mu), total.delta, relation))
        assert resolved.summary["epsilon_without_metric"] < total.epsilon


def test_calibration_leaves_room_for_it():
    method = so.fedavg(**USUAL, bound=so.clip(1.0), private_metric=metric("loss", noise_std=30.0))
    plain = so.fedavg(**USUAL, bound=so.clip(1.0))
    resolved, without = (
        so.plan(each, rounds=9, epsilon=4.0, delta=1e-5).resolve(Population(2, 100)) for each in (method, plain)
    )
    assert resolved.certificate.total(Observer.MODEL_USER).epsilon <= 4.0
    assert float(resolved.mechanism.noise_std) > float(without.mechanism.noise_std)


def test_no_neighbour_moves_the_sum_by_more_than_the_bound():
    """A client whose loss is anything, infinite or NaN too, adds a number of [0, B]."""
    task = toy()
    for name in ("loss", "gradient-norm"):
        rule = so.fedavg(**USUAL, private_metric=metric(name)).metric
        for scale in (0.0, 1.0, 1e20, np.inf, np.nan):
            data = so.algorithms.local.ClientData.own(task.loss, scale * task.data.x[:3], task.data.y[:3])
            value = float(rule(jnp.ones(task.d), data))
            assert 0 <= value <= B


def test_a_run_reports_it_beside_what_it_released(tmp_path):
    method = so.fedavg(**USUAL, bound=so.clip(1.0), private_metric=metric("loss", noise_std=10.0))
    plan = so.plan(method, rounds=2, epsilon=8.0, delta=1e-3)
    row = so.simulate(plan, toy(), seed=0).history[-1]
    assert math.isfinite(row["private_loss"])
    assert "private_loss" not in row["not_private"]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"private_metric": metric("accuracy")}, "private_metric"),
        ({"private_metric": {"name": "loss", "bound": 1.0}}, "private_metric"),
        ({"private_metric": metric("loss", bound=0.0)}, "private_metric bound"),
        ({"private_metric": metric("loss", noise_std=math.nan)}, "private_metric noise_std"),
        ({"private_metric": metric("loss"), "step_size": "corrected"}, "private_metric"),
        (
            {"private_metric": metric("loss"), "bound": so.adaptive_clip(1.0, indicator_noise_std=1.0)},
            "private_metric",
        ),
    ],
)
def test_what_cannot_be_is_refused(options, field):
    with pytest.raises(InvalidInput) as caught:
        so.fedavg(**(USUAL | {"bound": so.clip(1.0)} | options))
    assert caught.value.field == field


def test_only_a_trusted_server_can_add_its_noise():
    method = so.fedavg(**USUAL, bound=so.clip(1.0), private_metric=metric("loss"))
    plan = so.plan(method, rounds=2, noise_multiplier=1.0, trust="local")
    with pytest.raises(InvalidInput):
        plan.resolve(Population(2, 20))
