"""A training metric that is a release of its own: the clients' mean loss or gradient norm, with noise.

Client i computes v_i = min{B, f_i(w_k)} or v_i = min{B, ||grad f_i(w_k)||}, on all of its records and before it trains,
and sends it beside its message; the server learns sum_i v_i + N(0, s^2) and divides by the planned cohort. v_i lies in
[0, B], so a client moves the sum by at most B under every relation, and a round costs mu^2 = mu_message^2 + (B / s)^2.
The noise of messages is calibrated to leave room for it. Only a trusted server can add this noise: trust central,
Gaussian. Metrics without noise, of a test set or of everybody, are in no certificate.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sordino.algorithms.common import require_choice
from sordino.algorithms.local import ClientData
from sordino.errors import InvalidInput, require, require_drawable
from sordino.privacy.events import Gaussian
from sordino.pytrees import pytree
from sordino.types import Aggregate, Event, PlanContext, Relation, Scalar, Unit, Vector

METRICS = ("loss", "gradient-norm")
KEYS = ("name", "bound", "noise_std")


class PrivateLoss(NamedTuple):
    """What the server tells of its round; its releases determine it."""

    private_loss: jax.Array  # (1/r) sum_i min{B, f_i(w_k)}


class PrivateGradientNorm(NamedTuple):
    """What the server tells of its round; its releases determine it."""

    private_gradient_norm: jax.Array  # (1/r) sum_i min{B, ||grad f_i(w_k)||}


@pytree
@dataclass(frozen=True)
class PrivateMetric:
    """See the module; `private_metric` makes it."""

    bound: Scalar  # B, a number of float32
    noise_std: Scalar  # s
    name: str = field(metadata={"static": True})
    moved: int = field(default=1, metadata={"static": True})  # its sensitivity over B

    def __call__(self, w: Vector, data: ClientData) -> jax.Array:
        """v_i; B for a client whose value is not finite."""
        records = data.all()
        value = data.loss(w, records) if self.name == "loss" else jnp.linalg.norm(data.gradient(w, records))
        B = jnp.float32(self.bound)
        return jnp.where(jnp.isfinite(value), jnp.clip(value, 0.0, B), B)

    def told(self, total: Aggregate) -> PrivateLoss | PrivateGradientNorm:
        """The mean of the round, from the noisy sum."""
        assert total.side is not None  # every client sends its value
        mean = total.side / total.cohort
        return PrivateLoss(mean) if self.name == "loss" else PrivateGradientNorm(mean)

    def resolve(self, context: PlanContext) -> PrivateMetric:
        """The metric under a plan.

        Where clients come at random and one is replaced, the accountant takes two clients of half the sensitivity; a
        value lies in [0, B], not in +-B/2: 2 B then.
        """
        random_cohort = context.cohort.startswith("poisson")
        moved = 2 if random_cohort and context.relation is Relation.REPLACE_ONE else 1
        return dataclasses.replace(self, moved=moved)

    def event(self, relation: Relation) -> Event:
        """What one noisy sum costs."""
        return Gaussian(float(self.noise_std) / (self.moved * float(self.bound)), unit=Unit.CLIENT, relation=relation)


def private_metric(asked: dict[str, str | float] | None) -> PrivateMetric | None:
    """The metric that a run file describes as {name = "loss", bound = 3.0, noise_std = 20.0}."""
    if asked is None:
        return None
    remedy = "give name, bound and noise_std, as { name = 'loss', bound = 3.0, noise_std = 20.0 }"
    require(sorted(asked) == sorted(KEYS), "private_metric", asked, remedy)
    name, numbers = asked["name"], {}
    require_choice("private_metric", str(name), METRICS)
    for key in KEYS[1:]:
        value = asked[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise InvalidInput(f"private_metric {key}", value, "must be a positive number")
        require_drawable(f"private_metric {key}", value)
        numbers[key] = float(np.float32(value))
    return PrivateMetric(numbers["bound"], numbers["noise_std"], str(name))
