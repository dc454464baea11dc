"""Checkpoints: the state after a round, on disk atomically, so that a killed run goes on as if it had never stopped.

A `Bookmark` is a checkpoint that a long computation writes now and then, with the rows that it has measured so far.
"""

from __future__ import annotations

import io
import json
import os
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np

from sordino.errors import InvalidInput

__all__ = ["Bookmark", "load_checkpoint", "save_checkpoint", "write_atomically"]


Rows: TypeAlias = list[dict[str, Any]]


def save_checkpoint(path: Path, round: int, state: Any, note: str = "", *, compressed: bool = False) -> None:
    """Write the leaves of `state`, after `round` rounds, and a note."""
    leaves = jax.tree.leaves(state)
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    save = np.savez_compressed if compressed else np.savez
    save(buffer, round=round, count=len(leaves), note=np.frombuffer(note.encode(), np.uint8), **arrays)
    write_atomically(path, buffer.getvalue())


def load_checkpoint(path: Path, like: Any) -> tuple[int, Any]:
    """(rounds done, state) with the structure of `like`."""
    leaves, structure = jax.tree.flatten(like)
    try:
        with np.load(io.BytesIO(path.read_bytes())) as saved:
            same = int(saved["count"]) == len(leaves) and all(
                saved[f"leaf{i}"].shape == np.shape(leaf) for i, leaf in enumerate(leaves)
            )
            if not same:
                remedy = "was written by another configuration: resume with the one in the run's folder"
                raise InvalidInput("checkpoint", str(path), remedy)
            restored = [jax.numpy.asarray(saved[f"leaf{i}"], np.asarray(leaf).dtype) for i, leaf in enumerate(leaves)]
            return int(saved["round"]), jax.tree.unflatten(structure, restored)
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput("checkpoint", str(path), f"cannot be read ({error}): start the run anew") from None


def write_atomically(path: Path, data: bytes) -> None:
    """All of it or nothing: a temporary file, fsync, rename."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


class Bookmark:
    """Where a computation stands that always ends alike: its state, the rows measured so far, the seconds it took.

    It is written at most every `seconds`, and so rarely that it waits `times` as long as writing takes. It only saves
    time: one that cannot be read, or does not hold what it must, counts as none.
    """

    def __init__(self, folder: Path, identity: bytes, seconds: float, times: float = 20.0) -> None:
        """`identity` tells computations apart that share a folder."""
        self._folder, self._path = folder, folder / f"{identity.hex()[:16]}.npz"
        self._seconds, self._times = seconds, times
        self._started, self._before = time.monotonic(), 0.0
        self._next = self._started + seconds

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning, those of processes that were killed among them."""
        return self._before + time.monotonic() - self._started

    def load(self, state: Any, histories: int, stops: Sequence[int]) -> tuple[int, Any, list[Rows]]:
        """(rounds done, state, rows of every history); `stops` are the rounds at which rows are measured."""
        nothing: tuple[int, Any, list[Rows]] = (0, state, [[] for _ in range(histories)])
        if not self._path.exists():
            return nothing
        try:
            done, state = load_checkpoint(self._path, state)
            with np.load(io.BytesIO(self._path.read_bytes())) as saved:
                note = json.loads(saved["note"].tobytes())
        except (InvalidInput, OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
            return nothing
        rows: list[Rows] = note["rows"]
        measured = [stop for stop in stops if stop <= done]
        if [[row["round"] for row in history] for history in rows] != [measured] * histories:
            return nothing
        self._before = note["seconds"]
        return done, state, rows

    def save(self, done: int, state: Any, rows: list[Rows], *, last: bool) -> None:
        """Write, if it is time; the last state of all that took longer than `seconds`, small, since it may travel."""
        started = time.monotonic()
        if started < (self._started + self._seconds if last else self._next):
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        note = json.dumps({"seconds": self.elapsed, "rows": rows})
        save_checkpoint(self._path, done, state, note, compressed=last)
        ended = time.monotonic()
        self._next = ended + max(self._seconds, self._times * (ended - started))
