"""Paper 4, Example 1, from the shipped run files: a result and a plot.

    python -m sordino.experiments.papers.paper4.example1

Two clients pull x to 3 and to -3. Normalised gradients cancel wherever both point at each other, and x stays where it
began; with error compensation it goes to 0.
"""

from __future__ import annotations

import json
from pathlib import Path

from matplotlib.figure import Figure

import sordino as so
from sordino.config import load_config
from sordino.experiments.provenance import provenance

HERE = Path(__file__).parent
ROOT = Path()  # run from the root of a clone
FILES = {"dp-sgd": "example1-dp-sgd.toml", "norm-ec": "example1-norm-ec.toml"}
LABELS = {"dp-sgd": "normalised DP-SGD", "norm-ec": "alpha-NormEC, alpha = beta = 0.1, gamma = 0.05"}
PAPER = {"dp-sgd": 2.0, "norm-ec": 0.0}


def main() -> None:
    """Run both, write results/paper4/example1.json and docs/figures/paper4-example1.png."""
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    rows, guarantees = [], []
    for method, file in FILES.items():
        config = load_config(HERE / "runs" / file)
        run = so.simulate(config.plan(), config.task(), seed=config.file.run.seed, evaluate_every=5)
        rounds = [0, *(row["round"] for row in run.history)]
        distance = [2.0, *(row["distance"] for row in run.history)]
        axes.semilogy(rounds, distance, label=LABELS[method])
        place = {"row": f"|x| after {rounds[-1]} rounds", "column": method}
        rows.append(place | {"paper": PAPER[method], "mean": distance[-1], "std": None, "seeds": [0]})
        guarantees.append(place | run.certificate.to_json())
        print(f"{method}: |x| = {distance[-1]:.3g}; least {min(distance):.3g}")
    axes.axhline(1e-3, color="grey", linestyle=":", linewidth=1)
    axes.set(xlabel="round", ylabel="|x|", title="Example 1: two clients that pull apart, x^0 = 2")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(ROOT / "docs" / "figures" / "paper4-example1.png", dpi=110)
    result = {
        "name": "example1",
        "metric": "distance to the minimiser x = 0",
        "rows": rows,
        "guarantees": guarantees,
        "provenance": provenance("python -m sordino.experiments.papers.paper4.example1"),
    }
    path = ROOT / "results" / "paper4" / "example1.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
