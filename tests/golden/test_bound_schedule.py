"""Bounds that follow a schedule, and local steps uphill (SAM), on the toy of `test_fedexp` against NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sordino as so
from sordino.algorithms.scaffold import CONTROLS
from sordino.errors import InvalidInput
from sordino.mechanisms import gaussian, none
from sordino.tasks import Population
from sordino.types import PlanContext, Relation, Trust
from tests.golden.test_fedexp import ETA, TAU, W0, C, X, Y, clip, local, records, run, squared_loss
from tests.toys import rounds_of, rules_for

FALLING = {"values": [1.0, 0.5, 0.1], "until": [1, 2]}
USUAL = {"local_steps": TAU, "local_lr": ETA}
METHODS = {
    "fedavg": lambda **options: so.fedavg(**USUAL, **options),
    "fedexp": lambda **options: so.fedexp(**USUAL, **options),
    "error feedback": lambda **options: so.error_feedback(beta=0.5, server_lr=0.2, **options),
} | {
    f"scaffold, {control}": lambda control=control, **options: so.scaffold(**USUAL, control=control, **options)
    for control in CONTROLS
}


def test_fedavg_with_a_falling_bound_by_hand():
    w = W0
    for share in FALLING["values"]:
        w = w + np.mean([clip(local(w, x, y) - w, share * C) for x, y in zip(X, Y, strict=True)], axis=0)
    _, state, _ = run(so.fedavg(**USUAL, bound=so.clip(C), message="difference", bound_schedule=FALLING), 3)
    np.testing.assert_allclose(state.server.w, w, atol=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_every_round_is_a_round_of_the_method_with_that_bound(name):
    """From one state to the next, by the method whose bound is that of the round: states, and FedEXP's step size."""
    _, whole, told = run(METHODS[name](bound=so.clip(C), bound_schedule=FALLING), 3)
    state = None
    for k, share in enumerate(FALLING["values"]):
        method = METHODS[name](bound=so.clip(share * C))
        method = method.resolve(PlanContext(2, 2, 2.0, mechanism=none(), relation=Relation.REPLACE_ONE))
        given = {} if state is None else {"state": state}
        state, info = rounds_of(rules_for(method, 2), records(), squared_loss, W0, 1, first=k, **given)
        if name == "fedexp":
            np.testing.assert_allclose(info.server.step_size[0], told.server.step_size[k], rtol=1e-4)
        np.testing.assert_allclose(info.mean_norm[0], told.mean_norm[k], rtol=1e-4)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=1e-5), whole, state)


def test_noise_shrinks_with_the_bound_and_costs_the_same():
    """Gradients are zero: the model shows the noise alone, which has the same draws in every run."""
    moved, certificates = [], []
    for schedule in (None, 0.25):
        method = so.fedavg(**USUAL, bound=so.clip(C), message="difference", bound_schedule=schedule)
        resolved = method.resolve(PlanContext(2, 2, 2.0, trust=Trust.CENTRAL, mechanism=gaussian(1.0)))
        rules = rules_for(resolved, 2, Trust.CENTRAL, gaussian(1.0))
        state, _ = rounds_of(rules, records(), lambda w, batch: 0.0 * jnp.sum(w), W0, 1)
        moved.append(np.asarray(state.server.w, np.float64) - W0)
        plan = so.plan(method, rounds=3, epsilon=2.0, delta=1e-3)
        certificates.append(plan.resolve(Population(2, 20)).certificate)
    np.testing.assert_allclose(moved[1], 0.25 * moved[0], rtol=1e-4)
    assert certificates[0] == certificates[1]


@pytest.mark.parametrize("schedule", [0.0, 1e7, {"values": [1.0, 0.0], "until": [2]}])
def test_shares_that_no_bound_can_have_are_refused(schedule):
    def resolved():
        method = so.fedavg(**USUAL, bound=so.clip(C), bound_schedule=schedule)
        return so.plan(method, rounds=5).resolve(Population(2, 20))

    with pytest.raises(InvalidInput) as caught:
        resolved()
    assert caught.value.field == "bound_schedule"


@pytest.mark.parametrize("bound", [None, so.adaptive_clip(0.5, indicator_noise_std=1.0)], ids=["none", "adaptive"])
def test_only_a_bound_that_stays_takes_a_schedule(bound):
    with pytest.raises(InvalidInput, match="bound_schedule"):
        run(so.fedavg(**USUAL, bound=bound, bound_schedule=0.5), 1)


# --- Local steps uphill -------------------------------------------------------------------------------------------

RHO = 0.3


def gradient(w, x, y):
    return x.T @ (x @ w - y) / len(y)


def sam_by_hand(w, x, y):
    for _ in range(TAU):
        g = gradient(w, x, y)
        w = w - ETA * gradient(w + RHO * g / np.linalg.norm(g), x, y)
    return w


@pytest.mark.parametrize("make", [so.fedavg, so.fedexp])
def test_local_steps_of_sam(make):
    _, state, _ = run(make(**USUAL, sam_radius=RHO, output="last"), 1)
    Delta = [sam_by_hand(W0, x, y) - W0 for x, y in zip(X, Y, strict=True)]
    mean = np.mean(Delta, axis=0)
    eta_g = max(1.0, np.mean([v @ v for v in Delta]) / (mean @ mean)) if make is so.fedexp else 1.0
    np.testing.assert_allclose(state.server.w, W0 + eta_g * mean, atol=1e-5)
    _, plain, _ = run(make(**USUAL, output="last"), 1)
    assert np.linalg.norm(np.asarray(plain.server.w) - np.asarray(state.server.w)) > 1e-3


def test_at_a_stationary_point_sam_stays():
    method = so.fedavg(**USUAL, sam_radius=RHO).resolve(PlanContext(2, 2, 2.0, mechanism=none()))
    state, _ = rounds_of(rules_for(method, 2), records(), lambda w, batch: 0.0 * jnp.sum(w), W0, 1)
    np.testing.assert_allclose(state.server.w, W0, atol=1e-7)
