"""Tables from Parquet files, and from data frames of any library that hands over Arrow data (pandas, polars, ...).

The index of a data frame is not a column: write `frame.reset_index()` to use it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from sordino.data._table import UNNAMED, Column, Table, text_column
from sordino.errors import InvalidInput, require

if TYPE_CHECKING:
    import pyarrow


@runtime_checkable
class ArrowStream(Protocol):
    """Data frames of pandas (2.2 and newer) and polars, and Arrow tables."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@runtime_checkable
class Interchange(Protocol):
    """Data frames of older libraries."""

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> object: ...


Frame = ArrowStream | Interchange | Mapping[str, Any]


def read_parquet(file: str) -> Table:
    """The rows of a Parquet file."""
    import pyarrow.parquet

    path = Path(file).expanduser()
    require(not path.is_dir(), "parquet", file, "is a folder: give a Parquet file")
    require(path.is_file(), "parquet", file, "no such file: check the path")
    try:
        table = pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise InvalidInput("parquet", file, f"is not readable ({_first_line(error)}): write it anew") from None
    return table_of(file, table)


def is_frame(value: object) -> bool:
    """Whether a value is a table, or a mapping from names to columns."""
    return isinstance(value, ArrowStream | Interchange | Mapping)


def as_table(source: str, frame: Frame) -> Table:
    """A data frame, an Arrow table, or a mapping from names to columns."""
    import pyarrow

    try:
        if isinstance(frame, Mapping):
            table = pyarrow.table({str(name): _listed(values) for name, values in frame.items()})
        elif isinstance(frame, ArrowStream):
            table = pyarrow.table(frame)
        else:
            from pyarrow.interchange import from_dataframe

            table = from_dataframe(frame)
    except (pyarrow.ArrowException, ValueError, TypeError, NotImplementedError, RuntimeError) as error:
        remedy = f"cannot be read as a table ({_first_line(error)}): give columns of numbers or words, equally long"
        raise InvalidInput(source, type(frame).__name__, remedy) from None
    return table_of(source, table)


def table_of(source: str, table: pyarrow.Table) -> Table:
    """An Arrow table, without the index of a data frame."""
    index = _index_of(table)
    names = [name for name in table.column_names if name not in index]
    for name in names:
        require(names.count(name) == 1, f"{source}: columns", name, "appears twice: give every column a name")
    require(table.num_rows > 0, f"{source}: records", 0, "holds no records: add some")
    columns = {name: _column(table.column(name)) for name in names}
    return Table(source, columns, np.arange(table.num_rows))


def _index_of(table: pyarrow.Table) -> set[str]:
    """The columns that pandas writes for its index."""
    described = (table.schema.metadata or {}).get(b"pandas")
    listed = json.loads(described).get("index_columns", []) if described else []
    return {name for name in listed if isinstance(name, str) and UNNAMED.fullmatch(name)} | {
        name for name in listed if isinstance(name, str) and name in table.column_names
    }


def _column(chunks: pyarrow.ChunkedArray) -> Column:
    import pyarrow
    from pyarrow import compute, types

    kind = chunks.type
    if types.is_dictionary(kind):
        chunks = chunks.cast(kind.value_type)
        kind = chunks.type
    absent = compute.is_null(chunks).to_numpy(zero_copy_only=False) if chunks.null_count else None
    if types.is_boolean(kind) and absent is None:
        return Column(chunks.to_numpy(zero_copy_only=False).astype(np.bool_))
    if types.is_boolean(kind):
        kind, chunks = pyarrow.string(), pyarrow.chunked_array([[_spelt(each) for each in chunks.to_pylist()]])
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind) or types.is_null(kind):
        words = ["" if value is None else value for value in chunks.to_pylist()]
        return text_column(words, absent)
    if types.is_integer(kind):  # kept whole: identifiers above 2^53 are alike as floats
        whole = chunks if absent is None else compute.fill_null(chunks, 0)
        return Column(whole.to_numpy(zero_copy_only=False), absent)
    if types.is_floating(kind):
        return Column(chunks.to_numpy(zero_copy_only=False).astype(np.float64), absent)
    if types.is_decimal(kind):
        return Column(np.array([np.nan if each is None else float(each) for each in chunks.to_pylist()]), absent)
    return Column(np.full(len(chunks), np.nan), absent, unusable=str(kind))


def _listed(values: object) -> object:
    """A column of a mapping, in a form that pyarrow takes."""
    return np.asarray(values).tolist() if isinstance(values, np.ndarray) else values


def _spelt(value: bool | None) -> str | None:
    return None if value is None else str(value)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
