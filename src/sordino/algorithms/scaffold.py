"""SCAFFOLD and, at client level, DP-SCAFFOLD: control variates against the drift of local training.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD (Algorithm 1, option II), with x_t as in Noble, Bellet,
Dieuleveut: Differentially Private Federated Learning on Heterogeneous Data. For N clients, of which r take part:

    server sends (x, c)
    client i:  y = x;   y <- y - eta_l (grad f_i(y) - c_i + c)                K local steps
               c_i+ = c_i - c + (x - y) / (K eta_l)
               (Delta y, Delta c) = (y - x, c_i+ - c_i)
               Delta y <- bound(Delta y, C),   Delta c <- bound(Delta c, C_c)
               send both;   c_i <- c_i + Delta c
    server:    x <- x + eta_g (1/r) sum Delta y,   c <- c + (1/N) sum Delta c

Both are sent as one message (-Delta y, (C / C_c) Delta c) in R^{2d}, each half of norm at most C. So one mechanism
serves both, the sensitivity is that of a vector of norm sqrt(2) C, and Gaussian noise costs mu^2 = mu_y^2 + mu_c^2.
A client keeps its message without noise: c_i starts at zero, and c is the mean of the c_i except for noise, which adds
up in it. An absent client keeps its c_i. The papers leave open what of c_i is sent at client level; `control` says it:

    "difference"  the box
    "update"      send M(Delta y) alone, of norm at most C: c_i+ follows from it, for client and server alike
                  client i:  c_i <- c_i - c - Delta y / (K eta_l)
                  server:    c <- (1 - r/N) c - (r/N) (1/r) sum M(Delta y) / (K eta_l)
    "fresh"       send M(Delta y, c_i+): the noise of earlier rounds does not stay in c
                  client i:  c_i <- bound(c_i+, C_c)
                  server:    c <- (1 - r/N) c + (r/N) (1/r) sum M(c_i+)

With `remember_noise` the last line of a client reads M(Delta c), M(Delta y) or M(c_i+): the noise of its own message
enters c_i, and c is the mean of the c_i in private too. The step size of FedEXP, if asked for, uses Delta y only.
`record_scaffold` is the form that protects records.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp

from sordino.algorithms.common import bounded, require_choice, require_fixed_bound, require_local_training
from sordino.algorithms.extrapolation import Extrapolating, Extrapolation, ServerInfo, extrapolation
from sordino.algorithms.local import ClientData, LocalTraining
from sordino.algorithms.schedules import (
    Schedule,
    StepSize,
    as_schedule,
    require_positive,
    require_shares,
    share_of,
    shares_of,
)
from sordino.algorithms.server import OUTPUTS, Output
from sordino.errors import InvalidInput, names_keywords, require
from sordino.pytrees import pytree
from sordino.types import (
    Aggregate,
    Bounder,
    BoundInfo,
    Key,
    Memory,
    Message,
    Method,
    PlanContext,
    Privacy,
    PyTree,
    Relation,
    Scalar,
    Vector,
)

CONTROLS = ("difference", "update", "fresh")


@pytree
@dataclass(frozen=True)
class BothHalves:
    """Bounds each half of a vector by C: the whole has norm at most sqrt(2) C."""

    half: Bounder

    @property
    def limit(self) -> Scalar:
        return math.sqrt(2) * self.half.limit

    def __call__(self, vector: Vector) -> tuple[Vector, BoundInfo]:
        """Bound one vector. A half that is not finite drops both; the norm reported is that of the first half."""
        return _bound_halves(vector, self.half)

    def sensitivity(self, relation: Relation) -> Scalar:
        return math.sqrt(2) * self.half.sensitivity(relation)


class Broadcast(NamedTuple):
    """What a client of round k receives."""

    x: Vector
    c: Vector
    k: jax.Array


class ServerState(NamedTuple):
    """x, the server's control variate c, and the iterate that is given out."""

    x: Vector
    c: Vector
    output: Output
    k: jax.Array


class ControlVariates(Method):
    """The states of SCAFFOLD at either level: the server has x and c, a client c_i."""

    def init_server(self, w: Vector) -> ServerState:
        return ServerState(w, jnp.zeros_like(w), Output.init(w), jnp.int32(0))

    def init_client(self, w: Vector) -> Vector:
        return jnp.zeros_like(w)

    def broadcast(self, state: ServerState) -> Broadcast:
        return Broadcast(state.x, state.c, state.k)

    def round_of(self, received: PyTree) -> Scalar:
        return received.k

    def params(self, state: ServerState) -> Vector:
        return state.output.iterate


@pytree
@dataclass(frozen=True)
class Scaffold(ControlVariates, Extrapolating):
    """SCAFFOLD at client level; `scaffold` makes it."""

    bound: Bounder | None
    control_scale: Scalar  # C / C_c
    local: LocalTraining
    server_lr: Schedule  # eta_g
    step_size: Extrapolation | None
    shares: Schedule | None  # s_k: in round k the bounds are s_k C and s_k C_c
    participation: Scalar | None  # r / N, known when a plan resolves
    control: str = field(metadata={"static": True})
    remembers_noise: bool = field(metadata={"static": True})
    output: str = field(metadata={"static": True})

    @property
    def privacy(self) -> Privacy:  # a step size depends on the norms of single messages
        return Privacy(
            memory=Memory.ZERO,
            uses_sum_only=self.step_size is None,
            remembers_noise=self.remembers_noise,
            message_parts=1 if self.control == "update" else 2,
        )

    @property
    def measured(self) -> Bounder | None:  # of Delta y
        return self.bound.half if isinstance(self.bound, BothHalves) else self.bound

    def client(self, key: Key, received: Broadcast, c_i: Vector, data: ClientData) -> tuple[Message, Vector, BoundInfo]:
        """What `control` sends, with -Delta y first, and the new c_i."""
        x, c, k = received
        y = self.local(key, x, data, k, correction=c - c_i)
        delta_c, share = -c + (x - y) / self._length(k), share_of(self.shares, k)
        if self.control == "update":
            message, info = bounded(x - y, self.bound, share)
        else:
            about_c = delta_c if self.control == "difference" else c_i + delta_c
            halves = jnp.concatenate([x - y, self.control_scale * about_c])
            message, info = _bound_halves(halves, self.measured, share)
        sent_y = message[: x.size]
        return Message(message, self.squared_norm(sent_y)), self._next(received, c_i, message), info

    def after_noise(self, received: Broadcast, before: Vector, after: Vector, sent: Vector) -> Vector:
        """c_i+ from the message as it was sent, where noise is remembered."""
        return self._next(received, before, sent) if self.remembers_noise else after

    def server(self, key: Key, state: ServerState, total: Aggregate) -> tuple[ServerState, ServerInfo | None]:
        assert self.participation is not None  # a plan resolves it
        mean, part = share_of(self.shares, state.k) * total.mean, self.participation
        if self.control == "update":
            c = (1 - part) * state.c + part * mean / self._length(state.k)
        else:
            kept = state.c if self.control == "difference" else (1 - part) * state.c
            c = kept + part * mean[state.x.size :] / self.control_scale
        mean_y, info = self.extrapolated(total.mean[: state.x.size], total)
        mean_y = share_of(self.shares, state.k) * mean_y
        x = state.x - self.server_lr(state.k) * mean_y
        output = state.output.after(self.output, key, state.x, x, state.k)
        return ServerState(x, c, output, state.k + 1), info

    def resolve(self, context: PlanContext) -> Scaffold:
        require_positive(self.local.lr, context.rounds, "local_lr")
        require_shares(self.shares, context.rounds, self.bound)
        by_privunit = context.mechanism is not None and context.mechanism.name == "privunit"
        if self.step_size is not None and by_privunit and self.control != "update":
            remedy = (
                'PrivUnit estimates the norm of both halves together: leave step_size out, set control = "update", or '
                "use gaussian noise"
            )
            raise InvalidInput("step_size", self.step_size.rule, remedy)
        participation = context.planned_cohort / context.clients
        return dataclasses.replace(self, step_size=self.resolved_step_size(context), participation=participation)

    def _length(self, k: jax.Array) -> Scalar:
        """K eta_l: an update over it is a mean gradient."""
        return self.local.steps * self.local.lr(k)

    def _next(self, received: Broadcast, c_i: Vector, message: Vector) -> Vector:
        """The new c_i, as this message says it."""
        message = share_of(self.shares, received.k) * message
        if self.control == "update":
            return c_i - received.c + message / self._length(received.k)
        about_c = message[c_i.size :] / self.control_scale
        return c_i + about_c if self.control == "difference" else about_c


@names_keywords
def scaffold(
    *,
    local_steps: int,
    local_lr: StepSize,
    bound: Bounder | None = None,
    control: str = "difference",
    control_bound: float | None = None,
    remember_noise: bool = False,
    bound_schedule: StepSize | None = None,
    server_lr: StepSize = 1.0,
    batch_size: int | None = None,
    weight_decay: float = 0.0,
    step_size: str | None = None,
    step_cost: float | None = None,
    output: str = "last",
) -> Scaffold:
    """SCAFFOLD and, with a bound and a plan's noise, DP-SCAFFOLD at client level.

    The arguments that are not listed are those of `fedavg`.

    Args:
      local_steps: K.
      local_lr: eta_l.
      bound: of Delta y, for instance `so.clip(C)`; None sends everything as it is (not private).
      control: what is sent about c_i: "difference" (the box), "update" (nothing beside Delta y, from which c_i+
        follows) or "fresh" (c_i+ itself, so that noise does not add up in c).
      control_bound: C_c, of Delta c or c_i+; if left out, C / (K eta_l) of round 0, which corresponds to Delta y of
        norm C.
      remember_noise: c_i follows the message as it was sent, noise and all; for local trust, and a model user's epsilon
        is then the server's.
      server_lr: eta_g.
    """
    require_local_training(local_steps, batch_size, weight_decay)
    require_choice("output", output, OUTPUTS)
    require_choice("control", control, CONTROLS)
    require_fixed_bound(bound, "both halves of a message need fixed bounds: use clip or normalize")
    eta = as_schedule(local_lr, "local_lr")
    control_scale = local_steps * float(eta(jnp.int32(0)))
    if control_bound is not None:
        require(control != "update", "control_bound", control_bound, "an update alone is sent: leave it out")
        if bound is None:
            raise InvalidInput("control_bound", control_bound, "give bound, of the update, too")
        require(0 < control_bound < math.inf, "control_bound", control_bound, "must be positive and finite")
        control_scale = float(bound.limit) / control_bound
    require(control_scale > 0, "local_lr", local_lr, "is 0 in round 0, and messages are divided by it: start above 0")
    return Scaffold(
        bound=bound if bound is None or control == "update" else BothHalves(bound),
        control_scale=control_scale,
        local=LocalTraining(eta, None, weight_decay, local_steps, batch_size),
        server_lr=as_schedule(server_lr, "server_lr"),
        step_size=extrapolation(step_size, step_cost),
        shares=shares_of(bound_schedule),
        participation=None,
        control=control,
        remembers_noise=remember_noise,
        output=output,
    )


def _bound_halves(vector: Vector, half: Bounder | None, share: Scalar = 1.0) -> tuple[Vector, BoundInfo]:
    """Each half within its bound; where one is not finite, both are dropped."""
    (y, info_y), (c, info_c) = (bounded(part, half, share) for part in jnp.split(vector, 2))
    dropped = info_y.dropped | info_c.dropped
    clipped = (info_y.clipped | info_c.clipped) & ~dropped
    return jnp.where(dropped, 0.0, jnp.concatenate([y, c])), BoundInfo(info_y.norm, clipped, dropped)
