"""DP-SCAFFOLD at record level, without noise, on a toy of two clients, against the module's lines in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import sordino as so
from sordino.data import FederatedData
from sordino.models import linear
from sordino.tasks import Task
from tests.toys import run_plan

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
    method = so.record_scaffold(local_steps=K, local_lr=ETA, bound=so.clip(C), **settings)
    _, state, info = run_plan(so.plan(method, rounds=rounds, cohort=cohort), toy(), w=W0, transcript=True)
    client_ids, present, _ = info.transcript
    rounds_of_ids = zip(client_ids, present, strict=True)
    return state, [[int(i) for i, there in zip(*row, strict=True) if there] for row in rounds_of_ids]


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


@pytest.mark.parametrize(
    ("rounds", "batch_size"),  # 7: more than anybody has, so all of them
    [(5, None), (1, 7), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((1, None), (5, 7)))],
)
def test_everybody_takes_part(rounds, batch_size):
    state, _ = run(rounds, batch_size=batch_size, server_lr=0.8, weight_decay=0.1)
    x, c, c_i = by_hand([[0, 1]] * rounds, 0.8, 0.1)
    np.testing.assert_allclose(state.server.x, x, atol=1e-5)
    np.testing.assert_allclose(state.server.c, c, atol=1e-5)
    np.testing.assert_allclose(state.clients, c_i, atol=1e-5)


@pytest.mark.parametrize("cohort", ["fixed:1", "unreliable:1-2"])
def test_some_take_part(cohort):
    """x moves by the mean of those who answered, c by their share of all; who is absent keeps its c_i."""
    state, cohorts = run(6, cohort)
    assert {i for cohort in cohorts for i in cohort} == {0, 1}
    assert any(len(cohort) == 1 for cohort in cohorts)
    x, c, c_i = by_hand(cohorts)
    np.testing.assert_allclose(state.server.x, x, atol=1e-5)
    np.testing.assert_allclose(state.server.c, c, atol=1e-5)
    np.testing.assert_allclose(state.clients, c_i, atol=1e-5)
