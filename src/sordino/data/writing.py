"""Folders of records that stay on the disk, written client by client: see `on_disk.py` for what they hold.

with so.write_records("visits", classes=2) as writer:
    for x, y in clinics:
        writer.add(x, y)
    writer.test(x_test, y_test)
task = so.task("disk:visits", model="logistic")
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from sordino.data._labels import whole_numbers
from sordino.data._records import FederatedData
from sordino.data.in_memory import Array, features_of, require_length, values_of
from sordino.data.on_disk import CHECKED, FORMAT, MANIFEST, RECORDS, Facts
from sordino.data.reading import Reading
from sordino.errors import InvalidInput, require, require_count
from sordino.files import write_atomically

HEADER = 128  # bytes
BLOCK = 100_000  # records that are converted at a time


class RecordWriter:
    """Writes a folder; without an error, it is complete when the `with` block ends."""

    def __init__(self, folder: str | Path, classes: int | None, targets: bool, facts: Facts | None = None) -> None:
        require(
            not targets or classes is None, "classes", classes, "targets are numbers of a loss of your own: drop it"
        )
        if classes is not None:
            require_count(classes, "classes")
        self._path, self._classes, self._targets = Path(folder).expanduser(), classes, targets
        self._facts = facts or Facts(classes_counted=classes is None and not targets)
        self._files: dict[str, BinaryIO] = {}
        self._shape: tuple[int, ...] | None = None
        self._types: dict[str, np.dtype[Any]] = {}
        self._rows = 0
        self._labels: tuple[float, float] | None = None
        self._size: list[NDArray[np.int64]] = []
        self._checksum: list[int] = []
        self._test: tuple[NDArray[Any], NDArray[Any]] | None = None
        self._about: dict[str, object] = {"names": [], "reading": None, "black": [0.0]}

    def __enter__(self) -> Self:
        remedy = "holds files already: give a new folder, or delete it"
        free = not self._path.exists() or (self._path.is_dir() and not any(self._path.iterdir()))
        require(free, "folder", str(self._path), remedy)
        self._path.mkdir(parents=True, exist_ok=True)
        for name in RECORDS:
            self._files[name] = (self._path / name).open("wb")
            self._files[name].write(bytes(HEADER))  # the number of records comes last
        return self

    def add(self, x: Array, y: Array, sizes: Sequence[int] | NDArray[np.integer[Any]] | None = None) -> None:
        """Add a client with its records; or several, one after another, with so many records each."""
        features, labels = self._checked("x", x, "y", y)
        size = np.array([len(labels)] if sizes is None else values_of("sizes", sizes))
        whole = size.ndim == 1 and size.dtype.kind in "iu" and bool((size >= 1).all())
        require(whole, "sizes", str(size.dtype), "give the number of records of each client, at least 1")
        remedy = f"add up to {int(size.sum())}, and x holds {len(labels)} records"
        require(int(size.sum()) == len(labels), "sizes", len(size), remedy)
        self._files["x.npy"].write(features.data)
        self._files["y.npy"].write(labels.data)
        ends = np.cumsum(size).tolist()
        for first, last in zip([0, *ends], ends, strict=False):
            self._checksum.append(zlib.crc32(labels[first:last].data, zlib.crc32(features[first:last].data)))
        self._size.append(size.astype(np.int64))
        self._rows += len(labels)

    def test(self, x: Array, y: Array) -> None:
        """The test records, once. They are few enough for memory."""
        require(self._test is None, "test", len(x), "there are test records already: give all of them at once")
        self._test = self._checked("test x", x, "test y", y)

    def describe(self, names: Sequence[str], reading: Reading | None, black: Sequence[float]) -> None:
        """What is known besides: names of the clients, how a table was read, and a black pixel."""
        kept = None if reading is None else reading.to_json()
        self._about = {"names": list(names), "reading": kept, "black": list(black)}

    def _checked(self, name_x: str, x: Array, name_y: str, y: Array) -> tuple[NDArray[Any], NDArray[Any]]:
        """Records as they are kept, of one shape and type."""
        features = np.ascontiguousarray(features_of(name_x, x))
        remedy = "give one row for each record: x.reshape(-1, 1) where a record is one number"
        require(features.ndim >= 2, name_x, f"shape {features.shape}", remedy)
        values = values_of(name_y, y)
        require_length(name_y, values, len(features))
        if self._targets:
            require(values.dtype.kind in "iufb", name_y, str(values.dtype), "must be numbers for a loss of your own")
            labels: NDArray[Any] = np.ascontiguousarray(values, np.float32)
        else:
            labels = np.ascontiguousarray(whole_numbers(name_y, values))
            least, largest = int(labels.min()), int(labels.max())
            declared = self._classes is None or largest < self._classes
            require(declared, name_y, largest, f"there are {self._classes} classes, from 0 on: leave such records out")
            before = self._labels or (least, largest)
            self._labels = min(least, before[0]), max(largest, before[1])
        shape = features.shape[1:]
        wanted = f"other records have shape {self._shape}: use one shape"
        require(self._shape in (None, shape), name_x, f"shape {shape}", wanted)
        kind = self._types.setdefault("x.npy", features.dtype)
        require(kind == features.dtype, name_x, str(features.dtype), f"other records are {kind}: use one type")
        self._shape, self._types["y.npy"] = shape, labels.dtype
        return features, labels

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            for file in self._files.values():
                file.close()

    def _finish(self) -> None:
        """The headers, the small files, and last what makes a folder of them."""
        require(bool(self._size), "clients", 0, "there is no client: add(x, y) adds one")
        if self._test is None or self._shape is None:
            raise InvalidInput("test", None, "there are no test records, on which models are measured: test(x, y)")
        shapes = {"x.npy": (self._rows, *self._shape), "y.npy": (self._rows,)}
        for name, file in self._files.items():
            file.seek(0)
            file.write(_header(shapes[name], self._types[name]))
            file.close()
        small: tuple[NDArray[Any], ...] = (np.concatenate(self._size), np.array(self._checksum, np.uint32), *self._test)
        for name, array in zip(CHECKED, small, strict=True):
            np.save(self._path / name, array)
        most = -1 if self._labels is None else int(self._labels[1])
        manifest = {
            "format": FORMAT,
            "classes": 0 if self._targets else self._classes or most + 1,
            "labels": self._labels,
            "facts": self._facts._asdict(),
            **self._about,
            "arrays": {name: [self._types[name].str, list(shape)] for name, shape in shapes.items()},
            "bytes": {name: (self._path / name).stat().st_size for name in (*self._files, *CHECKED)},
            "sha256": {name: hashlib.sha256((self._path / name).read_bytes()).hexdigest() for name in CHECKED},
        }
        write_atomically(self._path / MANIFEST, json.dumps(manifest, indent=1).encode())


def write_records(folder: str | Path, *, classes: int | None = None, targets: bool = False) -> RecordWriter:
    """A folder of records that stay on the disk, to be filled in a `with` block: add(x, y) a client, test(x, y) once.

    Args:
      folder: new, or empty.
      classes: how many there are; counted if left out, and certificates say so.
      targets: y holds numbers of a loss of one's own, not classes.
    """
    return RecordWriter(folder, classes, targets)


def write_data(folder: str | Path, data: FederatedData, black: Sequence[float] = (0.0,)) -> None:
    """Write the clients of a data set into such a folder."""
    facts = Facts(**{name: value for name, value in data._asdict().items() if name in Facts._fields})
    start, size = (np.asarray(part, np.int64) for part in (data.start, data.size))
    ends = np.cumsum(size)
    with RecordWriter(folder, data.classes or None, data.classes == 0, facts) as writer:
        first = 0
        while first < len(size):  # some whole clients at a time
            done = int(ends[first] - size[first])
            last = max(first + 1, int(np.searchsorted(ends, done + BLOCK, side="right")))
            some = slice(first, last)
            shift = start[some] - (ends[some] - size[some])
            rows = np.repeat(shift, size[some]) + np.arange(done, int(ends[last - 1]))
            writer.add(data.x[rows], data.y[rows], size[some])
            first = last
        writer.test(data.x_test, data.y_test)
        writer.describe(data.names, data.reading, black)


def _header(shape: tuple[int, ...], kind: np.dtype[Any]) -> bytes:
    """A header of npy format 1.0, of HEADER bytes."""
    text = repr({"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}).encode("latin-1")
    start = b"\x93NUMPY\x01\x00" + struct.pack("<H", HEADER - 10)
    return start + text.ljust(HEADER - 11) + b"\n"
