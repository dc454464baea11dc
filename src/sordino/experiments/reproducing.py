"""One runner for all specs: every cell with every seed, in as few compiled programs as possible."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sordino.errors import InvalidInput, require
from sordino.experiments.provenance import Calls
from sordino.experiments.specs import Point, Spec
from sordino.planning import Plan, ResolvedPlan
from sordino.privacy.wording import TUNING_NOT_COVERED
from sordino.report.results import Result
from sordino.runs import Options, OutOfTime, Run, sweep
from sordino.runs import Point as SweepPoint
from sordino.tasks import Task
from sordino.types import Vector


@dataclass(frozen=True)
class Outcome:
    """A cell and its runs, one for each seed."""

    point: Point
    runs: tuple[Run, ...]
    minimiser: Vector | None = None  # of the task, where it is known


def reproduce(
    spec: Spec,
    *,
    quick: bool,
    unfinished: Path | None = None,
    calls: Calls | None = None,
    minutes: float | None = None,
    progress: Callable[[float], None] | None = None,
) -> list[Outcome]:
    """Run a spec and return the cells that are complete.

    Args:
      spec: the table or figure.
      quick: whether to run the quick version.
      unfinished: a folder for the state of stopped runs, which the next call continues.
      calls: notes that this call worked on the folder.
      minutes: stop at the first evaluation after this time.
      progress: is told the share that is done.
    """
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    iterates = any(figure.kind == "paths" for figure in spec.file.figures)
    require(not iterates or minutes is None, "minutes", minutes, "figures of paths begin anew each time: leave it out")
    options = Options(
        evaluate_every=spec.evaluate_every(quick), iterates=iterates, unfinished=unfinished, deadline=deadline
    )
    points, seeds = spec.points(quick), spec.seeds(quick)
    groups, (tasks, resolved) = _by_task(points), _resolved(spec, points)
    if calls is not None:
        calls.note()
    runs: dict[tuple[int, int], Run] = {}  # by the number of the point and the seed
    with contextlib.suppress(OutOfTime):
        for key, numbers in groups.items():
            cells = [(number, seed) for number in numbers for seed in seeds]
            several = [_point(*resolved[number], seed) for number, seed in cells]
            advance = _progress_of(progress, len(runs) // len(seeds), len(numbers), len(points))
            sweep(several, tasks[key], options, progress=advance, finished=_keeping(runs, cells))
    complete = [number for number in range(len(points)) if all((number, seed) in runs for seed in seeds)]
    return [_outcome(points[number], tasks, [runs[number, seed] for seed in seeds]) for number in complete]


def _by_task(points: list[Point]) -> dict[str, list[int]]:
    """The numbers of the points with the same task, by its key."""
    groups: dict[str, list[int]] = {}
    for number, point in enumerate(points):
        groups.setdefault(point.config.task_key, []).append(number)
    return groups


def _resolved(spec: Spec, points: list[Point]) -> tuple[dict[str, Task], list[tuple[Plan, ResolvedPlan]]]:
    """The tasks by their keys, and every plan with its resolution: mistakes are reported before anything runs."""
    tasks: dict[str, Task] = {}
    resolved = []
    for point in points:
        if point.config.task_key not in tasks:
            tasks[point.config.task_key] = _task(spec, point)
        plan = point.config.plan()
        resolved.append((plan, point.config.resolve(plan, tasks[point.config.task_key])))
    return tasks, resolved


def _point(plan: Plan, resolved: ResolvedPlan, seed: int) -> SweepPoint:
    return SweepPoint(plan, seed, resolved)


def _outcome(point: Point, tasks: dict[str, Task], runs: list[Run]) -> Outcome:
    return Outcome(point, tuple(runs), tasks[point.config.task_key].minimiser)


def _progress_of(
    progress: Callable[[float], None] | None, before: int, here: int, of: int
) -> Callable[[float], None] | None:
    """Turns the share of a group of `here` cells, with `before` done, into the share of all."""
    return None if progress is None else lambda share: progress((before + share * here) / of)


def _keeping(runs: dict[tuple[int, int], Run], cells: list[tuple[int, int]]) -> Callable[[int, Run], None]:
    def keep(place: int, run: Run) -> None:
        runs[cells[place]] = run

    return keep


def _task(spec: Spec, point: Point) -> Task:
    """The task of a point; where its data are missing, the error says what the spec needs."""
    try:
        return point.config.task()
    except InvalidInput as error:
        if not spec.file.needs:
            raise
        raise InvalidInput(error.field, error.value, f"{error.remedy}. {spec.file.needs}") from None


def values_of(outcome: Outcome, metric: str) -> list[float]:
    """For each seed the figure that a paper would print: the mean over the last five rounds, or the highest."""
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


def result_of(spec: Spec, outcomes: list[Outcome], *, provenance: Result, quick: bool = False) -> Result:
    """The content of a result file: rows, guarantees and provenance."""
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
    """A warning before the note of a spec, which describes the settings without the changes."""
    if not spec.changes:
        return ""
    return (
        f"Changed here: {', '.join(spec.changes)}. The following note, titles, names of rows and columns, and the "
        "paper's figures and claims describe the settings as shipped."
    )


def _any_promise(certificates: list[Result]) -> bool:
    return any(promise["epsilon"] != "inf" for each in certificates for promise in each["guarantees"])


def spreads_of(outcomes: list[Outcome], metric: str) -> list[Result]:
    """The spread along each line of a heat map: highest less lowest over b, for each column and a of rows "a, b"."""
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
    """Five digits; None if a run diverged."""
    return float(f"{value:.5g}") if np.isfinite(value) else None
