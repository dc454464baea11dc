"""Seeds: fresh ones from the operating system, and those that a person gives, for experiments.

Whoever knows the seed of a run can compute its noise and take it off. So a run has a fresh seed of 64 bits unless it is
given one. A fresh seed is never printed. For resuming, it lies in the run's folder (for a sweep, in the sweep's) in a
file that its owner alone can read, and in no file that may be handed on.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import jax
import numpy as np

from sordino.errors import LARGEST_SEED, NO_SUCH_SEED, require
from sordino.files import write_atomically
from sordino.keys import require_generator
from sordino.runs.names import SEED

Seed: TypeAlias = int | jax.Array  # a number, or a key of JAX


@dataclass(frozen=True)
class FreshSeed:
    """64 bits from the operating system. Its text does not show them."""

    bits: int = field(repr=False)
    shared: bool = False  # by the points of a sweep, which then share their noise

    @classmethod
    def draw(cls, *, shared: bool = False) -> FreshSeed:
        """A seed that nobody has seen."""
        return cls(secrets.randbits(64), shared)

    @classmethod
    def read(cls, folder: Path, field: str, *, shared: bool = False) -> FreshSeed:
        """The seed that a run or a sweep began with; refused where it cannot be known."""
        path = folder / SEED
        given = "give the seed that it was given, if it was, or restore the file, or choose another name"
        remedy = f"{SEED} is missing, which holds the seed that it began with: {given}"
        require(path.exists(), field, str(folder), remedy)
        written = re.fullmatch("[0-9a-f]{16}\n", path.read_bytes().decode("ascii", "replace"))
        remedy = f"{SEED} is damaged: restore it, or choose another name"
        require(written is not None, field, str(folder), remedy)
        assert written is not None
        return cls(int(written[0], 16), shared)

    def write(self, folder: Path) -> None:
        """Keep it for resuming, for its owner's eyes only."""
        write_atomically(folder / SEED, f"{self.bits:016x}\n".encode(), private=True)


def as_seed(seed: Seed) -> int:
    """A given seed as a whole number of 64 bits: an integer is itself, a key of JAX is its two words.

    Integers have at most 32 bits, as those that `jax.random.key` takes by default.
    """
    if not isinstance(seed, jax.Array):
        whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
        require(whole, "seed", seed, "must be an integer, or a key of JAX; leave it out for a fresh one")
        require(0 <= seed <= LARGEST_SEED, "seed", seed, NO_SUCH_SEED)
        return int(seed)
    require_generator(seed, "seed")
    require(seed.shape == (), "seed", seed.shape, "give an integer, or one key as jax.random.key makes it")
    high, low = (int(word) for word in jax.random.key_data(seed))
    return (high << 32) | low
