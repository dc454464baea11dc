"""Data sets of the Hugging Face hub, and data sets that come in partitions (flwr-datasets).

A column of arrays or images is chosen by `features`; bytes of images are scaled to [0, 1]. Columns of numbers and words
are read as a table.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias, TypeGuard, cast, runtime_checkable

import numpy as np

from sordino.data._arrow import as_table
from sordino.data._assembly import NOBODY, assemble
from sordino.data._declared import Declared
from sordino.data._labels import BEYOND, as_word, settle_classes
from sordino.data._records import Dataset, Features, Labels
from sordino.data.in_memory import features_of, require_length, values_of
from sordino.data.reading import Reading
from sordino.errors import InvalidInput, require, require_count

WHITE = 255.0  # the largest byte of an image
IMAGES = ("image", "img")  # columns that are the features if none is named


@runtime_checkable
class HubDataset(Protocol):
    """One split of a data set of the hub: columns by name."""

    @property
    def column_names(self) -> list[str]: ...
    def __getitem__(self, column: str, /) -> Sequence[object]: ...


@runtime_checkable
class Partitioned(Protocol):
    """Records in partitions, one a client: a FederatedDataset or a Partitioner of flwr-datasets."""

    def load_partition(self, partition_id: int, /) -> HubDataset: ...


@runtime_checkable
class Counted(Protocol):
    """Partitions whose number is known, as of a Partitioner."""

    @property
    def num_partitions(self) -> int: ...


@runtime_checkable
class WithPartitioners(Protocol):
    """A FederatedDataset: a Partitioner for each split."""

    @property
    def partitioners(self) -> Mapping[str, Counted]: ...


@runtime_checkable
class WithSplits(Protocol):
    """A FederatedDataset: whole splits by name."""

    def load_split(self, split: str, /) -> HubDataset: ...


@runtime_checkable
class Formatted(HubDataset, Protocol):
    """A split that can change its format, which a table of another library cannot."""

    def with_format(self, type: str | None = None, /) -> HubDataset: ...


HubData: TypeAlias = Partitioned | HubDataset | Mapping[str, HubDataset]


class Chosen(NamedTuple):
    """Which columns are used, and what they hold."""

    features: str | Sequence[str] | None = None
    label: str = "label"
    labels: Sequence[object] | None = None
    classes: int | None = None
    client: str | None = None  # a column that is no feature


def load_hugging_face(
    name: str,
    *,
    features: str | Sequence[str] | None = None,
    label: str = "label",
    client: str | None = None,
    labels: Sequence[object] | None = None,
    classes: int | None = None,
) -> Dataset:
    """A data set of the Hugging Face hub; needs the package `datasets`."""
    try:
        hub = importlib.import_module("datasets")
    except ImportError:
        raise InvalidInput("hf", name, "needs the package `datasets`: run `pip install datasets`") from None
    try:
        splits = hub.load_dataset(name)
    except Exception as error:  # the hub raises many types, for wrong names and for network errors
        reason = " ".join(str(error).split())
        raise InvalidInput("hf", name, f"could not be loaded ({reason}): check the name and the network") from error
    return of_splits(f"hf:{name}", splits, Chosen(features, label, labels, classes, client))


def of_splits(
    name: str,
    splits: Mapping[str, HubDataset],
    chosen: Chosen,
    test_share: float | None = None,
) -> Dataset:
    """A data set from its splits train and test."""
    require("train" in splits, "data set", name, f"has no split `train`, only {', '.join(splits)}: choose another")
    train, test = splits["train"], splits.get("test")
    client = chosen.client
    if client is None:
        return _dataset(name, train, test, chosen, None, None, test_share)
    _require_column(name, train, "client", client)
    tested = list(test[client]) if test is not None and client in test.column_names else None
    return _dataset(name, train, test, chosen, list(train[client]), tested, test_share)


def is_hub_data(value: object) -> TypeGuard[HubData]:
    """Whether a value is a data set of the hub, its splits, or comes in partitions."""
    return isinstance(value, Partitioned | Formatted) or _are_splits(value)


def _are_splits(value: object) -> TypeGuard[Mapping[str, HubDataset]]:
    return isinstance(value, Mapping) and isinstance(value.get("train"), HubDataset)


def from_hub(
    data: HubData,
    clients: int | None = None,
    *,
    features: str | Sequence[str] | None = None,
    label: str = "label",
    client: str | None = None,
    labels: Sequence[object] | None = None,
    classes: int | None = None,
    test: HubDataset | None = None,
    test_share: float | None = None,
) -> Dataset:
    """A data set of the hub in memory.

    Args:
      data: a data set of `datasets`, its splits, or anything with `load_partition`, whose partitions are the clients.
      clients: how many partitions there are, where the object does not say.
      features: the column of images or arrays, or several columns of numbers and words; `image` or `img` if left out,
        or all columns where neither is there.
      label: the column of the labels.
      client: the column that names the client of each record.
      labels: the names of the classes, in their order.
      classes: how many there are, where labels are numbers.
      test: the test records, where `data` holds none.
      test_share: the share of each client's records that is held out instead.
    """
    chosen = Chosen(features, label, labels, classes, client)
    if isinstance(data, Partitioned):
        require(client is None, "client", client, "partitions are the clients: leave it out")
        return _of_partitions(data, clients, chosen, test, test_share)
    splits = data if _are_splits(data) else {"train": cast(HubDataset, data)}
    if test is not None:
        require("test" not in splits, "test", type(test).__name__, "there is a split `test`: leave it out")
        splits = {**splits, "test": test}
    return of_splits("hub", splits, chosen, test_share)


def _of_partitions(
    source: Partitioned, clients: int | None, chosen: Chosen, test: HubDataset | None, test_share: float | None
) -> Dataset:
    """The client of a partition is named after its number."""
    first = _partition(source, 0)
    number = _number_of(source) if clients is None else clients
    require_count(number, "clients", "say how many partitions there are, clients=10")
    parts = [first, *(_partition(source, place) for place in range(1, number))]
    columns = {name: [value for part in parts for value in part[name]] for name in first.column_names}
    owners = [f"partition {place}" for place, part in enumerate(parts) for _ in part[first.column_names[0]]]
    if test is None and test_share is None:
        test = _test_of(source)
    return _dataset("partitions", _Columns(columns), test, chosen, owners, None, test_share)


class _Columns(dict[str, list[object]]):
    @property
    def column_names(self) -> list[str]:
        return list(self)


def _partition(source: Partitioned, number: int) -> HubDataset:
    try:
        part = source.load_partition(number)
    except Exception as error:  # partitioners raise many types
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InvalidInput("clients", number + 1, f"partition {number} cannot be loaded ({reason})") from None
    named = isinstance(part, HubDataset) and bool(part.column_names)
    require(named, f"partition {number}", type(part).__name__, "must have columns, as a data set of the hub has")
    return part


def _number_of(source: Partitioned) -> int:
    if isinstance(source, Counted):
        return source.num_partitions
    if isinstance(source, WithPartitioners):
        partitioners = source.partitioners
        if "train" in partitioners:
            return partitioners["train"].num_partitions
    raise InvalidInput("clients", None, "say how many partitions there are, clients=10")


def _test_of(source: Partitioned) -> HubDataset | None:
    """The whole test split, where there is one."""
    if not isinstance(source, WithSplits):
        return None
    try:
        return source.load_split("test")
    except Exception:  # there is none: the task then asks for test_share
        return None


def _dataset(
    name: str,
    train: HubDataset,
    test: HubDataset | None,
    chosen: Chosen,
    owners: Sequence[object] | None,
    test_owners: Sequence[object] | None,
    test_share: float | None = None,
) -> Dataset:
    """The records of both splits, read alike."""
    splits = [train] if test is None else [train, test]
    for split in splits:
        _require_column(name, split, "label", chosen.label)
    column = _array_column(name, train, chosen)
    if column is None:
        x, y, reading = _columns(name, splits, chosen)
    else:
        x, y, reading = _arrays(name, splits, column, chosen)
    records = len(train[chosen.label])
    held = None if test is None else np.arange(len(y)) >= records
    whose = None
    if owners is not None:
        others = [NOBODY] * (len(y) - records) if test_owners is None else test_owners
        whose = np.array([_name(f"{name}: client", owner) for owner in (*owners, *others)])
    return assemble(name, x, y, reading, owners=whose, test=held, test_apart=held is not None, test_share=test_share)


def _name(field: str, owner: object) -> str:
    missing = owner is None or (isinstance(owner, float) and not abs(owner) < BEYOND)
    require(not missing, field, owner, "is missing, or too large for a float: give a word or a whole number")
    return as_word(owner)


def _columns(name: str, splits: Sequence[HubDataset], chosen: Chosen) -> tuple[Features, Labels, Reading]:
    """Columns of numbers and words."""
    names = [column for column in splits[0].column_names if column != chosen.client]
    columns = {column: [value for split in splits for value in split[column]] for column in names}
    table = as_table(name, columns)
    reading = Declared(chosen.label, None, chosen.features, (), chosen.labels, chosen.classes).settle(table)
    return reading.x(table), reading.y(table), reading


def _arrays(name: str, splits: Sequence[HubDataset], column: str, chosen: Chosen) -> tuple[Features, Labels, Reading]:
    """A column of arrays or images."""
    field = f"{name}: {column}"
    values = [np.asarray(value) for split in splits for value in split[column]]
    kinds = sorted({str(value.dtype) for value in values})
    images = "uint8" in kinds
    require(not images or len(kinds) == 1, field, ", ".join(kinds), "bytes are scaled and others not: give one type")
    try:
        stacked = np.stack(values)
    except ValueError:
        raise InvalidInput(field, "shapes", "records differ in shape: give them one shape") from None
    scale = WHITE if images else None
    x = features_of(field, stacked, scale)
    field = f"{name}: {chosen.label}"
    labels = values_of(field, [value for split in splits for value in split[chosen.label]])
    require_length(field, labels, len(x))
    classes = settle_classes(field, labels, labels=chosen.labels, classes=chosen.classes)
    return x, classes.of(field, labels), Reading(classes, label=chosen.label, scale=scale)


def _array_column(name: str, train: HubDataset, chosen: Chosen) -> str | None:
    """The column whose values are arrays, if the features are one."""
    if isinstance(chosen.features, str):
        _require_column(name, train, "features", chosen.features)
        return chosen.features if np.asarray(train[chosen.features][0]).ndim > 0 else None
    if chosen.features is None:
        return next((column for column in IMAGES if column in train.column_names), None)
    return None


def _require_column(name: str, split: HubDataset, option: str, column: str) -> None:
    remedy = f"no such column: use one of {', '.join(split.column_names)}"
    require(isinstance(column, str) and column in split.column_names, f"{name}: {option}", column, remedy)
