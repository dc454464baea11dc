"""A task: a data set dealt to clients, and a model with its loss on a flat vector."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sordino.data import FederatedData, linear_problem, load, partition, quadratic_loss, quadratics
from sordino.data.datasets import check_options
from sordino.errors import require
from sordino.models import Batch, Model, flat, from_loss, get, linear, weighted_mean
from sordino.simulation.engine import Records, evaluate
from sordino.types import Key, Vector

__all__ = ["Task", "task"]


@dataclass(frozen=True, eq=False)
class Task:
    """What is learnt, by whom, from which records."""

    name: str
    data: FederatedData
    model: Model
    minimum: float | None = None  # of the test loss, where it is known
    objective: Model | None = None  # what the test loss is, where clients train on another

    @property
    def clients(self) -> int:
        """n."""
        return len(self.data.size)

    @property
    def largest(self) -> int:
        """Records of the largest client."""
        return int(self.data.size.max())

    @cached_property
    def d(self) -> int:
        """Number of parameters."""
        return int(self._flat[0].shape[0])

    @cached_property
    def records(self) -> Records:
        """The training records on the device."""
        return Records(*(jnp.asarray(part) for part in (self.data.x, self.data.y, self.data.start, self.data.size)))

    def initial(self, key: Key) -> Vector:
        """w_0."""
        return flat(self.model, key)[0]

    def params(self, w: Vector) -> Any:
        """The model's own parameters."""
        return self._flat[1](w)

    @cached_property
    def loss(self) -> Any:
        """The mean loss over a batch, of a flat vector; one function object, so that programs compile once."""
        unravel, loss = self._flat[1], self.model.loss

        def flat_loss(w: Vector, batch: Batch) -> jax.Array:
            return loss(unravel(w), batch)

        return flat_loss

    @cached_property
    def predict(self) -> Any:
        """Logits, of a flat vector."""
        unravel, predict = self._flat[1], self.model.predict
        assert predict is not None

        def flat_predict(w: Vector, x: jax.Array) -> jax.Array:
            return predict(unravel(w), x)

        return flat_predict

    def evaluate(self, w: Vector) -> dict[str, float]:
        """Test loss; with classes the accuracy, and with a known minimum how far above it the loss is."""
        if self.model.predict is not None:
            loss, accuracy = evaluate(w, *self._test, predict=self.predict)
            return {"test_loss": float(loss), "accuracy": float(accuracy)}
        loss = self._test_loss(w, *self._test)
        above = {} if self.minimum is None else {"suboptimality": float(loss) - self.minimum}
        return {"test_loss": float(loss), **above}

    @cached_property
    def _test(self) -> tuple[jax.Array, jax.Array]:
        return jnp.asarray(self.data.x_test), jnp.asarray(self.data.y_test)

    @cached_property
    def _test_loss(self) -> Any:
        unravel, loss = self._flat[1], (self.objective or self.model).loss
        return jax.jit(lambda w, x, y: loss(unravel(w), Batch(x, y, jnp.ones(len(x)))))

    @cached_property
    def _flat(self) -> tuple[Vector, Any]:
        return flat(self.model, jax.random.key(0))


def task(
    name: str = "digits",
    *,
    clients: int | None = None,
    partition: str | None = None,
    model: str = "logistic",
    partition_seed: int = 0,
    **options: Any,
) -> Task:
    """A task by name: a data set (see `sordino data list`), how it is dealt to clients, and a model.

    "quadratics" and "linear" are problems instead, with their own loss and a known minimum: of the former every client
    holds one record, of the latter equally many of a linear model (see `data.linear_problem`).

    Args:
      name: of the data set, or npz:FOLDER, csv:FILE, hf:NAME; or "quadratics" or "linear".
      clients: how many; with a natural partition, as many as there are.
      partition: "iid", "shards:K", "dirichlet:A", "quantity:A" or "natural" (the default where there is one).
      model: "logistic", "mlp:300,300", "cnn", ...
      partition_seed: of the dealing.
      options: for the data set's loader; of quadratics `d`, `rank`, `scale` (how far off w_0 is) and `seed`; of linear
        `loss`, `records`, `d`, `l2`, `smoothing`, `spread`, `noise` and `seed`.
    """
    if name == "linear":
        require(partition is None, "partition", partition, "this problem deals records to clients itself: leave out")
        check_options(name, _linear, options)
        return _linear(clients or 10, **options)
    if name == "quadratics":
        require(partition is None, "partition", partition, "every client of this problem has its own record: leave out")
        check_options(name, _quadratics, options)
        return _quadratics(clients or 100, **options)
    dataset = load(name, **options)
    scheme = partition or ("natural" if dataset.client is not None and clients is None else "iid")
    if scheme != "natural":
        require(clients is not None, "clients", clients, f"say how many clients {name} is dealt to")
    data = _partition(dataset, scheme, clients, partition_seed)
    return Task(name, data, get(model, tuple(np.shape(data.x)[1:]), data.classes))


def _quadratics(clients: int, *, d: int = 200, rank: int = 20, scale: float = 1.0, seed: int = 0) -> Task:
    """Client i's one record is x = A_i, y = w_i*. A run draws z ~ U(0, 1)^d and starts at w* + scale z."""
    problem = quadratics(seed, clients, d, rank)
    A, centers = problem.A.astype(np.float32), problem.centers.astype(np.float32)
    minimiser = jnp.asarray(problem.minimiser, jnp.float32)

    def init(key: Key) -> Vector:
        return minimiser + scale * jax.random.uniform(key, minimiser.shape)

    def loss(w: Vector, batch: Batch) -> jax.Array:
        each = jax.vmap(quadratic_loss, in_axes=(None, 0))(w, (batch.x, batch.y))
        return weighted_mean(each, batch.weight)

    start, size = np.arange(clients, dtype=np.int32), np.ones(clients, np.int32)
    data = FederatedData(A, centers, start, size, A, centers, classes=0)  # no secrets: f itself is the test
    return Task("quadratics", data, from_loss(init, loss, name="quadratics"), problem.minimum)


def _linear(
    clients: int,
    *,
    loss: str = "ridge",
    records: int = 100,
    d: int = 10,
    l2: float = 0.0,
    smoothing: float | None = None,
    spread: float = 0.0,
    noise: float = 0.1,
    seed: int = 0,
) -> Task:
    """A linear model of `data.linear_problem`; `smoothing` is beta of the Moreau envelope that clients train on.

    The test loss is the objective itself, not smoothed and with (l2/2) ||w||^2, whose gradient a method must add.
    """
    problem = linear_problem(seed, clients, records, d, loss, l2=l2, spread=spread, noise=noise)
    exact, trained = linear(loss, d), linear(loss, d, smoothing=smoothing)

    def objective(w: Vector, batch: Batch) -> jax.Array:
        return exact.loss(w, batch) + 0.5 * l2 * jnp.vdot(w, w)

    x, y = problem.x.astype(np.float32).reshape(-1, d), problem.y.astype(np.float32).ravel()
    start, size = np.arange(clients, dtype=np.int32) * records, np.full(clients, records, np.int32)
    data = FederatedData(x, y, start, size, x, y, classes=0)  # no secrets: the records are synthetic
    return Task("linear", data, trained, problem.minimum, from_loss(exact.init, objective, name=exact.name))


def _partition(dataset: Any, scheme: str, clients: int | None, seed: int) -> FederatedData:
    return partition(dataset, scheme, clients, seed)
