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
from sordino.algorithms.local import ClientData
from sordino.privacy.audit import audit
from sordino.privacy.events import Gaussian, Repeated
from sordino.tasks import Population, Records
from sordino.types import Observer, Relation
from tests.toys import rounds_of

STD, CLIENTS, ROUNDS, DELTA = 0.5, 900, 60, 1e-3


def slope(w, batch):
    return jnp.sum(w) * batch.x[0, 0]


def plan_of(remember: bool):
    method = so.error_feedback(beta=1.0, server_lr=1.0, bound=so.clip(1.0), remember_noise=remember)
    return so.plan(method, rounds=ROUNDS, noise_multiplier=STD / 2, trust="local", relation="replace-one", delta=DELTA)


@functools.partial(jax.jit, static_argnames=("remember", "clients", "trials"))
def last_models(held, *, remember: bool, clients: int, trials: int) -> jax.Array:
    """x after all rounds, for `trials` keys; client 0 holds `held`, all others 0."""
    rules = plan_of(remember).resolve(Population(1, clients)).rules
    x = jnp.zeros((clients, 1)).at[0].set(held)
    records = Records(x, jnp.zeros(clients, jnp.int32), jnp.arange(clients), np.ones(clients, np.int32))

    def one(seed):
        return rounds_of(rules, records, slope, jnp.zeros(1), ROUNDS, seed=seed)[0].server.x[0]

    return jax.lax.map(one, 3 * trials + jnp.arange(trials), batch_size=100)


@pytest.mark.parametrize("remember", [True, False], ids=["remembered", "as in the box"])
def test_a_client_gains_from_others_noise_only_where_they_forget_it(remember):
    """A gradient 30 times the bound gets through bit by bit; remembered noise is taken off again, so that it shows."""
    trials = 600 if remember else 1500  # remembered noise is drawn message by message, and hides nothing
    here, there = (
        np.asarray(last_models(held, remember=remember, clients=CLIENTS, trials=trials), np.float64)
        for held in (-30.0, 30.0)
    )
    shown = audit(here, there, DELTA, 0.99)
    everybodys_noise = so.epsilon_of(
        Repeated(Gaussian(STD / 2 * np.sqrt(CLIENTS)), ROUNDS), DELTA, Relation.REPLACE_ONE
    )
    assert (shown.epsilon_lower > everybodys_noise) == remember
    certificate = plan_of(remember).resolve(Population(1, CLIENTS)).certificate
    user, server = (certificate.total(observer).epsilon for observer in (Observer.MODEL_USER, Observer.SERVER))
    assert user == pytest.approx(server if remember else everybodys_noise)
    assert shown.epsilon_lower <= user


def test_remembered_noise_does_not_pile_up():
    """x is minus the sum of all g^k: of independent errors if noise is remembered, of random walks if it is not."""
    spreads = [
        np.std(np.asarray(last_models(0.0, remember=remember, clients=4, trials=400))) for remember in (True, False)
    ]
    one_round = STD / np.sqrt(4)
    assert spreads[0] < 1.6 * one_round * np.sqrt(ROUNDS)
    assert spreads[1] == pytest.approx(one_round * np.sqrt(sum(k**2 for k in range(1, ROUNDS + 1))), rel=0.15)


@pytest.mark.parametrize(
    ("length", "rounds", "levelled"),
    [(4.0, 200, True), (40.0, 50, False)],
    ids=["compensated", "too long to be compensated"],
)
def test_a_client_takes_off_at_most_beta_a_round(length, rounds, levelled):
    """Noise of length s is a random walk for s^2/4 rounds and levels off near beta s^2/2: nothing is gained before."""
    d, beta = 400, 0.1
    method = so.error_feedback(beta=beta, server_lr=0.1, bound=so.smoothed_normalize(0.01), remember_noise=True)
    noise, received = so.gaussian(length / np.sqrt(d)), method.broadcast(method.init_server(jnp.zeros(d)))
    data = ClientData.own(lambda w, batch: 0.0 * jnp.sum(w), jnp.zeros((1, 1)), jnp.zeros(1))

    def step(memory, key):
        message, after, _ = method.client(key, received, memory, data)
        return method.after_noise(received, memory, after, noise.randomize(key, message.vector)), None

    memory, _ = jax.lax.scan(step, jnp.zeros(d), jax.random.split(jax.random.key(5), rounds))
    walk, level = beta * length * np.sqrt(rounds), beta * length**2 / 2
    assert float(jnp.linalg.norm(memory)) == pytest.approx(level if levelled else walk, rel=0.15)
    assert (level < walk / 5) == levelled
