"""What is run, and what came of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from sordino.errors import LARGEST_SEED, NO_SUCH_SEED, require
from sordino.planning import Plan, ResolvedPlan
from sordino.privacy.guarantee import Certificate
from sordino.tasks import Task

Row: TypeAlias = dict[str, Any]  # one line of metrics
Progress: TypeAlias = Callable[[Row], None]


@dataclass(frozen=True)
class Point:
    """A plan with its seed; perhaps resolved already, and with a folder that keeps the run."""

    plan: Plan
    seed: int = 0
    resolved: ResolvedPlan | None = None
    folder: Path | None = None
    config: str | None = None  # the run file, for the folder

    def for_task(self, task: Task) -> Point:
        """The same point, resolved for the task."""
        if self.resolved is not None:
            return self
        return dataclasses.replace(self, resolved=self.plan.resolve(task.population))

    @property
    def answer(self) -> ResolvedPlan:
        """The resolved plan."""
        assert self.resolved is not None, "Point.for_task resolves the plan"
        return self.resolved


@dataclass(frozen=True)
class Run:
    """A finished run."""

    params: Any
    history: list[Row]
    certificate: Certificate
    seconds: float
    transcript: Any = None
    iterates: Any = None  # [evaluation, d]

    @property
    def accuracy(self) -> float:
        """Test accuracy after the last round, of a classifier."""
        return float(self.history[-1]["accuracy"])

    @property
    def diverged(self) -> bool:
        """Whether the model was lost: its test loss is not a number."""
        return not math.isfinite(self.history[-1]["test_loss"])

    def mean_accuracy(self, last: int = 5) -> float:
        """Mean test accuracy over the last evaluations, as papers report it."""
        return float(np.mean([row["accuracy"] for row in self.history[-last:]]))


def require_seed(seed: int) -> None:
    """Refuse a seed that would repeat the noise of another: the generator takes 32 bits of it."""
    require(0 <= seed <= LARGEST_SEED, "seed", seed, NO_SUCH_SEED)
