"""disk:FOLDER: records that stay on the disk, for populations larger than memory. `writing.py` writes such folders.

    x.npy, y.npy            features and labels of all clients, one client's after another's
    size.npy                how many records each client has
    checksum.npy            CRC-32 of each client's x and y
    x_test.npy, y_test.npy  the test records, which are read into memory
    records.json            shapes, types and facts; the bytes of every file, and SHA-256 of all but x and y

Training reads a cohort at a time and checks each client's checksum. So the identity of the records, by which a run goes
on or is refused, is that of records.json, and takes no pass over them. Files are read, not mapped: a file that shrinks
during a run is an error with a name, where a mapped one would end the process.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sordino.data._records import FederatedData
from sordino.data.reading import Reading
from sordino.errors import InvalidInput, require
from sordino.files import HeldOpen

ON_DISK = "disk:"
MANIFEST = "records.json"
FORMAT = 1
RECORDS = ("x.npy", "y.npy")
CHECKED = ("size.npy", "checksum.npy", "x_test.npy", "y_test.npy")  # whole, when the folder is opened
CHANGED = "has changed since it was written: restore it, or write the folder anew"


class Facts(NamedTuple):
    """What certificates say of how the records came about; see `FederatedData`."""

    classes_counted: bool = False
    tests_clients: bool | None = None
    tests_held_out: bool | None = None
    overlapping: bool = False
    dealt_anew: bool = False
    dealt_by_label: bool = False


@dataclass(frozen=True, eq=False)
class RecordFolder:
    """Where every client's records lie, and what they must be."""

    path: Path
    start: NDArray[np.int64]
    size: NDArray[np.int64]
    checksum: NDArray[np.uint32]
    shape: tuple[int, ...]  # of a record
    types: tuple[np.dtype[Any], np.dtype[Any]]  # of x and of y
    headers: tuple[int, int]  # bytes before the first record of each
    labels: tuple[float, float] | None  # the least and the largest of the classes, where there are classes
    black: tuple[float, ...]  # a black pixel, by channel
    identity: bytes  # of all records, and of how they are read

    @property
    def row_bytes(self) -> tuple[int, int]:
        """Bytes of one record's features, and of its label."""
        x, y = self.types
        return math.prod(self.shape) * x.itemsize, y.itemsize

    def open(self) -> Reader:
        """The files, for one thread."""
        return Reader(self)


class Reader(HeldOpen):
    """Reads the records of some clients."""

    def __init__(self, folder: RecordFolder) -> None:
        self._folder = folder
        with ExitStack() as opened:
            self._x, self._y = (opened.enter_context(_opened(folder.path / name)) for name in ("x.npy", "y.npy"))
            for file, header, row in zip((self._x, self._y), folder.headers, folder.row_bytes, strict=True):
                _require_bytes(Path(str(file.name)), header + row * int(folder.size.sum()))
            self._resources = opened.pop_all()

    def read(self, clients: NDArray[np.integer[Any]], x: NDArray[Any], y: NDArray[Any]) -> None:
        """Read the records of these clients, in ascending order, into the first rows of two arrays."""
        folder = self._folder
        start, size = folder.start[clients], folder.size[clients]
        place = np.cumsum(size) - size
        apart = np.flatnonzero(np.diff(clients) != 1) + 1  # clients in a row are one read
        first, last = np.append(0, apart), np.append(apart, len(clients)) - 1
        rows = start[last] + size[last] - start[first]
        views = []
        for file, array, header, row in zip((self._x, self._y), (x, y), folder.headers, folder.row_bytes, strict=True):
            view = memoryview(array.data).cast("B")
            views.append(view)
            begin, length, into = ((part * row).tolist() for part in (start[first], rows, place[first]))
            for offset, count, at in zip(begin, length, into, strict=True):
                file.seek(header + offset)
                if file.readinto(view[at : at + count]) < count:
                    _fill(file, header + offset, view[at : at + count])
        self._check(clients, place, size, views)

    def _check(
        self,
        clients: NDArray[np.integer[Any]],
        place: NDArray[np.int64],
        size: NDArray[np.int64],
        views: list[memoryview],
    ) -> None:
        (x, y), (row_x, row_y) = views, self._folder.row_bytes
        bounds = zip(place.tolist(), (place + size).tolist(), strict=True)
        found = [zlib.crc32(y[a * row_y : b * row_y], zlib.crc32(x[a * row_x : b * row_x])) for a, b in bounds]
        wrong = np.flatnonzero(self._folder.checksum[clients] != np.array(found, np.uint32))
        if len(wrong):
            where = f"{self._folder.path}: records of client {int(clients[wrong[0]])}"
            raise InvalidInput("checksum", where, CHANGED)


def _opened(path: Path) -> FileIO:
    require(path.is_file(), "file", str(path), "is missing: restore it, or write the folder anew")
    return FileIO(path)


def _fill(file: FileIO, offset: int, view: memoryview) -> None:
    """A long read may stop early; one that reads nothing has met the end of the file."""
    done = 0
    while done < len(view):
        file.seek(offset + done)
        count = file.readinto(view[done:])
        remedy = "is shorter than when the run began: restore it, and resume the run"
        require(bool(count), "file", str(file.name), remedy)
        done += count


def _require_bytes(path: Path, expected: int) -> None:
    """Refuse a file of another length."""
    require(path.is_file(), "file", str(path), "is missing: restore it, or write the folder anew")
    found = path.stat().st_size
    remedy = f"holds {found} bytes where {expected} were written: restore it, or write the folder anew"
    require(found == expected, "file", str(path), remedy)


def open_records(folder: str | Path) -> FederatedData:
    """The clients of a folder; their records stay where they are."""
    path = Path(folder).expanduser()
    if not path.is_dir():
        path = Path(os.environ.get("SORDINO_DATA") or ".").expanduser() / folder
    require(
        path.is_dir(), "disk", str(folder), "no such folder, here or in $SORDINO_DATA: sordino data convert makes it"
    )
    manifest, text = _manifest(path)
    for name, length in manifest.bytes.items():
        _require_bytes(path / name, length)
    for name in CHECKED:
        _require_digest(path / name, manifest.sha256[name])
    try:
        # Maps, for the shape and for a few rows before the rounds.
        x, y = (np.load(path / name, mmap_mode="r") for name in RECORDS)
        for name, array in zip(RECORDS, (x, y), strict=True):
            require(kind_of(array) == manifest.arrays[name], "file", str(path / name), CHANGED)
        size, checksum, x_test, y_test = (np.load(path / name) for name in CHECKED)
        held = RecordFolder(
            path=path,
            start=np.cumsum(size) - size,
            size=size,
            checksum=checksum,
            shape=x.shape[1:],
            types=(x.dtype, y.dtype),
            headers=(x.offset, y.offset),
            labels=manifest.labels,
            black=manifest.black,
            identity=hashlib.sha256(text).digest(),
        )
        data = FederatedData(
            x,
            y,
            held.start,
            size,
            x_test,
            y_test,
            manifest.classes,
            names=manifest.names,
            reading=None if manifest.reading is None else Reading.from_json(manifest.reading),
            **manifest.facts._asdict(),
            folder=held,
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise _damaged(path, str(error)) from None
    whole = len(x) == len(y) == int(size.sum()) and len(size) == len(checksum)
    require(whole, "records", (len(x), len(y), int(size.sum())), f"{path}: x, y and size do not agree: {CHANGED}")
    return data


def kind_of(array: NDArray[Any]) -> list[object]:
    """The type and the shape of an array, as records.json holds them."""
    return [array.dtype.str, list(array.shape)]


class Manifest(NamedTuple):
    """What records.json says."""

    classes: int
    labels: tuple[float, float] | None
    facts: Facts
    names: tuple[str, ...]
    reading: dict[str, Any] | None
    black: tuple[float, ...]
    arrays: dict[str, list[object]]  # of RECORDS: see `kind_of`
    bytes: dict[str, int]  # of each file
    sha256: dict[str, str]  # of CHECKED


def _manifest(path: Path) -> tuple[Manifest, bytes]:
    file = path / MANIFEST
    remedy = "is missing: the folder was not written to its end; write it anew"
    require(file.is_file(), "file", str(file), remedy)
    text = file.read_bytes()
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError):
        raise _damaged(path, "no JSON") from None
    if not isinstance(plain, dict):
        raise _damaged(path, "no table")
    version = plain.pop("format", None)
    require(version == FORMAT, "format", version, f"{file}: this version of Sordino reads format {FORMAT}")
    for name, right in _RIGHT.items():
        if name not in plain or not right(plain[name]):
            raise _damaged(path, name)
    if plain.keys() != _RIGHT.keys():
        raise _damaged(path, ", ".join(sorted(plain.keys() - _RIGHT.keys())))
    found: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()}
    return Manifest(**found | {"facts": Facts(**plain["facts"])}), text


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _are_numbers(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_table(value: object, keys: Collection[str], right: Callable[[object], bool]) -> bool:
    return isinstance(value, dict) and value.keys() == set(keys) and all(map(right, value.values()))


_RIGHT: dict[str, Callable[[Any], bool]] = {
    "classes": _is_count,
    "labels": lambda value: value is None or (_are_numbers(value) and len(value) == 2),
    "facts": lambda value: _is_table(value, Facts._fields, lambda each: each is None or isinstance(each, bool)),
    "names": lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),
    "reading": lambda value: value is None or isinstance(value, dict),
    "black": _are_numbers,
    "arrays": lambda value: _is_table(value, RECORDS, lambda each: isinstance(each, list)),
    "bytes": lambda value: _is_table(value, (*RECORDS, *CHECKED), _is_count),
    "sha256": lambda value: _is_table(value, CHECKED, lambda each: isinstance(each, str)),
}


def _damaged(path: Path, what: str) -> InvalidInput:
    return InvalidInput("file", str(path / MANIFEST), f"is damaged ({what}): restore it, or write the folder anew")


def _require_digest(path: Path, expected: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    require(found == expected, "file", str(path), CHANGED)


def blocks_of(data: FederatedData, rows: int = 100_000) -> Iterator[NDArray[Any]]:
    """The features of all records, some at a time."""
    for first in range(0, len(data.x), rows):
        yield data.x[first : first + rows]
