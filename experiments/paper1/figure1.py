"""Paper 1, Figure 1: the step size at the start.

    python -m experiments.paper1.figure1 [--seeds 5] [--out results/paper1] [--commit HASH]

On the linear regression of Appendix G with d = 100, for M from 100 to 10,000: naive (3), corrected (6) or (8), and the
target (5), which knows the updates before noise. The runs are the files of Figure 2, of one round and other M.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

import sordino as so
from sordino.config import Config, load_config
from sordino.experiments.provenance import provenance
from sordino.experiments.specs import PAPERS
from sordino.tasks import Population

RUNS = PAPERS / "paper1" / "runs"
ROWS = ("local-gaussian", "local-privunit")
MS = (100, 300, 1000, 3000, 10_000)


def run_of(row: str, M: int) -> Config:
    """DP-FedEXP with M clients, for one round."""
    changes = (f"task.clients={M}", "run.rounds=1")
    return load_config(RUNS / f"synthetic-{row}-fedexp.toml", changes)


def cell_of(row: str, M: int) -> str:
    """The name of a row of the table."""
    return f"{row.replace('-', ' ')}, M = {M}"


def figure_1(seeds: int) -> list[dict[str, Any]]:
    """Step sizes at the start: rows for the table."""
    rows = []
    for row in ROWS:
        for M in MS:
            config = run_of(row, M)
            plan, task = config.plan(), config.task()
            silent = so.plan(plan.method, rounds=1)
            found: dict[str, list[float]] = {"naive": [], "corrected": [], "target": []}
            for seed in range(seeds):
                quiet, run = (so.simulate(each, task, seed=seed, transcript=True) for each in (silent, plan))
                assert quiet.transcript is not None  # asked for
                assert run.transcript is not None
                Delta, c = (each[0][2][0].astype(np.float64) for each in (quiet.transcript, run.transcript))
                square = np.sum(c.mean(axis=0) ** 2)
                found["naive"].append(np.sum(c**2) / M / square)
                found["corrected"].append(run.history[-1]["step_size"])
                found["target"].append(np.sum(Delta**2) / M / square)
            rows += [entry(cell_of(row, M), name, values) for name, values in found.items()]
            print(rows[-3:], file=sys.stderr)
    return rows


def entry(row: str, column: str, values: list[float]) -> dict[str, Any]:
    """One cell of a table."""
    std = statistics.stdev(values) if len(values) > 1 else None
    mean = float(np.mean(values))
    return {"row": row, "column": column, "paper": None, "mean": mean, "std": std, "seeds": list(range(len(values)))}


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


def main() -> None:
    """Numbers and picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/paper1"))
    parser.add_argument("--commit", help="what the code is at, where git does not know")
    options = parser.parse_args()
    guarantees = []
    for row in ROWS:
        for M in MS:
            certificate = run_of(row, M).plan().resolve(Population(100, M)).certificate
            guarantees.append({"row": cell_of(row, M), "column": "all", **certificate.to_json()})
    command = f"python -m experiments.paper1.figure1 --seeds {options.seeds}"
    result = {
        "name": "figure1",
        "metric": "global step size at the start",
        "rows": figure_1(options.seeds),
        "guarantees": guarantees,
        "provenance": provenance(command, options.commit),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "figure1.json").write_text(json.dumps(result, indent=1) + "\n")
    plot_figure_1(result, options.out / "figure1.png")


if __name__ == "__main__":
    main()
