"""What a run will take, from a short calibration: its own program runs a few rounds, and nothing of them is kept.

seconds  before the rounds (compiling) + rounds x seconds a round + evaluations x (measuring, accounting, ledger)
memory   the peak of this process after the calibration, which holds the data and has run rounds
disk     the files of the run's folder
sent     bytes that the clients of a deployment would send and receive, whatever a simulation does
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import jax

from sordino.keys import key_of
from sordino.rounds.engine import RoundInfo, RoundState
from sordino.runs.blocks import Program, make_blocks
from sordino.runs.checkpoint import Checkpoint
from sordino.runs.identity import identity_of_task
from sordino.runs.loop import without_memories
from sordino.runs.memory import peak_mib
from sordino.runs.metrics import metrics_row, spent
from sordino.runs.names import CHECKPOINT
from sordino.runs.point import Point, Row
from sordino.runs.setup import segments, usual_interval
from sordino.runs.store import RunStore
from sordino.tasks import Predictor, Task

ENOUGH = 3.0  # seconds of rounds


@dataclass(frozen=True)
class Cost:
    """Predicted for a run with a folder, alone on this machine."""

    seconds: float  # of the whole run
    start_s: float  # before the first round: compiling, and the folder
    round_s: float
    evaluation_s: float  # measuring, accounting, ledger and metrics, each time
    evaluations: int
    memory_mib: float
    disk_mib: float
    sent_mib: float


def predict_cost(
    point: Point, task: Task, *, evaluate_every: int | None = None, chunk: int | None = None, enough: float = ENOUGH
) -> Cost:
    """The cost of running a resolved point. Rounds are timed for `enough` seconds, and two at least."""
    rounds = point.plan.rounds
    stretches = segments(0, rounds, evaluate_every or usual_interval(rounds))
    point = replace(point, seed=0)  # the noise of these rounds leaves nothing: any seed will do
    (block,) = make_blocks([point], task, chunk=chunk)
    program = Program(block, [point], task)
    started = time.perf_counter()
    state, info = _rounds(program, program.initial(), 0, 1)
    measured = program.measure(program.models(state))[0]
    identity = program.identity(identity_of_task(task), state)
    start = time.perf_counter() - started
    started = time.perf_counter()
    state, info = _rounds(program, state, 1, 2)
    one = time.perf_counter() - started
    start = max(0.0, start - one)
    more = int(enough / one)
    if more > 1:
        started = time.perf_counter()
        state, info = _rounds(program, state, 2, 2 + more)
        one = (time.perf_counter() - started) / more
    program.close()
    sample = [stop for _, stop in stretches][:: max(1, len(stretches) // 4)]
    measuring = _seconds(lambda: program.measure(program.models(state)))
    accounting = _seconds(lambda: [spent(stop, point) for stop in sample]) / len(sample)
    row = metrics_row(rounds, measured, spent(rounds, point), jax.tree.map(lambda leaf: leaf[0], info))
    entering, disk = _files(point, task, identity, state, row, [stop - start for start, stop in stretches])
    evaluation = measuring + accounting + entering
    d, wire = task.d, point.answer.mechanism.wire
    return Cost(
        seconds=start + rounds * one + len(stretches) * evaluation,
        start_s=start,
        round_s=one,
        evaluation_s=evaluation,
        evaluations=len(stretches),
        memory_mib=peak_mib(),
        disk_mib=disk / 2**20,
        sent_mib=rounds * point.plan.cohort.planned(task.clients) * (wire.size(d) + 4 * d) / 2**20,
    )


def _rounds(program: Program, state: RoundState, start: int, stop: int) -> tuple[RoundState, RoundInfo]:
    """Rounds [start, stop), when they are done."""
    state, info = program.advance(state, start, stop)
    done: RoundState = jax.block_until_ready(state)
    return done, program.fetched(info)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _files(
    point: Point, task: Task, identity: bytes, state: RoundState, row: Row, lengths: list[int]
) -> tuple[float, float]:
    """(seconds of an entry with its row of metrics, bytes of the finished folder), from a folder with two entries."""
    with TemporaryDirectory() as place:
        folder = Path(place) / "run"
        point = replace(point, folder=folder)
        entries = min(2, len(lengths))
        stops = [sum(lengths[: number + 1]) for number in range(entries)]
        with RunStore.open(point, task, identity=lambda: identity, longest=max(lengths)) as store:
            before = _bytes(folder)

            def enter() -> None:
                for stop in stops:
                    store.enter(stop)
                    store.append_metrics(row)

            seconds = _seconds(enter) / entries
            an_entry = (_bytes(folder) - before) / entries
            store.finish(Predictor.of_task(task, task.params(task.initial(key_of(0)))), 0.0)
        kept = Checkpoint(folder / CHECKPOINT, identity, always_last=True)
        kept.save(point.plan.rounds, without_memories(state), [[row] * len(lengths)], last=True)
        return seconds, _bytes(folder) + an_entry * (len(lengths) - entries)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
