"""Accuracy, or what else was measured, and epsilon over rounds, as a picture."""

from __future__ import annotations

import math
from pathlib import Path
from textwrap import fill
from typing import Any

__all__ = ["measure_of", "plot_history"]

# What a row may hold, the most telling first: key, axis, factor.
MEASURES = (
    ("accuracy", "test accuracy (%)", 100.0),
    ("distance", "distance to the minimiser", 1.0),
    ("gradient_norm", "norm of the gradient", 1.0),
    ("suboptimality", "suboptimality", 1.0),
    ("test_loss", "test loss", 1.0),
)


def measure_of(row: dict[str, Any]) -> tuple[str, str, float]:
    """The measure to show of a row of metrics: its key, what an axis says, and the factor of the unit there."""
    return next(measure for measure in MEASURES if measure[0] in row)


def plot_history(history: list[dict[str, Any]], title: str, path: Path) -> None:
    """Test accuracy (suboptimality, without classes) to the left, epsilon spent to the right, over rounds."""
    from matplotlib.figure import Figure

    key, label, factor = measure_of(history[-1])
    rounds = [row["round"] for row in history]
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(rounds, [factor * row[key] for row in history], color="tab:blue", marker=".")
    axes.set(xlabel="round", ylabel=label, title=title)
    axes.yaxis.label.set_color("tab:blue")
    axes.grid(alpha=0.3)
    spent = [row["epsilon"] for row in history]
    if all(isinstance(value, float) and math.isfinite(value) for value in spent):
        epsilon = axes.twinx()
        epsilon.plot(rounds, spent, color="tab:red", linestyle="--")
        epsilon.set_ylabel("epsilon spent")
        figure.supxlabel(fill(f"epsilon of {history[-1]['epsilon_of']}", 110), fontsize="x-small", color="tab:red")
        epsilon.yaxis.label.set_color("tab:red")
        epsilon.set_ylim(bottom=0)
    figure.savefig(path, dpi=130)
