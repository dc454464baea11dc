"""What is run, and what came of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from sordino.errors import require
from sordino.planning import Plan, ResolvedPlan
from sordino.privacy import wording
from sordino.privacy.guarantee import Certificate
from sordino.runs.applied import Applied
from sordino.runs.description import Row as Row
from sordino.runs.description import describe
from sordino.runs.seeds import FreshSeed
from sordino.tasks import Predictor, Task
from sordino.types import PyTree, SeedOrigin, Warning

Progress: TypeAlias = Callable[[Row], None]


@dataclass(frozen=True)
class Point:
    """A plan with its seed; perhaps resolved already, and with a folder that keeps the run."""

    plan: Plan
    seed: int | FreshSeed | None = None  # None: a fresh one is drawn when the point runs
    resolved: ResolvedPlan | None = None
    folder: Path | None = None
    config: str | None = None  # the run file, for the folder
    about_code: tuple[Warning, ...] = ()  # warnings about functions that hold arrays of their own

    def __post_init__(self) -> None:
        if isinstance(self.seed, int):
            require(0 <= self.seed < 2**64, "seed", self.seed, "must lie in [0, 2^64)")

    @property
    def bits(self) -> int:
        """The seed as a number, for the engine alone."""
        assert self.seed is not None, "a point gets its seed before it runs"
        return self.seed.bits if isinstance(self.seed, FreshSeed) else self.seed

    @property
    def origin(self) -> SeedOrigin:
        """Where the seed comes from."""
        if not isinstance(self.seed, FreshSeed):
            return SeedOrigin.ENTROPY if self.seed is None else SeedOrigin.GIVEN
        return SeedOrigin.SHARED if self.seed.shared else SeedOrigin.ENTROPY

    def for_task(self, task: Task) -> Point:
        """The same point, resolved for the task."""
        if self.resolved is not None:
            same = self.resolved.plan is self.plan and self.resolved.population is task.population
            require(same, "resolved", self.plan.rounds, "was resolved for another plan or task: leave it out")
            return self
        return dataclasses.replace(self, resolved=self.plan.resolve(task.population))

    @property
    def answer(self) -> ResolvedPlan:
        """The resolved plan."""
        assert self.resolved is not None, "Point.for_task resolves the plan"
        return self.resolved

    @property
    def certificate(self) -> Certificate:
        """What the run promises: the plan's certificate, with what is known once there is a seed and a loss."""
        planned = self.answer.certificate
        alone = wording.run_alone(self.origin)
        warnings = [alone if warning.code == alone.code else warning for warning in planned.warnings]
        return dataclasses.replace(planned, seed=self.origin, warnings=(*warnings, *self.about_code))


@dataclass(frozen=True, repr=False)
class Run(Applied):
    """A finished run. `model` applies what was trained; a run does so too: run.predict(x), run.evaluate(x, y)."""

    model: Predictor
    history: list[Row]
    certificate: Certificate
    seconds: float
    transcript: list[PyTree] | None = None  # (senders, presence, messages) of every segment
    iterates: np.ndarray | None = None  # [evaluation, d]

    def __repr__(self) -> str:
        return describe(self.model.task, self.history, self.certificate, self.model, seconds=self.seconds)

    def _trained(self) -> Predictor:
        return self.model

    @property
    def accuracy(self) -> float:
        """Test accuracy after the last round, of a classifier."""
        return float(self.history[-1]["accuracy"])

    @property
    def diverged(self) -> bool:
        """Whether the model was lost: its test loss is not a number."""
        return not math.isfinite(self.history[-1]["test_loss"])
