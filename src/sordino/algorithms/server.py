"""What the server does with the mean message a_k: a step with momentum or any optax optimiser, and an output."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sordino.errors import InvalidInput
from sordino.pytrees import pytree
from sordino.types import Key, Scalar, Vector

__all__ = ["OUTPUTS", "OptaxStep", "Output", "ServerStep"]

OUTPUTS = ("last", "mean-of-last-two", "random")


@pytree
@dataclass(frozen=True)
class ServerStep:
    """w <- w - beta_k v, v <- momentum v + a_k."""

    lr: Any  # beta_k, a Schedule
    momentum: Scalar

    def init(self, w: Vector) -> Vector:
        """v."""
        return jnp.zeros_like(w)

    def __call__(self, w: Vector, v: Vector, a: Vector, k: jax.Array) -> tuple[Vector, Vector]:
        """(w, v) of the next round."""
        v = self.momentum * v + a
        return w - self.lr(k) * v, v


@pytree
@dataclass(frozen=True)
class OptaxStep:
    """Any optax optimiser, fed beta_k a_k as if it were a gradient."""

    lr: Any
    optimiser: Any = field(metadata={"static": True})

    def init(self, w: Vector) -> Any:
        """The optimiser's own state."""
        return self.optimiser.init(w)

    def __call__(self, w: Vector, state: Any, a: Vector, k: jax.Array) -> tuple[Vector, Any]:
        """(w, state) of the next round."""
        updates, state = self.optimiser.update(self.lr(k) * a, state, w)
        return w + updates, state


class Output(NamedTuple):
    """The iterate that is given out: the last, the mean of the last two, or one chosen uniformly at random so far."""

    iterate: Vector

    @classmethod
    def init(cls, w: Vector) -> Output:
        """Before the first round."""
        return cls(w)

    def after(self, rule: str, key: Key, previous: Vector, current: Vector, k: jax.Array) -> Output:
        """After round k turned `previous` into `current`."""
        if rule == "last":
            return Output(current)
        if rule == "mean-of-last-two":
            return Output((previous + current) / 2)
        if rule == "random":
            # Keep w_k with probability 1/(k+1): then every iterate so far is equally likely.
            take = jax.random.uniform(key) < 1.0 / (k + 1.0)
            return Output(jnp.where(take, previous, self.iterate))
        raise InvalidInput("output", rule, "use one of " + ", ".join(OUTPUTS))
