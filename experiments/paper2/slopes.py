"""Rates of paper 2's theorems at their own parameters: `python -m experiments.paper2.slopes [WORDS]`.

Each case of `slope_cases` is a problem with a known minimiser. One of n, M, d and epsilon varies at a time; the slope
of log excess risk against its logarithm, with its 95 % interval, stands beside the theorem's. Then the rounds that
Noisy MB-SGD and its accelerated form need to reach the same risk with the same total privacy. Writes
results/paper2/slopes.json and figures, after each row: rows that are not made again stay, with the commit that made
them. With words, only rows with one of them in "case, quantity" run, and the comparison of rounds for the word rounds.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

import sordino as so
from experiments.paper2.hospitals import ROOT
from experiments.paper2.slope_cases import CASES, DELTA, MU, SGD, WHY, Case, Chosen, D, L, Setting
from sordino.data import linear_problem
from sordino.experiments.provenance import provenance
from sordino.models import linear
from sordino.planning import Plan
from sordino.rules.paper2.ensemble import Answering
from sordino.runs.loop import Options
from sordino.runs.point import Point, Run
from sordino.runs.sweep import sweep
from sordino.tasks import Task

NOISE_SEEDS, DATA_SEEDS = range(8), range(5)
RESULT = ROOT / "results/paper2/slopes.json"


@cache
def _task(loss: tuple[tuple[str, Any], ...], n: int, clients: int, d: int, seed: int) -> Task:
    return so.task("linear", clients=clients, records=n, d=d, seed=seed, **dict(loss))


def task_of(case: Case, setting: Setting, smoothing: float | None, seed: int = 0) -> Task:
    """The problem of this size, made once, and the envelope that clients train on."""
    d = int(setting["d"])
    task = _task(tuple(case.loss.items()), int(setting["n"]), case.clients or int(setting["M"]), d, seed)
    return task if smoothing is None else replace(task, model=linear(case.loss["loss"], d, smoothing=smoothing))


def answering(case: Case, M: int) -> tuple[str, Answering]:
    """The cohort, and the law of M_r: uniform from half of M to one and a half, where not all answer."""
    if case.clients is None:
        return "full", Answering((M,))
    low, high = M // 2, M + M // 2
    return f"unreliable:{low}-{high}", Answering(tuple(range(low, high + 1)))


def plan_of(case: Case, setting: Setting, chosen: Chosen) -> Plan:
    """Calibrated noise, and the theorem's rounds."""
    method = case.method(**case.settings)
    cohort, _ = answering(case, int(setting["M"]))
    epsilon, trust = setting["epsilon"], case.trust
    return so.plan(method, rounds=chosen.rounds, cohort=cohort, epsilon=epsilon, delta=DELTA, trust=trust)


def excess(case: Case, setting: Setting) -> np.ndarray:
    """F(w) - F* after all rounds, for every seed; computed once for the base, which all quantities share."""
    key = (case.name, tuple(sorted(setting.items())))
    if key not in _EXCESS:
        _EXCESS[key] = _excess(case, setting)
    return _EXCESS[key]


_EXCESS: dict[tuple[str, tuple[tuple[str, float], ...]], np.ndarray] = {}


def _excess(case: Case, setting: Setting) -> np.ndarray:
    chosen = case.choose(setting)
    plan = plan_of(case, setting, chosen)
    once = Options(evaluate_every=chosen.rounds)
    if not case.population:
        runs = sweep([Point(plan, seed) for seed in NOISE_SEEDS], task_of(case, setting, chosen.smoothing), once)
        return np.array([run.history[-1]["suboptimality"] for run in runs])
    return np.array([_population(case, setting, chosen, plan, once, seed) for seed in DATA_SEEDS])


def _population(case: Case, setting: Setting, chosen: Chosen, plan: Plan, once: Options, seed: int) -> float:
    """Over fresh records, of a model that was trained on one data set."""
    task = task_of(case, setting, chosen.smoothing, seed)
    (run,) = sweep([Point(plan, seed)], task, once)
    return population_excess(case, setting, run, seed)


def population_excess(case: Case, setting: Setting, run: Run, seed: int) -> float:
    """F(w) - F* of the law that records are drawn from: x uniform on the sphere, y = <w_0, x> + noise.

    Ridge: F - F* = (w - w*)^T (I/d + l2 I) (w - w*) / 2 with w* = w_0 / (1 + d l2). Absolute: F depends on ||w - w_0||
    alone; its mean is taken over 200,000 draws, the same for all.
    """
    n, M, d = int(setting["n"]), int(setting["M"]), int(setting["d"])
    truth = linear_problem(seed, case.clients or M, n, d, **case.loss).truth
    w = np.asarray(run.params, np.float64).ravel()
    if case.loss["loss"] == "ridge":
        l2 = case.loss["l2"]
        return float((1 / d + l2) / 2 * np.sum((w - truth / (1 + d * l2)) ** 2))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200_000, d))
    u, e = x[:, 0] / np.linalg.norm(x, axis=1), case.loss["noise"] * rng.standard_normal(len(x))
    return float(np.mean(np.abs(np.linalg.norm(w - truth) * u + e) - np.abs(e)))


def bound(case: Case, setting: Setting) -> float:
    """What the theorem bounds the risk by, up to a constant, with the noise that was added and with logarithms.

    Convex D V / sqrt(R); strongly convex V^2 / (mu R), for Algorithm 1 times ln(mu^2 D^2 R^2 / (2 V^2)). V holds the
    noise of the accountant, which falls a little more slowly with epsilon than 1 / epsilon. The population risk has
    L^2 / (mu M n) or L D / sqrt(M n) beside it.
    """
    n, d = int(setting["n"]), int(setting["d"])
    chosen = case.choose(setting)
    task, plan = task_of(case, setting, chosen.smoothing), plan_of(case, setting, chosen)
    numbers = plan.resolve(task.population).rules.numbers
    assert numbers is not None
    R, M = chosen.rounds, answering(case, int(setting["M"]))[1].mean
    V2 = d * float(numbers.noise_std[0]) ** 2 / M
    if "mu" not in case.settings:
        return D * math.sqrt(V2 / R) + (D / math.sqrt(M * n) if case.population else 0.0)
    log = math.log(max(2.0, (MU * D * R) ** 2 / (2 * V2))) if case.method is SGD else 1.0
    return V2 / (MU * R) * log + (1 / (MU * M * n) if case.population else 0.0)


def slope(values: tuple[float, ...], measured: list[np.ndarray]) -> tuple[float, float, float]:
    """Of log excess risk on the logarithm: the estimate and its 95 % interval, over all seeds."""
    x = np.repeat(np.log(values), [len(some) for some in measured])
    fit = stats.linregress(x, np.log(np.maximum(np.concatenate(measured), 1e-12)))
    half = float(stats.t.ppf(0.975, len(x) - 2) * fit.stderr)
    return float(fit.slope), float(fit.slope) - half, float(fit.slope) + half


def rounds_needed(seeds: Iterable[int] = range(5)) -> dict[str, Any]:
    """The fewest rounds to a given risk of both methods, on ridge regression with condition number 1 / 0.005."""
    n, M, d = 1000, 10, 10
    grid = (5, 10, 20, 40, 80, 160, 320, 640)
    curves: dict[str, list[float]] = {}
    for name, method in (("MB-SGD", SGD), ("accelerated", so.accelerated_mb_sgd)):
        curves[name] = []
        for R in grid:
            plan = so.plan(
                method(lipschitz=L, radius=D, feature_bound=1.0, mu=0.005),
                rounds=R,
                epsilon=8.0,
                delta=DELTA,
                trust="local",
            )
            task = _task((("loss", "ridge"), ("l2", 0.005)), n, M, d, 0)
            runs = sweep([Point(plan, seed) for seed in seeds], task, Options(evaluate_every=R))
            curves[name].append(float(np.mean([run.history[-1]["suboptimality"] for run in runs])))
        print(name, dict(zip(grid, np.round(curves[name], 5), strict=True)), flush=True)
    target = 1.1 * min(curves["MB-SGD"])
    needed = {
        name: next((R for R, risk in zip(grid, curve, strict=True) if risk <= target), None)
        for name, curve in curves.items()
    }
    return {"grid": list(grid), "risk": curves, "target": target, "rounds": needed}


def row_of(case: Case, name: str, made_at: str) -> dict[str, Any]:
    """The slope over one quantity, with the risk at every value."""
    settings = [{**case.base, name: value} for value in case.values[name]]
    measured = [excess(case, setting) for setting in settings]
    x = [answering(case, int(value))[1].mean if name == "M" else float(value) for value in case.values[name]]
    centre, low, high = slope(tuple(x), measured)
    expected = float(stats.linregress(np.log(x), np.log([bound(case, setting) for setting in settings])).slope)
    return {
        "row": case.name,
        "column": name,
        "paper": case.theory[name],
        "mean": round(centre, 3),
        "std": None,
        "ci95": round((high - low) / 2, 3),
        "with_logarithms": round(expected, 3),
        "values": x,
        "rounds": [case.choose(setting).rounds for setting in settings],
        "risk": [float(some.mean()) for some in measured],
        "seeds": list(DATA_SEEDS if case.population else NOISE_SEEDS),
        "commit": made_at,
    }


def note_of(rows: list[dict[str, Any]]) -> str:
    """Which slopes hold the exponent of the theorem, or of its bound with logarithms, in their interval."""

    def agrees(row: dict[str, Any], with_logarithms: bool) -> bool:
        other = row["with_logarithms"] if with_logarithms else row["paper"]
        return bool(abs(row["mean"] - other) <= row["ci95"])

    plain = [row for row in rows if agrees(row, with_logarithms=False)]
    only_logarithms = [row for row in rows if row not in plain and agrees(row, with_logarithms=True)]
    rest = [row for row in rows if row not in plain and row not in only_logarithms]
    text = f"{len(plain)} of {len(rows)} slopes hold the theorem's exponent in their 95 % interval, and "
    text += f"{len(only_logarithms)} more that of its bound with the noise that was added. Not so: "
    return text + "; ".join(f"{row['row']}, {row['column']} ({_why(row)})" for row in rest) + "."


def _why(row: dict[str, Any]) -> str:
    told = f"{row['mean']:.2f} +- {row['ci95']:.2f}"
    reasons = [reason for (case, name), reason in WHY.items() if row["row"].startswith(case) and name == row["column"]]
    return ": ".join([told, *reasons])


def plot(rows: list[dict[str, Any]]) -> None:
    """Excess risk over each quantity, a row a case."""
    names = list(dict.fromkeys(row["row"] for row in rows))
    columns = ("n", "M", "d", "epsilon")
    figure = Figure(figsize=(13, 2.6 * len(names)), layout="constrained")
    grid = np.atleast_2d(figure.subplots(len(names), len(columns), squeeze=False))
    for axes in grid.ravel():
        axes.axis("off")
    for row in rows:
        line = names.index(row["row"])
        axes = grid[line, columns.index(row["column"])]
        axes.axis("on")
        x, risk, half = np.array(row["values"]), np.array(row["risk"]), row["ci95"]
        axes.loglog(x, risk, "o-")
        axes.loglog(x, risk[1] * (x / x[1]) ** row["paper"], "k:", label=f"slope {row['paper']:g}")
        axes.set(xlabel=row["column"], title=f"{row['mean']:.2f} +- {half:.2f}")
        axes.tick_params(axis="x", which="minor", labelbottom=False)
        axes.legend()
        axes.grid(alpha=0.3)
        if row["column"] == next(other["column"] for other in rows if other["row"] == row["row"]):
            axes.set_ylabel(row["row"].replace(": ", ":\n").replace(", ", ",\n"), fontsize=7)
    figure.savefig(ROOT / "docs/figures/paper2-slopes.png", dpi=70)


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


def main(words: list[str]) -> None:
    """All cases, or those with one of the words in their names."""
    made = provenance(" ".join(["python -m experiments.paper2.slopes", *words]))
    before = json.loads(RESULT.read_text())
    for row in before["rows"]:
        row.setdefault("commit", before["provenance"]["commit"])
    done = {(row["row"], row["column"]): row for row in before["rows"]}
    result = {
        "name": "slopes",
        "metric": "slope of log excess risk; ci95 is half of its 95 % interval; paper is the theorem's exponent",
        "guarantees": [],
        "provenance": made,
    }

    def write() -> None:
        rows = [done[case.name, name] for case in CASES for name in case.values if (case.name, name) in done]
        made["earlier_commits"] = sorted({row["commit"] for row in rows} - {made["commit"]})
        found = result | {"rows": rows, "rounds": before["rounds"], "note": note_of(rows)}
        RESULT.write_text(json.dumps(found, indent=1) + "\n")
        plot([row for row in rows if "values" in row])

    for name in (
        "n",
        "M",
        "epsilon",
        "d",
    ):  # the quantities in turn, so that a run that is stopped has some of each case
        for case in CASES:
            if name in case.values and (not words or any(word in f"{case.name}, {name}" for word in words)):
                done[case.name, name] = row_of(case, name, made["commit"])
                print(json.dumps(done[case.name, name]), flush=True)
                write()
    if not words or "rounds" in words:
        before["rounds"] = rounds_needed()
        plot_rounds(before["rounds"])
    write()


if __name__ == "__main__":
    main(sys.argv[1:])
