"""A trained model, applied to records: predictions, and how good they are."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sordino.data import FederatedData
from sordino.data._arrow import as_table, is_frame
from sordino.data._labels import Classes
from sordino.data._table import Table
from sordino.data.in_memory import Array, features_of, require_length, values_of
from sordino.data.reading import Reading
from sordino.errors import InvalidInput, require
from sordino.models import Batch, Model
from sordino.tasks.task import Task
from sordino.types import PyTree

BATCH = 1000  # records whose scores are computed at a time
PRIVATE_FIGURES = (
    "Computed from private data: these figures are covered by no certificate. Show them only to people who may see the "
    "records."
)


@dataclass(frozen=True)
class Evaluation:
    """How a model does on some records. The figures depend on the records, without noise."""

    records: int
    loss: float
    accuracy: float | None = None  # None for a loss without classes
    client: str | None = None

    def __str__(self) -> str:
        right = "" if self.accuracy is None else f"accuracy {self.accuracy:.4f}, "
        return f"{right}loss {self.loss:.4f} on {self.records} records. {PRIVATE_FIGURES}"


@dataclass(frozen=True)
class ClientEvaluations:
    """How a model does on the records of each client: a diagnostic for those who may see the records."""

    rows: tuple[Evaluation, ...]

    def __iter__(self) -> Iterator[Evaluation]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        width = max(len("client"), *(len(row.client or "") for row in self.rows))
        lines = [f"{'client':{width}}  records  accuracy      loss"]
        for row in self.rows:
            right = "-" if row.accuracy is None else f"{row.accuracy:.4f}"
            lines.append(f"{row.client or '':{width}}  {row.records:7}  {right:>8}  {row.loss:8.4f}")
        return "\n".join([*lines, PRIVATE_FIGURES])


@dataclass(frozen=True, eq=False)
class Predictor:
    """A model with its parameters, and how records become its inputs."""

    task: str  # the name of what it was trained on
    model: Model
    params: PyTree
    input_shape: tuple[int, ...]
    classes: int
    reading: Reading | None = None

    @classmethod
    def of_task(cls, task: Task, params: PyTree) -> Self:
        """A model that was trained on a task."""
        data = task.data
        return cls(task.name, task.model, params, tuple(np.shape(data.x)[1:]), data.classes, data.reading)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes; their numbers where they have none."""
        names = self.reading.classes.names if self.reading else ()
        return names or tuple(str(number) for number in range(self.classes))

    def predict(self, x: Array) -> NDArray[Any]:
        """The most likely class of each record: its name, or its number where classes have no names."""
        best = np.argmax(self.scores(x), axis=1)
        return np.array(self.labels)[best] if self.reading and self.reading.classes.names else best

    def probabilities(self, x: Array) -> NDArray[np.float64]:
        """The probability of each class, [records, classes]."""
        return np.exp(_log_probabilities(self.scores(x)))

    def scores(self, x: Array) -> NDArray[np.float32]:
        """Logits, [records, classes], of a data frame with the columns of training, or of arrays like those."""
        return self.scores_of(self._inputs(x))

    def evaluate(self, x: Array, y: Array | None = None) -> Evaluation:
        """Loss and accuracy. `y` may be left out for a data frame that has the column of labels."""
        inputs = self._inputs(x)
        return self._evaluation(inputs, self._answers(x, y, len(inputs)))

    def evaluate_clients(self, task: Task) -> ClientEvaluations:
        """Loss and accuracy on the training records of each client of a task."""
        require(isinstance(task, Task), "task", type(task).__name__, "give a task of so.task")
        data = task.data
        same = tuple(np.shape(data.x)[1:]) == self.input_shape and data.classes == self.classes
        known = f"{self.input_shape} and {self.classes} classes: give the task of this run, or one that is read alike"
        require(same, "task", f"{np.shape(data.x)[1:]}, {data.classes} classes", f"the model takes records of {known}")
        alike = data.reading is None or self.reading is None or _alike(data.reading, self.reading)
        require(alike, "task", task.name, "was read with other columns, ranges or labels: give those of the run")
        names = data.names or tuple(f"client {number}" for number in range(task.clients))
        losses, right = self._each(data.x, data.y)
        return ClientEvaluations(tuple(_of_clients(data, names, losses, right)))

    def scores_of(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Logits of records in the model's own form."""
        if self.model.predict is None:
            raise InvalidInput(
                "predict", self.model.name, "this loss has no classes: use run.params with your function"
            )
        return np.asarray(_scores(self.params, jnp.asarray(inputs), predict=self.model.predict))

    def _inputs(self, x: Array) -> NDArray[Any]:
        """Records in the model's own form."""
        table = (
            x if isinstance(x, Table) else as_table("x", x) if is_frame(x) and not isinstance(x, np.ndarray) else None
        )
        if self.reading is not None and self.reading.features:
            columns = ", ".join(feature.name for feature in self.reading.features)
            if table is None:
                raise InvalidInput("x", type(x).__name__, f"give a data frame or a mapping with the columns {columns}")
            return self.reading.x(table)
        if table is not None:
            raise InvalidInput(
                "x", type(x).__name__, f"the model was trained on arrays of {self.input_shape}: give one"
            )
        inputs = features_of("x", x, self.reading.scale if self.reading else None)
        wanted = f"the model takes records of shape {self.input_shape}, stacked along a first axis"
        require(inputs.shape[1:] == self.input_shape, "x", f"shape {inputs.shape}", wanted)
        return inputs

    def _answers(self, x: Array, y: Array | None, records: int) -> NDArray[Any]:
        if y is None:
            if self.reading is None or not self.reading.features:
                raise InvalidInput("y", None, "give the labels, evaluate(x, y)")
            return self.reading.y(x if isinstance(x, Table) else as_table("x", x))
        values = values_of("y", y)
        require_length("y", values, records)
        if self.model.predict is None:
            return values
        classes = self.reading.classes if self.reading else Classes(self.classes)
        return classes.of("y", values)

    def _evaluation(self, inputs: NDArray[Any], y: NDArray[Any]) -> Evaluation:
        if self.model.predict is None:
            everything = Batch(jnp.asarray(inputs), jnp.asarray(y), jnp.ones(len(y)))
            return Evaluation(len(y), float(self.model.loss(self.params, everything)))
        losses, right = self._each(inputs, y)
        return Evaluation(len(y), float(losses.mean()), float(right.mean()))

    def _each(self, inputs: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The loss of each record, and whether its class is the most likely one."""
        scores = self.scores_of(inputs)
        losses = -_log_probabilities(scores)[np.arange(len(y)), y]
        return losses, np.argmax(scores, axis=1) == y


def _of_clients(
    data: FederatedData, names: tuple[str, ...], losses: NDArray[np.float64], right: NDArray[np.bool_]
) -> Iterator[Evaluation]:
    for name, start, size in zip(names, data.start, data.size, strict=True):
        mine = slice(int(start), int(start) + int(size))
        yield Evaluation(int(size), float(losses[mine].mean()), float(right[mine].mean()), name)


def _alike(one: Reading, other: Reading) -> bool:
    return (one.features, one.classes.names) == (other.features, other.classes.names)


@functools.partial(jax.jit, static_argnames="predict")
def _scores(params: PyTree, x: jax.Array, *, predict: Callable[[PyTree, jax.Array], jax.Array]) -> jax.Array:
    """Logits, in batches of one size, of which the last is filled with its last record."""
    size = min(BATCH, len(x))
    batches = math.ceil(len(x) / size)
    rows = jnp.minimum(jnp.arange(batches * size), len(x) - 1).reshape(batches, size)
    with jax.default_matmul_precision("highest"):
        scores = jax.lax.map(lambda part: predict(params, x[part]), rows)
    return scores.reshape(batches * size, -1)[: len(x)]


def _log_probabilities(scores: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = scores.astype(np.float64)
    wide = wide - wide.max(axis=1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
