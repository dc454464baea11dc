"""A task: a data set dealt to clients, and a model with its loss on a flat vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from sordino.data import FederatedData, load, partition, quadratic_loss, quadratics
from sordino.data.datasets import check_options
from sordino.errors import require
from sordino.models import Batch, FlatLoss, Model, flat, from_loss, get, weighted_mean
from sordino.simulation.engine import Records, evaluate
from sordino.types import Key, Vector

__all__ = ["Measure", "Task", "task"]

Measure: TypeAlias = Callable[[Vector, jax.Array, jax.Array], dict[str, jax.Array]]


@dataclass(frozen=True, eq=False)
class Task:
    """What is learnt, by whom, from which records."""

    name: str
    data: FederatedData
    model: Model
    minimum: float | None = None  # of the test loss, where it is known
    minimiser: np.ndarray | None = None  # where it is

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
    def loss(self) -> FlatLoss:
        """The mean loss over a batch, of a flat vector; one object, so that programs compile once."""
        return FlatLoss(self.model.loss, self._flat[1], self.model.linear)

    @cached_property
    def predict(self) -> Any:
        """Logits, of a flat vector."""
        unravel, predict = self._flat[1], self.model.predict
        assert predict is not None

        def flat_predict(w: Vector, x: jax.Array) -> jax.Array:
            return predict(unravel(w), x)

        return flat_predict

    @cached_property
    def measure(self) -> Measure:
        """(w, test set) -> test loss; with classes the accuracy, with a known minimum how far above it the loss is."""

        def measured(w: Vector, x: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
            if self.model.predict is not None:
                loss, accuracy = evaluate(w, x, y, predict=self.predict)
                return {"test_loss": loss, "accuracy": accuracy}
            loss = self.loss(w, Batch(x, y, jnp.ones(len(x))))
            above = {} if self.minimum is None else {"suboptimality": loss - jnp.float32(self.minimum)}
            return {"test_loss": loss, **above}

        return measured

    @cached_property
    def measures(self) -> tuple[str, ...]:
        """The names of what `measure` finds."""
        return tuple(jax.eval_shape(self.measure, self._flat[0], *self.test))

    def evaluate(self, w: Vector) -> dict[str, float]:
        """What `measure` finds on the test set."""
        return {name: float(value) for name, value in self._measure(w, *self.test).items()}

    @cached_property
    def test(self) -> tuple[jax.Array, jax.Array]:
        """The test records on the device."""
        return jnp.asarray(self.data.x_test), jnp.asarray(self.data.y_test)

    @cached_property
    def _measure(self) -> Measure:
        return jax.jit(self.measure)

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

    "quadratics" is a problem instead, with a record a client, its own loss and a known minimum.

    Args:
      name: of the data set, or npz:FOLDER, csv:FILE, hf:NAME; or "quadratics".
      clients: how many; with a natural partition, as many as there are.
      partition: "iid", "shards:K", "dirichlet:A", "quantity:A" or "natural" (the default where there is one).
      model: "logistic", "mlp:300,300", "cnn", ...
      partition_seed: of the dealing.
      options: for the data set's loader; of quadratics `d`, `rank`, `scale` (how far off w_0 is) and `seed`.
    """
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
    return Task("quadratics", data, from_loss(init, loss, name="quadratics"), problem.minimum, problem.minimiser)


def _partition(dataset: Any, scheme: str, clients: int | None, seed: int) -> FederatedData:
    return partition(dataset, scheme, clients, seed)
