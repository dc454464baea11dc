"""FedAvg, NormFedAvg, DP-FedAvg with clipping and DP-NormFedAvg: one method; bound, noise and its place differ.

Das, Hashemi, Sanghavi, Dhillon: DP-NormFedAvg with QTDL (Algorithms 2 and 3), and DP-FedAvg against DP-NormFedAvg with
Gaussian noise (Algorithms 1 and 2):

    for k = 0, ..., K - 1
      server sends w_k to the clients of S_k
      client i:  w_{k,0} = w_k
                 w_{k,t+1} = w_{k,t} - eta_k grad f_i(w_{k,t})          t = 0, ..., E - 1
                 u = (w_k - w_{k,E}) / eta_k,   g = bound(u)             clip(u, C), norm(u, C), or u itself
                 send M(g)                                               local: noise here
      server:    a_k = (1/r) sum_i g_i                                   central: noise once, on the sum
                 w_{k+1} = w_k - beta_k a_k

r is the planned cohort, never the realised one. With beta_k = eta_k (the default) and no bound this is FedAvg.
`message = "difference"` sends w_k - w_{k,E} undivided, as other papers do. With a `step_size` the server scales a_k by
the eta_g of FedEXP (see `extrapolation`) before its own step.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sordino.algorithms.extrapolation import Extrapolation, extrapolation, squared_norm
from sordino.algorithms.local import ClientData, LocalTraining
from sordino.algorithms.schedules import StepSize, as_schedule
from sordino.algorithms.server import OUTPUTS, OptaxStep, Output, ServerStep
from sordino.bounding import AdaptiveClip
from sordino.errors import InvalidInput, require, require_count, require_float32
from sordino.privacy.events import Event
from sordino.pytrees import pytree
from sordino.types import Aggregate, Bounder, BoundInfo, Circumstances, Key, Memory, Relation, Scalar, Vector

__all__ = ["Broadcast", "ClientInfo", "FedAvg", "ServerInfo", "ServerState", "bounded", "fedavg"]


class Broadcast(NamedTuple):
    """What a client of round k receives: w_k, and the bound where it adapts."""

    w: Vector
    k: jax.Array
    bound: Any


class ServerState(NamedTuple):
    """w_k, the server optimiser's state, the adaptive bound, and the iterate that is given out."""

    w: Vector
    step: Any
    bound: Any
    output: Output
    k: jax.Array


class ServerInfo(NamedTuple):
    """What a server that adapts says of its round: nothing that its releases do not say already."""

    step_size: jax.Array  # eta_g


class ClientInfo(NamedTuple):
    """For people only, computed on private data: never released."""

    norm: jax.Array
    clipped: jax.Array
    dropped: jax.Array


@pytree
@dataclass(frozen=True)
class FedAvg:
    """See the module."""

    bound: Bounder | None
    local: LocalTraining
    server_step: ServerStep | OptaxStep
    step_size: Extrapolation | None
    message: str = field(metadata={"static": True})
    output: str = field(metadata={"static": True})

    def init_server(self, w: Vector) -> ServerState:
        """w_0."""
        return ServerState(w, self.server_step.init(w), self._adaptive(), Output.init(w), jnp.int32(0))

    def init_client(self, w: Vector) -> tuple[()]:
        """Clients keep nothing."""
        return ()

    def broadcast(self, state: ServerState) -> Broadcast:
        """What the server sends."""
        return Broadcast(state.w, state.k, state.bound)

    def client(
        self, key: Key, received: Broadcast, state: tuple[()], data: ClientData
    ) -> tuple[Vector, jax.Array, tuple[()], ClientInfo]:
        """g, beside it the indicator of an adaptive bound or ||g||^2 for the step size, no state, info."""
        w_k, k = received.w, received.k
        w_E = self.local(key, w_k, data, k)
        u = w_k - w_E
        if self.message == "gradient":
            u = u / self.local.lr(k)
        bound = self.bound if received.bound is None else received.bound
        g, info = bounded(u, bound)
        beside = jnp.float32(0)
        if isinstance(bound, AdaptiveClip):
            beside = received.bound.indicator(info)
        elif bound is not None and self.step_size is not None and self.step_size.is_release:
            beside = squared_norm(g, bound.bound)
        return g, beside, state, ClientInfo(info.norm, info.clipped, info.dropped)

    def server(
        self, key: Key, state: ServerState, total: Aggregate, extra: jax.Array, r: Scalar
    ) -> tuple[ServerState, ServerInfo | None]:
        """w_{k+1} from the (noisy) sum of messages and the planned cohort r."""
        key_output, key_bound, key_step = jax.random.split(key, 3)
        a, info = total.sum / r, None
        if self.step_size is not None:
            eta_g = self.step_size(key_step, a, total, extra, r)
            a, info = eta_g * a, ServerInfo(eta_g)
        w, step = self.server_step(state.w, state.step, a, state.k)
        output = state.output.after(self.output, key_output, state.w, w, state.k)
        bound = state.bound.update(key_bound, extra, r) if state.bound is not None else None
        return ServerState(w, step, bound, output, state.k + 1), info

    def resolve(self, circumstances: Circumstances) -> FedAvg:
        """The method under a plan: a step size that is released gets its noise."""
        if self.step_size is None:
            return self
        C = None if self.bound is None else float(self.bound.bound)
        return dataclasses.replace(self, step_size=self.step_size.resolve(circumstances, self.bound, C))

    @property
    def only_sums(self) -> bool:
        """Whether models depend on messages through their sum alone: not with a step size, which looks at norms."""
        return self.step_size is None

    @property
    def memory(self) -> Memory:
        """Clients keep nothing between rounds."""
        return Memory.NONE

    def extra_event(self, relation: Relation) -> Event | None:
        """What the indicators of an adaptive bound cost, or the sum of squared norms that sets the step size."""
        if isinstance(self.bound, AdaptiveClip):
            return self.bound.indicator_event(relation)
        return self.step_size.event(self.bound.bound) if self.step_size is not None and self.bound is not None else None

    def noise_scale(self, state: ServerState) -> Scalar:
        """By how much an adaptive bound has moved: central noise moves with it."""
        if state.bound is None:
            return 1.0
        assert self.bound is not None  # it is where the state's bound began
        return state.bound.bound / self.bound.bound

    def params(self, state: ServerState) -> Vector:
        """The iterate that is given out."""
        return state.output.iterate

    def _adaptive(self) -> AdaptiveClip | None:
        return self.bound if isinstance(self.bound, AdaptiveClip) else None


def fedavg(
    *,
    local_steps: int,
    local_lr: StepSize,
    bound: Bounder | None = None,
    server_lr: StepSize | None = None,
    server_momentum: float = 0.0,
    server_optimiser: Any = None,
    batch_size: int | None = None,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    message: str = "gradient",
    output: str = "last",
    step_size: str | None = None,
    step_cost: float | None = None,
) -> FedAvg:
    """FedAvg and its bounded forms; noise and trust are chosen by the plan.

    Args:
      local_steps: E.
      local_lr: eta_k: a number, {start, decay}, {values, until} or a schedule.
      bound: `so.clip(C)`, `so.normalize(C)`, `so.adaptive_clip(...)`; None sends the update as it is (not private).
      server_lr: beta_k; eta_k if left out (1 with message = "difference").
      server_momentum: of the server's step.
      server_optimiser: an optax optimiser instead; beta_k then scales what it is fed.
      batch_size: records a step; all of the client's if left out.
      momentum: of the local steps.
      weight_decay: L2, added to the gradient.
      message: "gradient", the update over eta_k, or "difference".
      output: "last", "mean-of-last-two" or "random".
      step_size: "corrected" or "naive", FedEXP's step size on top of beta_k; none if left out.
      step_cost: with central trust, how much of a message's mu the release behind the step size may cost at most.
    """
    require_count(local_steps, "local_steps")
    if batch_size is not None:
        require_count(batch_size, "batch_size", "must be a whole number, at least 1, or left out")
    require(0 <= momentum < 1, "momentum", momentum, "must lie in [0, 1)")
    require(0 <= server_momentum < 1, "server_momentum", server_momentum, "must lie in [0, 1)")
    require_float32("weight_decay", weight_decay, or_zero=True)
    if message not in ("gradient", "difference"):
        raise InvalidInput("message", message, "use gradient or difference")
    if output not in OUTPUTS:
        raise InvalidInput("output", output, "use one of " + ", ".join(OUTPUTS))
    if server_optimiser is not None and server_momentum:
        raise InvalidInput("server_momentum", server_momentum, "give it to the optax optimiser instead")
    rule = extrapolation(step_size, step_cost)
    if rule is not None and isinstance(bound, AdaptiveClip):
        raise InvalidInput("step_size", step_size, "needs a bound that stays: use clip or normalize")
    eta = as_schedule(local_lr, "local_lr")
    default_beta = eta if message == "gradient" else as_schedule(1.0)
    beta = default_beta if server_lr is None else as_schedule(server_lr, "server_lr")
    step = ServerStep(beta, server_momentum) if server_optimiser is None else OptaxStep(beta, server_optimiser)
    training = LocalTraining(eta, momentum or None, weight_decay, local_steps, batch_size)
    return FedAvg(bound, training, step, rule, message, output)


def bounded(u: Vector, bound: Bounder | None) -> tuple[Vector, BoundInfo]:
    """u within the bound; without one nothing is shortened, but a non-finite update is dropped all the same."""
    if bound is not None:
        return bound(u)
    finite = jnp.all(jnp.isfinite(u))
    norm = jnp.linalg.norm(u)
    return jnp.where(finite, u, 0.0), BoundInfo(norm, jnp.bool_(False), ~finite)
