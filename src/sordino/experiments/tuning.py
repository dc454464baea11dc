"""Tuning a method with a budget of runs: every point of its grid with every tuning seed, and the best by a stated rule.

The points are scored on held-out clients. Afterwards the best point runs again with seeds of its own, so that its
figures are not those by which it was chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sordino.config import Config, Sweep, SweepPoint
from sordino.errors import InvalidInput, require
from sordino.privacy.guarantee import Certificate
from sordino.report.curves import History
from sordino.report.sweeps import Row, best_point, record, tidy_table, tuning_cost
from sordino.runs import Options, Point, SweepStore, sweep
from sordino.runs.completion import complete, finished
from sordino.runs.identity import digest_of
from sordino.tasks import Task
from sordino.types import Observer

Share: TypeAlias = Callable[[float], None]  # is told the share of a piece of work that is done
DRAW = 0  # public seed by which --points draws from larger grids


@dataclass(frozen=True)
class Budget:
    """What every method may spend: points of its grid, seeds of each of them, and seeds of the best one."""

    points: int
    tuning_seeds: int
    seeds: int

    def __post_init__(self) -> None:
        require(self.points >= 1, "points", self.points, "must be at least 1")
        require(self.tuning_seeds >= 1, "tuning_seeds", self.tuning_seeds, "must be at least 1")
        require(self.seeds >= 2, "seeds", self.seeds, "an interval needs at least 2")

    @property
    def choosing(self) -> range:
        """The seeds of the runs among which the best point is chosen; none where there is one point."""
        return range(self.tuning_seeds) if self.points > 1 else range(0)

    @property
    def final(self) -> range:
        """The seeds of the best point's runs."""
        return range(len(self.choosing), len(self.choosing) + self.seeds)

    @property
    def tuning_runs(self) -> int:
        """Runs of each method before its best point is known."""
        return len(self.choosing) * self.points


@dataclass(frozen=True)
class Candidate:
    """A method to be tuned: the points of its file that are tried."""

    name: str
    sweep: Sweep
    points: tuple[SweepPoint, ...]

    @property
    def config(self) -> Config:
        """Of the first point: for what all points share."""
        return self.points[0].config

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return self.name.replace("/", "-")


def candidate(name: str, sweep: Sweep, points: int) -> Candidate:
    """The method of a file, with `points` of its grid, drawn by a public seed where the grid has more."""
    drawn = list(range(len(sweep.points)))
    if points < len(sweep.points):
        drawn = sorted(np.random.default_rng(DRAW).choice(len(sweep.points), points, replace=False).tolist())
    return Candidate(name, sweep, tuple(sweep.points[number] for number in drawn))


class Trained(NamedTuple):
    """A finished run, in a folder or not."""

    seed: int
    history: History
    certificate: Certificate


def table_of(runs: Sequence[Trained], values: Sequence[Row]) -> list[Row]:
    """A row for each run, with what varied."""
    return tidy_table([record(number, values[number], *run) for number, run in enumerate(runs)])


@dataclass(frozen=True)
class Choice:
    """The best point of a method, and the runs among which it was chosen."""

    candidate: Candidate
    best: SweepPoint
    score: float | None = None  # mean of the rule on held-out clients; None where there was nothing to choose
    tried: tuple[Row, ...] = ()  # a row of the table for each run

    @property
    def edges(self) -> list[dict[str, Any]]:
        """The numbers of the best point that are the smallest or the largest that were tried, and not 0."""
        found = []
        for key, value in self.best.values.items():
            tried = {point.values[key] for point in self.candidate.points}
            numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in tried)
            if numbers and len(tried) > 1 and value in (min(tried), max(tried)) and value != 0:
                end = "smallest" if value == min(tried) else "largest"
                found.append({"method": self.candidate.name, "key": key, "value": value, "end": end})
        return found


def choose(
    candidate: Candidate,
    task: Task,
    folder: Path | None,
    budget: Budget,
    rule: str,
    note: str,
    progress: Share | None = None,
) -> Choice:
    """Run what is missing of the tuning runs, and choose. `note` says what the scores rest on beside the file."""
    if not budget.choosing:
        return Choice(candidate, candidate.points[0])
    points, values = [], []
    for each in candidate.points:
        resolved = each.config.point(task)
        for seed in budget.choosing:
            points.append(replace(resolved, seed=seed, config=each.config.toml(seed)))
            values.append({"method": candidate.name, "runs": "tuning"} | each.values)
    tried = "".join(f"# {each.values}\n" for each in candidate.points)
    text = f"# {note}, seeds below {budget.tuning_seeds}\n{tried}{candidate.sweep.changed}"
    rows = table_of(trained(folder, text, points, task, _options(candidate, False), progress), values)
    best = best_point(rows, tuple(candidate.points[0].values), rule)
    if best is None:
        raise InvalidInput("file", str(candidate.sweep.path), "every point diverged: give smaller step sizes")
    place = best["points"][0] // len(budget.choosing)
    return Choice(candidate, candidate.points[place], best["mean"], tuple(rows))


def run_best(
    choice: Choice, task: Task, folder: Path | None, budget: Budget, note: str, progress: Share | None = None
) -> list[Trained]:
    """Run what is missing of the best point's runs; further seeds can be added later."""
    config = choice.best.config
    resolved = config.point(task)
    points = [replace(resolved, seed=seed, config=config.toml(seed)) for seed in budget.final]
    text = f"# {note}, seeds from {budget.final.start}\n{config.toml()}"
    return trained(folder, text, points, task, _options(choice.candidate, True), progress)


def trained(
    folder: Path | None, config: str, points: Sequence[Point], task: Task, options: Options, progress: Share | None
) -> list[Trained]:
    """The runs of the points: those that the folder misses are run now; without a folder, all of them."""
    seeds = [point.bits for point in points]
    if folder is None:
        runs = sweep(points, task, options, progress=progress)
        return [Trained(seed, run.history, run.certificate) for seed, run in zip(seeds, runs, strict=True)]
    with SweepStore(folder, config, digest_of(task.content, task.test), seeded=True) as store:
        complete(store, dict(enumerate(points)), task, options, progress)
        stored = [finished(store, number) for number in range(len(points))]
    return [Trained(seed, run.metrics, run.certificate) for seed, run in zip(seeds, stored, strict=True)]


def _options(candidate: Candidate, models: bool) -> Options:
    settings = candidate.config.file.run
    return Options(evaluate_every=settings.evaluate_every, chunk=settings.chunk, models=models)


def price(points: Sequence[Point], tuning_seeds: int) -> dict[str, Any]:
    """What choosing among runs of these points costs the clients in training; see `report.sweeps.tuning_cost`."""
    first = points[0].answer
    total = first.certificate.total(first.promised)
    events = [each.answer.event_for(each.answer.promised, each.plan.rounds) for each in points]
    cost = tuning_cost(
        [event for event in events for _ in range(tuning_seeds)],
        total.delta,
        total.relation,
        shared_noise=len(points) > 1,  # every point runs with the same seeds
        sees_every_run=total.observer is Observer.SERVER,
    )
    return {"observer": str(total.observer), "epsilon_of_one_run": total.epsilon, **cost}
