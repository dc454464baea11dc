"""Error feedback computed in different ways: debug and fast engine, chunks, a run that is resumed; who keeps memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sordino.simulation.cohort import FixedSize, Full, Poisson
from sordino.simulation.debug import debug_rounds
from sordino.simulation.engine import Carry, Setting, run_rounds

import sordino as so
from sordino.simulation import engine, running
from sordino.types import Circumstances, Relation

CLIENTS, ROUNDS, KEY = 6, 3, jax.random.key(7)
TASK = so.task("robust-regression", clients=CLIENTS, d=4, records=5)
USUAL = {"beta": 0.3, "server_lr": 0.5, "bound": so.smoothed_normalize(0.2)}


def setting(**options: Any) -> Setting:
    return Setting(**({"loss": TASK.loss, "population": CLIENTS, "largest": TASK.largest, "chunk": CLIENTS} | options))


def start(method: Any) -> Carry:
    w = TASK.initial(KEY)
    return Carry(method.init_server(w), jnp.zeros((CLIENTS, TASK.d)))


def trained(method: Any, mechanism: Any, rounds: int = ROUNDS, **options: Any) -> Carry:
    arguments = (method, mechanism, TASK.records, start(method), KEY, jnp.int32(0))
    return run_rounds(*arguments, setting=setting(**options), rounds=rounds)[0]


def check_same(one: Carry, other: Carry) -> None:
    for ours, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def circumstances(trust, mechanism, cohort):
    return Circumstances(trust, mechanism, Relation.ZERO_OUT, TASK.d, CLIENTS, CLIENTS, cohort)


@pytest.mark.parametrize(
    ("options", "engine_options"),
    [
        ({}, {"trust": "central", "cohort": Full()}),
        pytest.param(
            {"batch_size": 2, "server_normalization": True},
            {"trust": "local", "cohort": Poisson(0.5)},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"memory": "noisy", "memory_clip": 0.5, "memory_rounds": 2},
            {"trust": "local", "cohort": FixedSize(4)},
            marks=pytest.mark.slow,
        ),
        ({"memory": "secure-average", "memory_clip": 0.5}, {"trust": "local", "cohort": Full()}),
        ({"bound": None, "top_k": 2, "memory": "exact"}, {"trust": "none", "cohort": Full()}),
        ({"remember_noise": True}, {"trust": "local", "cohort": Full()}),
    ],
    ids=["central", "local, poisson", "noisy start", "secure average", "EF21, exact start", "remembered noise"],
)
def test_debug_chunks_and_the_fast_engine_agree(options, engine_options):
    """Parameters, the server's memory and every client's."""
    method = so.error_feedback(**(USUAL | options))
    mechanism_name = "none" if engine_options["trust"] == "none" else "gaussian"
    mechanism = so.none() if mechanism_name == "none" else so.gaussian(0.2)
    method = method.resolve(circumstances(engine_options["trust"], mechanism, str(engine_options["cohort"])))
    fast = trained(method, mechanism, **engine_options)
    check_same(trained(method, mechanism, **engine_options, chunk=4), fast)
    slow = debug_rounds(
        method, mechanism, TASK.records, start(method), KEY, 0, setting=setting(**engine_options), rounds=ROUNDS
    )
    check_same(slow, fast)
    assert np.abs(np.asarray(fast.clients)).max() > 0.01


def test_who_stays_away_keeps_its_memory_and_the_server_keeps_the_mean():
    """Without noise g^k is the mean of all memories, whoever came; a client that never came still has zero."""
    method = so.error_feedback(**USUAL).resolve(circumstances("none", so.none(), "poisson:0.3"))
    cohort, came = Poisson(0.3), np.zeros(CLIENTS, bool)
    for k in range(4):
        who, here = cohort.draw(engine.round_key(KEY, jnp.int32(k), engine.COHORT), CLIENTS)
        came[np.asarray(who)[np.asarray(here)]] = True
    assert 0 < came.sum() < CLIENTS
    carry = trained(method, so.none(), rounds=4, trust="none", cohort=cohort)
    memories = np.asarray(carry.clients)
    assert (np.abs(memories).max(axis=1) > 0).tolist() == came.tolist()
    np.testing.assert_allclose(carry.server.g, memories.mean(axis=0), atol=1e-6)


def test_noise_reaches_the_server_and_not_the_clients():
    """Line 6 is of the bounded message: after one round the memories are the same with and without noise."""
    method = so.error_feedback(**USUAL)
    quiet = trained(method, so.none(), rounds=1, trust="none", cohort=Full())
    for trust in ("central", "local"):
        noisy = trained(method, so.gaussian(0.5), rounds=1, trust=trust, cohort=Full())
        np.testing.assert_array_equal(noisy.clients, quiet.clients)
        assert np.abs(np.asarray(noisy.server.g - quiet.server.g)).max() > 0.01


class Killed(BaseException):
    """Not an Exception: nobody catches it."""


MECHANISMS = {
    "gaussian": so.gaussian(0.5),
    "laplace": so.laplace(0.5),
    "privunit": so.privunit(d=TASK.d, bound=1.0, eps0=2.0, eps1=2.0, eps2=2.0),
    "binomial": so.binomial(d=TASK.d, bound=1.0, levels=8, coins=400),
}


@pytest.mark.parametrize(
    ("name", "cohort", "options"),
    [
        ("gaussian", Full(), {}),
        ("gaussian", FixedSize(4), {"memory": "noisy", "memory_clip": 0.5, "memory_rounds": 2}),
        pytest.param("laplace", Full(), {}, marks=pytest.mark.slow),
        pytest.param("privunit", Full(), {}, marks=pytest.mark.slow),
        ("binomial", Poisson(0.5), {}),
    ],
    ids=lambda value: str(value) if not isinstance(value, dict) else ", ".join(value),
)
def test_every_client_remembers_the_message_that_the_server_got(name, cohort, options):
    """g^k is the mean of all memories in private too, whatever the noise, whoever came."""
    method = so.error_feedback(**USUAL, **options, remember_noise=True)
    method = method.resolve(circumstances("local", MECHANISMS[name], str(cohort)))
    carry = trained(method, MECHANISMS[name], rounds=3, trust="local", cohort=cohort)
    np.testing.assert_allclose(carry.server.g, np.asarray(carry.clients).mean(axis=0), atol=1e-5)
    forgetful = dataclasses.replace(method, remembers_noise=False)
    other = trained(forgetful, MECHANISMS[name], rounds=3, trust="local", cohort=cohort)
    assert np.abs(np.asarray(other.server.g) - np.asarray(other.clients).mean(axis=0)).max() > 0.01


def test_a_resumed_run_has_its_memories_back(tmp_path, monkeypatch):
    method = so.error_feedback(**USUAL, memory="noisy", memory_clip=0.5, memory_rounds=2)
    plan = so.plan(method, rounds=8, noise_multiplier=2.0, trust="local", cohort="poisson:0.5")
    options = {"evaluate_every": 2, "seed": 3}
    whole = so.simulate(plan, TASK, folder=tmp_path / "whole", **options)
    real, calls = running.save_checkpoint, []

    def deadly(*arguments):
        real(*arguments)
        calls.append(1)
        if len(calls) == 2:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(running, "save_checkpoint", deadly)
        with pytest.raises(Killed):
            so.simulate(plan, TASK, folder=tmp_path / "torn", **options)
    torn = so.simulate(plan, TASK, folder=tmp_path / "torn", resume=True, **options)
    assert torn.history == whole.history
    np.testing.assert_array_equal(torn.params, whole.params)
    checkpoints = [np.load(tmp_path / name / "checkpoint.npz") for name in ("whole", "torn")]
    for name in checkpoints[0].files:  # the clients' memories among them
        np.testing.assert_array_equal(checkpoints[1][name], checkpoints[0][name])
