"""A data set from a table: features, labels, clients and test records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sordino.data._assembly import assemble
from sordino.data._declared import Declared
from sordino.data._records import Dataset
from sordino.data._table import Column, Table
from sordino.errors import InvalidInput, require

SPLIT = "split"  # the column that says which records are for testing


def of_table(
    name: str, table: Table, declared: Declared, *, test_share: float | None = None, split_seed: int = 0
) -> Dataset:
    """The data set of a table, with its reading."""
    reading = declared.settle(table)
    owners = None if reading.client is None else owners_of(table, reading.client)
    test = _test_rows(table, test_share) if SPLIT in table.columns else None
    x, y = reading.x(table), reading.y(table)
    made = assemble(name, x, y, reading, owners=owners, test=test, test_share=test_share, split_seed=split_seed)
    reading.warn_of_cuts(table)  # last: what is refused is one line
    return made


def owners_of(table: Table, client: str) -> NDArray[np.str_]:
    """The client of every row; any word is a name, also one that spells a missing value elsewhere."""
    named = tuple(set(np.char.strip(table.column("client", client).words).tolist()) - {""})
    return table.words(client, known=named)


def _test_rows(table: Table, share: float | None) -> NDArray[np.bool_]:
    require(share is None, "test_share", share, f"{table.source} has a column {SPLIT}: leave one of the two out")
    words = table.columns[SPLIT].words
    for row, word in enumerate(words):
        if word not in ("train", "test"):
            raise InvalidInput(table.place(row, SPLIT), str(word), "write train or test, or give it another name")
    return words == "test"


def with_column(table: Table, name: str, values: NDArray[Any], option: str) -> Table:
    """The table with one more column, which a user gave beside it."""
    one = values.ndim == 1 and values.dtype.kind in "iufbU"
    require(one, option, f"{values.dtype}{list(values.shape)}", "give one number or word for each record")
    require(len(values) == len(table), option, len(values), f"give one value for each of the {len(table)} records")
    require(name not in table.columns, option, name, "there is a column of this name: rename it, or name the column")
    column = Column(values if values.dtype.kind in "biuU" else values.astype(np.float64))
    return replace(table, columns=table.columns | {name: column})
