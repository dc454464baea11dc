"""Many runs as one program: a grid of learning rates, bounds, noise and seeds is one `vmap`.

Runs whose methods differ in numbers only share a program; those that differ in structure (model, local steps, kind of
noise, cohort, rounds) get one each. A key depends on the seed alone: runs of one seed draw one cohort, read its records
once and draw one vector of standard noise, which each of them scales. So in a program the seeds are the outermost axis,
then clients, then the runs of a seed. Every run is what `simulate` would have made of it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sordino.errors import require
from sordino.planning import Plan, ResolvedPlan, Rules
from sordino.rounds.engine import ProgramSpec, RoundInfo, RoundState, run_round
from sordino.simulation.checkpoint import Bookmark
from sordino.simulation.running import (
    Run,
    digest_of,
    environment,
    equal_chunk,
    initial_carry,
    memory_of_a_client,
    metrics_row,
    require_bounded,
    require_seed,
    room,
    segments,
    setting_of,
    spent,
    usual_interval,
)
from sordino.tasks import Measure, Records, Task
from sordino.types import Key

__all__ = ["OutOfTime", "Point", "SweepProgress", "run_block", "sweep"]

SweepProgress = Callable[[float], None]  # the share of all rounds of all points that is done
# Points of one seed: together they take about half the time, and what is under way is lost if a sweep is killed soon.
# Seeds share no records, and together they are up to fourteen times slower there.
ON_A_CPU = 8
BOOKMARK_EVERY = 30.0  # seconds


class Point(NamedTuple):
    """One run of a sweep."""

    plan: Plan
    seed: int


@dataclass(frozen=True)
class Block:
    """Points that run at once: every one of `members` with every one of `seeds`."""

    setting: ProgramSpec
    rounds: int
    members: tuple[int, ...]  # one point for each set of numbers
    seeds: tuple[int, ...]
    points: tuple[int, ...]  # len(seeds) x len(members), in that order


class OutOfTime(Exception):
    """A sweep was stopped by its deadline; the same call goes on from its folder of unfinished blocks."""


class _Keep(NamedTuple):
    """Where states of blocks are kept, and what is known of a block before it is looked at."""

    folder: Path
    known: bytes  # the digest of versions, device and records
    out_of_time: Callable[[], bool]
    bookmark_every: float  # seconds


def sweep(
    points: Sequence[Point],
    task: Task,
    *,
    evaluate_every: int | None = None,
    chunk: int | None = None,
    at_a_time: int | None = None,
    iterates: bool = False,
    skip: Container[int] = (),
    unfinished: Path | None = None,
    deadline: float | None = None,
    progress: SweepProgress | None = None,
    finished: Callable[[int, Run], None] | None = None,
) -> list[Run]:
    """Run every point on a task, as few programs and as many at a time as fit.

    Args:
      points: plans with their seeds; `so.plan` makes a plan.
      task: from `so.task`.
      evaluate_every: rounds between evaluations, as in `simulate`.
      chunk: clients of one point that are trained at a time; chosen from the memory, if left out.
      at_a_time: points that run at once; chosen from the memory, if left out.
      iterates: keep the model, as a flat vector, of every evaluation.
      skip: numbers of points that need not run. Others run with whom they would without it, where none of them skips.
      unfinished: a folder for what takes longer than half a minute: a call with the same points that was killed goes
        on from there. Delete it when the runs are safe. Without effect where `iterates` are kept.
      deadline: by `time.monotonic`: the first evaluation after it is the last, every state is kept in `unfinished`, and
        OutOfTime is raised; `finished` has seen what is complete. However soon it is, one evaluation more is done.
      progress: called with the share of the work that is done.
      finished: called with the number of a point and its run, as soon as it is there.

    Returns the runs in the order of the points, without skipped ones. One that diverged is a run too: see
    `Run.diverged`.
    """
    require(chunk is None or chunk >= 1, "chunk", chunk, "must be at least 1")
    require(at_a_time is None or at_a_time >= 1, "at_a_time", at_a_time, "must be at least 1")
    require(evaluate_every is None or evaluate_every >= 1, "evaluate_every", evaluate_every, "must be at least 1")
    for point in points:
        require_seed(point.seed)
    resolved = [point.plan.resolve(task.population) for point in points]
    blocks = make_blocks(points, resolved, range(len(points)), task, chunk, at_a_time)
    whole = [block for block in blocks if not any(number in skip for number in block.points)]
    in_whole = {number for block in whole for number in block.points}
    rest = [number for number in range(len(points)) if number not in skip and number not in in_whole]
    blocks = whole + make_blocks(points, resolved, rest, task, chunk, at_a_time)
    advanced = False

    def out_of_time() -> bool:
        return advanced and deadline is not None and time.monotonic() > deadline

    keep = None
    if unfinished is not None and not iterates:
        made_by = {name: value for name, value in environment().items() if name != "date"}
        known = digest_of(repr(made_by), task.records, task.test)
        keep = _Keep(unfinished, known, out_of_time, BOOKMARK_EVERY if deadline is None else 0.0)
    require(
        deadline is None or keep is not None, "deadline", deadline, "needs a folder `unfinished`, and no `iterates`"
    )
    work, done = sum(block.rounds * len(block.points) for block in blocks), 0
    runs: dict[int, Run] = {}
    for block in blocks:
        if out_of_time():
            raise OutOfTime

        def advance(rounds: int, block: Block = block, done: int = done) -> None:
            nonlocal advanced
            advanced = True
            if progress is not None:
                progress((done + rounds * len(block.points)) / work)

        for number, run in _run_one_block(block, points, resolved, task, evaluate_every, iterates, keep, advance):
            if number not in runs and finished is not None:
                finished(number, run)
            runs[number] = run
        done += block.rounds * len(block.points)
    return [runs[number] for number in range(len(points)) if number not in skip]


def make_blocks(
    points: Sequence[Point],
    resolved: Sequence[ResolvedPlan],
    chosen: Sequence[int],
    task: Task,
    chunk: int | None,
    at_a_time: int | None,
) -> list[Block]:
    """Chosen points by program, then seeds that have the same numbers together, then cut so that a block fits."""
    programs: dict[Any, list[int]] = {}
    for number in chosen:
        plan, answer = points[number].plan, resolved[number]
        setting = setting_of(plan, answer, task, chunk=1)
        programs.setdefault((setting, plan.rounds, _structure(answer)), []).append(number)
    blocks = []
    for (setting, rounds, _), numbers in programs.items():
        of_seed: dict[int, list[int]] = {}
        for number in numbers:
            of_seed.setdefault(points[number].seed, []).append(number)
        alike: dict[Any, list[int]] = {}
        for seed, members in of_seed.items():
            alike.setdefault(tuple(_numbers(resolved[number]) for number in members), []).append(seed)
        for seeds in alike.values():
            table = np.array([of_seed[seed] for seed in seeds])  # [seed, member] -> point
            height, width, clients = _shape(table.shape, points[numbers[0]].plan, task, at_a_time)
            for rows in _pieces(table.shape[0], height):
                for columns in _pieces(table.shape[1], width):
                    part = table[np.ix_(rows, columns)]
                    some = tuple(seeds[row] for row in rows)
                    blocks.append(
                        Block(
                            replace(setting, chunk=chunk or clients, stacked=True),
                            rounds,
                            tuple(part[0].tolist()),
                            some,
                            tuple(part.ravel().tolist()),
                        )
                    )
    return blocks


def _shape(shape: tuple[int, ...], plan: Plan, task: Task, at_a_time: int | None) -> tuple[int, int, int]:
    """(seeds, members, clients of each) at a time. Members come first: they share records, which seeds do not."""
    seeds, members = shape
    places = -(-plan.cohort.capacity(task.clients) // jax.local_device_count())  # of one device
    clients = max(1, int(room() / memory_of_a_client(task, plan)))
    if at_a_time is None and jax.default_backend() == "cpu":
        width = min(members, ON_A_CPU)
        return 1, width, equal_chunk(places, clients // width)
    kept = jax.eval_shape(lambda: initial_carry(plan.method, task, jax.random.key(0)))
    states = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(kept))
    # On an accelerator a point more costs little as long as there is room; chunks make up for what does not fit.
    most = at_a_time or max(1, min(int(4 * room() / states), 4 * clients // places))
    width = min(members, most)
    height = min(seeds, max(1, most // width))
    return height, width, equal_chunk(places, clients // (height * width))


def _pieces(length: int, most: int) -> list[list[int]]:
    """0 ... length - 1 in pieces of one size, so that they share a program; the last repeats its end where it must."""
    size = -(-length // -(-length // most))
    return [[min(i, length - 1) for i in range(start, start + size)] for start in range(0, length, size)]


def _structure(resolved: ResolvedPlan) -> Any:
    """What makes a program: the kinds of things, and the shapes of their numbers."""
    leaves, structure = jax.tree.flatten(resolved.rules)
    return structure, tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)


def _numbers(resolved: ResolvedPlan) -> tuple[bytes, ...]:
    """What a program is given, for comparing."""
    return tuple(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(resolved.rules))


@functools.partial(jax.jit, static_argnames=("setting", "measure"))
def run_block(
    rules: Rules,
    records: Records,
    test: tuple[jax.Array, jax.Array],
    carries: RoundState,
    keys: Key,
    first: jax.Array,
    stop: jax.Array,
    *,
    setting: ProgramSpec,
    measure: Measure,
) -> tuple[RoundState, RoundInfo, dict[str, jax.Array]]:
    """Rounds [first, stop) of every seed and member: states, means of the diagnostics, and measures."""

    def one_seed(carry: RoundState, key: Key) -> Any:
        def round_and_sum(k: jax.Array, so_far: tuple[RoundState, RoundInfo]) -> tuple[RoundState, RoundInfo]:
            carry, info = run_round(rules, records, so_far[0], key, k, setting)
            return carry, jax.tree.map(lambda total, new: total + new, so_far[1], info)

        shapes = jax.eval_shape(lambda: run_round(rules, records, carry, key, first, setting)[1])
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        # The number of rounds is not part of the program: evaluations may lie closer together at the end.
        carry, total = jax.lax.fori_loop(first, stop, round_and_sum, (carry, nothing))
        means = jax.tree.map(lambda leaf: leaf / (stop - first), total)
        means = means._replace(dropped=total.dropped, exceeds_limit=total.exceeds_limit)
        return carry, means, jax.vmap(measure, in_axes=(0, None, None))(_params(rules, carry.server), *test)

    if keys.shape[0] > 1:
        return jax.vmap(one_seed)(carries, keys)
    # Without a batch of cohorts the engine can leave out the empty part of a padded one.
    only = one_seed(jax.tree.map(lambda leaf: leaf[0], carries), keys[0])
    return jax.tree.map(lambda leaf: leaf[None], only)


def _params(algorithms: Any, servers: Any) -> jax.Array:
    """The models of all members."""
    return jax.vmap(lambda rules, server: rules.method.params(server))(algorithms, servers)


def _run_one_block(
    block: Block,
    points: Sequence[Point],
    resolved: Sequence[ResolvedPlan],
    task: Task,
    evaluate_every: int | None,
    iterates: bool,
    keep: _Keep | None,
    advance: Callable[[int], None],
) -> list[tuple[int, Run]]:
    started = time.perf_counter()
    answers = [resolved[number] for number in block.members]
    algorithms = _stacked([answer.rules for answer in answers])
    keys = jnp.stack([jax.random.key(seed) for seed in block.seeds])
    given = (algorithms, task.records, task.test)
    static = {"setting": block.setting, "measure": task.measure}
    first, carries = 0, _initial(algorithms, keys, task)
    histories: list[list[dict[str, Any]]] = [[] for _ in block.points]
    every = evaluate_every or usual_interval(block.rounds)
    bookmark = None
    if keep is not None:
        bookmark = _bookmark(block, answers, given, carries, keys, static, every, keep)
        stops = [stop for _, stop in segments(0, block.rounds, every)]
        first, carries, histories = bookmark.load(carries, len(block.points), stops)
        for number, history in zip(block.points, histories, strict=True):
            for row in history:  # what is promised follows from the plan, not from a file
                row |= spent(row["round"], points[number].plan, resolved[number])
    models: list[np.ndarray] = []  # [evaluation][point, d]
    for start, stop in segments(first, block.rounds, every):
        if keep is not None and bookmark is not None and keep.out_of_time():
            bookmark.save(start, carries, histories, last=True)
            raise OutOfTime
        carries, info, measured = run_block(*given, carries, keys, jnp.int32(start), jnp.int32(stop), **static)
        rows = _rows(len(block.points), info, measured)
        for number, history, (here, values) in zip(block.points, histories, rows, strict=True):
            require_bounded(resolved[number].method, here, start, stop)
            history.append(metrics_row(stop, values, here, points[number].plan, resolved[number]))
        if iterates:
            models.append(_models(algorithms, carries))
        if bookmark is not None:
            over = stop == block.rounds
            bookmark.save(stop, _without_memories(carries) if over else carries, histories, last=over)
        advance(stop)
    last = _models(algorithms, carries)
    seconds = (time.perf_counter() - started if bookmark is None else bookmark.elapsed) / len(block.points)
    runs = []
    for place, number in enumerate(block.points):
        params = task.params(jnp.asarray(last[place]))
        kept = np.stack([model[place] for model in models]) if iterates else None
        run = Run(params, histories[place], resolved[number].certificate, seconds, iterates=kept)
        runs.append((number, run))
    return runs


def _bookmark(
    block: Block,
    answers: Sequence[ResolvedPlan],
    given: tuple[Any, ...],
    carries: RoundState,
    keys: Key,
    static: dict[str, Any],
    every: int,
    keep: _Keep,
) -> Bookmark:
    """Where the block's state is kept: found again by the same program with the same numbers, and by no other."""
    rounds = jnp.int32([0, block.rounds, every])
    program = run_block.lower(*given, carries, keys, rounds[0], rounds[1], **static).as_text()
    noise = repr([dict(answer.summary) for answer in answers])
    numbers = (given[0], carries, jax.random.key_data(keys), rounds)
    return Bookmark(keep.folder, digest_of(keep.known, program, noise, numbers), seconds=keep.bookmark_every)


def _rows(points: int, info: RoundInfo, measured: dict[str, jax.Array]) -> Iterator[tuple[RoundInfo, dict[str, float]]]:
    """Diagnostics and measures of each point, from arrays of [seed, member]."""
    flat = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(points, *leaf.shape[2:]), (info, measured))
    for place in range(points):
        here, values = jax.tree.map(lambda leaf, place=place: leaf[place], flat)
        yield here, {name: float(value) for name, value in values.items()}


def _without_memories(carries: RoundState) -> RoundState:
    """Nobody asks what clients keep after the last round, and it may be most of a file: zeros in its place."""
    return carries._replace(clients=jax.tree.map(jnp.zeros_like, carries.clients))


def _models(algorithms: Any, carries: RoundState) -> np.ndarray:
    """The models of all points of a block, a row each."""
    w = jax.vmap(_params, in_axes=(None, 0))(algorithms, carries.server)
    return np.asarray(w).reshape(-1, w.shape[-1])


def _initial(algorithms: Any, keys: Key, task: Task) -> RoundState:
    """States before the first round; seeds begin at different models. A client holds the states of all its runs."""
    over_members = jax.vmap(
        lambda rules, key: initial_carry(rules.method, task, key), in_axes=(0, None), out_axes=RoundState(0, 1)
    )
    return jax.vmap(over_members, in_axes=(None, 0))(algorithms, keys)


def _stacked(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *trees)
