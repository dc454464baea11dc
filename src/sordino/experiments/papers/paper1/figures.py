"""Paper 1: the numbers of Figures 1, 2 and 3, and the figures.

    python -m sordino.experiments.papers.paper1.figures [numbers|plots] [--parts figure1 synthetic mnist drift]
        [--seeds 5] [--rounds 50] [--clients 1000] [--out results/paper1] [--commit HASH]

`numbers` needs JAX, NumPy, SciPy and the accountants alone, so it runs where a GPU is; `plots` draws what files say.

Figure 1: the step size at the start, on the linear regression of Appendix G with d = 100, for M from 100 to 10,000:
naive (3), corrected (6) or (8), and the target (5), which knows the updates before noise. Figure 2: distance to w* on
linear regression, and test accuracy on MNIST; Figure 3: the step sizes of the same runs. Every run is a file beside
this one. Not in the paper's text, so chosen here: w_0 = 0, and SCAFFOLD's noise, with which its two messages together
cost what the one of the others costs. Smaller: --rounds, --clients and --seeds.

Beside the paper, "drift" shows what SCAFFOLD is for: quadratics with different minimisers, where FedAvg's local steps
lead beside the minimum, without noise and with central noise at epsilon = 8.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

import sordino as so
from sordino.algorithms import METHODS
from sordino.experiments.provenance import provenance
from sordino.simulation import Run

HERE = Path(__file__).parent
ROOT = Path()  # run from the root of a clone
FIGURES = ROOT / "docs" / "figures"
ROWS = ("central", "local-gaussian", "local-privunit")
COLUMNS = ("fedexp", "fedavg", "scaffold")
MS = (100, 300, 1000, 3000, 10_000)
MEASURE = {"synthetic": "distance", "mnist": "accuracy", "drift": "suboptimality"}
CURVES = ("row", "column", "round", "mean", "std", "step_size", "step_size_std")


def read(panel: str, row: str, column: str, rounds: int | None, clients: int | None) -> tuple[Any, dict[str, Any]]:
    """(plan, arguments of the task) of a run file, perhaps made smaller."""
    file = tomllib.loads((HERE / "runs" / f"{panel}-{row}-{column}.toml").read_text())
    algorithm, privacy, run = dict(file["algorithm"]), dict(file["privacy"]), file["run"]
    method = METHODS[algorithm.pop("name")](bound=so.clip(float(file["bound"]["clip"])), **algorithm)
    for name, value in privacy.items():
        privacy[name] = float(value) if isinstance(value, int) else value
    task = dict(file["task"])
    task |= task.pop("options", {}) | ({"clients": clients} if clients else {})
    return so.plan(method, rounds=rounds or run["rounds"], **privacy), task


def figure_1(seeds: int) -> list[dict[str, Any]]:
    """Step sizes at the start: rows for the table."""
    rows = []
    for row in ("local-gaussian", "local-privunit"):
        for M in MS:
            plan, arguments = read("synthetic", row, "fedexp", 1, M)
            task = so.task(**arguments)
            silent = so.plan(plan.algorithm, rounds=1)
            found: dict[str, list[float]] = {"naive": [], "corrected": [], "target": []}
            Delta = so.simulate(silent, task, transcript=True).transcript[0][2][0].astype(np.float64)
            for seed in range(seeds):
                run = so.simulate(plan, task, seed=seed, transcript=True)
                c = run.transcript[0][2][0].astype(np.float64)
                square = np.sum(c.mean(axis=0) ** 2)
                found["naive"].append(np.sum(c**2) / M / square)
                found["corrected"].append(run.history[-1]["step_size"])
                found["target"].append(np.sum(Delta**2) / M / square)
            rows += [entry(f"{row.replace('-', ' ')}, M = {M}", name, values) for name, values in found.items()]
            print(rows[-3:], file=sys.stderr)
    return rows


def entry(row: str, column: str, values: list[float]) -> dict[str, Any]:
    """One cell of a table."""
    std = statistics.stdev(values) if len(values) > 1 else None
    mean = float(np.mean(values))
    return {"row": row, "column": column, "paper": None, "mean": mean, "std": std, "seeds": list(range(len(values)))}


def panel_runs(panel: str, options: argparse.Namespace) -> dict[tuple[str, str], list[Run]]:
    """Every row and column of a panel of Figure 2, once a seed, seen after every round."""
    tasks: dict[str, Any] = {}
    runs: dict[tuple[str, str], list[Run]] = {}
    for row in ROWS:
        for column in COLUMNS:
            plan, arguments = read(panel, row, column, options.rounds, options.clients)
            task = tasks.setdefault(str(arguments), None) or so.task(**arguments)
            tasks[str(arguments)] = task
            runs[row, column] = [so.simulate(plan, task, seed=s, evaluate_every=1) for s in range(options.seeds)]
            last = [run.history[-1][MEASURE[panel]] for run in runs[row, column]]
            print(f"{panel}, {row}, {column}: {np.mean(last):.4g}", file=sys.stderr)
    return runs


def write_curves(panel: str, runs: dict[tuple[str, str], list[Run]], path: Path) -> None:
    """Mean and deviation over seeds after every round."""
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(CURVES)
        for (row, column), some in runs.items():
            for rows in zip(*(run.history for run in some), strict=True):
                line = [row, column, rows[0]["round"]]
                for key in (MEASURE[panel], "step_size"):
                    values = [history.get(key, 1.0) for history in rows]
                    line += [f"{np.mean(values):.6g}", f"{np.std(values, ddof=1):.4g}" if len(values) > 1 else ""]
                table.writerow(line)


def write_table(name: str, metric: str, rows: list[dict[str, Any]], guarantees: Any, options: Any) -> None:
    """Numbers with what they were made by."""
    small = [f"--{key} {value}" for key in ("rounds", "clients") if (value := getattr(options, key))]
    part = "figure1" if name == "figure1" else name.removeprefix("figure2-")
    command = [
        "python -m sordino.experiments.papers.paper1.figures numbers",
        f"--parts {part}",
        f"--seeds {options.seeds}",
        *small,
    ]
    result = {
        "name": name,
        "metric": metric,
        "rows": rows,
        "guarantees": guarantees,
        "provenance": provenance(" ".join(command), options.commit),
    }
    (options.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")


def numbers(options: argparse.Namespace) -> None:
    """Run, and write JSON and CSV."""
    options.out.mkdir(parents=True, exist_ok=True)
    if "figure1" in options.parts:
        guarantees = []
        for row in ("local-gaussian", "local-privunit"):
            certificate = read("synthetic", row, "fedexp", 1, None)[0].resolve(100, 1000).certificate
            guarantees.append({"row": row.replace("-", " "), "column": "all", **certificate.to_json()})
        write_table("figure1", "global step size at the start", figure_1(options.seeds), guarantees, options)
    if "drift" in options.parts:
        write_curves("drift", drift(), options.out / "drift.csv")
    for panel in ("synthetic", "mnist"):
        if panel not in options.parts:
            continue
        runs = panel_runs(panel, options)
        write_curves(panel, runs, options.out / f"figure2-{panel}.csv")
        factor = 100 if panel == "mnist" else 1
        rows, guarantees = [], []
        for (row, column), some in runs.items():
            final = [factor * float(np.mean([h[MEASURE[panel]] for h in run.history[-5:]])) for run in some]
            rows.append(entry(row.replace("-", " "), column, final))
            guarantees.append({"row": row.replace("-", " "), "column": column, **some[0].certificate.to_json()})
        metric = "test accuracy (%)" if panel == "mnist" else "distance to the minimiser"
        write_table(f"figure2-{panel}", f"{metric}, mean of the last five rounds", rows, guarantees, options)


def drift() -> dict[tuple[str, str], list[Run]]:
    """FedAvg and SCAFFOLD on quadratics, 500 clients and d = 20, 100 rounds of 20 local steps; one seed."""
    task = so.task("quadratics", clients=500, d=20, rank=4, scale=5.0)
    runs: dict[tuple[str, str], list[Run]] = {}
    promises: dict[str, dict[str, Any]] = {"no privacy": {}, "central": {"epsilon": 8.0, "delta": 1e-4}}
    for row, promise in promises.items():
        for column in ("fedavg", "scaffold"):
            message = {"message": "difference"} if column == "fedavg" else {}
            method = METHODS[column](local_steps=20, local_lr=0.05, bound=so.clip(1.0) if promise else None, **message)
            plan = so.plan(method, rounds=100, **promise)
            runs[row, column] = [so.simulate(plan, task, evaluate_every=1)]
            last = runs[row, column][0].history[-1]["suboptimality"]
            print(f"drift, {row}, {column}: {last:.4g}", file=sys.stderr)
    return runs


# --- Plots --------------------------------------------------------------------------------------------------------


def plots(options: argparse.Namespace) -> None:
    """Draw what the files in `out` say, as far as they are there."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    if (options.out / "figure1.json").exists():
        plot_figure_1(json.loads((options.out / "figure1.json").read_text()), FIGURES / "paper1-figure1.png")
    if (options.out / "drift.csv").exists():
        plot_drift(options.out / "drift.csv", FIGURES / "scaffold-drift.png")
    panels = [panel for panel in ("synthetic", "mnist") if (options.out / f"figure2-{panel}.csv").exists()]
    if panels:
        plot_curves(options.out, panels, "mean", FIGURES / "paper1-figure2.png")
        plot_curves(options.out, panels, "step_size", FIGURES / "paper1-figure3.png")


def plot_figure_1(table: dict[str, Any], path: Path) -> None:
    """Step sizes at the start against M."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    for panel, row in zip(figure.subplots(1, 2, sharey=True), ("local gaussian", "local privunit"), strict=True):
        for name, style in (("naive", "s--"), ("corrected", "o-"), ("target", "k^:")):
            cells = [r for r in table["rows"] if r["row"].startswith(row) and r["column"] == name]
            x = [int(r["row"].rpartition("= ")[2]) for r in cells]
            error = [r["std"] or 0.0 for r in cells]
            panel.errorbar(x, [r["mean"] for r in cells], error, fmt=style, label=name, capsize=3)
        panel.set(xscale="log", yscale="log", xlabel="clients M", title=row)
        panel.grid(alpha=0.3)
        panel.legend()
    figure.axes[0].set_ylabel("global step size at the start")
    figure.savefig(path, dpi=110)


def plot_curves(folder: Path, panels: list[str], measure: str, path: Path) -> None:
    """Figure 2 (mean) or Figure 3 (step_size): a line of panels for each task, a column for each kind of trust."""
    from matplotlib.figure import Figure

    deviation = {"mean": "std", "step_size": "step_size_std"}[measure]
    columns = COLUMNS if measure == "mean" else ("fedexp",)
    figure = Figure(figsize=(11, 3.4 * len(panels)), layout="constrained")
    grid = figure.subplots(len(panels), len(ROWS), squeeze=False)
    for line, name in zip(grid, panels, strict=True):
        with (folder / f"figure2-{name}.csv").open() as file:
            table = list(csv.DictReader(file))
        for panel, row in zip(line, ROWS, strict=True):
            for column in columns:
                cells = [cell for cell in table if (cell["row"], cell["column"]) == (row, column)]
                x = [int(cell["round"]) for cell in cells]
                y = np.array([float(cell[measure]) for cell in cells])
                error = np.array([float(cell[deviation] or 0) for cell in cells])
                panel.plot(x, y, label=column)
                panel.fill_between(x, y - error, y + error, alpha=0.2)
            panel.set(title=f"{name}, {row.replace('-', ' ')}", xlabel="round")
            panel.grid(alpha=0.3)
        label = {"synthetic": "distance to w*", "mnist": "test accuracy"}[name]
        line[0].set_ylabel(label if measure == "mean" else "global step size")
    grid[0][0].legend()
    figure.savefig(path, dpi=110)


def plot_drift(table: Path, path: Path) -> None:
    """Suboptimality of FedAvg and SCAFFOLD over rounds."""
    from matplotlib.figure import Figure

    with table.open() as file:
        cells = list(csv.DictReader(file))
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for panel, row in zip(figure.subplots(1, 2), ("no privacy", "central"), strict=True):
        for column in ("fedavg", "scaffold"):
            mine = [cell for cell in cells if (cell["row"], cell["column"]) == (row, column)]
            panel.plot([int(c["round"]) for c in mine], [float(c["mean"]) for c in mine], label=column)
        panel.set(title=row, xlabel="round", yscale="log")
        panel.grid(alpha=0.3)
        panel.legend()
    figure.axes[0].set_ylabel("suboptimality")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Numbers, plots, or both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", nargs="?", choices=("numbers", "plots"), help="both if left out")
    parser.add_argument("--parts", nargs="+", choices=("figure1", *MEASURE), default=("figure1", *MEASURE))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, help="fewer than the files say")
    parser.add_argument("--clients", type=int, help="fewer than the files say")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "paper1")
    parser.add_argument("--commit", help="what the code is at, where git does not know")
    options = parser.parse_args()
    if options.stage in ("numbers", None):
        numbers(options)
    if options.stage in ("plots", None):
        plots(options)


if __name__ == "__main__":
    main()
