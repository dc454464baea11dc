"""SCAFFOLD, and DP-SCAFFOLD at client and at record level: control variates against the drift of local training.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD (Algorithm 1, option II), with x_t as in Noble, Bellet,
Dieuleveut: Differentially Private Federated Learning on Heterogeneous Data. For N clients, of which r take part:

    server sends (x, c)
    client i:  y = x;   y <- y - eta_l (grad f_i(y) - c_i + c)                K local steps
               c_i+ = c_i - c + (x - y) / (K eta_l)
               (Delta y, Delta c) = (y - x, c_i+ - c_i)
               Delta y <- bound(Delta y, C),   Delta c <- bound(Delta c, C_c)
               send both;   c_i <- c_i + Delta c
    server:    x <- x + eta_g (1/r) sum Delta y,   c <- c + (1/N) sum Delta c

The two are sent as one message (-Delta y, (C / C_c) Delta c) in R^{2d}, each half of norm at most C. So one mechanism
serves both, the sensitivity is that of a vector of norm sqrt(2) C, and Gaussian noise costs mu^2 = mu_y^2 + mu_c^2.
A client keeps what it sent, without its noise: c_i starts at zero, and c is the mean of the c_i but for noise. An
absent client keeps its c_i. The step size of FedEXP, if asked for, looks at the first half alone.

At record level, as Noble et al. have it, noise is added where records are read and nowhere else:

    client i:  y = x;   K times   draw b_i of the n_i records without replacement
                                  H = (1/b_i) sum_x clip(grad f(y, x), C) + N(0, sigma_i^2 I)
                                  y <- y - eta_l (H - c_i + c)
               c_i+ = c_i - c + (x - y) / (K eta_l)              the mean of the K vectors H
               send (y - x, c_i+ - c_i);   c_i <- c_i+

Both messages and c_i are functions of the H, each of which one record moves by at most 2 C / b_i before noise: a round
costs a record of client i K releases of a Gaussian on a sample.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sordino.algorithms.extrapolation import Extrapolation, extrapolation, squared_norm
from sordino.algorithms.fedavg import ClientInfo, ServerInfo, bounded
from sordino.algorithms.local import ClientData, LocalTraining
from sordino.algorithms.minibatch import Asked, Public, RecordGradients
from sordino.algorithms.minibatch import Broadcast as Point
from sordino.algorithms.schedules import Schedule, StepSize, as_schedule
from sordino.algorithms.server import OUTPUTS, Output
from sordino.bounding import AdaptiveClip, Clip
from sordino.errors import InvalidInput, require, require_count, require_float32
from sordino.privacy.events import Event
from sordino.pytrees import pytree
from sordino.types import Aggregate, Bounder, BoundInfo, Circumstances, Key, Memory, Relation, Scalar, Unit, Vector

__all__ = ["BothHalves", "Broadcast", "RecordScaffold", "Scaffold", "ServerState", "scaffold"]

PROTECTED = ("clients", "records")


@pytree
@dataclass(frozen=True)
class BothHalves:
    """Bounds each half of a vector by C: the whole has norm at most sqrt(2) C."""

    half: Bounder

    @property
    def bound(self) -> Scalar:
        """The largest norm that can leave."""
        return math.sqrt(2) * self.half.bound

    def __call__(self, vector: Vector) -> tuple[Vector, BoundInfo]:
        """Bound one vector; a half that is not finite drops both. The norm told is that of the first half."""
        return _both(vector, self.half)

    def sensitivity(self, relation: Relation) -> Scalar:
        """How far, in L2, the sum over clients can move between neighbours under `relation`."""
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


class _ControlVariates:
    """What SCAFFOLD is at either level: a server with x and c, clients with c_i, messages of two halves."""

    message_parts = 2

    def init_server(self, w: Vector) -> ServerState:
        """x_0 and c = 0."""
        return ServerState(w, jnp.zeros_like(w), Output.init(w), jnp.int32(0))

    def init_client(self, w: Vector) -> Vector:
        """c_i = 0."""
        return jnp.zeros_like(w)

    def broadcast(self, state: ServerState) -> Broadcast:
        """What the server sends."""
        return Broadcast(state.x, state.c, state.k)

    def noise_scale(self, state: ServerState) -> Scalar:
        """The bound stays."""
        return 1.0

    def params(self, state: ServerState) -> Vector:
        """The iterate that is given out."""
        return state.output.iterate


@pytree
@dataclass(frozen=True)
class Scaffold(_ControlVariates):
    """See the module."""

    bound: BothHalves | None
    control_scale: Scalar  # C / C_c
    local: LocalTraining
    server_lr: Any  # eta_g, a Schedule
    step_size: Extrapolation | None
    participation: Scalar | None  # r / N, known when a plan resolves
    output: str = field(metadata={"static": True})

    def client(
        self, key: Key, received: Broadcast, c_i: Vector, data: ClientData
    ) -> tuple[Vector, jax.Array, Vector, ClientInfo]:
        """(-Delta y, (C / C_c) Delta c), ||Delta y||^2 where it is released, the new c_i, info."""
        x, c, k = received
        y = self.local(key, x, data, k, correction=c - c_i)
        delta_c = -c + (x - y) / (self.local.steps * self.local.lr(k))
        message = jnp.concatenate([x - y, self.control_scale * delta_c])
        message, info = _both(message, None if self.bound is None else self.bound.half)
        sent_y, sent_c = jnp.split(message, 2)
        beside = jnp.float32(0)
        if self.bound is not None and self.step_size is not None and self.step_size.is_release:
            beside = squared_norm(sent_y, self.bound.half.bound)
        c_i = c_i + sent_c / self.control_scale
        return message, beside, c_i, ClientInfo(info.norm, info.clipped, info.dropped)

    def server(
        self, key: Key, state: ServerState, total: Aggregate, extra: jax.Array, r: Scalar
    ) -> tuple[ServerState, ServerInfo | None]:
        """x and c of the next round from the (noisy) sum of messages and the planned cohort r."""
        assert self.participation is not None  # a plan resolves it
        key_output, key_step = jax.random.split(key)
        mean_y, mean_c = jnp.split(total.sum / r, 2)
        info, schedule = None, self.server_lr
        if self.step_size is not None:
            eta_g = self.step_size(key_step, mean_y, total, extra, r)
            mean_y, info = eta_g * mean_y, ServerInfo(eta_g)
        x = state.x - schedule(state.k) * mean_y
        c = state.c + self.participation * mean_c / self.control_scale
        output = state.output.after(self.output, key_output, state.x, x, state.k)
        return ServerState(x, c, output, state.k + 1), info

    def resolve(self, circumstances: Circumstances) -> Scaffold:
        """The method under a plan: how many take part, and the noise of a step size that is released."""
        rule = self.step_size
        if rule is not None:
            if hasattr(circumstances.mechanism, "direction"):
                remedy = "PrivUnit tells the length of both halves together: leave step_size out, or use gaussian noise"
                raise InvalidInput("step_size", rule.rule, remedy)
            C = None if self.bound is None else float(self.bound.half.bound)
            rule = rule.resolve(circumstances, self.bound, C)
        participation = circumstances.planned / circumstances.clients
        return dataclasses.replace(self, step_size=rule, participation=participation)

    @property
    def only_sums(self) -> bool:
        """Whether models depend on messages through their sum alone: not with a step size, which looks at norms."""
        return self.step_size is None

    @property
    def memory(self) -> Memory:
        """A client keeps its control variate, which began at zero."""
        return Memory.ZERO

    def extra_event(self, relation: Relation) -> Event | None:
        """What the sum of squared norms that sets the step size costs."""
        return (
            self.step_size.event(self.bound.half.bound)
            if self.step_size is not None and self.bound is not None
            else None
        )


@pytree
@dataclass(frozen=True)
class RecordScaffold(_ControlVariates):
    """DP-SCAFFOLD at record level: see the module."""

    local_lr: Any  # eta_l, a Schedule
    server_lr: Any  # eta_g, a Schedule
    weight_decay: Scalar
    gradients: RecordGradients | None  # known once the plan is, as are the next two
    noise_std: jax.Array | None  # sigma_i
    clients: Scalar | None  # N
    steps: int = field(metadata={"static": True})  # K
    output: str = field(metadata={"static": True})
    asked: Asked | None = field(metadata={"static": True})  # None once the plan is known

    unit = Unit.RECORD
    memory = Memory.NONE  # c_i is made from noisy gradients alone
    adds_noise = True
    uses_smoothness = False
    bound = None  # of messages: they hold Gaussian noise

    @property
    def releases_a_round(self) -> int:
        """A noisy gradient in every local step."""
        return self.steps

    def client(
        self, key: Key, received: Broadcast, c_i: Vector, data: ClientData
    ) -> tuple[Vector, jax.Array, Vector, ClientInfo]:
        """(-Delta y, Delta c), nothing beside it, the new c_i, info."""
        x, c, k = received
        eta = self.local_lr(k)

        def step(carry: Any, tau: jax.Array) -> tuple[Any, None]:
            y, clipped, dropped = carry
            H, info = self.noisy_gradient(jax.random.fold_in(key, tau), y, data)
            y = y - eta * (H + self.weight_decay * y - c_i + c)
            return (y, clipped | info.clipped, dropped | info.dropped), None

        start = (x, jnp.bool_(False), jnp.bool_(False))
        (y, clipped, dropped), _ = jax.lax.scan(step, start, jnp.arange(self.steps))
        delta_c = -c + (x - y) / (self.steps * eta)
        message = jnp.concatenate([x - y, delta_c])
        # A client whose steps diverged sends nothing. It decides so by its noisy y: that costs nothing.
        lost = ~jnp.isfinite(message).all()
        message = jnp.where(lost, 0.0, message)
        sent_y, sent_c = jnp.split(message, 2)
        return message, jnp.float32(0), c_i + sent_c, ClientInfo(jnp.linalg.norm(sent_y), clipped, dropped | lost)

    def noisy_gradient(self, key: Key, y: Vector, data: ClientData) -> tuple[Vector, Any]:
        """H: the mean of clipped gradients of a fresh sample, with the client's noise."""
        assert self.gradients is not None
        assert self.noise_std is not None
        key_sample, key_noise = jax.random.split(key)
        mean, info = self.gradients(key_sample, Point(y, jnp.int32(0)), data)
        return mean + self.noise_std[data.client] * jax.random.normal(key_noise, y.shape, y.dtype), info

    def server(
        self, key: Key, state: ServerState, total: Aggregate, extra: jax.Array, r: Scalar
    ) -> tuple[ServerState, None]:
        """x and c of the next round from the sum of the messages of the r clients that answered."""
        assert self.clients is not None
        mean_y, mean_c = jnp.split(total.sum / r, 2)
        x = state.x - self.server_lr(state.k) * mean_y
        c = state.c + r / self.clients * mean_c
        output = state.output.after(self.output, key, state.x, x, state.k)
        return ServerState(x, c, output, state.k + 1), None

    def for_public(self, public: Public) -> tuple[RecordScaffold, dict[str, float]]:
        """The method with every client's batch and noise; its step sizes are given, and rest on nothing assumed."""
        C, weight = jnp.asarray(public.lipschitz, jnp.float32), jnp.asarray(public.weight, jnp.float32)
        batch, largest = jnp.asarray(public.batch, jnp.int32), int(public.batch.max())
        ready = dataclasses.replace(
            self,
            gradients=RecordGradients(C, batch, weight, largest, one_pass=False, order_seed=0),
            noise_std=jnp.asarray(public.noise_std, jnp.float32),
            clients=float(len(public.sizes)),
            asked=None,
        )
        return ready, {}

    def extra_event(self, relation: Relation) -> Event | None:
        """Nothing is sent beside the message."""
        return None


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
    protects: str = "clients",
) -> Scaffold | RecordScaffold:
    """SCAFFOLD and, with a bound and a plan's noise, DP-SCAFFOLD.

    Args:
      local_steps: K.
      local_lr: eta_l: a number, {start, decay}, {values, until} or a schedule.
      bound: of Delta y, for instance `so.clip(C)`; None sends both as they are (not private). Of the gradient of each
        record, a clip, where records are protected.
      control_bound: C_c, of Delta c; C / (K eta_l) of round 0 if left out, what Delta y of norm C amounts to.
      server_lr: eta_g.
      batch_size: records a step; all of the client's if left out.
      weight_decay: L2, added to the gradient.
      step_size: "corrected" or "naive", FedEXP's step size on top of eta_g; none if left out.
      step_cost: with central trust, how much of a message's mu the release behind the step size may cost at most.
      output: "last", "mean-of-last-two" or "random".
      protects: "clients", or "records": clipped and noisy gradients in every local step. Then batch_size records are
        drawn anew in each, all of a client that has fewer; control_bound, step_size and step_cost are left out.
    """
    require_count(local_steps, "local_steps")
    if batch_size is not None:
        require_count(batch_size, "batch_size", "must be a whole number, at least 1, or left out")
    require_float32("weight_decay", weight_decay, or_zero=True)
    if output not in OUTPUTS:
        raise InvalidInput("output", output, "use one of " + ", ".join(OUTPUTS))
    if isinstance(bound, AdaptiveClip):
        raise InvalidInput("bound", "adaptive_clip", "both messages need bounds that stay: use clip or normalize")
    if protects not in PROTECTED:
        raise InvalidInput("protects", protects, "use one of " + ", ".join(PROTECTED))
    eta: Schedule = as_schedule(local_lr, "local_lr")
    if protects == "records":
        remedy = "where records are protected noise is on their gradients, not on messages: leave out"
        for name, value in (("control_bound", control_bound), ("step_size", step_size), ("step_cost", step_cost)):
            require(value is None, name, value, remedy)
        if not isinstance(bound, Clip):
            raise InvalidInput("bound", bound, "the gradient of each record is clipped: give clip")
        size = None if batch_size is None else (batch_size,)
        asked = Asked((float(bound.bound),), size, "clients", False, 0, smoothness=None, feature_bound=None)
        return RecordScaffold(
            eta, as_schedule(server_lr, "server_lr"), weight_decay, None, None, None, local_steps, output, asked
        )
    control_scale = local_steps * float(eta(jnp.int32(0)))
    if control_bound is not None:
        require(bound is not None, "control_bound", control_bound, "give bound, of the update, too")
        assert bound is not None
        require(0 < control_bound < math.inf, "control_bound", control_bound, "must be positive and finite")
        control_scale = float(bound.bound) / control_bound
    return Scaffold(
        None if bound is None else BothHalves(bound),
        control_scale,
        LocalTraining(eta, None, weight_decay, local_steps, batch_size),
        as_schedule(server_lr, "server_lr"),
        extrapolation(step_size, step_cost),
        None,
        output,
    )


def _both(vector: Vector, half: Bounder | None) -> tuple[Vector, BoundInfo]:
    """Each half within its bound; where one is not finite, both are dropped."""
    (y, info_y), (c, info_c) = (bounded(part, half) for part in jnp.split(vector, 2))
    dropped = info_y.dropped | info_c.dropped
    clipped = (info_y.clipped | info_c.clipped) & ~dropped
    return jnp.where(dropped, 0.0, jnp.concatenate([y, c])), BoundInfo(info_y.norm, clipped, dropped)
