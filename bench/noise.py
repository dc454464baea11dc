"""Speed of noise that is really released: a round with lattice noise beside the same round with float32 noise."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench.timing import Bench, Row, interleaved, seconds
from sordino.runs.workloads import Workload, prepare

LARGE = Workload("an MLP of a million parameters", "mlp:1257", 100, 20, (28, 28, 1), 10, 100, 1)


def lattice() -> Iterator[Row]:
    """Lattice noise."""
    exact, rough = (prepare(LARGE, sampler=sampler) for sampler in ("lattice", "float32"))
    value, baseline = interleaved(*(partial(seconds, partial(each.run, 0)) for each in (exact, rough)))
    name = f"a round of {LARGE.cohort} clients, d = {exact.d:,}, with lattice noise"
    yield Row(name, value, baseline, target=1.10, against="float32 noise")


BENCHES: list[Bench] = [lattice]
