"""Data sets from arrays and data frames in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sordino.data._arrow import Frame as Frame
from sordino.data._arrow import as_table
from sordino.data._assembly import NOBODY, assemble
from sordino.data._declared import Declared
from sordino.data._from_table import of_table, with_column
from sordino.data._labels import Classes, as_words, settle_classes
from sordino.data._records import Dataset, Features
from sordino.data.reading import Reading
from sordino.errors import InvalidInput, require

Array: TypeAlias = Any  # whatever numpy.asarray takes: arrays, lists, columns of data frames, tensors
NAME = "own data"


def from_arrays(
    x: Array,
    y: Array,
    clients: Array | None = None,
    targets: bool = False,
    *,
    test: tuple[Array, Array] | None = None,
    test_share: float | None = None,
    split_seed: int = 0,
    labels: Sequence[object] | None = None,
    classes: int | None = None,
) -> Dataset:
    """A data set of arrays.

    Args:
      x: a row, or an array, for each record.
      y: its label: a class, as a whole number or as a word.
      clients: whose record it is, a name or a number for each; None if they are dealt later.
      targets: y holds numbers of a loss of one's own, not classes.
      test: (x, y) of the test records.
      test_share: the share of each client's records that is held out instead.
      split_seed: of that choice; public.
      labels: the names of the classes, in their order.
      classes: how many there are, where labels are numbers.
    """
    features = features_of("x", x)
    values = values_of("y", y)
    swapped = values.ndim > 1 and features.ndim == 1
    require(not swapped, "x", f"shape {features.shape}", "are x and y swapped? give the features first, so.task(x, y)")
    remedy = "give one row for each record: x.reshape(-1, 1) where a record is one number"
    require(features.ndim >= 2, "x", f"shape {features.shape}", remedy)
    require_length("y", values, len(features))
    owners = None if clients is None else _owners(clients, len(features))
    held = None
    if test is not None:
        x_test, y_test = _test_pair(test, features)
        held = np.arange(len(features) + len(x_test)) >= len(features)
        features, values = np.concatenate([features, x_test]), _joined(values, y_test)
        owners = None if owners is None else np.concatenate([owners, np.full(len(x_test), NOBODY)])
    answers: NDArray[Any]
    if targets:
        require(values.dtype.kind in "iufb", "y", str(values.dtype), "must be numbers for a loss of your own")
        settled, answers = Classes(0), values.astype(np.float32)
    else:
        settled = settle_classes("y", values, labels=labels, classes=classes)
        answers = settled.of("y", values)
    reading = Reading(settled, label="y")
    return assemble(
        NAME,
        features,
        answers,
        reading,
        owners=owners,
        test=held,
        test_apart=held is not None,
        test_share=test_share,
        split_seed=split_seed,
    )


def _test_pair(test: tuple[Array, Array], x: Features) -> tuple[Features, NDArray[Any]]:
    """The records of test=(x, y)."""
    pair = isinstance(test, tuple | list) and len(test) == 2
    require(pair, "test", type(test).__name__, "give a pair of arrays, test=(x_test, y_test)")
    x_test, y_test = features_of("test x", test[0]), values_of("test y", test[1])
    require_length("test y", y_test, len(x_test))
    wanted = f"records of x have shape {x.shape[1:]}: use the same"
    require(x_test.shape[1:] == x.shape[1:], "test x", f"shape {x_test.shape}", wanted)
    return x_test, y_test


def _joined(values: NDArray[Any], more: NDArray[Any]) -> NDArray[Any]:
    """Labels of training and of test records, of one kind."""
    remedy = f"training labels are {values.dtype}: give numbers to both, or words"
    alike = (values.dtype.kind == "U") == (more.dtype.kind == "U")
    require(alike, "test y", str(more.dtype), remedy)
    return np.concatenate([values, more])


def from_frame(
    frame: Frame,
    y: Array | None = None,
    clients: Array | None = None,
    *,
    label: str = "label",
    client: str | None = None,
    features: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    labels: Sequence[object] | None = None,
    classes: int | None = None,
    categories: dict[str, Sequence[object]] | None = None,
    ranges: dict[str, Sequence[float]] | None = None,
    missing: dict[str, float | str] | None = None,
    test_share: float | None = None,
    split_seed: int = 0,
) -> Dataset:
    """A data set of a data frame; `y` and `clients` may stand beside it. Options are those of csv:FILE."""
    table = as_table(NAME, frame)
    if y is not None:
        table = with_column(table, label, values_of("y", y), "y")
    if clients is not None:
        require(client is None, "client", client, "clients are given beside the table: leave one of the two out")
        client = "client"
        table = with_column(table, client, values_of("clients", clients), "clients")
    declared = Declared(label, client, features, ignore, labels, classes, categories, ranges, missing)
    return of_table(NAME, table, declared, test_share=test_share, split_seed=split_seed)


def features_of(field: str, values: Array, scale: float | None = None) -> Features:
    """Records as float32, or int32 for text; bytes are divided by `scale`, and refused without one."""
    array = values_of(field, values)
    if array.dtype == np.uint8 and scale is not None:
        array = array.astype(np.float32) / np.float32(scale)
    require(array.dtype.kind in "iuf", field, str(array.dtype), "must be numbers, one row for each record")
    remedy = "bytes are not scaled for you: give x / 255, or x.astype(float) as they are"
    require(array.dtype != np.uint8, field, "uint8", remedy)
    require(len(array) > 0, field, f"shape {array.shape}", "holds no records: add some")
    if array.dtype == np.int32 and array.ndim > 1:
        return array
    with np.errstate(over="ignore"):
        single: Features = array.astype(np.float32)
    finite = bool(np.isfinite(single).all())
    require(finite, field, "NaN or infinity", "leave such records out, or replace these values")
    return single


def values_of(field: str, values: Array) -> NDArray[Any]:
    """An array of numbers or words."""
    masked = isinstance(values, np.ma.MaskedArray) and bool(np.ma.is_masked(values))
    require(not masked, field, "masked array", "values are masked: leave such records out, or fill them, x.filled(0)")
    try:
        array = np.asarray(values)
    except Exception as error:  # tensors of other libraries raise types of their own
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InvalidInput(field, type(values).__name__, f"is not an array ({reason}): give a NumPy array") from None
    require(array.ndim >= 1, field, type(values).__name__, "is not an array: give a NumPy array, a row for each record")
    if array.dtype == object:
        _require_words(field, set(map(type, array.ravel().tolist())))
        return array.astype(str)
    if array.dtype.kind == "U" and array.ndim == 1 and isinstance(values, list | tuple):
        _require_words(field, set(map(type, values)))  # NumPy makes words of numbers among words
    return array


def _require_words(field: str, kinds: set[type]) -> None:
    remedy = "holds several types, or rows of several lengths: give numbers, or words, alone"
    require(all(issubclass(kind, str) for kind in kinds), field, ", ".join(sorted(k.__name__ for k in kinds)), remedy)


def require_length(field: str, values: NDArray[Any], records: int) -> None:
    """Check that there is one label for each record."""
    one = values.ndim == 1
    remedy = "give one label for each record: a vector of classes, not one-hot rows"
    require(one, field, f"shape {values.shape}", remedy)
    require(len(values) == records, field, len(values), f"give one label for each of the {records} records of x")


def _owners(clients: Array, records: int) -> NDArray[np.str_]:
    values = values_of("clients", clients)
    one = values.ndim == 1 and values.dtype.kind in "iuU"
    remedy = "give a number of clients, or one name or whole number for each record"
    require(one, "clients", f"{values.dtype}{list(values.shape)}", remedy)
    require(len(values) == records, "clients", len(values), f"name the client of each of the {records} records")
    return np.char.strip(as_words(values))
