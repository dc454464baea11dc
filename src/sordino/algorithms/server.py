"""What the server does with the mean message a_k: a step with momentum or of an optax optimiser, and an output.

FedAdam, FedYogi and FedAdagrad (Reddi et al. 2021, Adaptive Federated Optimization, Algorithm 2); the server keeps m_t
and v_t, and Delta_t is -a_k here:

    m_t = beta_1 m_{t-1} + (1 - beta_1) Delta_t
    v_t = v_{t-1} + Delta_t^2                                                   FedAdagrad
    v_t = v_{t-1} - (1 - beta_2) Delta_t^2 sign(v_{t-1} - Delta_t^2)            FedYogi
    v_t = beta_2 v_{t-1} + (1 - beta_2) Delta_t^2                               FedAdam
    x_{t+1} = x_t + eta m_t / (sqrt(v_t) + tau)

Optax computes these lines with four differences. Its Adam and Yogi divide m_t by 1 - beta_1^t and v_t by 1 - beta_2^t;
the paper divides neither. Its Adagrad has beta_1 = 0 and the denominator sqrt(v_t + tau). v begins at 0 (Adam), 1e-6
(Yogi, and m too) or 0.1 (Adagrad); the paper begins at tau^2 or more. tau is 1e-8, 1e-3 or 1e-7; the paper tunes it.
A run file sets beta_1, beta_2 and tau as {name = "adam", b1 = 0.9, b2 = 0.99, eps = 1e-3}, and the start of Adagrad as
initial_accumulator_value. The step uses the noisy mean alone, so it costs no privacy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp
import optax

from sordino.algorithms.common import require_choice
from sordino.algorithms.schedules import Schedule, StepSize, as_schedule
from sordino.errors import InvalidInput, require
from sordino.pytrees import pytree
from sordino.types import Key, PyTree, Scalar, Vector

OUTPUTS = ("last", "mean-of-last-two", "random")
OPTIMISERS: dict[str, Callable[..., Optimiser]] = {
    "adam": optax.adam,
    "adagrad": optax.adagrad,
    "sgd": optax.sgd,
    "yogi": optax.yogi,
}
Option: TypeAlias = float | bool | str


@runtime_checkable
class Optimiser(Protocol):
    """An optax optimiser."""

    @property
    def init(self) -> Callable[..., PyTree]:
        """w -> the optimiser's state."""

    @property
    def update(self) -> Callable[..., tuple[PyTree, PyTree]]:
        """gradient, state, w -> what is added to w, the next state."""


ServerOptimiser: TypeAlias = str | dict[str, Option] | Optimiser  # what `server_step` reads


@pytree
@dataclass(frozen=True)
class ServerStep:
    """w <- w - beta_k v, v <- momentum v + a_k."""

    lr: Schedule  # beta_k
    momentum: Scalar

    def init(self, w: Vector) -> Vector:
        return jnp.zeros_like(w)

    def __call__(self, w: Vector, v: Vector, a: Vector, k: jax.Array) -> tuple[Vector, Vector]:
        v = self.momentum * v + a
        return w - self.lr(k) * v, v


@pytree
@dataclass(frozen=True)
class OptaxStep:
    """An optax optimiser, which has its own learning rate, with beta_k a_k as its gradient."""

    lr: Schedule  # beta_k
    optimiser: Optimiser = field(metadata={"static": True})

    def init(self, w: Vector) -> PyTree:
        return self.optimiser.init(w)

    def __call__(self, w: Vector, state: PyTree, a: Vector, k: jax.Array) -> tuple[Vector, PyTree]:
        updates, state = self.optimiser.update(self.lr(k) * a, state, w)
        return w + updates, state


@pytree
@dataclass(frozen=True)
class NamedStep:
    """The optax optimiser of this name, with beta_k as its learning rate and a_k as its gradient."""

    lr: Schedule  # beta_k
    name: str = field(metadata={"static": True})
    options: tuple[tuple[str, Option], ...] = field(metadata={"static": True})

    def init(self, w: Vector) -> PyTree:
        return _optimiser(self.name, self.options).init(w)

    def __call__(self, w: Vector, state: PyTree, a: Vector, k: jax.Array) -> tuple[Vector, PyTree]:
        # Each of these optimisers multiplies by its learning rate last.
        updates, state = _optimiser(self.name, self.options).update(a, state, w)
        return w + self.lr(k) * updates, state


@functools.cache
def _optimiser(name: str, options: tuple[tuple[str, Option], ...]) -> Optimiser:
    return OPTIMISERS[name](1.0, **dict(options))


def server_step(
    server_lr: StepSize | None, default: Schedule, momentum: float, optimiser: ServerOptimiser | None
) -> ServerStep | OptaxStep | NamedStep:
    """The server's step as a run file or Python describes it; `default` is beta_k where no server_lr is given."""
    require(0 <= momentum < 1, "server_momentum", momentum, "must lie in [0, 1)")
    beta = default if server_lr is None else as_schedule(server_lr, "server_lr")
    if optimiser is None:
        return ServerStep(beta, momentum)
    require(not momentum, "server_momentum", momentum, "give it to the optax optimiser instead")
    if isinstance(optimiser, Optimiser):
        return OptaxStep(beta, optimiser)
    options = dict(optimiser) if isinstance(optimiser, dict) else {"name": optimiser}
    name = options.pop("name", None)
    if not isinstance(name, str) or name not in OPTIMISERS:
        remedy = f"use one of {', '.join(OPTIMISERS)}, {{name = ..., options}}, or an optax optimiser from Python"
        raise InvalidInput("server_optimiser", optimiser, remedy)
    require(server_lr is not None, "server_lr", server_lr, "give the learning rate of server_optimiser")
    require("learning_rate" not in options, "server_optimiser", optimiser, "give the learning rate as server_lr")
    step = NamedStep(beta, name, tuple(sorted(options.items())))
    try:
        step(jnp.zeros(1), step.init(jnp.zeros(1)), jnp.ones(1), jnp.int32(0))
    except Exception as error:  # optax checks options late, and each in its own way
        raise InvalidInput("server_optimiser", optimiser, f"optax refuses these options: {error}") from None
    return step


class Output(NamedTuple):
    """The iterate that is given out: the last, the mean of the last two, or one chosen uniformly at random so far."""

    iterate: Vector

    @classmethod
    def init(cls, w: Vector) -> Output:
        return cls(w)

    def after(self, rule: str, key: Key, previous: Vector, current: Vector, k: jax.Array) -> Output:
        """After round k turned `previous` into `current`."""
        require_choice("output", rule, OUTPUTS)
        if rule == "last":
            return Output(current)
        if rule == "mean-of-last-two":
            return Output((previous + current) / 2)
        # Keep w_k with probability 1/(k+1): then every iterate so far is equally likely.
        take = jax.random.uniform(key) < 1.0 / (k + 1.0)
        return Output(jnp.where(take, previous, self.iterate))
