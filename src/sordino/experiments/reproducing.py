"""One runner for all specs: every cell with every seed, in as few compiled programs as possible."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sordino.config import tasks_of
from sordino.errors import InvalidInput, require
from sordino.experiments.provenance import Calls
from sordino.experiments.specs import Point, Spec
from sordino.privacy.wording import TUNING_NOT_COVERED
from sordino.report.results import Result
from sordino.runs import Options, OutOfTime, Run, sweep
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
    losses = any(figure.metric == "training_loss" for figure in spec.file.figures)
    require(not iterates or minutes is None, "minutes", minutes, "figures of paths begin anew each time: leave it out")
    options = Options(
        evaluate_every=spec.evaluate_every(quick),
        iterates=iterates,
        training_loss=losses,
        unfinished=unfinished,
        deadline=deadline,
    )
    points, seeds = spec.points(quick), spec.seeds(quick)
    tasks = _tasks(spec, points)
    ready = [point.config.point(tasks[point.config.task_key]) for point in points]  # mistakes come before any run
    if calls is not None:
        calls.note()
    runs: dict[tuple[int, int], Run] = {}  # by the number of the point and the seed
    with contextlib.suppress(OutOfTime):
        for key, task in tasks.items():
            numbers = [number for number, point in enumerate(points) if point.config.task_key == key]
            cells = [(number, seed) for number in numbers for seed in seeds]
            before = len(runs) // len(seeds)

            def advance(share: float, before: int = before, here: int = len(numbers)) -> None:
                if progress is not None:
                    progress((before + share * here) / len(points))

            def keep(place: int, run: Run, cells: list[tuple[int, int]] = cells) -> None:
                runs[cells[place]] = run

            seeded = [replace(ready[number], seed=seed) for number, seed in cells]
            sweep(seeded, task, options, progress=advance, finished=keep)
    return [
        Outcome(point, tuple(runs[number, seed] for seed in seeds), tasks[point.config.task_key].minimiser)
        for number, point in enumerate(points)
        if all((number, seed) in runs for seed in seeds)
    ]


def _tasks(spec: Spec, points: list[Point]) -> dict[str, Task]:
    """The tasks by their keys; where data are missing, the error says what the spec needs."""
    try:
        return tasks_of(point.config for point in points)
    except InvalidInput as error:
        if not spec.file.needs:
            raise
        raise InvalidInput(error.field, error.value, f"{error.remedy}. {spec.file.needs}") from None


def values_of(outcome: Outcome, metric: str) -> list[float]:
    """For each seed the figure that a paper would print: the mean over the last five rounds, or the highest."""
    if metric == "highest-accuracy":
        return [100 * max(row["accuracy"] for row in run.history) for run in outcome.runs]
    return [statistics.fmean(measured(row, metric) for row in run.history[-5:]) for run in outcome.runs]


def measured(row: Result, metric: str) -> float:
    """A metric of one evaluation, accuracy and error in per cent."""
    if metric in ("accuracy", "error"):
        return float(100 * row["accuracy"] if metric == "accuracy" else 100 - 100 * row["accuracy"])
    return float(row[metric] if metric in row else row["not_private"][metric])


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
    so_far = f"{len(outcomes)} of {of} cells" if len(outcomes) < of else ""
    scope = ", ".join(filter(None, (spec.scope, so_far)))
    promised = any(each["epsilon"] != "inf" for certificate in guarantees for each in certificate["guarantees"])
    return {
        "name": spec.name,
        **({"scope": scope} if scope else {}),
        "title": spec.file.title,
        "metric": METRICS[spec.file.metric],
        "note": " ".join(filter(None, (_changed(spec), spec.file.quick.note if quick else "", spec.file.note))),
        "rows": rows,
        **({"spreads": spreads} if spreads else {}),
        "guarantees": guarantees,
        **({"choosing": {"note": TUNING_NOT_COVERED}} if promised else {}),
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
