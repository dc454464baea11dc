"""FedProx, FedAdam, FedYogi and FedAdagrad on the toy of two clients, against the papers' lines in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import sordino as so
from tests.golden.test_fedavg import ETA, W0, E, X, Y, trained

MU = 0.7


def gradient(w, x, y):
    return x.T @ (x @ w - y) / len(y)


def fedprox_client(w_k, x, y, mu, steps=E):
    """E steps on F(w) + (mu/2) ||w - w_k||^2."""
    w = w_k
    for _ in range(steps):
        w = w - ETA * (gradient(w, x, y) + mu * (w - w_k))
    return w


@pytest.mark.parametrize("rounds", [1, 3])
def test_fedprox(rounds):
    w = W0
    for _ in range(rounds):
        w = np.mean([fedprox_client(w, x, y, MU) for x, y in zip(X, Y, strict=True)], axis=0)
    got = trained(rounds, proximal=MU)
    np.testing.assert_allclose(got, w, atol=1e-5)
    for near_miss in ({}, {"proximal": 0.8 * MU}, {"weight_decay": MU}):
        assert np.abs(trained(rounds, **near_miss) - w).max() > 1e-3


def test_a_first_fedprox_round_by_hand():
    """One client of one record, F(w) = (w - 2)^2 / 2 in each of two equal clients, eta = 0.1, mu = 1, from w_k = 0.

    w_1 = 0.2, w_2 = 0.2 - 0.1 (0.2 - 2 + 0.2) = 0.36, w_3 = 0.36 - 0.1 (0.36 - 2 + 0.36) = 0.488
    """
    one = np.array([[1.0]]), np.array([2.0])
    assert fedprox_client(np.zeros(1), *one, mu=1.0) == pytest.approx([0.488])


def test_one_local_step_has_no_proximal_term():
    np.testing.assert_array_equal(trained(2, local_steps=1, proximal=MU), trained(2, local_steps=1))


def test_fedexp_takes_it_too():
    plain, near = (so.fedexp(local_steps=3, local_lr=0.1, proximal=mu).local.proximal for mu in (0.0, MU))
    assert (plain, near) == (None, MU)


@pytest.mark.parametrize("wrong", [-0.1, float("nan"), float("inf")])
def test_a_wrong_mu_is_refused(wrong):
    with pytest.raises(so.errors.InvalidInput, match="proximal"):
        so.fedavg(local_steps=1, local_lr=0.1, proximal=wrong)


def mean_message(w):
    """-Delta_t over eta: the mean of the clients' updates."""
    ends = [fedprox_client(w, x, y, mu=0.0) for x, y in zip(X, Y, strict=True)]
    return (w - np.mean(ends, axis=0)) / ETA


def by_hand(rule, rounds, *, server_lr, tau, start, b1=0.9, b2=0.999, corrected=True):
    """Algorithm 2 of Reddi et al.; `corrected` divides the moments as optax does."""
    w, m, v = W0, np.full(2, start if rule == "yogi" else 0.0), np.full(2, start)
    for t in range(1, rounds + 1):
        a = mean_message(w)
        m = b1 * m + (1 - b1) * a
        if rule == "adagrad":
            v = v + a**2
            w = w - server_lr * a / np.sqrt(v + tau)
            continue
        v = b2 * v + (1 - b2) * a**2 if rule == "adam" else v - (1 - b2) * a**2 * np.sign(v - a**2)
        by_m, by_v = (1 - b1**t, 1 - b2**t) if corrected else (1.0, 1.0)
        w = w - server_lr * (m / by_m) / (np.sqrt(v / by_v) + tau)
    return w


RULES = {
    "adam": ({"name": "adam", "eps": 0.1}, {"tau": 0.1, "start": 0.0}),
    "adam with its own moments": (
        {"name": "adam", "b1": 0.5, "b2": 0.9, "eps": 0.1},
        {"tau": 0.1, "start": 0.0, "b1": 0.5, "b2": 0.9},
    ),
    "yogi": ({"name": "yogi", "b2": 0.9, "eps": 0.1}, {"tau": 0.1, "start": 1e-6, "b2": 0.9}),
    "adagrad": (
        {"name": "adagrad", "initial_accumulator_value": 0.5, "eps": 1e-3},
        {"tau": 1e-3, "start": 0.5},
    ),
}


@pytest.mark.parametrize("rounds", [1, 4])
@pytest.mark.parametrize("name", RULES)
def test_a_server_optimiser_is_the_paper_s(name, rounds):
    options, numbers = RULES[name]
    got = trained(rounds, server_optimiser=options, server_lr=0.3)
    np.testing.assert_allclose(got, by_hand(options["name"], rounds, server_lr=0.3, **numbers), atol=2e-5)
    near_miss = by_hand(options["name"], rounds, server_lr=0.3, **(numbers | {"tau": 2 * numbers["tau"] + 0.1}))
    assert np.abs(got - near_miss).max() > 1e-4


def test_the_moments_are_corrected_as_the_docstring_says():
    options, numbers = RULES["adam"]
    as_printed = by_hand("adam", 4, server_lr=0.3, corrected=False, **numbers)
    assert np.abs(trained(4, server_optimiser=options, server_lr=0.3) - as_printed).max() > 0.01
