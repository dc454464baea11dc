"""Pictures of tables: lines over rounds, paths in a plane, and a paper's figures beside ours."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sordino.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Numbers = list[tuple[str, str, float, float]]  # panel, line, x, y
Points = list[tuple[float, float]]

LABELS = {
    "accuracy": "test accuracy (%)",
    "error": "test error (%)",
    "suboptimality": "f(w_k) - f(w*)",
    "signal_to_noise": "norm of the mean update over norm of the mean noise",
    "distance": "distance to the minimiser",
    "training_loss": "loss on the clients' records",
}


def save_privately(figure: Figure, path: Path, *, dpi: int) -> None:
    """Save a picture that only its owner can read, as the files whose numbers it shows."""
    with replacing(path, private=True) as file:
        figure.savefig(file, format=path.suffix.lstrip("."), dpi=dpi)


def write_numbers(numbers: Numbers, path: Path, *, x: str = "x", y: str = "y") -> None:
    """The numbers of a picture as CSV, with these names for the last two columns."""
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("panel", "line", x, y))
        table.writerows([panel, line, f"{x:.6g}", f"{y:.6g}"] for panel, line, x, y in numbers)


def plot_table(rows: Sequence[Mapping[str, Any]], metric: str, path: Path) -> None:
    """The paper's figure beside ours, one line for each cell, with the standard deviation over seeds."""
    from matplotlib.figure import Figure

    shown = [row for row in rows if row["mean"] is not None]
    figure = Figure(figsize=(7.5, 1.2 + 0.32 * len(shown)), layout="constrained")
    axes = figure.subplots()
    for place, row in enumerate(reversed(shown)):
        axes.errorbar(row["mean"], place, xerr=row["std"] or 0, fmt="o", color="tab:blue", capsize=3)
        if row["paper"] is not None:
            axes.plot(row["paper"], place, "x", color="tab:red")
    axes.set_yticks(range(len(shown)), [f"{row['row']}, {row['column']}" for row in reversed(shown)])
    axes.set_xlabel(metric)
    axes.plot([], [], "o", color="tab:blue", label="ours")
    axes.plot([], [], "x", color="tab:red", label="paper")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def plot_curves(numbers: Numbers, path: Path, *, title: str, metric: str = "accuracy", scale: str = "linear") -> None:
    """A metric over rounds, in panels with one legend."""
    figure, panels, curves = _panels_with_lines(title, numbers)
    lines = list(dict.fromkeys(line for _, line in curves))
    for (panel, line), points in curves.items():
        axes = panels[panel]
        axes.plot(*zip(*points, strict=True), color=f"C{lines.index(line) % 10}", label=line)
        axes.set(xlabel="round", ylabel=LABELS.get(metric, metric), yscale=scale)
        axes.locator_params(axis="x", nbins=5)  # keeps five-digit rounds from running into each other
    handles = {str(handle.get_label()): handle for axes in panels.values() for handle in axes.get_lines()}
    inches = 0.07 * max(map(len, lines)) + 0.5  # of one entry of the legend
    columns = min(3, max(1, int(figure.get_figwidth() / inches)))
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns, fontsize=8)
    figure.savefig(path, dpi=90)


def plot_paths(numbers: Numbers, path: Path, *, title: str) -> None:
    """Paths in the plane around a minimiser w* at (0, 0), in panels with a legend each."""
    figure, panels, curves = _panels_with_lines(title, numbers)
    for (panel, line), points in curves.items():
        panels[panel].plot(*zip(*points, strict=True), marker=".", markersize=4, label=line)
    for axes in panels.values():
        axes.plot(0, 0, "k*", markersize=12, label="w*")
        axes.set(aspect="equal", adjustable="datalim")
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=90)


def _panels_with_lines(title: str, numbers: Numbers) -> tuple[Figure, dict[str, Axes], dict[tuple[str, str], Points]]:
    """A figure, its panels by name, and the points of each line by panel and name."""
    lines: dict[tuple[str, str], Points] = {}
    for panel, line, x, y in numbers:
        lines.setdefault((panel, line), []).append((x, y))
    figure, panels = panels_of(title, (panel for panel, _ in lines), width=4.2, height=3.4)
    for axes in panels.values():
        axes.grid(alpha=0.3)
    return figure, panels, lines


def panels_of(title: str, names: Iterable[str], *, width: float, height: float) -> tuple[Figure, dict[str, Axes]]:
    """A figure with a panel for each name, up to three side by side."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(names))
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(width * columns + 1.5, height * rows + 1), layout="constrained")
    figure.suptitle(title)
    all_axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for unused in all_axes[len(names) :]:
        unused.set_axis_off()
    panels: dict[str, Axes] = dict(zip(names, all_axes, strict=False))
    for name, axes in panels.items():
        axes.set_title(name, fontsize=9)
    return figure, panels
