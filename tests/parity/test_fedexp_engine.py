"""FedEXP and SCAFFOLD computed in different ways: chunks, the debug engine, absent clients, killed and resumed."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sordino.simulation.cohort import FixedSize, Full, Poisson
from sordino.simulation.debug import debug_rounds
from sordino.simulation.engine import Carry, Setting, run_rounds

import sordino as so
from sordino.mechanisms import gaussian, none, privunit
from sordino.types import Circumstances, Relation
from tests.toys import toy

CLIENTS, ROUNDS, D = 10, 3, 8
KEY = jax.random.key(5)

TASK = toy()
MAKE = {"fedexp": so.fedexp, "scaffold": so.scaffold}


def prepared(name: str, trust: str, mechanism: Any, cohort: Any, **options: Any) -> tuple[Any, Carry, Setting]:
    bound = None if trust == "none" else so.clip(0.5)
    method = MAKE[name](local_steps=3, local_lr=0.5, bound=bound, **options)
    planned = cohort.planned(CLIENTS)
    method = method.resolve(Circumstances(trust, mechanism, Relation.REPLACE_ONE, D, CLIENTS, planned))
    extra = method.extra_event(Relation.REPLACE_ONE) is not None
    setting = Setting(TASK.loss, cohort, CLIENTS, TASK.largest, trust, chunk=CLIENTS, extra=extra)
    w = TASK.initial(KEY)
    states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (CLIENTS, *leaf.shape)), method.init_client(w))
    return method, Carry(method.init_server(w), states), setting


def run(method: Any, mechanism: Any, carry: Carry, setting: Setting, rounds: int = ROUNDS, first: int = 0) -> Any:
    return run_rounds(method, mechanism, TASK.records, carry, KEY, jnp.int32(first), setting=setting, rounds=rounds)


CASES = {
    "no privacy": ("none", lambda d: none(), Full()),
    "central": ("central", lambda d: gaussian(0.3), Poisson(0.5)),
    "local": ("local", lambda d: gaussian(0.1), Full()),
    "local poisson": ("local", lambda d: gaussian(0.1), Poisson(0.5)),
    "privunit": (
        "local",
        lambda d: privunit(d=d, eps0=2.0, eps1=2.0, eps2=2.0, bound=0.5 * (d / D) ** 0.5),
        FixedSize(4),
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
    method, carry, setting = prepared(name, trust, mechanism, cohort, **options)
    whole, info = run(method, mechanism, carry, setting)
    assert np.abs(method.params(whole.server)).max() > 0.05
    cut, _ = run(method, mechanism, carry, setting.__class__(**(vars(setting) | {"chunk": 3})))
    slow = debug_rounds(method, mechanism, TASK.records, carry, KEY, 0, setting=setting, rounds=ROUNDS)
    for other in (cut, slow):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=3e-4, rtol=3e-4), other, whole)
    if info.server is not None:
        assert np.all(np.asarray(info.server.step_size) >= 1)


def test_absent_clients_keep_their_control_variates():
    """Four of ten take part in a round: the other six keep what they had, bit for bit."""
    method, carry, setting = prepared("scaffold", "local", gaussian(0.1), FixedSize(4))
    changed = set()
    for k in range(4):
        after, _ = run(method, gaussian(0.1), carry, setting, rounds=1, first=k)
        moved = np.flatnonzero(np.any(np.asarray(after.clients) != np.asarray(carry.clients), axis=1))
        assert len(moved) == 4
        changed |= set(moved.tolist())
        carry = after
    assert 4 < len(changed) <= 10


def test_the_servers_control_variate_is_the_mean_of_the_clients():
    """c <- c + (1/N) sum Delta c, for cohorts smaller than N too."""
    method, carry, setting = prepared("scaffold", "none", none(), FixedSize(4))
    carry, _ = run(method, none(), carry, setting, rounds=5)
    np.testing.assert_allclose(carry.server.c, np.mean(carry.clients, axis=0), atol=1e-6)
    assert np.abs(carry.server.c).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKE)
def test_resumed_runs_are_the_same(name, tmp_path):
    """Killed after the second evaluation; client states come back from the checkpoint."""
    method = MAKE[name](local_steps=2, local_lr=0.5, bound=so.clip(0.5), step_size="corrected")
    plan = so.plan(method, rounds=8, cohort="fixed:4", noise_multiplier=1.0, relation="replace-one", trust="local")
    whole = so.simulate(plan, TASK, seed=1, evaluate_every=2, folder=tmp_path / "whole")

    class Killed(Exception):
        pass

    def kill(row: dict[str, Any]) -> None:
        if row["round"] >= 4:
            raise Killed

    with pytest.raises(Killed):
        so.simulate(plan, TASK, seed=1, evaluate_every=2, folder=tmp_path / "killed", progress=kill)
    resumed = so.simulate(plan, TASK, seed=1, evaluate_every=2, folder=tmp_path / "killed", resume=True)
    jax.tree.map(np.testing.assert_array_equal, resumed.params, whole.params)
    rows = [
        [json.loads(line) for line in (tmp_path / folder / "metrics.jsonl").read_text().splitlines()]
        for folder in ("whole", "killed")
    ]
    assert rows[0] == rows[1]
    assert all(row["step_size"] >= 1 for row in rows[0])
