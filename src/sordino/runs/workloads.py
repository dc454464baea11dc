"""Workloads whose speed is measured: one round of DP-FedAvg, by the engine and by a plain Python loop over clients.

A workload is data: how many clients, how much each holds, which model, how much local work. Records are random, from a
seed, since speed does not depend on what they say. The three with names are Sordino's own choices of shape, for
comparing Sordino with itself and with a plain loop; they are no public benchmark.
"""

from __future__ import annotations

import functools
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sordino.algorithms.fedavg import fedavg
from sordino.bounding import clip
from sordino.data import FederatedData
from sordino.errors import InvalidInput
from sordino.keys import key_of
from sordino.models import get
from sordino.planning import Rules, plan
from sordino.rounds import engine
from sordino.rounds.engine import ProgramSpec, RoundState, Shared, run_client, run_rounds
from sordino.runs.setup import choose_chunk, initial_state, spec_of
from sordino.tasks import Records, Task
from sordino.types import Key

TIMED = 5  # rounds, of which the median counts


@dataclass(frozen=True)
class Workload:
    """`cohort` of `clients` clients take `local_steps` steps, each on `batch_size` of their records (None: on all)."""

    what: str
    model: str
    clients: int
    records: int  # a client
    shape: tuple[int, ...]  # of a record
    classes: int
    cohort: int
    local_steps: int
    batch_size: int | None = None


WORKLOADS = {
    "w1": Workload("logistic regression, many clients", "logistic", 3000, 20, (28, 28, 1), 10, 600, 20),
    "w2": Workload("small CNN, many clients", "cnn", 1000, 60, (28, 28, 1), 10, 100, 5),
    "w3": Workload("MLP bound by matrix products", "mlp:300,300", 50, 1200, (28, 28, 1), 10, 25, 5, 256),
}


@dataclass(frozen=True)
class Prepared:
    """A workload made ready. Both functions take the number of the first round and return when it is done."""

    run: Callable[[int], RoundState]  # the engine's rounds
    loop: Callable[[int], RoundState]  # one round, one client after another
    d: int
    chunk: int
    compile_seconds: float  # of `run`; `loop` compiles its one client when it is first called


def find_workload(name: str) -> Workload:
    """The workload called `name`."""
    try:
        return WORKLOADS[name.strip().lower()]
    except KeyError:
        raise InvalidInput("workload", name, "use one of " + ", ".join(WORKLOADS)) from None


def random_task(workload: Workload, seed: int = 0) -> Task:
    """Every client's records, at random; the first hundred serve as a test set."""
    rng = np.random.default_rng(seed)
    n = workload.clients * workload.records
    x = rng.standard_normal((n, *workload.shape), dtype=np.float32)
    y = rng.integers(0, workload.classes, n, dtype=np.int32)
    start = np.arange(workload.clients, dtype=np.int32) * workload.records
    size = np.full(workload.clients, workload.records, np.int32)
    data = FederatedData(x, y, start, size, x[:100], y[:100], workload.classes)
    return Task("random", data, get(workload.model, workload.shape, workload.classes))


def prepare(workload: Workload, *, rounds: int = 1, seed: int = 0, sampler: str | None = None) -> Prepared:
    """Plan, make the data and compile: what a run does before its first round; `sampler` is that of the noise."""
    task = random_task(workload, seed)
    method = fedavg(local_steps=workload.local_steps, local_lr=0.01, bound=clip(1.0), batch_size=workload.batch_size)
    planned = plan(method, rounds=rounds, cohort=f"fixed:{workload.cohort}", noise_multiplier=1.0, sampler=sampler)
    resolved = planned.resolve(task.population)
    chunk = choose_chunk(task, planned)
    spec = spec_of(planned, resolved, task, chunk=chunk)
    key = key_of(seed)
    state = initial_state(method, task, key)
    fixed = (resolved.rules, jax.block_until_ready(task.records), state, key)
    started = time.perf_counter()
    compiled = run_rounds.lower(*fixed, jnp.int32(0), spec=spec, rounds=rounds).compile()
    seconds = time.perf_counter() - started

    def run(first: int) -> RoundState:
        state: RoundState = jax.block_until_ready(compiled(*fixed, jnp.int32(first)))[0]
        return state

    return Prepared(run, functools.partial(_loop, *fixed, spec), task.d, chunk, seconds)


def measure(workload: Workload, seed: int = 0) -> dict[str, Any]:
    """Seconds of a round, after one that does not count, and the peak memory; a plain loop over clients beside it."""
    program = prepare(workload, seed=seed)
    round_seconds = _median_seconds(program.run)
    peak = _peak_mib()  # of the engine: the loop comes after
    loop_seconds = _median_seconds(program.loop)
    return {
        "s_per_round": round_seconds,
        "peak_mib": peak,
        "compile_s": program.compile_seconds,
        "loop_s_per_round": loop_seconds,
        "loop_over_engine": loop_seconds / round_seconds,
        "parameters": program.d,
        "chunk": program.chunk,
    }


def _median_seconds(run: Callable[[int], RoundState]) -> float:
    """The median over rounds, after a first one in which caches are filled."""
    run(0)
    times = []
    for k in range(1, TIMED + 1):
        started = time.perf_counter()
        run(k)
        times.append(time.perf_counter() - started)
    return median(times)


def _peak_mib() -> float:
    """Peak resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


@functools.partial(jax.jit, static_argnames="spec")
def _one_client(client: jax.Array, shared: Shared, spec: ProgramSpec) -> engine.Sums:
    return run_client(client, jnp.bool_(True), (), shared, spec=spec)[0]


def _loop(rules: Rules, records: Records, state: RoundState, key: Key, spec: ProgramSpec, k: int) -> RoundState:
    """The round that `run_rounds` runs, as one would write it first: a compiled client, and Python around it."""
    number = jnp.int32(k)
    client_ids, _ = spec.cohort.draw(engine.round_key(key, number, engine.COHORT), spec.population)
    shared = Shared(rules, records, rules.method.broadcast(state.server), key, number)
    total = _one_client(client_ids[0], shared, spec)
    for client in client_ids[1:]:
        total = jax.tree.map(jnp.add, total, _one_client(client, shared, spec))
    server, _ = engine.serve(rules, state.server, total, key=key, k=number, spec=spec)
    result: RoundState = jax.block_until_ready(RoundState(server, state.clients))
    return result
