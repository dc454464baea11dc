"""Paper 3, Section 5.3: with C well above the updates, normalization ends lower than clipping."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sordino as so
from sordino.data import quadratics
from sordino.errors import InvalidInput

RESULTS = Path(__file__).parents[2] / "results" / "paper3" / "section-5-3.json"
TASK = functools.cache(so.task)  # one task, so that programs compile once
Z = 21.9146  # meets (5, 1e-6) over 500 rounds of all clients


def test_the_task_is_the_paper_s_problem() -> None:
    task, problem = so.task("quadratics", scale=0.2), quadratics(0)
    assert (task.clients, task.d, task.largest) == (100, 200, 1)
    assert task.minimum == problem.minimum
    w = task.initial(jax.random.key(3))
    z = (np.asarray(w) - problem.minimiser) / 0.2
    assert z.min() > -1e-5
    assert z.max() < 1 + 1e-5
    at_minimiser = task.evaluate(jnp.asarray(problem.minimiser, jnp.float32))
    assert set(at_minimiser) == {"test_loss", "suboptimality", "distance"}
    assert abs(at_minimiser["suboptimality"]) < 1e-5
    Q = np.einsum("ndr,ner->de", problem.A, problem.A) / 100
    off = np.asarray(w, np.float64) - problem.minimiser
    assert task.evaluate(w)["suboptimality"] == pytest.approx(off @ Q @ off / 2, rel=1e-3)


def test_a_problem_is_dealt_by_nobody() -> None:
    with pytest.raises(InvalidInput, match="partition"):
        so.task("quadratics", partition="iid")


def test_fedavg_without_noise_reaches_the_minimum_s_neighbourhood() -> None:
    task = TASK("quadratics", clients=30, d=20, rank=5)
    run = so.simulate(so.plan(so.fedavg(local_steps=2, local_lr=0.1), rounds=200), task, seed=0, evaluate_every=100)
    assert "accuracy" not in run.history[-1]
    assert run.history[-1]["suboptimality"] < 1e-2 * task.evaluate(task.initial(jax.random.key(0)))["suboptimality"]


def test_iterates_are_the_models_of_the_evaluations() -> None:
    task = TASK("quadratics", clients=30, d=20, rank=5)
    plan = so.plan(so.fedavg(local_steps=2, local_lr=0.1), rounds=20)
    run = so.simulate(plan, task, seed=0, evaluate_every=10, iterates=True)
    assert run.iterates.shape == (len(run.history), task.d)
    np.testing.assert_array_equal(run.iterates[-1], run.params)
    assert task.evaluate(run.iterates[0])["suboptimality"] == run.history[0]["suboptimality"]
    assert so.simulate(plan, task, seed=0).iterates is None


@pytest.mark.slow
@pytest.mark.parametrize("eta", [3e-4, 1e-3])
def test_normalization_ends_below_clipping(eta: float) -> None:
    ends = {}
    for bound in (so.clip(100.0), so.normalize(100.0)):
        algorithm = so.fedavg(local_steps=20, local_lr=eta, bound=bound)
        plan = so.plan(algorithm, rounds=150, noise_multiplier=Z, delta=1e-6)
        run = so.simulate(plan, TASK("quadratics"), seed=0, evaluate_every=150)
        ends[type(bound).__name__] = run.history[-1]["suboptimality"]
    assert ends["Normalize"] < 0.97 * ends["Clip"]


def test_the_committed_results_say_so_at_every_learning_rate() -> None:
    result = json.loads(RESULTS.read_text())
    ends = {(row["row"], row["column"]): row["mean"] for row in result["rows"]}
    rows = {row for row, _ in ends}
    large = {row for row in rows if "C = 50" in row or "C = 100" in row}
    assert len(rows) == 24
    assert len(large) == 16
    for row in large:
        assert ends[row, "norm"] < ends[row, "clip"], row
    promised = [g for g in result["guarantees"][0]["guarantees"] if g["scope"] == "all rounds"]
    assert [(g["observer"], g["epsilon"]) for g in promised if g["epsilon"] != "inf"] == [
        ("model user", pytest.approx(5, rel=1e-6))
    ]
