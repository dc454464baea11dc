"""Held-out clients: a public share of the clients trains no model, and their records choose settings.

The share and the seed are public, and who is drawn depends on the clients' numbers alone. So the training clients'
certificates hold as they are, and a score on held-out records tells nothing more about them. The held-out clients have
no guarantee: the choice depends on their records, without noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from sordino.data import FederatedData
from sordino.errors import require
from sordino.tasks import Task


@dataclass(frozen=True)
class HeldOut:
    """A task cut in two by clients."""

    choosing: Task  # training clients; the test set is the records of the held-out clients
    final: Task  # training clients; the test set of the task
    clients: int  # held out
    of: int
    seed: int


def hold_out(task: Task, share: float, seed: int) -> HeldOut:
    """Draw a share of the clients, at least one, and take their records out of training."""
    require(0 < share < 1, "held_out", share, "must lie in (0, 1): the share of clients that choose and do not train")
    require(task.clients > 1, "held_out", share, f"{task.name} has one client: nobody is left to train")
    remedy = f"{task.name} is measured on its clients' own records: give files without grids"
    require(not task.measured_on_clients and task.minimum is None, "held_out", share, remedy)
    count = min(task.clients - 1, max(1, math.floor(share * task.clients)))
    drawn = np.sort(np.random.default_rng(seed).choice(task.clients, count, replace=False))
    rest = np.setdiff1d(np.arange(task.clients), drawn)
    training, held = _of_clients(task.data, rest), _rows(task.data, drawn)
    assignment = f"{task.assignment}, without {share} of the clients by seed {seed}" if task.assignment else ""
    scored = training._replace(
        x_test=task.data.x[held], y_test=task.data.y[held], tests_clients=False, tests_held_out=True
    )
    return HeldOut(
        choosing=replace(task, data=scored, assignment=assignment),
        final=replace(task, data=training, assignment=assignment),
        clients=count,
        of=task.clients,
        seed=seed,
    )


def _of_clients(data: FederatedData, clients: np.ndarray) -> FederatedData:
    """The data of these clients alone."""
    rows, size = _rows(data, clients), data.size[clients]
    names = tuple(data.names[client] for client in clients) if data.names else ()
    start = (np.cumsum(size) - size).astype(data.start.dtype)
    return data._replace(x=data.x[rows], y=data.y[rows], start=start, size=size, names=names)


def _rows(data: FederatedData, clients: np.ndarray) -> np.ndarray:
    return np.concatenate([np.arange(data.start[client], data.start[client] + data.size[client]) for client in clients])
