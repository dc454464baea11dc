"""The loss on the clients' records, which a table may ask for: what it is, and that it is marked as not private."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import sordino as so
from sordino.experiments.reproducing import measured
from sordino.runs import Options, Point, sweep
from sordino.tasks import evaluate


@pytest.mark.parametrize("seeds", [(0,), (0, 1)], ids=["alone", "together"])
def test_it_is_the_mean_loss_over_all_records_of_the_model_so_far(seeds):
    task = so.task("digits", model="logistic", clients=10)
    plan = so.plan(
        so.fedavg(local_steps=2, local_lr=0.1, bound=so.clip(1.0)),
        rounds=2,
        noise_multiplier=1.0,
        delta=1e-5,
        sampler="float32",
    )
    options = Options(evaluate_every=1, training_loss=True, iterates=True)
    for run in sweep([Point(plan, seed) for seed in seeds], task, options):
        for row, w in zip(run.history, run.iterates, strict=True):
            loss, _ = evaluate(jnp.asarray(w), task.records.x, task.records.y, predict=task.predict)
            assert row["not_private"]["training_loss"] == pytest.approx(float(loss), rel=1e-5)
            assert measured(row, "training_loss") == row["not_private"]["training_loss"] != row["test_loss"]


def test_nobody_measures_it_unasked():
    task = so.task("digits", model="logistic", clients=10)
    plan = so.plan(
        so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(1.0)),
        rounds=1,
        noise_multiplier=1.0,
        delta=1e-5,
        sampler="float32",
    )
    (run,) = sweep([Point(plan, 0)], task)
    assert "training_loss" not in run.history[0]["not_private"]
