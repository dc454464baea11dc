"""What a client does before it sends anything: its records, its loss, and steps of gradient descent on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from sordino.algorithms.schedules import Schedule
from sordino.models import Batch
from sordino.pytrees import pytree
from sordino.types import Key, Scalar, Vector

__all__ = ["Augment", "ClientData", "LocalGradient", "LocalTraining"]

Augment: TypeAlias = Callable[[Key, jax.Array], jax.Array]  # records -> records of the same shape, changed at random


@dataclass(frozen=True)
class ClientData:
    """One client's records, as an algorithm sees them: a slice [start, start + size) of everybody's, and the loss.

    `largest` is the number of records of the largest client; smaller ones are padded with records of weight 0.
    """

    loss: Callable[[Vector, Batch], jax.Array]
    x: jax.Array
    y: jax.Array
    start: jax.Array
    size: jax.Array
    largest: int
    augment: Augment | None = None

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

    def augmented(self, key: Key, batch: Batch) -> Batch:
        """The batch as the client trains on it: changed at random, with the client's own key, where a task says so."""
        return batch if self.augment is None else batch._replace(x=self.augment(key, batch.x))

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
        batch_of = _batches(key, data, self.batch_size)

        def step(carry: tuple[Vector, Vector], tau: jax.Array) -> tuple[tuple[Vector, Vector], None]:
            w, v = carry
            gradient = data.gradient(w, batch_of(tau)) + self.weight_decay * w
            v = self.momentum * v + gradient
            return (w - eta * v, v), None

        start = w, jnp.zeros_like(w)
        if self.steps == 1:  # without a scan, which would give every client a copy of the w that all share
            return step(start, jnp.int32(0))[0][0]
        (w, _), _ = jax.lax.scan(step, start, jnp.arange(self.steps))
        return w


@pytree
@dataclass(frozen=True)
class LocalGradient:
    """(1/E) sum_t grad f_i(w_t), w_{t+1} = w_t - eta grad f_i(w_t): for E = 1 the gradient at w itself."""

    lr: Scalar  # eta
    steps: int = field(metadata={"static": True})  # E
    batch_size: int | None = field(metadata={"static": True})  # None: all of the client's records

    def __call__(self, key: Key, w: Vector, data: ClientData) -> Vector:
        """The (mean) gradient from w on."""
        batch_of = _batches(key, data, self.batch_size)
        # At the w that all clients share, outside the scan, which would give each of them a copy of the weights.
        first = data.gradient(w, batch_of(jnp.int32(0)))
        if self.steps == 1:
            return first

        def step(carry: tuple[Vector, Vector], tau: jax.Array) -> tuple[tuple[Vector, Vector], None]:
            w, total = carry
            gradient = data.gradient(w, batch_of(tau))
            return (w - self.lr * gradient, total + gradient), None

        (_, total), _ = jax.lax.scan(step, (w - self.lr * first, first), jnp.arange(1, self.steps))
        return total / self.steps


def _batches(key: Key, data: ClientData, batch_size: int | None) -> Callable[[jax.Array], Batch]:
    """The batch of step tau: everything, or the next `batch_size` records of one random order, round and round."""
    if batch_size is None or batch_size >= data.largest:
        everything = data.all()
        return lambda tau: data.augmented(jax.random.fold_in(key, tau), everything)
    order, b = data.shuffled(key), batch_size

    def batch_of(tau: jax.Array) -> Batch:
        place = tau * b + jnp.arange(b)
        batch = data.take(order[place % data.size])
        # A client with fewer records than a batch sees each of them once a step.
        batch = batch._replace(weight=batch.weight * (jnp.arange(b) < data.size))
        return data.augmented(jax.random.fold_in(key, tau), batch)

    return batch_of
