"""Checkpoints: the state after a round, on disk atomically, so that a killed run goes on as if it had never stopped."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sordino.errors import InvalidInput

__all__ = ["load_checkpoint", "save_checkpoint", "write_atomically"]


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
