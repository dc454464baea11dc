"""Accelerated Noisy MB-SGD (AC-SA), in which each client protects each of its records.

Lowy and Razaviyayn: Private Federated Learning Without a Trusted Server, Algorithm 2, from w_ag = w_0 (line 1), with
alpha_r = 2 / (r + 1) and eta_r = 4 upsilon / (r (r + 1)):

    for r = 1, ..., R
      line 3   server sends w_md = [(1 - alpha_r)(mu + eta_r) w_ag + alpha_r ((1 - alpha_r) mu + eta_r) w]
                                   / (eta_r + (1 - alpha_r^2) mu)
      line 5   clients as in `noisy_mb_sgd`
      line 8   g = (1/M_r) sum_i g_i + the regulariser's gradient at w_md
      line 10  w = Pi_W [(alpha_r mu w_md + ((1 - alpha_r) mu + eta_r) w - alpha_r g) / (mu + eta_r)]
      line 11  w_ag = alpha_r w + (1 - alpha_r) w_ag
    return w_ag

Line 10 is the minimiser that the paper's box asks for, in closed form. The multi-stage form begins again, from w = w_ag
and r = 1, at the start of each stage. The weights follow from public constants alone. The convex form (mu = 0) adds
(lambda/2) ||w - w_0||^2 with lambda = V / (2 D sqrt(R)), the paper (lambda/2) ||w||^2, which is the same for w_0 = 0;
its upsilon = beta + lambda is Ghadimi and Lan's choice, since the paper leaves it open.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
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


class AcSaWeights(NamedTuple):
    """alpha_r, eta_r, and the weights of w_ag and w in w_md: numbers of one round, or arrays over all rounds."""

    alpha: Scalar
    eta: Scalar
    of_aggregate: Scalar
    of_iterate: Scalar


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
class AcSa(RecordMethod):
    """AC-SA in one stage or several; `accelerated_mb_sgd` makes it."""

    radius: Scalar  # D
    mu: Scalar
    anchor: Scalar  # lambda of the convex case, (lambda / 2) ||w - w_0||^2; 0 where mu > 0
    initial_gap: Scalar | None  # a bound on F(w_0) - F*
    weights: AcSaWeights | None  # of all rounds, known when a plan resolves
    multi_stage: bool = field(metadata={"static": True})

    def init_server(self, w: Vector) -> ServerState:
        w = project(w, self.radius)
        return ServerState(w, w, w, jnp.int32(0))

    def broadcast(self, state: ServerState) -> Point:
        return Point(self._middle(state)[0], state.r)

    def server(self, key: Key, state: ServerState, total: Aggregate) -> tuple[ServerState, None]:
        """Lines 8, 10 and 11."""
        w_md, w, alpha, eta = self._middle(state)
        mu = self.mu + self.anchor
        g = total.mean + self.mu * w_md + self.anchor * (w_md - state.w0)
        w = project((alpha * mu * w_md + ((1 - alpha) * mu + eta) * w - alpha * g) / (mu + eta), self.radius)
        return ServerState(state.w0, w, alpha * w + (1 - alpha) * state.w_ag, state.r + 1), None

    def params(self, state: ServerState) -> Vector:
        return state.w_ag

    def resolve(self, context: PlanContext) -> AcSa:
        stages, known = self._stages(context)
        anchor = known.get("lambda", 0.0)
        mu = float(self.mu) + anchor
        rows = [ac_sa_weights(r, mu, stage.upsilon) for stage in stages for r in range(1, stage.rounds + 1)]
        weights = AcSaWeights(*(jnp.asarray(column, jnp.float32) for column in zip(*rows, strict=True)))
        return dataclasses.replace(super().resolve(context), anchor=anchor, weights=weights)

    def constants(self, context: PlanContext) -> dict[str, float]:
        return self._stages(context)[1]

    def _stages(self, context: PlanContext) -> tuple[list[Stage], dict[str, float]]:
        """The stages, and the public constants that they rest on; F(w_0) - F* is at most L D + mu D^2 / 2."""
        (facts, R), V2 = records_of(context), variance(context, with_replacement=self.with_replacement)
        mu, D = float(self.mu), float(self.radius)
        anchor = math.sqrt(V2 / R) / (2 * D) if mu == 0 else 0.0
        beta, strong = facts.smoothness + (mu + anchor), mu + anchor
        largest_gap = float(np.max(facts.weight * facts.lipschitz)) * D + mu * D**2 / 2
        gap = largest_gap if self.initial_gap is None else float(self.initial_gap)
        if mu == 0:
            stages = [Stage(R, beta)]
        elif self.multi_stage:
            stages = stages_of(R, beta=beta, mu=strong, V2=V2, gap=gap)
        else:
            stages = [Stage(R, _upsilon(R, beta, strong, V2, gap))]
        known = {"beta": beta, "mu": mu, "D": D, "V": math.sqrt(V2)} | ({"lambda": anchor} if anchor else {})
        return stages, known | {"gap": gap, "stages": float(len(stages))}

    def _middle(self, state: ServerState) -> tuple[Vector, Vector, jax.Array, jax.Array]:
        """Line 3: w_md, and w, alpha_r and eta_r. Where a stage begins, alpha_r = 1 and w is w_ag."""
        assert self.weights is not None  # a plan resolves it
        alpha, eta, of_aggregate, of_iterate = (jnp.asarray(column)[state.r] for column in self.weights)
        w = jnp.where(alpha == 1, state.w_ag, state.w)
        return of_aggregate * state.w_ag + of_iterate * w, w, alpha, eta


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


@names_keywords
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
    weights: str | list[float] = "clients",
    one_pass: bool = False,
    draws: str = WITHOUT,
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
    options = record_options(bound, lipschitz, batch_size, smoothness, feature_bound, weights, one_pass, draws)
    require_ball(radius, mu)
    if initial_gap is not None:
        require_float32("initial_gap", initial_gap)
    require(mu > 0 or not multi_stage, "multi_stage", multi_stage, "stages need a strongly convex loss: give mu > 0")
    return AcSa(None, options, radius, mu, 0.0, initial_gap, None, multi_stage)
