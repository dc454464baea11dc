"""Pictures of reproduced runs: a measure over rounds, paths towards a known minimiser, or a heat map of a table."""

from __future__ import annotations

import csv
import itertools
import re
import statistics
from pathlib import Path
from typing import Any

import numpy as np

from sordino.experiments.reproducing import METRICS, Outcome, values_of
from sordino.experiments.specs import FigureSpec
from sordino.report.heat_maps import HeatMap, draw_heat_maps

__all__ = ["draw", "heat_maps", "plot_curves", "plot_table", "write_numbers"]

Numbers = list[tuple[str, str, float, float]]  # panel, line, x, y

LABELS = {
    "accuracy": "test accuracy (%)",
    "error": "test error (%)",
    "suboptimality": "f(w_k) - f(w*)",
    "signal_to_noise": "norm of the mean update over norm of the mean noise",
    "distance": "distance to the minimiser",
}


def draw(figure: FigureSpec, outcomes: list[Outcome], path: Path) -> bool:
    """One figure of a spec as a picture, and beside it its numbers as CSV; False if none of its lines is there."""
    chosen = [
        outcome
        for outcome in outcomes
        if re.search(figure.lines, _line(outcome)) and re.search(figure.panels, outcome.point.cell.panel)
    ]
    if not chosen:
        return False
    if figure.kind == "heat-map":  # its numbers are those of the table
        draw_heat_maps(heat_maps(chosen, figure.metric), path, label=METRICS[figure.metric], title=figure.title)
        return True
    if figure.kind == "paths":
        numbers = _draw_paths(figure, chosen, path)
    else:
        plot_curves(figure, numbers := _curves(chosen, figure.metric), path)
    write_numbers(figure, numbers, path.with_suffix(".csv"))
    return True


def write_numbers(figure: FigureSpec, numbers: Numbers, path: Path) -> None:
    """What a picture shows, as CSV."""
    names = ("panel", "line", *(("x", "y") if figure.kind == "paths" else ("round", figure.metric)))
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(names)
        table.writerows([panel, line, f"{x:.6g}", f"{y:.6g}"] for panel, line, x, y in numbers)


def plot_table(rows: list[dict[str, Any]], metric: str, path: Path) -> None:
    """Paper beside ours, a line a cell, with the deviation over seeds."""
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


def _line(outcome: Outcome) -> str:
    cell = outcome.point.cell
    return cell.line or f"{cell.row}, {cell.column}"


def _curves(outcomes: list[Outcome], metric: str) -> Numbers:
    numbers: Numbers = []
    for outcome in outcomes:
        rounds, values = _curve(outcome, metric)
        panel, line = outcome.point.cell.panel, _line(outcome)
        numbers += [(panel, line, float(x), float(y)) for x, y in zip(rounds, values, strict=True)]
    return numbers


def plot_curves(spec: FigureSpec, numbers: Numbers, path: Path) -> None:
    """The numbers of a figure as lines over rounds, in panels with one legend."""
    curves: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for panel, line, x, y in numbers:
        curves.setdefault((panel, line), []).append((x, y))
    figure, panels = _panels(spec, list(dict.fromkeys(panel for panel, _ in curves)))
    lines = list(dict.fromkeys(line for _, line in curves))
    for (panel, line), points in curves.items():
        axes = panels[panel]
        axes.plot(*zip(*points, strict=True), color=f"C{lines.index(line) % 10}", label=line)
        axes.set(xlabel="round", ylabel=LABELS.get(spec.metric, spec.metric), yscale=spec.scale)
        axes.locator_params(axis="x", nbins=5)  # five-digit rounds do not run into each other
    handles = {handle.get_label(): handle for axes in panels.values() for handle in axes.get_lines()}
    inches = 0.07 * max(map(len, lines)) + 0.5  # of one entry
    columns = min(3, max(1, int(figure.get_figwidth() / inches)))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, fontsize=8)
    figure.savefig(path, dpi=90)


def _curve(outcome: Outcome, metric: str) -> tuple[list[int], np.ndarray]:
    """Rounds, and the mean over seeds."""
    key = "accuracy" if metric == "error" else metric
    rounds = [row["round"] for row in outcome.runs[0].history]
    found = [[(row | row["not_private"])[key] for row in run.history] for run in outcome.runs]
    mean: np.ndarray = np.mean(np.array(found, float), axis=0)
    if metric == "accuracy":
        return rounds, 100 * mean
    return rounds, 100 - 100 * mean if metric == "error" else mean


def _draw_paths(spec: FigureSpec, outcomes: list[Outcome], path: Path) -> Numbers:
    """The first seed's iterates, smoothed, in the plane in which all of a panel are widest around w*."""
    numbers: Numbers = []
    figure, panels = _panels(spec, list(dict.fromkeys(outcome.point.cell.panel for outcome in outcomes)))
    for panel, axes in panels.items():
        mine = [outcome for outcome in outcomes if outcome.point.cell.panel == panel]
        paths = [_smoothed(outcome.runs[0].iterates - outcome.minimiser) for outcome in mine]
        plane = np.linalg.svd(np.concatenate([*paths, np.zeros_like(paths[0])]), full_matrices=False)[2][:2]
        for outcome, points in zip(mine, paths, strict=True):
            x, y = plane @ points.T
            numbers += [(panel, _line(outcome), float(a), float(b)) for a, b in zip(x, y, strict=True)]
            axes.plot(x, y, marker=".", markersize=4, label=_line(outcome))
        axes.plot(0, 0, "k*", markersize=12, label="w*")
        axes.set(aspect="equal", adjustable="datalim")
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=90)
    return numbers


def heat_maps(outcomes: list[Outcome], metric: str) -> dict[str, HeatMap]:
    """Of each panel the first and the second parts of its rows "a, b", and the means over seeds."""
    found: dict[str, dict[tuple[str, str], float]] = {}
    for outcome in outcomes:
        cell = outcome.point.cell
        found.setdefault(cell.panel, {})[cell.place] = statistics.fmean(values_of(outcome, metric))
    maps = {}
    for panel, values in found.items():
        downs, alongs = (list(dict.fromkeys(place[axis] for place in values)) for axis in (0, 1))
        maps[panel] = HeatMap(downs, alongs, [[values.get((a, b)) for b in alongs] for a in downs])
    return maps


def _smoothed(points: np.ndarray, window: int = 5) -> np.ndarray:
    return np.stack([points[i : i + window].mean(axis=0) for i in range(max(1, len(points) - window + 1))])


def _panels(spec: FigureSpec, names: list[str]) -> tuple[Any, dict[str, Any]]:
    from matplotlib.figure import Figure

    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(4.2 * columns + 1.5, 3.4 * rows + 1), layout="constrained")
    figure.suptitle(spec.title)
    all_axes = figure.subplots(rows, columns, squeeze=False).flat
    panels = {}
    for name, axes in itertools.zip_longest(names, all_axes):
        if name is None:
            axes.set_axis_off()
        else:
            axes.set_title(name, fontsize=10)
            axes.grid(alpha=0.3)
            panels[name] = axes
    return figure, panels
