"""Runs of plans: `simulate` runs one, `sweep` runs many, as few programs and as many points at a time as fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import jax

from sordino.algorithms.records import RecordMethod
from sordino.errors import require
from sordino.planning import Plan, ResolvedPlan
from sordino.programs import keep_programs
from sordino.rounds.arithmetic import require_sound_arithmetic
from sordino.runs.blocks import Block, make_blocks
from sordino.runs.constants import with_warnings
from sordino.runs.loop import Options, OutOfTime, Session, SweepProgress, run_block
from sordino.runs.names import LEDGER
from sordino.runs.point import Point, Progress, Run
from sordino.runs.processes import ALONE, Group
from sordino.runs.same_run import require_same_config
from sordino.runs.seeds import FreshSeed, Seed, as_seed
from sordino.runs.setup import clients_that_fit, equal_chunk
from sordino.tasks import Task
from sordino.tasks.checks import require_scalar_loss, warn_of_features
from sordino.tasks.padding import require_padding_left_out
from sordino.types import Trust, Unit


def simulate(
    plan: Plan,
    task: Task,
    *,
    seed: Seed | None = None,
    evaluate_every: int | None = None,
    chunk: int | None = None,
    transcript: bool = False,
    iterates: bool = False,
    folder: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    resolved: ResolvedPlan | None = None,
    config: str | None = None,
    group: Group = ALONE,
) -> Run:
    """Run a plan on a task.

    Args:
      plan: from `so.plan`.
      task: from `so.task`.
      seed: of everything that is random in the run: an integer, or a key of JAX, for experiments. Whoever knows it can
        take the noise off. If left out, 64 fresh bits from the operating system.
      evaluate_every: rounds between evaluations (about twenty, if left out); the last five rounds are always seen.
      chunk: clients that are trained at a time; chosen from the memory, if left out.
      transcript: keep every message of every client, for audits.
      iterates: keep the model, as a flat vector, of every evaluation.
      folder: where metrics, ledger, checkpoint, certificate and model go.
      resume: go on from the checkpoint in `folder`, or from the start if it was killed before there was one.
      progress: called with a row of metrics after every evaluation.
      resolved: the plan, resolved for this task already.
      config: the text of the run file, for the folder.
      group: the processes that run this together, each with the same arguments. The history is process 0's, and the
        task holds no training records afterwards.
    """
    swapped = isinstance(plan, Task) and isinstance(task, Plan)
    require(not swapped, "plan", type(plan).__name__, "plan and task are swapped: so.simulate(plan, task)")
    require(isinstance(plan, Plan), "plan", type(plan).__name__, "give a plan, so.plan(method, rounds=...)")
    require(isinstance(task, Task), "task", type(task).__name__, "give a task, so.task(...)")
    named = folder is None or isinstance(folder, str | Path)
    require(named, "folder", type(folder).__name__, 'give the path of a folder, as "runs/NAME"')
    require(folder is not None or not resume, "resume", True, "there is no folder to go on from: give folder=")
    folder = None if folder is None else Path(folder)
    options = Options(
        evaluate_every=evaluate_every, chunk=chunk, transcript=transcript, iterates=iterates, resume=resume, group=group
    )
    given = None if seed is None else as_seed(seed)
    (run,) = _run([Point(plan, given, resolved, folder, config)], task, options, on_row=progress)
    return run


def sweep(
    points: Sequence[Point],
    task: Task,
    options: Options | None = None,
    *,
    progress: SweepProgress | None = None,
    finished: Callable[[int, Run], None] | None = None,
) -> list[Run]:
    """Run every point on a task.

    Args:
      points: plans with their seeds; `so.plan` makes a plan. A point without a seed gets a fresh one of its own.
      task: from `so.task`.
      options: see `Options`.
      progress: called with the share of the work that is done.
      finished: called with the number of a point and its run, as soon as it is there.

    Returns the runs in the order of the points, without skipped ones. One that diverged is a run too: see
    `Run.diverged`. Every run is what `simulate` would have made of it, but for the last bits of floats.
    """
    return _run(points, task, options or Options(), on_share=progress, finished=finished)


def _run(
    points: Sequence[Point],
    task: Task,
    options: Options,
    *,
    on_row: Progress | None = None,
    on_share: SweepProgress | None = None,
    finished: Callable[[int, Run], None] | None = None,
) -> list[Run]:
    keep_programs()
    alone = options.group.count == 1
    require(alone or len(points) == 1, "points", len(points), "several processes run one point: run one after another")
    require_scalar_loss(task)
    remedy = "reads the records of all clients at once, which stay on the disk: leave it out"
    require(not options.training_loss or task.data.folder is None, "training_loss", True, remedy)
    for bound in sorted({bound for point in points if (bound := feature_bound_of(point.plan)) is not None}):
        warn_of_features(task, bound)
    points = with_warnings([_with_seed(point, options).for_task(task) for point in points], task)
    if any(point.answer.trust is not Trust.NONE for point in points):
        require_sound_arithmetic()
    if any(point.answer.method.privacy.unit is Unit.CLIENT for point in points):  # records are taken one by one
        require_padding_left_out(task)
    at_a_time = 1 if options.transcript else options.at_a_time
    blocks = make_blocks(points, task, chunk=options.chunk, at_a_time=at_a_time, transcript=options.transcript)
    if not alone:
        blocks = [spread(block, points[0].plan, task, options) for block in blocks]
    blocks = [block for block in blocks if any(number not in options.skip for number in block.numbers)]
    session = Session(points, task, options, blocks, on_row, on_share)
    runs: dict[int, Run] = {}
    for block in blocks:
        if session.out_of_time:
            raise OutOfTime
        for number, run in run_block(block, session).items():
            if number not in options.skip:
                runs[number] = run
                if finished is not None:
                    finished(number, run)
    return [runs[number] for number in sorted(runs)]


def spread(block: Block, plan: Plan, task: Task, options: Options) -> Block:
    """A block of one point over the devices of all processes."""
    devices = jax.device_count()
    places = -(-plan.cohort.capacity(task.clients) // devices)
    chunk = options.chunk or equal_chunk(places, clients_that_fit(task, plan))
    return replace(block, spec=replace(block.spec, devices=devices, processes=options.group.count, chunk=chunk))


def feature_bound_of(plan: Plan) -> float | None:
    """The bound on features that a method's step sizes rest on."""
    method = plan.method
    options = method.options if isinstance(method, RecordMethod) else None
    return None if options is None else options.feature_bound


def _with_seed(point: Point, options: Options) -> Point:
    """The point with a seed: its own, the one that its folder began with, or a fresh one."""
    if point.seed is not None:
        return point
    if options.group.count > 1:  # process 0 looks for a seed, or draws it
        bits = options.group.said_by_leader(lambda: str(_with_seed(point, replace(options, group=ALONE)).bits))
        return replace(point, seed=FreshSeed(int(bits)))
    require(options.unfinished is None, "unfinished", str(options.unfinished), "runs that go on there need a seed")
    begun = point.folder is not None and options.resume is not False and (point.folder / LEDGER).exists()
    if begun and point.folder is not None:
        require_same_config(point.folder, point.config)  # a file that gives no seed any more is another file
        return replace(point, seed=FreshSeed.read(point.folder, "resume"))
    return replace(point, seed=FreshSeed.draw())
