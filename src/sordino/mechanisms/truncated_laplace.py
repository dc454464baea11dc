"""Truncated Laplace noise on every coordinate: TDL noise in full precision (paper 0, Remark 2).

Geng, Ding, Guo, Kumar: Tight Analysis of Privacy and Utility Tradeoff in Approximate Differential Privacy
(Definition 3). With U uniform on (0, 1) and a random sign:

    |y| = -lambda log(1 - U (1 - e^(-A / lambda)))                    p(y) ~ e^(-|y| / lambda),  |y| <= A

The remark carries Theorem 1's (lambda, A) over to this law, and its false guarantee with them. Here the truncation is
paid for: `privacy.truncated_laplace`. Noise is drawn in float32, so a certificate describes the ideal law.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from sordino.errors import require, require_drawable
from sordino.mechanisms.request import MessageRequest, NoiseContext
from sordino.privacy import events
from sordino.privacy.stated import stated_as
from sordino.privacy.truncated_laplace import calibrate_truncated_laplace, truncated_laplace_event
from sordino.pytrees import pytree
from sordino.types import Event, Key, Limited, Mechanism, Message, Relation, Scalar, Unit, Vector


@pytree
@dataclass(frozen=True)
class TruncatedLaplace(Mechanism):
    """See the module."""

    noise_scale: Scalar  # lambda
    cutoff: Scalar  # A

    name = "truncated_laplace"
    aggregate = None  # no closed law of the sum is known

    def message(self, key: Key, vector: Vector) -> Message:
        key_size, key_sign = jax.random.split(key)
        uniform = jax.random.uniform(key_size, vector.shape, vector.dtype)
        size = -self.noise_scale * jnp.log1p(uniform * jnp.expm1(-self.cutoff / self.noise_scale))
        sign = jax.random.rademacher(key_sign, vector.shape, vector.dtype)
        return Message(vector + sign * jnp.minimum(size, self.cutoff))

    def event(self, bounder: Limited, relation: Relation, d: int, *, unit: Unit = Unit.CLIENT) -> Event:
        """Concentrated and pure on the overlap of the supports, with the worst truncation as delta."""
        moved = float(bounder.sensitivity(relation))
        event = truncated_laplace_event(float(self.noise_scale), float(self.cutoff), d, moved)
        if event.delta >= 1:
            return events.NonPrivate("the supports of neighbours do not overlap")
        return stated_as(event, unit, relation)

    @property
    def summary(self) -> Mapping[str, float]:
        return {"noise_scale": float(self.noise_scale), "noise_ends_at": float(self.cutoff)}


def truncated_laplace(noise_scale: float, cutoff: float) -> TruncatedLaplace:
    """Laplace noise of this scale on every coordinate, within +-cutoff."""
    for name, value in (("noise_scale", noise_scale), ("cutoff", cutoff)):
        require(0 < value < math.inf, name, value, "must be finite and positive")
        require_drawable(name, value)
    return TruncatedLaplace(noise_scale, cutoff)


@dataclass(frozen=True)
class TruncatedLaplaceRequest(MessageRequest):
    """[privacy] mechanism = "truncated_laplace".

    Args:
      message_epsilon: of each message (with trust central, of the sum).
      message_delta: of each message.
    """

    message_epsilon: float | None = None
    message_delta: float | None = None

    name = "truncated_laplace"
    needed = ("message_epsilon", "message_delta")
    amplified = False  # truncated noise fails with some delta, which no theorem here amplifies

    def calibrate(self, context: NoiseContext) -> TruncatedLaplace:
        assert self.message_epsilon is not None
        assert self.message_delta is not None
        moved = float(context.bound.sensitivity(context.relation))
        require(0 < self.message_epsilon < math.inf, "message_epsilon", self.message_epsilon, "must be positive")
        remedy = "must lie in (0, 1): truncated noise never gives 0; use laplace"
        require(0 < self.message_delta < 1, "message_delta", self.message_delta, remedy)
        scale, cutoff = calibrate_truncated_laplace(self.message_epsilon, self.message_delta, context.d, moved)
        return truncated_laplace(scale, cutoff)
