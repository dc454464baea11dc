"""A reading: how the rows of a table become features and labels.

It is settled once, when the training records are read, and kept with the run, so that other records are read alike. It
is made of what a user has declared: columns, public ranges, categories, constants for missing values, names of labels.
Categories and labels that are not declared are counted in the records; `counted` names their columns, and certificates
warn. No mean, deviation, quantile or other statistic is computed.

    a number       itself, or mapped from its declared range to [-1, 1] and clipped to it
    a word         one column for each category, 1 where the record has it
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sordino.data._labels import Classes, is_number
from sordino.data._records import Features, Labels
from sordino.data._scaling import to_unit
from sordino.data._spelling import number_key
from sordino.data._table import Table
from sordino.errors import InvalidInput, SordinoWarning


@dataclass(frozen=True)
class Number:
    """A column of numbers."""

    name: str
    range: tuple[float, float] | None = None
    missing: float | None = None

    @property
    def width(self) -> int:
        return 1

    def of(self, table: Table) -> NDArray[np.float64]:
        """The feature, [records, 1]."""
        values = table.numbers(self.name, self.missing)
        return (values if self.range is None else to_unit(values, *self.range))[:, None]

    def outside(self, table: Table) -> int:
        """How many records lie outside of the declared range."""
        if self.range is None:
            return 0
        values = table.numbers(self.name, self.missing)
        return int(np.count_nonzero((values < self.range[0]) | (values > self.range[1])))


@dataclass(frozen=True)
class Word:
    """A column of words."""

    name: str
    categories: tuple[str, ...]
    missing: str | None = None
    counted: bool = False

    @property
    def width(self) -> int:
        return len(self.categories)

    def of(self, table: Table) -> NDArray[np.float64]:
        """An indicator of each category, [records, categories]."""
        words = table.words(self.name, self.categories, self.missing)
        if all(is_number(category) for category in self.categories):  # 1.0 is the category 1
            spelt = {number_key(category): category for category in self.categories}
            words = np.array([spelt.get(number_key(word), word) for word in words.tolist()], dtype=str)
        which = words[:, None] == np.array(self.categories)
        remedy = f"is not a category of this column: correct it, or declare it; known are {', '.join(self.categories)}"
        table.refuse(~which.any(axis=1), self.name, remedy)
        return which.astype(np.float64)


Feature: TypeAlias = Number | Word


@dataclass(frozen=True)
class Reading:
    """How rows become features and labels; without features, records are arrays and only labels are read."""

    classes: Classes
    features: tuple[Feature, ...] = ()
    label: str = "label"
    client: str | None = None
    encoding: str = "utf-8"
    delimiter: str = ","
    scale: float | None = None  # bytes of images are divided by it, 255; None if the run was trained on none

    @property
    def counted(self) -> tuple[str, ...]:
        """The columns whose words were counted in the records."""
        words = [feature.name for feature in self.features if isinstance(feature, Word) and feature.counted]
        return (*words, *([self.label] if self.classes.counted and self.classes.names else []))

    def x(self, table: Table) -> Features:
        """The features of every row."""
        self.require_columns(table)
        return np.concatenate([feature.of(table) for feature in self.features], axis=1).astype(np.float32)

    def require_columns(self, table: Table) -> None:
        """Every feature has its column."""
        for feature in self.features:
            table.column("columns", feature.name)

    def y(self, table: Table) -> Labels:
        """The label of every row."""
        column = table.column("label", self.label)
        missing = column.missing & ~np.isin(column.words, self.classes.names)
        table.refuse(missing, self.label, "is missing: every record needs a label, so leave such records out")
        place = functools.partial(table.place, name=self.label)
        return self.classes.of(f"{table.source}: {self.label}", column.values, place)

    def warn_of_cuts(self, table: Table) -> None:
        """Say on this machine how many values lie outside of their declared ranges. Nothing keeps the counts."""
        self.require_columns(table)
        numbers = [feature for feature in self.features if isinstance(feature, Number)]
        cut = [f"{each.name} in {count} of {len(table)} records" for each in numbers if (count := each.outside(table))]
        if cut:
            text = (
                f"{table.source}: values outside of their declared ranges are cut to the ends: {', '.join(cut)}. "
                "Correct values that are wrong. Do not widen a range because of this warning: it would then depend on "
                "the records. (Computed from private data.)"
            )
            warnings.warn(text, SordinoWarning, stacklevel=4)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """From plain values."""
        try:
            given = dict(values)
            classes = given.pop("classes")
            named = Classes(classes["number"], tuple(classes["names"]), classes["counted"])
            return cls(named, tuple(_feature(each) for each in given.pop("features")), **given)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput("reading", type(error).__name__, f"is damaged ({error}): restore the run") from None


def _feature(values: Mapping[str, Any]) -> Feature:
    if "categories" in values:
        return Word(**{**values, "categories": tuple(values["categories"])})
    span = values["range"]
    return Number(values["name"], None if span is None else (float(span[0]), float(span[1])), values["missing"])
