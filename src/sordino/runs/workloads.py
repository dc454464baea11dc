"""Workloads whose speed is measured: rounds of DP-FedAvg, by the engine, by a plain loop over clients, and as a run.

A workload is data: how many clients, how much each holds, which model, how much local work. Records are random, from a
seed, since speed does not depend on what they say. Their shapes are our choice, for comparing Sordino with itself and
with a plain loop; they are no public benchmark.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
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
from sordino.planning import Plan, Rules, plan
from sordino.privacy.accountants import forget_accounts
from sordino.rounds import engine
from sordino.rounds.engine import ProgramSpec, RoundState, Shared, run_client, run_rounds
from sordino.rounds.mesh import everywhere
from sordino.runs.blocks import Program, make_blocks
from sordino.runs.memory import peak_mib
from sordino.runs.point import Point
from sordino.runs.setup import choose_chunk, initial_state, segments, spec_of, usual_interval
from sordino.runs.sweep import simulate
from sordino.tasks import Records, Task
from sordino.types import Key

TIMED = 5  # rounds, of which the median counts
LONG = 20.0  # seconds of rounds, after which fewer are timed


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
    local_lr: float = 0.01
    run: tuple[int, int | None] | None = None  # rounds of a whole run that is timed too, and how often it evaluates

    def plan(self, rounds: int = 1, sampler: str | None = None) -> Plan:
        """One update of each client, clipped to 1, summed with noise of standard deviation 1, divided by the cohort."""
        method = fedavg(
            local_steps=self.local_steps,
            local_lr=self.local_lr,
            bound=clip(1.0),
            batch_size=self.batch_size,
            message="difference",
            server_lr=1.0,
        )
        everybody = self.cohort == self.clients
        cohort, z = ("full", 1.0) if everybody else (f"fixed:{self.cohort}", 0.5)  # noise over sensitivity
        return plan(method, rounds=rounds, cohort=cohort, noise_multiplier=z, sampler=sampler)


WORKLOADS = {
    "w1": Workload(
        "logistic regression, many clients", "logistic", 3000, 20, (784,), 10, 600, 20, None, 0.15, (200, None)
    ),
    "w2": Workload("small CNN, many clients", "cnn", 1000, 60, (28, 28, 1), 10, 1000, 10, None, 0.05),
    "w3": Workload("MLP bound by matrix products", "mlp:300,300", 50, 1200, (784,), 10, 25, 20, 256, 0.2),
    "tiny": Workload("ten clients", "logistic", 10, 20, (784,), 10, 10, 1, None, 0.1, (300, 3)),
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


def prepare(
    workload: Workload, *, rounds: int = 1, seed: int = 0, sampler: str | None = None, precision: str = "default"
) -> Prepared:
    """Plan, make the data and compile: what a run does before its first round; `sampler` is that of the noise."""
    task = replace(random_task(workload, seed), precision=precision)
    planned = workload.plan(rounds, sampler)
    resolved = planned.resolve(task.population)
    chunk = choose_chunk(task, planned)
    spec = spec_of(planned, resolved, task, chunk=chunk)
    key = key_of(seed)
    state = initial_state(planned.method, task, key)
    rules, records = resolved.rules, jax.block_until_ready(task.records)
    fixed = everywhere((rules, records, state, key), spec.devices)
    started = time.perf_counter()
    compiled = run_rounds.lower(*fixed, jnp.int32(0), spec=spec, rounds=rounds).compile()
    seconds = time.perf_counter() - started

    def run(first: int) -> RoundState:
        state: RoundState = jax.block_until_ready(compiled(*fixed, jnp.int32(first)))[0]
        return state

    return Prepared(run, functools.partial(_loop, rules, records, state, key, spec), task.d, chunk, seconds)


def measure(workload: Workload, seed: int = 0) -> dict[str, Any]:
    """Seconds of a round, after one that does not count, and the peak memory; a plain loop over clients beside it.

    Where the workload names a run, also what a whole run takes beside its rounds.
    """
    program = prepare(workload, seed=seed)
    round_seconds = _median_seconds(program.run)
    peak = peak_mib()  # of the engine: the loop comes after
    loop_seconds = _median_seconds(program.loop)
    return {
        "s_per_round": round_seconds,
        "peak_mib": peak,
        "compile_s": program.compile_seconds,
        "loop_s_per_round": loop_seconds,
        "loop_over_engine": loop_seconds / round_seconds,
        "parameters": program.d,
        "chunk": program.chunk,
        **({} if workload.run is None else time_of_run(workload, seed)),
    }


def time_of_run(workload: Workload, seed: int = 0, repetitions: int = 3) -> dict[str, float]:
    """Seconds of a whole run with its folder, and of its rounds alone; the least of a few, everything compiled.

    What a run does beside its rounds is evaluation, accounts, ledger, metrics and the other files of its folder.
    """
    assert workload.run is not None
    rounds, every = workload.run
    task, planned = random_task(workload, seed), workload.plan(rounds)
    point = Point(planned, seed, planned.resolve(task.population))
    (block,) = make_blocks([point], task)
    program = Program(block, [point], task)
    stretches = segments(0, rounds, every or usual_interval(rounds))

    def rounds_alone() -> None:
        state = program.initial()
        for start, stop in stretches:
            state, info = program.advance(state, start, stop)
            program.fetched(info)
        jax.block_until_ready(state)

    def whole() -> None:
        forget_accounts()
        with TemporaryDirectory() as folder:
            simulate(planned, task, seed=seed, evaluate_every=every, folder=Path(folder) / "run")

    seconds: dict[str, list[float]] = {"rounds": [], "run": []}
    for repetition in range(repetitions + 1):
        for name, work in (("rounds", rounds_alone), ("run", whole)):
            started = time.perf_counter()
            work()
            if repetition:
                seconds[name].append(time.perf_counter() - started)
    run_s, rounds_s = min(seconds["run"]), min(seconds["rounds"])
    return {"run_rounds": rounds, "run_s": run_s, "rounds_s": rounds_s, "beside_rounds": max(0.0, 1 - rounds_s / run_s)}


def _median_seconds(run: Callable[[int], RoundState]) -> float:
    """The median over rounds, after a first one in which caches are filled; of fewer where they are long."""
    run(0)
    times: list[float] = []
    while len(times) < TIMED and sum(times) < LONG:
        started = time.perf_counter()
        run(len(times) + 1)
        times.append(time.perf_counter() - started)
    return median(times)


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
