"""A study: several methods tuned with equal budgets on one task, their best points run with the same fresh seeds.

    <folder>/<method>/tuning/points/00007/     the runs among which the best point is chosen, without models
    <folder>/<method>/best/points/00003/       the runs of the best point, one for each seed, with models

Methods are taken in the order of their names, and none depends on another: the order of the files changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sordino.experiments.held_out import HeldOut, hold_out
from sordino.experiments.tuning import Budget, Candidate, Choice, Share, Trained, choose, price, run_best, table_of
from sordino.privacy.guarantee import Certificate, Guarantee
from sordino.report.sweeps import Row, rule_for
from sordino.runs import Point
from sordino.tasks import Task


@dataclass(frozen=True)
class Arena:
    """What methods are compared on: the task, without the held-out clients where there is something to choose."""

    task: Task  # of the runs that are compared
    held_out: HeldOut | None  # None: nothing to choose, all clients train
    rule: str  # by which points are chosen

    @property
    def choosing(self) -> Task:
        """The task of the tuning runs."""
        return self.task if self.held_out is None else self.held_out.choosing

    @property
    def note(self) -> str:
        """What scores and figures rest on beside a file, for the folders of runs."""
        held = self.held_out
        return "all clients train" if held is None else f"{held.clients} of {held.of} clients held out by {held.seed}"


def arena(task: Task, budget: Budget, *, share: float, seed: int, best: str | None = None) -> Arena:
    """Hold out a share of the clients if the budget has several points to choose from."""
    if budget.points == 1:
        return Arena(task, None, rule_for(task.measures, best))
    held = hold_out(task, share, seed)
    return Arena(held.final, held, rule_for(held.choosing.measures, best))


@dataclass(frozen=True)
class Outcome:
    """A method: its best point, that point's runs, what they promise, and what choosing costs."""

    choice: Choice
    runs: list[Trained]
    guarantee: Guarantee
    price: dict[str, Any] | None  # None: nothing was chosen

    @property
    def name(self) -> str:
        return self.choice.candidate.name

    @property
    def certificate(self) -> Certificate:
        return self.runs[0].certificate  # they differ from seed to seed in nothing

    @property
    def table(self) -> list[Row]:
        """A row for each run: those that were tried, then those of the best point."""
        values = {"method": self.name, "runs": "best"} | self.choice.best.values
        return [*self.choice.tried, *table_of(self.runs, [values] * len(self.runs))]


def promised_of(candidate: Candidate, task: Task) -> list[Point]:
    """The points of a method, resolved: mistakes come before any run."""
    return [each.config.point(task) for each in candidate.points]


def guarantee_of(point: Point) -> Guarantee:
    """The guarantee over all rounds against the observer who is promised something."""
    return point.answer.certificate.total(point.answer.promised)


def run_study(
    candidates: Sequence[Candidate], where: Arena, budget: Budget, folder: Path | None, progress: Share | None = None
) -> list[Outcome]:
    """Tune every method and run its best point; what a folder holds already is not run again."""
    outcomes = []
    runs = budget.tuning_runs + budget.seeds
    for number, each in enumerate(sorted(candidates, key=lambda each: each.name)):

        def told(done: int, of: int, number: int = number) -> Share:
            def share(part: float) -> None:
                if progress is not None:
                    progress((number + (done + part * of) / runs) / len(candidates))

            return share

        places = (None, None) if folder is None else (folder / each.folder / "tuning", folder / each.folder / "best")
        tuning = told(0, budget.tuning_runs)
        choice = choose(each, where.choosing, places[0], budget, where.rule, where.note, tuning)
        final = told(budget.tuning_runs, budget.seeds)
        done = run_best(choice, where.task, places[1], budget, where.note, final)
        points = promised_of(each, where.choosing)
        cost = price(points, budget.tuning_seeds) if budget.choosing else None
        outcomes.append(Outcome(choice, done, guarantee_of(choice.best.config.point(where.task)), cost))
    return outcomes
