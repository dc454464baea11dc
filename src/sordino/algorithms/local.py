"""A client's own work: its records, its loss, and steps of gradient descent on them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from sordino.algorithms.common import require_batch_size
from sordino.algorithms.schedules import Schedule
from sordino.errors import require, require_count
from sordino.models import Batch, Linear, Params, linear_of, shapes_of
from sordino.pytrees import pytree
from sordino.types import Augment, ClientNumbers, Key, PyTree, Scalar, Vector


@dataclass(frozen=True)
class ClientData:
    """One client's records and loss: the slice [start, start + size) of x and y, which may hold other clients' too.

    `largest` is the number of records of the largest client; smaller clients are padded with records of weight 0.
    """

    loss: Callable[[Vector, Batch], jax.Array]
    x: jax.Array
    y: jax.Array
    start: jax.Array
    size: jax.Array
    largest: int
    numbers: ClientNumbers | None = None  # this client's own, in methods that protect records
    augment: Augment | None = None

    @classmethod
    def own(
        cls,
        loss: Callable[[Vector, Batch], jax.Array],
        x: jax.Array,
        y: jax.Array,
        numbers: ClientNumbers | None = None,
        augment: Augment | None = None,
    ) -> ClientData:
        """The data of a client that holds its own records alone."""
        return cls(loss, x, y, jnp.int32(0), jnp.int32(len(x)), len(x), numbers, augment)

    def all(self) -> Batch:
        """Every record."""
        return self.take(jnp.arange(self.largest))

    def take(self, positions: jax.Array) -> Batch:
        """The records at these positions, with weight 0 beyond the last one."""
        index = self.start + jnp.minimum(positions, self.size - 1)
        return Batch(self.x[index], self.y[index], (positions < self.size).astype(jnp.float32))

    def shuffled(self, key: Key) -> jax.Array:
        """A random order of the client's positions, padding last.

        The order sorts 63 random bits a record. Ties go to the lower position; with 23 bits the first of a million
        records would come 6 % too often.
        """
        position = jnp.arange(self.largest)
        high, low = jax.random.bits(key, (2, self.largest), jnp.uint32)
        high = jnp.where(position < self.size, high >> 1, jnp.uint32(2**32 - 1))
        order: jax.Array = jax.lax.sort((high, low, position), num_keys=2)[2]
        return order

    def augmented(self, key: Key, batch: Batch) -> Batch:
        """The batch as the client trains on it: changed at random where the task has an augmentation."""
        return batch if self.augment is None else batch._replace(x=self.augment(key, batch.x))

    def batches(self, key: Key, batch_size: int | None) -> Callable[[jax.Array], Batch]:
        """Step t -> its batch: all records, or the next `batch_size` of one random order, over and over."""
        if batch_size is None or batch_size >= self.largest:
            everything = self.all()
            return lambda t: self.augmented(jax.random.fold_in(key, t), everything)
        order, b = self.shuffled(key), batch_size

        def batch_of(t: jax.Array) -> Batch:
            place = t * b + jnp.arange(b)
            batch = self.take(order[place % self.size])
            # A client with fewer records than a batch sees each of them once a step.
            batch = batch._replace(weight=batch.weight * (jnp.arange(b) < self.size))
            return self.augmented(jax.random.fold_in(key, t), batch)

        return batch_of

    def gradient(self, w: Vector, batch: Batch) -> Vector:
        """Gradient of the mean loss over the batch."""
        unravel, loss = shapes_of(self.loss)
        return _as_vector(jax.grad(loss)(unravel(w), batch))


@pytree
@dataclass(frozen=True)
class LocalTraining:
    """E steps v <- momentum v + gradient + weight_decay w, w <- w - eta_k v, full-batch or on mini-batches.

    With `proximal` each gradient gains mu (w - w_k), so that clients stay near w_k. This is FedProx (Li et al. 2020,
    Federated Optimization in Heterogeneous Networks, Algorithm 2), whose client k descends on

        h_k(w; w^t) = F_k(w) + (mu / 2) ||w - w^t||^2

    The paper leaves the solver open and asks for a gamma-inexact minimiser; here it is these E steps.

    With `sam_radius` a gradient is taken uphill of w, at w + rho g / ||g|| with g the gradient at w. These are the
    steps of DP-FedSAM (Shi et al. 2023, Make Landscape Flatter in Differentially Private Federated Learning).
    """

    lr: Schedule  # eta_k
    momentum: Scalar | None  # None: no v to keep
    weight_decay: Scalar
    steps: int = field(metadata={"static": True})  # E
    batch_size: int | None = field(metadata={"static": True})  # None: all of the client's records
    proximal: Scalar | None = None  # mu; None: no such term
    sam_radius: Scalar | None = None  # rho; None: gradients at w itself

    def __call__(self, key: Key, w: Vector, data: ClientData, k: jax.Array, correction: Vector | None = None) -> Vector:
        """w_{k,E} from w_{k,0} = w in round k; `correction` is added to every gradient."""
        eta = self.lr(k)
        whole = self.batch_size is None or self.batch_size >= data.largest
        plain = whole and correction is None and data.augment is None and self.sam_radius is None
        if plain and (linear := linear_of(data.loss)) is not None and _few_records(w, data):
            return self._in_span(w, data, eta, linear)
        batch_of, mu = data.batches(key, self.batch_size), self.proximal
        unravel, loss = shapes_of(data.loss)

        def step(carry: tuple[Params, Params], tau: jax.Array) -> tuple[tuple[Params, Params], None]:
            w, v = carry
            batch = batch_of(tau)
            gradient = jax.grad(loss)(w, batch)
            if self.sam_radius is not None:
                gradient = jax.grad(loss)(_uphill(w, gradient, self.sam_radius), batch)
            gradient = jax.tree.map(lambda g, w, c: g + self.weight_decay * w + c, gradient, w, shift)
            if mu is not None:
                gradient = jax.tree.map(lambda g, w, w_k: g + mu * (w - w_k), gradient, w, params)
            if self.momentum is not None:
                v = gradient = jax.tree.map(lambda v, g: self.momentum * v + g, v, gradient)
            return (jax.tree.map(lambda w, g: w - eta * g, w, gradient), v), None

        # The model's own shapes inside, one vector at the border.
        params = unravel(w)
        shift = jax.tree.map(jnp.zeros_like, params) if correction is None else unravel(correction)
        v = None if self.momentum is None else jax.tree.map(jnp.zeros_like, params)
        if self.steps == 1:  # without a scan, which would give every client a copy of the w that all share
            return _as_vector(step((params, v), jnp.int32(0))[0][0])
        (params, _), _ = jax.lax.scan(step, (params, v), jnp.arange(self.steps))
        return _as_vector(params)

    def _in_span(self, w: Vector, data: ClientData, eta: Scalar, linear: Linear) -> Vector:
        """The same steps, cheaper, for scores x W^T + b: gradients are sums of records, so W stays in their span.

        With the records as rows of x the iterates are W_t = rho_t W_0 + A_t^T x, v_t = sigma_t W_0 + B_t^T x, with b as
        the weight of a constant 1, and the scores are rho_t (x W_0^T + b_0) + (x x^T + 1) A_t: a step handles n numbers
        a class instead of one for each input.
        """
        batch = data.all()
        weight_0, bias_0 = shapes_of(data.loss)[0](w)
        x = linear.features(batch.x)
        exact = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
        scores_0, gram = exact(x, weight_0.T) + bias_0, exact(x, x.T) + 1

        def step(carry: PyTree, tau: jax.Array) -> tuple[PyTree, None]:
            (rho, A), v = carry
            gradient = jax.grad(linear.loss)(rho * scores_0 + exact(gram, A), batch)
            sigma, B = self.weight_decay * rho, gradient + self.weight_decay * A
            if self.proximal is not None:  # W_t - W_0 = (rho_t - 1) W_0 + A_t^T x
                sigma, B = sigma + self.proximal * (rho - 1), B + self.proximal * A
            if self.momentum is not None:
                v = sigma, B = self.momentum * v[0] + sigma, self.momentum * v[1] + B
            return ((rho - eta * sigma, A - eta * B), v), None

        zero = jnp.zeros_like(scores_0)
        v = None if self.momentum is None else (jnp.float32(0), zero)
        ((rho, A), _), _ = jax.lax.scan(step, ((jnp.float32(1), zero), v), jnp.arange(self.steps))
        weight, bias = rho * weight_0 + exact(A.T, x), rho * bias_0 + A.sum(axis=0)
        return jnp.concatenate([weight.ravel(), bias])


@pytree
@dataclass(frozen=True)
class LocalGradient:
    """(1/E) sum_t grad f_i(w_t), w_{t+1} = w_t - eta grad f_i(w_t): for E = 1 the gradient at w itself."""

    lr: Scalar  # eta
    steps: int = field(metadata={"static": True})  # E
    batch_size: int | None = field(metadata={"static": True})  # None: all of the client's records

    def __call__(self, key: Key, w: Vector, data: ClientData) -> Vector:
        batch_of = data.batches(key, self.batch_size)
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


def local_gradient(batch_size: int | None, local_steps: int, local_lr: float | None) -> LocalGradient:
    """The gradient of a client as factories describe it, with their arguments checked."""
    require_batch_size(batch_size)
    require_count(local_steps, "local_steps")
    remedy = "give the step size of the local steps" if local_steps > 1 else "one gradient takes no local step: drop it"
    require((local_lr is not None) == (local_steps > 1), "local_lr", local_lr, remedy)
    require(local_lr is None or 0 < local_lr < math.inf, "local_lr", local_lr, "must be positive and finite")
    return LocalGradient(1.0 if local_lr is None else local_lr, local_steps, batch_size)


def _uphill(w: Params, g: Params, rho: Scalar) -> Params:
    """w + rho g / ||g||, with 0/0 = 0."""
    norm = jnp.linalg.norm(ravel_pytree(g)[0])
    step = rho / jnp.where(norm > 0, norm, 1.0)
    moved: Params = jax.tree.map(lambda w, g: w + step * g, w, g)
    return moved


def _few_records(w: Vector, data: ClientData) -> bool:
    """Whether the records of a linear model's client are so few that working in their span is cheaper."""
    weight, _ = jax.eval_shape(shapes_of(data.loss)[0], w)
    return bool(2 * data.largest < weight.shape[1])


def _as_vector(params: Params) -> Vector:
    """The leaves of parameters, one after another.

    On a CPU they are written one by one. XLA joins a concatenation with what comes after it, and the loop that it then
    makes for many leaves can take longer than the training (335,000 parameters in eight leaves: 14 ms against 0.2 ms).
    """
    if jax.default_backend() != "cpu":
        return ravel_pytree(params)[0]
    leaves = [leaf.ravel() for leaf in jax.tree.leaves(params)]
    vector, place = jnp.zeros(sum(leaf.size for leaf in leaves), leaves[0].dtype), 0
    for leaf in leaves:
        vector = jax.lax.dynamic_update_slice(vector, leaf, (place,))
        place += leaf.size
    return vector
