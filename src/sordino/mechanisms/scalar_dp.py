"""ScalarDP: a norm in [0, C] through randomised response (DP-FedEXP, Algorithm 4), and Algorithm 5 back.

    J   <- floor(k r / C) w.p. ceil(k r / C) - k r / C, else ceil(k r / C)          k = ceil(e^(eps2/3))
    J^  <- J w.p. e^eps2 / (e^eps2 + k), else uniform on {0, ..., k} \\ {J}
    r^  <- a (J^ - b)
    s^  <- (r^^2 - c2 r^ - c3) / (1 + c1)                                            E s^ <= r^2

The paper prints k = e^ceil(eps2/3), a misprint: that is no whole number. Its Algorithm 5 tells the sign of r^ by
whether |r^|/a + b is a whole number, which rounding spoils. J^ is part of the private output, so it may simply travel;
where it does not, the nearest a |j - b| is found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp

from sordino.errors import Refused
from sordino.keys import require_generator
from sordino.privacy.privunit import ScalarDPConstants, scalar_dp_constants
from sordino.pytrees import pytree
from sordino.types import Event, Key


class NoisyNorm(NamedTuple):
    """r^ and the level J^ that it stands for."""

    value: jax.Array
    level: jax.Array


@pytree
@dataclass(frozen=True)
class ScalarDP:
    """See the module."""

    constants: ScalarDPConstants = field(metadata={"static": True})

    def randomize(self, key: Key, norm: jax.Array) -> NoisyNorm:
        """Algorithm 4."""
        require_generator(key)
        k = self.constants.k
        key_round, key_truth, key_lie = jax.random.split(key, 3)
        kr = k * jnp.clip(norm / self.constants.bound, 0.0, 1.0)
        J = jnp.floor(kr) + (jax.random.uniform(key_round, kr.shape) < kr - jnp.floor(kr))
        # A whole threshold, rounded down: a float32 uniform number could not lie as rarely as a large eps2 wants.
        threshold = jnp.uint32(math.floor(self.constants.truth_prob * 2.0**32))
        truth = jax.random.bits(key_truth, kr.shape, jnp.uint32) < threshold
        other = jax.random.randint(key_lie, kr.shape, 0, k)  # one of the k others: skip J
        level = jnp.where(truth, J, other + (other >= J)).astype(jnp.int32)
        return NoisyNorm(self.value(level), level)

    def value(self, level: jax.Array) -> jax.Array:
        return self.constants.a * (level - self.constants.b)

    def level_of(self, magnitude: jax.Array) -> jax.Array:
        """J^ from |r^|, robust to rounding."""
        if not self.constants.sign_recoverable:
            raise Refused(
                f"at eps2 = {self.constants.epsilon:g} two levels have the same |r^| (2 b is whole)",
                "transmit the level, which is free, or change eps2 slightly",
            )
        magnitudes = jnp.abs(self.value(jnp.arange(self.constants.k + 1)))
        return jnp.argmin(jnp.abs(magnitudes - jnp.asarray(magnitude)[..., None]), axis=-1)

    def squared_norm(self, level: jax.Array) -> jax.Array:
        """s^, the last line of Algorithm 5: at most r^2 on average."""
        r = self.value(level)
        return (r**2 - self.constants.c2 * r - self.constants.c3) / (1 + self.constants.c1)

    @property
    def event(self) -> Event:
        return self.constants.event

    @property
    def bits(self) -> int:
        return self.constants.k.bit_length()


def scalar_dp(eps2: float, bound: float = 1.0) -> ScalarDP:
    """ScalarDP for norms in [0, bound]."""
    return ScalarDP(scalar_dp_constants(eps2, bound))
