"""PrivUnit x ScalarDP: a pure-DP message for a vector of norm at most C (DP-FedEXP, Algorithms 3 to 5).

    V <- uniform on {<v, u> >= gamma} w.p. p, else uniform on {<v, u> < gamma}      u = Delta / ||Delta||
    Z <- V / m
    c <- ScalarDP(||Delta||) Z                                                      E c = Delta

V is drawn through its coordinate along u: with S ~ U(0, q) w.p. p, else U(q, 1), and Beta(1/2, (d-1)/2) the law of the
squared coordinate of a uniform point, t = +-sqrt(its upper quantile at 2 min(S, 1 - S)), V = t u + sqrt(1 - t^2) w with
w uniform on the unit sphere orthogonal to u. t is computed in float64 on the host. No exact law of the sum is known.
The paper prints "w.p. gamma" in the first line, a misprint: Z would be biased.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import betainccinv

from sordino.errors import InvalidInput, require
from sordino.mechanisms._lattice import require_made_for
from sordino.mechanisms.request import MessageRequest, NoiseContext
from sordino.mechanisms.scalar_dp import ScalarDP, scalar_dp
from sordino.privacy import events
from sordino.privacy.privunit import PrivUnitConstants, privunit_constants
from sordino.pytrees import pytree
from sordino.types import Event, Key, Limited, Mechanism, Message, Relation, Trust, Unit, Vector


@pytree
@dataclass(frozen=True)
class PrivUnit(Mechanism):
    """See the module."""

    direction: PrivUnitConstants = field(metadata={"static": True})
    norm: ScalarDP

    name = "privunit"
    estimates_squared_norm = True
    aggregate = None  # each w_i lives in another orthogonal space: no exact O(d) law

    def message(self, key: Key, vector: Vector) -> Message:
        """c = r^ Z, with the level of r^ beside it."""
        key_direction, key_norm = jax.random.split(key)
        largest = jnp.max(jnp.abs(vector))  # divided out first: the squares of tiny coordinates underflow
        some = largest >= jnp.finfo(vector.dtype).tiny
        fixed = jnp.zeros_like(vector).at[0].set(1.0)  # a zero update has no direction: any fixed one will do
        scaled = jnp.where(some, vector / jnp.where(some, largest, 1.0), fixed)
        length = jnp.linalg.norm(scaled)
        u, r = scaled / length, jnp.where(some, largest * length, 0.0)
        noisy_norm = self.norm.randomize(key_norm, r)
        return Message(noisy_norm.value * self.randomize_direction(key_direction, u), level=noisy_norm.level)

    def randomize_direction(self, key: Key, u: Vector) -> Vector:
        """Algorithm 3: Z for a unit vector u."""
        key_cap, key_rest = jax.random.split(key)
        t = self._cap_coordinate(key_cap).astype(u.dtype)
        g = jax.random.normal(key_rest, u.shape, u.dtype).at[0].set(0.0)
        # x = (t, sqrt(1-t^2) g/||g||) has the right law around e_1. The reflection that takes e_1 to -+u, for which
        # nothing cancels, carries it to u: no w orthogonal to u is formed, which rounding would spoil.
        tiny = jnp.finfo(u.dtype).tiny
        x = (jnp.sqrt((1 - t * t) / jnp.maximum(jnp.vdot(g, g), tiny)) * g).at[0].set(t)
        sign = jnp.where(u[0] < 0, -1.0, 1.0).astype(u.dtype)
        along = (t + sign * jnp.vdot(u, x)) / (1 + jnp.abs(u[0]))
        V = (along * u - sign * x).at[0].add(sign * along)
        return V / self.direction.m

    def squared_norm(self, message: Message) -> jax.Array:
        """s^ of Algorithm 5, from the transmitted level."""
        assert message.level is not None
        return self.norm.squared_norm(message.level)

    def level_of(self, vector: Vector) -> jax.Array:
        """J^ from the message alone: ||c|| = |r^| / m."""
        return self.norm.level_of(self.direction.m * jnp.linalg.norm(vector))

    def event(self, bounder: Limited, relation: Relation, d: int, *, unit: Unit = Unit.CLIENT) -> Event:
        """(eps0 + eps1 + eps2)-DP, with its exact loss: any two inputs are covered."""
        require_made_for(bounder, self.norm.constants.bound, d, self.direction.d)
        return events.Composed((self.direction.event, self.norm.event), unit=unit, relation=relation)

    def bits(self, d: int) -> int:
        """float32 coordinates and the level."""
        return 32 * d + self.norm.bits

    def _cap_coordinate(self, key: Key) -> jax.Array:
        """t, from four random words."""
        words = jax.random.bits(key, (4,), jnp.uint32)
        shape = jax.ShapeDtypeStruct((), jnp.float32)
        return jax.pure_callback(self._cap_on_host, shape, words, vmap_method="broadcast_all")

    def _cap_on_host(self, words: Any) -> np.ndarray:
        w = np.asarray(words, np.uint64)
        # Two uniform numbers of 53 bits from two words each, never 0.
        first, second = (((w[..., i] << np.uint64(21)) ^ (w[..., i + 1] >> np.uint64(11))) + 0.5 for i in (0, 2))
        in_cap, position = first * 2.0**-53 < self.direction.p, second * 2.0**-53
        q = self.direction.q
        S = np.where(in_cap, q * position, q + (1 - q) * position)
        square = betainccinv(0.5, (self.direction.d - 1) / 2, 2 * np.minimum(S, 1 - S))
        return np.where(S < 0.5, np.sqrt(square), -np.sqrt(square)).astype(np.float32)


def privunit(*, d: int, eps0: float, eps1: float, eps2: float, bound: float, gamma: str = "exact") -> PrivUnit:
    """PrivUnit x ScalarDP for vectors of d coordinates and norm at most `bound`: pure (eps0 + eps1 + eps2)-DP."""
    return PrivUnit(privunit_constants(d, eps0, eps1, gamma), scalar_dp(eps2, bound))


@dataclass(frozen=True)
class PrivUnitRequest(MessageRequest):
    """[privacy] mechanism = "privunit".

    Args:
      message_eps0: of the side of the cap that a direction falls on.
      message_eps1: of the cap's width.
      message_eps2: of the norm.
      gamma: how the cap is chosen.
    """

    message_eps0: float | None = None
    message_eps1: float | None = None
    message_eps2: float | None = None
    gamma: str = "exact"

    name = "privunit"
    pure = True
    needed = ("message_eps0", "message_eps1", "message_eps2")

    def check(self, trust: Trust, epsilon: object, delta: object) -> None:
        remedy = "privunit noise is added by each client: set trust to local"
        require(trust is Trust.LOCAL, "trust", trust, remedy)
        super().check(trust, epsilon, delta)

    def calibrate(self, context: NoiseContext) -> PrivUnit:
        assert self.message_eps0 is not None
        assert self.message_eps1 is not None
        assert self.message_eps2 is not None
        try:
            return privunit(
                d=context.d,
                eps0=self.message_eps0,
                eps1=self.message_eps1,
                eps2=self.message_eps2,
                bound=float(context.bound.limit),
                gamma=self.gamma,
            )
        except InvalidInput as error:  # a plan calls the budgets message_eps0, ...
            name = f"message_{error.field}" if error.field.startswith("eps") else error.field
            raise InvalidInput(name, error.value, error.remedy) from None
