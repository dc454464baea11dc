"""Records that a trained model is applied to, from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sordino.data._arrow import read_parquet
from sordino.data._csv import UTF8, read_csv
from sordino.data._table import Table
from sordino.data.own import read_npz
from sordino.data.reading import Reading
from sordino.errors import InvalidInput, require

TABLES = (".csv", ".parquet")


class NewRecords(NamedTuple):
    """What a file holds: a table, or arrays with labels if it has some; `rows` are numbers that its user knows."""

    x: Table | NDArray[Any]
    y: NDArray[Any] | None
    rows: NDArray[np.int64]


def read_records(file: str, reading: Reading | None, encoding: str | None = None) -> NewRecords:
    """Records of a .csv or .parquet file for a model that was trained on a table, of an .npz file for others."""
    kind, _, rest = file.partition(":")
    path = rest if kind in ("csv", "parquet", "npz") and rest else file
    suffix = Path(path).suffix.lower()
    remedy = "give a file that ends in .csv, .parquet or .npz"
    require(suffix in (*TABLES, ".npz"), "data", file, remedy)
    require(Path(path).expanduser().is_file(), "data", file, "no such file: check the path")
    require(encoding is None or suffix == ".csv", "encoding", encoding, "is for CSV files: leave it out")
    of_table = reading is not None and bool(reading.features)
    if suffix == ".npz":
        require(not of_table, "data", file, "the run was trained on a table: give a .csv or .parquet file")
        x, y = read_npz(Path(path).expanduser(), reading.scale if reading else None)
        return NewRecords(x, y, np.arange(len(x)))
    if not of_table or reading is None:
        raise InvalidInput("data", file, "the run was trained on arrays: give an .npz file with x and, to evaluate, y")
    if suffix == ".parquet":
        table = read_parquet(path)
    else:
        known = reading.encoding if encoding is None else encoding
        table = read_csv(path, encoding=known or UTF8, delimiter=reading.delimiter)
    reading.warn_of_cuts(table)
    return NewRecords(table, None, table.rows)
