"""One runner for all specs: every cell with every seed, as few programs as there are kinds of runs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sordino.errors import InvalidInput, require
from sordino.experiments.provenance import Calls
from sordino.experiments.specs import Point, Spec
from sordino.runs import Options, OutOfTime, Run, sweep
from sordino.runs import Point as SweepPoint

__all__ = ["METRICS", "TUNING_NOT_COVERED", "Outcome", "reproduce", "result_of", "spreads_of", "values_of"]

TUNING_NOT_COVERED = (
    "Each epsilon covers one run by itself, whose settings, as learning rates and bounds, were as a rule chosen by "
    "results on these same data, by the paper's authors or by us: no epsilon covers that choice, nor seeing several of "
    "these runs."
)


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
    calls: Calls | None = None,
    minutes: float | None = None,
    progress: Callable[[float], None] | None = None,
) -> list[Outcome]:
    """Run a spec; with a folder `unfinished`, from where it was stopped, and `calls` notes that it was taken up.

    After so many minutes it stops at the next evaluation. Returns the cells that are complete.
    """
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    iterates = any(figure.kind == "paths" for figure in spec.file.figures)
    require(not iterates or minutes is None, "minutes", minutes, "figures of paths begin anew each time: leave it out")
    options = Options(
        evaluate_every=spec.evaluate_every(quick), iterates=iterates, unfinished=unfinished, deadline=deadline
    )
    points, seeds = spec.points(quick), spec.seeds(quick)
    groups: dict[str, list[int]] = {}
    for number, point in enumerate(points):
        groups.setdefault(point.config.task_key, []).append(number)
    tasks = {key: _task(spec, points[numbers[0]]) for key, numbers in groups.items()}  # errors come first
    planned = [_planned(point, tasks[point.config.task_key]) for point in points]
    if calls is not None:
        calls.note()
    runs: dict[tuple[int, int], Run] = {}  # of a cell and a seed
    before = 0
    try:
        for key, numbers in groups.items():
            cells = [(number, seed) for number in numbers for seed in seeds]

            def keep(place: int, run: Run, cells: list[tuple[int, int]] = cells) -> None:
                runs[cells[place]] = run

            def advance(share: float, before: int = before, size: int = len(numbers)) -> None:
                if progress is not None:
                    progress((before + share * size) / len(points))

            several = [replace(planned[number], seed=seed) for number, seed in cells]
            sweep(several, tasks[key], options, progress=advance, finished=keep)
            before += len(numbers)
    except OutOfTime:
        pass
    minimisers = [tasks[point.config.task_key].minimiser for point in points]
    return _complete(points, seeds, runs, minimisers)


def _planned(point: Point, task: Any) -> SweepPoint:
    plan = point.config.plan()
    return SweepPoint(plan, resolved=point.config.resolve(plan, task))


def _complete(
    points: Sequence[Point], seeds: Sequence[int], runs: dict[tuple[int, int], Run], minimisers: Sequence[Any]
) -> list[Outcome]:
    """The cells of which every seed is there."""
    outcomes = []
    for number, point in enumerate(points):
        mine = tuple(runs[number, seed] for seed in seeds if (number, seed) in runs)
        if len(mine) == len(seeds):
            outcomes.append(Outcome(point, mine, minimisers[number]))
    return outcomes


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
    spec: Spec, outcomes: list[Outcome], *, provenance: dict[str, Any], quick: bool = False
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
    maps = [figure for figure in spec.file.figures if figure.kind == "heat-map"]
    spreads = [spread for figure in maps for spread in spreads_of(outcomes, figure.metric)]
    of = len(spec.points(quick))
    so_far = [f"{len(outcomes)} of {of} cells"] if len(outcomes) < of else []
    scope = ", ".join([*([spec.scope] if spec.scope else []), *so_far])
    return {
        "name": spec.name,
        **({"scope": scope} if scope else {}),
        "title": spec.file.title,
        "metric": METRICS[spec.file.metric],
        "note": " ".join(filter(None, (_changed(spec), spec.file.quick.note if quick else "", spec.file.note))),
        "rows": rows,
        **({"spreads": spreads} if spreads else {}),
        "guarantees": guarantees,
        **({"choosing": {"note": TUNING_NOT_COVERED}} if _any_promise(guarantees) else {}),
        "provenance": provenance,
    }


def _changed(spec: Spec) -> str:
    """What comes before a note whose figures, as those of rows and claims, need not hold after changes."""
    if not spec.changes:
        return ""
    return (
        f"Changed here: {', '.join(spec.changes)}. What follows is said of the settings as shipped, and so are titles, "
        "the names of rows and columns, and the paper's figures and claims."
    )


def _any_promise(certificates: list[dict[str, Any]]) -> bool:
    return any(promise["epsilon"] != "inf" for each in certificates for promise in each["guarantees"])


def spreads_of(outcomes: list[Outcome], metric: str) -> list[dict[str, Any]]:
    """Of a heat map: highest less lowest over the second parts of rows "a, b", for each column and a."""
    found: dict[tuple[str, str], list[float]] = {}
    for outcome in outcomes:
        cell, mean = outcome.point.cell, statistics.fmean(values_of(outcome, metric))
        found.setdefault((cell.column, cell.place[0]), []).append(mean)
    spreads = []
    for (column, a), means in found.items():
        finite = [mean for mean in means if np.isfinite(mean)]
        counts = {"cells": len(means), "diverged": len(means) - len(finite)}
        spread = _rounded(max(finite) - min(finite)) if len(finite) > 1 else None
        spreads.append({"metric": metric, "column": column, "row": a, "spread": spread, **counts})
    return spreads


def _rounded(value: float) -> float | None:
    """Five digits; null where a run diverged."""
    return float(f"{value:.5g}") if np.isfinite(value) else None
