"""One runner for all specs: every cell with every seed, as few programs as there are kinds of runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sordino.errors import InvalidInput
from sordino.experiments.provenance import provenance
from sordino.experiments.specs import Point, Spec
from sordino.simulation.running import Run
from sordino.simulation.sweep import Point as SweepPoint
from sordino.simulation.sweep import sweep

__all__ = ["METRICS", "Outcome", "reproduce", "result_of", "values_of"]


@dataclass(frozen=True)
class Outcome:
    """A cell's runs, one a seed."""

    point: Point
    runs: tuple[Run, ...]
    minimiser: Any = None  # of the task, where it is known


def reproduce(
    spec: Spec,
    *,
    quick: bool,
    unfinished: Path | None = None,
    progress: Callable[[float], None] | None = None,
) -> list[Outcome]:
    """Run a spec; with a folder `unfinished`, from where it was killed."""
    points, seeds = spec.points(quick), spec.seeds(quick)
    groups: dict[str, list[int]] = {}
    for number, point in enumerate(points):
        groups.setdefault(point.config.task_key, []).append(number)
    tasks = {key: _task(spec, points[numbers[0]]) for key, numbers in groups.items()}  # errors come first
    for point in points:
        point.config.resolve(point.config.plan(), tasks[point.config.task_key])
    outcomes: dict[int, Outcome] = {}
    iterates = any(figure.kind == "paths" for figure in spec.file.figures)
    for key, numbers in groups.items():
        done = len(outcomes) / len(points)

        def advance(share: float, done: float = done, size: int = len(numbers)) -> None:
            if progress is not None:
                progress(done + share * size / len(points))

        runs = sweep(
            [SweepPoint(points[number].config.plan(), seed) for number in numbers for seed in seeds],
            tasks[key],
            evaluate_every=spec.evaluate_every(quick),
            iterates=iterates,
            unfinished=unfinished,
            progress=advance,
        )
        for place, number in enumerate(numbers):
            mine = tuple(runs[place * len(seeds) : (place + 1) * len(seeds)])
            outcomes[number] = Outcome(points[number], mine, tasks[key].minimiser)
    return [outcomes[number] for number in range(len(points))]


def _task(spec: Spec, point: Point) -> Any:
    try:
        return point.config.task()
    except InvalidInput as error:
        if not spec.file.needs:
            raise
        raise InvalidInput(error.field, error.value, f"{error.remedy}. {spec.file.needs}") from None


def values_of(outcome: Outcome, metric: str) -> list[float]:
    """The figure that the paper would print, a seed each: the mean over the last five rounds, or the highest."""
    if metric == "highest-accuracy":
        return [100 * max(row["accuracy"] for row in run.history) for run in outcome.runs]
    key = "accuracy" if metric == "error" else metric
    means = [statistics.fmean(row[key] for row in run.history[-5:]) for run in outcome.runs]
    if metric == "accuracy":
        return [100 * mean for mean in means]
    return [100 - 100 * mean for mean in means] if metric == "error" else means


METRICS = {
    "accuracy": "test accuracy (%), mean of the last five rounds",
    "error": "test error (%), mean of the last five rounds",
    "highest-accuracy": "highest test accuracy (%) of any evaluation",
    "suboptimality": "suboptimality f(w) - f(w*), mean of the last five rounds",
    "distance": "distance to the minimiser, mean of the last five rounds",
}


def result_of(
    spec: Spec, outcomes: list[Outcome], *, command: str, commit: str | None = None, quick: bool = False
) -> dict[str, Any]:
    """The form in which results are kept: rows, guarantees, provenance."""
    rows, guarantees = [], []
    for outcome in outcomes:
        cell, values = outcome.point.cell, values_of(outcome, spec.file.metric)
        rows.append(
            {
                "row": cell.row,
                "column": cell.column,
                "paper": cell.paper,
                "mean": _rounded(statistics.fmean(values)),
                "std": _rounded(statistics.stdev(values)) if len(values) > 1 else None,
                "seeds": list(spec.seeds(quick)),
            }
        )
        certificate = outcome.runs[0].certificate.to_json()
        guarantees.append({"row": cell.row, "column": cell.column, "claim": cell.claim, **certificate})
    return {
        "name": spec.name,
        **({} if spec.scope is None else {"scope": spec.scope}),
        "title": spec.file.title,
        "metric": METRICS[spec.file.metric],
        "note": " ".join(note for note in (spec.file.quick.note if quick else "", spec.file.note) if note),
        "rows": rows,
        "guarantees": guarantees,
        "provenance": provenance(command, commit),
    }


def _rounded(value: float) -> float | None:
    """Five digits; null where a run diverged."""
    return float(f"{value:.5g}") if np.isfinite(value) else None
