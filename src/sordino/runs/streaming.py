"""Records that are read from the disk, by cohorts: the host reads those of coming rounds while the device computes.

The program draws its cohorts itself, as with records in memory. The host draws the same ones ahead, from the same keys,
and hands the program a stretch of rounds with the records of the clients that take part in it, and of nobody else.

    stretch j    rounds j R, ..., (j + 1) R - 1
    memory       two stretches: one that is trained on, and the next, which is being read
"""

from __future__ import annotations

import functools
import math
import os
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sordino.data.on_disk import RecordFolder
from sordino.errors import require
from sordino.files import HeldOpen
from sordino.planning.cohort import Cohort, PoissonCohort
from sordino.rounds.engine import COHORT, ProgramSpec, round_key
from sordino.rounds.mesh import dealt, everywhere
from sordino.runs.owned import numbers_of, of_owners
from sordino.tasks import Records
from sordino.types import Key, PyTree

STRETCH = 2**26  # bytes of records that are read at a time, if a round takes no more


MOST = 1000  # rounds of a stretch, unless it holds everybody


class Sizes(NamedTuple):
    """How much a stretch holds."""

    rounds: int | None  # R; None: every round, since it holds everybody's records
    clients: int  # at most
    rows: int  # room for records: more than these are hardly ever drawn


def sizes_of(folder: RecordFolder, cohort: Cohort, rounds: int) -> Sizes:
    """As many rounds as fit into STRETCH bytes, and one at least."""
    population, row = len(folder.size), sum(folder.row_bytes)
    if int(folder.size.sum()) * row <= STRETCH:  # everybody's records: they are read once
        return Sizes(None, population, int(folder.size.sum()))
    capacity = cohort.capacity(population)
    a_round = _rows(folder.size, capacity) * row
    at_a_time = max(1, min(rounds, MOST, STRETCH // a_round))
    clients = min(population, at_a_time * capacity)
    return Sizes(at_a_time, clients, _rows(folder.size, clients))


def _rows(size: NDArray[np.int64], clients: int) -> int:
    """Records of so many clients: ten deviations above the mean, and never more than those of the largest."""
    spread = float(size.mean()) * clients + 10 * float(size.std()) * math.sqrt(clients) + int(size.max())
    if spread < clients * int(size.max()):
        largest = np.partition(size, len(size) - clients)[len(size) - clients :]
        return min(math.ceil(spread), int(largest.sum()))
    return min(clients * int(size.max()), int(size.sum()))


class Stream(HeldOpen):
    """The records of a block's rounds."""

    def __init__(self, folder: RecordFolder, spec: ProgramSpec, key: Key, rounds: int) -> None:
        self._folder, self._spec, self._key, self._rounds = folder, spec, key, rounds
        self._sizes = sizes_of(folder, spec.cohort, rounds)
        _require_room(folder, self._sizes, spec.cohort)
        self._rows = self._sizes.rows
        self._number = -1
        self._records: Records | None = None
        self._coming: tuple[int, Future[Records]] | None = None
        with ExitStack() as held:
            self._reader = held.enter_context(folder.open())
            self._thread = held.enter_context(ThreadPoolExecutor(1, "sordino-records"))
            held.callback(self._forget)
            self._resources = held.pop_all()

    @property
    def shapes(self) -> Records:
        """Records of a stretch as a program sees them, without reading any."""
        (x_type, y_type), clients = self._folder.types, self._sizes.clients
        numbers = jax.ShapeDtypeStruct((clients,), jnp.int32)
        x = jax.ShapeDtypeStruct((self._sizes.rows, *self._folder.shape), x_type)
        return Records(x, jax.ShapeDtypeStruct((self._sizes.rows,), y_type), numbers, numbers, numbers)  # type: ignore[arg-type]

    def at(self, k: int, stop: int, before: PyTree) -> tuple[Records, int]:
        """(records, first round without them) of the rounds from k on, up to `stop`; the next stretch is read ahead.

        `before` is what the rounds before k compute: no third stretch is read until it is there.
        """
        each = self._sizes.rounds
        number = 0 if each is None else k // each
        if number != self._number or self._records is None:
            coming = self._coming if self._coming is not None and self._coming[0] == number else self._read(number)
            self._records, self._number = None, number  # the last stretch makes room
            self._records = coming[1].result()
            jax.block_until_ready(before)
            # Its cohorts come before the rounds of this stretch: an accelerator computes one thing after another.
            last = each is None or number == (self._rounds - 1) // each
            self._coming = None if last else self._read(number + 1)
        return self._records, stop if each is None else min(stop, (number + 1) * each)

    def _read(self, number: int) -> tuple[int, Future[Records]]:
        """Begin to read a stretch."""
        spec, each = self._spec, self._sizes.rounds
        if each is None:
            return number, self._thread.submit(self._of, np.arange(spec.population))
        rounds = jnp.arange(number * each, (number + 1) * each)
        ids, present = _cohorts(self._key, rounds, cohort=spec.cohort, population=spec.population)
        left = self._rounds - number * each
        return number, self._thread.submit(self._of_cohorts, ids, present, left if left > 0 else each)

    def _of_cohorts(self, client_ids: jax.Array, present: jax.Array, rounds: int) -> Records:
        """The records of all who take part in the first `rounds` of these rounds."""
        ids = np.asarray(client_ids)[:rounds]
        if isinstance(self._spec.cohort, PoissonCohort):  # whose list is longer than any round; drawn in whole numbers
            ids = ids[np.asarray(present)[:rounds]]
        return self._of(np.unique(ids))

    def _of(self, clients: NDArray[np.integer[Any]]) -> Records:
        """The records of these clients, where the program runs: of several processes, each reads its own clients'."""
        devices = self._spec.devices
        if self._spec.processes == 1:
            held = self._read_of(clients, self._rows, self._sizes.clients)
            return Records(*(jax.device_put(held) if devices == 1 else everywhere(held, devices)))
        whole = self._sizes.rounds is None  # with everybody's records the room for those of a device is known
        rows = 0 if whole else self._rows
        rows = max(rows, *(int(self._folder.size[own].sum()) for own in of_owners(clients, devices)))
        room = -(-self._spec.population // devices)

        def of_device(place: int) -> Records:
            own = of_owners(clients, devices)[place]
            held = self._read_of(own, rows, room if whole else min(room, self._sizes.clients))
            return Records(*held)  # type: ignore[arg-type]  # on the host until they are dealt

        return dealt(of_device, devices)

    def _read_of(self, clients: NDArray[np.integer[Any]], rows: int, room: int) -> tuple[NDArray[Any], ...]:
        """x, y, start, size and client of these clients."""
        size = self._folder.size[clients]
        rows = max(rows, int(size.sum()))
        x_type, y_type = self._folder.types
        x, y = np.zeros((rows, *self._folder.shape), x_type), np.zeros(rows, y_type)
        if len(clients):  # a cohort may be empty, and more often a device's part of it
            self._reader.read(clients, x, y)
        return x, y, *numbers_of(clients, size, room, self._spec.population)

    def _forget(self) -> None:
        """Nobody waits for what is still to be read."""
        if self._coming is not None:
            self._coming[1].cancel()


@functools.partial(jax.jit, static_argnames=("cohort", "population"))
def _cohorts(key: Key, rounds: jax.Array, *, cohort: Cohort, population: int) -> tuple[jax.Array, jax.Array]:
    """Client numbers and masks of these rounds, as the engine draws them."""
    return jax.vmap(lambda k: cohort.draw(round_key(key, k, COHORT), population))(rounds)


def _require_room(folder: RecordFolder, sizes: Sizes, cohort: Cohort) -> None:
    """Refuse rounds whose records do not fit into memory."""
    needed = 3 * sizes.rows * sum(folder.row_bytes)  # one that is trained on, and one that is read and handed on
    there = _memory()
    remedy = (
        f"the records of its clients take {needed / 2**30:.1f} GiB of memory, of {there / 2**30:.1f}: "
        "draw fewer at a time, fixed:K or poisson:Q"
    )
    require(needed < there, "cohort", str(cohort), remedy)


def _memory() -> float:
    """Bytes of this machine's memory; unlimited where the system does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # not on Windows
        return math.inf
