"""What a client does before it sends anything: its records, its loss, and steps of gradient descent on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from sordino.algorithms.schedules import Schedule
from sordino.models import Batch
from sordino.pytrees import pytree
from sordino.types import Key, Scalar, Vector

__all__ = ["ClientData", "LocalTraining"]


@dataclass(frozen=True)
class ClientData:
    """One client's records, as an algorithm sees them: a slice [start, start + size) of everybody's, and the loss.

    `largest` is the number of records of the largest client; smaller ones are padded with records of weight 0. `client`
    is the client's number, for methods whose clients have settings of their own.
    """

    loss: Callable[[Vector, Batch], jax.Array]
    x: jax.Array
    y: jax.Array
    start: jax.Array
    size: jax.Array
    largest: int
    client: Any = 0

    def all(self) -> Batch:
        """Every record."""
        return self.take(jnp.arange(self.largest))

    def take(self, positions: jax.Array) -> Batch:
        """The records at these positions, with weight 0 beyond the last one."""
        index = self.start + jnp.minimum(positions, self.size - 1)
        return Batch(self.x[index], self.y[index], (positions < self.size).astype(jnp.float32))

    def shuffled(self, key: Key) -> jax.Array:
        """A random order of the client's positions, padding last."""
        order = jax.random.uniform(key, (self.largest,)) + (jnp.arange(self.largest) >= self.size)
        return jnp.argsort(order)

    def gradient(self, w: Vector, batch: Batch) -> Vector:
        """Gradient of the mean loss over the batch."""
        return jax.grad(self.loss)(w, batch)


@pytree
@dataclass(frozen=True)
class LocalTraining:
    """E steps w <- w - eta_k v, v <- momentum v + gradient + weight_decay w, full-batch or on mini-batches."""

    lr: Any  # eta_k, a Schedule
    momentum: Scalar
    weight_decay: Scalar
    steps: int = field(metadata={"static": True})  # E
    batch_size: int | None = field(metadata={"static": True})  # None: all of the client's records

    def __call__(self, key: Key, w: Vector, data: ClientData, k: jax.Array) -> Vector:
        """w_{k,E} from w_{k,0} = w in round k."""
        schedule: Schedule = self.lr
        eta = schedule(k)
        batch_of = self._batches(key, data)

        def step(carry: tuple[Vector, Vector], tau: jax.Array) -> tuple[tuple[Vector, Vector], None]:
            w, v = carry
            gradient = data.gradient(w, batch_of(tau)) + self.weight_decay * w
            v = self.momentum * v + gradient
            return (w - eta * v, v), None

        (w, _), _ = jax.lax.scan(step, (w, jnp.zeros_like(w)), jnp.arange(self.steps))
        return w

    def _batches(self, key: Key, data: ClientData) -> Callable[[jax.Array], Batch]:
        """The batch of step tau: everything, or the next `batch_size` records of one random order, round and round."""
        if self.batch_size is None or self.batch_size >= data.largest:
            everything = data.all()
            return lambda tau: everything
        order, b = data.shuffled(key), self.batch_size

        def batch_of(tau: jax.Array) -> Batch:
            place = tau * b + jnp.arange(b)
            batch = data.take(order[place % data.size])
            # A client with fewer records than a batch sees each of them once a step.
            return batch._replace(weight=batch.weight * (jnp.arange(b) < data.size))

        return batch_of
