"""Error feedback whose clients remember their noise: it does not pile up, and nobody may count on the noise of others.

Gradients are constant here, the number that a client holds, so that the models show g^k and nothing else.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sordino as so
from sordino.privacy.audit import audit
from sordino.privacy.events import Gaussian, Repeated
from sordino.simulation.cohort import Full
from sordino.simulation.engine import Carry, Records, Setting, run_rounds
from sordino.types import Observer, Relation

STD, CLIENTS, ROUNDS, DELTA = 0.5, 900, 60, 1e-3


def slope(w, batch):
    return jnp.sum(w) * batch.x[0, 0]


def plan_of(remember: bool):
    method = so.error_feedback(beta=1.0, server_lr=1.0, bound=so.clip(1.0), remember_noise=remember)
    return so.plan(method, rounds=ROUNDS, noise_multiplier=STD / 2, trust="local", relation="replace-one", delta=DELTA)


@functools.partial(jax.jit, static_argnames=("remember", "clients", "trials"))
def last_models(held, *, remember: bool, clients: int, trials: int) -> jax.Array:
    """x after all rounds, for `trials` keys; client 0 holds `held`, all others 0."""
    resolved = plan_of(remember).resolve(1, clients)
    method = resolved.algorithm
    x = jnp.zeros((clients, 1)).at[0].set(held)
    records = Records(x, jnp.zeros(clients, jnp.int32), jnp.arange(clients), jnp.ones(clients, jnp.int32))
    setting = Setting(slope, Full(), clients, 1, "local", clients)
    carry = Carry(method.init_server(jnp.zeros(1)), jnp.zeros((clients, 1)))

    def one(key):
        rounds = run_rounds(
            method, resolved.mechanism, records, carry, key, jnp.int32(0), setting=setting, rounds=ROUNDS
        )
        return rounds[0].server.x[0]

    return jax.lax.map(one, jax.random.split(jax.random.key(3), trials))


@pytest.mark.parametrize("remember", [True, False], ids=["remembered", "as in the box"])
def test_a_client_gains_from_others_noise_only_where_they_forget_it(remember):
    """A gradient 30 times the bound gets through bit by bit; remembered noise is taken off again, so that it shows."""
    here, there = (
        np.asarray(last_models(held, remember=remember, clients=CLIENTS, trials=1500), np.float64)
        for held in (-30.0, 30.0)
    )
    shown = audit(here, there, DELTA, 0.99)
    everybodys_noise = so.epsilon_of(
        Repeated(Gaussian(STD / 2 * np.sqrt(CLIENTS)), ROUNDS), DELTA, Relation.REPLACE_ONE
    )
    assert (shown.epsilon_lower > everybodys_noise) == remember
    certificate = plan_of(remember).resolve(1, CLIENTS).certificate
    user, server = (certificate.total(who).epsilon for who in (Observer.MODEL_USER, Observer.SERVER))
    assert shown.epsilon_lower <= user
    if remember:
        assert user == server
    else:
        assert user == pytest.approx(everybodys_noise)


def test_remembered_noise_does_not_pile_up():
    """x is minus the sum of all g^k: of independent errors if noise is remembered, of random walks if it is not."""
    spreads = [
        np.std(np.asarray(last_models(0.0, remember=remember, clients=4, trials=400))) for remember in (True, False)
    ]
    one_round = STD / np.sqrt(4)
    assert spreads[0] < 1.6 * one_round * np.sqrt(ROUNDS)
    assert spreads[1] == pytest.approx(one_round * np.sqrt(sum(k**2 for k in range(1, ROUNDS + 1))), rel=0.15)
