"""Accuracy and epsilon over rounds, as a picture."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

__all__ = ["plot_history"]


def plot_history(history: list[dict[str, Any]], title: str, path: Path) -> None:
    """Test accuracy to the left, epsilon spent to the right, over rounds."""
    from matplotlib.figure import Figure

    rounds = [row["round"] for row in history]
    figure = Figure(figsize=(7, 4), layout="constrained")
    accuracy = figure.subplots()
    accuracy.plot(rounds, [100 * row["accuracy"] for row in history], color="tab:blue", marker=".")
    accuracy.set(xlabel="round", ylabel="test accuracy (%)", title=title)
    accuracy.yaxis.label.set_color("tab:blue")
    accuracy.grid(alpha=0.3)
    spent = [row["epsilon"] for row in history]
    if all(isinstance(value, float) and math.isfinite(value) for value in spent):
        epsilon = accuracy.twinx()
        epsilon.plot(rounds, spent, color="tab:red", linestyle="--")
        epsilon.set_ylabel("epsilon spent")
        epsilon.yaxis.label.set_color("tab:red")
        epsilon.set_ylim(bottom=0)
    figure.savefig(path, dpi=130)
