"""The records of one node: a .csv, .npz or .parquet file with named columns. Nothing is scaled by the data.

Tables are read as `sordino run` reads them (docs/own_data.md), but everything that decides the shape of the model must
be declared: the nodes of a study could count different words.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sordino.data._arrow import read_parquet
from sordino.data._csv import read_csv
from sordino.data._declared import Declared
from sordino.data._from_table import SPLIT
from sordino.data._table import Table
from sordino.deploy.settings import DataSection
from sordino.errors import LARGEST_FLOAT32, InvalidInput, require

OF_TEXT = {"encoding", "delimiter"}
OF_TABLES = {"ignore", "labels", "categories", "ranges", "missing"}
NOT_FOR = {".csv": set[str](), ".parquet": OF_TEXT, ".npz": OF_TEXT | OF_TABLES}  # options by kinds of files


class OwnRecords(NamedTuple):
    """x [records, ...] and y [records]."""

    x: NDArray[Any]
    y: NDArray[np.int32]


def read_records(section: DataSection, folder: Path) -> OwnRecords:
    """The records that a file's [data] names; a relative path starts at the folder of that file."""
    path = folder / Path(section.file).expanduser()
    require(path.is_file(), "data.file", str(path), "no such file: name a .csv, .npz or .parquet file")
    require(path.suffix in NOT_FOR, "data.file", str(path), f"is none of {', '.join(NOT_FOR)}")
    for option, given in section.model_dump(include=NOT_FOR[path.suffix], exclude_defaults=True).items():
        raise InvalidInput(f"data.{option}", given, f"is not for {path.suffix} files: leave it out")
    if path.suffix == ".npz":
        return _of_arrays(section, path)
    try:
        if path.suffix == ".parquet":
            return _of_table(section, read_parquet(str(path)))
        return _of_table(section, read_csv(str(path), encoding=section.encoding, delimiter=section.delimiter))
    except InvalidInput as error:
        raise InvalidInput(_field_of(error.field, path), error.value, error.remedy) from None


def _of_table(section: DataSection, table: Table) -> OwnRecords:
    remedy = "a node trains on all of its records: leave out those for testing, and this column"
    require(SPLIT not in table.columns, f"{table.source}: columns", SPLIT, remedy)
    named = section.labels is not None
    remedy = f"there are {section.classes} classes: name each of them once"
    require(section.labels is None or len(section.labels) == section.classes, "labels", section.labels, remedy)
    declared = Declared(
        section.label,
        features=section.features,
        ignore=section.ignore,
        labels=section.labels,
        classes=None if named else section.classes,
        categories=section.categories,
        ranges=section.ranges,
        missing=section.missing,
    )
    reading = declared.settle(table)
    if reading.counted:
        remedy = "holds words, which another node may not have: declare them, categories = { COLUMN = [...] }"
        raise InvalidInput("categories", reading.counted[0], remedy)
    reading.warn_of_cuts(table)
    return OwnRecords(reading.x(table), reading.y(table))


def _field_of(field: str, path: Path) -> str:
    """The option of [data] that is meant; a place in the file as it is."""
    option = field.removeprefix(f"{path}: ")
    if option in ("csv", "parquet"):
        return "data.file"
    return f"data.{option}" if option.partition(".")[0] in DataSection.model_fields else field


def _of_arrays(section: DataSection, path: Path) -> OwnRecords:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
            arrays = dict(held)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InvalidInput("data.file", str(path), f"is not readable ({error})") from None
    require(section.label in arrays, "data.label", section.label, f"no such array in {path}: {', '.join(arrays)}")
    names = section.features if section.features is not None else [name for name in arrays if name != section.label]
    require(bool(names), "data.features", names, "name at least one array")
    for name in names:
        require(name in arrays, "data.features", name, f"no such array in {path}: use some of {', '.join(arrays)}")
        require(name != section.label, "data.features", name, "is the label: leave it out")
    parts = [_finite(path, name, arrays[name]) for name in names]
    alike = len({part.shape for part in parts}) == 1
    require(alike, "data.features", [part.shape for part in parts], f"must be of one length: the arrays of {path}")
    x = parts[0] if len(parts) == 1 and parts[0].ndim > 1 else np.stack(parts, axis=1)
    y = _finite(path, section.label, arrays[section.label])
    require(len(y) > 0, "data.file", str(path), "holds no records")
    require(x.ndim >= 2 and len(x) == len(y), "data.file", str(path), "give one label for each record")
    whole = y.ndim == 1 and bool(np.all((y >= 0) & (y < section.classes) & (y == np.floor(y))))
    require(whole, "data.label", section.label, f"labels must be 0, ..., {section.classes - 1}")
    return OwnRecords(np.ascontiguousarray(x, np.float32), y.astype(np.int32))


def _finite(path: Path, name: str, values: NDArray[Any]) -> NDArray[np.float64]:
    try:
        numbers = values.astype(np.float64)
    except (ValueError, TypeError):
        raise InvalidInput(f"{path}: {name}", str(values[:1]), "must hold numbers") from None
    wrong = np.argwhere(~(np.abs(numbers) <= LARGEST_FLOAT32))
    if len(wrong):
        remedy = "write a finite number, as float32 holds it"
        raise InvalidInput(f"{path}: {name}, record {wrong[0][0] + 1}", float(numbers[tuple(wrong[0])]), remedy)
    return numbers
