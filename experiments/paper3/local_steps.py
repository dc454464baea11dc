"""Proposition 1 of paper 3: many local steps or one: `python -m experiments.paper3.local_steps`.

f_i(w) = ||w - c_i||^2 / 2 for 100 clients in R^20, with ||c_i - w*|| = s and ||w_0 - w*|| = 1: L = lambda = 1,
G = 1 + s where the iterates are, and Delta_i* = s^2 / 2. The rule gives C-hat, eta, K and the better E for each s. E
goes from 1 to 1 / (2 rho). Writes results/paper3/local-steps.json: the suboptimality of a random iterate, mean over
seeds, beside the bound of eq. (11).
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import sordino as so
from sordino.data import FederatedData
from sordino.experiments.provenance import provenance
from sordino.models import Batch, from_loss, weighted_mean
from sordino.rules import paper3
from sordino.runs.loop import Options
from sordino.runs.point import Point
from sordino.runs.sweep import sweep
from sordino.tasks import Task
from sordino.types import Key, Vector

CLIENTS, DIMENSION, RHO, STEPS, SEEDS = 100, 20, 0.05, (1, 2, 5, 10), range(20)
SPREADS = (0.05, 0.4)  # below and above the spread at which Delta* is the threshold
OUT = Path("results/paper3/local-steps.json")


def parabolas(s: float) -> Task:
    """Clients' centers at distance s around 0 in opposite pairs, so that w* = 0; a run starts at distance 1."""
    rng = np.random.default_rng(0)
    half = rng.standard_normal((CLIENTS // 2, DIMENSION))
    half *= s / np.linalg.norm(half, axis=1, keepdims=True)
    centers = np.concatenate([half, -half]).astype(np.float32)
    data = FederatedData(
        centers,
        np.zeros(CLIENTS, np.float32),
        np.arange(CLIENTS, dtype=np.int32),
        np.ones(CLIENTS, np.int32),
        centers,
        np.zeros(CLIENTS, np.float32),
        classes=0,
    )

    def init(key: Key) -> Vector:
        del key  # deterministic
        return jnp.zeros(DIMENSION).at[0].set(1.0)

    def loss(w: Vector, batch: Batch) -> jax.Array:
        return weighted_mean(0.5 * jnp.sum((w - batch.x) ** 2, axis=1), batch.weight)

    return Task("parabolas", data, from_loss(init, loss, name="parabolas"), minimum=s**2 / 2)


def cell(s: float, E: int) -> dict[str, object]:
    """Suboptimality after the theorem's rounds with E local steps."""
    gap, G = s**2 / 2, 1 + s
    facts = {"rho": RHO, "L": 1.0, "distance": 1.0, "mean_gap": gap, "largest_gap": gap}
    chosen = paper3.proposition_1(**facts, G=G, lambda_=1.0, E=E)
    steps = paper3.theorem_2(**facts, E=E, C_hat=chosen.C_hat)
    z = RHO * CLIENTS * math.sqrt(steps.K / DIMENSION)  # so that definition 5 of the noise gives rho
    method = so.fedavg(local_steps=E, local_lr=steps.eta, server_lr=steps.eta, bound=so.clip(steps.C), output="random")
    plan = so.plan(method, rounds=steps.K, noise_multiplier=z, delta=1e-5)
    runs = sweep([Point(plan, seed) for seed in SEEDS], parabolas(s), Options(evaluate_every=steps.K))
    risk = np.array([run.history[-1]["suboptimality"] for run in runs])
    half = float(stats.t.ppf(0.975, len(risk) - 1) * risk.std(ddof=1) / math.sqrt(len(risk)))
    row = {"row": f"Delta* = {gap:g}, threshold {chosen.threshold:.3g}", "column": f"E = {E}", "paper": None}
    found = {"mean": float(risk.mean()), "std": float(risk.std(ddof=1)), "ci95": half, "bound": chosen.risk}
    choices = {"rounds": steps.K, "clip": steps.C, "best_steps": chosen.best_steps}
    return row | found | choices | {"seeds": list(SEEDS)}


def main() -> None:
    """All cells."""
    made = provenance("python -m experiments.paper3.local_steps")
    rows = [cell(s, E) for s in SPREADS for E in STEPS]
    for row in rows:
        print(row, flush=True)
    result = {
        "name": "local-steps",
        "metric": "suboptimality f(w) - f(w*) of a random iterate; bound is eq. (11)",
        "rows": rows,
        "guarantees": [],
        "provenance": made,
    }
    OUT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
