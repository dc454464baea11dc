"""Your own data, as `name` of a [task] or of `so.task`.

csv:FILE      one row for each record, below a line with the names of the columns
parquet:FILE  the same as a Parquet file
npz:FOLDER    one .npz file for each client, named after it, with arrays x [records, ...] and y [records]; test.npz has
              the same arrays and is the test set. x of type int32 is text (token numbers); other numbers become
              float32. FOLDER may also lie in $SORDINO_DATA.
leaf:FOLDER   JSON files of LEAF
hf:NAME       a data set of the Hugging Face hub with splits train and test; needs the package `datasets`.

docs/own_data.md describes the options. Labels that are not declared are counted; the shape of the model then reveals
them, and certificates warn. Nothing is scaled by the data, which would be a release.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from sordino.data._arrow import read_parquet
from sordino.data._csv import UTF8, read_csv
from sordino.data._declared import Declared
from sordino.data._from_table import of_table
from sordino.data._labels import settle_classes, whole_numbers
from sordino.data._leaf import load_leaf
from sordino.data._records import Dataset, Features, Labels
from sordino.data._spelling import client_names
from sordino.data.hub import load_hugging_face
from sordino.data.in_memory import features_of
from sordino.errors import InvalidInput, require, require_name


def load_csv(
    file: str,
    *,
    client: str | None = None,
    label: str = "label",
    features: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    labels: Sequence[object] | None = None,
    classes: int | None = None,
    categories: Mapping[str, Sequence[object]] | None = None,
    ranges: Mapping[str, Sequence[float]] | None = None,
    missing: Mapping[str, float | str] | None = None,
    test_share: float | None = None,
    split_seed: int = 0,
    encoding: str = UTF8,
    delimiter: str = ",",
) -> Dataset:
    """A CSV file."""
    table = read_csv(file, encoding=encoding, delimiter=delimiter)
    declared = Declared(
        label, client, features, ignore, labels, classes, categories, ranges, missing, encoding, delimiter
    )
    return of_table(f"csv:{file}", table, declared, test_share=test_share, split_seed=split_seed)


def load_parquet(
    file: str,
    *,
    client: str | None = None,
    label: str = "label",
    features: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    labels: Sequence[object] | None = None,
    classes: int | None = None,
    categories: Mapping[str, Sequence[object]] | None = None,
    ranges: Mapping[str, Sequence[float]] | None = None,
    missing: Mapping[str, float | str] | None = None,
    test_share: float | None = None,
    split_seed: int = 0,
) -> Dataset:
    """A Parquet file."""
    declared = Declared(label, client, features, ignore, labels, classes, categories, ranges, missing)
    table = read_parquet(file)
    return of_table(f"parquet:{file}", table, declared, test_share=test_share, split_seed=split_seed)


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
    names = tuple(client_names(f"npz:{folder}: client", np.array([file.stem for file in clients])).tolist())
    twice = next((name for name in names if names.count(name) > 1), None)
    require(twice is None, f"npz:{folder}: client", twice, "names two files: put all records of a client into one")
    settled = settle_classes(f"npz:{folder}: y", np.concatenate([y, y_test]), classes=classes)
    for name in names:
        require_name(f"npz:{folder}: client", name)
    held = (x, y, x_test, y_test, settled.number)
    return Dataset(f"npz:{folder}", *held, owner, names, classes_counted=settled.counted, tests_clients=None)._replace(
        tests_held_out=None
    )


def _read_npz(file: Path) -> tuple[Features, Labels]:
    x, y = read_npz(file)
    if y is None:
        remedy = "array `y` is missing: write numpy.savez(file, x=..., y=...)"
        raise InvalidInput(f"{file}: arrays", ["x"], remedy)
    return x, y


def read_npz(file: Path, scale: float | None = None) -> tuple[Features, Labels | None]:
    """Records and, where they have some, their labels; bytes are divided by `scale`."""
    try:
        with np.load(file, allow_pickle=False) as arrays:
            held = dict(arrays)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        remedy = f"not readable ({error}): write it with numpy.savez(file, x=..., y=...)"
        raise InvalidInput("file", str(file), remedy) from error
    remedy = "array `x` is missing: write numpy.savez(file, x=..., y=...)"
    require("x" in held, f"{file}: arrays", sorted(held), remedy)
    x = features_of(f"{file}: x", held["x"], scale)
    if "y" not in held:
        return x, None
    y = whole_numbers(f"{file}: y", held["y"])
    require(len(x) == len(y), f"{file}: records", (len(x), len(y)), "x and y must hold the same number of records")
    return x, y


def _require_same_shape(file: Path, x: Features, first_file: Path, first: Features) -> None:
    remedy = f"the records of {first_file.name} have shape {first.shape[1:]}: use one shape in all files"
    require(x.shape[1:] == first.shape[1:], f"{file}: shape of x", x.shape[1:], remedy)


OWN_DATA: dict[str, Callable[..., Dataset]] = {
    "csv": load_csv,
    "parquet": load_parquet,
    "npz": load_npz,
    "leaf": load_leaf,
    "hf": load_hugging_face,
}
