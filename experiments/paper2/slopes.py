"""Rates of Theorems 2.1, 2.3 and D.1, measured: `python -m experiments.paper2.slopes`.

Each case is a problem with a known minimiser. One of n, M, d and epsilon varies at a time; the slope of log excess risk
against its logarithm, with its 95 % interval, stands beside the theorem's. Then the rounds that Noisy MB-SGD and its
accelerated form need to reach the same risk with the same total privacy. Writes results/paper2/slopes.json and figures.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

import sordino as so
from experiments.paper2.hospitals import ROOT
from sordino.experiments.provenance import provenance
from sordino.tasks import Task

BASE = {"n": 200, "M": 10, "d": 10, "epsilon": 1.0}
VALUES: dict[str, tuple[float, ...]] = {
    "n": (100, 200, 400, 800),
    "M": (5, 10, 20, 40),
    "d": (5, 10, 20, 40),
    "epsilon": (0.25, 0.5, 1.0, 2.0),
}
ONE_PASS_BASE = BASE | {"n": 1000, "M": 20}
ONE_PASS_VALUES = VALUES | {"n": (500, 1000, 2000, 4000), "M": (10, 20, 40, 80)}
DELTA, SEEDS = 1e-5, range(8)
STRONG = {"n": -2.0, "M": -1.0, "d": 1.0, "epsilon": -2.0}
CONVEX = {"n": -1.0, "M": -0.5, "d": 0.5, "epsilon": -1.0}
ONE_PASS_STRONG = {"n": -1.0, "M": -1.0, "d": 1.0, "epsilon": -2.0}
ONE_PASS_CONVEX = {"n": -0.5, "M": -0.5, "d": 0.5, "epsilon": -1.0}


@dataclass(frozen=True)
class Case:
    """A theorem, a problem and a method for it."""

    name: str
    loss: dict[str, Any]  # options of the linear task
    method: Callable[..., Any]
    settings: dict[str, Any]
    rounds: int | None  # None: one pass, as many as the records allow
    theory: dict[str, float]

    @property
    def base(self) -> dict[str, Any]:
        """Where all but one quantity stay."""
        return BASE if self.rounds else ONE_PASS_BASE

    @property
    def values(self) -> dict[str, tuple[float, ...]]:
        """Where the one quantity goes."""
        return VALUES if self.rounds else ONE_PASS_VALUES


RIDGE, LOGIT = {"loss": "ridge", "l2": 0.5}, {"loss": "logit", "l2": 0.5}
ABSOLUTE = {"loss": "absolute", "smoothing": 10.0, "noise": 0.01}
BALL = {"lipschitz": 1.0, "radius": 1.5, "feature_bound": 1.0}
STRONGLY, STAGES = BALL | {"mu": 0.5}, BALL | {"mu": 0.5, "multi_stage": True}
ONCE = {"one_pass": True, "batch_size": 5}
SGD, AC_SA = so.noisy_mb_sgd, so.accelerated_mb_sgd
CASES = (
    Case("Theorem 2.1, strongly convex: MB-SGD, ridge", RIDGE, SGD, STRONGLY, 150, STRONG),
    Case("Theorem D.1, strongly convex: multi-stage AC-SA, L2 logistic", LOGIT, AC_SA, STAGES, 200, STRONG),
    Case("Theorem 2.1, convex: MB-SGD, smoothed absolute loss", ABSOLUTE, SGD, BALL, 1000, CONVEX),
    Case("Theorem D.1, convex: AC-SA, smoothed absolute loss", ABSOLUTE, AC_SA, BALL, 100, CONVEX),
    Case(
        "Theorem 2.3, strongly convex: one pass, ridge, different clients",
        RIDGE | {"spread": 0.5},
        AC_SA,
        STAGES | ONCE,
        None,
        ONE_PASS_STRONG,
    ),
    Case(
        "Theorem 2.3, convex: one pass, smoothed absolute loss, different clients",
        ABSOLUTE | {"spread": 0.5},
        AC_SA,
        BALL | ONCE,
        None,
        ONE_PASS_CONVEX,
    ),
)
_TASKS: dict[str, Task] = {}


def task_of(loss: dict[str, Any], n: int, M: int, d: int) -> Task:
    """The problem of this size, made once."""
    key = repr((loss, n, M, d))
    if key not in _TASKS:
        _TASKS[key] = so.task("linear", clients=M, records=n, d=d, **loss)
    return _TASKS[key]


def excess(case: Case, setting: dict[str, Any], rounds: int | None = None, seeds: Iterable[int] = SEEDS) -> np.ndarray:
    """F(w) - F* after all rounds, for every seed."""
    n, M, d, epsilon = int(setting["n"]), int(setting["M"]), int(setting["d"]), setting["epsilon"]
    task = task_of(case.loss, n, M, d)
    R = rounds or case.rounds or n // ONCE["batch_size"]
    plan = so.plan(case.method(**case.settings), rounds=R, epsilon=epsilon, delta=DELTA, trust="local")
    runs = [so.simulate(plan, task, seed=seed, evaluate_every=R) for seed in seeds]
    return np.array([run.history[-1]["suboptimality"] for run in runs])


def bound(case: Case, setting: dict[str, Any]) -> float:
    """What the theorem bounds the risk by, up to a constant, with the noise that was added and with logarithms.

    Convex D V / sqrt(R); strongly convex V^2 / (mu R), for Algorithm 1 times ln(mu^2 D^2 R^2 / (2 V^2)). V holds the
    noise of the analytic Gaussian, which falls a little more slowly with epsilon than 1 / epsilon.
    """
    n, M, d = int(setting["n"]), int(setting["M"]), int(setting["d"])
    task, R = task_of(case.loss, n, M, d), case.rounds or n // ONCE["batch_size"]
    method = case.method(**case.settings)
    plan = so.plan(method, rounds=R, epsilon=setting["epsilon"], delta=DELTA, trust="local")
    numbers = plan.resolve(task.population).rules.numbers
    assert numbers is not None
    std = float(numbers.noise_std[0])
    mu, D, V2 = float(method.mu), float(method.radius), d * std**2 / M
    if mu == 0:
        return D * math.sqrt(V2 / R)
    log = math.log(max(2.0, (mu * D * R) ** 2 / (2 * V2))) if case.method is SGD else 1.0
    return V2 / (mu * R) * log


def slope(values: tuple[float, ...], measured: list[np.ndarray]) -> tuple[float, float, float]:
    """Of log excess risk on the logarithm: the estimate and its 95 % interval, over all seeds."""
    x = np.repeat(np.log(values), [len(some) for some in measured])
    fit = stats.linregress(x, np.log(np.maximum(np.concatenate(measured), 1e-12)))
    half = float(stats.t.ppf(0.975, len(x) - 2) * fit.stderr)
    return float(fit.slope), float(fit.slope) - half, float(fit.slope) + half


def rounds_needed(seeds: Iterable[int] = range(5)) -> dict[str, Any]:
    """The fewest rounds to a given risk of both methods, on ridge regression with condition number 1 / 0.005."""
    loss, settings = {"loss": "ridge", "l2": 0.005}, BALL | {"mu": 0.005}
    setting = BASE | {"n": 1000, "epsilon": 8.0}
    grid = (5, 10, 20, 40, 80, 160, 320, 640)
    curves = {}
    for name, method in (("MB-SGD", so.noisy_mb_sgd), ("accelerated", so.accelerated_mb_sgd)):
        case = Case(name, loss, method, settings, 1, {})
        curves[name] = [float(excess(case, setting, R, seeds).mean()) for R in grid]
        print(name, dict(zip(grid, np.round(curves[name], 5), strict=True)), flush=True)
    target = 1.1 * min(curves["MB-SGD"])
    needed = {
        name: next((R for R, risk in zip(grid, curve, strict=True) if risk <= target), None)
        for name, curve in curves.items()
    }
    return {"grid": list(grid), "risk": curves, "target": target, "rounds": needed}


def plot(figures: dict[str, Any]) -> None:
    """Excess risk over each quantity, a row a case."""
    figure = Figure(figsize=(13, 3.1 * len(CASES)), layout="constrained")
    grid = figure.subplots(len(CASES), len(VALUES))
    for row, case in zip(grid, CASES, strict=True):
        for axes, (name, values) in zip(row, case.values.items(), strict=True):
            means = np.array(figures[case.name][name]["mean"])
            centre, low, high = figures[case.name][name]["slope"]
            x = np.array(values)
            axes.loglog(x, means, "o-")
            axes.loglog(x, means[1] * (x / x[1]) ** case.theory[name], "k:", label=f"slope {case.theory[name]:g}")
            axes.set(xlabel=name, title=f"{centre:.2f} [{low:.2f}, {high:.2f}]")
            axes.tick_params(axis="x", which="minor", labelbottom=False)
            axes.legend()
            axes.grid(alpha=0.3)
        row[0].set_ylabel(case.name.replace(": ", ":\n").replace(", ", ",\n"), fontsize=8)
    figure.savefig(ROOT / "docs/figures/paper2-slopes.png", dpi=80)


def plot_rounds(found: dict[str, Any]) -> None:
    """Risk over rounds of both methods at one total privacy."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for name, curve in found["risk"].items():
        axes.loglog(found["grid"], curve, "o-", label=name)
    axes.axhline(found["target"], color="black", linestyle=":", label="target")
    axes.set(xlabel="rounds R, noise calibrated for each R", ylabel="excess risk")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(ROOT / "docs/figures/paper2-rounds.png", dpi=110)


def main() -> None:
    """All cases."""
    figures: dict[str, Any] = {}
    rows = []
    for case in CASES:
        figures[case.name] = {}
        for name, values in case.values.items():
            measured = [excess(case, case.base | {name: value}) for value in values]
            centre, low, high = slope(values, measured)
            means = [float(some.mean()) for some in measured]
            bounds = np.log([bound(case, case.base | {name: value}) for value in values])
            expected = float(stats.linregress(np.log(values), bounds).slope)
            figures[case.name][name] = {"mean": means, "slope": (centre, low, high)}
            print(
                f"{case.name}; {name}: {centre:.2f} [{low:.2f}, {high:.2f}],",
                f"theory {case.theory[name]}, with logarithms {expected:.2f}; {means}",
                flush=True,
            )
            half = round((high - low) / 2, 3)
            row = {"row": case.name, "column": name, "paper": case.theory[name], "mean": round(centre, 3)}
            more = {"std": None, "ci95": half, "with_logarithms": round(expected, 3), "risk": means}
            rows.append(row | more | {"seeds": list(SEEDS)})
    found = rounds_needed()
    plot(figures)
    plot_rounds(found)
    result = {
        "name": "slopes",
        "metric": "slope of log excess risk; ci95 is half of its 95 % interval; paper is the theorem's exponent",
        "rows": rows,
        "rounds": found,
        "guarantees": [],
        "provenance": provenance("python -m experiments.paper2.slopes"),
    }
    (ROOT / "results/paper2/slopes.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
