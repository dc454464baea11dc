"""Points of a stored sweep: those that its folder misses are run, the others are left as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sordino.runs.loop import Options, SweepProgress
from sordino.runs.point import Point
from sordino.runs.store import SweepStore
from sordino.runs.stored import StoredRun
from sordino.runs.sweep import sweep
from sordino.tasks import Task


def missing_of(store: SweepStore, numbers: range) -> list[int]:
    """The numbers of points that have to be run."""
    return [number for number in numbers if store.finished(number) is None]


def complete(
    store: SweepStore,
    points: Mapping[int, Point],
    task: Task,
    options: Options,
    progress: SweepProgress | None = None,
) -> None:
    """Run the points of one task that are missing. Finished points are passed too, so that blocks stay the same."""
    there = {place for place, number in enumerate(points) if store.finished(number) is not None}
    if len(there) == len(points):
        return
    kept = [
        replace(point, seed=store.seed or point.seed, folder=store.point(number)) for number, point in points.items()
    ]
    sweep(kept, task, replace(options, skip=there), progress=progress)


def finished(store: SweepStore, number: int) -> StoredRun:
    """A point that `complete` has run."""
    stored = store.finished(number)
    assert stored is not None
    return stored
