"""Accelerated Noisy MB-SGD (AC-SA), in which each client protects each of its records.

Lowy and Razaviyayn: Private Federated Learning Without a Trusted Server, Algorithm 2, from w_ag = w:

    for r = 1, ..., R
      line 2   alpha_r = 2 / (r + 1),   eta_r = 4 upsilon / (r (r + 1))
      line 3   w_md = [(1 - alpha_r)(mu + eta_r) w_ag + alpha_r ((1 - alpha_r) mu + eta_r) w]
                      / (eta_r + (1 - alpha_r^2) mu)
      server sends w_md, clients as in `noisy_mb_sgd`, g = (1/M_r) sum_i g_i + regulariser's gradient at w_md
      line 10  w = Pi_W [(alpha_r mu w_md + ((1 - alpha_r) mu + eta_r) w - alpha_r g) / (mu + eta_r)]
      line 11  w_ag = alpha_r w + (1 - alpha_r) w_ag
    return w_ag

Its multi-stage form begins again, from w = w_ag and r = 1, at the start of each stage. The weights follow from public
constants alone, as the step size of `noisy_mb_sgd` does.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sordino.algorithms.records import (
    NumberPerClient,
    Point,
    RecordMethod,
    project,
    record_options,
    records_of,
    require_ball,
    rounds_of,
    variance,
)
from sordino.errors import require, require_float32
from sordino.pytrees import pytree
from sordino.types import Aggregate, Bounder, Key, PlanContext, Scalar, Vector


class AcSaWeights(NamedTuple):
    """alpha_r, eta_r, and the weights of w_ag and w in the middle point w_md."""

    alpha: float
    eta: float
    of_aggregate: float
    of_iterate: float


class Stage(NamedTuple):
    """R_k rounds with eta_r = 4 upsilon_k / (r (r + 1))."""

    rounds: int
    upsilon: float


class ServerState(NamedTuple):
    """w_0, w_{r-1}, w_ag, and the number of rounds that are over."""

    w0: Vector
    w: Vector
    w_ag: Vector
    r: jax.Array


@pytree
@dataclass(frozen=True)
class Weights:
    """The weights of every round, and whether a stage begins with it."""

    alpha: jax.Array
    eta: jax.Array
    of_aggregate: jax.Array
    of_iterate: jax.Array
    begins: jax.Array


@pytree
@dataclass(frozen=True)
class AcSa(RecordMethod):
    """See the module."""

    radius: Scalar  # D
    mu: Scalar
    anchor: Scalar  # lambda of the convex case, (lambda / 2) ||w - w_0||^2; 0 where mu > 0
    initial_gap: Scalar | None  # a bound on F(w_0) - F*
    weights: Weights | None  # known when a plan resolves
    multi_stage: bool = field(metadata={"static": True})

    def init_server(self, w: Vector) -> ServerState:
        """w_0 = w_ag."""
        w = project(w, self.radius)
        return ServerState(w, w, w, jnp.int32(0))

    def broadcast(self, state: ServerState) -> Point:
        """w_md."""
        return Point(self._middle(state)[0], state.r)

    def server(self, key: Key, state: ServerState, total: Aggregate) -> tuple[ServerState, None]:
        """Lines 10 and 11."""
        assert self.weights is not None  # a plan resolves it
        w_md, w = self._middle(state)
        alpha, eta = self.weights.alpha[state.r], self.weights.eta[state.r]
        mu = self.mu + self.anchor
        g = total.mean + self.mu * w_md + self.anchor * (w_md - state.w0)
        w = project((alpha * mu * w_md + ((1 - alpha) * mu + eta) * w - alpha * g) / (mu + eta), self.radius)
        return ServerState(state.w0, w, alpha * w + (1 - alpha) * state.w_ag, state.r + 1), None

    def params(self, state: ServerState) -> Vector:
        """w_ag."""
        return state.w_ag

    def resolve(self, context: PlanContext) -> AcSa:
        """The method with its weights.

        Convex: on F + (lambda/2) ||w - w_0||^2 with lambda = V / (2 D sqrt(R)) and upsilon = beta + lambda (the paper
        leaves the choice open; this is Ghadimi and Lan's). Strongly convex: one stage or several, see `stages_of`.
        """
        anchor = self._anchor(context)
        weights = _weights(self._stages(context), float(self.mu) + anchor)
        return dataclasses.replace(super().resolve(context), anchor=anchor, weights=weights)

    def constants(self, context: PlanContext) -> dict[str, float]:
        """beta, mu, D, V, lambda of the convex case, the gap and the number of stages."""
        mu, anchor = float(self.mu), self._anchor(context)
        beta = records_of(context).smoothness + (mu + anchor)
        known = {"beta": beta, "mu": mu, "D": float(self.radius), "V": math.sqrt(variance(context))}
        more = {"lambda": anchor} if anchor else {}
        return known | more | {"gap": self._gap(context), "stages": float(len(self._stages(context)))}

    def _anchor(self, context: PlanContext) -> float:
        """lambda."""
        noise = math.sqrt(variance(context) / rounds_of(context))
        return noise / (2 * float(self.radius)) if self.mu == 0 else 0.0

    def _gap(self, context: PlanContext) -> float:
        """F(w_0) - F*, which is at most L D + mu D^2 / 2."""
        if self.initial_gap is not None:
            return float(self.initial_gap)
        known, D = records_of(context), float(self.radius)
        return float(np.max(known.weight * known.lipschitz)) * D + float(self.mu) * D**2 / 2

    def _stages(self, context: PlanContext) -> list[Stage]:
        R, V2, gap = rounds_of(context), variance(context), self._gap(context)
        mu = float(self.mu) + self._anchor(context)
        beta = records_of(context).smoothness + mu
        if self.mu == 0:
            return [Stage(R, beta)]
        if self.multi_stage:
            return stages_of(R, beta=beta, mu=mu, V2=V2, gap=gap)
        return [Stage(R, _upsilon(R, beta, mu, V2, gap))]

    def _middle(self, state: ServerState) -> tuple[Vector, Vector]:
        """Line 3: w_md, and w, which is w_ag where a stage begins."""
        assert self.weights is not None
        r = state.r
        w = jnp.where(self.weights.begins[r], state.w_ag, state.w)
        return self.weights.of_aggregate[r] * state.w_ag + self.weights.of_iterate[r] * w, w


def ac_sa_weights(r: int, mu: float, upsilon: float) -> AcSaWeights:
    """The weights of round r >= 1 for a mu-strongly convex loss."""
    require(r >= 1, "round", r, "rounds of Algorithm 2 count from 1")
    require(mu >= 0, "mu", mu, "must not be negative")
    require(upsilon > 0, "upsilon", upsilon, "must be positive")
    alpha, eta = 2 / (r + 1), 4 * upsilon / (r * (r + 1))
    whole = eta + (1 - alpha**2) * mu
    return AcSaWeights(alpha, eta, (1 - alpha) * (mu + eta) / whole, alpha * ((1 - alpha) * mu + eta) / whole)


def stages_of(rounds: int, *, beta: float, mu: float, V2: float, gap: float) -> list[Stage]:
    """The stages k = 1, 2, ... of the multi-stage form; gap >= F(w_0) - F*.

    R_k = ceil(max{4 sqrt(2 beta / mu), 128 V^2 / (3 mu gap 2^-(k+1))})
    upsilon_k = max{2 beta, [mu V^2 R_k (R_k + 1)(R_k + 2) / (3 gap 2^-(k-1))]^(1/2)}

    A stage that is cut short ends with more noise than it began with, so the last whole stage takes the rounds that are
    left over.
    """

    def halved(k: int) -> float:
        return gap * 2.0 ** -min(k, 500)  # without noise there may be thousands of stages

    def length(k: int) -> float:
        return max(4 * math.sqrt(2 * beta / mu), 128 * V2 / (3 * mu * halved(k + 1)))

    stages: list[Stage] = []
    left, k = rounds, 1
    while left > 0:
        fits = left >= math.ceil(min(length(k), left)) + length(k + 1)
        R = math.ceil(length(k)) if fits else left
        stages.append(Stage(R, _upsilon(R, beta, mu, V2, halved(k - 1))))
        left, k = left - R, k + 1
    return stages


def _upsilon(R: int, beta: float, mu: float, V2: float, gap: float) -> float:
    return max(2 * beta, math.sqrt(mu * V2 * R * (R + 1) * (R + 2) / (3 * gap)))


def _weights(stages: Sequence[Stage], mu: float) -> Weights:
    rows = [ac_sa_weights(r, mu, stage.upsilon) for stage in stages for r in range(1, stage.rounds + 1)]
    begins = [r == 0 for stage in stages for r in range(stage.rounds)]
    alpha, eta, of_aggregate, of_iterate = (jnp.asarray(column, jnp.float32) for column in zip(*rows, strict=True))
    return Weights(alpha, eta, of_aggregate, of_iterate, jnp.asarray(begins))


def accelerated_mb_sgd(
    *,
    lipschitz: NumberPerClient,
    radius: float,
    mu: float = 0.0,
    batch_size: int | list[int] | None = None,
    smoothness: float | None = None,
    feature_bound: float | None = None,
    initial_gap: float | None = None,
    multi_stage: bool = False,
    weights: str = "clients",
    one_pass: bool = False,
    bound: Bounder | None = None,
) -> AcSa:
    """Algorithm 2, AC-SA. Noise and trust are chosen by the plan, weights follow from public constants.

    The arguments that are not listed are those of `noisy_mb_sgd`.

    Args:
      mu: of the regulariser; 0 for the convex form.
      initial_gap: a public bound on F(w_0) - F*; L D + mu D^2 / 2 if left out.
      multi_stage: begin again in stages; needs mu > 0.
      one_pass: use each record at most once over all rounds and stages.
    """
    options = record_options(bound, lipschitz, batch_size, smoothness, feature_bound, weights, one_pass)
    require_ball(radius, mu)
    if initial_gap is not None:
        require_float32("initial_gap", initial_gap)
    require(mu > 0 or not multi_stage, "multi_stage", multi_stage, "stages need a strongly convex loss: give mu > 0")
    return AcSa(None, options, radius, mu, 0.0, initial_gap, None, multi_stage)
