"""Runs put together into programs: a grid of learning rates, bounds, noise and seeds is one `vmap`.

Runs whose methods differ in numbers only share a program; those that differ in structure (model, local steps, kind of
noise, cohort, rounds) get one each. A key depends on the seed alone: runs of one seed draw one cohort, read its records
once and draw one vector of standard noise, which each of them scales. So in a program the seeds are the outermost axis,
then clients, then the runs of a seed. A block of one run is compiled without any of these axes.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sordino.keys import key_of
from sordino.planning import Plan, ResolvedPlan, Rules
from sordino.rounds.engine import ProgramSpec, RoundInfo, RoundState, run_round, run_rounds
from sordino.rounds.mesh import everywhere, here
from sordino.runs.identity import digest_of, identity_of_program, without_addresses
from sordino.runs.owned import owned, shapes_of_records
from sordino.runs.point import Point
from sordino.runs.setup import (
    clients_that_fit,
    equal_chunk,
    initial_state,
    memory_budget,
    places_of_a_device,
    spec_of,
)
from sordino.runs.streaming import Stream
from sordino.summation import RunningSum
from sordino.tasks import Measure, Records, Task
from sordino.types import Key, PyTree

# Points of one seed: together they take about half the time, and a kill loses less. Seeds share no records, and
# together they are up to fourteen times slower on a CPU.
ON_A_CPU = 8
MOST = 256  # points of a block: each of them may hold two files open


class Earlier(NamedTuple):
    """Rounds of a segment that were run before, where it is run in parts."""

    first: jax.Array  # of the segment
    total: RunningSum  # of their diagnostics


@dataclass(frozen=True)
class Block:
    """Points that run at once: every one of `members` with every one of `seeds`."""

    spec: ProgramSpec
    rounds: int
    members: tuple[int, ...]  # one point for each set of numbers
    seeds: tuple[int, ...]
    points: tuple[int, ...]  # len(seeds) x len(members), in that order; one that fills up a block stands there twice

    @property
    def numbers(self) -> tuple[int, ...]:
        """Every point once."""
        return tuple(dict.fromkeys(self.points))


class Program:
    """The compiled program of a block."""

    def __init__(self, block: Block, points: Sequence[Point], task: Task) -> None:
        self._task, self._spec = task, block.spec
        members = [points[number] for number in block.members]
        rules = [rules_of(member.answer, block.spec) for member in members]
        keys = [key_of(seed) for seed in block.seeds]
        self.rules: Rules = _stacked(rules) if block.spec.stacked else rules[0]
        self.keys: Key = jnp.stack(keys) if block.spec.stacked else keys[0]
        self._given = everywhere((self.rules, self.keys), block.spec.devices)
        self._stream = self._streamed(block)
        self._records: Records | None = None
        self._zero: RunningSum | None = None
        self._settled = repr(([member.plan for member in members], block.seeds, block.rounds))

    def _streamed(self, block: Block) -> Stream | None:
        """What reads the records, where they lie on the disk."""
        folder = self._task.data.folder
        if folder is None:
            return None
        (key,) = self.keys if block.spec.stacked else [self.keys]  # blocks are made of one seed then
        return Stream(folder, block.spec, key, block.rounds)

    def close(self) -> None:
        """Read no more records."""
        if self._stream is not None:
            self._stream.close()

    def initial(self) -> RoundState:
        """States before the first round. In a stack a client holds the states of all its runs."""

        def one(rules: Rules, key: Key) -> RoundState:
            return initial_state(rules.method, self._task, key)

        if not self._spec.stacked:
            return one(self.rules, self.keys)
        of_members = jax.vmap(one, in_axes=(0, None), out_axes=RoundState(0, 1))
        return jax.vmap(of_members, in_axes=(None, 0))(self.rules, self.keys)

    def advance(self, state: RoundState, start: int, stop: int) -> tuple[RoundState, RoundInfo]:
        """Start rounds [start, stop) of all points; `fetched` waits for their diagnostics."""
        rules, keys = self._given
        state, spec = everywhere(state, self._spec.devices), self._spec
        if spec.transcript:
            parts, first = [], start
            while first < stop:
                records, last = self._records_from(first, stop, state)
                state, part = run_rounds(rules, records, state, keys, jnp.int32(first), spec=spec, rounds=last - first)
                parts.append(part)
                first = last
            each = parts[0] if len(parts) == 1 else jax.tree.map(lambda *part: jnp.concatenate(part), *parts)
            info = _means(RunningSum.of_each(_numbers_of(each)).value(), stop - start)
            return state, info._replace(transcript=jax.tree.map(np.asarray, each.transcript))
        first, earlier = start, None
        while True:
            records, last = self._records_from(first, stop, state)
            given = (rules, records, state, keys, np.int32(first), np.int32(last))
            if self._stream is not None and earlier is None:
                earlier = Earlier(everywhere(jnp.int32(start), self._spec.devices), self._no_sums(given))
            state, info, earlier = advance(*given, earlier, spec=spec)
            first = last
            if first == stop:
                return state, info

    def _records_from(self, first: int, stop: int, state: RoundState) -> tuple[Records, int]:
        """(records, first round without them) of the rounds from `first` on, up to `stop`."""
        if self._stream is not None:
            return self._stream.at(first, stop, state)
        if self._records is None:
            self._records = self._placed()
        return self._records, stop

    def _placed(self) -> Records:
        """The records where the rounds run; of several processes, each keeps those of its own clients alone."""
        if self._spec.processes == 1:
            return everywhere(self._task.records, self._spec.devices)
        records = owned(self._task, self._spec.devices)
        self._task.forget_records()
        return records

    def _no_sums(self, given: PyTree) -> RunningSum:
        """Sums of diagnostics before any round."""
        if self._zero is None:
            shapes = jax.eval_shape(functools.partial(advance, spec=self._spec), *given)[1]
            zero = RunningSum.of(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes))
            self._zero = everywhere(zero, self._spec.devices)
        return self._zero

    def fetched(self, info: RoundInfo) -> RoundInfo:
        """Diagnostics on the host, with the points as first axis, but for a transcript."""
        axes = 2 if self._spec.stacked else 0
        flat = jax.tree.map(
            lambda leaf: np.asarray(leaf).reshape(-1, *leaf.shape[axes:]), info._replace(transcript=None)
        )
        return flat._replace(transcript=info.transcript)

    def models(self, state: RoundState) -> jax.Array:
        """The models of all points as flat vectors, a row each."""
        server = here(state.server)
        if not self._spec.stacked:
            return _params(self.rules, server)[None]
        w = jax.vmap(jax.vmap(_params), in_axes=(None, 0))(self.rules, server)
        return w.reshape(-1, w.shape[-1])

    def measure(self, models: jax.Array) -> list[dict[str, float]]:
        """What the task measures, for each point."""
        if len(models) == 1:
            return [self._task.evaluate(models[0])]
        measured = _measure_each(models, *self._task.test, measure=self._task.measure)
        table = {name: np.asarray(values) for name, values in measured.items()}
        return [{name: float(values[place]) for name, values in table.items()} for place in range(len(models))]

    def training_losses(self, models: jax.Array) -> np.ndarray:
        """The mean loss over the records of all clients, for each point."""
        records = self._task.records
        measured = _measure_each(models, records.x, records.y, measure=self._task.measure)
        return np.asarray(measured["test_loss"])

    def identity(self, of_task: bytes, state: RoundState) -> bytes:
        """All that decides how the block ends: two blocks with the same identity end alike, to the last bit."""
        order = repr((self._spec.chunk, self._spec.devices, self._spec.stacked, self._spec.transcript))
        if self._spec.processes > 1:
            order += f" in {self._spec.processes} processes"
        settled = without_addresses(self._settled)
        # The method itself, edited since or with an optimiser object of other numbers, shows in the traced rounds.
        records = shapes_of_records(self._task) if self._stream is None else self._stream.shapes
        one, given = jnp.int32(1), (self.rules, records, state, self.keys)
        spec = replace(self._spec, devices=1, processes=1)  # their numbers are part of the order
        rounds = jax.make_jaxpr(functools.partial(advance, spec=spec))(*given, one, one)
        return digest_of(
            of_task, settled, order, identity_of_program(rounds), self.rules, self.keys, self.models(state)
        )


def rules_of(resolved: ResolvedPlan, spec: ProgramSpec) -> Rules:
    """What the engine runs; for a transcript every message must exist by itself."""
    return resolved.rules.with_noise_in_client() if spec.transcript else resolved.rules


def _params(rules: Rules, server: PyTree) -> jax.Array:
    return rules.method.params(server)


@functools.partial(jax.jit, static_argnames="spec")
def advance(
    rules: Rules,
    records: Records,
    state: RoundState,
    keys: Key,
    first: jax.Array,
    stop: jax.Array,
    earlier: Earlier | None = None,
    *,
    spec: ProgramSpec,
) -> tuple[RoundState, RoundInfo, Earlier | None]:
    """Rounds [first, stop): states, and means of the diagnostics. With an axis of seeds in a stack, else without.

    With `earlier`, rounds of the segment that were run before, the means are those of all its rounds so far.
    """
    begun = first if earlier is None else earlier.first

    def one_round(state: RoundState, key: Key, k: jax.Array) -> tuple[RoundState, RoundInfo]:
        state, info = run_round(rules, records, state, key, k, spec)
        return state, _numbers_of(info)

    def of_seed(
        state: RoundState, key: Key, before: RunningSum | None
    ) -> tuple[RoundState, RoundInfo, RunningSum | None]:
        def step(k: jax.Array, so_far: tuple[RoundState, RunningSum]) -> tuple[RoundState, RunningSum]:
            state, info = one_round(so_far[0], key, k)
            return state, so_far[1].plus(RunningSum.of(info))

        shapes = jax.eval_shape(lambda: one_round(state, key, first)[1])
        nothing = RunningSum.of(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes))
        so_far = nothing if before is None else before
        # The number of rounds is no part of the program: evaluations may lie closer together at the end.
        state, total = jax.lax.fori_loop(first, stop, step, (state, so_far))
        return state, _means(total.value(), stop - begun), None if before is None else total

    before = None if earlier is None else earlier.total
    if not spec.stacked:
        state, info, total = of_seed(state, keys, before)
    elif keys.shape[0] > 1:
        state, info, total = jax.vmap(of_seed)(state, keys, before)
    else:
        # Without a batch of cohorts the engine can leave out the empty part of a padded one.
        only = of_seed(*jax.tree.map(lambda leaf: leaf[0], (state, keys, before)))
        state, info, total = jax.tree.map(lambda leaf: leaf[None], only)
    return state, info, None if total is None else Earlier(begun, total)


@functools.partial(jax.jit, static_argnames="measure")
def _measure_each(models: jax.Array, x: jax.Array, y: jax.Array, *, measure: Measure) -> dict[str, jax.Array]:
    return jax.vmap(measure, in_axes=(0, None, None))(models, x, y)


def _numbers_of(info: RoundInfo) -> RoundInfo:
    """Diagnostics that can be added up: counts of faults as whole numbers, all else as floats."""
    floats = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), info._replace(transcript=None))
    return floats._replace(dropped=info.dropped, exceeds_limit=info.exceeds_limit)


def _means(total: RoundInfo, rounds: int | jax.Array) -> RoundInfo:
    """Means over the rounds; faults are counted."""
    means = jax.tree.map(lambda leaf: leaf / rounds, total)
    return means._replace(dropped=total.dropped, exceeds_limit=total.exceeds_limit)


def _stacked(trees: Sequence[PyTree]) -> PyTree:
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *trees)


def make_blocks(
    points: Sequence[Point],
    task: Task,
    *,
    chunk: int | None = None,
    at_a_time: int | None = None,
    transcript: bool = False,
) -> list[Block]:
    """Points by program, then seeds that have the same numbers together, then cut so that a block fits."""
    programs: dict[tuple[ProgramSpec, int, Hashable], list[int]] = {}
    for number, point in enumerate(points):
        spec = spec_of(point.plan, point.answer, task, chunk=1, transcript=transcript)
        programs.setdefault((spec, point.plan.rounds, structure_of(point.answer)), []).append(number)
    blocks = []
    for (spec, rounds, _), numbers in programs.items():
        for seeds, table in _tables(points, numbers):
            height, width, clients = _shape(table.shape, points[numbers[0]].plan, task, at_a_time)
            for rows, columns in itertools.product(_pieces(table.shape[0], height), _pieces(table.shape[1], width)):
                part = table[np.ix_(rows, columns)]
                block = Block(
                    spec=replace(spec, chunk=chunk or clients, stacked=part.size > 1),
                    rounds=rounds,
                    members=tuple(part[0].tolist()),
                    seeds=tuple(seeds[row] for row in rows),
                    points=tuple(part.ravel().tolist()),
                )
                blocks.append(block)
    return blocks


def _tables(points: Sequence[Point], numbers: Sequence[int]) -> Iterator[tuple[list[int], np.ndarray]]:
    """Seeds that have the same numbers, and their points as [seed, member]."""
    of_seed: dict[int, list[int]] = {}
    for number in numbers:
        of_seed.setdefault(points[number].bits, []).append(number)
    alike: dict[Hashable, list[int]] = {}
    for seed, members in of_seed.items():
        alike.setdefault(tuple(_leaves(points[number].answer) for number in members), []).append(seed)
    for seeds in alike.values():
        yield seeds, np.array([of_seed[seed] for seed in seeds])


def _shape(shape: tuple[int, ...], plan: Plan, task: Task, at_a_time: int | None) -> tuple[int, int, int]:
    """(seeds, members, clients of each) at a time. Members come first: they share records, which seeds do not."""
    seeds, members = shape
    # Points of one seed draw one cohort; records that lie on the disk are read for one at a time.
    seeds = 1 if task.data.folder is not None else seeds
    places = places_of_a_device(task, plan)
    clients = clients_that_fit(task, plan)
    if at_a_time is None and jax.default_backend() == "cpu":
        width = min(members, ON_A_CPU)
        return 1, width, equal_chunk(places, clients // width)
    kept = jax.eval_shape(lambda: initial_state(plan.method, task, key_of(0)))
    states = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(kept))
    # On an accelerator a point more costs little as long as there is room; chunks make up for what does not fit.
    most = at_a_time or max(1, min(int(4 * memory_budget() / states), 4 * clients // places, MOST))
    width = min(members, most)
    height = min(seeds, max(1, most // width))
    return height, width, equal_chunk(places, clients // (height * width))


def _pieces(length: int, most: int) -> list[list[int]]:
    """0 ... length - 1 in pieces of one size, so that they share a program; the last repeats its end where it must."""
    size = -(-length // -(-length // most))
    return [[min(i, length - 1) for i in range(start, start + size)] for start in range(0, length, size)]


def structure_of(resolved: ResolvedPlan) -> Hashable:
    """What makes a program: the kinds of things, and the shapes of their numbers."""
    leaves, structure = jax.tree.flatten(resolved.rules)
    return structure, tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)


def _leaves(resolved: ResolvedPlan) -> tuple[bytes, ...]:
    """The numbers that a program is given, for comparing."""
    return tuple(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(resolved.rules))
