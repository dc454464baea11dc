"""The records that the library trains on, before and after their partition into clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sordino.data.on_disk import RecordFolder
    from sordino.data.reading import Reading

Features: TypeAlias = NDArray[Any]  # float32 [N, ...], or int32 [N, length] for text
Labels: TypeAlias = NDArray[np.int32]


class Dataset(NamedTuple):
    """The records of one data set, before their partition into clients."""

    name: str
    x: Features
    y: Labels
    x_test: Features
    y_test: Labels
    classes: int
    client: NDArray[np.int32] | None = None  # the natural client of each training record, if there are any
    client_names: tuple[str, ...] = ()
    classes_counted: bool = False  # whether `classes` is the largest label plus one, and so depends on the labels
    tests_clients: bool | None = False  # whether natural clients hold the test records too; None if unknown
    tests_held_out: bool | None = False  # whether test records were held out of private data; None: unknown
    black: tuple[float, ...] = (0.0,)  # a black pixel, by channel; negative in standardised images
    overlapping: bool = False  # whether records share raw data, such as windows of one text
    split_by_label: bool = False  # whether the label of a record can change which other records are test records
    reading: Reading | None = None  # how rows of a table became these records

    def __repr__(self) -> str:
        return f"Dataset {self.name}: {_counts(self.x, self.x_test, self.classes)}"


class FederatedData(NamedTuple):
    """Records sorted by client, so that client i is the slice start[i] : start[i] + size[i]."""

    x: Features
    y: NDArray[Any]  # labels; problems without classes may use it for other numbers
    start: NDArray[np.integer[Any]]
    size: NDArray[np.integer[Any]]
    x_test: Features
    y_test: NDArray[Any]
    classes: int
    names: tuple[str, ...] = ()  # of the clients, if they have names
    classes_counted: bool = False  # as of the data set
    tests_clients: bool | None = False
    tests_held_out: bool | None = False  # as of the data set
    overlapping: bool = False
    dealt_anew: bool = False  # whether the records of natural clients were given to other clients
    dealt_by_label: bool = False  # whether the label of a record can change the client or the split of others
    reading: Reading | None = None
    folder: RecordFolder | None = None  # where x and y stay on the disk, and are read by cohorts

    def __repr__(self) -> str:
        return f"FederatedData: {len(self.size)} clients, {_counts(self.x, self.x_test, self.classes)}"


def _counts(x: Features, x_test: Features, classes: int) -> str:
    """What is printed of records, in place of the records."""
    return f"{len(x)} records, {len(x_test)} test records, {classes or 'no'} classes"
