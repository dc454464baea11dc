"""Processes that run one plan together, on one machine or on several: `jax.distributed`, with gloo between CPUs.

Every process runs the same host code on the same numbers, and computes the rounds of its own clients. What a clock, a
file or the operating system decides is decided by process 0 and told to the others. Before the first round all of them
compare digests of records, test set, plan and program: processes that would not compute the same sums do not begin.

Small things are said through the service of process 0 that connects them. There a process that ends with an error says
so, and nobody waits for it. A process that dies without a word is missed by that service, which then ends the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, Self

import jax
import numpy as np
from jax.sharding import NamedSharding

from sordino.errors import InvalidInput, one_line, require
from sordino.rounds.mesh import EVERYWHERE, dealt, here, mesh_of
from sordino.types import PyTree

PATIENCE = 300  # seconds until all processes must have begun
HEARTBEAT = 20  # seconds without a sign of life
FAREWELL = 20  # seconds between the ends of two processes
NOTICE = 2.0  # seconds that process 0 stays after an error, at most
_ENDED = "sordino/ended/"


class ProcessLost(RuntimeError):
    """Another process has ended, or cannot be reached."""


@dataclass(eq=False)
class Group:
    """This process among those of its run."""

    index: int = 0
    count: int = 1
    _said: int = field(default=0, repr=False)  # exchanges so far, the same number in every process

    @property
    def leader(self) -> bool:
        """Whether this process writes the folder and prints."""
        return self.index == 0

    @classmethod
    def join(cls, coordinator: str, index: int, count: int, *, patience: int = PATIENCE) -> Self:
        """Find the others. The coordinator is process 0's HOST:PORT; before anything is computed."""
        port = coordinator.rpartition(":")[2]
        here_only = coordinator.startswith(("127.0.0.1:", "localhost:"))
        _leave_signals_alone()
        try:
            jax.distributed.initialize(
                coordinator,
                count,
                index,
                initialization_timeout=patience,
                heartbeat_timeout_seconds=HEARTBEAT,
                shutdown_timeout_seconds=FAREWELL,
                coordinator_bind_address=f"{'127.0.0.1' if here_only else '[::]'}:{port}",
            )
        except RuntimeError as error:
            remedy = (
                f"process {index} did not meet the others ({_first_line(error)}): "
                f"start the same command {count} times, with --process-id 0 to {count - 1}; this is process 0's address"
            )
            raise InvalidInput("coordinator", coordinator, remedy) from None
        backend = jax.default_backend()
        remedy = "several processes train on CPUs alone: set JAX_PLATFORMS=cpu, or run in one process"
        require(backend == "cpu", "platform", backend, remedy)
        return cls(index, count)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        """Part from the others, or tell them that this process goes."""
        if self.count == 1:
            return
        if error is None:
            self.all_say("done")
            jax.distributed.shutdown()
            return
        try:
            _service().key_value_set(f"{_ENDED}{self.index}", type(error).__name__)
            until = time.monotonic() + (NOTICE if self.leader else 0)
            while time.monotonic() < until and len(_service().key_value_dir_get(_ENDED)) < self.count:
                time.sleep(0.02)  # the others read from this process what was said last, and why it goes
        except jax.errors.JaxRuntimeError:
            return

    def said_by_leader(self, decide: Callable[[], str]) -> str:
        """What process 0 decides, in every process."""
        if self.count == 1:
            return decide()
        self._said += 1
        place = f"sordino/{self._said}"
        if not self.leader:
            return self._awaited(place)
        value = decide()
        _service().key_value_set(place, value)
        return value

    def all_say(self, value: str) -> list[str]:
        """What each process says, in every process."""
        if self.count == 1:
            return [value]
        self._said += 1
        _service().key_value_set(f"sordino/{self._said}/{self.index}", value)
        return [self._awaited(f"sordino/{self._said}/{index}") for index in range(self.count)]

    def require_same(self, what: str, value: str, otherwise: str) -> None:
        """Refuse a run whose processes do not agree with process 0."""
        said = self.all_say(value)
        others = [str(index) for index, each in enumerate(said) if each != said[0]]
        if others:
            who = f"process {', '.join(others)}" if len(others) == 1 else f"processes {', '.join(others)}"
            remedy = f"is not that of process 0 ({otherwise}): give every process the same files and versions"
            raise InvalidInput(what, who, remedy)

    def given_by_leader(self, tree: PyTree) -> PyTree:
        """The arrays of process 0, to the last bit, in every process; all give arrays of the same shapes."""
        return jax.tree.map(lambda leaf: _of_leader(np.asarray(leaf)), tree)

    def _awaited(self, place: str) -> str:
        """What another process says, unless one has ended."""
        service = _service()
        while True:
            try:
                return service.blocking_key_value_get(place, 500)
            except jax.errors.JaxRuntimeError as error:
                if "DEADLINE_EXCEEDED" not in str(error):
                    raise ProcessLost(_first_line(error)) from None
            ended = [name for name, why in service.key_value_dir_get(_ENDED) if why != ProcessLost.__name__]
            if ended:
                raise ProcessLost(f"process {ended[0].rpartition('/')[2]} ended with an error")


ALONE = Group()


def _leave_signals_alone() -> None:
    """JAX would take SIGTERM for a note that the machine goes soon, and the process would go on."""
    try:
        jax.config.update("jax_enable_preemption_service", False)
    except AttributeError:  # versions of JAX without the setting
        return


class _Store(Protocol):
    """Names and values that all processes share."""

    def key_value_set(self, key: str, value: str) -> None: ...

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str: ...

    def key_value_dir_get(self, key: str) -> list[tuple[str, str]]: ...


def _service() -> _Store:
    """JAX's store of names and values: it has no public name, and has had this one for years."""
    from jax._src import distributed

    service: _Store | None = distributed.global_state.client
    assert service is not None, "this process has joined the others"
    return service


def _of_leader(leaf: np.ndarray) -> jax.Array:
    """Bytes are added up, and all but process 0 add zeros: floats would lose the sign of a zero."""
    devices = jax.device_count()
    mesh = mesh_of(devices)
    given = np.ascontiguousarray(leaf).reshape(-1).view(np.uint8)
    source = next(place for place, device in enumerate(mesh.devices.flat) if device.process_index == 0)
    rows = dealt(lambda place: (given if place == source else np.zeros_like(given))[None], devices)
    everywhere = NamedSharding(mesh, EVERYWHERE)
    total = jax.jit(lambda rows: rows.sum(axis=0, dtype=np.uint8), out_shardings=everywhere)(rows)
    return jax.numpy.asarray(np.asarray(here(total)).view(leaf.dtype).reshape(leaf.shape))


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return one_line(lines[0]) if lines else type(error).__name__
