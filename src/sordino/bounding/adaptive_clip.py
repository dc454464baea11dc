"""Clipping at a private quantile of the norms (Andrew, Thakkar, McMahan and Ramaswamy 2021, Algorithm 1).

    b_i     = 1[ ||Delta_i|| <= C_t ]
    b~_t    = (1/m) ( sum_i (b_i - 1/2) + N(0, sigma_b^2) ) + 1/2
    C_t+1   = C_t exp(-eta_C (b~_t - gamma))
    z_Delta = (z^-2 - (2 sigma_b)^-2)^(-1/2)

The threshold C_t moves until a fraction gamma of the updates is shorter than it. The sum of the centred
indicators is a release of its own, beside the sum of the clipped updates. A client in the sum contributes
-1/2 or 1/2 and one that is absent, or zeroed out, contributes 0: the sensitivity is 1/2 under add/remove and
zero-out, and 1 under replace-one, where 2 sigma_b above becomes sigma_b. For that a client whose update is
exactly zero does not vote here: it contributes 0, where the box has b_i - 1/2 = 1/2. A client that is zeroed
out sends a zero update, and by the box it would move the sum from -1/2 to 1/2, twice what is paid for.
Giving the updates z_Delta instead of z makes both releases together cost what noise multiplier z alone costs.
m is the planned cohort, never the realised one, whose size is private.

A client dropped for NaN or infinity diverged: its norm counts as infinite, so not below any threshold (b_i =
0).
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from sordino.bounding._norm import LARGEST_BOUND, SMALLEST_BOUND, require_bound
from sordino.bounding.clip import Clip
from sordino.errors import require
from sordino.privacy.events import Gaussian
from sordino.privacy.gaussian import compose_mu
from sordino.pytrees import pytree
from sordino.types import BoundInfo, Relation, Scalar, Unit

INDICATORS = (-0.5, 0.5)  # least and largest b_i - 1/2


@pytree
@dataclass(frozen=True)
class AdaptiveClip(Clip):
    """A clip at its current limit C_t; `update` returns the bounder of the next round."""

    quantile: Scalar  # gamma
    learning_rate: Scalar  # eta_C
    indicator_noise_std: Scalar  # sigma_b

    def indicator(self, info: BoundInfo) -> jax.Array:
        """b_i - 1/2 of one client; 0 for a zero update. It is private: only its sum, with noise, may be used."""
        b = info.norm <= self.limit
        votes = info.norm > 0  # infinite for a dropped update
        return jnp.where(votes, jnp.where(b, 0.5, -0.5), 0.0).astype(info.norm.dtype)

    def update(self, noisy_sum: jax.Array, planned_cohort: Scalar) -> AdaptiveClip:
        """The bounder of the next round, from sum_i (b_i - 1/2) + N(0, sigma_b^2), as the server releases it."""
        b = noisy_sum / planned_cohort + 0.5
        C = self.limit * jnp.exp(-self.learning_rate * (b - self.quantile))
        # Thousands of rounds without any update would otherwise shrink C out of float32.
        return dataclasses.replace(self, limit=jnp.clip(C, SMALLEST_BOUND, LARGEST_BOUND))

    def indicator_event(self, relation: Relation) -> Gaussian:
        """What one release of the noisy sum of indicators costs."""
        z = float(self.indicator_noise_std) / (relation.sensitivity_factor / 2)
        return Gaussian(z, unit=Unit.CLIENT, relation=relation)

    def vector_noise_multiplier(self, z: float, z_b: float) -> float:
        """z_Delta, the noise multiplier of the updates that leaves room for the indicators, with z_b, within z."""
        remedy = f"must be below {z_b:g}, the noise multiplier of the indicators; raise indicator_noise_std"
        require(0 < z < z_b, "noise_multiplier", z, remedy)
        z_Delta = z / math.sqrt((1 - z / z_b) * (1 + z / z_b))
        step = math.ulp(z_Delta)
        while compose_mu((1 / z_Delta, 1 / z_b)) > 1 / z:  # rounding must not make the total cost more than z
            z_Delta, step = z_Delta + step, 2 * step
        return z_Delta


def adaptive_clip(
    initial: float, *, indicator_noise_std: float, quantile: float = 0.5, learning_rate: float = 0.2
) -> AdaptiveClip:
    """Clip at the `quantile` of the norms, tracked from `initial`; the paper has sigma_b = m / 20."""
    require_bound("adaptive_clip", initial)
    require(0 <= quantile <= 1, "quantile", quantile, "must lie in [0, 1]; 0.5 tracks the median norm")
    usable_rate = math.isfinite(learning_rate) and learning_rate > 0
    require(usable_rate, "learning_rate", learning_rate, "must be positive and finite; 0.2 is the paper's")
    usable_std = math.isfinite(indicator_noise_std) and indicator_noise_std > 0
    remedy = "must be positive and finite; the paper takes the planned cohort / 20"
    require(usable_std, "indicator_noise_std", indicator_noise_std, remedy)
    return AdaptiveClip(initial, quantile, learning_rate, indicator_noise_std)
