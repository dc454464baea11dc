"""A task: a data set dealt to clients, and a model with its loss on a flat vector."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from sordino.algorithms.local import Augment
from sordino.data import (
    FederatedData,
    Quadratics,
    linear_problem,
    linear_regression,
    load,
    opposed_parabolas,
    partition,
    quadratic_loss,
    quadratics,
    robust_loss,
    robust_regression,
    squared_residual,
)
from sordino.data.augmentation import AUGMENTATIONS
from sordino.data.datasets import check_options
from sordino.errors import InvalidInput, require
from sordino.models import Batch, FlatLoss, Model, flat, from_loss, get, linear, weighted_mean
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
    minimiser: Vector | None = None  # where that is
    stationarity: bool = False  # whether the norm of the test loss's gradient is measured
    augment: Augment | None = None  # what a client does to its records before a gradient
    starts_near_data: bool = False  # whether w_0 is made from the clients' data, as near a known minimiser
    objective: Model | None = None  # what the test loss is, where clients train on another
    dealt: str = ""  # by which rule records got to their clients: two tasks with one text hold them alike; "": unknown

    def __post_init__(self) -> None:
        """Nobody comes with nothing, which would mean to look at another's records, or with another's; nor the test."""
        remedy = "holds no test records, on which models are measured: add some (rows of split test, or test.npz)"
        require(len(self.data.x_test) > 0, "task", self.name, remedy)
        empty = np.flatnonzero(np.asarray(self.data.size) < 1)
        if len(empty):
            names = self.data.names or [f"client {number}" for number in range(len(self.data.size))]
            raise InvalidInput("clients", names[empty[0]], "holds no records: leave it out, or give it some")
        start, size = (np.asarray(part, np.int64) for part in (self.data.start, self.data.size))
        order = np.argsort(start, kind="stable")
        ends = (start + size)[order]
        apart = start.min() >= 0 and bool(np.all(ends[:-1] <= start[order][1:])) and ends[-1] <= len(self.data.x)
        remedy = f"start and size must cut the {len(self.data.x)} records into parts that do not overlap"
        require(apart, "clients", self.name, remedy)

    @cached_property
    def token(self) -> str:
        """A name that no other task has, were it made from the same files."""
        return secrets.token_hex(8)

    @property
    def clients(self) -> int:
        """n."""
        return len(self.data.size)

    @property
    def largest(self) -> int:
        """Records of the largest client."""
        return int(self.data.size.max())

    @property
    def measured_on_clients(self) -> bool:
        """Whether the test set is the clients' own records, as of a problem with a known minimum."""
        return self.data.x_test is self.data.x

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
        """(w, test set) -> test loss; the accuracy, or how far above a known minimum the loss, or off it w, is."""

        def measured(w: Vector, x: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
            if self.model.predict is not None:
                loss, accuracy = evaluate(w, x, y, predict=self.predict)
                return {"test_loss": loss, "accuracy": accuracy}
            everything = Batch(x, y, jnp.ones(len(x)))
            objective = self.loss if self.objective is None else FlatLoss(self.objective.loss, self._flat[1])
            loss = objective(w, everything)
            above = {} if self.minimum is None else {"suboptimality": loss - jnp.float32(self.minimum)}
            away = {} if self.minimiser is None else {"distance": jnp.linalg.norm(w - self.minimiser)}
            steep = {"gradient_norm": jnp.linalg.norm(jax.grad(objective)(w, everything))} if self.stationarity else {}
            return {"test_loss": loss, **above, **away, **steep}

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
    model: str | None = None,
    partition_seed: int = 0,
    augment: str | None = None,
    **options: Any,
) -> Task:
    """A task by name: a data set (see `sordino data list`), how it is dealt to clients, and a model.

    "quadratics", "linear", "linear-regression", "opposed-parabolas" and "robust-regression" are problems instead, with
    their own losses.

    Args:
      name: of the data set, or npz:FOLDER, csv:FILE, hf:NAME; or of a problem.
      clients: how many; with a natural partition, as many as there are.
      partition: "iid", "shards:K", "dirichlet:A", "quantity:A" or "natural" (the default where there is one).
      model: "logistic" (the default of a data set), "mlp:300,300", "cnn", "resnet20:batch", ...
      partition_seed: of the dealing.
      augment: "crop-flip", "crop" or "flip" changes a client's images at random before each gradient; "none" does not.
      options: for the data set's loader; of quadratics `d`, `rank`, `scale` (how far off w_0 is) and `seed`; of
        linear-regression `d`, `u_variance` and `seed`; of opposed-parabolas `start`; of robust-regression `d`,
        `records`, `regularisation` and `seed`; of linear `loss`, `records`, `d`, `l2`, `smoothing`, `spread`, `noise`
        and `seed`.
    """
    augment = None if augment == "none" else augment  # a change of a run file cannot take a key away
    known = f"use one of {', '.join(AUGMENTATIONS)}, none, or leave it out"
    require(augment is None or augment in AUGMENTATIONS, "augment", augment, known)
    if name in PROBLEMS:
        dealt = "the clients of this problem have their own records: leave out"
        require(partition is None, "partition", partition, dealt)
        require(partition_seed == 0, "partition_seed", partition_seed, dealt)
        require(model is None, "model", model, "this problem has its own loss: leave out")
        require(augment is None, "augment", augment, "is for images: leave out")
        check_options(name, PROBLEMS[name], options)
        return replace(PROBLEMS[name](clients, **options), dealt=f"{name}, {clients}, {options}")
    dataset = load(name, **options)
    scheme = partition or ("natural" if dataset.client is not None and clients is None else "iid")
    if scheme != "natural":
        require(clients is not None, "clients", clients, f"say how many clients {name} is dealt to")
    data = _partition(dataset, scheme, clients, partition_seed)
    made = get(model or "logistic", tuple(np.shape(data.x)[1:]), data.classes)
    change = None if augment is None else partial(AUGMENTATIONS[augment], black=dataset.black)
    return Task(
        name,
        data,
        made,
        augment=change,
        # Files of somebody's own may hold other records, or other clients', the next time.
        dealt="" if ":" in name else f"{name}, {scheme}, {clients}, {partition_seed}, {options}",
    )


def _quadratics(clients: int | None, *, d: int = 200, rank: int = 20, scale: float = 1.0, seed: int = 0) -> Task:
    """Client i's one record is x = A_i, y = w_i*. A run draws z ~ U(0, 1)^d and starts at w* + scale z."""
    problem = quadratics(seed, clients or 100, d, rank)
    minimiser = jnp.asarray(problem.minimiser, jnp.float32)

    def init(key: Key) -> Vector:
        return minimiser + scale * jax.random.uniform(key, minimiser.shape)

    return Task(
        "quadratics",
        _one_record_each(problem),
        from_loss(init, _mean_quadratic, name="quadratics"),
        problem.minimum,
        minimiser,
        starts_near_data=True,
    )


def _opposed_parabolas(clients: int | None, *, start: float = 2.0) -> Task:
    """Two clients, one number x, which every run starts at `start`; the distance to x* = 0 is measured."""
    require(clients in (None, 2), "clients", clients, "there are two: leave out")
    problem = opposed_parabolas()
    minimiser = jnp.asarray(problem.minimiser, jnp.float32)

    def init(key: Key) -> Vector:
        return jnp.full((1,), start, jnp.float32)

    model = from_loss(init, _mean_quadratic, name="opposed-parabolas")
    return Task("opposed-parabolas", _one_record_each(problem), model, problem.minimum, minimiser)


def _mean_quadratic(w: Vector, batch: Batch) -> jax.Array:
    each = jax.vmap(quadratic_loss, in_axes=(None, 0))(w, (batch.x, batch.y))
    return weighted_mean(each, batch.weight)


def _one_record_each(problem: Quadratics) -> FederatedData:
    A, centers = problem.A.astype(np.float32), problem.centers.astype(np.float32)
    start, size = np.arange(len(A), dtype=np.int32), np.ones(len(A), np.int32)
    return FederatedData(A, centers, start, size, A, centers, classes=0)  # no secrets: f itself is the test


def _robust_regression(
    clients: int | None, *, d: int = 20, records: int = 50, regularisation: float = 0.1, seed: int = 0
) -> Task:
    """Every client holds `records` records; a run starts at w_0 ~ N(0, I_d) and the gradient's norm is measured."""
    problem = robust_regression(seed, clients or 10, d, records, regularisation)
    n = len(problem.y)
    x, y = problem.x.reshape(-1, d).astype(np.float32), problem.y.reshape(-1).astype(np.float32)

    def init(key: Key) -> Vector:
        return jax.random.normal(key, (d,))

    def loss(w: Vector, batch: Batch) -> jax.Array:
        each = jax.vmap(lambda x, y: robust_loss(w, (x, y), regularisation))(batch.x, batch.y)
        return weighted_mean(each, batch.weight)

    start, size = np.arange(n, dtype=np.int32) * records, np.full(n, records, np.int32)
    data = FederatedData(x, y, start, size, x, y, classes=0)
    return Task("robust-regression", data, from_loss(init, loss, name="robust-regression"), stationarity=True)


def _linear_regression(clients: int | None, *, d: int = 500, u_variance: float = 0.1, seed: int = 0) -> Task:
    """Client i's one record is (x_i, y_i), its loss (x_i^T w - y_i)^2. All share w*; a run starts at 0."""
    problem = linear_regression(seed, clients or 1000, d, u_variance)
    x, y = problem.x.astype(np.float32), problem.y.astype(np.float32)

    def init(key: Key) -> Vector:
        del key  # a convex loss needs no luck
        return jnp.zeros(d, jnp.float32)

    def loss(w: Vector, batch: Batch) -> jax.Array:
        each = jax.vmap(squared_residual, in_axes=(None, 0))(w, (batch.x, batch.y))
        return weighted_mean(each, batch.weight)

    start, size = np.arange(len(y), dtype=np.int32), np.ones(len(y), np.int32)
    data = FederatedData(x, y, start, size, x, y, classes=0)  # no secrets: F itself is the test
    minimiser = jnp.asarray(problem.minimiser, jnp.float32)
    model = from_loss(init, loss, name="linear-regression")
    return Task("linear-regression", data, model, problem.minimum, minimiser)


def _linear(
    clients: int | None,
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
    clients = clients or 10
    problem = linear_problem(seed, clients, records, d, loss, l2=l2, spread=spread, noise=noise)
    exact, trained = linear(loss, d), linear(loss, d, smoothing=smoothing)

    def objective(w: Vector, batch: Batch) -> jax.Array:
        return exact.loss(w, batch) + 0.5 * l2 * jnp.vdot(w, w)

    x, y = problem.x.astype(np.float32).reshape(-1, d), problem.y.astype(np.float32).ravel()
    start, size = np.arange(clients, dtype=np.int32) * records, np.full(clients, records, np.int32)
    data = FederatedData(x, y, start, size, x, y, classes=0)  # no secrets: the records are synthetic
    measured = from_loss(exact.init, objective, name=exact.name)
    return Task("linear", data, trained, problem.minimum, objective=measured)


PROBLEMS: dict[str, Callable[..., Task]] = {
    "quadratics": _quadratics,
    "linear": _linear,
    "linear-regression": _linear_regression,
    "opposed-parabolas": _opposed_parabolas,
    "robust-regression": _robust_regression,
}


def _partition(dataset: Any, scheme: str, clients: int | None, seed: int) -> FederatedData:
    return partition(dataset, scheme, clients, seed)
