"""What a user declares of a table, and the reading that follows from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sordino.data._labels import as_word, declared_words, settle_classes
from sordino.data._table import Table
from sordino.data.reading import Feature, Number, Reading, Word
from sordino.errors import require

MOST_CATEGORIES = 100  # that are counted; more are names, or free text


@dataclass(frozen=True)
class Declared:
    """What a user says of a table; see docs/own_data.md."""

    label: str = "label"
    client: str | None = None
    features: str | Sequence[str] | None = None
    ignore: Sequence[str] = ()
    labels: Sequence[object] | None = None
    classes: int | None = None
    categories: Mapping[str, Sequence[object]] | None = None
    ranges: Mapping[str, Sequence[float]] | None = None
    missing: Mapping[str, float | str] | None = None
    encoding: str = "utf-8"
    delimiter: str = ","

    def __post_init__(self) -> None:
        """Refuse what could not be meant for any table."""
        for field, table in (("categories", self.categories), ("ranges", self.ranges), ("missing", self.missing)):
            remedy = f"give a table by columns, {field} = {{COLUMN = ...}}"
            require(table is None or isinstance(table, Mapping), field, table, remedy)
        for field, names in (("features", self.features), ("ignore", self.ignore)):
            listed = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
            good = names is None or listed or (field == "features" and isinstance(names, str))
            require(good, field, names, "give a list of names of columns")

    def settle(self, table: Table) -> Reading:
        """The reading of this table."""
        label = table.column("label", self.label)
        client = self.client_of(table)
        names = list(self._features(table, client))
        self._require_used(table, names)
        features = tuple(self._feature(table, name) for name in names)
        field = f"{table.source}: {self.label}"
        named = () if self.labels is None else declared_words("labels", self.labels)
        missing = label.missing & ~np.isin(label.words, named)
        table.refuse(missing, self.label, "is missing: every record needs a label, so leave such records out")
        classes = settle_classes(field, label.values, labels=self.labels, classes=self.classes)
        return Reading(classes, features, self.label, client, self.encoding, self.delimiter)

    def client_of(self, table: Table) -> str | None:
        """The column that names the client of each record, if there is one."""
        if self.client is None:
            return "client" if "client" in table.columns else None
        table.column("client", self.client)
        require(self.client != self.label, "client", self.client, "is the column of the labels: name another")
        return self.client

    def _features(self, table: Table, client: str | None) -> Iterator[str]:
        """The columns that become features, in the order of the table or of `features`."""
        taken = {self.label: "the label", client: "the client", "split": "the split"}
        if self.features is not None:
            chosen = [self.features] if isinstance(self.features, str) else list(self.features)
            require(bool(chosen), "features", chosen, "name at least one column, or leave it out for all others")
            for name in chosen:
                table.column("features", name)
                require(chosen.count(name) == 1, "features", name, "appears twice: name each column once")
                require(name not in (self.label, client), "features", name, f"is {taken.get(name)}: leave it out")
            yield from chosen
            return
        for name in self.ignore:
            require(name in table.columns, "ignore", name, f"no such column in {table.source}: leave it out")
        left = [name for name in table.columns if name not in taken and name not in self.ignore]
        remedy = "there are no features: add columns of numbers or words"
        require(bool(left), f"{table.source}: columns", list(table.columns), remedy)
        for name in left:
            table.require_no_index(name)
            yield name

    def _require_used(self, table: Table, names: Sequence[str]) -> None:
        """Every column that is declared is a feature, and is declared as one kind."""
        for field, given in (("categories", self.categories), ("ranges", self.ranges), ("missing", self.missing)):
            for name in given or {}:
                table.column(field, name)
                require(name in names, field, name, "is not a feature: leave it out, or name it in features")
        both = sorted(set(self.categories or {}) & set(self.ranges or {}))
        require(not both, "ranges", both, "have categories too: a column holds numbers or words, so leave one out")

    def _feature(self, table: Table, name: str) -> Feature:
        missing = None if self.missing is None else self.missing.get(name)
        if self.categories is not None and name in self.categories:
            categories = declared_words(f"categories.{name}", self.categories[name])
            return Word(name, categories, _constant(name, missing, categories))
        if self.ranges is not None and name in self.ranges:
            low, high = _range(name, self.ranges[name])
            instead = _number(name, missing)
            within = instead is None or low <= instead <= high
            require(
                within, f"missing.{name}", missing, f"lies outside of its range, [{low:g}, {high:g}]: give one within"
            )
            return Number(name, (low, high), instead)
        column = table.column("features", name)
        known = ~column.missing
        numeric = column.numeric & known if column.values.dtype.kind != "b" else np.zeros(len(table), np.bool_)
        if numeric.any() or not known.any():  # a word among numbers is a mistake, which reading the column refuses
            return Number(name, None, _number(name, missing))
        if column.values.dtype.kind == "b":
            return Word(name, ("False", "True"), _constant(name, missing, ("False", "True")))
        counted = tuple(str(word) for word in np.unique(np.char.strip(column.words)[known]))
        if missing is not None and str(missing) not in counted:
            counted = (*counted, str(missing))
        few = len(counted) <= MOST_CATEGORIES
        remedy = f"has {len(counted)} different words: ignore it, or declare categories = {{COLUMN = [...]}}"
        require(few, f"{table.source}: column `{name}`", counted[0], remedy)
        return Word(name, counted, None if missing is None else str(missing), counted=True)


def _range(name: str, span: object) -> tuple[float, float]:
    remedy = "give two numbers, [low, high], that are known without looking at the records"
    pair = isinstance(span, list | tuple) and len(span) == 2
    numbers = tuple(span) if pair and isinstance(span, list | tuple) else ()
    good = all(isinstance(end, int | float) and not isinstance(end, bool) for end in numbers)
    require(pair and good, f"ranges.{name}", span, remedy)
    low, high = float(numbers[0]), float(numbers[1])
    require(-np.inf < low < high < np.inf, f"ranges.{name}", span, "low must lie below high, and both be finite")
    wide = bool(np.finfo(np.float32).tiny <= high - low < np.inf)
    require(wide, f"ranges.{name}", span, "numbers cannot be mapped from it: its width must be finite, and not tiny")
    return low, high


def _number(name: str, missing: object) -> float | None:
    if missing is None:
        return None
    number = isinstance(missing, int | float) and not isinstance(missing, bool) and bool(np.isfinite(missing))
    require(number, f"missing.{name}", missing, "the column holds numbers: give a finite number")
    return float(missing) if isinstance(missing, int | float) else None


def _constant(name: str, missing: object, categories: tuple[str, ...]) -> str | None:
    if missing is None:
        return None
    word = as_word(missing)
    require(word in categories, f"missing.{name}", missing, f"is not a category: use one of {', '.join(categories)}")
    return word
