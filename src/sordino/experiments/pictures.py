"""The figures of a spec, from the runs of its cells."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import numpy as np

from sordino.experiments.reproducing import METRICS, Outcome, measured, values_of
from sordino.experiments.specs import FigureSpec, Spec
from sordino.report import figures
from sordino.report.figures import Numbers, plot_curves, plot_paths, write_numbers
from sordino.report.heat_maps import HeatMap, draw_heat_maps
from sordino.report.results import Result


def write_result(spec: Spec, outcomes: list[Outcome], result: Result, folder: Path, stem: str) -> list[Path]:
    """Write a result and its pictures; a figure none of whose lines is there is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / f"{stem}.json"
    written.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")
    if spec.file.figures:
        pictures = {figure: folder / f"{stem}-{figure.name}.png" for figure in spec.file.figures}
        return [written, *(path for figure, path in pictures.items() if draw(figure, outcomes, path))]
    picture = folder / f"{stem}.png"
    figures.plot_table(result["rows"], result["metric"], picture)
    return [written, picture]


def draw(figure: FigureSpec, outcomes: list[Outcome], path: Path) -> bool:
    """Draw one figure and write its numbers beside it as CSV; False if none of its lines is there."""
    chosen = [
        outcome
        for outcome in outcomes
        if re.search(figure.lines, _line(outcome)) and re.search(figure.panels, outcome.point.cell.panel)
    ]
    if not chosen:
        return False
    if figure.kind == "heat-map":  # its numbers are those of the table
        draw_heat_maps(heat_maps(chosen, figure.metric), path, label=METRICS[figure.metric], title=figure.title)
    elif figure.kind == "paths":
        plot_paths(numbers := _paths(chosen), path, title=figure.title)
        write_numbers(numbers, path.with_suffix(".csv"))
    else:
        draw_curves(figure, _curves(chosen, figure.metric), path)
    return True


def draw_curves(figure: FigureSpec, numbers: Numbers, path: Path) -> None:
    """The lines of a figure over rounds, and their numbers beside it as CSV."""
    plot_curves(numbers, path, title=figure.title, metric=figure.metric, scale=figure.scale)
    write_numbers(numbers, path.with_suffix(".csv"), x="round", y=figure.metric)


def heat_maps(outcomes: list[Outcome], metric: str) -> dict[str, HeatMap]:
    """A map for each panel: the first and the second parts of its rows "a, b", and the means over seeds."""
    found: dict[str, dict[tuple[str, str], float]] = {}
    for outcome in outcomes:
        cell = outcome.point.cell
        found.setdefault(cell.panel, {})[cell.place] = statistics.fmean(values_of(outcome, metric))
    maps = {}
    for panel, values in found.items():
        downs, alongs = (list(dict.fromkeys(place[axis] for place in values)) for axis in (0, 1))
        maps[panel] = HeatMap(downs, alongs, [[values.get((a, b)) for b in alongs] for a in downs])
    return maps


def _line(outcome: Outcome) -> str:
    cell = outcome.point.cell
    return cell.line or f"{cell.row}, {cell.column}"


def _curves(outcomes: list[Outcome], metric: str) -> Numbers:
    """The metric over rounds, as the mean over seeds."""
    numbers: Numbers = []
    for outcome in outcomes:
        rounds = [row["round"] for row in outcome.runs[0].history]
        values = np.mean([[measured(row, metric) for row in run.history] for run in outcome.runs], axis=0)
        panel = outcome.point.cell.panel
        numbers += [(panel, _line(outcome), float(x), float(y)) for x, y in zip(rounds, values, strict=True)]
    return numbers


def _paths(outcomes: list[Outcome]) -> Numbers:
    """The first seed's iterates, smoothed, in the plane in which those of a panel are widest around w*."""
    numbers: Numbers = []
    for panel in dict.fromkeys(outcome.point.cell.panel for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.point.cell.panel == panel]
        paths = [_smoothed(np.asarray(outcome.runs[0].iterates) - np.asarray(outcome.minimiser)) for outcome in mine]
        plane = np.linalg.svd(np.concatenate([*paths, np.zeros_like(paths[0])]), full_matrices=False)[2][:2]
        for outcome, points in zip(mine, paths, strict=True):
            numbers += [(panel, _line(outcome), float(x), float(y)) for x, y in zip(*(plane @ points.T), strict=True)]
    return numbers


def _smoothed(points: np.ndarray, window: int = 5) -> np.ndarray:
    return np.stack([points[i : i + window].mean(axis=0) for i in range(max(1, len(points) - window + 1))])
