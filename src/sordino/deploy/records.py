"""The records of one node: a .csv, .npz or .parquet file with named columns. Nothing is scaled by the data."""

from __future__ import annotations

import importlib
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sordino.data._csv import read_csv
from sordino.data._table import UNNAMED
from sordino.deploy.settings import DataSection
from sordino.errors import LARGEST_FLOAT32, InvalidInput, require


class OwnRecords(NamedTuple):
    """x [records, ...] and y [records]."""

    x: NDArray[Any]
    y: NDArray[np.int32]


def read_records(section: DataSection, folder: Path) -> OwnRecords:
    """The records that a file's [data] names; a relative path starts at the folder of that file."""
    path = folder / Path(section.file).expanduser()
    require(path.is_file(), "data.file", str(path), "no such file: name a .csv, .npz or .parquet file")
    readers = {".csv": _csv, ".npz": _npz, ".parquet": _parquet}
    remedy = f"is none of {', '.join(readers)}"
    require(path.suffix in readers, "data.file", str(path), remedy)
    columns = readers[path.suffix](path)
    if section.features is None:
        for name in columns:
            remedy = "is an index, not a feature: name the columns to use as features, or leave this one out"
            require(UNNAMED.fullmatch(name) is None, f"{path}: column", name, remedy)
    require(section.label in columns, "data.label", section.label, f"no such column in {path}: {', '.join(columns)}")
    names = section.features if section.features is not None else [name for name in columns if name != section.label]
    require(bool(names), "data.features", names, "name at least one column")
    for name in names:
        require(name in columns, "data.features", name, f"no such column in {path}: use some of {', '.join(columns)}")
        require(name != section.label, "data.features", name, "is the label: leave it out")
    parts = [_finite(path, name, columns[name]) for name in names]
    alike = len({part.shape for part in parts}) == 1
    require(alike, "data.features", [part.shape for part in parts], f"must be of one length: the columns of {path}")
    x = parts[0] if len(parts) == 1 and parts[0].ndim > 1 else np.stack(parts, axis=1)
    y = _finite(path, section.label, columns[section.label])
    require(len(y) > 0, "data.file", str(path), "holds no records")
    require(x.ndim >= 2 and len(x) == len(y), "data.file", str(path), "give one label for each record")
    whole = y.ndim == 1 and bool(np.all((y >= 0) & (y < section.classes) & (y == np.floor(y))))
    require(whole, "data.label", section.label, f"labels must be 0, ..., {section.classes - 1}")
    return OwnRecords(np.ascontiguousarray(x, np.float32), y.astype(np.int32))


def _csv(path: Path) -> dict[str, NDArray[Any]]:
    try:
        table = read_csv(str(path))
    except InvalidInput as error:
        raise InvalidInput("data.file" if error.field == "csv" else error.field, error.value, error.remedy) from None
    return {name: column.values for name, column in table.columns.items()}


def _npz(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InvalidInput("data.file", str(path), f"is not readable ({error})") from None


def _parquet(path: Path) -> dict[str, NDArray[Any]]:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise InvalidInput("data.file", str(path), "needs the package `pyarrow`: install it, or use .csv") from None
    try:
        table = parquet.read_table(path)
    except (OSError, ValueError) as error:
        raise InvalidInput("data.file", str(path), f"is not readable ({error})") from None
    return {name: table.column(name).to_numpy() for name in table.column_names}


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
