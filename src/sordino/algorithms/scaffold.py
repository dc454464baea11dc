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
A client keeps its message without noise: c_i starts at zero, and c is the mean of the c_i except for noise. An absent
client keeps its c_i. The step size of FedEXP, if asked for, uses the first half only. `record_scaffold` is the form
that protects records.
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
from sordino.algorithms.schedules import Schedule, StepSize, as_schedule, require_positive
from sordino.algorithms.server import OUTPUTS, Output
from sordino.errors import InvalidInput, require
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

    bound: BothHalves | None
    control_scale: Scalar  # C / C_c
    local: LocalTraining
    server_lr: Schedule  # eta_g
    step_size: Extrapolation | None
    participation: Scalar | None  # r / N, known when a plan resolves
    output: str = field(metadata={"static": True})

    @property
    def privacy(self) -> Privacy:  # a step size depends on the norms of single messages
        return Privacy(memory=Memory.ZERO, uses_sum_only=self.step_size is None, message_parts=2)

    @property
    def measured(self) -> Bounder | None:  # the first half
        return None if self.bound is None else self.bound.half

    def client(self, key: Key, received: Broadcast, c_i: Vector, data: ClientData) -> tuple[Message, Vector, BoundInfo]:
        """(-Delta y, (C / C_c) Delta c), and the new c_i."""
        x, c, k = received
        y = self.local(key, x, data, k, correction=c - c_i)
        delta_c = -c + (x - y) / (self.local.steps * self.local.lr(k))
        halves = jnp.concatenate([x - y, self.control_scale * delta_c])
        message, info = _bound_halves(halves, self.measured)
        sent_y, sent_c = jnp.split(message, 2)
        return Message(message, self.squared_norm(sent_y)), c_i + sent_c / self.control_scale, info

    def server(self, key: Key, state: ServerState, total: Aggregate) -> tuple[ServerState, ServerInfo | None]:
        assert self.participation is not None  # a plan resolves it
        mean_y, mean_c = jnp.split(total.mean, 2)
        mean_y, info = self.extrapolated(mean_y, total)
        x = state.x - self.server_lr(state.k) * mean_y
        c = state.c + self.participation * mean_c / self.control_scale
        output = state.output.after(self.output, key, state.x, x, state.k)
        return ServerState(x, c, output, state.k + 1), info

    def resolve(self, context: PlanContext) -> Scaffold:
        require_positive(self.local.lr, context.rounds, "local_lr")
        by_privunit = context.mechanism is not None and context.mechanism.name == "privunit"
        if self.step_size is not None and by_privunit:
            remedy = "PrivUnit estimates the norm of both halves together: leave step_size out, or use gaussian noise"
            raise InvalidInput("step_size", self.step_size.rule, remedy)
        participation = context.planned_cohort / context.clients
        return dataclasses.replace(self, step_size=self.resolved_step_size(context), participation=participation)


def scaffold(
    *,
    local_steps: int,
    local_lr: StepSize,
    bound: Bounder | None = None,
    control_bound: float | None = None,
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
      bound: of Delta y, for instance `so.clip(C)`; None sends both halves as they are (not private).
      control_bound: C_c, of Delta c; if left out, C / (K eta_l) of round 0, which corresponds to Delta y of norm C.
      server_lr: eta_g.
    """
    require_local_training(local_steps, batch_size, weight_decay)
    require_choice("output", output, OUTPUTS)
    require_fixed_bound(bound, "both halves of a message need fixed bounds: use clip or normalize")
    eta = as_schedule(local_lr, "local_lr")
    control_scale = local_steps * float(eta(jnp.int32(0)))
    if control_bound is not None:
        if bound is None:
            raise InvalidInput("control_bound", control_bound, "give bound, of the update, too")
        require(0 < control_bound < math.inf, "control_bound", control_bound, "must be positive and finite")
        control_scale = float(bound.limit) / control_bound
    require(control_scale > 0, "local_lr", local_lr, "is 0 in round 0, and messages are divided by it: start above 0")
    return Scaffold(
        None if bound is None else BothHalves(bound),
        control_scale,
        LocalTraining(eta, None, weight_decay, local_steps, batch_size),
        as_schedule(server_lr, "server_lr"),
        extrapolation(step_size, step_cost),
        None,
        output,
    )


def _bound_halves(vector: Vector, half: Bounder | None) -> tuple[Vector, BoundInfo]:
    """Each half within its bound; where one is not finite, both are dropped."""
    (y, info_y), (c, info_c) = (bounded(part, half) for part in jnp.split(vector, 2))
    dropped = info_y.dropped | info_c.dropped
    clipped = (info_y.clipped | info_c.clipped) & ~dropped
    return jnp.where(dropped, 0.0, jnp.concatenate([y, c])), BoundInfo(info_y.norm, clipped, dropped)
