"""CSV files as tables of words. Whatever could be read in two ways is refused with what to write instead."""

from __future__ import annotations

import codecs
import csv
import io
from pathlib import Path

import numpy as np

from sordino.data._table import Table, text_column
from sordino.errors import InvalidInput, require

UTF8 = "utf-8"
MARK = "\ufeff"  # of the order of bytes


def read_csv(file: str, *, encoding: str = UTF8, delimiter: str = ",") -> Table:
    """The rows below a first line with the names of the columns."""
    path = Path(file).expanduser()
    require(not path.is_dir(), "csv", file, "is a folder: give a CSV file")
    require(path.is_file(), "csv", file, "no such file: check the path")
    one = isinstance(delimiter, str) and len(delimiter) == 1 and delimiter not in '\r\n"'
    require(one, "delimiter", delimiter, "must be one character, as , or ; or a tab")
    lines, numbers = _rows(file, _text(file, path.read_bytes(), encoding), delimiter)
    header = [name.strip() for name in lines[0]] if lines else []
    require(bool(lines), "csv", file, "is empty: write the names of the columns into the first line")
    if len(header) == 1:
        other = next((mark for mark in ";\t|" if mark in header[0]), None)
        require(other is None, f"{file}: columns", header[0], f"is one column: give delimiter = {other!r}")
    for name in header:
        remedy = "appears twice: give every column a name of its own"
        require(header.count(name) == 1, f"{file}: columns", name, remedy)
    rows = lines[1:]
    require(bool(rows), "csv", file, "holds no records: add one row for each record below the first line")
    remedy = f"write {len(header)} values, one for each column"
    for number, row in zip(numbers[1:], rows, strict=True):
        require(len(row) == len(header), f"{file}: row {number}", row, remedy)
        _require_no_record_within(f"{file}: row {number}", row, delimiter)
    columns = {name: text_column(values) for name, values in zip(header, zip(*rows, strict=True), strict=True)}
    return Table(file, columns, np.array(numbers[1:], np.int64))


def _require_no_record_within(field: str, row: list[str], delimiter: str) -> None:
    """Refuse a value with further lines that look like records: two quotes that were forgotten would hide them."""
    swallowed = next((value for value in row if delimiter in value.partition("\n")[2]), None)
    remedy = f"one value holds a line break and {delimiter!r}, as if a quote were not closed: write it in one line"
    require(swallowed is None, field, swallowed, remedy)


def _rows(file: str, text: str, delimiter: str) -> tuple[list[list[str]], list[int]]:
    """The rows that are not empty, and the lines on which they end."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows, numbers = [], []
    try:
        for row in reader:
            if row:
                rows.append(row)
                numbers.append(reader.line_num)
    except csv.Error as error:
        line = numbers[-1] + 1 if numbers else 1  # an open quote is noticed at the end of the file only
        remedy = f"line {line} is not the start of a CSV row ({error}): close its quotes, and double a quote within"
        raise InvalidInput("csv", file, remedy) from None
    return rows, numbers


def _text(file: str, contents: bytes, encoding: str) -> str:
    try:
        name = codecs.lookup(encoding).name
    except (LookupError, TypeError):
        raise InvalidInput("encoding", encoding, "is not known: use utf-8, latin-1, cp1252 or utf-16") from None
    if name == UTF8 and contents.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InvalidInput("csv", file, 'is UTF-16 text: give encoding = "utf-16"')
    try:
        text = contents.decode("utf-8-sig" if name == UTF8 else encoding)  # Excel writes a mark before its UTF-8
    except LookupError:
        raise InvalidInput("encoding", encoding, "is not an encoding of text: use utf-8, latin-1 or utf-16") from None
    except UnicodeError as error:
        start = error.start if isinstance(error, UnicodeDecodeError) else 0
        line = contents[:start].count(b"\n") + 1
        remedy = f'line {line} is not {name}: give its encoding, as encoding = "latin-1", or save the file as UTF-8'
        raise InvalidInput("csv", file, remedy) from None
    marked = text.startswith((MARK, codecs.BOM_UTF8.decode("latin-1")))
    remedy = f'{file} begins with a mark of another encoding: give encoding = "utf-8", or "utf-16"'
    require(not marked, "encoding", encoding, remedy)
    require("\0" not in text, "csv", file, "holds zero bytes, so it is not text: give a CSV file, or its encoding")
    return text
