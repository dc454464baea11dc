"""The records of one node: a .csv, .npz or .parquet file with named columns, read as `sordino run` reads them.

A node counts nothing: words must be declared, since two nodes could count different ones and so have other shapes.
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
from sordino.deploy.settings import DataSection, NodeFile, ServerFile
from sordino.errors import InvalidInput, require

OF_TEXT = {"encoding", "delimiter"}
OF_TABLES = {"ignore", "labels", "categories", "ranges", "missing"}


class OwnRecords(NamedTuple):
    """x [records, ...] and y [records]."""

    x: NDArray[Any]
    y: NDArray[np.int32]


def node_records(settings: NodeFile, folder: Path) -> OwnRecords:
    """The records of a node, whose number its budget's delta must suit."""
    with settings.naming("data"):
        found = read_records(settings.data, folder)
    settings.require_delta(len(found.y))
    return found


def server_records(settings: ServerFile, folder: Path) -> OwnRecords | None:
    """The server's own records, if it has any."""
    if settings.test is None:
        return None
    with settings.naming("test"):
        return read_records(settings.test, folder)


def read_records(section: DataSection, folder: Path) -> OwnRecords:
    """The records that a file's [data] names; a relative path starts at the folder of that file."""
    path = folder / Path(section.file).expanduser()
    missing = "is a folder: name" if path.is_dir() else "no such file: name"
    require(path.is_file(), "file", str(path), f"{missing} a .csv, .npz or .parquet file")
    require(path.suffix in (".csv", ".parquet", ".npz"), "file", str(path), "is none of .csv, .parquet, .npz")
    if path.suffix != ".csv":
        _require_left_out(section, OF_TEXT, "is for .csv files")
    if path.suffix == ".npz":
        arrays = _npz(path)
        one = section.features[0] if section.features is not None and len(section.features) == 1 else ""
        if one in arrays and arrays[one].ndim > 1:
            return _of_arrays(section, path, arrays, one)
        wanted = arrays if section.features is None else [section.label, *section.features]
        return _of_table(section, as_table(str(path), {name: arrays[name] for name in wanted if name in arrays}))
    try:
        if path.suffix == ".parquet":
            return _of_table(section, read_parquet(str(path)))
        return _of_table(section, read_csv(str(path), encoding=section.encoding, delimiter=section.delimiter))
    except InvalidInput as error:
        raise InvalidInput(
            "file" if error.field in ("csv", "parquet") else error.field, error.value, error.remedy
        ) from None


def _of_table(section: DataSection, table: Table) -> OwnRecords:
    remedy = "a node trains on all of its records: leave out those for testing, and this column"
    require(SPLIT not in table.columns, f"{table.source}: columns", SPLIT, remedy)
    named = section.labels is not None
    remedy = f"there are {section.classes} classes: name each of them once"
    require(section.labels is None or len(section.labels) == section.classes, "labels", section.labels, remedy)
    reading = Declared(
        section.label,
        features=section.features,
        ignore=section.ignore,
        labels=section.labels,
        classes=None if named else section.classes,
        categories=section.categories,
        ranges=section.ranges,
        missing=section.missing,
    ).settle(table)
    remedy = "holds words: declare them, categories = { COLUMN = [...] }, the same way on every node"
    require(not reading.counted, f"{table.source}: column", ", ".join(reading.counted), remedy)
    reading.warn_of_cuts(table)
    return OwnRecords(reading.x(table), reading.y(table))


def _of_arrays(section: DataSection, path: Path, arrays: dict[str, NDArray[Any]], name: str) -> OwnRecords:
    """Records of any shape, in one array."""
    _require_left_out(section, OF_TABLES, f"is for columns, and {name} is one array of all features")
    known = f"no such array in {path}: use one of {', '.join(arrays)}"
    require(section.label in arrays, "label", section.label, known)
    x, labels = (
        features_of(f"{path}: {name}", arrays[name]),
        values_of(f"{path}: {section.label}", arrays[section.label]),
    )
    require_length(f"{path}: {section.label}", labels, len(x))
    return OwnRecords(x.astype(np.float32), Classes(section.classes).of(f"{path}: {section.label}", labels))


def _require_left_out(section: DataSection, options: set[str], why: str) -> None:
    for option, given in section.model_dump(include=options, exclude_defaults=True).items():
        raise InvalidInput(option, given, f"{why}: leave it out")


def _npz(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InvalidInput("file", str(path), f"is not readable ({error})") from None
