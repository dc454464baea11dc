"""A table: named columns of words or of numbers, and where a value stands, for errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sordino.data._labels import BEYOND, as_words, numeric_words
from sordino.errors import LARGEST_FLOAT32, InvalidInput, require

# Spellings of a missing value; a declared category or label may have one of these names all the same.
MISSING = frozenset({"", "na", "n/a", "nan", "<na>", "null", "?"})
UNNAMED = re.compile(r"|Unnamed: \d+|__index_level_\d+__")
LONGEST = 1000  # characters of a word
FEWEST_ROW_NUMBERS = 10  # 0, 1, 2, ... in so many rows and more are no feature


@dataclass(frozen=True)
class Column:
    """Numbers, bool or str, one value a record; `absent` marks what a typed column does not hold."""

    values: NDArray[Any]
    absent: NDArray[np.bool_] | None = None
    unusable: str | None = None  # the type of a column that holds neither numbers nor words

    @property
    def words(self) -> NDArray[np.str_]:
        """The values as words."""
        return self.values if self.values.dtype.kind == "U" else as_words(self.values)

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Which values are missing, by their type or by their spelling."""
        if self.values.dtype.kind == "U":
            spelt = np.isin(np.char.lower(np.char.strip(self.values)), list(MISSING))
        else:
            spelt = np.isnan(self.values) if self.values.dtype.kind == "f" else np.zeros(len(self.values), np.bool_)
        return spelt if self.absent is None else spelt | self.absent

    @property
    def numeric(self) -> NDArray[np.bool_]:
        """Which values are numbers."""
        return numeric_words(self.values) if self.values.dtype.kind == "U" else np.ones(len(self.values), np.bool_)


def text_column(texts: Sequence[str], absent: NDArray[np.bool_] | None = None) -> Column:
    """A column of words; long texts are neither labels nor categories, and would fill the memory."""
    longest = max(map(len, texts), default=0)
    if longest > LONGEST:
        return Column(np.full(len(texts), np.nan), absent, unusable=f"text of up to {longest} characters")
    return Column(np.array(texts, dtype=str), absent)


@dataclass(frozen=True)
class Table:
    """Records in rows. `rows` are the numbers by which a user finds them: lines of a file, or 0, 1, ..."""

    source: str  # of errors: "patients.csv"
    columns: dict[str, Column]
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, option: str, name: str) -> Column:
        """A column by its name, which the user gave as `option`."""
        remedy = f"no such column: use one of {', '.join(name or repr(name) for name in self.columns)}"
        require(isinstance(name, str) and name in self.columns, f"{self.source}: {option}", name, remedy)
        return self._usable(name)

    def _usable(self, name: str) -> Column:
        column = self.columns[name]
        remedy = f"must hold numbers or words: write dates as numbers, arrays as npz: files; or ignore = [{name!r}]"
        require(column.unusable is None, f"{self.source}: column `{name}`", column.unusable, remedy)
        return column

    def place(self, row: int, name: str) -> str:
        """Where a value stands."""
        return f"{self.source}: row {self.rows[row]}, column `{name}`"

    def refuse(self, bad: NDArray[np.bool_], name: str, remedy: str) -> None:
        """Raise for the first bad value of a column."""
        wrong = np.flatnonzero(bad)
        if len(wrong):
            column, row = self.columns[name], int(wrong[0])
            absent = column.absent is not None and bool(column.absent[row])
            value = None if absent else column.values[row]
            raise InvalidInput(self.place(row, name), value.item() if isinstance(value, np.generic) else value, remedy)

    def numbers(self, name: str, instead: float | None = None) -> NDArray[np.float64]:
        """A column of finite numbers; `instead` takes the place of missing ones."""
        column = self._usable(name)
        missing = column.missing
        if instead is None:
            self._refuse_missing(missing, name, f"missing = {{{_key(name)} = 0.0}}")
        good = column.numeric | missing
        self.refuse(~good, name, "must be a finite number; or name the column in categories, or in ignore")
        values = np.full(len(self), 0.0 if instead is None else instead)
        values[~missing] = column.values[~missing].astype(np.float64)
        remedy = "must be a finite number, below 3e38: leave the record out, or correct it"
        self.refuse(~(np.abs(values) <= LARGEST_FLOAT32), name, remedy)
        return values

    def words(self, name: str, known: tuple[str, ...] = (), instead: str | None = None) -> NDArray[np.str_]:
        """A column of words; what is `known` is not missing, however it is spelt."""
        column = self._usable(name)
        if column.values.dtype.kind == "f":
            remedy = "is a float of 2^53 or more, which stands for several numbers: give whole numbers or words"
            self.refuse(np.abs(column.values) >= BEYOND, name, remedy)
        words = np.char.strip(column.words)
        missing = column.missing & ~np.isin(words, known) if known else column.missing
        if instead is None:
            self._refuse_missing(missing, name, f'missing = {{{_key(name)} = "..."}}')
            return words
        return np.where(missing, instead, words)

    def _refuse_missing(self, missing: NDArray[np.bool_], name: str, example: str) -> None:
        remedy = f"is missing: leave the record out, or give a public constant in its place, {example}"
        self.refuse(missing, name, remedy)

    def require_no_index(self, name: str) -> None:
        """Refuse a column of row numbers as a feature: a model would learn the order of the file."""
        remedy = (
            f"is an index, not a feature: write the file without it (index=False), or ignore = [{name!r}]"
            if UNNAMED.fullmatch(name)
            else f"numbers the rows: it is not a feature, so ignore = [{name!r}]; name it in features to keep it"
        )
        column = self.columns[name]
        counts = len(self) >= FEWEST_ROW_NUMBERS and bool(column.numeric.all() and not column.missing.any())
        if counts:
            values = column.values.astype(np.float64)
            counts = values[0] in (0, 1) and bool((values == values[0] + np.arange(len(self))).all())
        require(not UNNAMED.fullmatch(name) and not counts, f"{self.source}: columns", name, remedy)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'
