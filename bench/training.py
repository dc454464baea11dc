"""Speed of training: what a large population costs, and what the compiled engine saves against a loop over clients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from bench.timing import Bench, Row, interleaved, seconds
from sordino.runs.workloads import WORKLOADS, Workload, prepare

ROUNDS = 5
POPULATION = Workload("logistic regression, few features", "logistic", 10_000, 20, (16,), 2, 1000, 5)


def population() -> Iterator[Row]:
    """A population of a million."""
    workloads = POPULATION, replace(POPULATION, clients=1_000_000)
    small, large = (prepare(workload, rounds=ROUNDS) for workload in workloads)
    value, baseline = interleaved(partial(seconds, partial(large.run, 0)), partial(seconds, partial(small.run, 0)))
    name = f"{ROUNDS} rounds of 1,000 clients out of 10^6"
    yield Row(name, value, baseline, target=1.5, against="out of 10^4")


def plain_loop() -> Iterator[Row]:
    """The engine beside a plain loop."""
    for workload in (POPULATION, *WORKLOADS.values()):
        program = prepare(workload)
        timers = (partial(seconds, partial(run, 0)) for run in (program.run, program.loop))
        value, baseline = interleaved(*timers, repetitions=3)
        yield Row(f"a round of {workload.what}", value, baseline, target=1.0, against="a plain loop over clients")


BENCHES: list[Bench] = [population, plain_loop]
