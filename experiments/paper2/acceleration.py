"""Fewer rounds by acceleration, measured: `python -m experiments.paper2.acceleration`.

Ridge regression with a small mu on one data set, by Algorithm 1 and by the stages of Algorithm 2, at one total epsilon:
the noise is calibrated anew for each number of rounds, so that more rounds cost nothing but time. Theorem 2.1 needs
rounds in proportion to beta / mu, Theorem D.1 to its square root. Writes results/paper2/acceleration.json and a figure.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import sordino as so
from experiments.paper2.coordinates import Loss, true_shares
from experiments.paper2.exact_rounds import everybody, final_models
from sordino.algorithms.ac_sa import AcSa
from sordino.algorithms.noisy_mb_sgd import NoisyMbSgd
from sordino.experiments.provenance import provenance
from sordino.tasks import Population

ROOT = Path(__file__).parents[2]
RESULT, PICTURE = ROOT / "results/paper2/acceleration.json", ROOT / "docs/figures/paper2-rounds.png"
RIDGE, d, M, n, EPSILON, DELTA = Loss("ridge", 0.5, 0.005), 20, 100, 1000, 8.0, 1e-5
Q = 0.5  # of every coordinate's records: + with probability (1 + Q) / 2
ROUNDS = (5, 10, 20, 40, 80, 160, 320, 640, 1280)
SEEDS = 64
METHODS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "MB-SGD": (so.noisy_mb_sgd, {}),
    "multi-stage AC-SA": (so.accelerated_mb_sgd, {"multi_stage": True}),
}


def risks(name: str, rounds: int) -> NDArray[np.float64]:
    """The excess empirical risk of each seed."""
    make, options = METHODS[name]
    method = make(lipschitz=1.0, radius=RIDGE.D, mu=RIDGE.mu, smoothness=RIDGE.curvature(), **options)
    plan = so.plan(method, rounds=rounds, cohort="full", epsilon=EPSILON, delta=DELTA, trust="local")
    found = plan.resolve(Population(d, M, np.full(M, n)))
    assert found.rules.numbers is not None
    assert isinstance(found.method, NoisyMbSgd | AcSa)
    shares = true_shares(Q, d)
    data = np.broadcast_to(shares, (1, SEEDS, *shares.shape)).astype(np.float32)
    std = float(found.rules.numbers.noise_std[0])
    w = final_models(found.method, RIDGE, everybody(M), data, d=d, rounds=rounds, noise_std=std, beta=None, seeds=SEEDS)
    return RIDGE.excess(w, shares)[0]


def rows_of(found: dict[str, list[NDArray[np.float64]]]) -> list[dict[str, Any]]:
    """Each method's risk for each number of rounds, and the rounds to twice the least mean risk of all."""
    seeds = list(range(SEEDS))
    rows: list[dict[str, Any]] = [
        {"row": name, "column": f"R = {R}", "paper": None, "mean": float(risk.mean()), "std": float(risk.std(ddof=1))}
        for name, each in found.items()
        for R, risk in zip(ROUNDS, each, strict=True)
    ]
    enough = 2 * min(row["mean"] for row in rows)
    for name, each in found.items():
        first = next(R for R, risk in zip(ROUNDS, each, strict=True) if risk.mean() <= enough)
        rows.append(
            {"row": name, "column": "rounds to twice the least risk", "paper": None, "mean": first, "std": None}
        )
    return [row | {"seeds": seeds} for row in rows]


def plot(found: dict[str, list[NDArray[np.float64]]]) -> None:
    """Excess risk over rounds, with the interval of the mean."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for name, each in found.items():
        centre, half = (
            np.array([f(risk) for risk in each]) for f in (np.mean, lambda r: 1.96 * r.std() / len(r) ** 0.5)
        )
        axes.loglog(ROUNDS, centre, "o-", label=name)
        axes.fill_between(ROUNDS, centre - half, centre + half, alpha=0.3)
    axes.set(xlabel="rounds", ylabel="excess risk", title=f"ridge, mu = {RIDGE.mu:g}, total epsilon = {EPSILON:g}")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(PICTURE, dpi=80)


def main() -> None:
    """Run both methods for every number of rounds, and write the result."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    made = provenance("python -m experiments.paper2.acceleration")
    found = {name: [risks(name, R) for R in ROUNDS] for name in METHODS}
    result = {
        "name": "acceleration",
        "metric": f"excess empirical risk of ridge regression, mu = {RIDGE.mu:g}, epsilon = {EPSILON:g} in all",
        "guarantees": [],
        "provenance": made,
        "rows": rows_of(found),
        "note": f"{M} clients of {n} records, {d} coordinates; all records in every round; the mean of {SEEDS} seeds.",
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    plot(found)
    print(*(row for row in result["rows"]), sep="\n")


if __name__ == "__main__":
    main()
