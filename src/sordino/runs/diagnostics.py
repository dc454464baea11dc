"""How different clients are, and whether local training moves them towards the minimiser: what the theorems assume.

    heterogeneity    Delta_i* = f_i(w*) - min f_i                  Das, Hashemi, Sanghavi, Dhillon, Definition 1
                     (1/M) sum_i ||grad f_i(w)||^2                 and how much of it is left in the mean,
                     ||(1/M) sum_i grad f_i(w)||^2                 which is 0 at w*
    projection       (1/M) sum_i ||w_i - w*||^2 = (1 - alpha) ||w - w*||^2     Takakura, Liew, Hasegawa, eq. (4),
                     for 0 <= alpha <= 1, where w_i is what client i makes of w in its local steps

Both are computed from the clients' records without noise: they are for problems whose data may be known, and no
certificate covers them. min f_i is not known: what local descent reaches is above it, so gaps are lower bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sordino.algorithms.common import require_local_training
from sordino.algorithms.local import ClientData, LocalTraining
from sordino.algorithms.schedules import as_schedule
from sordino.errors import InvalidInput
from sordino.keys import key_of
from sordino.tasks import Task
from sordino.types import Vector

CHUNK = 64  # clients at a time


class Heterogeneity(NamedTuple):
    """What `heterogeneity` measures at one point."""

    gaps: NDArray[np.float64]  # f_i(w) - f_i(where local descent ends), one a client
    mean_of_squares: float  # (1/M) sum_i ||grad f_i(w)||^2
    square_of_mean: float  # ||(1/M) sum_i grad f_i(w)||^2


class Projection(NamedTuple):
    """What `projection` measures at one point."""

    alpha: float
    target_step_size: float  # eq. (5) without noise or clipping: (1/M) sum ||Delta_i||^2 / ||(1/M) sum Delta_i||^2

    @property
    def holds(self) -> bool:
        """Whether the condition holds: local training brings clients nearer to the minimiser on average."""
        return 0 <= self.alpha <= 1


def heterogeneity(task: Task, w: Vector, *, local_lr: float, local_steps: int = 1000) -> Heterogeneity:
    """Delta_i* from below, if w is the minimiser, and how far the clients' gradients are from each other at w."""
    train = _training(local_steps, local_lr)

    def one(data: ClientData) -> tuple[jax.Array, Vector]:
        gradient = data.gradient(w, data.all())
        reached = train(key_of(0), w, data, jnp.int32(0))
        return data.loss(w, data.all()) - data.loss(reached, data.all()), gradient

    gaps, gradients = (np.asarray(part, np.float64) for part in _for_each_client(task, one))
    mean = gradients.mean(axis=0)
    return Heterogeneity(gaps, float(np.mean(np.sum(gradients**2, axis=1))), float(mean @ mean))


def projection(
    task: Task, w: Vector, *, local_lr: float, local_steps: int, minimiser: Vector | None = None
) -> Projection:
    """alpha of eq. (4) at w; w* is the task's, if it is not given."""
    target = task.minimiser if minimiser is None else minimiser
    if target is None:
        raise InvalidInput("minimiser", None, "the task's is not known: give w*")
    train = _training(local_steps, local_lr)

    def one(data: ClientData) -> Vector:
        return train(key_of(0), w, data, jnp.int32(0))

    local = np.asarray(_for_each_client(task, one), np.float64)
    start, end = np.asarray(w, np.float64), np.asarray(target, np.float64)
    before = float(np.sum((start - end) ** 2))
    if before == 0:
        raise InvalidInput("w", "w*", "is the minimiser, where alpha is not defined: give another point")
    Delta = local - start
    mean = Delta.mean(axis=0)
    squares, square = float(np.mean(np.sum(Delta**2, axis=1))), float(mean @ mean)
    alpha = 1 - float(np.mean(np.sum((local - end) ** 2, axis=1))) / before
    return Projection(alpha, squares / square if square > 0 else 1.0)


def _training(local_steps: int, local_lr: float) -> LocalTraining:
    require_local_training(local_steps, None, 0.0)
    return LocalTraining(as_schedule(local_lr, "local_lr"), None, 0.0, local_steps, None)


def _for_each_client(task: Task, one: Callable[[ClientData], jax.Array | tuple[jax.Array, ...]]) -> jax.Array:
    """`one` of every client's data, all of its records a step."""
    records, size = task.records, jnp.asarray(task.data.size)

    def of(client: jax.Array) -> jax.Array | tuple[jax.Array, ...]:
        start = records.start[client]
        return one(ClientData(task.loss, records.x, records.y, start, size[client], task.largest))

    each: jax.Array = jax.jit(lambda ids: jax.lax.map(of, ids, batch_size=CHUNK))(jnp.arange(task.clients))
    return each
