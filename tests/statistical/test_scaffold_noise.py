"""SCAFFOLD at client level: where noise adds up, and audits of what a round and a whole run show of one client.

Gradients are constant here, the number that a client holds. Audits have confidence 0.999 and fixed keys.
"""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sordino as so
from sordino.algorithms.scaffold import CONTROLS
from sordino.mechanisms import gaussian
from sordino.privacy.audit import audit
from sordino.rounds.auditing import audit_release
from sordino.tasks import Population, Records
from sordino.types import Observer, PlanContext, Relation, Trust
from tests.toys import rounds_of, rules_for

READINGS = list(itertools.product(CONTROLS, (False, True)))
CLIENTS, ROUNDS, SHOWN, DELTA = 25, 12, 4, 1e-2


def slope(w, batch):
    return jnp.sum(w) * batch.x[0, 0]


def scaffold(control: str, remember: bool, C: float):
    return so.scaffold(local_steps=1, local_lr=1.0, bound=so.clip(C), control=control, remember_noise=remember)


def records(held) -> Records:
    """Client 0 holds `held`, all others 0."""
    x = jnp.zeros((CLIENTS, 1)).at[0].set(held)
    return Records(x, jnp.zeros(CLIENTS, jnp.int32), jnp.arange(CLIENTS), np.ones(CLIENTS, np.int32))


@pytest.mark.parametrize(("control", "remember"), READINGS)
def test_noise_adds_up_in_c_unless_it_is_remembered_or_c_is_fresh(control, remember):
    """No message is clipped: c is a random walk, or the mean of the noise of one round."""
    context = PlanContext(400, CLIENTS, CLIENTS, trust=Trust.LOCAL, mechanism=gaussian(1.0))
    rules = rules_for(scaffold(control, remember, 1e4).resolve(context), CLIENTS, Trust.LOCAL, gaussian(1.0))
    state, _ = rounds_of(rules, records(0.0), slope, jnp.zeros(400), ROUNDS)
    adds_up = control != "fresh" and not remember
    expected = np.sqrt(ROUNDS if adds_up else 1) / np.sqrt(CLIENTS)
    assert np.std(np.asarray(state.server.c)) == pytest.approx(expected, rel=0.2)  # 400 draws: 5.6 standard errors


def plan_of(control: str, remember: bool):
    method = scaffold(control, remember, 1.0)
    options = {"trust": "local", "relation": "replace-one", "delta": DELTA}
    return so.plan(method, rounds=SHOWN, noise_multiplier=0.3, **options).resolve(Population(1, CLIENTS))


@functools.partial(jax.jit, static_argnames=("control", "remember", "trials"))
def models(held, *, control: str, remember: bool, trials: int) -> jax.Array:
    """The last model of `trials` runs."""

    def one(seed):
        rules = plan_of(control, remember).rules
        return rounds_of(rules, records(held), slope, jnp.zeros(1), SHOWN, seed=seed)[0].server.x[0]

    return jax.lax.map(one, 7 * trials + jnp.arange(trials), batch_size=100)


@pytest.mark.parametrize(
    ("control", "remember"),
    [pytest.param(*reading, marks=pytest.mark.slow) if reading[1] else reading for reading in READINGS],
)
def test_what_all_models_show_of_a_client_is_within_the_certificate(control, remember):
    """A client whose gradient is 30 times the bound sends it bit by bit, through y and through c."""
    here, there = (
        np.asarray(models(held, control=control, remember=remember, trials=1000), np.float64) for held in (-30.0, 30.0)
    )
    promised = plan_of(control, remember).certificate.total(Observer.MODEL_USER)
    shown = audit(here, there, DELTA, 0.999)
    assert shown.epsilon_lower <= promised.epsilon
    assert remember or shown.epsilon_lower > 0.05 * promised.epsilon  # the audit sees something


@pytest.mark.parametrize("trust", ["local", "central"])
@pytest.mark.parametrize("control", CONTROLS)
def test_what_a_round_shows_is_within_the_certificate(control, trust):
    method = scaffold(control, False, 1.0)
    relation = Relation.REPLACE_ONE
    plan = so.plan(method, rounds=3, noise_multiplier=0.5, trust=trust, relation=str(relation), delta=DELTA)
    found = audit_release(plan, plan.resolve(Population(2, 4)), 2, trials=4000)
    assert found.consistent
    assert found.shown.epsilon_lower > 0.3 * found.certified.epsilon  # the audit sees something
