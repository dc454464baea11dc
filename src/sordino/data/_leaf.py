"""Data in the JSON files of LEAF (Caldas et al. 2018, https://leaf.cmu.edu).

A folder holds `train/*.json` and `test/*.json`, or the files themselves, which then need `test_share`. A file is

    {"users": ["f0", "f1"], "user_data": {"f0": {"x": [[...], ...], "y": [...]}, "f1": ...}}

x holds numbers; LEAF's texts must be turned into numbers first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sordino.data._records import Dataset
from sordino.data.in_memory import from_arrays
from sordino.errors import InvalidInput, require


def load_leaf(
    folder: str,
    *,
    labels: Sequence[object] | None = None,
    classes: int | None = None,
    test_share: float | None = None,
    split_seed: int = 0,
) -> Dataset:
    """A folder of LEAF's JSON files; users are clients."""
    path = Path(folder).expanduser()
    require(path.is_dir(), "leaf", folder, "no such folder: give one with train/*.json and test/*.json")
    split = (path / "train").is_dir()
    x, y, owners = _read(folder, path / "train" if split else path)
    given: dict[str, Any] = {"labels": labels, "classes": classes, "split_seed": split_seed}
    if not split or not any((path / "test").glob("*.json")):
        dataset = from_arrays(x, y, owners, test_share=test_share, **given)
        return dataset._replace(name=f"leaf:{folder}")
    require(test_share is None, "test_share", test_share, "the folder has a test set: leave it out")
    x_test, y_test, test_owners = _read(folder, path / "test")
    dataset = from_arrays(x, y, owners, test=(x_test, y_test), **given)
    return dataset._replace(name=f"leaf:{folder}", tests_clients=not set(owners).isdisjoint(test_owners))


def _read(folder: str, place: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    files = sorted(place.glob("*.json"))
    require(bool(files), "leaf", folder, f"holds no file {place.name}/*.json: give the folder that LEAF has written")
    x, y, owners = [], [], []
    for file in files:
        for user, records, answers in _users(file):
            x.append(records)
            y.append(answers)
            owners += [user] * len(answers)
    shapes = {part.shape[1:] for part in x}
    require(len(shapes) == 1, f"{place}: shape of x", sorted(map(str, shapes))[:2], "use one shape in all files")
    return np.concatenate(x), np.concatenate(y), np.array(owners)


def _users(file: Path) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, records and labels of every user that has some."""
    try:
        held = json.loads(file.read_bytes())
        users, data = held["users"], held["user_data"]
        for user in users:
            x, y = data[user]["x"], data[user]["y"]
            if len(y):
                yield str(user), _array(file, user, "x", x), _array(file, user, "y", y)
    except (ValueError, TypeError, KeyError) as error:
        if isinstance(error, InvalidInput):
            raise
        remedy = f"is not a file of LEAF ({type(error).__name__}: {error}): it has users, and user_data with x and y"
        raise InvalidInput("leaf", str(file), remedy) from None


def _array(file: Path, user: str, name: str, values: object) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.asarray("ragged")
    good = array.ndim >= 1 and (array.dtype.kind in "iuf" or (name == "y" and array.dtype.kind in "biufU"))
    remedy = "must be numbers, equally many a record: turn LEAF's texts into numbers first"
    require(good, f"{file}: {name} of {user}", str(array.dtype), remedy)
    return array.astype(np.float32) if name == "x" else array
