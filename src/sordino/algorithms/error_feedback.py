"""Error feedback with a bounded message: EF21, Clip21, alpha-NormEC and their private forms; DP-SGD beside them.

"Provably Convergent and Private Distributed Optimization via Smoothed Normalization", Algorithm 1 and eq. (2):

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

Distributed DP-SGD, eq. (2), has no memory: x^{k+1} = x^k - gamma (1/B) sum_i M(Psi(grad f_i(x^k))), B the cohort. (The
paper adds z to the average; here noise falls on the sum, or on each message.)

*The memory's start.* "zero" costs nothing. "noisy" spends the first m rounds on it: x rests, client i sends its
gradient, clipped to G_0 and scaled to Phi, the bound of Psi, so that these rounds cost what every round costs;

    message = clip_Phi((Phi/G_0) grad f_i(x^0))
    g_i <- g_i + (G_0/Phi)/m message,    g <- g + (G_0/Phi)/m (1/n) sum_i M(message)

"secure-average" has the server see their sum alone: sqrt(n) Phi takes the place of Phi, since the noise of n clients
has sqrt(n) times the std of one. "exact" is the paper's g_i^0 = grad f_i(x^0): a release without noise, refused in
private.

*Beyond the paper.* With E local steps the mean of the E gradients on the way takes the place of grad f_i(x^k). A client
that does not take part keeps its memory, and the server still divides by n, so that without noise g^k remains the mean
of all g_i^k. No convergence theorem covers either.

With `remember_noise` line 6 reads g_i^{k+1} = g_i^k + beta M(Delta_i), and the first messages enter g_i as they were
sent too: a client compensates its noise like any other error, and g^k is the mean of the g_i^k in private too. Messages
are as bounded as before, so the server learns no more than it did. But later rounds take the noise of earlier ones off
again, so that no client may count on the noise of others: a model user's epsilon is the server's. No theorem covers it.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sordino.algorithms.fedavg import ClientInfo
from sordino.algorithms.local import ClientData, LocalGradient
from sordino.algorithms.schedules import StepSize, as_schedule
from sordino.bounding import AdaptiveClip, Clip, Normalize, SmoothedNormalize, clip
from sordino.bounding._norm import LARGEST_BOUND, require_bound
from sordino.errors import InvalidInput, require, require_count
from sordino.mechanisms.gaussian import Gaussian
from sordino.privacy.events import Event
from sordino.privacy.guarantee import Warning
from sordino.pytrees import pytree
from sordino.types import Aggregate, Bounder, BoundInfo, Circumstances, Key, Memory, Observer, Relation, Scalar, Vector

__all__ = ["Broadcast", "DpSgd", "ErrorFeedback", "ServerState", "dp_sgd", "error_feedback"]

STARTS = {
    "zero": Memory.ZERO,
    "noisy": Memory.NOISY,
    "secure-average": Memory.NOISY,
    "exact": Memory.EXACT,
}


class Broadcast(NamedTuple):
    """What a client of round k receives: x^k; and what caps this round's message, where rounds differ in that.

    Clients know the cap themselves; `bound` is for the engine, which checks what they send.
    """

    x: Vector
    k: jax.Array
    bound: Clip | None = None


class ServerState(NamedTuple):
    """x^k and g^k; () for a method without memory."""

    x: Vector
    g: Any
    k: jax.Array


@pytree
@dataclass(frozen=True)
class ErrorFeedback:
    """See the module."""

    bound: Bounder | None
    local: LocalGradient
    beta: Scalar
    lr: Any  # gamma_k, a Schedule
    first: Clip | None  # clip_{G_0} of the gradients that the memory starts from
    clients: Scalar | None  # n, once it is known
    R: Any = field(metadata={"static": True})  # what is known of max_i ||grad f_i(x^0) - g_i^0||, for a warning
    top_k: int | None = field(metadata={"static": True})
    start: str = field(metadata={"static": True})
    start_rounds: int = field(metadata={"static": True})  # m
    server_normalization: bool = field(metadata={"static": True})
    remembers_noise: bool = field(metadata={"static": True})

    @property
    def only_sums(self) -> bool:
        """The server uses the sum alone. Not so of secure-average: one client may move a first sum by sqrt(n) Phi."""
        return self.start != "secure-average"

    def init_server(self, x: Vector) -> ServerState:
        """x^0 and g^0 = 0."""
        return ServerState(x, jnp.zeros_like(x), jnp.int32(0))

    def init_client(self, x: Vector) -> Vector:
        """g_i^0 = 0, until the first rounds fill it."""
        return jnp.zeros_like(x)

    def broadcast(self, state: ServerState) -> Broadcast:
        """What the server sends."""
        if self.start not in ("secure-average", "exact"):
            return Broadcast(state.x, state.k)
        usual = LARGEST_BOUND if self.bound is None else self.bound.bound
        return Broadcast(state.x, state.k, Clip(jnp.where(self._starting(state.k), self._cap(), usual)))

    def client(
        self, key: Key, received: Broadcast, g_i: Vector, data: ClientData
    ) -> tuple[Vector, jax.Array, Vector, ClientInfo]:
        """Delta_i before noise, nothing beside it, g_i^{k+1}, info."""
        gradient = self.local(key, received.x, data)
        Delta, info = self._psi(gradient - g_i)
        if self.first is not None:
            starting, cap = self._starting(received.k), self._cap()
            scaled, scaled_info = Clip(cap)((cap / self.first.bound) * gradient)
            Delta = jnp.where(starting, scaled, Delta)
            info = jax.tree.map(lambda one, other: jnp.where(starting, one, other), scaled_info, info)
        return Delta, jnp.float32(0), self.remembered(received, g_i, Delta), ClientInfo(*info)

    def remembered(self, received: Broadcast, g_i: Vector, message: Vector) -> Vector:
        """g_i^{k+1} after a message: Delta_i, or what was sent of it where noise is remembered."""
        return g_i + self._change(received.k, message)

    def server(
        self, key: Key, state: ServerState, total: Aggregate, extra: jax.Array, r: Scalar
    ) -> tuple[ServerState, None]:
        """g^{k+1} and x^{k+1} from the (noisy) sum of the messages."""
        n = r if self.clients is None else self.clients
        gamma = self.lr(state.k)
        if self.first is not None:
            gamma = jnp.where(self._starting(state.k), 0.0, gamma)
        g = state.g + self._change(state.k, total.sum / n)
        x = state.x - gamma * (_direction(g) if self.server_normalization else g)
        return ServerState(x, g, state.k + 1), None

    @property
    def memory(self) -> Memory:
        """g_i is made of bounded messages; how it began decides whether anything can be promised.

        Where noise is remembered g_i is made of what the server got, but a model user has not seen that either.
        """
        return STARTS[self.start]

    def extra_event(self, relation: Relation) -> Event | None:
        """Nothing is sent beside the message."""
        return None

    def noise_scale(self, state: ServerState) -> Scalar:
        """The bound of Psi does not move."""
        return 1.0

    def params(self, state: ServerState) -> Vector:
        """The last iterate."""
        return state.x

    def resolve(self, circumstances: Circumstances) -> ErrorFeedback:
        """The method for n clients; refuses a start that this plan cannot give, and more coordinates than there are."""
        if self.top_k is not None:
            _require_top_k(self.top_k, circumstances.d)
        if self.first is not None and circumstances.rounds is not None:
            remedy = f"all {circumstances.rounds} rounds would go into the start, and x would never move: use fewer"
            require(self.start_rounds < circumstances.rounds, "memory_rounds", self.start_rounds, remedy)
        if self.start == "secure-average" and circumstances.trust != "none":
            remedy = "it hides first gradients from a server that is not trusted: use trust local, or memory noisy"
            require(circumstances.trust == "local", "memory", self.start, remedy)
            remedy = "sqrt(n) is the law of Gaussian noise: use that"
            require(isinstance(circumstances.mechanism, Gaussian), "memory", self.start, remedy)
            remedy = "the noise of all clients is counted on: use cohort full"
            require(circumstances.cohort == "full", "memory", self.start, remedy)
        return dataclasses.replace(self, clients=float(circumstances.clients))

    def assumptions(self, observer: Observer) -> tuple[str, ...]:
        """What a guarantee against `observer` rests on beside the noise."""
        if self.start != "secure-average":
            return ()
        rounds = "the first round" if self.start_rounds == 1 else f"the first {self.start_rounds} rounds"
        noise = f"every other client adds its noise in {rounds}, keeps it secret, and is not the {observer} itself"
        hidden = f"in {rounds} secure aggregation shows the server the sum of all messages and none alone"
        return (hidden, noise) if observer is Observer.SERVER else (noise,)

    def sparse_bits(self, d: int) -> int | None:
        """Bits of a message that no noise has filled: k numbers and where they stand."""
        return None if self.top_k is None else self.top_k * (32 + (d - 1).bit_length())

    def warnings(self) -> tuple[Warning, ...]:
        """What is known to go wrong with these numbers."""
        beta, warnings = np.asarray(self.beta), []
        if not isinstance(self.bound, SmoothedNormalize | Normalize):  # short differences pass as they are
            if np.any(beta >= 2):
                text = f"beta = {_number(beta)}: from 2 on a memory overshoots by all that it was short of, or more"
                warnings.append(Warning("beta-too-large", text))
            return tuple(warnings)
        alpha = np.asarray(self.bound.alpha if isinstance(self.bound, SmoothedNormalize) else 0.0)
        step = beta * np.asarray(self.bound.bound)  # what a memory moves by at most
        name = "beta" if isinstance(self.bound, SmoothedNormalize) else "beta C"
        if np.any(step > 2 * alpha):
            where = "at distance beta/2 - alpha from" if np.all(alpha > 0) else f"within {name} of"
            text = (
                f"{name} = {_number(step)} is above 2 alpha = {_number(2 * alpha)}: the compensation never settles, "
                f"each memory ends in a 2-cycle {where} its gradient"
            )
            warnings.append(Warning("beta-above-2-alpha", text))
        if np.any(step >= alpha + (self.R or 0.0)):
            known = "and R is not known" if self.R is None else f"R = {self.R:g}"
            text = (
                f"the theorems need {name} / (alpha + R) < 1: {name} = {_number(step)}, alpha = {_number(alpha)}, "
                f"{known} (R = max_i ||grad f_i(x^0) - g_i^0|| depends on the data)"
            )
            warnings.append(Warning("beta-above-alpha-plus-R", text))
        return tuple(warnings)

    def _psi(self, v: Vector) -> tuple[Vector, BoundInfo]:
        """Compress, then bound."""
        return _bounded(self.bound, v if self.top_k is None else keep_largest(v, self.top_k))

    def _starting(self, k: jax.Array) -> jax.Array:
        return k < self.start_rounds if self.first is not None else jnp.bool_(False)

    def _cap(self) -> Scalar:
        """Phi, or sqrt(n) Phi, or G_0 itself where nothing is bounded: the largest norm of a first message."""
        assert self.first is not None
        if self.bound is None or self.start == "exact":
            return self.first.bound
        if self.start == "noisy":
            return self.bound.bound
        if self.clients is None:
            raise InvalidInput("memory", self.start, "needs the number of clients: run it from a plan")
        # A little less than sqrt(n) pays for the rounding of the product and of the noise of the sum.
        return (1 - 1e-6) * jnp.sqrt(self.clients) * self.bound.bound

    def _change(self, k: jax.Array, message: Vector) -> Vector:
        """What a message adds to g_i, and the mean of all to g."""
        change = self.beta * message
        if self.first is None:
            return change
        started = (self.first.bound / self._cap() / self.start_rounds) * message
        return jnp.where(self._starting(k), started, change)


@pytree
@dataclass(frozen=True)
class DpSgd:
    """Distributed DP-SGD, eq. (2): x^{k+1} = x^k - gamma (1/B) sum_i Psi(grad f_i(x^k))."""

    bound: Bounder | None
    local: LocalGradient
    lr: Any  # gamma_k, a Schedule

    only_sums = True  # of the messages the server uses their sum alone

    def init_server(self, x: Vector) -> ServerState:
        """x^0."""
        return ServerState(x, (), jnp.int32(0))

    def init_client(self, x: Vector) -> tuple[()]:
        """Clients keep nothing."""
        return ()

    def broadcast(self, state: ServerState) -> Broadcast:
        """What the server sends."""
        return Broadcast(state.x, state.k)

    def client(
        self, key: Key, received: Broadcast, state: tuple[()], data: ClientData
    ) -> tuple[Vector, jax.Array, tuple[()], ClientInfo]:
        """Psi(grad f_i(x^k)), nothing beside it, no state, info."""
        message, info = _bounded(self.bound, self.local(key, received.x, data))
        return message, jnp.float32(0), state, ClientInfo(*info)

    def server(
        self, key: Key, state: ServerState, total: Aggregate, extra: jax.Array, r: Scalar
    ) -> tuple[ServerState, None]:
        """x^{k+1} from the (noisy) sum of the messages and the planned cohort r = B."""
        x = state.x - self.lr(state.k) * (total.sum / r)
        return ServerState(x, (), state.k + 1), None

    @property
    def memory(self) -> Memory:
        """Clients keep nothing between rounds."""
        return Memory.NONE

    def extra_event(self, relation: Relation) -> Event | None:
        """Nothing is sent beside the message."""
        return None

    def noise_scale(self, state: ServerState) -> Scalar:
        """The bound does not move."""
        return 1.0

    def params(self, state: ServerState) -> Vector:
        """The last iterate."""
        return state.x


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
    R: float | None = None,
) -> ErrorFeedback:
    """EF21, Clip21 and alpha-NormEC, by what caps the message; noise and trust are chosen by the plan.

    Args:
      beta: how much of a message enters the memories; it scales signal and noise alike and is no privacy level.
      server_lr: gamma: a number, {start, decay}, {values, until} or a schedule.
      bound: `so.smoothed_normalize(alpha)` (alpha-NormEC), `so.clip(tau)` (Clip21), `so.normalize(C)`, or None.
      top_k: keep this many of the largest coordinates of the difference (EF21), before the bound if there is one.
      server_normalization: (the paper's box: true) divide g by its norm in the server's step.
      batch_size: records a gradient; all of the client's if left out.
      local_steps: E; above 1 the mean gradient along E local steps is compensated (no theorem covers it).
      local_lr: of the local steps.
      memory: how it starts: "zero", "noisy", "secure-average" or "exact".
      memory_clip: G_0, the bound of the first gradients, for "noisy" and "secure-average".
      memory_rounds: m, how many of the rounds are spent on the start.
      remember_noise: (the paper's box: false) the memory follows what was sent, noise and all, so that noise is
        compensated too; for local trust, and a model user's epsilon is then the server's.
      R: what is publicly known of max_i ||grad f_i(x^0) - g_i^0||; only a warning depends on it.
    """
    require(0 < beta < math.inf, "beta", beta, "must be positive and finite")
    if top_k is not None:
        require_count(top_k, "top_k", "must be a whole number, at least 1, or left out")
    require_count(memory_rounds, "memory_rounds")
    remedy = "give what caps the message: smoothed_normalize (alpha-NormEC), clip (Clip21), normalize or top_k (EF21)"
    require(bound is not None or top_k is not None, "bound", bound, remedy)
    require(not isinstance(bound, AdaptiveClip), "bound", "adaptive_clip", "the memory needs a fixed bound: use clip")
    if memory not in STARTS:
        raise InvalidInput("memory", memory, "use one of " + ", ".join(STARTS))
    starts_clipped = memory in ("noisy", "secure-average")
    remedy = (
        "give the bound G_0 of the first gradients" if starts_clipped else f"memory {memory} clips nothing: drop it"
    )
    require((memory_clip is not None) == starts_clipped, "memory_clip", memory_clip, remedy)
    if memory_clip is not None:
        require_bound("memory_clip", memory_clip)
    remedy = f"memory {memory} takes one round: drop it"
    require(memory_rounds == 1 or starts_clipped, "memory_rounds", memory_rounds, remedy)
    remedy = (
        "the noise of all clients is counted on, and remembered noise shows in later sums: use memory noisy or zero"
    )
    require(not (remember_noise and memory == "secure-average"), "remember_noise", remember_noise, remedy)
    require(R is None or R >= 0, "R", R, "must not be negative")
    first = None if memory == "zero" else clip(LARGEST_BOUND if memory_clip is None else memory_clip)
    local = _local_gradient(batch_size, local_steps, local_lr)
    lr = as_schedule(server_lr, "server_lr")
    return ErrorFeedback(
        bound=bound,
        local=local,
        beta=beta,
        lr=lr,
        first=first,
        clients=None,
        R=R,
        top_k=top_k,
        start=memory,
        start_rounds=memory_rounds,
        server_normalization=server_normalization,
        remembers_noise=remember_noise,
    )


def dp_sgd(
    *,
    server_lr: StepSize,
    bound: Bounder | None = None,
    batch_size: int | None = None,
    local_steps: int = 1,
    local_lr: float | None = None,
) -> DpSgd:
    """Distributed DP-SGD, eq. (2); where the paper tunes beta and gamma of it, only their product counts.

    Args:
      server_lr: gamma: a number, {start, decay}, {values, until} or a schedule.
      bound: Psi: `so.smoothed_normalize(alpha)`, `so.clip(tau)` or `so.normalize(C)`; None is plain SGD (not private).
      batch_size: records a gradient; all of the client's if left out.
      local_steps: E; above 1 the mean gradient along E local steps is bounded.
      local_lr: of the local steps.
    """
    require(not isinstance(bound, AdaptiveClip), "bound", "adaptive_clip", "eq. (2) has a fixed bound: use clip")
    return DpSgd(bound, _local_gradient(batch_size, local_steps, local_lr), as_schedule(server_lr, "server_lr"))


def keep_largest(v: Vector, k: int) -> Vector:
    """The k coordinates of largest magnitude, zero elsewhere: ||v - top_k(v)||^2 <= (1 - k/d) ||v||^2."""
    _require_top_k(k, v.size)
    _, largest = jax.lax.top_k(jnp.abs(v), k)
    return jnp.zeros_like(v).at[largest].set(v[largest])


def _require_top_k(k: int, d: int) -> None:
    require(k <= d, "top_k", k, f"there are only {d} coordinates: use at most as many")


def _local_gradient(batch_size: int | None, local_steps: int, local_lr: float | None) -> LocalGradient:
    if batch_size is not None:
        require_count(batch_size, "batch_size", "must be a whole number, at least 1, or left out")
    require_count(local_steps, "local_steps")
    remedy = "give the step size of the local steps" if local_steps > 1 else "one gradient takes no local step: drop it"
    require((local_lr is not None) == (local_steps > 1), "local_lr", local_lr, remedy)
    require(local_lr is None or 0 < local_lr < math.inf, "local_lr", local_lr, "must be positive and finite")
    return LocalGradient(1.0 if local_lr is None else local_lr, local_steps, batch_size)


def _bounded(bound: Bounder | None, v: Vector) -> tuple[Vector, BoundInfo]:
    """Psi; without a bound nothing is shortened, and what is not finite is dropped all the same."""
    if bound is not None:
        return bound(v)
    finite = jnp.all(jnp.isfinite(v))
    return jnp.where(finite, v, 0.0), BoundInfo(jnp.linalg.norm(v), jnp.bool_(False), ~finite)


def _direction(g: Vector) -> Vector:
    """g / ||g||, with 0/0 = 0."""
    norm = jnp.linalg.norm(g)
    return g / jnp.where(norm > 0, norm, 1.0)


def _number(values: np.ndarray) -> str:
    """One number, or those of a sweep."""
    return ", ".join(f"{value:g}" for value in np.ravel(values))
