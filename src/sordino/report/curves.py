"""A picture of one run: its accuracy, or another measure, and its epsilon over rounds."""

from __future__ import annotations

import math
from pathlib import Path
from textwrap import fill
from typing import Any

from sordino.report.figures import save_privately

History = list[dict[str, Any]]  # one row of metrics for each evaluation

# The measures that a row may have, the most informative first: key, label of the axis, factor.
MEASURES = (
    ("accuracy", "test accuracy (%)", 100.0),
    ("distance", "distance to the minimiser", 1.0),
    ("gradient_norm", "norm of the gradient", 1.0),
    ("suboptimality", "suboptimality", 1.0),
    ("test_loss", "test loss", 1.0),
)


def measure_of(row: dict[str, Any]) -> tuple[str, str, float]:
    """The first measure of a row of metrics: its key, the label of its axis, and the factor of the axis."""
    return next(measure for measure in MEASURES if measure[0] in row)


def plot_history(history: History, title: str, path: Path) -> None:
    """Draw the measure on the left axis and the epsilon spent on the right axis, over rounds."""
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
    save_privately(figure, path, dpi=130)
