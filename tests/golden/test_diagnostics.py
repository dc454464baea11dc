"""Heterogeneity and the projection condition on problems where both are known."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import sordino as so
from sordino.data import FederatedData
from sordino.errors import InvalidInput
from sordino.models import linear
from sordino.runs.diagnostics import heterogeneity, projection
from sordino.tasks import Task

X = [np.array([[1.0, 2.0], [-1.0, 0.5]]), np.array([[0.5, -1.0], [2.0, 1.0], [0.0, 3.0]])]
Y = [np.array([1.0, -2.0]), np.array([0.5, 3.0, -1.0])]
ETA, TAU = 0.05, 3


def task() -> Task:
    size = np.array([2, 3], np.int32)
    x, y = np.concatenate(X).astype(np.float32), np.concatenate(Y).astype(np.float32)
    return Task("toy", FederatedData(x, y, np.array([0, 2], np.int32), size, x, y, 0), linear("ridge", 2))


def minimiser(xs, ys):
    """Of the mean of the clients' mean squared residuals."""
    H = sum(x.T @ x / len(y) for x, y in zip(xs, ys, strict=True))
    return np.linalg.solve(H, sum(x.T @ y / len(y) for x, y in zip(xs, ys, strict=True)))


def residuals(w, x, y):
    return 0.5 * np.mean((x @ w - y) ** 2)


def test_gaps_are_those_of_definition_1():
    w = minimiser(X, Y)
    found = heterogeneity(task(), jnp.asarray(w, jnp.float32), local_lr=0.2, local_steps=2000)
    expected = [residuals(w, x, y) - residuals(minimiser([x], [y]), x, y) for x, y in zip(X, Y, strict=True)]
    np.testing.assert_allclose(found.gaps, expected, rtol=1e-3)
    gradients = [x.T @ (x @ w - y) / len(y) for x, y in zip(X, Y, strict=True)]
    assert found.mean_of_squares == pytest.approx(np.mean([g @ g for g in gradients]), rel=1e-4)
    assert found.square_of_mean < 1e-6 * found.mean_of_squares  # w is the minimiser of the mean


def test_clients_with_one_minimiser_are_alike():
    same = so.task("linear-regression", clients=20, d=5)
    found = heterogeneity(same, jnp.asarray(same.minimiser), local_lr=1e-3, local_steps=10)
    np.testing.assert_allclose(found.gaps, 0.0, atol=1e-6)
    assert found.mean_of_squares < 1e-6


def test_alpha_is_that_of_equation_4():
    w, w_star = np.array([0.3, -0.2]), minimiser(X, Y)
    local = []
    for x, y in zip(X, Y, strict=True):
        v = w
        for _ in range(TAU):
            v = v - ETA * x.T @ (x @ v - y) / len(y)
        local.append(v)
    found = projection(
        task(), jnp.asarray(w, jnp.float32), local_lr=ETA, local_steps=TAU, minimiser=jnp.asarray(w_star, jnp.float32)
    )
    after = np.mean([np.sum((v - w_star) ** 2) for v in local])
    assert found.alpha == pytest.approx(1 - after / np.sum((w - w_star) ** 2), rel=1e-3)
    Delta = np.array(local) - w
    mean = Delta.mean(axis=0)
    assert found.target_step_size == pytest.approx(np.mean(np.sum(Delta**2, axis=1)) / (mean @ mean), rel=1e-4)


def test_the_condition_holds_where_all_share_a_minimiser_and_fails_for_steps_too_long():
    same = so.task("linear-regression", clients=20, d=5)
    w = jnp.zeros(5)
    assert projection(same, w, local_lr=1e-3, local_steps=5).holds
    assert not projection(same, w, local_lr=1.0, local_steps=2).holds


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(InvalidInput, match="minimiser"):
        projection(task(), jnp.zeros(2), local_lr=ETA, local_steps=TAU)
    with pytest.raises(InvalidInput, match="w"):
        projection(task(), jnp.ones(2), local_lr=ETA, local_steps=TAU, minimiser=jnp.ones(2))
