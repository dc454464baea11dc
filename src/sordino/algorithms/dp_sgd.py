"""Distributed DP-SGD, which has no memory.

"Provably Convergent and Private Distributed Optimization via Smoothed Normalization", eq. (2):

    client i:  send M(Psi(grad f_i(x^k)))
    server:    x^{k+1} = x^k - gamma (1/B) sum_i M(Psi(grad f_i(x^k)))

B is the planned cohort and M the mechanism of the plan. (The paper adds z to the average; here noise falls on the sum,
or on each message.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from sordino.algorithms.common import bounded, require_fixed_bound
from sordino.algorithms.local import ClientData, LocalGradient, local_gradient
from sordino.algorithms.schedules import Schedule, StepSize, as_schedule
from sordino.errors import names_keywords
from sordino.pytrees import pytree
from sordino.types import Aggregate, Bounder, BoundInfo, Key, Message, Method, Privacy, Vector


class ServerState(NamedTuple):
    """x^k, which every client receives."""

    x: Vector
    k: jax.Array


@pytree
@dataclass(frozen=True)
class DpSgd(Method):
    """Distributed DP-SGD; `dp_sgd` makes it."""

    bound: Bounder | None
    local: LocalGradient
    lr: Schedule  # gamma_k

    privacy = Privacy(uses_sum_only=True)

    @property
    def batch_records(self) -> int | None:
        return self.local.batch_size

    def init_server(self, w: Vector) -> ServerState:
        return ServerState(w, jnp.int32(0))

    def client(
        self, key: Key, received: ServerState, state: tuple[()], data: ClientData
    ) -> tuple[Message, tuple[()], BoundInfo]:
        g, info = bounded(self.local(key, received.x, data), self.bound)
        return Message(g), state, info

    def server(self, key: Key, state: ServerState, total: Aggregate) -> tuple[ServerState, None]:
        return ServerState(state.x - self.lr(state.k) * total.mean, state.k + 1), None

    def params(self, state: ServerState) -> Vector:
        return state.x


@names_keywords
def dp_sgd(
    *,
    server_lr: StepSize,
    bound: Bounder | None = None,
    batch_size: int | None = None,
    local_steps: int = 1,
    local_lr: float | None = None,
) -> DpSgd:
    """Distributed DP-SGD, eq. (2); where the paper tunes its beta and gamma, only their product counts.

    Args:
      server_lr: gamma: a number, {start, decay}, {values, until} or a function of the round.
      bound: Psi: `so.smoothed_normalize(alpha)`, `so.clip(tau)` or `so.normalize(C)`; None is plain SGD (not private).
      batch_size: records a gradient; all of the client's if left out.
      local_steps: E; above 1 the mean gradient along E local steps is bounded.
      local_lr: of the local steps.
    """
    require_fixed_bound(bound, "eq. (2) has a fixed bound: use clip")
    return DpSgd(bound, local_gradient(batch_size, local_steps, local_lr), as_schedule(server_lr, "server_lr"))
