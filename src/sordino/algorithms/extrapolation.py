"""The adaptive global step size of FedEXP, which a server applies to the mean message before its own step.

Takakura, Liew, Hasegawa: Accelerating Differentially Private Federated Learning via Adaptive Extrapolation. With
c_i the message of client i, Delta_i the same before noise, and c~ the (noisy) mean over M clients:

    no privacy       eta_g = max{1, (1/M) sum ||Delta_i||^2              / ||c~||^2}       (2)
    naive            eta_g = max{1, (1/M) sum ||c_i||^2                  / ||c~||^2}       (3), explodes under noise
    local, Gaussian  eta_g = max{1, ((1/M) sum ||c_i||^2 - d sigma^2)    / ||c~||^2}       (6)
    local, PrivUnit  eta_g = max{1, (1/M) sum s^_i                       / ||c~||^2}       (8), s^_i by Algorithm 5
    central          eta_g = max{1, ((1/M) sum ||Delta_i||^2 + xi)       / ||c~||^2}       (7), xi ~ N(0, sigma_xi^2)

"corrected" is (2), (6), (7) or (8), depending on trust and mechanism; "naive" is (3), for comparison. The paper's (2)
and (3) have no max{1, .}; here every rule has it, like (6) to (8). In (6) and (8) the step size is computed from
messages that are private already and costs nothing. In (7) it is a release of its own: a client moves the sum of
squared norms by at most C^2 under every relation, since ||Delta_i|| <= C. With s the noise std of the sum of messages
(sigma sqrt(M) in the paper) and s_xi that of the sum of squared norms (M sigma_xi):

    s_xi = d s^2 / M                                      sigma_xi = d sigma^2 / M, the paper's
    s_xi = max{d s^2 / M, C^2 s / (step_cost S)}          S the sensitivity of the sum of messages

Under the second, mu_xi is at most step_cost times the mu of the messages.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp

from sordino.algorithms.common import require_choice
from sordino.algorithms.local import LocalTraining
from sordino.errors import InvalidInput, require, require_drawable
from sordino.privacy.events import Gaussian
from sordino.pytrees import pytree
from sordino.types import Aggregate, Bounder, Event, Method, PlanContext, Relation, Scalar, Trust, Unit, Vector

STEP_SIZES = ("corrected", "naive")
SQUARED = (1e-12, 1e12)  # bounds whose squares, and sums of many of them, are far from where float32 ends


class ServerInfo(NamedTuple):
    """What a server with an adaptive step size reports of its round; its releases determine it."""

    step_size: jax.Array  # eta_g


@pytree
@dataclass(frozen=True)
class Extrapolation:
    """The rule by which a server computes eta_g."""

    rule: str = field(metadata={"static": True})
    step_cost: float | None = field(metadata={"static": True})
    noise_std: Scalar | None = None  # s_xi, of a central release; None where nothing beside the messages is released
    squares_moved: int = field(default=1, metadata={"static": True})  # its sensitivity over C^2

    def __call__(self, mean: Vector, total: Aggregate) -> jax.Array:
        """eta_g from the noisy mean, and the statistics of the messages or the noisy sum released beside them."""
        if self.noise_std is not None:
            assert total.side is not None  # clients send their squared norms
            numerator = total.side
        else:
            known = total.sum_of_squared_norms if self.rule == "naive" else total.squared_norms_before_noise
            assert known is not None  # `resolve` refuses mechanisms that do not estimate it
            numerator = known
        denominator = jnp.vdot(mean, mean)
        some = denominator >= jnp.finfo(mean.dtype).tiny  # a round without participants has no direction
        return jnp.where(some, jnp.maximum(1.0, numerator / total.cohort / jnp.where(some, denominator, 1.0)), 1.0)

    def resolve(self, context: PlanContext, bound: Bounder | None, measured: Bounder | None) -> Extrapolation:
        """The rule under a plan, for messages capped by `bound` whose squared norms `measured` caps."""
        mechanism = context.mechanism
        if context.trust is not Trust.CENTRAL:
            known = context.trust is Trust.NONE or (mechanism is not None and mechanism.estimates_squared_norm)
            name = "these" if mechanism is None else mechanism.name
            remedy = f"the squared norms behind {name} messages cannot be estimated: use gaussian or privunit"
            require(known, "step_size", self.rule, remedy)
            return dataclasses.replace(self, noise_std=None)
        remedy = "naive is about local noise; with central trust use corrected, which releases the sum of squared norms"
        require(self.rule == "corrected", "step_size", self.rule, remedy)
        std = None if mechanism is None else mechanism.gaussian_std
        if bound is None or measured is None or std is None:
            remedy = "with central trust the step size needs a bound and gaussian noise"
            raise InvalidInput("step_size", self.rule, remedy)
        # The sum of squares moves by C^2 between neighbours. Where clients come at random and one is replaced, the
        # accountant takes two clients of half the sensitivity; a square lies in [0, C^2], not in +-C^2/2: 2 C^2 then.
        random_cohort = context.cohort.startswith("poisson")
        squares_moved = 2 if random_cohort and context.relation is Relation.REPLACE_ONE else 1
        C, s = float(measured.limit), float(std)
        s_xi = context.d * s**2 / context.planned_cohort
        if self.step_cost is not None:
            moved = squares_moved * C**2 * s
            s_xi = max(s_xi, moved / (self.step_cost * float(bound.sensitivity(context.relation))))
        low, high = SQUARED
        require(low <= C <= high, "bound", C, f"float32 holds squared norms of bounds from {low:g} to {high:g}")
        require_drawable("noise_std of the step size", s_xi)
        return dataclasses.replace(self, noise_std=s_xi, squares_moved=squares_moved)


class Extrapolating(Method):
    """A method of local training whose server may scale the mean message by eta_g before its own step."""

    local: LocalTraining
    step_size: Extrapolation | None

    @property
    def measured(self) -> Bounder | None:
        """The bound of the vector whose squared norm the step size rests on."""
        return self.bound

    @property
    def batch_records(self) -> int | None:
        return self.local.batch_size

    def resolved_step_size(self, context: PlanContext) -> Extrapolation | None:
        """The step size under a plan: one that is released gets its noise."""
        return None if self.step_size is None else self.step_size.resolve(context, self.bound, self.measured)

    def squared_norm(self, message: Vector) -> jax.Array | None:
        """||Delta||^2, at most C^2 whatever rounding does, where the step size releases it; None elsewhere."""
        if self.step_size is None or self.step_size.noise_std is None or self.measured is None:
            return None
        return jnp.minimum(jnp.vdot(message, message), jnp.float32(self.measured.limit) ** 2)

    def extrapolated(self, mean: Vector, total: Aggregate) -> tuple[Vector, ServerInfo | None]:
        """eta_g times the mean, and eta_g; the mean itself without a step size."""
        if self.step_size is None:
            return mean, None
        eta_g = self.step_size(mean, total)
        return eta_g * mean, ServerInfo(eta_g)

    def side_event(self, relation: Relation) -> Event | None:
        """The cost of the noisy sum of squared norms behind the step size."""
        if self.step_size is None or self.step_size.noise_std is None or self.measured is None:
            return None
        moved = self.step_size.squares_moved * float(self.measured.limit) ** 2
        return Gaussian(float(self.step_size.noise_std) / moved, unit=Unit.CLIENT, relation=relation)

    def side_noise_std(self) -> Scalar | None:
        return None if self.step_size is None else self.step_size.noise_std

    def side_range(self) -> tuple[float, float] | None:
        """Squared norms."""
        if self.side_noise_std() is None or self.measured is None:
            return None
        return 0.0, float(jnp.float32(self.measured.limit) ** 2)

    def side_figures(self) -> dict[str, float]:
        std = None if self.step_size is None else self.step_size.noise_std
        return {} if std is None else {"step_size_noise_std": float(std)}


def extrapolation(step_size: str | None, step_cost: float | None = None) -> Extrapolation | None:
    """The rule that a run file names; None leaves the server's step size alone."""
    if step_size is None:
        require(step_cost is None, "step_cost", step_cost, "is about the step size: give step_size too, or leave out")
        return None
    require_choice("step_size", step_size, STEP_SIZES)
    usable = step_cost is None or 0 < step_cost < math.inf
    require(usable, "step_cost", step_cost, "must be positive; 0.2 raises a round's mu by at most 2 %")
    return Extrapolation(step_size, step_cost)
