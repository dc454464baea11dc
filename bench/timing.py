"""One row of the report, and how its numbers are measured: medians over interleaved repetitions, after a warm-up."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import jax

__all__ = ["Bench", "Row", "import_seconds", "interleaved", "seconds"]


@dataclass(frozen=True)
class Row:
    """`value` seconds, against `baseline` seconds where there is one: then the target is about their ratio."""

    name: str
    value: float
    baseline: float | None
    target: float
    against: str = ""

    @property
    def ratio(self) -> float | None:
        """How many baselines the measured thing costs."""
        return None if self.baseline is None else self.value / self.baseline

    @property
    def ok(self) -> bool:
        """Whether the target is met."""
        return (self.value if self.ratio is None else self.ratio) <= self.target


Bench = Callable[[], Iterator[Row]]  # its docstring's first line names it while it runs


def seconds(run: Callable[[], Any]) -> float:
    """Wall-clock time of one call, with everything that it left running on the device."""
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def interleaved(*timers: Callable[[], float], repetitions: int = 7) -> list[float]:
    """The median of each timer. They take turns, so that a busy moment of the machine falls on all of them alike."""
    for timer in timers:
        timer()
    rounds = [[timer() for timer in timers] for _ in range(repetitions)]
    return [median(times) for times in zip(*rounds, strict=True)]


def import_seconds(statement: str) -> float:
    """How long an import statement takes in a fresh interpreter, whose own start is not counted."""
    code = f"import time; start = time.perf_counter()\n{statement}\nprint(time.perf_counter() - start)"
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
