"""Federated learning without a trusted server (Lowy and Razaviyayn): each client protects each of its records.

Algorithm 1, Noisy MB-SGD:

    for r = 0, ..., R - 1
      server sends w_r to the clients of S_r
      client i:  draws K_i of its n_i records without replacement
                 g_i = (1/K_i) sum_x clip(grad f(w_r, x), L_i);    sends g_i + N(0, sigma_i^2 I)
      server:    g = (1/M_r) sum_i g_i + mu w_r
                 w_{r+1} = Pi_W [w_r - eta g]                      W is the ball of radius D
    return (1/Gamma_R) sum_r gamma_r w_r,   Gamma_R = sum_r gamma_r,   gamma_r = (1 - mu eta)^-(r + 1)

Algorithm 2, Accelerated Noisy MB-SGD (AC-SA), from w_ag = w:

    for r = 1, ..., R
      line 2   alpha_r = 2 / (r + 1),   eta_r = 4 upsilon / (r (r + 1))
      line 3   w_md = [(1 - alpha_r)(mu + eta_r) w_ag + alpha_r ((1 - alpha_r) mu + eta_r) w]
                      / (eta_r + (1 - alpha_r^2) mu)
      server sends w_md, clients as above, g = (1/M_r) sum_i g_i + regulariser's gradient at w_md
      line 10  w = Pi_W [(alpha_r mu w_md + ((1 - alpha_r) mu + eta_r) w - alpha_r g) / (mu + eta_r)]
      line 11  w_ag = alpha_r w + (1 - alpha_r) w_ag
    return w_ag

Its multi-stage form begins again, from w = w_ag and r = 1, at the start of each stage. In one pass a client goes
through its records in one public order, K_i in each round and none of them twice, over all rounds and stages.

The regulariser (mu/2) ||w||^2 is public, so the server adds its gradient. Step sizes come from public constants alone:
beta, mu, D, L_i, the noise, and V^2 = (1/M^2) sum_i (4 L_i^2 / K_i + d sigma_i^2), which bounds the variance of g.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sordino.algorithms.local import ClientData
from sordino.bounding import Clip
from sordino.bounding._norm import require_bound
from sordino.errors import LARGEST_SEED, InvalidInput, require, require_count, require_float32
from sordino.models import Batch
from sordino.privacy.events import Event
from sordino.pytrees import pytree
from sordino.summation import RunningSum
from sordino.types import Aggregate, Key, Memory, Relation, Scalar, Unit, Vector

__all__ = [
    "AcSa",
    "AcSaWeights",
    "NoisyMbSgd",
    "Public",
    "RecordGradients",
    "ac_sa_weights",
    "accelerated_mb_sgd",
    "noisy_mb_sgd",
    "project",
    "stages_of",
]

Numbers: TypeAlias = NDArray[np.float64]
PerClient: TypeAlias = float | list[float]  # one number for all clients, or one each
BLOCK = 256  # records whose gradients are in memory at a time
WEIGHTS = ("clients", "records")


# --- What is public -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Public:
    """What a plan knows before anything runs, none of it from a record's contents. Arrays have one entry a client."""

    d: int
    rounds: int  # R
    cohort: float  # M
    sizes: Numbers  # n_i
    batch: Numbers  # K_i
    weight: Numbers  # what a message is multiplied by: 1, or n_i over the mean of all n_j
    lipschitz: Numbers  # L_i
    noise_std: Numbers  # sigma_i times the weight, of a message
    smoothness: float  # beta of one record's loss

    @property
    def variance(self) -> float:
        """V^2, of the mean of a round; a client that uses all of its records has no sampling error."""
        sampling = np.where(self.batch < self.sizes, 4 * (self.weight * self.lipschitz) ** 2 / self.batch, 0.0)
        return float(np.mean(sampling + self.d * self.noise_std**2) / self.cohort)


# --- The client, the same in every method -------------------------------------------------------------------------


class Broadcast(NamedTuple):
    """The point at which round r asks for gradients."""

    w: Vector
    r: jax.Array


class ClientInfo(NamedTuple):
    """For people only, computed on private data: never released."""

    norm: jax.Array  # of the mean gradient
    clipped: jax.Array  # some record's gradient was longer than L_i
    dropped: jax.Array  # some record's gradient was not finite and counts as zero


@pytree
@dataclass(frozen=True)
class RecordGradients:
    """weight_i (1/K_i) sum of clipped gradients of K_i records. One record moves it by at most 2 weight_i L_i / K_i."""

    L: jax.Array
    K: jax.Array
    weight: jax.Array
    largest: int = field(metadata={"static": True})  # of all K_i
    one_pass: bool = field(metadata={"static": True})
    order_seed: int = field(metadata={"static": True})

    def __call__(self, key: Key, received: Broadcast, data: ClientData) -> tuple[Vector, ClientInfo]:
        """The message before noise."""
        i = data.client
        batch = self.draw(key, received.r, data)
        total, clipped, dropped = self._clipped_sum(received.w, batch, self.L[i], data)
        g = self.weight[i] * (total / self.K[i])  # in this order bounds up to 1e30 do not overflow
        return g, ClientInfo(jnp.linalg.norm(g), clipped, dropped)

    def draw(self, key: Key, r: jax.Array, data: ClientData) -> Batch:
        """K_i different records: a fresh sample in every round, or in one pass the next ones of a public order."""
        place = jnp.arange(self.largest)
        if self.one_pass:
            # Never back to the start: what lies beyond the last record has weight 0.
            order = data.shuffled(jax.random.fold_in(jax.random.key(self.order_seed), data.client))
            at = r * self.K[data.client] + place
            inside = at < data.largest
            batch = data.take(order[jnp.where(inside, at, 0)])
        else:
            inside = place < data.largest
            batch = data.take(data.shuffled(key)[jnp.where(inside, place, 0)])
        return batch._replace(weight=batch.weight * inside * (place < self.K[data.client]))

    @staticmethod
    def _clipped_sum(w: Vector, batch: Batch, L: jax.Array, data: ClientData) -> tuple[Vector, jax.Array, jax.Array]:
        """sum_x clip(grad f(w, x), L), a block of records at a time; what sums of blocks lose to rounding is kept."""
        clip, here = Clip(L), batch.weight > 0
        size = min(BLOCK, here.shape[0])
        pad = -here.shape[0] % size

        def cut(leaf: jax.Array) -> jax.Array:
            wide = jnp.pad(leaf, ((0, pad), *((0, 0) for _ in leaf.shape[1:])))
            return wide.reshape(-1, size, *leaf.shape[1:])

        def gradient(x: jax.Array, y: jax.Array, present: jax.Array) -> tuple[Vector, jax.Array, jax.Array]:
            g, info = clip(data.gradient(w, Batch(x[None], y[None], jnp.ones(1))))
            return jnp.where(present, g, 0.0), info.clipped & present, info.dropped & present

        def block(carry: Any, part: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[Any, None]:
            total, clipped, dropped = carry
            each, cut_off, lost = jax.vmap(gradient)(*part)
            return (total.plus(RunningSum.of_each(each)), clipped | cut_off.any(), dropped | lost.any()), None

        start = (RunningSum.of(jnp.zeros_like(w)), jnp.bool_(False), jnp.bool_(False))
        parts = (cut(batch.x), cut(batch.y), cut(here))
        total, clipped, dropped = jax.lax.scan(block, start, parts)[0]
        return total.value(), clipped, dropped


def project(w: Vector, D: Scalar) -> Vector:
    """Pi_W [w] = w min(1, D / ||w||)."""
    return w * jnp.minimum(1.0, D / jnp.maximum(jnp.linalg.norm(w), jnp.finfo(w.dtype).tiny))


# --- What both methods share --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """The arguments that wait for the plan, which knows the clients."""

    lipschitz: tuple[float, ...]  # one, or one a client
    batch_size: tuple[int, ...] | None
    weights: str
    one_pass: bool
    order_seed: int
    smoothness: float | None
    feature_bound: float | None


@pytree
@dataclass(frozen=True)
class _RecordLevel:
    """A method whose clients send noisy means of clipped record gradients."""

    radius: Scalar  # D
    mu: Scalar
    gradients: RecordGradients | None  # known once the plan is
    asked: Asked | None = field(metadata={"static": True})  # None once the plan is known: its numbers are leaves then

    unit = Unit.RECORD
    memory = Memory.NONE
    only_sums = True  # of the messages the server uses their sum alone
    releases_a_round = 1
    adds_noise = False  # the engine adds it to the message
    uses_smoothness = True

    @property
    def bound(self) -> Clip | None:
        """No message is longer than the largest weight_i L_i."""
        return None if self.gradients is None else Clip(jnp.max(self.gradients.weight * self.gradients.L))

    def init_client(self, w: Vector) -> tuple[()]:
        """Clients keep nothing."""
        return ()

    def client(
        self, key: Key, received: Broadcast, state: tuple[()], data: ClientData
    ) -> tuple[Vector, jax.Array, tuple[()], ClientInfo]:
        """g_i before noise, nothing beside it, no state, info."""
        assert self.gradients is not None
        g, info = self.gradients(key, received, data)
        return g, jnp.float32(0), state, info

    def extra_event(self, relation: Relation) -> Event | None:
        """Nothing is sent beside the gradient."""
        return None

    def noise_scale(self, state: Any) -> Scalar:
        """The bound is fixed."""
        return 1.0

    def _gradients(self, public: Public) -> RecordGradients:
        assert self.asked is not None
        L, weight = jnp.asarray(public.lipschitz, jnp.float32), jnp.asarray(public.weight, jnp.float32)
        K, largest = jnp.asarray(public.batch, jnp.int32), int(public.batch.max())
        return RecordGradients(L, K, weight, largest, self.asked.one_pass, self.asked.order_seed)


# --- Algorithm 1 --------------------------------------------------------------------------------------------------


class SgdState(NamedTuple):
    """w_r, the weighted mean of w_0, ..., w_{r-1}, and log_total = log Gamma_r."""

    w: Vector
    average: Vector
    log_total: jax.Array
    r: jax.Array


@pytree
@dataclass(frozen=True)
class NoisyMbSgd(_RecordLevel):
    """See the module."""

    eta: Scalar | None

    def init_server(self, w: Vector) -> SgdState:
        """w_0."""
        w = project(w, self.radius)
        return SgdState(w, w, jnp.float32(-jnp.inf), jnp.int32(0))

    def broadcast(self, state: SgdState) -> Broadcast:
        """w_r."""
        return Broadcast(state.w, state.r)

    def server(self, key: Key, state: SgdState, total: Aggregate, extra: jax.Array, r: Scalar) -> tuple[SgdState, None]:
        """w_{r+1}, and the mean of w_0, ..., w_r with weights gamma_r, whose logarithms do not overflow."""
        assert self.eta is not None
        g = total.sum / r + self.mu * state.w
        w = project(state.w - self.eta * g, self.radius)
        log_gamma = -(state.r + 1.0) * jnp.log1p(-self.mu * self.eta)
        log_total = jnp.logaddexp(state.log_total, log_gamma)
        average = state.average + jnp.exp(log_gamma - log_total) * (state.w - state.average)
        return SgdState(w, average, log_total, state.r + 1), None

    def params(self, state: SgdState) -> Vector:
        """The weighted mean."""
        return state.average

    def for_public(self, public: Public) -> tuple[NoisyMbSgd, dict[str, float]]:
        """The method with its step size, and what that rests on.

        Convex: eta = min{1 / (4 beta), D sqrt(M n) / (L R), D / (V sqrt(R))}. The paper's second minimum has its own
        noise formula in place of V; with that noise both agree up to a constant. Strongly convex, as in the paper:
        eta = min{1 / (4 beta), ln(max{2, mu^2 D^2 R^2 / (2 V^2)}) / (mu R)}.
        """
        mu, D, R, V2 = float(self.mu), float(self.radius), public.rounds, public.variance
        beta = public.smoothness + mu
        eta = 1 / (4 * beta)
        if mu > 0 and V2 > 0:
            eta = min(eta, math.log(max(2.0, (mu * D * R) ** 2 / (2 * V2))) / (mu * R))
        elif V2 > 0:
            L, n = float(np.max(public.weight * public.lipschitz)), float(np.mean(public.sizes))
            eta = min(eta, D * math.sqrt(public.cohort * n) / (L * R), D / math.sqrt(V2 * R))
        eta = eta if self.eta is None else float(self.eta)
        require_float32("step_size", eta)  # given, or from radius, lipschitz and smoothness
        ready = dataclasses.replace(self, gradients=self._gradients(public), asked=None, eta=eta)
        return ready, {"beta": beta, "mu": mu, "D": D, "V": math.sqrt(V2), "eta": eta}


# --- Algorithm 2 --------------------------------------------------------------------------------------------------


class AcSaWeights(NamedTuple):
    """alpha_r, eta_r, and the weights of w_ag and w in the middle point w_md."""

    alpha: float
    eta: float
    of_aggregate: float
    of_iterate: float


def ac_sa_weights(r: int, mu: float, upsilon: float) -> AcSaWeights:
    """The weights of round r >= 1 for a mu-strongly convex loss."""
    require(r >= 1, "round", r, "rounds of Algorithm 2 count from 1")
    require(mu >= 0, "mu", mu, "must not be negative")
    require(upsilon > 0, "upsilon", upsilon, "must be positive")
    alpha, eta = 2 / (r + 1), 4 * upsilon / (r * (r + 1))
    whole = eta + (1 - alpha**2) * mu
    return AcSaWeights(alpha, eta, (1 - alpha) * (mu + eta) / whole, alpha * ((1 - alpha) * mu + eta) / whole)


class Stage(NamedTuple):
    """R_k rounds with eta_r = 4 upsilon_k / (r (r + 1))."""

    rounds: int
    upsilon: float


def stages_of(rounds: int, *, beta: float, mu: float, V2: float, gap: float) -> list[Stage]:
    """The stages k = 1, 2, ... of the multi-stage form; gap >= F(w_0) - F*.

    R_k = ceil(max{4 sqrt(2 beta / mu), 128 V^2 / (3 mu gap 2^-(k+1))})
    upsilon_k = max{2 beta, [mu V^2 R_k (R_k + 1)(R_k + 2) / (3 gap 2^-(k-1))]^(1/2)}

    A stage that is cut short ends with more noise than it began with, so the last whole one takes the rounds that are
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


class AcSaState(NamedTuple):
    """w_0, w_{r-1}, w_ag, and how many rounds are over."""

    w0: Vector
    w: Vector
    w_ag: Vector
    r: jax.Array


@pytree
@dataclass(frozen=True)
class Schedule:
    """The weights of every round, and whether a stage begins with it."""

    alpha: jax.Array
    eta: jax.Array
    of_aggregate: jax.Array
    of_iterate: jax.Array
    begins: jax.Array


@pytree
@dataclass(frozen=True)
class AcSa(_RecordLevel):
    """See the module."""

    anchor: Scalar  # lambda of the convex case, (lambda / 2) ||w - w_0||^2; 0 where mu > 0
    schedule: Schedule | None
    initial_gap: float | None = field(metadata={"static": True})
    multi_stage: bool = field(metadata={"static": True})

    def init_server(self, w: Vector) -> AcSaState:
        """w_0 = w_ag."""
        w = project(w, self.radius)
        return AcSaState(w, w, w, jnp.int32(0))

    def broadcast(self, state: AcSaState) -> Broadcast:
        """w_md."""
        return Broadcast(self._middle(state)[0], state.r)

    def server(
        self, key: Key, state: AcSaState, total: Aggregate, extra: jax.Array, r: Scalar
    ) -> tuple[AcSaState, None]:
        """Lines 10 and 11."""
        assert self.schedule is not None
        w_md, w = self._middle(state)
        alpha, eta = self.schedule.alpha[state.r], self.schedule.eta[state.r]
        mu = self.mu + self.anchor
        g = total.sum / r + self.mu * w_md + self.anchor * (w_md - state.w0)
        w = project((alpha * mu * w_md + ((1 - alpha) * mu + eta) * w - alpha * g) / (mu + eta), self.radius)
        return AcSaState(state.w0, w, alpha * w + (1 - alpha) * state.w_ag, state.r + 1), None

    def params(self, state: AcSaState) -> Vector:
        """w_ag."""
        return state.w_ag

    def _middle(self, state: AcSaState) -> tuple[Vector, Vector]:
        """Line 3: w_md, and w, which is w_ag where a stage begins."""
        assert self.schedule is not None
        r = state.r
        w = jnp.where(self.schedule.begins[r], state.w_ag, state.w)
        return self.schedule.of_aggregate[r] * state.w_ag + self.schedule.of_iterate[r] * w, w

    def for_public(self, public: Public) -> tuple[AcSa, dict[str, float]]:
        """The method with its weights, and what they rest on.

        Convex: on F + (lambda/2) ||w - w_0||^2 with lambda = V / (2 D sqrt(R)) and upsilon = beta + lambda (the paper
        leaves the choice open; this is Ghadimi and Lan's). Strongly convex: one stage or several, see `stages_of`.
        The gap F(w_0) - F* is at most L D + mu D^2 / 2.
        """
        D, R, V2, convex = float(self.radius), public.rounds, public.variance, self.mu == 0
        L = float(np.max(public.weight * public.lipschitz))
        gap = self.initial_gap or L * D + float(self.mu) * D**2 / 2
        anchor = math.sqrt(V2 / R) / (2 * D) if convex else 0.0
        mu = float(self.mu) + anchor
        beta = public.smoothness + mu
        if convex:
            stages = [Stage(R, beta)]
        elif self.multi_stage:
            stages = stages_of(R, beta=beta, mu=mu, V2=V2, gap=gap)
        else:
            stages = [Stage(R, _upsilon(R, beta, mu, V2, gap))]
        gradients, schedule = self._gradients(public), _schedule(stages, mu)
        # What the schedule was made from is part of it now, and would only keep programs from being shared.
        ready = dataclasses.replace(
            self, gradients=gradients, asked=None, anchor=anchor, schedule=schedule, initial_gap=None, multi_stage=False
        )
        known = {"beta": beta, "mu": float(self.mu), "D": D, "V": math.sqrt(V2)}
        more = {"lambda": anchor} if anchor else {}
        return ready, known | more | {"gap": gap, "stages": float(len(stages))}


def _schedule(stages: Sequence[Stage], mu: float) -> Schedule:
    rows = [ac_sa_weights(r, mu, stage.upsilon) for stage in stages for r in range(1, stage.rounds + 1)]
    begins = [r == 0 for stage in stages for r in range(stage.rounds)]
    alpha, eta, of_aggregate, of_iterate = (jnp.asarray(column, jnp.float32) for column in zip(*rows, strict=True))
    return Schedule(alpha, eta, of_aggregate, of_iterate, jnp.asarray(begins))


# --- Factories ----------------------------------------------------------------------------------------------------


def noisy_mb_sgd(
    *,
    lipschitz: PerClient,
    radius: float,
    mu: float = 0.0,
    batch_size: int | list[int] | None = None,
    smoothness: float | None = None,
    feature_bound: float | None = None,
    step_size: float | None = None,
    weights: str = "clients",
    one_pass: bool = False,
    order_seed: int = 0,
    bound: Any = None,
) -> NoisyMbSgd:
    """Algorithm 1. Noise and trust are chosen by the plan, step sizes from public constants.

    Args:
      lipschitz: L, one number or one a client: every record's gradient is clipped to it, which enforces it.
      radius: D of the ball W.
      mu: of the regulariser (mu/2) ||w||^2, whose gradient the server adds.
      batch_size: K, one number or one a client; all records of a client if left out. A smaller client uses all it has.
      smoothness: beta of one record's loss; from the model and `feature_bound`, if left out.
      feature_bound: a public bound on the norm of a record's features.
      step_size: eta, instead of the theorems'.
      weights: "clients", every client counts the same, or "records", in proportion to its number of records.
      one_pass: use each record at most once over all rounds.
      order_seed: of the public order in which one pass goes through the records.
      bound: must be None: a whole update is not clipped here, its records' gradients are.
    """
    asked = _asked(lipschitz, radius, mu, batch_size, smoothness, feature_bound, weights, one_pass, order_seed, bound)
    if step_size is not None:
        require_float32("step_size", step_size)
    contracts = step_size is None or mu * step_size < 1
    require(contracts, "step_size", step_size, f"must lie below 1 / mu = {1 / mu if mu else math.inf:g}")
    return NoisyMbSgd(radius, mu, None, asked, step_size)


def accelerated_mb_sgd(
    *,
    lipschitz: PerClient,
    radius: float,
    mu: float = 0.0,
    batch_size: int | list[int] | None = None,
    smoothness: float | None = None,
    feature_bound: float | None = None,
    initial_gap: float | None = None,
    multi_stage: bool = False,
    weights: str = "clients",
    one_pass: bool = False,
    order_seed: int = 0,
    bound: Any = None,
) -> AcSa:
    """Algorithm 2, AC-SA. Noise and trust are chosen by the plan, weights from public constants.

    Args:
      lipschitz: L, as in `noisy_mb_sgd`; so are radius, mu, batch_size, smoothness, feature_bound, weights, one_pass,
        order_seed and bound.
      radius: D of the ball W.
      mu: of the regulariser; 0 for the convex form.
      batch_size: K.
      smoothness: beta of one record's loss.
      feature_bound: a public bound on the norm of a record's features.
      initial_gap: a public bound on F(w_0) - F*; L D + mu D^2 / 2 if left out.
      multi_stage: begin again in stages; needs mu > 0.
      weights: "clients" or "records".
      one_pass: use each record at most once over all rounds and stages.
      order_seed: of the public order of one pass.
      bound: must be None.
    """
    asked = _asked(lipschitz, radius, mu, batch_size, smoothness, feature_bound, weights, one_pass, order_seed, bound)
    if initial_gap is not None:
        require_float32("initial_gap", initial_gap)
    require(mu > 0 or not multi_stage, "multi_stage", multi_stage, "stages need a strongly convex loss: give mu > 0")
    return AcSa(radius, mu, None, asked, 0.0, None, initial_gap, multi_stage)


def _asked(
    lipschitz: PerClient,
    radius: float,
    mu: float,
    batch_size: int | list[int] | None,
    smoothness: float | None,
    feature_bound: float | None,
    weights: str,
    one_pass: bool,
    order_seed: int,
    bound: Any,
) -> Asked:
    require(bound is None, "bound", bound, "leave out: `lipschitz` clips the gradient of each record instead")
    L = tuple(map(float, lipschitz)) if isinstance(lipschitz, list | tuple) else (float(lipschitz),)
    require(bool(L), "lipschitz", lipschitz, "give one number, or one for each client")
    for value in L:
        require_bound("lipschitz", value)
    require_float32("radius", radius)
    require_float32("mu", mu, or_zero=True)
    for name, constant in (("smoothness", smoothness), ("feature_bound", feature_bound)):
        if constant is not None:
            require_float32(name, constant)
    whole = isinstance(order_seed, int) and 0 <= order_seed <= LARGEST_SEED
    require(whole, "order_seed", order_seed, "must be a whole number in [0, 2^32), as other seeds are")
    K = None
    if batch_size is not None:
        K = tuple(batch_size) if isinstance(batch_size, list | tuple) else (batch_size,)
        require(bool(K), "batch_size", batch_size, "give one number, or one for each client")
        for size in K:
            require_count(size, "batch_size", "must be a whole number, at least 1, or left out")
    require(K is not None or not one_pass, "batch_size", batch_size, "say how many records a round of one pass uses")
    if weights not in WEIGHTS:
        raise InvalidInput("weights", weights, "use one of " + ", ".join(WEIGHTS))
    return Asked(L, K, weights, one_pass, order_seed, smoothness, feature_bound)
