"""DP-SCAFFOLD at record level: what one record moves, and the noise of every local step, which is all there is."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import sordino as so
from sordino.algorithms.local import ClientData
from sordino.data import FederatedData
from sordino.models import linear
from sordino.planning import ResolvedPlan, Rules
from sordino.tasks import Task
from tests.toys import rounds_of

D, C, ETA = 20, 0.5, 0.1
SIZES = np.array([12, 30, 8], np.int32)
BATCH = np.array([10, 10, 8])  # of ten, or all of a client that has fewer


def task() -> Task:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(SIZES.sum(), D)).astype(np.float32)
    y = rng.normal(size=SIZES.sum()).astype(np.float32)
    start = (np.cumsum(SIZES) - SIZES).astype(np.int32)
    return Task("toy", FederatedData(x, y, start, SIZES, x, y, 0), linear("ridge", D))


TASK = task()
RECORDS = TASK.records


def resolved(local_steps=1, rounds=1, batch_size=10, **privacy) -> ResolvedPlan:
    settings = {"local_steps": local_steps, "local_lr": ETA, "bound": so.clip(C), "batch_size": batch_size}
    return so.plan(so.record_scaffold(**settings), rounds=rounds, **privacy).resolve(TASK.population)


def data(rules: Rules, i, x=None, y=None) -> ClientData:
    r, numbers = RECORDS, jax.tree.map(lambda leaf: leaf[i], rules.numbers)
    x, y = r.x if x is None else jnp.asarray(x), r.y if y is None else jnp.asarray(y)
    return ClientData(TASK.loss, x, y, r.start[i], r.size[i], TASK.largest, numbers)


@jax.jit
def gradient(rules: Rules, key, i, x, y):
    """The noisy gradient of client i at one point: one program for all clients, records and noises."""
    w = jnp.asarray(np.random.default_rng(1).normal(size=D), jnp.float32)
    return rules.method.noisy_gradient(key, w, data(rules, i, x, y))[0]


@pytest.mark.parametrize("noise", [{}, {"noise_multiplier": 1.0, "trust": "local"}], ids=["plain", "noisy"])
@pytest.mark.parametrize("i", [0, 1, 2])
def test_one_record_moves_a_gradient_by_at_most_the_declared_sensitivity(i, noise):
    """Whatever the record is; sample and noise are the same in both. A record and its opposite reach it."""
    rules = resolved(**noise).rules
    x, y, first = np.asarray(RECORDS.x), np.asarray(RECORDS.y), int(RECORDS.start[i])
    largest, opposed = 0.0, 0.0
    for seed in range(4):
        for place in range(first, first + int(SIZES[i])):
            key = jax.random.key(seed)
            usual = gradient(rules, key, i, x, y)
            for replaced in (np.full(D, 1e6), np.zeros(D), np.full(D, np.nan)):
                other = x.copy()
                other[place] = replaced
                largest = max(largest, float(np.linalg.norm(usual - gradient(rules, key, i, other, y))))
            up, down = y.copy(), y.copy()
            up[place], down[place] = 1e6, -1e6
            moved = gradient(rules, key, i, x, up) - gradient(rules, key, i, x, down)
            opposed = max(opposed, float(np.linalg.norm(moved)))
    declared = 2 * C / BATCH[i]
    assert 0 < largest <= declared * (1 + 1e-4)
    assert opposed == pytest.approx(declared, rel=1e-4)


def test_every_client_draws_noise_of_its_own_scale_in_the_first_step():
    """KS tests of 500 gradients less the same without noise, at 1e-6; the std of the next client is rejected."""
    noisy, clean = resolved(noise_multiplier=3.0, trust="local"), resolved()
    std = 3.0 * 2 * C / BATCH
    np.testing.assert_allclose(noisy.rules.numbers.noise_std, std, rtol=1e-6)
    keys = jax.random.split(jax.random.key(2), 500)
    for i, other in ((0, 2), (1, 2), (2, 0)):
        noise = gradients(noisy.rules, i, keys) - gradients(clean.rules, i, keys)
        assert stats.kstest(np.ravel(noise), "norm", (0, std[i])).pvalue > 1e-6
        assert stats.kstest(np.ravel(noise), "norm", (0, std[other])).pvalue < 1e-6


@jax.jit
def gradients(rules: Rules, i: jax.Array, keys: jax.Array) -> jax.Array:
    return jax.vmap(lambda key: rules.method.noisy_gradient(key, jnp.ones(D), data(rules, i))[0])(keys)


def messages(plan: ResolvedPlan, seeds: int, transcript: bool = True):
    """The first round's (messages, server's state) for every seed."""

    def one(seed):
        spec = {"seed": seed, "chunk": 2, "transcript": transcript}
        after, info = rounds_of(plan.rules, TASK.records, TASK.loss, jnp.zeros(D), 1, **spec)
        return (info.transcript[2][0] if transcript else None), after.server

    return jax.vmap(one)(jnp.arange(seeds))


@pytest.mark.parametrize("K", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_message_holds_the_noise_of_its_steps_and_no_other(K):
    """With noise far above the gradients Delta y has std eta sqrt(K) sigma_i, and Delta c is Delta y / (K eta).

    KS tests at 1e-6; the std of noise that falls once more than there are steps is rejected.
    """
    sent = np.asarray(messages(resolved(K, noise_multiplier=200.0, trust="local"), 800)[0])
    for i in range(3):
        y, c = np.split(sent[:, i], 2, axis=1)
        std = ETA * math.sqrt(K) * 200.0 * 2 * C / BATCH[i]
        assert stats.kstest(y.ravel(), "norm", (0, std)).pvalue > 1e-6
        assert stats.kstest(y.ravel(), "norm", (0, math.sqrt((K + 1) / K) * std)).pvalue < 1e-6
        np.testing.assert_allclose(c, y / (K * ETA), rtol=1e-4, atol=1e-3)


@pytest.mark.slow
def test_the_engine_adds_nothing():
    """The server's x and c are those of the messages as sent, with a transcript and without."""
    plan = resolved(2, noise_multiplier=2.0, trust="local")
    sent, server = messages(plan, 5)
    mean_y, mean_c = np.split(np.mean(sent, axis=1), 2, axis=1)
    np.testing.assert_allclose(server.x, -mean_y, atol=1e-6)
    np.testing.assert_allclose(server.c, mean_c, atol=1e-6)
    np.testing.assert_allclose(messages(plan, 5, transcript=False)[1].x, server.x, atol=1e-6)


def test_every_step_draws_a_sample_of_its_own():
    """Batches of one: two steps see the same of 8 records one time in 8 (binomial test at 1e-6)."""
    size, trials = 8, 4000
    x = np.eye(size, dtype=np.float32)
    zero = np.zeros(size, np.float32)
    sizes, start = np.array([size], np.int32), np.array([0], np.int32)
    toy = Task("toy", FederatedData(x, zero + 1, start, sizes, x, zero, 0), linear("ridge", size))
    method = so.record_scaffold(local_steps=2, local_lr=1e-3, bound=so.clip(1.0), batch_size=1)
    plan = so.plan(method, rounds=1).resolve(toy.population)
    received, c_i = plan.method.broadcast(plan.method.init_server(jnp.zeros(size))), jnp.zeros(size)
    own = jax.tree.map(lambda leaf: leaf[0], plan.rules.numbers)
    mine = ClientData.own(toy.loss, toy.records.x, toy.records.y, own)
    send = jax.jit(jax.vmap(lambda key: plan.method.client(key, received, c_i, mine)[0].vector))
    sent = send(jax.random.split(jax.random.key(3), trials))
    seen = np.count_nonzero(np.asarray(sent)[:, :size], axis=1)  # how many coordinates, a record each, have moved
    assert set(seen) == {1, 2}
    assert stats.binomtest(int(np.sum(seen == 1)), trials, 1 / size).pvalue > 1e-6
