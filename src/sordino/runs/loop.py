"""The training loop: segments of compiled rounds, and between them ledger, evaluation, metrics and checkpoint."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Container, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from sordino.errors import require
from sordino.rounds.engine import RoundInfo, RoundState
from sordino.rounds.mesh import here
from sordino.runs.blocks import Block, Program
from sordino.runs.checkpoint import Checkpoint
from sordino.runs.identity import digest_of, identity_of_task
from sordino.runs.metrics import metrics_row, require_bounded, spent
from sordino.runs.names import CHECKPOINT
from sordino.runs.point import Point, Progress, Row, Run
from sordino.runs.processes import ALONE, Group
from sordino.runs.setup import segments, usual_interval
from sordino.runs.spending import Spending
from sordino.runs.store import RunStore
from sordino.tasks import Predictor, Task

SweepProgress: TypeAlias = Callable[[float], None]  # the share of all rounds of all points that is done


class OutOfTime(Exception):
    """A sweep was stopped by its deadline; the same call goes on from its folder of unfinished blocks."""


@dataclass(frozen=True)
class Options:
    """How points are run.

    Args:
      evaluate_every: rounds between evaluations (about twenty, if left out); the last five rounds are always seen.
      chunk: clients of one point that are trained at a time; chosen from the memory, if left out.
      at_a_time: points that run at once; chosen from the memory, if left out.
      transcript: keep every message of every client, for audits; then points run one by one.
      iterates: keep the model, as a flat vector, of every evaluation.
      training_loss: measure the loss on the clients' records as well, without noise: no certificate covers it.
      skip: numbers of points that need not run. They do not change which points run together.
      resume: whether the folders of points must hold a run (True), must not (False), or may (None).
      models: whether the model of each point goes to its folder.
      unfinished: a folder for points without one of their own: blocks that take longer than half a minute are kept
        there, and a call with the same points that was killed goes on. Delete it when the runs are safe. Without
        effect where `iterates` are kept.
      deadline: by `time.monotonic`: stop after the first evaluation past it, keep every state in `unfinished`, and
        raise OutOfTime. At least one evaluation is always done.
      group: the processes that run one point together. The folder, the rows and what is measured are process 0's.
    """

    evaluate_every: int | None = None
    chunk: int | None = None
    at_a_time: int | None = None
    transcript: bool = False
    iterates: bool = False
    training_loss: bool = False
    skip: Container[int] = ()
    resume: bool | None = None
    models: bool = True
    unfinished: Path | None = None
    deadline: float | None = None
    group: Group = ALONE

    def __post_init__(self) -> None:
        counts = {"evaluate_every": self.evaluate_every, "chunk": self.chunk, "at_a_time": self.at_a_time}
        for name, value in counts.items():
            require(value is None or value >= 1, name, value, "must be at least 1")
        kept = self.unfinished is not None and not self.iterates
        remedy = "needs a folder `unfinished`, and no `iterates`"
        require(self.deadline is None or kept, "deadline", self.deadline, remedy)
        if self.group.count > 1:
            remedy = "needs what other processes hold: leave it out, or run in one process"
            for field, value in (("transcript", self.transcript), ("training_loss", self.training_loss)):
                require(not value, field, value, remedy)
            require(self.unfinished is None, "unfinished", str(self.unfinished), "is for runs in one process")


class Session:
    """What all blocks of one call share."""

    def __init__(
        self,
        points: Sequence[Point],
        task: Task,
        options: Options,
        blocks: Sequence[Block],
        on_row: Progress | None = None,
        on_share: SweepProgress | None = None,
    ) -> None:
        self.points, self.task, self.options = points, task, options
        self._on_row, self._on_share = on_row, on_share
        self._work = sum(block.rounds * len(block.points) for block in blocks)
        self._done: dict[Block, int] = {}  # rounds of all points of a block

    @functools.cached_property
    def of_task(self) -> bytes:
        """The task's part of an identity, and what is measured besides."""
        return identity_of_task(self.task) + b"training loss" * self.options.training_loss

    @property
    def out_of_time(self) -> bool:
        """Whether the deadline is over, and something was done."""
        deadline = self.options.deadline
        return bool(self._done) and deadline is not None and time.monotonic() > deadline

    def evaluated(self, block: Block, rounds: int, row: Row, seconds: float) -> None:
        """Tell of an evaluation, with the row of one point."""
        self._done[block] = rounds * len(block.points)
        if self._on_row is not None:
            self._on_row(row | {"rounds": block.rounds, "seconds": seconds})
        if self._on_share is not None:
            self._on_share(sum(self._done.values()) / self._work)


def run_block(block: Block, session: Session) -> dict[int, Run]:
    """Run the points of a block, from where a killed process left them."""
    with ExitStack() as held:
        training = _Training(block, session, held)
        try:
            for start, stop in segments(training.done, block.rounds, training.every):
                if session.out_of_time:
                    raise OutOfTime
                training.advance(start, stop)
        except (KeyboardInterrupt, OutOfTime):
            training.save(last=True)
            raise
        return training.finished()


class _Training:
    """A block between two evaluations: its states, its rows so far, and the folders that keep them."""

    def __init__(self, block: Block, session: Session, held: ExitStack) -> None:
        """Take up the block from its checkpoint; `held` keeps the folders open until the block ends."""
        self._block, self._session = block, session
        self.every = session.options.evaluate_every or usual_interval(block.rounds)
        self._places = {number: block.points.index(number) for number in block.numbers}
        self._points = {number: session.points[number] for number in block.numbers}
        self._program = Program(block, session.points, session.task)
        held.callback(self._program.close)
        first = self._program.initial()
        stretches = segments(0, block.rounds, self.every)
        keeps = session.options.unfinished is not None or any(point.folder for point in self._points.values())
        group = session.options.group
        keeps = keeps or group.count > 1
        identity = functools.cache(lambda: self._program.identity(session.of_task, first) if keeps else b"")
        if group.count > 1:
            settings = f"{session.of_task.hex()} {self.every}"
            group.require_same(
                "task", settings, "the others read other records or test records, or have other versions"
            )
            group.require_same("plan", identity().hex(), "the others run another plan")
        stops = [stop for _, stop in stretches]
        if group.leader:
            self._stores = self._opened(identity, max(stop - start for start, stop in stretches), held)
            self._checkpoint = self._checkpoint_of(identity)
            self.done, self._state, self._rows = self._checkpoint.load(first, len(self._points), stops)
        else:
            self._stores, self._checkpoint = {}, Checkpoint(None)
            self.done, self._state, self._rows = 0, first, [[] for _ in self._points]
        self.done = int(group.said_by_leader(lambda: str(self.done)))
        if self.done and group.count > 1:
            self._state = group.given_by_leader(self._state)
        later = [stop for _, stop in segments(self.done, block.rounds, self.every)]
        self._spending = Spending(self._points, later if group.leader else [], held)
        self._history = dict(zip(self._points, self._rows, strict=True))
        for number, rows in self._history.items():
            for row in rows:  # promises follow from the plan, not from a file
                row |= spent(row["round"], self._points[number])
            if number in self._stores:
                self._stores[number].restore_metrics(rows)
        self._iterates: list[np.ndarray] = []  # [evaluation][place, d]
        self._transcripts: list[Any] = []

    def advance(self, start: int, stop: int) -> None:
        """Run the rounds [start, stop), which the ledgers hold before they run; measure and keep what came of them."""
        options = self._session.options
        for store in self._stores.values():
            store.enter(stop)
        state, running = self._program.advance(self._state, start, stop)
        models = self._program.models(state)
        if options.group.count > 1:
            same = digest_of(here(state.server)).hex()
            options.group.require_same("model", same, f"after round {stop} its machine has computed other numbers")
        if not options.group.leader:
            self._follow(self._program.fetched(running), start, stop)
            self.done, self._state = stop, state
            return
        measured = self._program.measure(models)
        losses = self._program.training_losses(models) if options.training_loss else None
        info = self._program.fetched(running)
        epsilons = self._spending.after(stop)
        for number, place in self._places.items():
            own = jax.tree.map(lambda leaf, place=place: leaf[place], info._replace(transcript=None))
            require_bounded(self._points[number], own, start, stop)
            row = metrics_row(stop, measured[place], epsilons[number], own)
            if losses is not None:
                row["not_private"]["training_loss"] = float(losses[place])
            self._history[number].append(row)
            if number in self._stores:
                self._stores[number].append_metrics(self._history[number][-1])
        if options.iterates:
            self._iterates.append(np.asarray(models))
        if options.transcript:
            self._transcripts.append(info.transcript)
        self.done, self._state = stop, state
        self.save(last=stop == self._block.rounds)
        first = self._history[self._block.points[0]][-1]
        self._session.evaluated(self._block, stop, first, self._checkpoint.elapsed)

    def _follow(self, info: RoundInfo, start: int, stop: int) -> None:
        """After a segment, in all processes but the first: stop with the others if the certificate is false."""
        for number, place in self._places.items():
            own = jax.tree.map(lambda leaf, place=place: leaf[place], info._replace(transcript=None))
            require_bounded(self._points[number], own, start, stop)

    def save(self, *, last: bool) -> None:
        """Write the checkpoint if it is time; always, if asked to, at the end, at the deadline and after Ctrl-C."""
        over = self.done == self._block.rounds
        rows = [[row for row in history if row["round"] <= self.done] for history in self._rows]
        state = here(self._state)
        self._checkpoint.save(self.done, without_memories(state) if over else state, rows, last=last)

    def finished(self) -> dict[int, Run]:
        """The runs, and their folders complete."""
        models, seconds = self._program.models(self._state), self._checkpoint.elapsed / len(self._points)
        runs = {}
        for number, place in self._places.items():
            model = Predictor.of_task(self._session.task, self._session.task.params(models[place]))
            if number in self._stores:
                self._stores[number].finish(model if self._session.options.models else None, seconds)
            kept = np.stack([each[place] for each in self._iterates]) if self._iterates else None
            certificate = self._points[number].certificate
            runs[number] = Run(model, self._history[number], certificate, seconds, self._transcripts or None, kept)
        if self._stores and len(self._session.points) > 1:  # a single run can be resumed, to show its end again
            self._checkpoint.remove()
        return runs

    def _opened(self, identity: Callable[[], bytes], longest: int, held: ExitStack) -> dict[int, RunStore]:
        """The folders of points that have one."""
        options, stores = self._session.options, {}
        wanted = [number for number in self._points if number not in options.skip and self._points[number].folder]
        for number in wanted:
            store = RunStore.open(
                self._points[number],
                self._session.task,
                identity=identity,
                longest=longest,
                transcript=options.transcript,
                resume=options.resume,
            )
            stores[number] = held.enter_context(store)
        return stores

    def _checkpoint_of(self, identity: Callable[[], bytes]) -> Checkpoint:
        """In the folder of the first point, or among the unfinished ones; nowhere if there is no folder."""
        options, folder = self._session.options, self._session.points[self._block.points[0]].folder
        if folder is not None:
            return Checkpoint(folder / CHECKPOINT, identity(), always_last=True)
        if options.unfinished is None or options.iterates:
            return Checkpoint(None)
        path = options.unfinished / f"{identity().hex()[:16]}.npz"
        return Checkpoint(path, identity(), every=None if options.deadline is None else 0.0)


def without_memories(state: RoundState) -> RoundState:
    """The state after the last round, without what clients remember: it may be most of a file, and nobody needs it."""
    return state._replace(clients=jax.tree.map(jnp.zeros_like, state.clients))
