"""Records for a deployment that is to be tried: real patients where their files are here, else images of digits."""

from __future__ import annotations

import csv
import io
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sordino.data import load, where
from sordino.deploy.records import OwnRecords

HOSPITALS = "heart-disease"
HEART_COLUMNS: tuple[str, ...] = ("age", "sex", "pressure", "cholesterol", "sugar", "rate", "angina", "depression")
HEART_COLUMNS += ("pain2", "pain3", "pain4", "ecg1", "ecg2")
SIDE, BLOCK = 8, 2  # of an image of a digit, and of the blocks of pixels whose mean is kept
SEED = 0  # of the deal


class Example(NamedTuple):
    """Records for each node and for the server, and what is public of them."""

    words: str  # what they are, for README.md
    task: str
    columns: tuple[str, ...]
    classes: int
    feature_bound: float
    feature_words: str
    parts: tuple[OwnRecords, ...]
    test: OwnRecords


def example(nodes: int) -> Example:
    """Records for so many nodes."""
    if where(HOSPITALS) is not None and nodes <= 4:
        return _hearts(nodes)
    return _digits(nodes)


def as_csv(columns: tuple[str, ...], records: OwnRecords) -> bytes:
    """A file of records, with their labels in the last column."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*columns, "label"])
    for x, y in zip(records.x, records.y, strict=True):
        writer.writerow([*(f"{value:.6g}" for value in x), int(y)])
    return text.getvalue().encode()


def _hearts(nodes: int) -> Example:
    data = load(HOSPITALS)
    assert data.client is not None
    parts = tuple(_records(data.x[data.client == i], data.y[data.client == i]) for i in range(nodes))
    names = ", ".join(data.client_names[:nodes])
    words = (
        f"The records are patients of the heart-disease data, one hospital a node ({names}); those of the server are "
        "held-out patients of all four hospitals. The label says whether a patient has a heart disease."
    )
    ranges = "eight numbers in [-1, 1] and two sets of indicators"
    return Example(words, HOSPITALS, HEART_COLUMNS, 2, 3.1623, ranges, parts, _records(data.x_test, data.y_test))


def _digits(nodes: int) -> Example:
    data = load("digits", standardize=False)
    order = np.random.default_rng(SEED).permutation(len(data.y))
    x, y = _reduced(data.x), np.asarray(data.y)
    parts = tuple(_records(x[some], y[some]) for some in np.array_split(order, nodes))
    words = (
        "The records stand in for a hospital's: images of handwritten digits, reduced to 4 x 4 blocks of pixels and "
        "dealt to the nodes at random; those of the server are held-out images. The label is the digit."
    )
    columns = tuple(f"block{i}" for i in range(x.shape[1]))
    return Example(
        words, "digits", columns, 10, 4.0, "16 numbers in [0, 1]", parts, _records(_reduced(data.x_test), data.y_test)
    )


def _reduced(images: NDArray[Any]) -> NDArray[np.float32]:
    """Means of blocks, [records, 16], in [0, 1]."""
    count = SIDE // BLOCK
    blocks = np.asarray(images, np.float32).reshape(-1, count, BLOCK, count, BLOCK)
    return blocks.mean(axis=(2, 4)).reshape(-1, count * count)


def _records(x: NDArray[Any], y: NDArray[Any]) -> OwnRecords:
    return OwnRecords(np.asarray(x, np.float32), np.asarray(y, np.int32))
