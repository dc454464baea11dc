"""What the rest of the library trains on: records, before and after they are dealt to clients."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Dataset", "Features", "FederatedData", "Labels"]

Features: TypeAlias = NDArray[Any]  # float32 [N, ...], or int32 [N, length] for text
Labels: TypeAlias = NDArray[np.int32]


class Dataset(NamedTuple):
    """The records of one data set, before they are dealt to clients."""

    name: str
    x: Features
    y: Labels
    x_test: Features
    y_test: Labels
    classes: int
    client: NDArray[np.int32] | None = None  # the natural client of each training record, where there is one
    client_names: tuple[str, ...] = ()
    classes_counted: bool = False  # whether `classes` is one more than the largest label: then it tells of the labels
    tests_clients: bool | None = False  # whether the test records are natural clients' too; None: nobody can tell
    black: tuple[float, ...] = (0.0,)  # a black pixel of images, by channel: standardised ones have it below 0
    overlapping: bool = False  # whether records share what they are made of, as windows of one text do
    split_by_label: bool = False  # whether one record's label may decide which others are test records


class FederatedData(NamedTuple):
    """Records sorted by client, so that client i is the slice start[i] : start[i] + size[i]."""

    x: Features
    y: NDArray[Any]  # labels; a problem without classes may keep anything here
    start: NDArray[np.int32]
    size: NDArray[np.int32]
    x_test: Features
    y_test: NDArray[Any]
    classes: int
    names: tuple[str, ...] = ()  # of the clients, where they have any
    classes_counted: bool = False  # as of the data set
    tests_clients: bool | None = False
    overlapping: bool = False
    dealt_anew: bool = False  # whether records of natural clients were dealt to others
    dealt_by_label: bool = False  # whether one record's label may decide who holds others, or which are test records
