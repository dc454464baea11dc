"""Checkpoints: where runs stand, so that after a kill they go on as if they had never stopped."""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from sordino.files import write_atomically
from sordino.runs.point import Row
from sordino.types import PyTree

EVERY = 30.0  # seconds between two checkpoints, at least
SHARE = 0.05  # of the time that may go into saving, at most

State = TypeVar("State")


class Checkpoint:
    """Rounds done, the state after them, all rows measured so far, and the seconds that they took.

    It only saves time: a run repeats the rounds since the last checkpoint and ends alike. A file that cannot be read,
    or does not hold what it must, counts as none. Without a path nothing is kept.
    """

    def __init__(
        self, path: Path | None, identity: bytes = b"", *, every: float | None = None, always_last: bool = False
    ) -> None:
        """`identity` is that of the run, `always_last` keeps the end of a run however short it was."""
        self._path, self._identity, self._every = path, identity.hex(), EVERY if every is None else every
        self._always_last = always_last
        self._started, self._before = time.monotonic(), 0.0
        self._next = self._started + self._every

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning, with those of killed processes up to their last checkpoint."""
        return self._before + time.monotonic() - self._started

    def load(self, state: State, runs: int, stops: Sequence[int]) -> tuple[int, State, list[list[Row]]]:
        """(rounds done, state, rows of every run); `stops` are the rounds after which rows are measured."""
        nothing: tuple[int, State, list[list[Row]]] = (0, state, [[] for _ in range(runs)])
        if self._path is None or not self._path.exists():
            return nothing
        leaves, structure = jax.tree.flatten(state)
        try:
            with np.load(io.BytesIO(self._path.read_bytes())) as saved:
                done, note = int(saved["round"]), json.loads(saved["note"].tobytes())
                arrays = [saved[f"leaf{i}"] for i in range(int(saved["count"]))]
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
            return nothing
        if note.get("identity") != self._identity:  # of another run
            return nothing
        rows: list[list[Row]] = note["rows"]
        measured = [[row["round"] for row in history] for history in rows]
        expected = [[stop for stop in stops if stop <= done]] * runs
        if list(map(np.shape, arrays)) != list(map(np.shape, leaves)) or measured != expected:
            return nothing
        self._before = note["seconds"]
        restored = [jnp.asarray(array, jnp.asarray(leaf).dtype) for array, leaf in zip(arrays, leaves, strict=True)]
        return done, jax.tree.unflatten(structure, restored), rows

    def save(self, done: int, state: PyTree, rows: list[list[Row]], *, last: bool = False) -> None:
        """Write if it is time. The last state of a run is compressed, since it stays."""
        started = time.monotonic()
        due = started >= (self._started + self._every if last else self._next)
        if self._path is None or not (due or (last and self._always_last)):
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        leaves = jax.tree.leaves(state)
        note = json.dumps({"identity": self._identity, "seconds": self.elapsed, "rows": rows})
        arrays: dict[str, Any] = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        arrays |= {"round": done, "count": len(leaves), "note": np.frombuffer(note.encode(), np.uint8)}
        buffer = io.BytesIO()
        (np.savez_compressed if last else np.savez)(buffer, **arrays)
        write_atomically(self._path, buffer.getvalue(), private=True)
        ended = time.monotonic()
        self._next = ended + max(self._every, (ended - started) / SHARE)

    def remove(self) -> None:
        """Delete the file: all runs are safe elsewhere."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
