"""Step sizes that depend on the round. Their numbers are traced leaves, so a sweep may vary them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from sordino.errors import InvalidInput, require, require_float32
from sordino.pytrees import pytree
from sordino.types import Scalar

__all__ = ["Schedule", "StepSize", "as_schedule", "constant", "geometric", "piecewise"]

Schedule: TypeAlias = Callable[[jax.Array], Scalar]
StepSize: TypeAlias = float | dict[str, Any] | Callable[..., Any]  # what `as_schedule` reads


@pytree
@dataclass(frozen=True)
class Constant:
    """eta_k = eta_0."""

    value: Scalar

    def __call__(self, k: jax.Array) -> Scalar:
        """The step size of round k."""
        return self.value


@pytree
@dataclass(frozen=True)
class Geometric:
    """eta_k = decay^k eta_0."""

    value: Scalar
    decay: Scalar

    def __call__(self, k: jax.Array) -> Scalar:
        """The step size of round k."""
        return self.value * self.decay**k


@pytree
@dataclass(frozen=True)
class Piecewise:
    """beta_k = values[j] for the first j with k < until[j]; the last value from then on."""

    values: tuple[Scalar, ...]
    until: tuple[int, ...] = field(metadata={"static": True})

    def __call__(self, k: jax.Array) -> Scalar:
        """The step size of round k."""
        j = jnp.sum(k >= jnp.asarray(self.until))
        return jnp.asarray(self.values)[j]


def constant(value: float) -> Constant:
    """The same step size in every round."""
    require_float32("learning rate", value)
    return Constant(value)


def geometric(value: float, decay: float) -> Geometric:
    """`value` in round 0, times `decay` after every round."""
    require_float32("learning rate", value)
    require(0 < decay <= 1, "decay", decay, "decay must lie in (0, 1]")
    return Geometric(value, decay)


def piecewise(values: tuple[float, ...], until: tuple[int, ...]) -> Piecewise:
    """values[0] before round until[0], values[1] before until[1], ..., the last value afterwards."""
    require(len(values) == len(until) + 1, "values", values, f"give one more than the {len(until)} rounds in `until`")
    for value in values:
        require_float32("values", value)
    require(all(float(k).is_integer() for k in until), "until", until, "rounds must be whole numbers")
    require(list(until) == sorted(set(until)), "until", until, "rounds must increase")
    return Piecewise(tuple(values), tuple(map(int, until)))


def as_schedule(what: Any, name: str = "learning rate") -> Schedule:
    """A number, {start, decay}, {values, until}, or a schedule, as a schedule; `name` is what errors call it."""
    try:
        return _schedule(what)
    except InvalidInput as error:
        raise InvalidInput(name, what, error.remedy) from None
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(name, what, "use numbers") from None


def _schedule(what: Any) -> Schedule:
    if isinstance(what, int | float):
        return constant(float(what))
    if isinstance(what, dict) and set(what) == {"start", "decay"}:
        return geometric(float(what["start"]), float(what["decay"]))
    if isinstance(what, dict) and set(what) == {"values", "until"}:
        return piecewise(tuple(map(float, what["values"])), tuple(what["until"]))
    # A plain function is no pytree, which a method's parts must be, and does not show its numbers to who resumes a run.
    if callable(what) and jax.tree.leaves(what) != [what]:
        return what
    raise InvalidInput("learning rate", what, "use a number, {start, decay} or {values, until}")
