"""A data set from records in memory: training and test records, and the clients that hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sordino.data._records import Dataset, Features
from sordino.data._spelling import client_names
from sordino.data._splitting import held_out
from sordino.data.reading import Reading
from sordino.errors import require, require_name

NOBODY = ""  # the owner of a test record of whom nothing is known


def assemble(
    name: str,
    x: Features,
    y: NDArray[Any],
    reading: Reading,
    *,
    owners: NDArray[np.str_] | None,
    test: NDArray[np.bool_] | None,
    test_share: float | None = None,
    test_apart: bool = False,
    split_seed: int = 0,
) -> Dataset:
    """A data set of these records.

    Args:
      name: of the data set.
      x: of training and of test records.
      y: their labels.
      reading: how they were read.
      owners: the client of each record; None if records are dealt later.
      test: which are test records; None to hold out a share of each client's.
      test_share: that share; None for no test records.
      test_apart: whether test records come from elsewhere than training records, so that they may be public.
      split_seed: of that choice; public.
    """
    owners = None if owners is None else client_names(f"{name}: client", owners)
    require(test is None or test_share is None, "test_share", test_share, "there are test records: leave one out")
    if test is None:
        require(test_share is not None or split_seed == 0, "split_seed", split_seed, "is for test_share: give a share")
        nobody = np.full(len(y), NOBODY)
        test = nobody != NOBODY
        if test_share is not None:
            test = held_out(nobody if owners is None else owners, test_share, split_seed)
    classes = reading.classes
    dataset = Dataset(name, x[~test], y[~test], x[test], y[test], classes.number, classes_counted=classes.counted)
    kept = bool(reading.features or classes.names or reading.scale)
    dataset = dataset._replace(reading=reading if kept else None, tests_clients=None)
    dataset = dataset._replace(tests_held_out=bool(test.any()) and (None if test_apart else True))
    require(len(dataset.y) > 0, "data set", name, "holds no training records: add some")
    if owners is None:
        return dataset
    names, owner = np.unique(owners[~test], return_inverse=True)
    clients = tuple(str(client) for client in names)
    for client in clients:
        require_name(f"{name}: client", client)
    testers = set(owners[test].tolist())
    tests = None if NOBODY in testers else not testers.isdisjoint(clients)
    return dataset._replace(client=owner.astype(np.int32), client_names=clients, tests_clients=tests)
