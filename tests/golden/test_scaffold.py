"""SCAFFOLD at client level on two clients, against the module's lines in NumPy, for all that `control` sends."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import sordino as so
from sordino.algorithms.scaffold import CONTROLS
from sordino.errors import InvalidInput
from sordino.mechanisms import gaussian
from sordino.tasks import Population
from sordino.types import Observer, Relation, Trust
from tests.golden.test_fedexp import ETA, TAU, W0, C, X, Y, clip, local, run

K_ETA, C_C, SERVER_LR = TAU * ETA, 0.7, 0.8
READINGS = list(itertools.product(CONTROLS, (False, True)))


def about_c(control, c_i, c, plus):
    """What a client sends of its control variate; None where the update says it."""
    return {"difference": plus - c_i, "fresh": plus, "update": None}[control]


def by_hand(control, rounds, C, C_c, sent=None, remember=False):
    """(x, c, [c_0, c_1]), everybody taking part, from noisy messages (Delta y, Delta c) where they are given.

    With C = None nothing is bounded.
    """
    x, c, c_i = W0, np.zeros(2), [np.zeros(2), np.zeros(2)]
    for k in range(rounds):
        ys = [local(x, X[i], Y[i], c - c_i[i]) for i in (0, 1)]
        plus = [c_i[i] - c + (x - ys[i]) / K_ETA for i in (0, 1)]
        delta_y = [ys[i] - x if C is None else clip(ys[i] - x, C) for i in (0, 1)]
        of_c = [about_c(control, c_i[i], c, plus[i]) for i in (0, 1)]
        of_c = [v if v is None or C is None else clip(v, C_c) for v in of_c]
        noisy_y, noisy_c = (delta_y, of_c) if sent is None else sent[k]
        remembered_y, remembered_c = (noisy_y, noisy_c) if remember else (delta_y, of_c)
        if control == "update":
            c_i = [c_i[i] - c - remembered_y[i] / K_ETA for i in (0, 1)]
            c = -np.mean(noisy_y, axis=0) / K_ETA
        elif control == "fresh":
            c_i, c = list(remembered_c), np.mean(noisy_c, axis=0)
        else:
            c_i, c = [c_i[i] + remembered_c[i] for i in (0, 1)], c + np.mean(noisy_c, axis=0)
        x = x + SERVER_LR * np.mean(noisy_y, axis=0)
    return x, c, c_i


def scaffold(control="difference", bound=C, control_bound=C_C, **options):
    return so.scaffold(
        local_steps=TAU,
        local_lr=ETA,
        bound=None if bound is None else so.clip(bound),
        control=control,
        control_bound=None if control == "update" else control_bound,
        **({"server_lr": SERVER_LR} | options),
    )


def matches(state, expected):
    x, c, c_i = expected
    np.testing.assert_allclose(state.server.x, x, atol=1e-5)
    np.testing.assert_allclose(state.server.c, c, atol=1e-5)
    np.testing.assert_allclose(state.clients, c_i, atol=1e-5)


@pytest.mark.parametrize("rounds", [1, 4])
@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize(("bound", "given"), [(None, None), (C, None), (C, C_C)], ids=["plain", "clip", "both"])
def test_without_noise(rounds, control, bound, given):
    _, state, _ = run(scaffold(control, bound, given), rounds)
    default = None if bound is None else bound / K_ETA
    matches(state, by_hand(control, rounds, bound, given if given and control != "update" else default))
    np.testing.assert_allclose(np.mean(state.clients, axis=0), state.server.c, atol=1e-5)  # c is their mean


def test_without_bounds_all_are_scaffold():
    states = [run(scaffold(control, None, None), 4)[1] for control in CONTROLS]
    for other in states[1:]:
        np.testing.assert_allclose(states[0].server.x, other.server.x, atol=1e-5)
        np.testing.assert_allclose(states[0].server.c, other.server.c, atol=1e-5)


@pytest.mark.parametrize(("control", "remember"), READINGS)
def test_with_noise(control, remember):
    """From the transcript, by which every noisy message is known: who keeps which noise, and what the server does."""
    method = scaffold(control, remember_noise=remember)
    method, state, info = run(method, 3, Trust.LOCAL, gaussian(0.3), transcript=True)
    sent = []
    for messages in np.asarray(info.transcript[2], np.float64):
        halves = messages[:, :2], messages[:, 2:] * C_C / C
        sent.append(([-y for y in halves[0]], list(halves[1])))
    assert info.transcript[2].shape == (3, 2, 2 if control == "update" else 4)
    matches(state, by_hand(control, 3, C, C_C, sent, remember))
    mean_is_c = np.allclose(np.mean(state.clients, axis=0), state.server.c, atol=1e-4)
    assert mean_is_c == remember  # c is the mean of the c_i where clients keep their noise


@pytest.mark.parametrize("control", CONTROLS)
def test_who_is_absent_keeps_its_c_i_and_counts_in_c(control):
    """One of two clients takes part: c moves by its share of all."""
    method = so.scaffold(local_steps=TAU, local_lr=ETA, control=control)
    plan = so.plan(method, rounds=1, cohort="fixed:1").resolve(Population(2, 2))
    assert float(plan.method.participation) == 0.5
    state = plan.method.init_server(np.float32(W0))._replace(c=np.float32([0.2, 0.4]))
    sent = np.float32([0.3, -0.6] if control == "update" else [0.3, -0.6, 0.9, 0.3])
    total = so.types.Aggregate(sent, cohort=1.0)
    after, _ = plan.method.server(None, state, total)
    expected = {
        "difference": [0.2 + 0.5 * 0.9 / K_ETA, 0.4 + 0.5 * 0.3 / K_ETA],
        "update": [0.1 + 0.5 * 0.3 / K_ETA, 0.2 - 0.5 * 0.6 / K_ETA],
        "fresh": [0.1 + 0.5 * 0.9 / K_ETA, 0.2 + 0.5 * 0.3 / K_ETA],
    }
    np.testing.assert_allclose(after.c, expected[control], rtol=1e-5)


@pytest.mark.parametrize("control", CONTROLS)
def test_scaffold_corrects_the_drift(control):
    """Two clients with different minimisers: FedAvg settles beside the minimiser of the mean, SCAFFOLD on it."""
    _, state, _ = run(so.scaffold(local_steps=TAU, local_lr=ETA, control=control), 400)
    _, drifted, _ = run(so.fedavg(local_steps=TAU, local_lr=ETA), 400)
    H = sum(x.T @ x / len(y) for x, y in zip(X, Y, strict=True))
    b = sum(x.T @ y / len(y) for x, y in zip(X, Y, strict=True))
    minimiser = np.linalg.solve(H, b)
    assert np.linalg.norm(np.asarray(state.server.x) - minimiser) < 1e-4
    assert np.linalg.norm(np.asarray(drifted.server.w) - minimiser) > 5e-3


# --- The noise and what it costs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("control", CONTROLS)
def test_what_is_sent_is_accounted(control):
    """mu^2 = mu_y^2 + mu_c^2: noise s on two vectors of norm C costs what one of norm sqrt(2) C costs."""
    method = scaffold(control, control_bound=5.0)
    parts = 1 if control == "update" else 2
    sensitivity = float(method.bound.sensitivity(Relation.REPLACE_ONE))
    assert sensitivity == pytest.approx(math.sqrt(parts) * 2 * C, rel=1e-12)
    plan = so.plan(method, rounds=1, noise_multiplier=2.0, relation="replace-one", sampler="float32")
    resolved = plan.resolve(Population(2, 2))
    each = 2 * C / resolved.mechanism.noise_std
    assert math.sqrt(parts) * each == pytest.approx(0.5)


def test_at_one_epsilon_an_update_alone_has_less_noise_by_the_square_root_of_two():
    def std(control):
        plan = so.plan(scaffold(control), rounds=9, epsilon=4.0, delta=1e-5, trust="local")
        return float(plan.resolve(Population(2, 20)).mechanism.noise_std)

    assert std("difference") == std("fresh") == pytest.approx(math.sqrt(2) * std("update"), rel=1e-9)


@pytest.mark.parametrize("control", CONTROLS)
def test_who_remembers_noise_gains_nothing_from_that_of_others(control):
    def certificate(remember):
        plan = so.plan(scaffold(control, remember_noise=remember), rounds=9, noise_multiplier=2.0, trust="local")
        return plan.resolve(Population(2, 100)).certificate

    kept, forgotten = certificate(True), certificate(False)
    assert kept.total(Observer.SERVER) == forgotten.total(Observer.SERVER)
    assert kept.total(Observer.MODEL_USER).epsilon == pytest.approx(kept.total(Observer.SERVER).epsilon)
    assert forgotten.total(Observer.MODEL_USER).epsilon < forgotten.total(Observer.SERVER).epsilon / 5


def test_privunit_estimates_the_norm_of_an_update_that_is_sent_alone():
    def plan(control):
        method = scaffold(control, step_size="corrected")
        budget = {"message_eps0": 2.0, "message_eps1": 2.0, "message_eps2": 2.0}
        return so.plan(method, rounds=2, trust="local", mechanism="privunit", **budget).resolve(Population(50, 9))

    assert plan("update").method.step_size is not None
    with pytest.raises(InvalidInput, match="step_size"):
        plan("fresh")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"control": "noisy"}, "control"),
        ({"control": "update", "control_bound": 1.0}, "control_bound"),
    ],
)
def test_what_cannot_be_is_refused(options, field):
    with pytest.raises(InvalidInput) as caught:
        so.scaffold(local_steps=1, local_lr=0.1, bound=so.clip(1.0), **options)
    assert caught.value.field == field


def test_noise_that_the_server_adds_cannot_be_remembered():
    plan = so.plan(scaffold(remember_noise=True), rounds=2, noise_multiplier=1.0, trust="central")
    with pytest.raises(InvalidInput, match="trust"):
        plan.resolve(Population(2, 20))
