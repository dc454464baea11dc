"""A task: a data set dealt to clients, and a model with its loss on a flat vector."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sordino.data import FederatedData
from sordino.errors import InvalidInput, require
from sordino.keys import key_of
from sordino.models import Batch, FlatLoss, FlatPredict, Model, flat, in_precision
from sordino.tasks.population import DataFacts, Population
from sordino.types import Augment, Key, PyTree, Vector

Measure: TypeAlias = Callable[[Vector, jax.Array, jax.Array], dict[str, jax.Array]]


class Records(NamedTuple):
    """Everybody's records, sorted by client; or those of some clients, whose numbers stand in `client`, ascending."""

    x: jax.Array
    y: jax.Array
    start: jax.Array
    size: jax.Array
    client: jax.Array | None = None  # the client of each start and size; None: start[i] and size[i] are client i's


@dataclass(frozen=True, eq=False, repr=False)
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
    precision: str = "default"  # of the matrix products in a gradient: "default", as JAX chooses, or "float32"
    objective: Model | None = None  # what the test loss is, where clients train on another
    assignment: str = ""  # the rule that gave clients their records: tasks with one text hold them alike; "": unknown

    def __post_init__(self) -> None:
        """Every client and the test set must hold at least one record, and clients' slices must not overlap."""
        remedy = "holds no test records, on which models are measured: hold some out, test_share = 0.2, or add some"
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
        if self.data.folder is None:
            self._require_labels("y", self.data.y, len(self.data.x))
        self._require_labels("y_test", self.data.y_test, len(self.data.x_test))

    def __repr__(self) -> str:
        data, least = self.data, int(self.data.size.min())
        sizes = f"{least} to {self.largest}" if least < self.largest else str(least)
        shape = "x".join(map(str, np.shape(data.x)[1:])) or "1"
        return (
            f"Task {self.name}: {self.clients} clients with {sizes} records of {shape} features, "
            f"{data.classes or 'no'} classes, {len(data.x_test)} test records, model {self.model.name}"
        )

    def _require_labels(self, name: str, labels: NDArray[Any], records: int) -> None:
        """Every record has a label and, where there are classes, each label is one of them."""
        require(len(labels) == records, name, len(labels), f"give one label for each of the {records} records")
        if self.data.classes > 0:
            least, most = int(labels.min()), int(labels.max())
            remedy = f"labels must lie in 0, ..., {self.data.classes - 1}, or classes must be larger"
            require(least >= 0 and most < self.data.classes, name, least if least < 0 else most, remedy)

    @cached_property
    def token(self) -> str:
        """A random name, unique even among tasks made from the same files."""
        return secrets.token_hex(8)

    @property
    def clients(self) -> int:
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
        return int(self._flat[0].shape[0])

    @cached_property
    def records(self) -> Records:
        """The training records on the device, where they fit into memory."""
        if self.data.folder is not None:
            remedy = "stays on the disk, and this needs all records at once: load them into memory, so.task(x, y)"
            raise InvalidInput("task", self.name, remedy)
        require(
            not self._forgotten, "task", self.name, "holds no training records any more: make it anew, so.task(...)"
        )
        own = (self.data.x, self.data.y, self.data.start, self.data.size)
        return Records(*(jax.device_put(np.asarray(part)) for part in own))  # jnp.asarray takes three times the memory

    @property
    def _forgotten(self) -> bool:
        return len(self.data.x) < int(np.sum(self.data.size))

    def forget_records(self) -> None:
        """Let go of all training records but the first: a process of several keeps those of its clients elsewhere."""
        _ = self.population, self.test  # which look at all of them, if the test set is they
        few = self.data._replace(x=np.array(self.data.x[:1]), y=np.array(self.data.y[:1]))
        object.__setattr__(self, "data", few)
        self.__dict__.pop("records", None)

    @property
    def first_record(self) -> Records:
        """One record as if it were everybody's: enough to see what a program would be made of."""
        x, y, one = jnp.asarray(self.data.x[:1]), jnp.asarray(self.data.y[:1]), jnp.ones(1, jnp.int32)
        return Records(x, y, one - 1, one)

    @property
    def content(self) -> PyTree | bytes:
        """What a digest of the training records is made of: they are as on a device, and not put there."""
        if self.data.folder is not None:
            return self.data.folder.identity
        parts = (self.data.x, self.data.y, self.data.start, self.data.size)
        return tuple(as_on_device(part) for part in parts)

    def initial(self, key: Key) -> Vector:
        return flat(self.model, key)[0]

    @cached_property
    def population(self) -> Population:
        """What a plan may know of this task."""
        data = self.data
        named = data.reading is not None and bool(data.reading.classes.names)
        return Population(
            d=self.d,
            clients=self.clients,
            sizes=np.asarray(data.size, np.int64),
            names=tuple(data.names),
            smoothness=self.model.smoothness,
            assignment=self.assignment,
            task_token=self.token,
            facts=DataFacts(
                starts_near_data=self.starts_near_data,
                classes_counted=data.classes if data.classes_counted and not named else None,
                words_counted=() if data.reading is None else data.reading.counted,
                measured_on_clients=self.measured_on_clients,
                tests_clients=data.tests_clients,
                tests_held_out=data.tests_held_out,
                dealt_anew=data.dealt_anew,
                dealt_by_label=data.dealt_by_label,
                overlapping=data.overlapping,
                augmented=self.augment is not None,
            ),
        )

    def params(self, w: Vector) -> PyTree:
        """The model's own parameters."""
        return self._flat[1](w)

    @cached_property
    def loss(self) -> FlatLoss:
        """The mean loss over a batch, of a flat vector; one object, so that programs compile once."""
        return FlatLoss(in_precision(self.model.loss, self.precision), self._flat[1], self.model.linear)

    @cached_property
    def predict(self) -> FlatPredict:
        """Logits, of a flat vector."""
        assert self.model.predict is not None
        return FlatPredict(self.model.predict, self._flat[1])

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
    def _flat(self) -> tuple[Vector, Callable[[Vector], PyTree]]:
        return flat(self.model, key_of(0))


def as_on_device(part: NDArray[Any]) -> NDArray[Any]:
    """An array with the type that it has on a device."""
    array = np.asarray(part)
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)


@functools.partial(jax.jit, static_argnames=("predict", "batch"))
def evaluate(
    w: Vector, x: jax.Array, y: jax.Array, *, predict: Callable[[Vector, jax.Array], jax.Array], batch: int = 1000
) -> tuple[jax.Array, jax.Array]:
    """(mean cross-entropy, accuracy) over a whole set, in batches."""
    n = y.shape[0]
    batches = -(-n // batch)
    index = jnp.minimum(jnp.arange(batches * batch), n - 1).reshape(batches, batch)
    real = (jnp.arange(batches * batch) < n).reshape(batches, batch)

    def one(
        carry: tuple[jax.Array, jax.Array], part: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array], None]:
        rows, weight = part
        with jax.default_matmul_precision("highest"):  # a rounded score may name another class
            log_p = jax.nn.log_softmax(predict(w, x[rows]))
        loss = -jnp.take_along_axis(log_p, y[rows][:, None], axis=1)[:, 0]
        right = jnp.argmax(log_p, axis=1) == y[rows]
        return (carry[0] + jnp.sum(loss * weight), carry[1] + jnp.sum(right & weight)), None

    (loss, right), _ = jax.lax.scan(one, (jnp.float32(0), jnp.int32(0)), (index, real))
    return loss / n, right / n
