"""Step sizes that depend on the round.

The numbers of `constant`, `geometric` and `piecewise` are traced leaves, so that a sweep may vary them. Any other
function of the round, such as an optax schedule, is static: programs compiled for it are found by the function itself,
and a resumed run recognises it by its values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from sordino.bounding import AdaptiveClip
from sordino.errors import MOST_ROUNDS, InvalidInput, require, require_float32
from sordino.pytrees import pytree
from sordino.types import Bounder, Scalar

Schedule: TypeAlias = Callable[[jax.Array], Scalar]
StepSize: TypeAlias = float | dict[str, Any] | Callable[..., Any]  # what `as_schedule` reads

DENSE = 100_000  # rounds of which every value is part of a function's digest; later ones are probed sparsely
SHARES = (1e-6, 1e6)  # of a bound's first value
_PROBED = np.concatenate([np.arange(DENSE), np.arange(DENSE, MOST_ROUNDS + 1, 10_000)]).astype(np.int32)


@pytree
@dataclass(frozen=True)
class Constant:
    """eta_k = eta_0."""

    value: Scalar

    def __call__(self, k: jax.Array) -> Scalar:
        return self.value


@pytree
@dataclass(frozen=True)
class Geometric:
    """eta_k = decay^k eta_0."""

    value: Scalar
    decay: Scalar

    def __call__(self, k: jax.Array) -> Scalar:
        return self.value * self.decay**k


@pytree
@dataclass(frozen=True)
class Piecewise:
    """beta_k = values[j] for the first j with k < until[j]; the last value from then on."""

    values: tuple[Scalar, ...]
    until: tuple[int, ...] = field(metadata={"static": True})

    def __call__(self, k: jax.Array) -> Scalar:
        j = jnp.sum(k >= jnp.asarray(self.until))
        return jnp.asarray(self.values)[j]


@pytree
@dataclass(frozen=True)
class FunctionOfRound:
    """eta_k = function(k). The repr shows the digest of the values, by which a resumed run knows the function."""

    function: Schedule = field(repr=False, metadata={"static": True})
    values: str = field(metadata={"static": True})

    def __call__(self, k: jax.Array) -> Scalar:
        return self.function(k)


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


def of_function(function: Callable[..., Any]) -> FunctionOfRound:
    """The function as a schedule; refuses one whose values are not finite numbers from 0 up."""
    values = _values(function, _PROBED)
    remedy = "the function must return a finite number, 0 or more, for every round"
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if wrong.size:
        raise InvalidInput("learning rate", function, f"{remedy}; round {_PROBED[wrong[0]]} gives {values[wrong[0]]}")
    # An object with values that can change has no hash; its bound method is compared by the object's identity.
    compared = function if isinstance(function, Hashable) else function.__call__
    return FunctionOfRound(compared, hashlib.sha256(values.astype("<f4").tobytes()).hexdigest())


def as_schedule(what: StepSize, name: str = "learning rate") -> Schedule:
    """A number, {start, decay}, {values, until} or a function of the round as a schedule; errors call it `name`."""
    try:
        match what:
            case int() | float():
                return constant(float(what))
            case {"start": start, "decay": decay, **more} if not more:
                return geometric(float(start), float(decay))
            case {"values": values, "until": until, **more} if not more:
                return piecewise(tuple(map(float, values)), tuple(until))
            case _ if callable(what):
                is_pytree = jax.tree.leaves(what) != [what]  # its numbers are leaves, as of the schedules above
                return what if is_pytree else of_function(what)
        remedy = "use a number, {start, decay}, {values, until} or a function of the round"
        raise InvalidInput(name, what, remedy)
    except InvalidInput as error:
        raise InvalidInput(name, what, error.remedy) from None
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(name, what, "use numbers") from None


def require_positive(schedule: Schedule, rounds: int | None, name: str) -> None:
    """Refuse a function that is 0 in a round of the plan, for methods that divide by the step size."""
    if rounds is None or not isinstance(schedule, FunctionOfRound):
        return
    zero = np.flatnonzero(_values(schedule.function, np.arange(rounds, dtype=np.int32)) <= 0)
    if zero.size:
        remedy = f"is 0 in round {zero[0]}, and messages are divided by it: plan fewer rounds, or end above 0"
        raise InvalidInput(name, schedule.function, remedy)


def shares_of(what: StepSize | None) -> Schedule | None:
    """The shares s_k of a bound's first value that a run file or Python describes; None where the bound stays.

    A message of round k is bounded by s_k C: bound_C(v / s_k) is sent, and the receiver multiplies by s_k. So messages
    have norm C at most in every round, the sensitivity and the noise are those of a bound C, and what reaches the model
    is s_k times that noise.
    """
    return None if what is None else as_schedule(what, "bound_schedule")


def share_of(schedule: Schedule | None, k: jax.Array) -> Scalar:
    """s_k."""
    return 1.0 if schedule is None else schedule(k)


def require_shares(schedule: Schedule | None, rounds: int | None, bound: Bounder | None) -> None:
    """Refuse shares of no bound, of one that moves by itself, and shares that no bound can have in a round."""
    if schedule is None:
        return
    require(bound is not None, "bound_schedule", schedule, "there is no bound to follow it: give one, or leave it out")
    adaptive = isinstance(bound, AdaptiveClip)
    require(not adaptive, "bound_schedule", schedule, "an adaptive bound moves by itself: use clip, or leave it out")
    shares = np.asarray(jax.vmap(schedule)(jnp.arange(rounds or 1)) * jnp.ones(rounds or 1))
    low, high = SHARES
    wrong = np.flatnonzero(~((shares >= low) & (shares <= high)))
    if wrong.size:
        remedy = f"is {shares[wrong[0]]:g} in round {wrong[0]}: must lie between {low:g} and {high:g} in every round"
        raise InvalidInput("bound_schedule", schedule, remedy)


def _values(function: Callable[..., Any], rounds: np.ndarray) -> np.ndarray:
    """The function's values in these rounds, traced as in a run."""
    try:
        with jax.ensure_compile_time_eval():
            values = np.asarray(jax.vmap(lambda k: jnp.asarray(function(k), jnp.float32))(rounds))
    except Exception as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        remedy = f"the function must turn a round, a traced JAX integer, into a number; it failed with: {reason}"
        raise InvalidInput("learning rate", function, remedy) from None
    shape = values.shape[1:]
    require(shape == (), "learning rate", function, f"the function must return a number, not an array of shape {shape}")
    return values
