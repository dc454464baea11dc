"""Integer noise with a trusted server: clients quantise, one draw falls on the sum, model users alone are promised."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from scipy import stats

import sordino as so
from sordino.types import Observer, Relation
from tests.toys import run_plan

TASK = so.task("digits", clients=20, partition="iid")
SETTINGS = {"mechanism": "qtdl", "message_epsilon": 1.0, "message_delta": 1e-6, "levels": 64, "delta": 1e-3}


@functools.cache
def one_round(**settings):
    """The model after one round of all clients, as a vector, and what was resolved."""
    method = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(0.5), message="difference")
    plan = so.plan(method, rounds=1, relation="replace-one", **settings)
    resolved, state, _ = run_plan(plan, TASK, seed=3)
    return np.asarray(method.params(state.server), np.float64), resolved


@pytest.mark.parametrize("noise", ["gaussian", "truncated-laplace", "theorem-1"])
def test_one_draw_falls_on_the_sum(noise):
    clean, _ = one_round()
    private, resolved = one_round(trust="central", noise=noise, **SETTINGS)
    mechanism = resolved.mechanism
    on_the_sum = (private - clean) * TASK.clients * mechanism.levels / mechanism.bound
    # Rounding of 20 messages adds at most 20 / 4 to the variance; the noise of 20 messages would be 20 times as large.
    variance = mechanism.calibration.noise_std**2
    assert variance > 250
    found, freedom = float(np.sum(on_the_sum**2)), len(on_the_sum)
    assert variance * stats.chi2.ppf(1e-6, freedom) / freedom < found / freedom
    assert found / freedom < (variance + 5) * stats.chi2.ppf(1 - 1e-6, freedom) / freedom


def test_the_sum_costs_what_one_message_would():
    for relation in Relation.REPLACE_ONE, Relation.ADD_REMOVE:
        method = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(0.5), message="difference")
        plan = so.plan(method, rounds=7, trust="central", relation=str(relation), noise="gaussian", **SETTINGS)
        resolved = plan.resolve(TASK.population)
        event = resolved.mechanism.event(method.bound, relation, TASK.d)
        total = resolved.certificate.total(Observer.MODEL_USER)
        assert total.epsilon == so.epsilon_of(so.privacy.events.Repeated(event, 7), 1e-3, relation)
        assert math.isinf(resolved.certificate.total(Observer.SERVER).epsilon)


def test_no_amplification_is_claimed_for_integer_noise():
    method = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(0.5), message="difference")
    totals = []
    for cohort in ("full", "fixed:5"):
        plan = so.plan(method, rounds=7, cohort=cohort, trust="central", relation="replace-one", **SETTINGS)
        totals.append(plan.resolve(TASK.population).certificate.total(Observer.MODEL_USER).epsilon)
    assert totals[0] == totals[1]
