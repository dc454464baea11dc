"""Methods that protect records: a client sends a noisy mean of the clipped gradients of some of its records.

    client i:  draws K_i of its n_i records, without or with replacement
               g_i = weight_i (1/K_i) sum_x clip(grad f(w, x), L_i);    sends g_i + N(0, sigma_i^2 I)

weight_i is 1, or n_i over the mean of all n_j where clients count in proportion to their records, or p_i over the mean
of all p_j for F = sum_i p_i F_i (Appendix B). L_i, K_i, weight_i
and sigma_i are a client's own numbers; the plan computes them. With replacement a record may be drawn several times
and then counts as often: how often is binomial, Bin(K_i, 1/n_i), and the accountant weighs every case. In one pass a
client goes through its records in one public order, K_i in each round, and uses none of them twice.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Self, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from sordino.algorithms.common import require_choice
from sordino.algorithms.local import ClientData
from sordino.bounding import Clip
from sordino.bounding._norm import require_bound
from sordino.errors import InvalidInput, require, require_count, require_float32
from sordino.keys import key_of
from sordino.models import Batch
from sordino.pytrees import pytree
from sordino.summation import RunningSum
from sordino.types import (
    Bounder,
    BoundInfo,
    ClientNumbers,
    Key,
    Message,
    Method,
    PlanContext,
    Privacy,
    PyTree,
    RecordFacts,
    Scalar,
    Unit,
    Vector,
)

Number = TypeVar("Number", int, float)
NumberPerClient: TypeAlias = float | list[float]  # one number for all clients, or one each
BLOCK = 256  # records whose gradients are in memory at a time
WEIGHTS = ("clients", "records")
WITHOUT, WITH = DRAWS = ("without-replacement", "with-replacement")


@dataclass(frozen=True)
class RecordOptions:
    """The arguments that a plan turns into every client's own numbers."""

    lipschitz: tuple[float, ...]  # one, or one a client
    batch_size: tuple[int, ...] | None = None  # one, or one a client; None for all records
    weights: str | tuple[float, ...] = "clients"  # or p_i, one a client
    one_pass: bool = False
    smoothness: float | None = None
    feature_bound: float | None = None
    draws: str = WITHOUT


class Point(NamedTuple):
    """What a client of round r receives: the point at which gradients are taken."""

    w: Vector
    r: jax.Array


@pytree
@dataclass(frozen=True)
class RecordGradients:
    """weight_i (1/K_i) sum of clipped gradients of K_i records.

    One record moves it by at most 2 weight_i L_i / K_i, with replacement times the number of its draws.
    """

    largest: int = field(metadata={"static": True})  # of all K_i
    one_pass: bool = field(metadata={"static": True})
    draws: str = field(default=WITHOUT, metadata={"static": True})

    def __call__(self, key: Key, w: Vector, r: jax.Array, data: ClientData) -> tuple[Vector, BoundInfo]:
        """g_i at w in round r. `clipped` and `dropped` tell whether any record's gradient was."""
        numbers = numbers_of(data)
        batch = self.draw(key, r, data)
        total, clipped, dropped = _clipped_sum(w, batch, numbers.lipschitz, data)
        g = numbers.weight * (total / numbers.batch)  # in this order bounds up to 1e30 do not overflow
        return g, BoundInfo(jnp.linalg.norm(g), clipped, dropped)

    def draw(self, key: Key, r: jax.Array, data: ClientData) -> Batch:
        """K_i records: a fresh sample in every round, or in one pass the next ones of a public order."""
        numbers, place = numbers_of(data), jnp.arange(min(self.largest, data.largest))
        if self.draws == WITH:
            batch = data.take(jax.random.randint(key, place.shape, 0, data.size))
            return batch._replace(weight=batch.weight * (place < numbers.batch))
        at = place
        if self.one_pass:
            key = jax.random.fold_in(key_of(0), numbers.client)
            at = r * numbers.batch + place
        inside = (at >= 0) & (at < data.largest)  # one pass ends with the last record: a place beyond it has weight 0
        batch = data.take(data.shuffled(key)[jnp.where(inside, at, 0)])
        return batch._replace(weight=batch.weight * inside * (place < numbers.batch))


def _clipped_sum(w: Vector, batch: Batch, L: jax.Array, data: ClientData) -> tuple[Vector, jax.Array, jax.Array]:
    """sum_x clip(grad f(w, x), L), a block of records at a time, with the rounding error of the sum carried along."""
    clip, here = Clip(L), batch.weight > 0
    size = min(BLOCK, here.shape[0])
    pad = -here.shape[0] % size

    def cut(leaf: jax.Array) -> jax.Array:
        wide = jnp.pad(leaf, ((0, pad), *((0, 0) for _ in leaf.shape[1:])))
        return wide.reshape(-1, size, *leaf.shape[1:])

    def gradient(x: jax.Array, y: jax.Array, present: jax.Array) -> tuple[Vector, jax.Array, jax.Array]:
        g, info = clip(data.gradient(w, Batch(x[None], y[None], jnp.ones(1))))
        return jnp.where(present, g, 0.0), info.clipped & present, info.dropped & present

    def block(carry: PyTree, part: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[PyTree, None]:
        total, clipped, dropped = carry
        each, shortened, lost = jax.vmap(gradient)(*part)
        return (total.plus(RunningSum.of_each(each)), clipped | shortened.any(), dropped | lost.any()), None

    start = (RunningSum.of(jnp.zeros_like(w)), jnp.bool_(False), jnp.bool_(False))
    parts = (cut(batch.x), cut(batch.y), cut(here))
    total, clipped, dropped = jax.lax.scan(block, start, parts)[0]
    return total.value(), clipped, dropped


@pytree
@dataclass(frozen=True)
class RecordMethod(Method):
    """A method whose clients send noisy means of clipped gradients of their records."""

    gradients: RecordGradients | None  # known when a plan resolves
    options: RecordOptions | None = field(metadata={"static": True})  # None once resolved: a client has its numbers

    uses_smoothness: ClassVar[bool] = True  # whether step sizes rest on beta, which the plan then has to know
    bound = None  # of a whole message: gradients of records are clipped instead

    @property
    def privacy(self) -> Privacy:
        return Privacy(unit=Unit.RECORD, uses_sum_only=True)

    def client(self, key: Key, received: PyTree, state: PyTree, data: ClientData) -> tuple[Message, PyTree, BoundInfo]:
        """g_i; what is received is a `Point`."""
        assert self.gradients is not None  # a plan resolves it
        g, info = self.gradients(key, received.w, received.r, data)
        return Message(g), state, info

    @property
    def with_replacement(self) -> bool:
        """Whether a record may be drawn several times for one gradient."""
        known = self.gradients if self.options is None else self.options
        return known is not None and known.draws == WITH

    def resolve(self, context: PlanContext) -> Self:
        assert self.options is not None
        largest = int(records_of(context)[0].batch.max())
        gradients = RecordGradients(largest, self.options.one_pass, self.options.draws)
        return dataclasses.replace(self, gradients=gradients, options=None)

    def round_of(self, received: PyTree) -> Scalar:
        return received.r

    def limit(self, received: PyTree, numbers: ClientNumbers | None) -> Scalar | None:
        assert numbers is not None
        return numbers.weight * numbers.lipschitz


def numbers_of(data: ClientData) -> ClientNumbers:
    """The client's own numbers."""
    if data.numbers is None:
        raise InvalidInput("numbers", None, "methods that protect records need each client's own numbers: give them")
    return data.numbers


def records_of(context: PlanContext) -> tuple[RecordFacts, int]:
    """What the plan knows of every client's records, and R, the number of rounds."""
    if context.records is None or context.rounds is None:
        remedy = "methods that protect records need the number of rounds and every client's number of records"
        raise InvalidInput("records", None, remedy)
    return context.records, context.rounds


def variance(context: PlanContext, *, with_replacement: bool) -> float:
    """V^2 of the mean of a round of M = 1 / E(1 / M_r) messages.

    A client that uses each of its records once has no sampling error.
    """
    known, _ = records_of(context)
    sampling = np.where(
        with_replacement | (known.batch < known.sizes), 4 * (known.weight * known.lipschitz) ** 2 / known.batch, 0.0
    )
    messages = context.planned_cohort if context.answering is None else context.answering
    return float(np.mean(sampling + context.d * known.noise_std**2) / messages)


def project(w: Vector, D: Scalar) -> Vector:
    """Pi_W [w] = w min(1, D / ||w||)."""
    return w * jnp.minimum(1.0, D / jnp.maximum(jnp.linalg.norm(w), jnp.finfo(w.dtype).tiny))


def require_ball(radius: float, mu: float) -> None:
    """Check D, and mu of the regulariser."""
    require_float32("radius", radius)
    require_float32("mu", mu, or_zero=True)


def record_options(
    bound: Bounder | None,
    lipschitz: NumberPerClient,
    batch_size: int | list[int] | None,
    smoothness: float | None,
    feature_bound: float | None,
    weights: str | list[float],
    one_pass: bool,
    draws: str,
) -> RecordOptions:
    """The options of a method, checked."""
    require(bound is None, "bound", bound, "leave out: `lipschitz` clips the gradient of each record instead")
    for name, constant in (("smoothness", smoothness), ("feature_bound", feature_bound)):
        if constant is not None:
            require_float32(name, constant)
    require(batch_size is not None or not one_pass, "batch_size", batch_size, "one pass needs the records of a round")
    if isinstance(weights, str):
        require_choice("weights", weights, WEIGHTS)
    else:
        for p in weights:
            usable = isinstance(p, int | float | np.number) and not isinstance(p, bool) and 0 < p < math.inf
            require(usable, "weights", p, "every p_i must be a positive, finite number")
    require_choice("draws", draws, DRAWS)
    if draws == WITH:
        require(not one_pass, "draws", draws, f"one pass uses no record twice: leave one_pass out, or use {WITHOUT}")
        require(batch_size is not None, "batch_size", batch_size, f"say how many records are drawn {WITH}")
    L = tuple(map(float, _one_or_each("lipschitz", lipschitz)))
    for value in L:
        require_bound("lipschitz", value)
    K = None if batch_size is None else _one_or_each("batch_size", batch_size)
    for size in K or ():
        require_count(size, "batch_size", "must be a whole number, at least 1, or left out")
    counted = weights if isinstance(weights, str) else tuple(weights)
    return RecordOptions(L, K, counted, one_pass, smoothness, feature_bound, draws)


def _one_or_each(field: str, value: Number | list[Number]) -> tuple[Number, ...]:
    several = tuple(value) if isinstance(value, list | tuple) else (value,)
    require(bool(several), field, value, "give one number, or one for each client")
    return several
