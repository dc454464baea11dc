"""Laplace noise on every coordinate: pure DP by the L1 sensitivity, which is sqrt(d) times the L2 bound.

A Laplace variable is a difference of two exponentials, so the sum of M of them is a difference of two Gamma(M).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import jax

from sordino.errors import require, require_drawable
from sordino.mechanisms.request import NoiseContext, ScaledRequest
from sordino.privacy import events
from sordino.privacy.stated import stated_as
from sordino.pytrees import pytree
from sordino.types import Aggregate, Event, Key, Limited, Mechanism, Message, Relation, Scalar, Unit, Vector


@pytree
@dataclass(frozen=True)
class Laplace(Mechanism):
    """See the module."""

    noise_scale: Scalar  # b; the std is sqrt(2) b

    name = "laplace"

    def message(self, key: Key, vector: Vector) -> Message:
        return Message(vector + self.noise_scale * jax.random.laplace(key, vector.shape, vector.dtype))

    def aggregate(self, key: Key, total: Vector, sum_of_squared_norms: jax.Array | None, count: int) -> Aggregate:
        """The exact law of the sum; its joint law with the squared norms is not known."""
        key_up, key_down = jax.random.split(key)
        up = jax.random.gamma(key_up, 1.0 * count, total.shape, total.dtype)
        down = jax.random.gamma(key_down, 1.0 * count, total.shape, total.dtype)
        return Aggregate(total + self.noise_scale * (up - down))

    def event(self, bounder: Limited, relation: Relation, d: int, *, unit: Unit = Unit.CLIENT) -> Event:
        """Pure DP with epsilon = L1 sensitivity / b; for one coordinate with the exact loss of that noise."""
        if float(self.noise_scale) == 0:
            return events.NonPrivate("the noise scale is 0")
        multiplier = float(self.noise_scale) / (math.sqrt(d) * float(bounder.sensitivity(relation)))
        # The exact loss is that of one coordinate that moves by everything. No theorem here says that it is the worst
        # of all ways to spread a move over several coordinates.
        event = events.Laplace(multiplier) if d == 1 else events.Pure(1 / multiplier)
        return stated_as(event, unit, relation)


def laplace(noise_scale: float) -> Laplace:
    """Laplace noise of this scale on every coordinate."""
    require(0 <= noise_scale < math.inf, "noise_scale", noise_scale, "must be finite and not negative")
    if noise_scale > 0:  # 0 says that there is no noise
        require_drawable("noise_scale", noise_scale)
    return Laplace(noise_scale)


@dataclass(frozen=True)
class LaplaceRequest(ScaledRequest):
    """[privacy] mechanism = "laplace".

    Args:
      noise_multiplier: noise scale over L1 sensitivity, instead of epsilon.
    """

    name = "laplace"

    def calibrate(self, context: NoiseContext) -> Laplace:
        """Noise of scale z times the L1 sensitivity, with the given or the least z."""
        l1 = float(context.bound.sensitivity(context.relation)) * math.sqrt(context.d)
        if self.noise_multiplier is not None:
            return laplace(self.noise_multiplier * l1)
        assert context.target is not None
        return laplace(context.target.least(lambda z: context.round_cost(laplace(z * l1))) * l1)

    def figures(self, mechanism: Mechanism, context: NoiseContext) -> Mapping[str, float]:
        assert isinstance(mechanism, Laplace)
        l1 = float(context.bound.sensitivity(context.relation)) * math.sqrt(context.d)
        return {"noise_multiplier": float(mechanism.noise_scale) / l1}
