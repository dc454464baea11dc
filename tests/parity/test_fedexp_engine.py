"""FedEXP and SCAFFOLD computed in different ways: chunks, the debug engine, absent clients, killed and resumed."""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np
import pytest

import sordino as so
from sordino.mechanisms import gaussian, none, privunit
from sordino.planning import Rules
from sordino.planning.cohort import Cohort, FixedCohort, FullCohort, PoissonCohort
from sordino.rounds import RoundInfo, RoundState
from sordino.types import Relation, Trust
from tests.toys import debugged_rounds_of, fitted, killed_and_resumed, rounds_of, toy

CLIENTS, ROUNDS, D, SEED = 10, 3, 8, 5

TASK = toy()
START = TASK.initial(jax.random.key(SEED))
MAKE = {"fedexp": so.fedexp, "scaffold": so.scaffold}


def rules_of(name: str, trust: Trust, mechanism: Any, cohort: Cohort, **options: Any) -> Rules:
    bound = None if trust is Trust.NONE else so.clip(0.5)
    method = MAKE[name](local_steps=3, local_lr=0.5, bound=bound, **options)
    return fitted(method, TASK, trust, mechanism, cohort, Relation.REPLACE_ONE)


def run(rules: Rules, cohort: Cohort, rounds: int = ROUNDS, **options: Any) -> tuple[RoundState, RoundInfo]:
    return rounds_of(rules, TASK.records, TASK.loss, START, rounds, seed=SEED, cohort=cohort, **options)


CASES = {
    "no privacy": (Trust.NONE, lambda d: none(), FullCohort()),
    "central": (Trust.CENTRAL, lambda d: gaussian(0.3), PoissonCohort(0.5)),
    "local": (Trust.LOCAL, lambda d: gaussian(0.1), FullCohort()),
    "local poisson": (Trust.LOCAL, lambda d: gaussian(0.1), PoissonCohort(0.5)),
    "privunit": (
        Trust.LOCAL,
        lambda d: privunit(d=d, eps0=2.0, eps1=2.0, eps2=2.0, bound=0.5 * (d / D) ** 0.5),
        FixedCohort(4),
    ),
}


LONG = ("privunit", "no privacy", "local poisson", "central")  # left to `make test-all`


@pytest.mark.parametrize(
    ("name", "case"),
    [
        pytest.param(name, case, marks=pytest.mark.slow if case in LONG or name == "scaffold" else ())
        for name in MAKE
        for case in CASES
    ],
)
def test_chunks_and_the_debug_engine_agree(name, case):
    trust, make, cohort = CASES[case]
    mechanism = make(D if name == "fedexp" else 2 * D)
    options = {} if name == "fedexp" or case == "privunit" else {"step_size": "corrected"}
    rules = rules_of(name, trust, mechanism, cohort, **options)
    whole, info = run(rules, cohort)
    assert np.abs(rules.method.params(whole.server)).max() > 0.05
    cut, _ = run(rules, cohort, chunk=3)
    slow = debugged_rounds_of(rules, TASK.records, TASK.loss, START, ROUNDS, seed=SEED, cohort=cohort)
    for other in (cut, slow):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=3e-4, rtol=3e-4), other, whole)
    if info.server is not None:
        assert np.all(np.asarray(info.server.step_size) >= 1)


def test_absent_clients_keep_their_control_variates():
    """Four of ten take part in a round: the other six keep what they had, bit for bit."""
    cohort = FixedCohort(4)
    rules = rules_of("scaffold", Trust.LOCAL, gaussian(0.1), cohort)
    before, _ = run(rules, cohort, rounds=1)
    changed = set()
    for k in range(1, 5):
        after, _ = run(rules, cohort, rounds=1, first=k, state=before)
        moved = np.flatnonzero(np.any(np.asarray(after.clients) != np.asarray(before.clients), axis=1))
        assert len(moved) == 4
        changed |= set(moved.tolist())
        before = after
    assert 4 < len(changed) <= 10


def test_the_servers_control_variate_is_the_mean_of_the_clients():
    """c <- c + (1/N) sum Delta c, for cohorts smaller than N too."""
    cohort = FixedCohort(4)
    state, _ = run(rules_of("scaffold", Trust.NONE, none(), cohort), cohort, rounds=5)
    np.testing.assert_allclose(state.server.c, np.mean(state.clients, axis=0), atol=1e-6)
    assert np.abs(state.server.c).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKE)
def test_resumed_runs_are_the_same(name, tmp_path):
    """Killed after the second evaluation; client states come back from the checkpoint."""
    method = MAKE[name](local_steps=2, local_lr=0.5, bound=so.clip(0.5), step_size="corrected")
    plan = so.plan(method, rounds=8, cohort="fixed:4", noise_multiplier=1.0, relation="replace-one", trust="local")
    whole = so.simulate(plan, TASK, seed=1, evaluate_every=2, folder=tmp_path / "whole")

    resumed = killed_and_resumed(plan, TASK, tmp_path / "killed", after=4, seed=1, evaluate_every=2)
    jax.tree.map(np.testing.assert_array_equal, resumed.params, whole.params)
    rows = [
        [json.loads(line) for line in (tmp_path / folder / "metrics.jsonl").read_text().splitlines()]
        for folder in ("whole", "killed")
    ]
    assert rows[0] == rows[1]
    assert all(row["step_size"] >= 1 for row in rows[0])
