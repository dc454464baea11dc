"""No noise: the message as it is. Not private, and every certificate says so."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from sordino.errors import require
from sordino.mechanisms.request import NoiseContext, NoiseRequest
from sordino.privacy import events
from sordino.pytrees import pytree
from sordino.types import Aggregate, Draws, Event, Key, Limited, Mechanism, Message, Relation, Trust, Unit, Vector


@pytree
@dataclass(frozen=True)
class NoNoise(Mechanism):
    """See the module."""

    name = "none"
    estimates_squared_norm = True

    def message(self, key: Key, vector: Vector) -> Message:
        return Message(vector)

    def aggregate(self, key: Key, total: Vector, sum_of_squared_norms: jax.Array | None, count: int) -> Aggregate:
        return Aggregate(total, sum_of_squared_norms, sum_of_squared_norms)

    def squared_norm(self, message: Message) -> jax.Array:
        return jnp.vdot(message.vector, message.vector)

    def event(self, bounder: Limited, relation: Relation, d: int, *, unit: Unit = Unit.CLIENT) -> Event:
        return events.NonPrivate()


def none() -> NoNoise:
    """No noise."""
    return NoNoise()


@dataclass(frozen=True)
class NoNoiseRequest(NoiseRequest):
    """[privacy] mechanism = "none", the default where no privacy is asked for."""

    name = "none"

    def check(self, trust: Trust, epsilon: object, delta: object) -> None:
        require(epsilon is None, "mechanism", "none", "without noise no epsilon can be met: leave epsilon out")

    def draws(self, trust: Trust) -> Draws:
        return Draws.NONE

    def calibrate(self, context: NoiseContext) -> NoNoise:
        return none()
