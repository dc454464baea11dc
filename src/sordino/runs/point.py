"""What is run, and what came of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from sordino.errors import LARGEST_SEED, NO_SUCH_SEED, require
from sordino.planning import Plan, ResolvedPlan
from sordino.privacy.guarantee import Certificate
from sordino.tasks import Task
from sordino.types import Key, PyTree

Row: TypeAlias = dict[str, Any]  # one line of metrics
Seed: TypeAlias = int | jax.Array  # a number, or a key of JAX
GENERATOR = "threefry2x32"
Progress: TypeAlias = Callable[[Row], None]


@dataclass(frozen=True)
class Point:
    """A plan with its seed; perhaps resolved already, and with a folder that keeps the run."""

    plan: Plan
    seed: int = 0
    resolved: ResolvedPlan | None = None
    folder: Path | None = None
    config: str | None = None  # the run file, for the folder

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**64, "seed", self.seed, "must lie in [0, 2^64)")

    def for_task(self, task: Task) -> Point:
        """The same point, resolved for the task."""
        if self.resolved is not None:
            same = self.resolved.plan is self.plan and self.resolved.population is task.population
            require(same, "resolved", self.plan.rounds, "was resolved for another plan or task: leave it out")
            return self
        return dataclasses.replace(self, resolved=self.plan.resolve(task.population))

    @property
    def answer(self) -> ResolvedPlan:
        """The resolved plan."""
        assert self.resolved is not None, "Point.for_task resolves the plan"
        return self.resolved


@dataclass(frozen=True)
class Run:
    """A finished run."""

    params: PyTree
    history: list[Row]
    certificate: Certificate
    seconds: float
    transcript: list[PyTree] | None = None  # (senders, presence, messages) of every segment
    iterates: np.ndarray | None = None  # [evaluation, d]

    @property
    def accuracy(self) -> float:
        """Test accuracy after the last round, of a classifier."""
        return float(self.history[-1]["accuracy"])

    @property
    def diverged(self) -> bool:
        """Whether the model was lost: its test loss is not a number."""
        return not math.isfinite(self.history[-1]["test_loss"])


def as_seed(seed: Seed) -> int:
    """A seed as a whole number of 64 bits: an integer is itself, a key of JAX is its two words.

    Integers of more than 32 bits are refused, since `jax.random.key` would repeat the noise of another seed for them.
    """
    if not isinstance(seed, jax.Array):
        whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
        require(whole, "seed", seed, "must be an integer, or a key of JAX")
        require(0 <= seed <= LARGEST_SEED, "seed", seed, NO_SUCH_SEED)
        return int(seed)
    typed = jnp.issubdtype(seed.dtype, jax.dtypes.prng_key) and seed.shape == ()
    require(typed, "seed", seed.dtype, "give an integer, or one key as jax.random.key makes it")
    kind = str(jax.random.key_impl(seed))
    require(kind == GENERATOR, "seed", kind, f"keys of another generator than {GENERATOR} are not supported")
    high, low = (int(word) for word in jax.random.key_data(seed))
    return (high << 32) | low


def key_of(seed: int) -> Key:
    """The key of a seed: `jax.random.key(seed)` of the one generator that noise is analysed for."""
    words = jnp.array([seed >> 32, seed & 0xFFFFFFFF], jnp.uint32)
    return jax.random.wrap_key_data(words, impl=GENERATOR)
