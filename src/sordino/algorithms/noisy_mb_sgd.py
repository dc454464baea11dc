"""Noisy MB-SGD: federated learning without a trusted server, in which each client protects each of its records.

Lowy and Razaviyayn: Private Federated Learning Without a Trusted Server, Algorithm 1:

    for r = 0, ..., R - 1
      server sends w_r to the clients of S_r
      client i:  draws K_i of its n_i records                      the paper: draws = "with-replacement"
                 g_i = (1/K_i) sum_x clip(grad f(w_r, x), L_i);    sends g_i + N(0, sigma_i^2 I)
      server:    g = (1/M_r) sum_i g_i + mu w_r
                 w_{r+1} = Pi_W [w_r - eta g]                      W is the ball of radius D
    return (1/Gamma_R) sum_r gamma_r w_r,   Gamma_R = sum_r gamma_r,   gamma_r = (1 - mu eta)^-(r + 1)

By default records are drawn without replacement, which needs less noise: a record that is drawn twice moves g_i twice
as far. The paper assumes losses that are L_i-Lipschitz; here clipping enforces it. The regulariser (mu/2) ||w||^2 is
public, so the server adds its gradient. The paper starts at w_0 = 0; here the model's first parameters are projected
onto W. The step size follows from public constants alone: beta, mu, D, L_i, the noise and
V^2 = (1/M^2) sum_i (4 L_i^2 / K_i + d sigma_i^2), which bounds the variance of g.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sordino.algorithms.records import (
    WITHOUT,
    NumberPerClient,
    Point,
    RecordMethod,
    project,
    record_options,
    records_of,
    require_ball,
    variance,
)
from sordino.errors import names_keywords, require, require_float32
from sordino.pytrees import pytree
from sordino.types import Aggregate, Bounder, Key, PlanContext, Scalar, Vector


class ServerState(NamedTuple):
    """w_r, the weighted mean of w_0, ..., w_{r-1}, and log_total = log Gamma_r."""

    w: Vector
    average: Vector
    log_total: jax.Array
    r: jax.Array


@pytree
@dataclass(frozen=True)
class NoisyMbSgd(RecordMethod):
    """Noisy MB-SGD; `noisy_mb_sgd` makes it."""

    radius: Scalar  # D
    mu: Scalar
    eta: Scalar | None  # None: from public constants, when a plan resolves

    def init_server(self, w: Vector) -> ServerState:
        w = project(w, self.radius)
        return ServerState(w, w, jnp.float32(-jnp.inf), jnp.int32(0))

    def broadcast(self, state: ServerState) -> Point:
        return Point(state.w, state.r)

    def server(self, key: Key, state: ServerState, total: Aggregate) -> tuple[ServerState, None]:
        """w_{r+1}, and the mean of w_0, ..., w_r with weights gamma_r, whose logarithms do not overflow."""
        assert self.eta is not None  # a plan resolves it
        g = total.mean + self.mu * state.w
        w = project(state.w - self.eta * g, self.radius)
        log_gamma = -(state.r + 1.0) * jnp.log1p(-self.mu * self.eta)
        log_total = jnp.logaddexp(state.log_total, log_gamma)
        average = state.average + jnp.exp(log_gamma - log_total) * (state.w - state.average)
        return ServerState(w, average, log_total, state.r + 1), None

    def params(self, state: ServerState) -> Vector:
        return state.average

    def resolve(self, context: PlanContext) -> NoisyMbSgd:
        return dataclasses.replace(super().resolve(context), eta=self._step_size(context))

    def constants(self, context: PlanContext) -> dict[str, float]:
        beta = records_of(context)[0].smoothness + float(self.mu)
        V = math.sqrt(variance(context, with_replacement=self.with_replacement))
        eta = self._step_size(context)
        return {"beta": beta, "mu": float(self.mu), "D": float(self.radius), "V": V, "eta": eta}

    def _step_size(self, context: PlanContext) -> float:
        """eta: given, or that of Theorem 2.1, as far as the paper fixes it.

        Convex: eta = min{1 / (4 beta), D sqrt(M n) / (L R), D / (V sqrt(R))}. The paper's second minimum has its own
        noise formula in place of V; with that noise both agree up to a constant. Strongly convex, as in the paper:
        eta = min{1 / (4 beta), ln(max{2, mu^2 D^2 R^2 / (2 V^2)}) / (mu R)}.
        """
        (known, R), V2 = records_of(context), variance(context, with_replacement=self.with_replacement)
        mu, D = float(self.mu), float(self.radius)
        eta = 1 / (4 * (known.smoothness + mu))
        if mu > 0 and V2 > 0:
            eta = min(eta, math.log(max(2.0, (mu * D * R) ** 2 / (2 * V2))) / (mu * R))
        elif V2 > 0:
            L, n = float(np.max(known.weight * known.lipschitz)), float(np.mean(known.sizes))
            eta = min(eta, D * math.sqrt(context.planned_cohort * n) / (L * R), D / math.sqrt(V2 * R))
        eta = eta if self.eta is None else float(self.eta)
        require_float32("step_size", eta)  # the theorem's may leave float32, from radius, lipschitz and smoothness
        return eta


@names_keywords
def noisy_mb_sgd(
    *,
    lipschitz: NumberPerClient,
    radius: float,
    mu: float = 0.0,
    batch_size: int | list[int] | None = None,
    smoothness: float | None = None,
    feature_bound: float | None = None,
    step_size: float | None = None,
    weights: str | list[float] = "clients",
    one_pass: bool = False,
    draws: str = WITHOUT,
    bound: Bounder | None = None,
) -> NoisyMbSgd:
    """Algorithm 1. Noise and trust are chosen by the plan, the step size follows from public constants.

    Args:
      lipschitz: L, one number or one a client: every record's gradient is clipped to it, which enforces it.
      radius: D of the ball W.
      mu: of the regulariser (mu/2) ||w||^2, whose gradient the server adds.
      batch_size: K, one number or one a client; all records of a client if left out. A smaller client uses all it has.
      smoothness: beta of one record's loss; from the model and `feature_bound`, if left out.
      feature_bound: a public bound on the norm of a record's features.
      step_size: eta, instead of the theorem's.
      weights: "clients", every client counts the same, "records", in proportion to its number of records, or p_i, one
        number a client, in proportion to which they count.
      one_pass: use each record at most once over all rounds.
      draws: "without-replacement", or "with-replacement", the paper's, which costs more: a record may count several
        times.
      bound: must be None: the gradients of records are clipped, not a whole update.
    """
    options = record_options(bound, lipschitz, batch_size, smoothness, feature_bound, weights, one_pass, draws)
    require_ball(radius, mu)
    if step_size is not None:
        require_float32("step_size", step_size)
        below = f"must lie below 1 / mu = {1 / mu if mu else math.inf:g}"
        require(mu * step_size < 1, "step_size", step_size, below)
    return NoisyMbSgd(None, options, radius, mu, step_size)
