"""Your own data.

npz:FOLDER  one .npz file for each client, named after it, with arrays x [records, ...] and y [records]; test.npz has
            the same arrays and is the test set. x of type int32 is text (token numbers); other numbers become float32.
            FOLDER may also lie in $SORDINO_DATA.
csv:FILE    one row for each record: columns `client`, `label` and `split` (train or test); every other column is a
            feature and holds numbers.
hf:NAME     a data set of the Hugging Face hub with splits train and test; needs the package `datasets`.

Labels are 0, 1, ..., classes - 1; give their number as `classes`. Without it the classes are counted; the shape of the
model then reveals the largest label, and certificates warn. Nothing is scaled by the data, which would be a release.
"""

from __future__ import annotations

import csv
import importlib
import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sordino.data._records import Dataset, Features, Labels
from sordino.errors import InvalidInput, require, require_name


def load_npz(folder: str, *, classes: int | None = None) -> Dataset:
    """A folder of .npz files, one for each client."""
    path = Path(folder).expanduser()
    if not path.is_dir():
        path = Path(os.environ.get("SORDINO_DATA") or ".").expanduser() / folder
    remedy = "no such folder, here or in $SORDINO_DATA: give a folder with one .npz file for each client"
    require(path.is_dir(), "npz", folder, remedy)
    clients = sorted(file for file in path.glob("*.npz") if file.name != "test.npz")
    require(bool(clients), "npz", folder, "holds no client: add one .npz file for each client, with arrays x and y")
    parts = [_read_npz(file) for file in clients]
    for file, (x, _) in zip(clients, parts, strict=True):
        _require_same_shape(file, x, clients[0], parts[0][0])
    x, y = np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
    test_file = path / "test.npz"
    x_test, y_test = _read_npz(test_file) if test_file.exists() else (x[:0], y[:0])
    _require_same_shape(test_file, x_test, clients[0], x)
    owner = np.repeat(np.arange(len(parts), dtype=np.int32), [len(labels) for _, labels in parts])
    names = tuple(file.stem for file in clients)
    dataset = Dataset(f"npz:{folder}", x, y, x_test, y_test, 0, owner, names, tests_clients=None)
    return _with_classes(dataset, classes)


def load_csv(file: str, *, classes: int | None = None) -> Dataset:
    """A table with a column `client`, a column `label` and columns of numbers."""
    path = Path(file).expanduser()
    require(path.is_file(), "csv", file, "no such file: give a CSV file with columns client, label and features")
    with open(path, newline="", encoding="utf-8") as stream:
        header, *rows = list(csv.reader(stream)) or [[]]
    rows = [row for row in rows if row]
    for column in ("client", "label"):
        require(column in header, f"{file}: columns", header, f"`{column}` is missing: add it to the first line")
    require(bool(rows), "csv", file, "holds no records: add one row for each record below the first line")
    remedy = f"write {len(header)} values, one for each column"
    for number, row in enumerate(rows, start=2):
        require(len(row) == len(header), f"{file}: row {number}", row, remedy)
    names = [name for name in header if name not in ("client", "label", "split")]
    require(bool(names), f"{file}: columns", header, "there are no features: add columns of numbers")
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    x = np.stack([_numbers(file, name, columns[name]) for name in names], axis=1).astype(np.float32)
    y = _labels(f"{file}: label", _numbers(file, "label", columns["label"]))
    test = _test_rows(file, columns.get("split"), len(y))
    named = np.array([name.strip() for name in columns["client"]])  # spaces around a name do not make another client
    dataset = Dataset(f"csv:{file}", x[~test], y[~test], x[test], y[test], 0)
    return _with_classes(_with_clients(dataset, named[~test], named[test]), classes)


def load_hugging_face(
    name: str, *, x: str = "image", y: str = "label", client: str | None = None, classes: int | None = None
) -> Dataset:
    """A data set of the Hugging Face hub; x, y and client name its columns. Images (bytes) are scaled to [0, 1]."""
    try:
        hub = importlib.import_module("datasets")
    except ImportError:
        raise InvalidInput("hf", name, "needs the package `datasets`: run `pip install datasets`") from None
    try:
        splits = hub.load_dataset(name)
    except Exception as error:  # the hub raises many types, for wrong names and for network errors
        reason = " ".join(str(error).split())
        raise InvalidInput("hf", name, f"could not be loaded ({reason}): check the name and the network") from error
    require("train" in splits, "hf", name, f"has no split `train`, only {', '.join(splits)}: choose another data set")
    train = splits["train"]
    known = ", ".join(train.column_names)
    for option, column in (("x", x), ("y", y), *([("client", client)] if client else [])):
        require(column in train.column_names, f"hf:{name}: {option}", column, f"no such column: use one of {known}")
    features, labels = _hub_columns(name, train, x, y)
    test = _hub_columns(name, splits["test"], x, y) if "test" in splits else (features[:0], labels[:0])
    dataset = Dataset(f"hf:{name}", features, labels, *test, 0)
    if client is not None:
        tested = "test" in splits and client in splits["test"].column_names
        dataset = _with_clients(dataset, train[client], splits["test"][client] if tested else None)
    return _with_classes(dataset, classes)


def _with_clients(dataset: Dataset, owners: Iterable[object], test_owners: Iterable[object] | None) -> Dataset:
    """The data set with its natural clients: the owners of its records, and of test records unless they are unknown."""
    names, owner = np.unique([str(name) for name in owners], return_inverse=True)
    clients = tuple(map(str, names))
    tests = None if test_owners is None else not set(clients).isdisjoint(map(str, test_owners))
    return dataset._replace(client=owner.astype(np.int32), client_names=clients, tests_clients=tests)


def _with_classes(dataset: Dataset, classes: int | None) -> Dataset:
    """The data set, checked, with the number of its classes."""
    require(len(dataset.y) > 0, "data set", dataset.name, "holds no training records: add some")
    for client in dataset.client_names:
        require_name(f"{dataset.name}: client", client)
    largest = int(max(dataset.y.max(), dataset.y_test.max(initial=0)))
    if classes is None:
        return dataset._replace(classes=largest + 1, classes_counted=True)
    require(isinstance(classes, int) and classes >= 1, "classes", classes, "must be a whole number, at least 1")
    remedy = f"{dataset.name} has the label {largest}: give at least {largest + 1}"
    require(largest < classes, "classes", classes, remedy)
    return dataset._replace(classes=classes)


def _read_npz(file: Path) -> tuple[Features, Labels]:
    try:
        with np.load(file, allow_pickle=False) as arrays:
            held = dict(arrays)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        remedy = f"not readable ({error}): write it with numpy.savez(file, x=..., y=...)"
        raise InvalidInput("file", str(file), remedy) from error
    for name in ("x", "y"):
        remedy = f"array `{name}` is missing: write numpy.savez(file, x=..., y=...)"
        require(name in held, f"{file}: arrays", sorted(held), remedy)
    x, y = _features(f"{file}: x", held["x"]), _labels(f"{file}: y", held["y"])
    require(len(x) == len(y), f"{file}: records", (len(x), len(y)), "x and y must hold the same number of records")
    return x, y


def _require_same_shape(file: Path, x: Features, first_file: Path, first: Features) -> None:
    remedy = f"the records of {first_file.name} have shape {first.shape[1:]}: use one shape in all files"
    require(x.shape[1:] == first.shape[1:], f"{file}: shape of x", x.shape[1:], remedy)


def _features(field: str, values: NDArray[Any]) -> Features:
    numeric = values.ndim >= 1 and np.issubdtype(values.dtype, np.number)
    require(numeric, field, str(values.dtype), "must be numbers, one row for each record")
    if values.dtype == np.int32:
        return values
    finite = bool(np.isfinite(values).all())
    require(finite, field, "NaN or infinity", "leave such records out, or replace these values")
    return values.astype(np.float32)


def _labels(field: str, values: NDArray[Any]) -> Labels:
    good = values.ndim == 1 and np.issubdtype(values.dtype, np.number)
    require(good, field, f"{values.dtype}{list(values.shape)}", "labels must be one number for each record")
    bad = values[(values < 0) | (values != np.floor(values))]
    if len(bad):
        raise InvalidInput(field, bad[0].item(), "number the classes 0, 1, 2, ...")
    return values.astype(np.int32)


def _numbers(file: str, column: str, texts: tuple[str, ...]) -> NDArray[np.float64]:
    values = np.array([_number(text) for text in texts])
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        row = int(wrong[0])
        raise InvalidInput(f"{file}: row {row + 2}, column `{column}`", texts[row], "must be a finite number")
    return values


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _test_rows(file: str, split: tuple[str, ...] | None, records: int) -> NDArray[np.bool_]:
    if split is None:
        return np.zeros(records, np.bool_)
    for number, word in enumerate(split, start=2):
        require(word in ("train", "test"), f"{file}: row {number}, column `split`", word, "write train or test")
    return np.array(split) == "test"


def _hub_columns(name: str, split: Mapping[str, Sequence[object]], x: str, y: str) -> tuple[Features, Labels]:
    values = np.stack([np.asarray(value) for value in split[x]])
    white = 255 if values.dtype == np.uint8 else 1
    if np.issubdtype(values.dtype, np.signedinteger):
        values = values.astype(np.int32)
    features = _features(f"hf:{name}: {x}", values)
    labels = _labels(f"hf:{name}: {y}", np.asarray(split[y]))
    return (features / np.float32(white) if white > 1 else features), labels
