"""Error feedback with a bounded message: EF21, Clip21, alpha-NormEC and their private forms.

"Provably Convergent and Private Distributed Optimization via Smoothed Normalization", Algorithm 1:

    for k = 0, ..., K
      server sends x^k
      client i:  gradient grad f_i(x^k)                              line 4   of all its records, or of a batch
                 Delta_i = Psi(grad f_i(x^k) - g_i^k)                line 5
                 g_i^{k+1} = g_i^k + beta Delta_i                    line 6   before any noise, see remember_noise
                 send M(Delta_i)                                     line 8   local: noise here
      server:    g^{k+1} = g^k + (beta/n) sum_i M(Delta_i)           line 10  central: noise once, on the sum
                 x^{k+1} = x^k - gamma g^{k+1} / ||g^{k+1}||         line 11  or without the norm; 0/0 = 0

    M is the mechanism of the plan, which adds the noise; without privacy M(Delta_i) = Delta_i
    Psi = smoothed_normalize(alpha)   alpha-NormEC
    Psi = clip(tau)                   Clip21
    Psi = top_k                       EF21; a bound may follow it

If the memory does not start at zero, the first rounds replace lines 5, 6 and 10: see `memory_start`.

*Beyond the paper.* With E local steps the mean of the E gradients on the way takes the place of grad f_i(x^k). A client
that does not take part keeps its memory, and the server still divides by n, so that without noise g^k remains the mean
of all g_i^k. No convergence theorem covers either.

With `remember_noise` line 6 reads g_i^{k+1} = g_i^k + beta M(Delta_i), and the first messages enter g_i with their
noise too: a client compensates its noise like any other error, and g^k is the mean of the g_i^k in private too.
Messages are as bounded as before, so the server learns no more. But later rounds remove the noise of earlier ones
again, so that no client may count on the noise of others: a model user's epsilon is the server's. No theorem covers it.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sordino.algorithms.common import bounded, require_fixed_bound
from sordino.algorithms.local import ClientData, LocalGradient, local_gradient
from sordino.algorithms.memory_start import MemoryStart, memory_start
from sordino.algorithms.schedules import Schedule, StepSize, as_schedule, require_shares, share_of, shares_of
from sordino.bounding import Normalize, SmoothedNormalize
from sordino.errors import names_keywords, require, require_count
from sordino.privacy import wording
from sordino.pytrees import pytree
from sordino.types import (
    Aggregate,
    Bounder,
    BoundInfo,
    ClientNumbers,
    Key,
    Message,
    Method,
    Observer,
    PlanContext,
    Privacy,
    PyTree,
    Scalar,
    Vector,
    Warning,
)


class Broadcast(NamedTuple):
    """What a client of round k receives."""

    x: Vector
    k: jax.Array


class ServerState(NamedTuple):
    """x^k and g^k."""

    x: Vector
    g: Vector
    k: jax.Array


@pytree
@dataclass(frozen=True)
class ErrorFeedback(Method):
    """Error feedback with a bounded message; `error_feedback` makes it."""

    bound: Bounder | None
    local: LocalGradient
    beta: Scalar
    lr: Schedule  # gamma_k
    shares: Schedule | None  # s_k: in round k Psi is s_k Psi(v / s_k)
    start: MemoryStart
    clients: Scalar | None  # n, known when a plan resolves
    top_k: int | None = field(metadata={"static": True})
    server_normalization: bool = field(metadata={"static": True})
    remembers_noise: bool = field(metadata={"static": True})

    @property
    def privacy(self) -> Privacy:
        """The start of g_i decides whether anything can be guaranteed."""
        sums = not self.start.exceeds_limit
        return Privacy(memory=self.start.memory, uses_sum_only=sums, remembers_noise=self.remembers_noise)

    @property
    def batch_records(self) -> int | None:
        return self.local.batch_size

    def init_server(self, w: Vector) -> ServerState:
        return ServerState(w, jnp.zeros_like(w), jnp.int32(0))

    def init_client(self, w: Vector) -> Vector:
        return jnp.zeros_like(w)

    def broadcast(self, state: ServerState) -> Broadcast:
        return Broadcast(state.x, state.k)

    def client(self, key: Key, received: Broadcast, g_i: Vector, data: ClientData) -> tuple[Message, Vector, BoundInfo]:
        """Lines 4 to 6."""
        gradient = self.local(key, received.x, data)
        usual = self.psi(gradient - g_i, share_of(self.shares, received.k))
        Delta, info = self.start.message(received.k, gradient, usual, self._Phi)
        return Message(Delta), g_i + self._change(received.k, Delta), info

    def after_noise(self, received: Broadcast, before: Vector, after: Vector, sent: Vector) -> Vector:
        """Line 6 with M(Delta_i), where noise is remembered."""
        return before + self._change(received.k, sent) if self.remembers_noise else after

    def server(self, key: Key, state: ServerState, total: Aggregate) -> tuple[ServerState, None]:
        """Lines 10 and 11."""
        n = total.cohort if self.clients is None else self.clients
        g = state.g + self._change(state.k, total.sum / n)
        gamma = self.start.step_size(state.k, self.lr(state.k))
        x = state.x - gamma * (_direction(g) if self.server_normalization else g)
        return ServerState(x, g, state.k + 1), None

    def params(self, state: ServerState) -> Vector:
        return state.x

    def psi(self, v: Vector, share: Scalar = 1.0) -> tuple[Vector, BoundInfo]:
        """Psi: compress, then bound."""
        return bounded(v if self.top_k is None else keep_largest(v, self.top_k), self.bound, share)

    def resolve(self, context: PlanContext) -> ErrorFeedback:
        if self.top_k is not None:
            _require_top_k(self.top_k, context.d)
        require_shares(self.shares, context.rounds, self.bound)
        return dataclasses.replace(self, clients=float(context.clients), start=self.start.resolve(context))

    def round_of(self, received: PyTree) -> Scalar:
        return received.k

    def limit(self, received: Broadcast, numbers: ClientNumbers | None) -> Scalar | None:
        return self.start.limit(received.k, self._Phi)

    def assumptions(self, observer: Observer) -> tuple[str, ...]:
        return self.start.assumptions(observer)

    def sparse_bits(self, d: int) -> int | None:
        return None if self.top_k is None else self.top_k * (32 + (d - 1).bit_length())

    def warnings(self) -> tuple[Warning, ...]:
        """Values of beta with which memories do not settle, or which the theorems exclude."""
        beta = np.asarray(self.beta)
        if not isinstance(self.bound, SmoothedNormalize | Normalize):  # short differences pass as they are
            return (wording.beta_too_large(_listed(beta)),) if np.any(beta >= 2) else ()
        smoothed = isinstance(self.bound, SmoothedNormalize)
        alpha = np.asarray(self.bound.alpha if isinstance(self.bound, SmoothedNormalize) else 0.0)
        name = "beta" if smoothed else "beta C"
        step = beta * np.asarray(self.bound.limit)  # the most that a memory moves by
        found = []
        if np.any(step > 2 * alpha):
            settles = bool(np.all(alpha > 0))
            found.append(wording.beta_above_2_alpha(name, _listed(step), _listed(2 * alpha), smoothed=settles))
        if np.any(step >= alpha):  # of alpha + R, in which R = max_i ||grad f_i(x^0) - g_i^0|| is not known
            found.append(wording.beta_above_alpha_plus_R(name, _listed(step), _listed(alpha), None))
        return tuple(found)

    @property
    def _Phi(self) -> Scalar | None:
        return None if self.bound is None else self.bound.limit

    def _change(self, k: jax.Array, message: Vector) -> Vector:
        """What a message adds to g_i, and the mean of all messages to g: beta Delta."""
        return self.start.change(k, message, share_of(self.shares, k) * self.beta * message, self._Phi)


@names_keywords
def error_feedback(
    *,
    beta: float,
    server_lr: StepSize,
    bound: Bounder | None = None,
    top_k: int | None = None,
    server_normalization: bool = False,
    batch_size: int | None = None,
    local_steps: int = 1,
    local_lr: float | None = None,
    memory: str = "zero",
    memory_clip: float | None = None,
    memory_rounds: int = 1,
    remember_noise: bool = False,
    bound_schedule: StepSize | None = None,
) -> ErrorFeedback:
    """EF21, Clip21 and alpha-NormEC, by what caps the message; noise and trust are chosen by the plan.

    Args:
      beta: how much of a message enters the memories; it scales signal and noise alike and is no privacy level.
      server_lr: gamma: a number, {start, decay}, {values, until} or a function of the round.
      bound: `so.smoothed_normalize(alpha)` (alpha-NormEC), `so.clip(tau)` (Clip21), `so.normalize(C)`, or None.
      top_k: keep this many of the largest coordinates of the difference (EF21), before the bound if there is one.
      server_normalization: (the paper's box: true) divide g by its norm in the server's step.
      batch_size: records a gradient; all of the client's if left out.
      local_steps: E; above 1 the mean gradient along E local steps is compensated (no theorem covers it).
      local_lr: of the local steps.
      memory: how it starts: "zero", "noisy", "secure-average" or "exact".
      memory_clip: G_0, the bound of the first gradients, for "noisy" and "secure-average".
      memory_rounds: m, the number of rounds that the start takes.
      remember_noise: (the paper's box: false) the memory follows the message as it was sent, so that noise is
        compensated too; for local trust, and a model user's epsilon is then the server's.
      bound_schedule: s_k, by which the bound of round k is s_k times `bound`.
    """
    require(0 < beta < math.inf, "beta", beta, "must be positive and finite")
    if top_k is not None:
        require_count(top_k, "top_k", "must be a whole number, at least 1, or left out")
    remedy = "give a bound or top_k: smoothed_normalize (alpha-NormEC), clip (Clip21), normalize or top_k (EF21)"
    require(bound is not None or top_k is not None, "bound", bound, remedy)
    require_fixed_bound(bound, "the memory needs a fixed bound: use clip")
    remedy = (
        "secure-average counts on the noise of all clients, and remembered noise shows in later sums: use noisy or zero"
    )
    require(not (remember_noise and memory == "secure-average"), "remember_noise", remember_noise, remedy)
    return ErrorFeedback(
        bound=bound,
        local=local_gradient(batch_size, local_steps, local_lr),
        beta=beta,
        lr=as_schedule(server_lr, "server_lr"),
        shares=shares_of(bound_schedule),
        start=memory_start(memory, memory_clip, memory_rounds),
        clients=None,
        top_k=top_k,
        server_normalization=server_normalization,
        remembers_noise=remember_noise,
    )


def keep_largest(v: Vector, k: int) -> Vector:
    """The k coordinates of largest magnitude, zero elsewhere: ||v - top_k(v)||^2 <= (1 - k/d) ||v||^2."""
    _require_top_k(k, v.size)
    _, largest = jax.lax.top_k(jnp.abs(v), k)
    return jnp.zeros_like(v).at[largest].set(v[largest])


def _require_top_k(k: int, d: int) -> None:
    require(k <= d, "top_k", k, f"there are only {d} coordinates: use at most as many")


def _direction(g: Vector) -> Vector:
    """g / ||g||, with 0/0 = 0."""
    norm = jnp.linalg.norm(g)
    return g / jnp.where(norm > 0, norm, 1.0)


def _listed(values: NDArray[np.floating]) -> str:
    return ", ".join(f"{value:g}" for value in np.ravel(values))
