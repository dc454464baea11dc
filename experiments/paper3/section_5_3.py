"""Paper 3, Section 5.3: clipping against normalization on quadratics whose minimum is known.

    python -m experiments.paper3.section_5_3 [--quick]

f_i(w) = 1/2 (w - w_i*)^T A_i A_i^T (w - w_i*), n = 100 clients, d = 200, rank 20; K = 500 rounds of E = 20 local steps,
all clients in each, (5, 1e-6)-DP for one client; w_0 = w* + z (I1) or w* + z / 5 (I2) with z ~ U(0, 1)^d. Three runs on
one problem: a seed draws z and the noise, which is the same for both methods. Not in the paper's text, so chosen here:
the learning rates (they stand in its pictures alone), the noise (calibrated exactly; its constant q is open), and the
plane of Figure 3.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import sordino as so
from sordino.data import quadratics
from sordino.simulation import Run
from sordino.simulation.running import environment

BOUNDS: dict[str, Callable[[float], so.Bounder]] = {"clip": so.clip, "norm": so.normalize}
STARTS = {"I1": 1.0, "I2": 0.2}
CS = (40.0, 50.0, 100.0)
RATES = (1e-4, 3e-4, 1e-3, 3e-3)
SEEDS = (0, 1, 2)
K, E, EVERY = 500, 20, 10
FIGURE_2_RATE = 1e-3
FIGURE_3_CASES = (("I1", 50.0, 1e-3), ("I1", 100.0, 1e-3))

ROOT = Path(__file__).parents[2]
RESULTS, FIGURES = ROOT / "results" / "paper3", ROOT / "docs" / "figures"

Case = tuple[str, float, float]  # start, C, eta
Runs = dict[tuple[Case, str], list[Run]]


def main() -> None:
    """Run everything, write numbers and figures, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="C = 100, one seed; writes nothing")
    quick = parser.parse_args().quick
    runs = run_all((100.0,), (0,)) if quick else run_all(CS, SEEDS)
    if not quick:
        RESULTS.mkdir(parents=True, exist_ok=True)
        FIGURES.mkdir(parents=True, exist_ok=True)
        write_table(runs, RESULTS / "section-5-3.json")
        write_curves(runs, RESULTS / "section-5-3-curves.csv")
        plot_figure_1(runs, FIGURES / "paper3-figure1.png")
        plot_figure_2(runs, FIGURES / "paper3-figure2.png")
        plot_figure_3(runs, FIGURES / "paper3-figure3.png", RESULTS / "section-5-3-trajectories.csv")
    print_table(runs)


def run_all(Cs: tuple[float, ...], seeds: tuple[int, ...]) -> Runs:
    """Every start, C, learning rate and method, once a seed."""
    tasks = {start: so.task("quadratics", scale=scale) for start, scale in STARTS.items()}
    runs: Runs = {}
    for (start, C, eta), method in itertools.product(itertools.product(STARTS, Cs, RATES), BOUNDS):
        algorithm = so.fedavg(local_steps=E, local_lr=eta, bound=BOUNDS[method](C))
        plan = so.plan(algorithm, rounds=K, epsilon=5.0, delta=1e-6)
        runs[(start, C, eta), method] = [
            so.simulate(plan, tasks[start], seed=seed, evaluate_every=EVERY, iterates=True) for seed in seeds
        ]
    return runs


def cases(runs: Runs) -> list[Case]:
    """What the two methods are compared on."""
    return list(dict.fromkeys(case for case, _ in runs))


def final(runs: list[Run]) -> np.ndarray:
    """f(w_K) - f(w*) of every seed."""
    return np.array([run.history[-1]["suboptimality"] for run in runs])


def curve(runs: list[Run], measure: str) -> np.ndarray:
    """[(round, mean over seeds)], every EVERY rounds; a signal-to-noise ratio is the mean over the rounds between."""
    rounds = np.array([row["round"] for row in runs[0].history])
    values = np.mean([[(row | row["not_private"])[measure] for row in run.history] for run in runs], axis=0)
    points = np.arange(EVERY, K + 1, EVERY)
    if measure == "signal_to_noise":  # a row holds the mean since the row before it
        total = np.cumsum(values * np.diff(rounds, prepend=0))[np.isin(rounds, points)]
        return np.stack([points, np.diff(total, prepend=0) / EVERY], axis=1)
    return np.stack([points, values[np.isin(rounds, points)]], axis=1)


def write_table(runs: Runs, path: Path) -> None:
    """Suboptimality after the last round, with the guarantee and what it was made with."""
    rows = [
        {
            "row": f"{start}, C = {C:g}, eta = {eta:g}",
            "column": method,
            "paper": None,
            "mean": float(final(some).mean()),
            "std": float(final(some).std(ddof=1)),
            "seeds": list(SEEDS),
        }
        for ((start, C, eta), method), some in runs.items()
    ]
    made = environment()
    commit = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    result = {
        "name": "section-5-3",
        "metric": f"suboptimality f(w_K) - f(w*), K = {K}",
        "rows": rows,
        # The noise multiplier does not depend on C or the method, nor does the guarantee.
        "guarantees": [{"row": "all", "column": "all", **next(iter(runs.values()))[0].certificate.to_json()}],
        "provenance": {
            "commit": subprocess.run(commit, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip(),
            "versions": {name: made[name] for name in ("sordino", "jax", "numpy", "python")},
            "device": made["device"],
            "date": made["date"],
            "command": "python -m experiments.paper3.section_5_3",
        },
    }
    path.write_text(json.dumps(result, indent=1) + "\n")


def write_curves(runs: Runs, path: Path) -> None:
    """Figures 1 and 2 as numbers."""
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["start", "C", "eta", "method", "round", "suboptimality", "signal_to_noise"])
        for ((start, C, eta), method), some in runs.items():
            pairs = zip(curve(some, "suboptimality"), curve(some, "signal_to_noise"), strict=True)
            for (k, above), (_, ratio) in pairs:
                table.writerow([start, f"{C:g}", f"{eta:g}", method, int(k), f"{above:.5g}", f"{ratio:.4g}"])


def panels(title: str, ylabel: str) -> tuple[Figure, dict[tuple[str, float], Axes]]:
    """A row of panels for each start, a column for each C."""
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    figure.suptitle(title)
    grid = figure.subplots(len(STARTS), len(CS), sharex=True, sharey="row")
    axes: dict[tuple[str, float], Axes] = dict(zip(itertools.product(STARTS, CS), grid.flat, strict=True))
    for (start, C), panel in axes.items():
        panel.set(title=f"{start}, C = {C:g}", xlabel="round", yscale="log")
        panel.grid(alpha=0.3)
    for start in STARTS:
        axes[start, CS[0]].set_ylabel(ylabel)
    return figure, axes


def plot_figure_1(runs: Runs, path: Path) -> None:
    """Suboptimality over rounds."""
    figure, axes = panels("Clipping (dashed) and normalization (solid), (5, 1e-6)-DP", "f(w_k) - f(w*)")
    for ((start, C, eta), method), some in runs.items():
        look: dict[str, Any] = {"color": f"C{RATES.index(eta)}", "linestyle": "--" if method == "clip" else "-"}
        axes[start, C].plot(*curve(some, "suboptimality").T, **look, label=f"{method.title()}({eta:g})")
    figure.legend(*axes["I1", CS[0]].get_legend_handles_labels(), loc="outside lower center", ncols=len(RATES))
    figure.savefig(path, dpi=110)


def plot_figure_2(runs: Runs, path: Path) -> None:
    """Signal-to-noise ratio over rounds."""
    title = f"Norm of the mean update over norm of the mean noise, eta = {FIGURE_2_RATE:g}"
    figure, axes = panels(title, "signal-to-noise ratio")
    for ((start, C, eta), method), some in runs.items():
        if eta == FIGURE_2_RATE:
            look: dict[str, Any] = {"color": "C2", "linestyle": "--" if method == "clip" else "-"}
            axes[start, C].plot(*curve(some, "signal_to_noise").T, **look, label=f"{method.title()}({eta:g})")
    figure.legend(*axes["I1", CS[0]].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.savefig(path, dpi=110)


def plot_figure_3(runs: Runs, path: Path, numbers: Path) -> None:
    """Trajectories of the first seed, smoothed, in the plane in which both together are widest around w*."""
    figure = Figure(figsize=(10, 4.8), layout="constrained")
    lines: list[list[Any]] = [["start", "C", "eta", "method", "x", "y"]]
    minimiser = quadratics(0).minimiser
    for panel, (start, C, eta) in zip(figure.subplots(1, len(FIGURE_3_CASES)), FIGURE_3_CASES, strict=True):
        paths = {method: smoothed(runs[(start, C, eta), method][0].iterates - minimiser) for method in BOUNDS}
        plane = np.linalg.svd(np.concatenate(list(paths.values())), full_matrices=False)[2][:2]
        for method, points in paths.items():
            x, y = plane @ points.T
            panel.plot(x, y, marker=".", markersize=4, label=f"{method.title()}({eta:g})")
            lines += [[start, f"{C:g}", f"{eta:g}", method, f"{a:.4f}", f"{b:.4f}"] for a, b in zip(x, y, strict=True)]
        panel.plot(0, 0, "k*", markersize=12, label="w*")
        panel.set(title=f"{start}, C = {C:g}", aspect="equal", adjustable="datalim")
        panel.grid(alpha=0.3)
        panel.legend()
    figure.savefig(path, dpi=110)
    with numbers.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)


def smoothed(points: np.ndarray, window: int = 5) -> np.ndarray:
    """Running means along a trajectory, of the evaluations every EVERY rounds."""
    points = points[: K // EVERY]
    return np.stack([points[i : i + window].mean(axis=0) for i in range(len(points) - window + 1)])


def print_table(runs: Runs) -> None:
    """Who ends lower."""
    print(f"{'start':5} {'C':>4} {'eta':>7} {'clip':>9} {'norm':>9}   norm < clip (in every seed)")
    for case in cases(runs):
        start, C, eta = case
        clip, norm = final(runs[case, "clip"]), final(runs[case, "norm"])
        verdict = f"{norm.mean() < clip.mean()} ({bool(np.all(norm < clip))})"
        print(f"{start:5} {C:4g} {eta:7g} {clip.mean():9.4f} {norm.mean():9.4f}   {verdict}")


if __name__ == "__main__":
    main()
