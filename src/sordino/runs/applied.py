"""What can be done with a trained model, for a run that has just ended and for one that is read from its folder."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from sordino.data.in_memory import Array
from sordino.tasks import ClientEvaluations, Evaluation, Predictor, Task
from sordino.types import PyTree


class Applied:
    """Applies the model of a run."""

    def _trained(self) -> Predictor:
        raise NotImplementedError

    @property
    def params(self) -> PyTree:
        """The parameters of the model, as its `init` makes them."""
        return self._trained().params

    def predict(self, x: Array) -> NDArray[Any]:
        """The most likely class of each record: its name, or its number where classes have no names."""
        return self._trained().predict(x)

    def evaluate(self, x: Array, y: Array | None = None) -> Evaluation:
        """Loss and accuracy on records; a data frame with the column of labels needs no `y`."""
        return self._trained().evaluate(x, y)

    def evaluate_clients(self, task: Task) -> ClientEvaluations:
        """Loss and accuracy on the training records of each client: a private diagnostic."""
        return self._trained().evaluate_clients(task)
