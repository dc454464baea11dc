"""The records of a run of several processes: each device holds those of its own clients, and of nobody else.

client c                belongs to device c mod G of all G devices
x, y of a device        its clients' records, one client's after another's, filled up to the length of the longest
start, size, client     where each client's records lie there, and the clients' numbers, ascending
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from sordino.rounds.mesh import dealt
from sordino.tasks import Records, Task
from sordino.tasks.task import as_on_device


def of_owners(clients: NDArray[np.integer[Any]], devices: int) -> list[NDArray[np.integer[Any]]]:
    """These clients by the devices that they belong to."""
    return [clients[clients % devices == place] for place in range(devices)]


def owned(task: Task, devices: int) -> Records:
    """The records of all clients, each on the device of its client; this process copies those of its own devices."""
    data, population = task.data, task.clients
    clients_of = of_owners(np.arange(population), devices)
    start, size = (np.asarray(part, np.int64) for part in (data.start, data.size))
    rows = max(int(size[clients].sum()) for clients in clients_of)
    room = -(-population // devices)

    def of_device(place: int) -> Records:
        clients = clients_of[place]
        lengths = size[clients]
        first = np.cumsum(lengths) - lengths
        index = np.repeat(start[clients] - first, lengths) + np.arange(int(lengths.sum()))
        x, y = (filled(as_on_device(np.asarray(part)[index]), rows) for part in (data.x, data.y))
        return Records(x, y, *numbers_of(clients, lengths, room, population))  # type: ignore[arg-type]

    return dealt(of_device, devices)


def numbers_of(
    clients: NDArray[np.integer[Any]], size: NDArray[np.integer[Any]], room: int, population: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """start, size and client of records that lie one after another, with room for so many clients."""
    left = room - len(clients)
    start, count = (np.cumsum(size) - size).astype(np.int32), size.astype(np.int32)
    numbers = np.pad(clients.astype(np.int32), (0, left), constant_values=population)
    return np.pad(start, (0, left)), np.pad(count, (0, left), constant_values=1), numbers


def filled(part: NDArray[Any], rows: int) -> NDArray[Any]:
    """Records, and zeros after them."""
    return np.pad(part, ((0, rows - len(part)), *((0, 0) for _ in part.shape[1:])))


def shapes_of_records(task: Task) -> Records:
    """The training records as a program of one process sees them, without putting them on a device."""
    rows, data = int(np.sum(task.data.size)), task.data
    few = (as_on_device(part[:1]) for part in (data.x, data.y))
    x, y = (jax.ShapeDtypeStruct((rows, *part.shape[1:]), part.dtype) for part in few)
    numbers = jax.ShapeDtypeStruct((task.clients,), np.int32)
    return Records(x, y, numbers, numbers)  # type: ignore[arg-type]
