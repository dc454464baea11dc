"""Error feedback computed in different ways: debug and fast engine, chunks, a run that is resumed; who keeps memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sordino as so
from sordino.planning import Rules, parse_cohort
from sordino.rounds import RoundState, engine
from sordino.types import Mechanism, Trust
from tests.toys import debugged_rounds_of, fitted, killed_and_resumed, rounds_of

CLIENTS, ROUNDS, SEED = 6, 3, 7
KEY = jax.random.key(SEED)
TASK = so.task("robust-regression", clients=CLIENTS, d=4, records=5)
START = TASK.initial(KEY)
USUAL = {"beta": 0.3, "server_lr": 0.5, "bound": so.smoothed_normalize(0.2)}
NOISE = so.gaussian(0.2)


def rules_of(trust: Trust, mechanism: Mechanism | None = None, cohort: str = "full", **options: Any) -> Rules:
    return fitted(so.error_feedback(**(USUAL | options)), TASK, trust, mechanism, cohort)


def trained(rules: Rules, cohort: str = "full", rounds: int = ROUNDS, **options: Any) -> RoundState:
    options = {"cohort": parse_cohort(cohort), "seed": SEED} | options
    return rounds_of(rules, TASK.records, TASK.loss, START, rounds, **options)[0]


def check_same(one: RoundState, other: RoundState) -> None:
    for ours, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "trust", "cohort"),
    [
        ({}, Trust.CENTRAL, "full"),
        pytest.param(
            {"batch_size": 2, "server_normalization": True}, Trust.LOCAL, "poisson:0.5", marks=pytest.mark.slow
        ),
        pytest.param(
            {"memory": "noisy", "memory_clip": 0.5, "memory_rounds": 2},
            Trust.LOCAL,
            "fixed:4",
            marks=pytest.mark.slow,
        ),
        ({"memory": "secure-average", "memory_clip": 0.5}, Trust.LOCAL, "full"),
        ({"bound": None, "top_k": 2, "memory": "exact"}, Trust.NONE, "full"),
        ({"remember_noise": True}, Trust.LOCAL, "full"),
    ],
    ids=["central", "local, poisson", "noisy start", "secure average", "EF21, exact start", "remembered noise"],
)
def test_debug_chunks_and_the_fast_engine_agree(options, trust, cohort):
    """Parameters, the server's memory and every client's."""
    rules = rules_of(trust, None if trust is Trust.NONE else NOISE, cohort, **options)
    fast = trained(rules, cohort, chunk=4)
    if trust is Trust.CENTRAL:
        check_same(trained(rules, cohort), fast)
    arguments = (rules, TASK.records, TASK.loss, START, ROUNDS)
    check_same(debugged_rounds_of(*arguments, seed=SEED, cohort=parse_cohort(cohort)), fast)
    assert np.abs(np.asarray(fast.clients)).max() > 0.01


def test_an_absent_client_keeps_its_memory_and_the_server_keeps_the_mean():
    """Without noise g^k is the mean of all memories, whoever came; a client that never came still has zero."""
    cohort, came = parse_cohort("poisson:0.3"), np.zeros(CLIENTS, bool)
    for k in range(4):
        client_ids, here = cohort.draw(engine.round_key(KEY, jnp.int32(k), engine.COHORT), CLIENTS)
        came[np.asarray(client_ids)[np.asarray(here)]] = True
    assert 0 < came.sum() < CLIENTS
    state = trained(rules_of(Trust.NONE, cohort=str(cohort)), str(cohort), rounds=4)
    memories = np.asarray(state.clients)
    assert (np.abs(memories).max(axis=1) > 0).tolist() == came.tolist()
    np.testing.assert_allclose(state.server.g, memories.mean(axis=0), atol=1e-6)


def test_noise_reaches_the_server_and_not_the_clients():
    """Line 6 is of the bounded message: after one round the memories are the same with and without noise."""
    quiet = trained(rules_of(Trust.NONE), rounds=1)
    for trust in (Trust.CENTRAL, Trust.LOCAL):
        noisy = trained(rules_of(trust, so.gaussian(0.5)), rounds=1)
        np.testing.assert_array_equal(noisy.clients, quiet.clients)
        assert np.abs(np.asarray(noisy.server.g - quiet.server.g)).max() > 0.01


MECHANISMS = {
    "gaussian": so.gaussian(0.5),
    "laplace": so.laplace(0.5),
    "privunit": so.privunit(d=TASK.d, bound=1.0, eps0=2.0, eps1=2.0, eps2=2.0),
    "binomial": so.binomial(d=TASK.d, bound=1.0, levels=8, coins=400),
}


@pytest.mark.parametrize(
    ("name", "cohort", "options"),
    [
        ("gaussian", "full", {}),
        ("gaussian", "fixed:4", {"memory": "noisy", "memory_clip": 0.5, "memory_rounds": 2}),
        pytest.param("laplace", "full", {}, marks=pytest.mark.slow),
        pytest.param("privunit", "full", {}, marks=pytest.mark.slow),
        ("binomial", "poisson:0.5", {}),
    ],
    ids=lambda value: str(value) if not isinstance(value, dict) else ", ".join(value),
)
def test_every_client_remembers_the_message_that_the_server_got(name, cohort, options):
    """g^k is the mean of all memories in private too, whatever the noise, whoever came."""
    rules = rules_of(Trust.LOCAL, MECHANISMS[name], cohort, **options, remember_noise=True)
    state = trained(rules, cohort)
    np.testing.assert_allclose(state.server.g, np.asarray(state.clients).mean(axis=0), atol=1e-5)
    if (name, cohort) == ("gaussian", "full"):  # a client that forgets its noise has another memory
        forgetful = dataclasses.replace(rules, method=dataclasses.replace(rules.method, remembers_noise=False))
        other = trained(forgetful, cohort)
        assert np.abs(np.asarray(other.server.g) - np.asarray(other.clients).mean(axis=0)).max() > 0.01


def test_a_resumed_run_has_its_memories_back(tmp_path):
    method = so.error_feedback(**USUAL, memory="noisy", memory_clip=0.5, memory_rounds=2)
    plan = so.plan(method, rounds=8, noise_multiplier=2.0, trust="local", cohort="poisson:0.5")
    options = {"evaluate_every": 2, "seed": 3}
    whole = so.simulate(plan, TASK, folder=tmp_path / "whole", **options)
    torn = killed_and_resumed(plan, TASK, tmp_path / "torn", after=4, **options)
    assert torn.history == whole.history
    np.testing.assert_array_equal(torn.params, whole.params)
