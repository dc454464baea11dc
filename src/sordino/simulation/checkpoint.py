"""Checkpoints: the state after a round, on disk atomically, so that a killed run goes on as if it had never stopped.

A `Bookmark` is a checkpoint that a long computation writes now and then, with the rows that it has measured so far.
"""

from __future__ import annotations

import io
import json
import os
import time
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sordino.errors import InvalidInput

__all__ = ["Bookmark", "load_checkpoint", "save_checkpoint", "write_atomically"]


def save_checkpoint(path: Path, round: int, state: Any) -> None:
    """Write the leaves of `state`, after `round` rounds."""
    leaves = jax.tree.leaves(state)
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    np.savez(buffer, round=round, count=len(leaves), **arrays)
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
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


class Bookmark:
    """Where a computation stands that always ends alike: one file for its state, one for its rows.

    It is written at most every `seconds`, and so rarely that it waits `times` as long as writing takes.
    """

    def __init__(self, folder: Path, identity: bytes, seconds: float = 30.0, times: float = 20.0) -> None:
        """`identity` tells computations apart that share a folder."""
        name = identity.hex()[:16]
        self._folder, self._state, self._rows = folder, folder / f"{name}.npz", folder / f"{name}.json"
        self._seconds, self._times = seconds, times
        self._first = self._next = time.monotonic() + seconds

    def load(self, state: Any, rows: list[list[dict[str, Any]]]) -> tuple[int, Any, list[list[dict[str, Any]]]]:
        """(rounds done, state, rows); 0 and what is given if nothing was written."""
        if not self._state.exists():
            return 0, state, rows
        done, state = load_checkpoint(self._state, state)
        rows = json.loads(self._rows.read_text())  # written first, so it may be ahead
        return done, state, [[row for row in history if row["round"] <= done] for history in rows]

    def save(self, done: int, state: Any, rows: list[list[dict[str, Any]]], *, last: bool) -> None:
        """Write, if it is time; the last state of all that took longer than `seconds`."""
        started = time.monotonic()
        if started < (self._first if last else self._next):
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self._rows, json.dumps(rows).encode())
        save_checkpoint(self._state, done, state)
        ended = time.monotonic()
        self._next = ended + max(self._seconds, self._times * (ended - started))
