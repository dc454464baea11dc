"""The records of one node: a .csv, .npz or .parquet file with named columns, read as `sordino run` reads them.

A node takes numbers alone, and counts nothing: words would have to be counted, and would give the nodes other shapes.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sordino.data._arrow import as_table, read_parquet
from sordino.data._csv import read_csv
from sordino.data._declared import Declared
from sordino.data._from_table import SPLIT
from sordino.data._labels import Classes
from sordino.data._table import Table
from sordino.data.in_memory import features_of, require_length, values_of
from sordino.data.reading import Word
from sordino.deploy.settings import DataSection
from sordino.errors import InvalidInput, require

TABLES = {".csv": read_csv, ".parquet": read_parquet}


class OwnRecords(NamedTuple):
    """x [records, ...] and y [records]."""

    x: NDArray[Any]
    y: NDArray[np.int32]


def read_records(section: DataSection, folder: Path) -> OwnRecords:
    """The records that a file's [data] names; a relative path starts at the folder of that file."""
    path = folder / Path(section.file).expanduser()
    require(path.is_file(), "data.file", str(path), "no such file: name a .csv, .npz or .parquet file")
    if path.suffix == ".npz":
        arrays = _npz(path)
        one = section.features[0] if section.features is not None and len(section.features) == 1 else ""
        if one in arrays and arrays[one].ndim > 1:
            return _of_arrays(section, path, arrays, one)
        wanted = arrays if section.features is None else [section.label, *section.features]
        return _of_table(section, as_table(str(path), {name: arrays[name] for name in wanted if name in arrays}))
    require(path.suffix in TABLES, "data.file", str(path), f"is none of {', '.join(TABLES)}, .npz")
    try:
        return _of_table(section, TABLES[path.suffix](str(path)))
    except InvalidInput as error:
        raise InvalidInput(
            "data.file" if error.field in ("csv", "parquet") else error.field, error.value, error.remedy
        ) from None


def _of_table(section: DataSection, table: Table) -> OwnRecords:
    for name in ("client", SPLIT) if section.features is None else ():
        remedy = (
            "every record of this file is this node's, and for training: leave the column out, or name the features"
        )
        require(name not in table.columns, f"{table.source}: column", name, remedy)
    reading = Declared(section.label, features=section.features, classes=section.classes).settle(table)
    words = [feature.name for feature in reading.features if isinstance(feature, Word)]
    remedy = "holds words: write numbers, one column of 0 and 1 for each category, the same way on every node"
    require(not words, f"{table.source}: column", ", ".join(words), remedy)
    return OwnRecords(reading.x(table), reading.y(table))


def _of_arrays(section: DataSection, path: Path, arrays: dict[str, NDArray[Any]], name: str) -> OwnRecords:
    """Records of any shape, in one array."""
    known = f"no such array in {path}: use one of {', '.join(arrays)}"
    require(section.label in arrays, "data.label", section.label, known)
    x, labels = (
        features_of(f"{path}: {name}", arrays[name]),
        values_of(f"{path}: {section.label}", arrays[section.label]),
    )
    require_length(f"{path}: {section.label}", labels, len(x))
    return OwnRecords(x.astype(np.float32), Classes(section.classes).of(f"{path}: {section.label}", labels))


def _npz(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InvalidInput("data.file", str(path), f"is not readable ({error})") from None
