"""Gaussian noise: c_i = Delta_i + N(0, noise_std^2 I).

The server's statistics of M messages have an exact law with O(d) random numbers. With H orthogonal on the client axis
and first row 1/sqrt(M), the noise of the mean and of everything orthogonal to it are independent:

    sum c_i       = sum Delta_i + N(0, M s^2 I)
    sum ||c_i||^2 = ||sum c_i||^2 / M + R^2 + 2 R g + g^2 + s^2 chi^2_{(M-1) d - 1},   g ~ N(0, s^2)
    R^2           = sum ||Delta_i||^2 - ||sum Delta_i||^2 / M

Noise on a sum is really released, so a plan with central trust takes integer noise on a lattice, whose sampler and
rounding are part of its cost (`privacy.lattice`). With sampler "float32" it is floating-point noise, and costs what
ideal noise costs. With secure aggregation every client adds a share: of integer noise (`mechanisms.secure_sum`), or,
with sampler "float32", of ideal noise on real numbers, which no protocol sums.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp

from sordino.bounding import AdaptiveClip
from sordino.errors import require, require_drawable
from sordino.mechanisms._lattice_gaussian import add_lattice_noise
from sordino.mechanisms.request import NoiseContext, ScaledRequest
from sordino.mechanisms.secure_sum import SecureSum
from sordino.privacy import events, lattice, wording
from sordino.privacy.accountants import epsilon_of
from sordino.privacy.calibration import CostOfNoise
from sordino.privacy.gaussian import compose_mu
from sordino.privacy.published import fedavg_eq_5, normec_noise
from sordino.privacy.secure_sum import Shares, lattice_for, least_multiplier, shares_of
from sordino.privacy.stated import stated_as
from sordino.pytrees import pytree
from sordino.summation import rounding_share
from sordino.types import (
    Aggregate,
    ClientNumbers,
    Draws,
    Event,
    Key,
    Limited,
    Mechanism,
    Message,
    Relation,
    Sampler,
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
    sampler: Sampler = field(default=Sampler.FLOAT32, metadata={"static": True})  # of noise on a sum
    rounding: float = field(default=0.0, metadata={"static": True})  # share of C that a sum may move further in float32

    name = "gaussian"
    estimates_squared_norm = True

    def message(self, key: Key, vector: Vector) -> Message:
        return Message(vector + self.noise_std * jax.random.normal(key, vector.shape, vector.dtype))

    def randomize_sum(self, key: Key, total: jax.Array, scale: Scalar = 1.0) -> Vector:
        if self.sampler is Sampler.LATTICE:
            return add_lattice_noise(key, total, scale * self.noise_std)
        return super().randomize_sum(key, total, scale)

    def randomize_side(self, key: Key, total: jax.Array, noise_std: Scalar) -> jax.Array:
        if self.sampler is Sampler.LATTICE:
            return add_lattice_noise(key, total, noise_std)
        return total + noise_std * jax.random.normal(key, total.shape, total.dtype)

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
        cost = self.cost_of(float(self.noise_std) / float(bounder.sensitivity(relation)), d, relation)
        return stated_as(cost, unit, relation)

    def side_cost(self, event: Event) -> Event:
        assert isinstance(event, events.Gaussian)  # a plan refuses other noise beside messages
        relation = event.relation or Relation.REPLACE_ONE  # pays most for rounding
        return replace(self.cost_of(event.noise_multiplier, 1, relation), unit=event.unit, relation=event.relation)

    def cost_of(self, noise_multiplier: float, d: int, relation: Relation) -> Event:
        """The cost of a sum of d coordinates with noise of this multiplier, before rounding to a lattice."""
        if self.sampler is Sampler.FLOAT32:
            return events.Gaussian(noise_multiplier)
        return lattice.drawn(lattice.lattice_multiplier(noise_multiplier, d, relation, self.rounding), d)

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


@pytree
@dataclass(frozen=True)
class IdealShares(Gaussian):
    """A share of Gaussian noise in every message, of which the sum alone is seen: real numbers, without rounding."""

    shares: Shares = field(default=Shares(1, 1), metadata={"static": True})

    @property
    def fewest(self) -> int:
        return self.shares.fewest

    def randomize(self, key: Key, vector: Vector) -> Vector:
        """The sum as the server sees it if all other honest clients send zero."""
        return self.together.message(key, vector).vector

    def event(self, bounder: Limited, relation: Relation, d: int, *, unit: Unit = Unit.CLIENT) -> Event:
        return self.together.event(bounder, relation, d, unit=unit)

    @property
    def together(self) -> Gaussian:
        """The noise of all honest clients, as one."""
        return Gaussian(self.noise_std * math.sqrt(self.shares.honest))

    @property
    def summary(self) -> Mapping[str, float]:
        return {**self.together.summary, "honest_shares": float(self.shares.honest)}


def gaussian(noise_std: float, sampler: Sampler | str = Sampler.FLOAT32, rounding: float = 0.0) -> Gaussian:
    """Gaussian noise of this std on every coordinate.

    Args:
      noise_std: of every coordinate.
      sampler: of noise on a sum: float32, or lattice, whose cost includes rounding to the lattice.
      rounding: share of the sensitivity by which sums in float32 may move further, for the lattice's cost.
    """
    require(0 <= noise_std < math.inf, "noise_std", noise_std, "must be finite and not negative")
    if noise_std > 0:  # 0 says that there is no noise
        require_drawable("noise_std", noise_std)
    require(0 <= rounding < 1, "rounding", rounding, "must lie in [0, 1)")
    return Gaussian(noise_std, Sampler.parse(sampler), rounding)


CALIBRATIONS = ("numeric", "norm-ec", "eq-5")
USUAL_BITS = 20  # of a coordinate, with secure aggregation
MOST_ROUNDING = 0.5  # share of the sensitivity that rounding of a sum may add


@dataclass(frozen=True)
class GaussianRequest(ScaledRequest):
    """[privacy] mechanism = "gaussian".

    Args:
      noise_multiplier: noise std over sensitivity, instead of epsilon.
      calibration: "numeric", the least noise that meets epsilon; for trust local also "norm-ec", the formula of the
        alpha-NormEC paper, which does not meet it: the certificate says what it gives; for trust central also "eq-5" of
        the paper on DP-FedAvg and DP-NormFedAvg; for methods that protect records also "theorem-2.1".
      q: the constant of equation (5), for calibration "eq-5".
      sampler: of noise that the server adds: "lattice" (the default), integer noise whose law is proven, or "float32",
        whose certificate describes ideal noise only. With secure aggregation: of the clients' shares.
      bits: with secure aggregation, of one coordinate of a message: sums are modulo 2^bits.
      dropouts: with secure aggregation, the share of a round's clients that may not answer.
      colluding: with secure aggregation, how many clients may tell the server their noise.
    """

    calibration: str = "numeric"
    q: float | None = None
    sampler: str | None = None
    bits: int | None = None
    dropouts: float | None = None
    colluding: int | None = None

    name = "gaussian"

    def check(self, trust: Trust, epsilon: object, delta: object) -> None:
        known = f"use one of {', '.join(CALIBRATIONS)}"
        require(self.calibration in CALIBRATIONS, "calibration", self.calibration, known)
        if self.calibration != "numeric":
            remedy = "turns epsilon and delta into Gaussian noise: give both"
            require(epsilon is not None, "calibration", self.calibration, remedy)
        if self.calibration == "norm-ec":
            remedy = "the formula is for noise that each client adds: set trust to local"
            require(trust is Trust.LOCAL, "trust", trust, remedy)
        if self.calibration == "eq-5":
            remedy = "the formula is for noise on the sum: set trust to central"
            require(trust is Trust.CENTRAL, "trust", trust, remedy)
        remedy = "is the constant that equation (5) leaves open: give it with calibration = eq-5, and only there"
        require((self.q is not None) == (self.calibration == "eq-5"), "q", self.q, remedy)
        if self.sampler is not None and Sampler.parse(self.sampler) is Sampler.LATTICE:
            remedy = "messages with local noise are simulated in float32, and no lattice is used: leave it out"
            require(trust in (Trust.CENTRAL, Trust.SECURE_AGGREGATION), "sampler", self.sampler, remedy)
        self._check_shares(trust)
        super().check(trust, epsilon, delta)

    def _check_shares(self, trust: Trust) -> None:
        for name in ("bits", "dropouts", "colluding"):
            remedy = "is about sums of shares: set trust to secure-aggregation, or leave it out"
            given = vars(self)[name]
            require(given is None or trust is Trust.SECURE_AGGREGATION, name, given, remedy)
        ideal = self.sampler is not None and Sampler.parse(self.sampler) is Sampler.FLOAT32
        require(self.bits is None or not ideal, "bits", self.bits, "sums of real numbers have no bits: leave it out")

    def calibrate(self, context: NoiseContext) -> Mechanism:
        """Noise of std z times the sensitivity, with the given or the least z."""
        if context.trust is Trust.SECURE_AGGREGATION:
            return self._shared(context)
        sensitivity = float(context.bound.sensitivity(context.relation))
        sampler = self.sampler_for(context.trust)
        rounding = rounding_share(context.terms) if sampler is Sampler.LATTICE else 0.0
        remedy = "sums of so many messages round too much in float32: use a smaller cohort, or sampler = float32"
        require(rounding < MOST_ROUNDING, "cohort", context.terms, remedy)

        def noise(z: float) -> Gaussian:
            if sampler is Sampler.LATTICE:
                z = max(z, lattice.LEAST_MULTIPLIER) if self.noise_multiplier is None else z
                std = lattice.noise_std_for(z, sensitivity, context.d, context.relation, rounding)
                return gaussian(std, sampler, rounding)
            return gaussian(scaled_std(z, sensitivity))

        if isinstance(context.bound, AdaptiveClip):
            # The indicators take a part of z; update and indicators together are one joint Gaussian release.
            joint = lattice.drawn if sampler is Sampler.LATTICE else lambda z, _: events.Gaussian(z)
            z = self._multiplier(context, lambda z: joint(z, context.d + 1))
            return noise(context.bound.vector_noise_multiplier(z, _indicator_multiplier(noise(1.0), context)))
        return noise(self._multiplier(context, lambda z: context.round_cost(noise(z))))

    def _shared(self, context: NoiseContext) -> Mechanism:
        """A share of the noise for every client, so that those of the honest ones have the given or the least z."""
        clients, fewest = context.terms, context.fewest
        shares = shares_of(clients, fewest, self.dropouts or 0.0, self.colluding or 0)
        bound, bits = float(context.bound.limit), USUAL_BITS if self.bits is None else self.bits
        if self.sampler_for(context.trust) is Sampler.FLOAT32:
            z = self._multiplier(context, events.Gaussian)
            std = scaled_std(z, float(context.bound.sensitivity(context.relation))) / math.sqrt(shares.honest)
            return IdealShares(std * (1 + 1e-15), shares=shares)

        def noise(z: float) -> SecureSum:
            about = {"bits": bits, "d": context.d, "bound": bound, "relation": context.relation, "shares": shares}
            return SecureSum(bound, context.d, lattice_for(z, **about), shares)

        if self.noise_multiplier is not None:
            return noise(self.noise_multiplier)
        assert context.target is not None
        return noise(least_multiplier(context.target, lambda z: context.round_cost(noise(z))))

    def sampler_for(self, trust: Trust) -> Sampler:
        """The sampler that was asked for; if none was, the lattice for noise that the server adds, and for shares."""
        if self.sampler is not None:
            return Sampler.parse(self.sampler)
        return Sampler.LATTICE if trust in (Trust.CENTRAL, Trust.SECURE_AGGREGATION) else Sampler.FLOAT32

    def sums_exactly(self, trust: Trust) -> bool:
        return trust is Trust.SECURE_AGGREGATION and self.sampler_for(trust) is Sampler.LATTICE

    def draws(self, trust: Trust) -> Draws:
        if trust is not Trust.CENTRAL:
            return Draws.SIMULATED_MESSAGES
        return Draws.LATTICE if self.sampler_for(trust) is Sampler.LATTICE else Draws.FLOAT32

    def stated(self, of_round: Event, context: NoiseContext) -> Event:
        """Where the paper's formula falls short of what it claims: the claim, that it is false, and what is true."""
        target = context.target
        if self.calibration == "numeric" or target is None:
            return of_round
        on_a_sample = events.sampled(of_round, target.sampling)
        true = epsilon_of(events.Repeated(on_a_sample, target.rounds), target.delta, context.relation)
        if true <= target.epsilon:
            return of_round
        asked = target.epsilon, target.delta, target.rounds
        if self.q is None:
            return events.Claimed(wording.claim_of_norm_ec(*asked, context.relation, true), of_round)
        return events.Claimed(wording.claim_of_eq_5(*asked, self.q, context.relation, true), of_round)

    def figures(self, mechanism: Mechanism, context: NoiseContext) -> Mapping[str, float]:
        """The noise multiplier of a round: with an adaptive bound that of the update and the indicators together."""
        message = events.as_ideal(context.message_cost(mechanism))
        if isinstance(message, events.ZeroConcentrated):
            return {"noise_multiplier": 1 / math.sqrt(2 * message.rho)}
        if not isinstance(message, events.Gaussian):
            return {}
        z = message.noise_multiplier
        if isinstance(context.bound, AdaptiveClip):
            z = 1 / compose_mu((1 / z, 1 / _indicator_multiplier(mechanism, context)))
        return {"noise_multiplier": z}

    def _multiplier(self, context: NoiseContext, cost: CostOfNoise) -> float:
        if self.noise_multiplier is not None:
            return self.noise_multiplier
        target = context.target
        assert target is not None
        if self.calibration != "numeric":  # a std for messages of norm 1, whatever the relation
            asked = target.epsilon, target.delta
            if self.q is None:
                formula = normec_noise(target.rounds, *asked)
            else:
                formula = fedavg_eq_5(self.q, target.rounds, target.sampling.sampling_prob, *asked)
            return formula / context.relation.sensitivity_factor
        return target.least(cost)


def _indicator_multiplier(mechanism: Mechanism, context: NoiseContext) -> float:
    """The noise multiplier of the indicators beside the update, as this mechanism draws their noise."""
    assert isinstance(context.bound, AdaptiveClip)
    event = events.as_ideal(mechanism.side_cost(context.bound.indicator_event(context.relation)))
    assert isinstance(event, events.Gaussian)
    return event.noise_multiplier


def scaled_std(z: float, sensitivity: float) -> float:
    """z times the sensitivity, rounded so that std / sensitivity is not below z."""
    std = z * sensitivity
    while std / sensitivity < z:
        std = math.nextafter(std, math.inf)
    return std
