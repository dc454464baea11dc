"""Speed of training: what a large population costs, and what the compiled engine saves against a loop over clients."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sordino as so
from bench.timing import Bench, Row, interleaved, seconds
from sordino.data import FederatedData
from sordino.models import get
from sordino.simulation.cohort import FixedSize
from sordino.simulation.debug import debug_rounds
from sordino.simulation.engine import Carry, Setting, run_rounds
from sordino.simulation.tasks import Task

ROUNDS = 5


def _task(clients: int, records: int = 20, features: int = 16) -> Task:
    """Random records: speed does not depend on what they say."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((clients * records, features), dtype=np.float32)
    y = rng.integers(0, 2, clients * records, dtype=np.int32)
    start = np.arange(clients, dtype=np.int32) * records
    data = FederatedData(x, y, start, np.full(clients, records, np.int32), x[:100], y[:100], 2)
    return Task("random", data, get("logistic", (features,), 2))


def _program(task: Task, cohort: int, chunk: int, plain: bool = False) -> Any:
    """`ROUNDS` rounds of DP-FedAvg as a function of nothing."""
    method = so.fedavg(local_steps=5, local_lr=0.1, bound=so.clip(1.0))
    mechanism = so.gaussian(1.0)
    setting = Setting(task.loss, FixedSize(cohort), task.clients, task.largest, "central", chunk)
    carry = Carry(method.init_server(task.initial(jax.random.key(0))), ())
    run = debug_rounds if plain else run_rounds
    first: Any = 0 if plain else jnp.int32(0)
    return partial(
        run, method, mechanism, task.records, carry, jax.random.key(1), first, setting=setting, rounds=ROUNDS
    )


def population() -> Iterator[Row]:
    """A population of a million."""
    small, large = (_program(_task(clients), 1000, 250) for clients in (10_000, 1_000_000))
    value, baseline = interleaved(partial(seconds, large), partial(seconds, small))
    name = f"{ROUNDS} rounds of 1,000 clients out of 10^6"
    yield Row(name, value, baseline, target=1.5, against="out of 10^4")


def plain_loop() -> Iterator[Row]:
    """The engine beside a plain loop."""
    task = _task(200)
    fast, plain = _program(task, 10, 10), _program(task, 10, 10, plain=True)
    value, baseline = interleaved(partial(seconds, fast), partial(seconds, plain), repetitions=3)
    yield Row(f"{ROUNDS} rounds of 10 clients, compiled", value, baseline, target=1.0, against="plain Python")


BENCHES: list[Bench] = [population, plain_loop]
