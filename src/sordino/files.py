"""Files that survive a crash, on every operating system: one atomic writer and one lock for the whole product."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from errno import ENOENT
from pathlib import Path
from typing import BinaryIO, Self

from filelock import FileLock, Timeout

from sordino.errors import require


def cache_folder() -> Path:
    """Where downloads and compiled programs are kept."""
    return Path(os.environ.get("SORDINO_CACHE") or "~/.cache/sordino").expanduser()


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when the block ends; a crash or an error leaves `path` as it was.

    A private one can be read by its owner alone, from its first byte on (Windows has no such mode).
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with _private(temporary) if private else temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _private(path: Path) -> BinaryIO:
    path.unlink(missing_ok=True)  # of a killed process that had this number: its mode would stay
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def write_atomically(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write all of `data` to `path`, or nothing."""
    with replacing(path, private=private) as file:
        file.write(data)


def sync_folder(folder: Path) -> None:
    """Make new and renamed files of a folder durable. Windows cannot open folders and does so by itself."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_folder(field: str, path: Path) -> None:
    """Refuse a folder that cannot be made, or not be written to, before anything is computed; nothing is made yet."""
    place = path.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    there = "it is a file" if place == path.absolute() else f"{place} is a file"
    require(place.is_dir(), field, str(path), f"cannot be a folder here ({there}): choose another")
    writable = os.access(place, os.W_OK | os.X_OK)
    require(writable, field, str(path), "cannot be written to: choose another folder")


class HeldOpen:
    """What holds files or locks until `close`, or to the end of a `with` block."""

    _resources: ExitStack

    def close(self) -> None:
        """Let go of them."""
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def held(path: Path, refusal: Exception) -> Iterator[None]:
    """Hold the lock file `path` until the block or the process ends; raise the refusal if another process holds it.

    The file stays: if it were deleted, two processes could lock two files.
    """
    if not path.parent.is_dir():  # FileLock would make the folder
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), str(path.parent))
    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise refusal from None
    try:
        yield
    finally:
        lock.release()
