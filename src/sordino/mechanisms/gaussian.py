"""Gaussian noise: c_i = Delta_i + N(0, noise_std^2 I).

The server's statistics of M messages have an exact law with O(d) random numbers. With H orthogonal on the client axis
and first row 1/sqrt(M), the noise of the mean and of everything orthogonal to it are independent:

    sum c_i       = sum Delta_i + N(0, M s^2 I)
    sum ||c_i||^2 = ||sum c_i||^2 / M + R^2 + 2 R g + g^2 + s^2 chi^2_{(M-1) d - 1},   g ~ N(0, s^2)
    R^2           = sum ||Delta_i||^2 - ||sum Delta_i||^2 / M
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from sordino.bounding import AdaptiveClip
from sordino.errors import require, require_drawable
from sordino.mechanisms.request import NoiseContext, ScaledRequest
from sordino.privacy import events, wording
from sordino.privacy.accountants import epsilon_of
from sordino.privacy.calibration import CostOfNoise
from sordino.privacy.gaussian import compose_mu
from sordino.privacy.published import normec_noise
from sordino.pytrees import pytree
from sordino.types import (
    Aggregate,
    ClientNumbers,
    Event,
    Key,
    Limited,
    Mechanism,
    Message,
    Relation,
    Scalar,
    Trust,
    Unit,
    Vector,
)


@pytree
@dataclass(frozen=True)
class Gaussian(Mechanism):
    """See the module."""

    noise_std: Scalar

    name = "gaussian"
    estimates_squared_norm = True

    def message(self, key: Key, vector: Vector) -> Message:
        return Message(vector + self.noise_std * jax.random.normal(key, vector.shape, vector.dtype))

    def aggregate(self, key: Key, total: Vector, sum_of_squared_norms: jax.Array | None, count: int) -> Aggregate:
        """The exact joint law of the sum and of the sum of squared norms of `count` messages."""
        s, M, d = self.noise_std, count, total.shape[0]
        assert sum_of_squared_norms is not None
        key_mean, key_along, key_rest = jax.random.split(key, 3)
        noisy_total = total + s * jnp.sqrt(1.0 * M) * jax.random.normal(key_mean, total.shape, total.dtype)
        R = jnp.sqrt(jnp.maximum(sum_of_squared_norms - jnp.vdot(total, total) / M, 0.0))
        g = s * jax.random.normal(key_along, (), total.dtype)
        dof = (M - 1.0) * d - 1.0
        chi2 = 2.0 * jax.random.gamma(key_rest, jnp.maximum(dof, 1.0) / 2.0, (), total.dtype)
        around_mean = R**2 + 2 * R * g + g**2 + jnp.where(dof > 0, s**2 * chi2, 0.0)
        # One message is its own mean: there is nothing around it.
        squares = jnp.vdot(noisy_total, noisy_total) / M + jnp.where(M > 1, around_mean, 0.0)
        return Aggregate(noisy_total, squares, squares - M * d * s**2)

    def squared_norm(self, message: Message) -> jax.Array:
        """||c||^2 - d s^2, whose mean is ||Delta||^2."""
        c = message.vector
        return jnp.vdot(c, c) - c.shape[0] * self.noise_std**2

    def event(self, bounder: Limited, relation: Relation, d: int, *, unit: Unit = Unit.CLIENT) -> Event:
        if float(self.noise_std) == 0:
            return events.NonPrivate("the noise std is 0")
        z = float(self.noise_std) / float(bounder.sensitivity(relation))
        return events.Gaussian(z, unit=unit, relation=relation)

    @property
    def gaussian_std(self) -> Scalar:
        return self.noise_std

    @property
    def summary(self) -> Mapping[str, float]:
        return {"noise_std": float(self.noise_std)}


@pytree
@dataclass(frozen=True)
class OwnGaussian(Mechanism):
    """Gaussian noise of which every client has its own std, among its numbers."""

    name = "gaussian"

    def for_client(self, numbers: ClientNumbers | None) -> Gaussian:
        assert numbers is not None
        return Gaussian(numbers.noise_std)


def gaussian(noise_std: float) -> Gaussian:
    """Gaussian noise of this std on every coordinate."""
    require(0 <= noise_std < math.inf, "noise_std", noise_std, "must be finite and not negative")
    if noise_std > 0:  # 0 says that there is no noise
        require_drawable("noise_std", noise_std)
    return Gaussian(noise_std)


CALIBRATIONS = ("numeric", "norm-ec")


@dataclass(frozen=True)
class GaussianRequest(ScaledRequest):
    """[privacy] mechanism = "gaussian".

    Args:
      noise_multiplier: noise std over sensitivity, instead of epsilon.
      calibration: "numeric", the least noise that meets epsilon; for trust local also "norm-ec", the formula of the
        alpha-NormEC paper, which does not meet it: the certificate says what it gives; for methods that protect records
        also "theorem-2.1".
    """

    calibration: str = "numeric"

    name = "gaussian"

    def check(self, trust: Trust, epsilon: object, delta: object) -> None:
        known = f"use one of {', '.join(CALIBRATIONS)}"
        require(self.calibration in CALIBRATIONS, "calibration", self.calibration, known)
        if self.calibration == "norm-ec":
            remedy = "turns epsilon and delta into Gaussian noise: give both"
            require(epsilon is not None, "calibration", self.calibration, remedy)
            remedy = "the formula is for noise that each client adds: set trust to local"
            require(trust is Trust.LOCAL, "trust", trust, remedy)
        super().check(trust, epsilon, delta)

    def calibrate(self, context: NoiseContext) -> Gaussian:
        """Noise of std z times the sensitivity, with the given or the least z."""

        def noise(z: float) -> Gaussian:
            return gaussian(scaled_std(z, float(context.bound.sensitivity(context.relation))))

        if isinstance(context.bound, AdaptiveClip):
            # The indicators take a part of z; update and indicators together are one joint Gaussian release.
            z = self._multiplier(context, events.Gaussian)
            return noise(context.bound.vector_noise_multiplier(z, context.relation))
        return noise(self._multiplier(context, lambda z: context.round_cost(noise(z))))

    def stated(self, message: Event, context: NoiseContext) -> Event:
        """Where the paper's formula falls short of what it claims: the claim, that it is false, and what is true."""
        target = context.target
        if self.calibration != "norm-ec" or target is None:
            return message
        true = epsilon_of(events.Repeated(message, target.rounds), target.delta, context.relation)
        if true <= target.epsilon:
            return message
        claim = wording.claim_of_norm_ec(target.epsilon, target.delta, target.rounds, context.relation, true)
        return events.Claimed(claim, message)

    def figures(self, mechanism: Mechanism, context: NoiseContext) -> Mapping[str, float]:
        """The noise multiplier of a round: with an adaptive bound that of the update and the indicators together."""
        message = context.message_cost(mechanism)
        if not isinstance(message, events.Gaussian):
            return {}
        z = message.noise_multiplier
        if isinstance(context.bound, AdaptiveClip):
            z = 1 / compose_mu((1 / z, 1 / context.bound.indicator_event(context.relation).noise_multiplier))
        return {"noise_multiplier": z}

    def _multiplier(self, context: NoiseContext, cost: CostOfNoise) -> float:
        if self.noise_multiplier is not None:
            return self.noise_multiplier
        target = context.target
        assert target is not None
        if self.calibration == "norm-ec":  # a std for messages of norm 1, whatever the relation
            formula = normec_noise(target.rounds, target.epsilon, target.delta)
            return formula / context.relation.sensitivity_factor
        return target.least(cost)


def scaled_std(z: float, sensitivity: float) -> float:
    """z times the sensitivity, rounded so that std / sensitivity is not below z."""
    std = z * sensitivity
    while std / sensitivity < z:
        std = math.nextafter(std, math.inf)
    return std
