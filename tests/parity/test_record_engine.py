"""Record-level methods computed in different ways: chunks, the debug engine, a resumed run; and their ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import sordino as so
from sordino.privacy import read_ledger
from sordino.privacy.certification import certify_ledger
from sordino.privacy.gaussian import gaussian_epsilon, gaussian_noise_multiplier
from sordino.types import Observer
from tests.toys import debugged_rounds_of, killed_and_resumed, rounds_of

TASK = so.task("linear", clients=4, records=30, d=3, loss="logit", l2=0.1)
USUAL: dict[str, Any] = {"lipschitz": [1.0, 0.5, 1.0, 0.3], "radius": 1.0, "feature_bound": 1.0}
METHODS = {
    "sgd": so.noisy_mb_sgd(**USUAL, batch_size=10),
    "accelerated": so.accelerated_mb_sgd(**USUAL),
    "stages, one pass": so.accelerated_mb_sgd(**USUAL, mu=0.5, multi_stage=True, one_pass=True, batch_size=4),
}
EACH = {"epsilon": [1.0, 2.0, 4.0, 1.0], "delta": [1e-5, 1e-6, 1e-5, 1e-4], "trust": "local"}
SAME = {"noise_multiplier": 2.0, "trust": "local"}  # sampled records take long to calibrate


def two_rounds(method, cohort="unreliable:2-4", debug=False, **options):
    """Every number of the server's state after two rounds, and the diagnostics."""
    plan = so.plan(method, rounds=7, cohort=cohort, **SAME)
    rules = plan.resolve(TASK.population).rules
    arguments = (rules, TASK.records, TASK.loss, TASK.initial(jax.random.key(0)), 2)
    options = {"seed": 5, "cohort": plan.cohort} | options
    state, info = (debugged_rounds_of(*arguments, **options), None) if debug else rounds_of(*arguments, **options)
    return np.asarray(jax.flatten_util.ravel_pytree(state.server)[0]), info


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_chunks_and_the_debug_engine(name):
    method = METHODS[name]
    whole, info = two_rounds(method)
    assert set(np.asarray(info.participants)) <= {2, 3, 4}
    np.testing.assert_allclose(two_rounds(method, chunk=1)[0], whole, atol=1e-5)
    np.testing.assert_allclose(two_rounds(method, debug=True)[0], whole, atol=1e-5)


def test_a_shuffler_changes_the_transcript_and_nothing_else():
    method = METHODS["accelerated"]
    plain, local = two_rounds(method, cohort="full", transcript=True)
    w, shuffled = two_rounds(method, cohort="full", transcript=True, shuffled=True)
    np.testing.assert_allclose(w, plain, atol=1e-5)
    assert (np.asarray(shuffled.transcript[0]) == -1).all()
    sent, mixed = np.asarray(local.transcript[2]), np.asarray(shuffled.transcript[2])
    orders = []
    for k in range(2):
        orders.append([int(np.argmin(np.abs(sent[k] - row).sum(axis=1))) for row in mixed[k]])
        assert sorted(orders[-1]) == [0, 1, 2, 3]
        np.testing.assert_allclose(mixed[k], sent[k][orders[-1]], atol=1e-6)
    assert orders != [[0, 1, 2, 3]] * 2


def test_a_run_behind_a_shuffler_keeps_no_names():
    alike = so.noisy_mb_sgd(**(USUAL | {"lipschitz": 1.0}))
    plan = so.plan(alike, rounds=1, noise_multiplier=2.0, trust="shuffle")
    senders, _, _ = so.simulate(plan, TASK, seed=0, transcript=True).transcript[0]
    assert np.ravel(senders).tolist() == [-1] * 4


@pytest.mark.parametrize(("name", "noise"), [("sgd", SAME), ("accelerated", EACH), ("stages, one pass", EACH)])
def test_a_resumed_run_is_the_same_run_and_its_ledger_says_what_was_planned(name, noise, tmp_path: Path):
    plan = so.plan(METHODS[name], rounds=7, **noise)

    resumed = killed_and_resumed(plan, TASK, tmp_path / "run", after=4, seed=1)
    whole = so.simulate(plan, TASK, seed=1)
    for a, b in zip(jax.tree.leaves(resumed.params), jax.tree.leaves(whole.params), strict=True):
        np.testing.assert_array_equal(a, b)
    record = read_ledger(tmp_path / "run" / "ledger.jsonl")
    assert str(record.unit) == "record"
    again = certify_ledger(record, record.description["delta"])
    for observer in (Observer.SERVER, Observer.PEER, Observer.MODEL_USER):
        planned, found = whole.certificate.total(observer), again.total(observer)
        assert (found.epsilon, found.delta, found.rounds) == (planned.epsilon, planned.delta, planned.rounds)
        own = [g for g in whole.certificate.guarantees if g.client and g.observer is observer]
        assert found.delta == max(g.delta for g in own)
        if noise is EACH and observer is Observer.SERVER:
            # At the largest delta of all; the client with the least noise was promised 4 at its own, smaller one.
            mu = 1 / gaussian_noise_multiplier(4.0, 1e-5)
            assert found.epsilon == pytest.approx(gaussian_epsilon(mu, 1e-4), rel=1e-6)
