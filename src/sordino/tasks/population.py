"""A population: who could take part, and what of it is public. A plan is made of this, never of data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sordino.errors import InvalidInput, require, require_count

Smoothness: TypeAlias = Callable[[float], float]  # a bound on features -> beta of one record's loss


@dataclass(frozen=True)
class DataFacts:
    """What the certificate must say because the data decided it outside of the rounds."""

    starts_near_data: bool = False  # the first model is made from the clients' data
    classes_counted: int | None = None  # the outputs of a model whose number was counted in the labels
    words_counted: tuple[str, ...] = ()  # columns whose words, or labels whose names, were counted in the records
    measured_on_clients: bool = False  # there is no test set apart from the clients' records
    tests_clients: bool | None = False  # whether the test set holds other records of the same clients; None: unknown
    tests_held_out: bool | None = False  # whether test records were held out of private data; None: unknown
    dealt_anew: bool = False  # the data have clients of their own, and others were made from their records
    dealt_by_label: bool = False
    overlapping: bool = False  # records overlap
    augmented: bool = False  # clients change their records at random before a gradient


@dataclass(frozen=True, eq=False)
class Population:
    """How many clients there are, how many parameters a message has, and what else is public about them."""

    d: int  # parameters of the model
    clients: int
    sizes: NDArray[np.int64] | None = None  # records of each client; plans that protect records need them
    names: tuple[str, ...] = ()  # of the clients, where they have some
    smoothness: Smoothness | None = None  # of the model, where it is known
    assignment: str = ""  # the rule that gave clients their records; "" where it is not known
    task_token: str = ""  # stands for the assignment where that is not known
    facts: DataFacts = DataFacts()

    def __post_init__(self) -> None:
        require_count(self.d, "d")
        require_count(self.clients, "clients")
        if self.sizes is None:
            return
        sizes = np.asarray(self.sizes)
        whole = sizes.ndim == 1 and np.issubdtype(sizes.dtype, np.integer)
        require(whole, "sizes", self.sizes, "give one whole number for each client")
        object.__setattr__(self, "sizes", sizes.astype(np.int64))
        same = len(self.sizes) == self.clients
        require(same, "sizes", len(self.sizes), f"give the number of records of each of the {self.clients} clients")
        if self.sizes.min() < 1:
            raise InvalidInput("sizes", int(self.sizes.min()), "every client must hold at least one record")

    @property
    def records(self) -> int | None:
        """The records of all clients."""
        return None if self.sizes is None else int(self.sizes.sum())
