"""DP-SCAFFOLD at record level, without noise, on a toy of two clients, against the module's lines in NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sordino as so
from sordino.data import FederatedData
from sordino.models import linear
from sordino.runs.setup import setting_of
from sordino.simulation import Task
from sordino.simulation.engine import Carry, run_rounds

# Client 0 holds two records, client 1 three.
X = [np.array([[0.6, 0.8], [-1.0, 0.5]]), np.array([[0.5, -1.0], [0.3, 0.4], [0.0, 2.0]])]
Y = [np.array([1.0, -2.0]), np.array([0.5, 3.0, -1.0])]
W0 = np.array([0.3, -0.2])
ETA, K, C = 0.1, 3, 0.7


def toy() -> Task:
    size = np.array([2, 3], np.int32)
    x, y = np.concatenate(X).astype(np.float32), np.concatenate(Y).astype(np.float32)
    return Task("toy", FederatedData(x, y, np.array([0, 2], np.int32), size, x, y, 0), linear("ridge", 2))


def run(rounds: int, cohort="full", **settings):
    """(the server's and the clients' states, who took part in every round)."""
    task = toy()
    method = so.scaffold(local_steps=K, local_lr=ETA, bound=so.clip(C), protects="records", **settings)
    plan = so.plan(method, rounds=rounds, cohort=cohort)
    resolved = plan.resolve(task.d, task.clients, task)
    setting = setting_of(plan, resolved, task, chunk=2, transcript=True)
    server = resolved.algorithm.init_server(jnp.asarray(W0, jnp.float32))
    carry = Carry(server, jnp.zeros((2, 2)))
    key = jax.random.key(0)
    arguments = (resolved.algorithm, resolved.mechanism, task.records, carry, key, jnp.int32(0))
    carry, info = run_rounds(*arguments, setting=setting, rounds=rounds)
    who, here, _ = info.transcript
    return carry, [[int(i) for i, there in zip(*row, strict=True) if there] for row in zip(who, here, strict=True)]


def by_hand(cohorts, server_lr=1.0, weight_decay=0.0):
    """(x, c, [c_0, c_1])."""
    x, c, c_i = W0, np.zeros(2), [np.zeros(2), np.zeros(2)]
    for cohort in cohorts:
        delta_y, delta_c = np.zeros(2), np.zeros(2)
        for i in cohort:
            y = x
            for _ in range(K):
                each = [(a @ y - b) * a for a, b in zip(X[i], Y[i], strict=True)]
                H = np.mean([g * min(1.0, C / np.linalg.norm(g)) for g in each], axis=0)
                y = y - ETA * (H + weight_decay * y - c_i[i] + c)
            plus = c_i[i] - c + (x - y) / (K * ETA)
            delta_y, delta_c = delta_y + y - x, delta_c + plus - c_i[i]
            c_i[i] = plus
        x, c = x + server_lr * delta_y / len(cohort), c + delta_c / 2
    return x, c, c_i


@pytest.mark.parametrize("rounds", [1, 5])
@pytest.mark.parametrize("batch_size", [None, 7])  # more than anybody has: all of them
def test_everybody_takes_part(rounds, batch_size):
    carry, _ = run(rounds, batch_size=batch_size, server_lr=0.8, weight_decay=0.1)
    x, c, c_i = by_hand([[0, 1]] * rounds, 0.8, 0.1)
    np.testing.assert_allclose(carry.server.x, x, atol=1e-6)
    np.testing.assert_allclose(carry.server.c, c, atol=1e-5)
    np.testing.assert_allclose(carry.clients, c_i, atol=1e-5)


@pytest.mark.parametrize("cohort", ["fixed:1", "unreliable:1-2"])
def test_some_take_part(cohort):
    """x moves by the mean of those who answered, c by their share of all; who is absent keeps its c_i."""
    carry, cohorts = run(6, cohort)
    assert {i for cohort in cohorts for i in cohort} == {0, 1}
    assert any(len(cohort) == 1 for cohort in cohorts)
    x, c, c_i = by_hand(cohorts)
    np.testing.assert_allclose(carry.server.x, x, atol=1e-6)
    np.testing.assert_allclose(carry.server.c, c, atol=1e-5)
    np.testing.assert_allclose(carry.clients, c_i, atol=1e-5)
