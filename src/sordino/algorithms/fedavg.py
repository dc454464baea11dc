"""FedAvg, NormFedAvg, DP-FedAvg with clipping and DP-NormFedAvg: one method; bound, noise and its place differ.

Das, Hashemi, Sanghavi, Dhillon: DP-NormFedAvg with QTDL (Algorithms 2 and 3), and DP-FedAvg against DP-NormFedAvg with
Gaussian noise (Algorithms 1 and 2):

    for k = 0, ..., K - 1
      server sends w_k to the clients of S_k
      client i:  w_{k,0} = w_k
                 w_{k,tau+1} = w_{k,tau} - eta_k grad f_i(w_{k,tau})     tau = 0, ..., E - 1
                 u = (w_k - w_{k,E}) / eta_k,   g = bound(u)             clip(u, C), norm(u, C), or u itself
                 send M(g)                                               local: noise here
      server:    a_k = (1/r) sum_i g_i                                   central: noise once, on the sum
                 w_{k+1} = w_k - beta_k a_k

r is the planned cohort, never the realised one. With beta_k = eta_k (the default) and no bound this is FedAvg. The
second paper adds N(0, r sigma^2) in every client and returns a random iterate (`output = "random"`, line 13); here
central noise falls once, on the sum, and the last iterate is returned by default. `message = "difference"` sends
w_k - w_{k,E} undivided, as other papers do. With a `step_size` the server scales a_k by the eta_g of FedEXP (see
`extrapolation`) before its own step. With `proximal` clients take the steps of FedProx (see `local`), and with a
`server_optimiser` the last line is that of FedAdam, FedYogi or FedAdagrad (see `server`). With `sam_radius` they take
the steps of DP-FedSAM (see `local`), and with a `bound_schedule` the bound of round k is s_k C (see `schedules`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp

from sordino.algorithms.common import bounded, require_choice, require_local_training
from sordino.algorithms.extrapolation import Extrapolating, Extrapolation, ServerInfo, extrapolation
from sordino.algorithms.local import ClientData, LocalTraining
from sordino.algorithms.private_metric import PrivateGradientNorm, PrivateLoss, PrivateMetric
from sordino.algorithms.private_metric import private_metric as metric_of
from sordino.algorithms.schedules import (
    Schedule,
    StepSize,
    as_schedule,
    constant,
    require_positive,
    require_shares,
    share_of,
    shares_of,
)
from sordino.algorithms.server import OUTPUTS, NamedStep, OptaxStep, Output, ServerOptimiser, ServerStep, server_step
from sordino.bounding import AdaptiveClip
from sordino.bounding.adaptive_clip import INDICATORS
from sordino.errors import InvalidInput, names_keywords, require
from sordino.pytrees import pytree
from sordino.types import (
    Aggregate,
    Bounder,
    BoundInfo,
    ClientNumbers,
    Event,
    Key,
    Message,
    PlanContext,
    Privacy,
    PyTree,
    Relation,
    Scalar,
    Vector,
)


class Broadcast(NamedTuple):
    """What a client of round k receives: w_k, and the bound where it adapts."""

    w: Vector
    k: jax.Array
    bound: AdaptiveClip | None


class ServerState(NamedTuple):
    """w_k, the state of the server's optimiser, the bound where it adapts, and the iterate that is given out."""

    w: Vector
    step: PyTree
    bound: AdaptiveClip | None
    output: Output
    k: jax.Array


@pytree
@dataclass(frozen=True)
class FedAvg(Extrapolating):
    """FedAvg and its bounded forms; `fedavg` makes it."""

    bound: Bounder | None
    local: LocalTraining
    server_step: ServerStep | OptaxStep | NamedStep
    step_size: Extrapolation | None
    shares: Schedule | None  # s_k
    metric: PrivateMetric | None
    message: str = field(metadata={"static": True})
    output: str = field(metadata={"static": True})

    @property
    def privacy(self) -> Privacy:  # a step size depends on the norms of single messages
        return Privacy(uses_sum_only=self.step_size is None)

    def init_server(self, w: Vector) -> ServerState:
        adaptive = self.bound if isinstance(self.bound, AdaptiveClip) else None
        return ServerState(w, self.server_step.init(w), adaptive, Output.init(w), jnp.int32(0))

    def broadcast(self, state: ServerState) -> Broadcast:
        return Broadcast(state.w, state.k, state.bound)

    def client(
        self, key: Key, received: Broadcast, state: tuple[()], data: ClientData
    ) -> tuple[Message, tuple[()], BoundInfo]:
        w_k, k, adaptive = received
        w_E = self.local(key, w_k, data, k)
        u = w_k - w_E
        if self.message == "gradient":
            u = u / self.local.lr(k)
        g, info = bounded(u, self.bound if adaptive is None else adaptive, share_of(self.shares, k))
        side = self.squared_norm(g) if adaptive is None else adaptive.indicator(info)
        if self.metric is not None:
            side = self.metric(w_k, data)
        return Message(g, side), state, info

    def server(
        self, key: Key, state: ServerState, total: Aggregate
    ) -> tuple[ServerState, ServerInfo | PrivateLoss | PrivateGradientNorm | None]:
        a, told = self.extrapolated(total.mean, total)
        info = told if self.metric is None else self.metric.told(total)
        w, step = self.server_step(state.w, state.step, share_of(self.shares, state.k) * a, state.k)
        output = state.output.after(self.output, key, state.w, w, state.k)
        bound = state.bound
        if bound is not None:
            assert total.side is not None  # clients send indicators where the bound adapts
            bound = bound.update(total.side, total.cohort)
        return ServerState(w, step, bound, output, state.k + 1), info

    def params(self, state: ServerState) -> Vector:
        return state.output.iterate

    def resolve(self, context: PlanContext) -> FedAvg:
        if self.message == "gradient":
            require_positive(self.local.lr, context.rounds, "local_lr")
        require_shares(self.shares, context.rounds, self.bound)
        metric = None if self.metric is None else self.metric.resolve(context)
        return dataclasses.replace(self, step_size=self.resolved_step_size(context), metric=metric)

    def round_of(self, received: PyTree) -> Scalar:
        return received.k

    def limit(self, received: Broadcast, numbers: ClientNumbers | None) -> Scalar | None:
        return super().limit(received, numbers) if received.bound is None else received.bound.limit

    def side_event(self, relation: Relation) -> Event | None:
        """The cost of the indicators of an adaptive bound, of a metric, or of squared norms behind the step size."""
        if isinstance(self.bound, AdaptiveClip):
            return self.bound.indicator_event(relation)
        return super().side_event(relation) if self.metric is None else self.metric.event(relation)

    def side_noise_std(self) -> Scalar | None:
        if self.metric is not None:
            return self.metric.noise_std
        return self.bound.indicator_noise_std if isinstance(self.bound, AdaptiveClip) else super().side_noise_std()

    def side_range(self) -> tuple[float, float] | None:
        if self.metric is not None:
            return 0.0, float(self.metric.bound)
        return INDICATORS if isinstance(self.bound, AdaptiveClip) else super().side_range()

    def side_figures(self) -> dict[str, float]:
        return super().side_figures() if self.metric is None else {"metric_noise_std": float(self.metric.noise_std)}

    def noise_scale(self, state: ServerState) -> Scalar:
        """An adaptive bound over its first value: noise on the sum grows and shrinks with it."""
        if state.bound is None:
            return 1.0
        assert self.bound is not None  # the first value of the state's bound
        return state.bound.limit / self.bound.limit


@names_keywords
def fedavg(
    *,
    local_steps: int,
    local_lr: StepSize,
    bound: Bounder | None = None,
    server_lr: StepSize | None = None,
    server_momentum: float = 0.0,
    server_optimiser: ServerOptimiser | None = None,
    batch_size: int | None = None,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    proximal: float = 0.0,
    sam_radius: float = 0.0,
    bound_schedule: StepSize | None = None,
    message: str = "gradient",
    output: str = "last",
    step_size: str | None = None,
    step_cost: float | None = None,
    private_metric: dict[str, str | float] | None = None,
) -> FedAvg:
    """FedAvg and its bounded forms; noise and trust are chosen by the plan.

    Args:
      local_steps: E.
      local_lr: eta_k: a number, {start, decay}, {values, until} or a function of the round, such as an optax schedule.
      bound: `so.clip(C)`, `so.normalize(C)`, `so.adaptive_clip(...)`; None sends the update as it is (not private).
      server_lr: beta_k; eta_k if left out (1 with message = "difference").
      server_momentum: of the server's step.
      server_optimiser: "adam", "adagrad", "sgd" or "yogi", alone or with its options as {name = "adam", b1 = 0.8}: the
        optax optimiser of that name, whose learning rate is beta_k. Or, from Python, an optax optimiser: it has its own
        learning rate, and its gradient is beta_k a_k (so with Adam beta_k has next to no effect).
      batch_size: records a step; all of the client's if left out.
      momentum: of the local steps.
      weight_decay: L2, added to the gradient.
      proximal: mu of FedProx, which adds mu (w - w_k) to each local gradient; it matters from two local steps on.
      sam_radius: rho of DP-FedSAM, whose local gradients are taken this far uphill.
      bound_schedule: s_k, by which the bound of round k is s_k times `bound`: {start = 1.0, decay = 0.98}, say.
      message: "gradient", the update over eta_k, or "difference".
      output: "last", "mean-of-last-two" or "random".
      step_size: "corrected" or "naive", FedEXP's step size on top of beta_k; none if left out.
      step_cost: with central trust, the largest share of a message's mu that the release behind the step size may cost.
      private_metric: {name = "loss" or "gradient-norm", bound = B, noise_std = s}: the clients' mean of it, at most B
        each, released in every round with Gaussian noise s on the sum, which the certificate counts.
    """
    require_local_training(local_steps, batch_size, weight_decay, proximal, sam_radius)
    require(0 <= momentum < 1, "momentum", momentum, "must lie in [0, 1)")
    require_choice("message", message, ("gradient", "difference"))
    require_choice("output", output, OUTPUTS)
    rule = extrapolation(step_size, step_cost)
    if rule is not None and isinstance(bound, AdaptiveClip):
        raise InvalidInput("step_size", step_size, "needs a bound that stays: use clip or normalize")
    metric = metric_of(private_metric)
    alone = rule is None and not isinstance(bound, AdaptiveClip)
    remedy = "one scalar travels beside a message: leave out step_size and adaptive_clip"
    require(metric is None or alone, "private_metric", private_metric, remedy)
    eta = as_schedule(local_lr, "local_lr")
    step = server_step(server_lr, eta if message == "gradient" else constant(1.0), server_momentum, server_optimiser)
    training = LocalTraining(
        eta, momentum or None, weight_decay, local_steps, batch_size, proximal or None, sam_radius or None
    )
    return FedAvg(bound, training, step, rule, shares_of(bound_schedule), metric, message, output)
