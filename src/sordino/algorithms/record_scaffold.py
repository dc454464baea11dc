"""DP-SCAFFOLD at record level (Noble, Bellet, Dieuleveut): noise on the clipped gradients of every local step.

    server sends (x, c)
    client i:  y = x;   K times   draw b_i of the n_i records without replacement
                                  H = (1/b_i) sum_x clip(grad f(y, x), C) + N(0, sigma_i^2 I)
                                  y <- y - eta_l (H - c_i + c)
               c_i+ = c_i - c + (x - y) / (K eta_l)              the mean of the K vectors H
               send (y - x, c_i+ - c_i);   c_i <- c_i+
    server:    x <- x + eta_g (1/r) sum Delta y,   c <- c + (1/N) sum Delta c

Messages and c_i are functions of the vectors H, each of which one record moves by at most 2 C / b_i before noise: a
round costs a record of client i K releases of a Gaussian on a sample. The message is (x - y, c_i+ - c_i) in R^{2d}.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from sordino.algorithms.common import require_choice, require_fixed_bound, require_local_training
from sordino.algorithms.local import ClientData
from sordino.algorithms.records import RecordMethod, RecordOptions, numbers_of
from sordino.algorithms.scaffold import Broadcast, ControlVariates, ServerState
from sordino.algorithms.schedules import Schedule, StepSize, as_schedule, require_positive
from sordino.algorithms.server import OUTPUTS
from sordino.bounding import Clip
from sordino.errors import InvalidInput, names_keywords
from sordino.pytrees import pytree
from sordino.types import (
    Aggregate,
    Bounder,
    BoundInfo,
    ClientNumbers,
    Key,
    Message,
    PlanContext,
    Privacy,
    PyTree,
    Scalar,
    Unit,
    Vector,
)


@pytree
@dataclass(frozen=True)
class RecordScaffold(ControlVariates, RecordMethod):
    """SCAFFOLD at record level; `record_scaffold` makes it."""

    local_lr: Schedule  # eta_l
    server_lr: Schedule  # eta_g
    weight_decay: Scalar
    clients: Scalar | None  # N, known when a plan resolves
    steps: int = field(metadata={"static": True})  # K
    output: str = field(metadata={"static": True})

    uses_smoothness = False

    @property
    def privacy(self) -> Privacy:
        """c_i is made of noisy gradients alone, so clients keep nothing that was not released with noise."""
        return Privacy(unit=Unit.RECORD, noise_inside=True, releases=self.steps, message_parts=2)

    def client(self, key: Key, received: Broadcast, c_i: Vector, data: ClientData) -> tuple[Message, Vector, BoundInfo]:
        x, c, k = received
        eta = self.local_lr(k)

        def step(carry: PyTree, tau: jax.Array) -> tuple[PyTree, None]:
            y, clipped, dropped = carry
            H, info = self.noisy_gradient(jax.random.fold_in(key, tau), y, data)
            y = y - eta * (H + self.weight_decay * y - c_i + c)
            return (y, clipped | info.clipped, dropped | info.dropped), None

        start = (x, jnp.bool_(False), jnp.bool_(False))
        (y, clipped, dropped), _ = jax.lax.scan(step, start, jnp.arange(self.steps))
        delta_c = -c + (x - y) / (self.steps * eta)
        message = jnp.concatenate([x - y, delta_c])
        # A client whose steps diverged sends zero. Its noisy y decides so, and that costs nothing.
        lost = ~jnp.isfinite(message).all()
        message = jnp.where(lost, 0.0, message)
        sent_y, sent_c = jnp.split(message, 2)
        return Message(message), c_i + sent_c, BoundInfo(jnp.linalg.norm(sent_y), clipped, dropped | lost)

    def noisy_gradient(self, key: Key, y: Vector, data: ClientData) -> tuple[Vector, BoundInfo]:
        """H: the mean of clipped gradients of a fresh sample, with the client's noise."""
        assert self.gradients is not None  # a plan resolves it
        key_sample, key_noise = jax.random.split(key)
        mean, info = self.gradients(key_sample, y, jnp.int32(0), data)
        return mean + numbers_of(data).noise_std * jax.random.normal(key_noise, y.shape, y.dtype), info

    def server(self, key: Key, state: ServerState, total: Aggregate) -> tuple[ServerState, None]:
        """x and c of the next round; the cohort is the number of clients that answered."""
        assert self.clients is not None  # a plan resolves it
        mean_y, mean_c = jnp.split(total.mean, 2)
        x = state.x - self.server_lr(state.k) * mean_y
        c = state.c + total.cohort / self.clients * mean_c
        output = state.output.after(self.output, key, state.x, x, state.k)
        return ServerState(x, c, output, state.k + 1), None

    def resolve(self, context: PlanContext) -> RecordScaffold:
        require_positive(self.local_lr, context.rounds, "local_lr")
        return dataclasses.replace(super().resolve(context), clients=float(context.clients))

    def limit(self, received: Broadcast, numbers: ClientNumbers | None) -> None:
        """Messages hold Gaussian noise, so nothing caps them."""
        return None


@names_keywords
def record_scaffold(
    *,
    local_steps: int,
    local_lr: StepSize,
    bound: Bounder | None = None,
    server_lr: StepSize = 1.0,
    batch_size: int | None = None,
    weight_decay: float = 0.0,
    output: str = "last",
) -> RecordScaffold:
    """DP-SCAFFOLD at record level.

    The arguments that are not listed are those of `fedavg`.

    Args:
      local_steps: K.
      local_lr: eta_l.
      bound: `so.clip(C)`, of the gradient of each record.
      server_lr: eta_g.
      batch_size: records drawn anew in each step; a client with fewer records uses all of them, and so does every
        client if this is left out.
    """
    require_local_training(local_steps, batch_size, weight_decay)
    require_choice("output", output, OUTPUTS)
    require_fixed_bound(bound, "the gradient of each record is clipped: give clip")
    if not isinstance(bound, Clip):
        raise InvalidInput("bound", bound, "the gradient of each record is clipped: give clip")
    return RecordScaffold(
        gradients=None,
        options=RecordOptions((float(bound.limit),), None if batch_size is None else (batch_size,)),
        local_lr=as_schedule(local_lr, "local_lr"),
        server_lr=as_schedule(server_lr, "server_lr"),
        weight_decay=weight_decay,
        clients=None,
        steps=local_steps,
        output=output,
    )
