"""Four hospitals: a table over seeds in results/paper2/hospitals.json, and a figure.

    python -m experiments.paper2.hospitals

For each epsilon the run file of that name trains the federated model; beside it, with the same method and the same
privacy, each hospital alone and a curator who holds all patients (central DP), and all patients without privacy. The
test patients are every third of all hospitals; 20 seeds draw the noise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

import sordino as so
from sordino.config import load_config
from sordino.experiments.provenance import provenance
from sordino.experiments.specs import PAPERS
from sordino.planning import Plan
from sordino.report.results import Result
from sordino.tasks import Task

ROOT = Path()  # results and figures go below the root of a clone
EPSILONS = ("0.5", "1", "2", "4", "8")
SEEDS = range(20)


def holder(task: Task, first: int, count: int) -> Task:
    """The task of one client that holds the records of the clients first, ..., first + count - 1."""
    data = task.data
    start, stop = int(data.start[first]), int(data.start[first + count - 1] + data.size[first + count - 1])
    size = np.array([stop - start], np.int32)
    own = data._replace(x=data.x[start:stop], y=data.y[start:stop], start=np.zeros(1, np.int32), size=size)
    return replace(task, data=own._replace(names=(" and ".join(data.names[first : first + count]),)))


def cells(task: Task) -> Iterator[tuple[str, str, Plan, Task]]:
    """(row, column, plan, task) of every cell."""
    alone = [holder(task, i, 1) for i in range(task.clients)]
    pooled = holder(task, 0, task.clients)
    for epsilon in EPSILONS:
        plan = load_config(PAPERS / "paper2" / "runs" / f"heart-eps{epsilon}.toml").plan()
        assert isinstance(plan.delta, tuple)  # one a hospital
        yield f"eps {epsilon}", "federated", plan, task
        for name, delta, own in zip(task.data.names, plan.delta, alone, strict=True):
            yield f"eps {epsilon}", f"{name} alone", replace(plan, delta=delta), own
        yield f"eps {epsilon}", "central DP", replace(plan, delta=1e-3 / len(task.data.y)), pooled
    # Nothing is clipped: L is above the norm of any gradient, sqrt(2) sqrt(11).
    free = so.accelerated_mb_sgd(lipschitz=5.0, radius=30.0, feature_bound=3.1623)
    yield "no privacy", "pooled", so.plan(free, rounds=1000), pooled


def measured(row: str, column: str, plan: Plan, task: Task) -> tuple[Result, Result]:
    """A cell's figures with their 95 % interval, and its certificate."""
    runs = [so.simulate(plan, task, seed=seed, evaluate_every=plan.rounds) for seed in SEEDS]
    values = np.array([100 * run.accuracy for run in runs])
    mean, std = float(values.mean()), float(values.std(ddof=1))
    half = float(stats.t.ppf(0.975, len(values) - 1) * std / np.sqrt(len(values)))
    figures = {"paper": None, "mean": round(mean, 3), "std": round(std, 3), "ci95": round(half, 3)}
    where = {"row": row, "column": column}
    return where | figures | {"seeds": list(SEEDS)}, where | runs[0].certificate.to_json()


def plot(rows: list[Result], path: Path) -> None:
    """Accuracy over epsilon."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    for column in dict.fromkeys(row["column"] for row in rows):
        some = [row for row in rows if row["column"] == column]
        mean, half = [row["mean"] for row in some], [row["ci95"] for row in some]
        if column == "pooled":
            axes.axhline(mean[0], color="black", linestyle=":", label="pooled, no privacy")
            continue
        thick = {"linewidth": 3} if column == "federated" else {"linestyle": "-" if column == "central DP" else "--"}
        axes.errorbar([float(row["row"].split()[1]) for row in some], mean, half, capsize=3, label=column, **thick)
    ticks = [float(epsilon) for epsilon in EPSILONS]
    axes.set(xlabel="epsilon of one patient", ylabel="test accuracy (%)", xscale="log")
    axes.set_xticks(ticks, EPSILONS)
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    """All cells."""
    rows, guarantees = [], []
    for cell in cells(so.task("heart-disease")):
        row, guarantee = measured(*cell)
        print(f"{row['row']:10} {row['column']:18} {row['mean']:6.2f} +- {row['ci95']:.2f}", flush=True)
        rows.append(row)
        guarantees.append(guarantee)
    result = {
        "name": "hospitals",
        "metric": "test accuracy (%), ci95 is half of the 95 % interval of the mean",
        "rows": rows,
        "guarantees": guarantees,
        "provenance": provenance("python -m experiments.paper2.hospitals"),
    }
    path = ROOT / "results/paper2/hospitals.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    plot(rows, ROOT / "docs/figures/paper2-hospitals.png")


if __name__ == "__main__":
    main()
