"""A sweep's folder: the configuration, and a file for each point that is finished, so that a killed sweep goes on.

One process at a time: a lock is held from the start to `close` or the process's end, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Self

from sordino.errors import InvalidInput, require
from sordino.simulation.checkpoint import write_atomically
from sordino.simulation.running import RECORDS, Run, digest_of, require_same_records, storable
from sordino.tasks import Task

__all__ = ["SweepFiles", "one_at_a_time"]


def _locked(path: Path, what: str) -> IO[str]:
    """The file at `path`, locked until it is closed. It stays: were it deleted, two processes could lock two files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        remedy = "another process is at this: wait until it ends, or choose another name or part"
        raise InvalidInput("run", what, remedy) from None
    return lock


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Hold a lock beside a folder that may come and go."""
    with _locked(folder.with_name(f"{folder.name}.lock"), str(folder)):
        yield


class SweepFiles:
    """See the module."""

    def __init__(self, folder: Path, config: str, tasks: Iterable[Task]) -> None:
        """Make the folder, or take it up again if it holds the same sweep and no other process is at it."""
        records = digest_of(*((task.records, task.test) for task in tasks)).hex()
        self.folder, self.unfinished, self._points = folder, folder / "unfinished", folder / "points"
        if (folder / "ledger.jsonl").exists():
            raise InvalidInput("run", str(folder), "holds a single run: choose another name")
        _require_same(folder, config, records)
        self._points.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(folder / ".lock", str(folder))
        try:
            _require_same(folder, config, records)  # another process may have been first
            write_atomically(folder / RECORDS, records.encode())
            write_atomically(folder / "config.toml", config.encode())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let another process in."""
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def load(self, point: int) -> dict[str, Any] | None:
        """The record of a finished point, None if it has to be run."""
        path = self._path(point)
        if not path.exists():
            return None
        record: dict[str, Any] = json.loads(path.read_text())
        for row in record["history"]:  # JSON has no NaN
            row |= {name: math.nan for name, value in row.items() if value is None}
        return record

    def save(self, point: int, values: dict[str, Any], seed: int, run: Run) -> None:
        """Keep a finished point."""
        record = {
            "point": point,
            "values": values,
            "seed": seed,
            "diverged": run.diverged,
            "seconds": run.seconds,
            "history": run.history,
            "certificate": run.certificate.to_json(),
        }
        write_atomically(self._path(point), json.dumps(storable(record), indent=1, allow_nan=False).encode())

    def _path(self, point: int) -> Path:
        return self._points / f"{point:05d}.json"


def _require_same(folder: Path, config: str, records: str) -> None:
    kept = folder / "config.toml"
    if kept.exists():
        remedy = f"holds another sweep: run {kept} to complete that one, or choose another name"
        require(kept.read_text() == config, "run", str(folder), remedy)
        require_same_records(folder, records, "run", "its points were run on other records")
